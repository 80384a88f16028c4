"""What a process says of what it has seen, and what it hears of others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from heliograph.bus.commands import Answered, Command, ConsumerAttached, Dispatched, DispatchSeen, Logged
from heliograph.bus.interface import Incarnation
from heliograph.model.block import Span, pack_lone, parse
from heliograph.model.claim import Claim
from heliograph.model.destination import Address
from heliograph.model.errors import Unavailable
from heliograph.model.ids import ConsumerId, LaneId, SessionId
from heliograph.nodes.seen import Seen

pytestmark = pytest.mark.req("P5")

ME, OTHER, PRIMARY = (Incarnation(bytes([number]) * 16) for number in (1, 2, 3))
CONSUMER = ConsumerId(b"c" * 16)


class Story:
    """One of two client managers."""

    def __init__(
        self, *, speaks: bool = True, owns: bool = False, clients: tuple[Incarnation, ...] = (ME, OTHER)
    ) -> None:
        self.said: list[Command] = []
        self.is_full = False
        self.soon: list[Callable[[], None]] = []
        self.later: list[Callable[[], None]] = []
        self.seen = Seen(
            self._say,
            self.soon.append,
            lambda _seconds, call: self.later.append(call),
            is_own=(lambda _consumer: owns) if speaks else None,
        )
        self.seen.installed(clients, ME)

    def _say(self, word: Command) -> None:
        if self.is_full:
            raise Unavailable("the bus is full", code="bus-full")
        self.said.append(word)

    def dispatched(self, place: int) -> None:
        block = parse(pack_lone(b"body", lane=LaneId(b"l" * 16), sequence=place))
        decisions: list[Command] = [Dispatched(CONSUMER, place, Span(block, 0, 1), "")]
        self.seen.on_apply(PRIMARY, [Logged(1, 0, [], [], decisions=decisions)], place)

    def turn(self) -> list[Command]:
        """The loop goes on. What was said."""
        soon, self.soon[:] = list(self.soon), []
        for call in soon:
            call()
        said, self.said = self.said, []
        return said


def test_one_word_in_a_turn_covers_all_that_was_handed_out() -> None:
    story = Story()
    for place in (3, 4, 7):
        story.dispatched(place)
    assert story.turn() == [DispatchSeen(7)]
    assert story.turn() == []
    story.dispatched(9)
    assert story.turn() == [DispatchSeen(9)]


@pytest.mark.parametrize(("owns", "clients"), [(True, (ME, OTHER)), (False, (OTHER, PRIMARY, ME))])
def test_who_is_not_waited_for_says_it_later_in_one_word(
    owns: bool, clients: tuple[Incarnation, ...]
) -> None:
    """Its own clients' messages wait for others; and where two others have spoken, nobody waits for a third."""
    story = Story(owns=owns, clients=clients)
    for place in (3, 4):
        story.dispatched(place)
        assert story.turn() == []
    [late] = story.later
    late()
    assert story.turn() == [DispatchSeen(4)]
    story.dispatched(5)
    assert len(story.later) == 2


def test_what_is_not_a_dispatch_brings_no_word() -> None:
    story = Story()
    story.seen.on_apply(PRIMARY, [Logged(1, 0, [], [])], 3)
    assert story.seen.on_apply(OTHER, [DispatchSeen(2)], 4), "another has seen more"
    assert (story.soon, story.turn()) == ([], [])


def test_a_message_manager_by_itself_says_nothing_and_counts_all_the_same() -> None:
    story = Story(speaks=False)
    story.dispatched(3)
    assert story.turn() == []
    story.seen.on_apply(OTHER, [DispatchSeen(3)], 4)
    assert story.seen.handed_out.seen_by_most(ME) == 3


def test_a_word_that_the_bus_has_no_room_for_is_said_when_it_has_and_covers_more() -> None:
    story = Story()
    story.is_full = True
    story.dispatched(3)
    story.turn()
    story.dispatched(5)
    story.turn()
    story.is_full = False
    story.seen.go_on()
    story.seen.go_on()
    assert story.turn() == [DispatchSeen(5)]


def test_another_view_begins_with_nothing_seen_and_nothing_to_say() -> None:
    story = Story()
    story.is_full = True
    story.dispatched(30)
    story.seen.on_apply(OTHER, [DispatchSeen(30)], 31)
    story.turn()
    story.is_full = False
    story.seen.installed((ME, OTHER), ME)
    story.seen.go_on()
    assert story.turn() == []
    story.dispatched(2)
    assert story.seen.handed_out.seen_by_most(ME) == 0, "what was seen in the view before does not count"
    assert story.turn() == [DispatchSeen(2)]


def test_a_claim_settles_what_its_consumer_was_given_before() -> None:
    story = Story()
    story.dispatched(3)
    story.seen.on_apply(OTHER, [_claim()], 4)
    assert story.seen.handed_out.dropped((ME, OTHER), lambda _: ME, goes_through=False) == []


def test_a_claim_that_is_asked_again_settles_nothing_that_was_given_since_the_first() -> None:
    """Also where the first was heard in another view, or before this member was there."""
    story = Story()
    story.dispatched(3)
    story.seen.on_apply(OTHER, [_claim(again=True)], 4)
    [dropped] = story.seen.handed_out.dropped((ME, OTHER), lambda _: ME, goes_through=False)
    assert (dropped.consumer, dropped.first, dropped.last) == (CONSUMER, 3, 3)


def _claim(*, again: bool = False) -> ConsumerAttached:
    session, claim = SessionId(b"s" * 16), Claim([(3, 3)])
    return ConsumerAttached(1, Address("queue:orders"), CONSUMER, session, 5, claim=claim, again=again)


@pytest.mark.req("P8")
def test_promises_and_outcomes_are_told_like_dispatches_other_answers_are_not() -> None:
    story = Story()
    story.seen.on_apply(PRIMARY, [Logged(1, 0, [], [], decisions=[Answered(1, {})])], 4)
    assert story.turn() == []
    story.seen.on_apply(PRIMARY, [Logged(1, 0, [], [], decisions=[Answered(1, {}, b"view")])], 5)
    assert story.turn() == [DispatchSeen(5)]
