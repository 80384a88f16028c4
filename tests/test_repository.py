"""The repository keeps its own promises: its list of requirements, its docstrings, its names."""

import ast
import re
from itertools import groupby
from pathlib import Path

import pytest

from tests.requirements_coverage import REQUIREMENTS, Coverage, Requirement, listed_requirements

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "heliograph"
# Names that say nothing about what is inside.
EMPTY_NAMES = {"utils", "helpers", "common", "base", "impl", "core"}


def test_requirements_are_numbered_without_gaps_or_repeats() -> None:
    ids = [requirement.id for requirement in listed_requirements()]
    by_prefix = {prefix: list(group) for prefix, group in groupby(ids, key=lambda id: id[0])}
    assert list(by_prefix) == ["J", "M", "U", "A", "P", "H", "D", "X"]
    assert ids == [f"{prefix}{n}" for prefix, group in by_prefix.items() for n in range(1, len(group) + 1)]


def test_no_requirement_is_overlooked_because_of_its_form() -> None:
    bullets = [line for line in REQUIREMENTS.read_text(encoding="utf-8").splitlines() if line.startswith("-")]
    assert len(bullets) == len(listed_requirements())


def test_every_module_says_what_happens_in_it() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in sorted(PACKAGE.rglob("*.py"))
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert silent == []


def test_no_module_has_an_empty_name() -> None:
    named = {path: re.split(r"_+", path.stem) for path in PACKAGE.rglob("*") if path.suffix in {"", ".py"}}
    assert [str(path) for path, words in named.items() if EMPTY_NAMES & set(words)] == []


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_between_documents_lead_somewhere(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    targets = [target for target in re.findall(r"\]\(([^)#]+)", text) if "://" not in target]
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_a_requirement_counts_only_when_a_test_passed_and_none_failed() -> None:
    requirements = [Requirement(id=f"Z{n}", title="A title", text="some text") for n in range(1, 5)]
    coverage = Coverage(requirements=requirements, only_claims=True)
    coverage.record("Z1", "test_a", "passed")
    coverage.record("Z2", "test_b", "passed")
    coverage.record("Z2", "test_b", "failed")  # in its teardown
    coverage.record("Z3", "test_c", "skipped")
    assert [coverage.is_proved(requirement.id) for requirement in requirements] == [True, False, False, False]
    assert coverage.verdict("Z2") == "1 failed"
    assert coverage.verdict("Z4") == "none yet"
    assert list(coverage.lines())[-1] == "1 of 4 requirements have tests that all pass"
