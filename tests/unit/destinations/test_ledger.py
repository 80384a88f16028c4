"""What is remembered until the cluster is whole (PROTOCOL 5, docs/decisions/0018)."""

from __future__ import annotations

import struct

import msgspec
import pytest

from heliograph.cluster.ranges import ALL_THAT_FOLLOWS, Ranges
from heliograph.destinations.catalogue import DestinationRecord
from heliograph.destinations.ledger import KnownRecord, Ledger
from heliograph.destinations.transactions import CommitRecord
from heliograph.journal.records import RecordKind
from heliograph.model.block import pack
from heliograph.model.ids import LaneId, SessionId, lane_of

pytestmark = pytest.mark.req("P6")

SESSION = SessionId(bytes(14) + b"\0\0")
LANE = lane_of(SESSION, 1)
encode = msgspec.msgpack.encode
QUEUE = 7


def a_ledger() -> Ledger:
    ledger = Ledger()
    ledger.add(RecordKind.DESTINATION, 0, 0, encode(DestinationRecord(QUEUE, "queue:x")))
    return ledger


def publish(
    ledger: Ledger, first: int, count: int = 1, kind: int = RecordKind.PUBLISHED, lane: LaneId = LANE
) -> None:
    ledger.add(kind, QUEUE, first, pack([b"body"] * count, lane=lane, first=first, timestamp=1))


def commit(ledger: Ledger, transaction: int) -> None:
    ledger.add(RecordKind.COMMITTED, 0, 0, encode(CommitRecord(SESSION, transaction, True, [], [1])))


def since(first: int) -> Ranges:
    return ((first, ALL_THAT_FOLLOWS),)


def done(ledger: Ledger, *ranges: tuple[int, int]) -> None:
    ledger.add(RecordKind.DONE, QUEUE, 0, b"".join(struct.pack("<QQ", *each) for each in ranges))


def test_a_lane_is_remembered_from_its_first_use_until_the_cluster_was_whole_twice() -> None:
    ledger = a_ledger()
    publish(ledger, 5)
    publish(ledger, 6, count=10)
    assert ledger.lanes_of(QUEUE) == {LANE: since(5)}
    ledger.roll({QUEUE: 16})
    assert ledger.lanes_of(QUEUE) == {LANE: since(5)}, "one may not have heard of it yet"
    ledger.roll({QUEUE: 16})
    assert ledger.lanes_of(QUEUE) == {}


def test_a_lane_begins_with_what_filled_a_gap_before_its_first_use() -> None:
    ledger = a_ledger()
    publish(ledger, 20)
    ledger.roll({QUEUE: 2})
    publish(ledger, 10, kind=RecordKind.JOINED)
    publish(ledger, 15, kind=RecordKind.JOINED)
    assert ledger.lanes_of(QUEUE) == {LANE: since(10)}
    ledger.add(RecordKind.KNOWN, QUEUE, 0, encode(KnownRecord(LANE, ((5, 9),))))
    assert ledger.lanes_of(QUEUE) == {LANE: since(5)}


def test_done_marks_are_kept_by_number_for_what_is_older_than_the_last_place_but_one() -> None:
    ledger = a_ledger()
    publish(ledger, 1, count=100)
    done(ledger, (1, 10))
    assert ledger.done_of(QUEUE) == {}, "what is younger than the ledger follows from the lanes"
    ledger.roll({QUEUE: 101})
    done(ledger, (11, 20))
    assert ledger.base_of(QUEUE) == 1
    ledger.roll({QUEUE: 101})
    done(ledger, (21, 30), (100, 120))
    assert ledger.base_of(QUEUE) == 101
    assert ledger.done_of(QUEUE) == {0: ((11, 30), (100, 100))}


