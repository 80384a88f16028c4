"""Errors: every code of the source stands in the reference, and no other."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from heliograph.model import errors
from heliograph.model.errors import CorruptJournal, HeliographError, NotAllowed, Unavailable, from_code

ROOT = Path(__file__).parent.parent.parent.parent
REFERENCE = ROOT / "docs" / "reference" / "errors.md"
CODE = re.compile(r"[a-z]+(-[a-z]+)+")
# Calls that take a code by its place.
BY_PLACE = {
    "Failed",
    "Fail",
    "Rejected",
    "Refused",
    "RefuseLane",
    "EndConsumer",
    "ConsumerClosed",
    "_refuse",
    "_refused",
}


def codes_in(tree: ast.Module) -> Iterator[str]:
    """Codes are given as `code=…`, as a class's `default_code`, or by place to what tells a client."""
    constants = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }

    def text(node: ast.expr | None) -> Iterator[str]:
        if isinstance(node, ast.Name):
            node = ast.Constant(constants.get(node.id))
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value

    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg == "code":
                    yield from text(keyword.value)
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in BY_PLACE:
                yield from (found for given in node.args for found in text(given) if CODE.fullmatch(found))
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and target.id in {"default_code", "code"}:
                yield from text(node.value)


def codes_of_the_source() -> set[str]:
    paths = sorted((ROOT / "src").rglob("*.py"))
    return {code for path in paths for code in codes_in(ast.parse(path.read_text(encoding="utf-8")))}


def codes_of_the_reference() -> list[str]:
    return re.findall(r"^\| `([a-z-]+)` \|", REFERENCE.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.req("X5")
def test_every_code_stands_in_the_reference() -> None:
    assert sorted(codes_of_the_source() - set(codes_of_the_reference())) == []


@pytest.mark.req("X5")
def test_the_reference_has_no_code_that_does_not_exist_and_none_twice() -> None:
    documented = codes_of_the_reference()
    assert sorted(set(documented) - codes_of_the_source()) == []
    assert sorted({code for code in documented if documented.count(code) > 1}) == []


def test_the_search_for_codes_finds_each_way_of_giving_one() -> None:
    source = """
OLD = "by-a-name"
class E: default_code = "by-default"
class G: code: str = "of-a-field"
raise Fault("a sentence", code="by-keyword")
raise Fault("a sentence", code=OLD)
frames.Failed(1, "by-place", "a sentence with-a dash")
"""
    found = set(codes_in(ast.parse(source)))
    assert found == {"by-a-name", "by-default", "of-a-field", "by-keyword", "by-place"}


def _kinds(root: type[HeliographError] = HeliographError) -> Iterator[type[HeliographError]]:
    yield root
    for kind in root.__subclasses__():
        if kind.__module__ == errors.__name__:
            yield from _kinds(kind)


def test_a_client_meets_the_kind_of_error_that_the_server_raised() -> None:
    for kind in _kinds():
        if kind is not CorruptJournal:  # stays with the node
            rebuilt = from_code(kind.default_code, "a sentence")
            assert (type(rebuilt), rebuilt.code, rebuilt.sentence) == (kind, kind.default_code, "a sentence")


def test_an_error_says_its_sentence_and_its_code() -> None:
    assert str(NotAllowed("you may not")) == "you may not [not-allowed]"
    assert str(Unavailable("come back later", code="too-many-logins")) == "come back later [too-many-logins]"
    corrupt = CorruptJournal("bytes disagree", path="segment-1", position=4096)
    assert (corrupt.path, corrupt.position) == ("segment-1", 4096)
    assert str(corrupt) == "bytes disagree (segment-1, byte 4096) [corrupt-journal]"


def test_the_tree_in_the_source_is_the_tree() -> None:
    assert errors.__doc__ is not None
    drawn = re.findall(r"(?:├──|└──) (\w+)", errors.__doc__)
    assert drawn == [kind.__name__ for kind in _kinds()][1:]
