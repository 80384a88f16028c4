"""A consumer that has been to another part of a cluster knows again what it is through with, and does not show it."""

from __future__ import annotations

import pytest

from heliograph.client.memory import Memory
from heliograph.client.progress import Progress
from heliograph.model import block as blocks
from heliograph.model.block import Contents
from heliograph.model.claim import first_tag
from heliograph.model.ids import LaneId
from heliograph.model.limits import MAX_REMEMBERED_RANGES

pytestmark = pytest.mark.req("P4")
LANE, OTHER = LaneId(b"a" * 16), LaneId(b"b" * 16)
HERE, THERE = first_tag(9, 0), first_tag(7, 1)


def _block(first: int, count: int, lane: LaneId = LANE) -> Contents:
    return blocks.unpack(blocks.pack([b"x"] * count, lane=lane, first=first))


def _known(memory: Memory, contents: Contents) -> list[bool]:
    return [memory.knows(contents, index) for index in range(contents.count)]


def test_what_was_settled_is_known_under_whatever_tags_it_comes_again() -> None:
    memory = Memory()
    memory.received(HERE, HERE + 4, _block(1, 5))
    memory.settled([(HERE, HERE + 1), (HERE + 3, HERE + 3)])
    memory.received(THERE, THERE + 4, _block(1, 5))  # lower tags than before
    assert _known(memory, _block(1, 5)) == [True, True, False, True, False]
    assert _known(memory, _block(1, 5, OTHER)) == [False] * 5
    memory.settled([(THERE + 4, THERE + 4), (HERE + 2, HERE + 2)])
    assert _known(memory, _block(1, 5)) == [True] * 5


def test_what_the_server_has_back_is_not_known() -> None:
    memory = Memory()
    memory.received(1, 5, _block(1, 5))
    memory.gone([(2, 3)], lambda _: False)
    memory.settled([(1, 5)])
    assert _known(memory, _block(1, 5)) == [True, False, False, True, True]
    memory.received(6, 10, _block(6, 5))
    memory.clear(lambda _: False)
    memory.settled([(6, 10)])
    assert _known(memory, _block(6, 5)) == [False] * 5


def test_what_the_application_saw_and_was_not_through_with_is_known_to_be_no_news() -> None:
    memory = Memory()
    memory.received(HERE, HERE + 4, _block(1, 5))
    memory.gone([(HERE, HERE + 4)], lambda tag: tag <= HERE + 1)
    contents = _block(1, 5)
    assert [memory.has_shown(contents, index) for index in range(5)] == [True, True, False, False, False]
    assert _known(memory, contents) == [False] * 5


def test_sequences_of_a_lane_in_any_order_become_one_range() -> None:
    memory = Memory()
    memory.received(1, 10, _block(1, 10))
    for tag in (9, 1, 5, 3, 7, 2, 10, 4, 8, 6):
        memory.settled([(tag, tag)])
    assert _known(memory, _block(1, 11)) == [True] * 10 + [False]


def test_what_was_remembered_first_is_forgotten_first() -> None:
    memory = Memory()
    lanes = [LaneId(number.to_bytes(16, "big")) for number in range(MAX_REMEMBERED_RANGES + 3)]
    for tag, lane in enumerate(lanes, start=1):
        memory.received(tag, tag, _block(1, 1, lane))
        memory.settled([(tag, tag)])
    known = [memory.knows(_block(1, 1, lane), 0) for lane in lanes]
    assert known == [False] * 3 + [True] * MAX_REMEMBERED_RANGES


def test_parts_are_told_apart_by_when_they_were_met_and_not_by_their_tags() -> None:
    progress = Progress()
    progress.saw(5)
    progress.saw(HERE + 3)
    progress.took([(1, 5), (HERE, HERE + 1)])
    progress.saw(THERE + 2)
    assert (progress.last_seen, progress.elsewhere()) == (THERE + 2, [5, HERE + 3])
    assert [progress.is_taken(tag) for tag in (5, HERE + 1, HERE + 2, THERE)] == [True, True, False, False]
    assert [progress.is_seen(tag) for tag in (HERE + 3, THERE + 2, THERE + 3)] == [True, True, False]
    progress.took([(THERE, THERE), (HERE + 2, HERE + 3)])
    assert progress.last_taken == THERE


def test_what_was_seen_of_other_parts_is_said_though_a_server_knew_nothing_of_the_consumer() -> None:
    progress = Progress()
    progress.saw(HERE + 3)
    progress.clear()
    assert (progress.last_seen, progress.elsewhere()) == (0, [HERE + 3])
    assert not progress.is_taken(1)
    progress.saw(1)
    assert (progress.last_seen, progress.elsewhere()) == (1, [HERE + 3])
