"""What a member holds: others' messages until they are done, its own in order, and what it takes over marked (H2)."""

from __future__ import annotations

import pytest

from heliograph.clustered.adapter import Delivery
from heliograph.clustered.hashing import VALUES
from heliograph.clustered.holding import Holding
from heliograph.clustered.ranges import EVERYTHING, Ranges
from heliograph.model import limits

HALF = VALUES // 2
LOW = Ranges([(0, HALF)])


def _held(holding: Holding, *numbers: int, value: int = 5) -> None:
    for number in numbers:
        assert holding.receive(Delivery(id=f"m-{number}", body=b"12345"), value, 0.0)


def _taken(holding: Holding) -> list[str]:
    taken = []
    while (held := holding.take(0)) is not None:
        taken.append(held.delivery.id)
    return taken


def test_what_is_mine_is_taken_in_the_order_of_arrival() -> None:
    holding = Holding()
    holding.act_on(LOW)
    _held(holding, 1, 2)
    _held(holding, 3, value=HALF)
    assert _taken(holding) == ["m-1", "m-2"]


def test_whoever_takes_over_begins_with_what_it_held_and_marks_it() -> None:
    holding = Holding()
    _held(holding, 1, 2, 3)
    assert [delivery.id for delivery in holding.done(["m-2"])] == ["m-2"]
    holding.doubt(EVERYTHING)
    holding.act_on(EVERYTHING)
    first = holding.take(0)
    assert first is not None
    assert first.delivery.redelivered
    assert _taken(holding) == ["m-3"]


def test_a_copy_that_comes_after_the_word_is_done_already() -> None:
    holding = Holding()
    holding.act_on(EVERYTHING)
    holding.done(["m-1"])
    assert not holding.receive(Delivery(id="m-1", body=b""), 5, 0.0)
    assert _taken(holding) == []


def test_a_copy_that_comes_twice_is_neither_processed_twice_nor_acknowledged_early() -> None:
    holding = Holding()
    holding.act_on(EVERYTHING)
    _held(holding, 1, 1)
    assert _taken(holding) == ["m-1"]
    assert len(holding.done(["m-1"])) == 1


def test_every_copy_that_the_middleware_gave_is_acknowledged_in_the_end() -> None:
    """The first was sent by another member. The second came by a connection that was lost, the third by the next."""
    holding = Holding()
    for handle in (None, "first", "second"):
        assert holding.receive(Delivery(id="m-1", body=b"", handle=handle), 5, 0.0)
    assert [delivery.handle for delivery in holding.done(["m-1"])] == ["first", "second"]
    assert holding.done(["m-1"]) == []


def test_no_more_deliveries_of_one_copy_are_kept_than_connections_may_be_lost() -> None:
    """None of them can be acknowledged before: that would be all that the middleware has of the message."""
    holding = Holding()
    for handle in range(1_000):
        assert holding.receive(Delivery(id="m-1", body=b"", handle=handle, copy="c-1"), 5, 0.0)
    handles = [delivery.handle for delivery in holding.done(["m-1"])]
    assert len(handles) == 1 + limits.CLUSTERED_DELIVERIES_OF_ONE
    assert handles[-1] == 999


@pytest.mark.req("H4")
def test_however_often_a_producer_sends_a_message_one_copy_of_it_is_left_to_be_acknowledged() -> None:
    """Otherwise they would fill what the middleware lets a member have without acknowledging."""
    holding = Holding()
    unacknowledged = set(range(20_017))
    assert holding.receive(Delivery(id="m-1", body=b""), 5, 0.0)  # sent by another member
    for handle in range(20_017):
        if not holding.receive(Delivery(id="m-1", body=b"", handle=handle, copy=handle), 5, 0.0):
            unacknowledged.remove(handle)
    assert unacknowledged == {0}
    assert [delivery.handle for delivery in holding.done(["m-1"])] == [0]


def test_it_is_drained_when_everybody_was_told_of_what_was_under_way() -> None:
    holding = Holding()
    holding.act_on(EVERYTHING)
    _held(holding, 1, value=HALF)
    held = holding.take(0)
    assert held is not None
    holding.act_on(LOW)
    assert not holding.is_drained
    holding.finish(held)
    assert not holding.is_drained
    holding.done(["m-1"])
    assert holding.is_drained


def test_a_message_that_failed_is_the_next_again() -> None:
    holding = Holding()
    holding.act_on(EVERYTHING)
    _held(holding, 1, 2)
    held = holding.take(0)
    assert held is not None
    holding.give_up(held)
    assert _taken(holding) == ["m-1", "m-2"]


def test_full_is_full_until_something_is_done() -> None:
    holding = Holding(messages=2)
    _held(holding, 1, 2)
    assert holding.is_full
    holding.done(["m-1"])
    assert not holding.is_full


def test_copies_that_nobody_speaks_of_are_asked_about_ever_more_rarely() -> None:
    holding = Holding()
    _held(holding, 1)
    assert holding.overdue(1.0) == []
    assert [held.delivery.id for held in holding.overdue(6.0)] == ["m-1"]
    assert holding.overdue(7.0) == []
    assert [held.delivery.id for held in holding.overdue(17.0)] == ["m-1"]
