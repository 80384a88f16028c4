"""Where two logs part, by the views that they came through (docs/decisions/0010)."""

from __future__ import annotations

import pytest

from heliograph.cluster.fork import fork_of, has_more
from heliograph.cluster.log import LogPlace
from heliograph.journal.records import RecordKind

pytestmark = pytest.mark.req("M9", "P6")


def a_log(*steps: bytes | int) -> LogPlace:
    """Views that are entered, and how many records are written in each."""
    place = LogPlace()
    for step in steps:
        if isinstance(step, bytes):
            place.enter(len(place.views) + 1, step)
        else:
            for _ in range(step):
                place.add(RecordKind.DONE, 1, 0, bytes(16))
    return place


def test_logs_part_where_the_last_common_view_ended_with_whom_it_ended_first() -> None:
    host = a_log(b"one", 10, b"two", 5)
    other = a_log(b"one", 12, b"three", 9)
    assert fork_of(host, other.views, other.index) == 10


def test_a_log_that_was_not_that_of_its_view_says_nothing_of_where_they_part() -> None:
    """It caught up from somebody in another part, and found out when the primary went on."""
    host = a_log(b"one", 10, b"two", 5)
    other = a_log(b"one", 12, b"two", 9)
    record = other.retract(b"two")
    assert fork_of(host, other.views, other.index) == 10
    again = a_log(b"one", 12, b"two", 9)
    again.add(RecordKind.VIEW, 0, 0, record)
    assert again.views == other.views


def test_somebody_from_another_part_has_more_and_a_log_that_only_ended_earlier_has_not() -> None:
    host = a_log(b"one", 10, b"two", 5)
    assert not has_more(host, b"one", 8), "it stopped, and has just started again"
    assert not has_more(host, b"two", 15)
    assert has_more(host, b"one", 12), "its last records reached nobody else"
    assert has_more(host, b"three", 9), "it was in a view that the host was not in"
    assert not has_more(host, b"", 0), "it is new"