def test_what_has_a_lower_number_than_was_next_is_as_young_as_all_that_follows() -> None:
    """Numbers of messages that are not persistent are given again: whoever counted them takes the rest for older."""
    ledger = a_ledger()
    ledger.roll({QUEUE: 6})
    ledger.roll({QUEUE: 6})
    ledger.numbered(QUEUE, 5)
    publish(ledger, 7, count=4)
    assert ledger.base_of(QUEUE) == 5
    done(ledger, (5, 5))
    assert ledger.done_of(QUEUE) == {}, "it follows from the lane"
    ledger.numbered(QUEUE, 9)
    assert (ledger.base_of(QUEUE), ledger.last_base_of(QUEUE)) == (5, 5)


def test_a_million_messages_that_are_done_in_order_are_one_range() -> None:
    ledger = a_ledger()
    ledger.roll({QUEUE: 1_000_001})
    ledger.roll({QUEUE: 1_000_001})
    before = len(ledger.state())
    for first in range(1, 1_000_001, 1000):
        done(ledger, (first, first + 999))
    assert len(ledger.state()) - before < 40
    for first in range(999_000, 1, -3):  # and again, in the worst order
        done(ledger, (first, first))
    assert ledger.done_of(QUEUE) == {0: ((1, 1_000_000),)}
    assert len(ledger.state()) - before < 4_000


def test_what_is_staged_is_nobodys_before_it_is_committed() -> None:
    ledger = a_ledger()
    publish(ledger, 1, kind=RecordKind.STAGED)
    publish(ledger, 2, kind=RecordKind.STAGED)
    assert ledger.unmade_of(QUEUE, LANE) == ((1, 2),)
    ledger.add(RecordKind.COMMITTED, 0, 0, encode(CommitRecord(SESSION, 1, False, [], [])))
    publish(ledger, 3, kind=RecordKind.STAGED)
    ledger.roll({QUEUE: 1})
    commit(ledger, 2)
    assert ledger.unmade_of(QUEUE, LANE) == ((1, 2),), "the first two were rolled back"


def test_what_is_committed_long_after_it_was_staged_is_of_the_lane_when_it_is_committed() -> None:
    """Its number is a young one: what is done of it is told by its lane, or by nothing."""
    ledger = a_ledger()
    publish(ledger, 20, kind=RecordKind.STAGED)
    ledger.roll({QUEUE: 1})
    ledger.roll({QUEUE: 1})
    assert ledger.unmade_of(QUEUE, LANE) == ((20, 20),), "it is nobody's, however long it is open"
    publish(ledger, 24, kind=RecordKind.STAGED)
    commit(ledger, 1)
    assert ledger.unmade_of(QUEUE, LANE) == ()
    assert ledger.lanes_of(QUEUE) == {LANE: ((20, 20), *since(24))}, "what came between is older"
    ledger.roll({QUEUE: 3})
    assert ledger.lanes_of(QUEUE) == {LANE: ((20, 20), *since(24))}
    ledger.roll({QUEUE: 3})
    assert ledger.lanes_of(QUEUE) == {}


def test_a_destination_that_was_deleted_is_remembered_with_its_lanes() -> None:
    ledger = a_ledger()
    publish(ledger, 4)
    ledger.add(RecordKind.DESTINATION, 0, 0, encode(DestinationRecord(QUEUE, "queue:x", deleted=True)))
    assert ledger.destinations == []
    (ended,) = ledger.deleted()
    assert (ended.address, ended.lanes) == ("queue:x", {LANE: 4})


def test_a_snapshot_has_all_of_it() -> None:
    ledger = a_ledger()
    publish(ledger, 1, count=5)
    ledger.roll({QUEUE: 6})
    done(ledger, (2, 3))
    publish(ledger, 9, kind=RecordKind.ADOPTED)
    ledger.add(RecordKind.MERGED, 0, 0, b"a branch")
    again = Ledger()
    again.restore(ledger.state(), {QUEUE: "queue:x"})
    assert again.state() == ledger.state()
    assert again.has_merged(b"a branch")
    assert again.moved_to(QUEUE) == {LANE: ((9, 9),)}
