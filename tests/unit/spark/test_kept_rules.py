"""A checkpoint of composite events is of its rules: with others the command does not go on (D5)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from heliograph.model.errors import ClientFault
from heliograph.spark.pipelines.kept_rules import FILE, check_rules
from heliograph.spark.pipelines.rules import Rule, parse_rules

pytestmark = pytest.mark.req("D5")

FIRST = """
[[rules]]
name = "first"
by = "card"
pattern = "seq(a, b)"
within = "1m"
[rules.events]
a = "n = 1"
b = "n = 2"
[rules.action]
send = "queue:a"
"""
SECOND = FIRST.replace("first", "second").replace("seq(a, b)", "seq(b, a)")


def rules(text: str) -> list[Rule]:
    return parse_rules(text, "rules.toml")


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A checkpoint that Spark has written into."""
    check_rules(tmp_path, rules(FIRST + SECOND), 256)
    (tmp_path / "metadata").write_text("{}", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SECOND + FIRST, "rule 1, 'second', is another than 'first'"),
        (FIRST, "2 rules have become 1"),
        (FIRST + SECOND + FIRST.replace("first", "third"), "2 rules have become 3"),
        (FIRST.replace("n = 2", "n = 3") + SECOND, "rule 1, 'first', is another"),
        (FIRST.replace("1m", "2m") + SECOND, "rule 1, 'first', is another"),
        (FIRST.replace('by = "card"', 'where = "n > 0"') + SECOND, "rule 1, 'first', is another"),
        (
            FIRST + SECOND.replace('a = "n = 1"\nb = "n = 2"', 'b = "n = 2"\na = "n = 1"'),
            "rule 2, 'second', is another",
        ),
    ],
)
def test_rules_that_look_for_something_else_are_refused(begun: Path, text: str, said: str) -> None:
    for _ in range(2):  # and refusing changes nothing
        with pytest.raises(ClientFault) as refused:
            check_rules(begun, rules(text), 256)
        assert refused.value.code == "event-rules-changed"
        assert said in refused.value.sentence
        assert "another --checkpoint" in refused.value.sentence
    check_rules(begun, rules(FIRST + SECOND), 256)


def test_what_a_match_does_may_change(begun: Path) -> None:
    text = FIRST.replace("first", "renamed").replace("queue:a", "queue:b") + SECOND
    check_rules(
        begun, rules("# a comment\n" + text.replace('within = "1m"', 'within = "60s"\nlate = "5s"')), 256
    )


def test_another_number_of_buckets_is_another_checkpoint(begun: Path) -> None:
    with pytest.raises(ClientFault):
        check_rules(begun, rules(FIRST + SECOND), 128)


def test_a_checkpoint_that_spark_never_began_is_of_whatever_comes(tmp_path: Path) -> None:
    check_rules(tmp_path, rules(FIRST), 256)
    check_rules(tmp_path, rules(SECOND), 256)
    (tmp_path / "metadata").write_text("{}", encoding="utf-8")
    check_rules(tmp_path, rules(SECOND), 256)
    (tmp_path / FILE).write_text("[", encoding="utf-8")
    with pytest.raises(ClientFault, match="cannot be read"):
        check_rules(tmp_path, rules(SECOND), 256)


def test_a_checkpoint_of_keys_that_were_told_apart_otherwise_is_refused(begun: Path) -> None:
    kept = json.loads((begun / FILE).read_text(encoding="utf-8"))
    before = [{name: value for name, value in rule.items() if name != "keys"} for rule in kept]
    (begun / FILE).write_text(json.dumps(before), encoding="utf-8")
    with pytest.raises(ClientFault, match="when 0012 and 12 were one key") as refused:
        check_rules(begun, rules(FIRST + SECOND), 256)
    assert refused.value.code == "event-rules-changed"
    # Where nothing is told apart by keys, nothing has changed.
    plain = rules(FIRST.replace('by = "card"\n', ""))
    now = begun / "plain"
    check_rules(now, plain, 256)
    (now / "metadata").write_text("{}", encoding="utf-8")
    (kept,) = json.loads((now / FILE).read_text(encoding="utf-8"))
    (now / FILE).write_text(json.dumps([{"name": kept["name"], "digest": kept["digest"]}]), encoding="utf-8")
    check_rules(now, plain, 256)
