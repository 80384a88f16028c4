"""Why messages are done that nobody had: written down with them, and nothing to do for who replays (M11, D4)."""

from __future__ import annotations

import struct

import pytest

from heliograph.destinations.effects import AnyEffect, Note
from heliograph.destinations.pages import Entry
from heliograph.destinations.removals import Removal, reason_in
from heliograph.destinations.replay import EntryRuns
from heliograph.journal.records import RecordKind
from tests.unit.destinations.stories import asked, several
from tests.unit.destinations.test_fairness import attach, publish, queue, settle

pytestmark = pytest.mark.req("M11", "D4")


def test_a_purge_says_that_it_is_one_and_an_acknowledgement_says_nothing() -> None:
    orders = queue()
    publish(orders, several(1, 5))
    taker, _ = attach(orders, 2)
    (note,) = asked(settle(orders, taker, (1, 1)), Note)
    assert (note.kind, note.ranges) == (RecordKind.DONE, [(1, 1)])
    effects: list[AnyEffect] = []
    orders.purge(effects)
    notes = asked(effects, Note)
    assert [(each.kind, each.ranges[-1]) for each in notes] == [(RecordKind.DONE, (3, 0))]
    assert reason_in(notes[0].ranges[-1]) == "purged"


def test_the_bytes_of_a_reason_stay_what_they_are() -> None:
    assert {why.reason: why.mark for why in Removal} == {
        "retention": (1, 0),
        "expired": (2, 0),
        "purged": (3, 0),
        "deleted": (4, 0),
    }
    payload = b"".join(struct.pack("<QQ", *pair) for pair in [(7, 9), Removal.RETENTION.mark])
    assert payload.hex() == "0700000000000000090000000000000001" + "00" * 15
    assert reason_in((77, 0)) == "removal-77", "of a later version"


def test_who_does_not_know_of_reasons_finds_nothing_to_do_in_one() -> None:
    """As recovery of an earlier version reads it."""
    runs = EntryRuns()
    entries = [Entry(number, number * 8, 0, 1, 0) for number in range(1, 9)]
    runs.add(entries)
    for why in Removal:
        assert runs.cut(*why.mark) == []
    assert runs.all() == entries
