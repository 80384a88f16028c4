"""The table of partition states says the same in the code, in the docstring and in the docs."""

from pathlib import Path

from heliograph.cluster import partition_table
from heliograph.cluster.partition_state import State
from heliograph.cluster.partition_table import MEANINGS, RULES, START, TRANSITIONS, reference

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "partition-states.md"


def test_the_page_is_made_of_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference()


def test_the_docstring_shows_the_table() -> None:
    docstring = partition_table.__doc__ or ""
    rows = [line for line in docstring.splitlines() if line.startswith("    ")][1:]
    drawn = []
    for row in rows:
        before, *cells = [cell.strip() for cell in row.strip().split("  ") if cell.strip()]
        drawn += [
            (before, rule, after)
            for rule, cell in zip(RULES, cells, strict=True)
            for after in cell.split(", ")
        ]
    assert drawn == [(each.before, each.rule, each.after) for each in TRANSITIONS]


def test_every_state_has_its_words_and_its_ways() -> None:
    assert list(MEANINGS) == list(State)
    for before in (START, *State):
        assert {each.after for each in TRANSITIONS if each.before == before} == set(State)
