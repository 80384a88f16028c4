"""What was handed out in a view, who has seen it, and what no client has when the view ends."""

from __future__ import annotations

import pytest

from heliograph.bus.commands import Confirmed, ConsumerAttached, Dispatched, Parcelled
from heliograph.bus.interface import Incarnation
from heliograph.cluster.handed_out import Handed, HandedOut, needs_majority
from heliograph.model.block import Span, pack, parse
from heliograph.model.destination import Address
from heliograph.model.ids import ConsumerId, LaneId, SessionId

pytestmark = pytest.mark.req("P5")

ONE, TWO, THREE = (Incarnation(bytes([number]) * 16) for number in (1, 2, 3))
ALL = (ONE, TWO, THREE)
CONSUMER, OTHER = ConsumerId(b"c" * 16), ConsumerId(b"o" * 16)
SESSION = SessionId(b"s" * 16)
LANE = LaneId(b"l" * 16)


def span(messages: int, *, persistent: bool = True) -> Span:
    block = parse(pack([b"body"] * messages, lane=LANE, first=1, persistent=persistent))
    return Span(block, 0, messages)


def dispatch(tag: int, messages: int = 1, consumer: ConsumerId = CONSUMER) -> Dispatched:
    return Dispatched(consumer, tag, span(messages), "")


def dropped(
    handed_out: HandedOut,
    came: tuple[Incarnation, ...] = ALL,
    target: Incarnation | None = ONE,
    *,
    through: bool = False,
) -> list[Handed]:
    return handed_out.dropped(came, lambda _consumer: target, goes_through=through)


def test_what_nobody_else_has_seen_is_dropped_and_what_one_other_has_seen_stands() -> None:
    view = HandedOut(ALL)
    view.decided(dispatch(1, 3), 4)
    view.decided(Confirmed(LANE, 9), 5)
    view.decided(Parcelled(CONSUMER, 4, [span(2), span(1, persistent=False)], ""), 6)
    view.seen(TWO, 5)
    assert view.seen_by_most(ONE) == 5
    assert dropped(view) == [Handed(6, CONSUMER, 4, 5, True), Handed(6, CONSUMER, 6, 6, False)]


def test_where_the_view_goes_on_everything_stands() -> None:
    view = HandedOut(ALL)
    view.decided(dispatch(1), 4)
    assert dropped(view, through=True) == []


@pytest.mark.parametrize(
    ("came", "target"), [((TWO, THREE), ONE), (ALL, None), (ALL, Incarnation(b"new" + bytes(13)))]
)
def test_what_went_to_one_that_came_another_way_or_is_of_no_concern_is_left_alone(
    came: tuple[Incarnation, ...], target: Incarnation | None
) -> None:
    view = HandedOut(ALL)
    view.decided(dispatch(1), 4)
    assert dropped(view, came, target) == []


def test_what_most_have_told_is_forgotten_whoever_it_was_for() -> None:
    view = HandedOut(ALL)
    for place in range(1, 1001):
        view.decided(dispatch(place), place)
        view.seen(ONE, place)
        view.seen(THREE, place - 1)
    assert len(view._unseen) == 1
    assert dropped(view, target=TWO) == [], "the one that has it, and the one that has told"
    assert dropped(view, target=ONE) == [Handed(1000, CONSUMER, 1000, 1000, True)]


def test_the_target_is_counted_once_though_it_says_so_too() -> None:
    view = HandedOut(ALL)
    view.decided(dispatch(1), 4)
    view.seen(ONE, 4)
    assert view.seen_by_most(ONE) == 0
    assert dropped(view) == [Handed(4, CONSUMER, 1, 1, True)]


def test_a_stranger_is_not_counted() -> None:
    view = HandedOut((ONE, TWO))
    view.decided(dispatch(1), 4)
    view.seen(THREE, 4)
    assert view.seen_by_most(ONE) == 0


def test_whoever_claims_what_it_has_has_said_what_it_was_given() -> None:
    view = HandedOut(ALL)
    view.decided(dispatch(1), 4)
    view.decided(dispatch(1, consumer=OTHER), 4)
    view.claimed(CONSUMER)
    assert dropped(view) == [Handed(4, OTHER, 1, 1, True)]


@pytest.mark.parametrize("clients", [(), (ONE,)])
def test_nobody_waits_and_nothing_is_kept_where_there_is_nobody_else(
    clients: tuple[Incarnation, ...],
) -> None:
    view = HandedOut(clients)
    view.decided(dispatch(1), 4)
    assert view.is_waived
    assert (view.has_word, view.take_word()) == (False, None)
    assert dropped(view) == []


@pytest.mark.parametrize(
    ("address", "options", "waits"),
    [
        ("queue:orders", {}, True),
        ("queue:orders", {"browse": True}, False),
        ("topic:news", {}, False),
        ("topic:news", {"durable": True, "subscription": "d"}, False),
        ("topic:news", {"shared": True, "subscription": "s"}, True),
        ("topic:news", {"shared": True, "durable": True, "subscription": "s"}, True),
    ],
)
def test_what_goes_to_one_of_many_waits(address: str, options: dict[str, object], waits: bool) -> None:
    attached = ConsumerAttached(1, Address(address), CONSUMER, SESSION, 5, **options)  # type: ignore[arg-type]
    assert needs_majority(attached) is waits
