"""What clients left for the next time: whose it is, when it ends, and when nobody here can say any more."""

from __future__ import annotations

import pytest

from heliograph.bus.interface import Incarnation
from heliograph.frontends.conversation import Keepsake
from heliograph.nodes.keepsakes import Keepsakes

pytestmark = pytest.mark.req("X1", "X2")
ME = Incarnation(b"m" * 16)


def left(seconds: float = 300.0, *names: str, is_for_ever: bool = False) -> Keepsake:
    return Keepsake("numbers", seconds, list(names), is_for_ever)


def test_what_is_left_is_for_who_left_it_and_once() -> None:
    kept = Keepsakes()
    assert kept.keep("till", "ann", left(300.0, "s"), 0.0) == []
    assert kept.holder("till", 1.0) == "ann"
    assert kept.take("till", "mallory", 1.0) is None
    assert kept.keep("till", "mallory", left(1.0, "s"), 1.0) == []
    assert kept.due(10.0) == []
    assert kept.take("till", "ann", 10.0) == left(300.0, "s")
    assert kept.take("till", "ann", 10.0) is None


def test_when_its_time_is_over_its_subscriptions_end_and_the_name_is_free() -> None:
    kept = Keepsakes()
    kept.keep("till", "ann", left(300.0, "one", "two"), 0.0)
    kept.keep("other", "ann", left(400.0, "three"), 0.0)
    assert kept.due(300.0) == []
    assert kept.holder("till", 301.0) == ""
    assert kept.due(301.0) == [("till", "one"), ("till", "two")]
    assert kept.due(301.0) == []
    kept.keep("till", "bob", left(), 302.0)
    assert kept.holder("till", 303.0) == "bob"


def test_what_is_left_again_counts_from_then_and_is_the_youngest() -> None:
    kept = Keepsakes(most=2)
    kept.keep("a", "ann", left(10.0, "s"), 0.0)
    kept.keep("b", "ann", left(100.0, "s"), 0.0)
    assert kept.keep("a", "ann", left(100.0, "s"), 5.0) == []
    assert kept.due(20.0) == []
    assert kept.keep("c", "ann", left(100.0, "s"), 20.0) == [("b", "s")]


def test_the_oldest_makes_room_and_its_subscriptions_end_with_it_unless_they_are_for_ever() -> None:
    kept = Keepsakes(most=2)
    kept.keep("a", "ann", left(100.0, "s"), 0.0)
    kept.keep("b", "ann", left(1e9, "s", is_for_ever=True), 0.0)
    assert kept.keep("c", "mallory", left(), 1.0) == [("a", "s")]
    assert kept.take("a", "ann", 2.0) is None
    assert kept.keep("d", "mallory", left(), 3.0) == [], "no flood ends what was to last for ever"
    assert kept.take("b", "ann", 4.0) is None


def test_a_client_that_came_elsewhere_is_not_counted_here() -> None:
    kept = Keepsakes()
    kept.keep("till", "ann", left(300.0, "s"), 0.0)
    kept.drop("till", "mallory")
    assert kept.holder("till", 1.0) == "ann"
    kept.drop("till", "ann")
    assert kept.due(1000.0) == []


def test_while_clients_may_be_in_another_part_nothing_ends_and_later_nobody_knows() -> None:
    kept = Keepsakes()
    kept.note_managers("main", ME, ["1.1", "1.2"], is_whole=True)
    kept.keep("till", "ann", left(10.0, "s"), 0.0)
    kept.note_managers("main", ME, ["1.1"], is_whole=False)
    assert kept.due(100.0) == [], "it may be with 1.2"
    kept.keep("here", "ann", left(1000.0, "s"), 100.0)
    assert kept.take("here", "ann", 101.0) is not None, "clients of this part come back to it"
    kept.keep("here", "ann", left(1000.0, "s"), 102.0)
    kept.note_managers("main", ME, ["1.1", "1.2"], is_whole=True)
    assert kept.due(5000.0) == []
    assert kept.take("here", "ann", 103.0) is None


@pytest.mark.parametrize("is_whole", [True, False])
def test_nobody_is_in_doubt_when_no_client_manager_is_missing_or_one_went_from_a_whole_cluster(
    is_whole: bool,
) -> None:
    kept = Keepsakes()
    kept.note_managers("main", ME, ["1.1", "1.2"], is_whole=True)
    kept.keep("till", "ann", left(10.0, "s"), 0.0)
    here = ["1.1"] if is_whole else ["1.1", "1.2"]
    kept.note_managers("main", ME, here, is_whole=is_whole)
    kept.note_managers("main", ME, ["1.1", "1.2"], is_whole=True)
    assert kept.due(100.0) == [("till", "s")]


def test_who_was_out_of_the_channel_has_not_heard_where_clients_went() -> None:
    kept = Keepsakes()
    kept.note_managers("main", ME, ["1.1"], is_whole=True)
    kept.keep("till", "ann", left(10.0, "s"), 0.0)
    kept.note_managers("main", Incarnation(b"n" * 16), ["1.1"], is_whole=True)
    assert kept.due(100.0) == []
