"""The account of segments: what is live in them, which may go, which are worth rewriting."""

from __future__ import annotations

import pytest

from heliograph.journal.records import position_of
from heliograph.journal.segments import Segments


def account(*sizes: int) -> Segments:
    segments = Segments()
    for number, size in enumerate(sizes, start=1):
        segments.add(number, size)
    assert segments.settle([]) is None
    return segments


def test_a_segment_may_go_when_it_is_empty_behind_replay_and_that_is_durable() -> None:
    segments = account(100, 100, 100)
    segments.retain(position_of(1, 64), 5)
    segments.snapshot_stored(3)
    assert segments.finished(durable_lsn=0) == [2]
    segments.release(position_of(1, 64), 4)
    segments.end_of_tick(8)
    assert segments.finished(durable_lsn=99) == [2]
    segments.release(position_of(1, 64), 1)
    assert segments.finished(durable_lsn=99) == [2]  # the record that says so may still be on its way
    segments.end_of_tick(9)
    assert segments.finished(durable_lsn=8) == [2]
    assert segments.may_have_finished
    assert segments.finished(durable_lsn=9) == [1, 2]
    assert segments.remove(1) == 100
    assert segments.remove(2) == 100
    assert segments.finished(durable_lsn=9) == []
    assert (segments.bytes, segments.may_have_finished) == (100, False)


def test_nothing_goes_before_replay_is_over() -> None:
    segments = Segments()
    segments.add(1, 100)
    segments.add(2, 100)
    segments.snapshot_stored(2)
    assert segments.finished(durable_lsn=1) == []
    assert segments.settle([]) is None
    assert segments.finished(durable_lsn=1) == [1]


def test_messages_in_a_segment_that_is_gone_must_be_done_by_the_end_of_replay() -> None:
    segments = Segments()
    segments.add(7, 100)
    segments.retain(position_of(3, 64), 2)
    segments.retain(position_of(4, 64), 2)
    segments.release(position_of(3, 64), 2)
    segments.release(position_of(4, 64), 1)
    assert segments.settle([]) == 4
    segments.live[4] = 0
    assert segments.settle([]) is None
    assert segments.live_messages() == 0
    with pytest.raises(AssertionError, match="only replay"):
        segments.retain(position_of(3, 64), 1)


def test_more_released_than_retained_is_a_bug() -> None:
    segments = account(100)
    segments.retain(position_of(1, 64), 1)
    with pytest.raises(AssertionError, match="more messages released"):
        segments.release(position_of(1, 64), 2)


def test_the_emptiest_segment_is_compacted_first() -> None:
    segments = account(100, 100, 100, 100)
    for number, done in ((1, 80), (2, 90), (3, 10)):
        segments.retain(position_of(number, 64), 100)
        segments.release(position_of(number, 64), done)
    assert segments.compactable(0.25) is None  # replay starts in the first
    segments.snapshot_stored(4)
    assert segments.compactable(0.25) == 2
    segments.release(position_of(2, 64), 10)
    assert segments.compactable(0.25) == 1
    assert segments.compactable(0.20) is None
    segments.remove(2)
    segments.remove(3)
    assert segments.compactable(0.25) is None  # too few to be worth it


def test_the_snapshot_remembers_how_many_messages_there_were() -> None:
    segments = account(100, 100, 100)
    segments.retain(position_of(1, 64), 100)
    segments.release(position_of(1, 64), 99)
    totals = segments.totals()
    again = Segments()
    for number in (1, 2, 3):
        again.add(number, 100)
    again.snapshot_stored(3)
    again.retain(position_of(1, 64), 1)
    assert again.settle(totals) is None
    assert again.compactable(0.25) == 1


def test_a_snapshot_frees_room_only_if_a_finished_segment_lies_behind_its_replay() -> None:
    segments = account(100, 100)
    segments.retain(position_of(1, 64), 1)
    assert not segments.frees_room()
    segments.release(position_of(1, 64), 1)
    assert segments.frees_room()
    segments.snapshot_stored(2)
    assert not segments.frees_room()


def test_what_was_done_in_a_log_that_was_cut_off_is_counted_where_it_still_is() -> None:
    """A segment went, since all in it was done; then the log was cut where that was not so yet."""
    segments = Segments()
    segments.add(2, 1000)
    segments.add(3, 1000)
    segments.snapshot_stored(4)

    segments.count_anew([_Held({position_of(1, 64): 3, position_of(2, 64): 1})], 7)

    assert segments.live == {2: 1, 3: 0}
    assert segments.finished(7) == [3]


class _Held:
    """So many messages, by position."""

    def __init__(self, messages: dict[int, int]) -> None:
        self._messages = messages

    def per_segment(self) -> dict[int, int]:
        return self._messages
