"""What may be handed out in each state, against the sentences of the protocol read one by one; and the majority of
client managers, against the ways in which the members of a view can part."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import patch

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from heliograph.bus.interface import Incarnation
from heliograph.cluster import dispatch_rules, seen_marks
from heliograph.cluster.dispatch_rules import (
    ENDS,
    Fate,
    Hold,
    Message,
    Release,
    Situation,
    Where,
    fate_of,
    holds,
    release_of,
)
from heliograph.cluster.partition_state import State, are_most
from heliograph.cluster.seen_marks import SeenMarks
from heliograph.model.ids import LaneId

LANES = [LaneId(bytes([number]) * 16) for number in range(3)]
messages = st.builds(
    Message,
    lane=st.sampled_from(LANES),
    where=st.sampled_from(Where),
    is_sent_again=st.booleans(),
    is_behind_gap=st.sampled_from([False, False, False, True]),
    unit=st.sampled_from([0, 0, 7, 8]),
    is_unit_new=st.booleans(),
)
situations = st.builds(
    lambda state, is_in_force, is_whole, units_continue: Situation(
        state=state,
        is_in_force=is_in_force and state is not State.D,
        is_whole=is_whole and is_in_force and state is State.A,
        units_continue=units_continue,
    ),
    st.sampled_from(State),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)


def obviously_free(situation: Situation, message: Message) -> bool:
    """PROTOCOL 4, by itself."""
    if message.is_behind_gap:
        return False
    match situation.state:
        case State.A if situation.is_whole:
            return True
        case State.A | State.B | State.C:
            old_enough = message.where in (Where.UNRESTRICTED, Where.CURRENT)
            return situation.is_in_force and old_enough and not message.is_sent_again
        case State.D:
            unit_may_go = not message.unit or message.is_unit_new or situation.units_continue
            return message.where is Where.CURRENT and not message.is_sent_again and unit_may_go


def may_go(situation: Situation, waiting: list[Message], index: int) -> bool:
    """All before it on its lane and in its unit may, and it may itself."""
    message = waiting[index]
    before = [
        place
        for place, other in enumerate(waiting[:index])
        if other.lane == message.lane or (message.unit and other.unit == message.unit)
    ]
    return obviously_free(situation, message) and all(may_go(situation, waiting, place) for place in before)


def check_gate(situation: Situation, waiting: list[Message]) -> None:
    found = holds(situation, waiting)
    assert [hold is None for hold in found] == [
        may_go(situation, waiting, index) for index in range(len(waiting))
    ]


@settings(max_examples=500, deadline=None)
@given(situations, st.lists(messages, max_size=8))
def test_what_may_go_is_what_the_protocol_says(situation: Situation, waiting: list[Message]) -> None:
    check_gate(situation, waiting)


def test_every_hold_names_what_ends_it() -> None:
    assert list(ENDS) == list(Hold)


def test_a_message_goes_in_one_part_at_most() -> None:
    """It was accepted before the cut, or in one of the parts; whatever becomes of them, one may hand it out."""
    unrestricted = Situation(state=State.B, is_in_force=True)
    restricted = Situation(state=State.D, is_in_force=False)

    def parts(here: Where, there: Where) -> list[bool]:
        seen = [(unrestricted, here), (restricted, there)]
        return [holds(each, [Message(lane=LANES[0], where=where)]) == [None] for each, where in seen]

    assert parts(Where.UNRESTRICTED, Where.UNRESTRICTED) == [True, False]
    assert parts(Where.RESTRICTED, Where.CURRENT) == [False, True], "brought by one who left the other part"
    assert parts(Where.CURRENT, Where.RESTRICTED) == [True, False], (
        "taken along before it had come into force"
    )


_own_hold = dispatch_rules.own_hold
PLANTED_GATES: dict[str, tuple[str, Callable[..., object]]] = {
    "what a restricted part brought goes in B": (
        "own_hold",
        lambda situation, message: (
            None
            if situation.state is State.B and situation.is_in_force and not message.is_behind_gap
            else _own_hold(situation, message)
        ),
    ),
    "what was sent again is new": (
        "own_hold",
        lambda situation, message: _own_hold(situation, _changed(message, is_sent_again=False)),
    ),
    "a unit goes on in D": (
        "_hold_in_restricted",
        lambda _situation, message: None if message.where is Where.CURRENT else Hold.OLDER,
    ),
    "older ones go in D": ("_hold_in_restricted", lambda _situation, _message: None),
    "an A that is not whole yet is whole": (
        "own_hold",
        lambda situation, message: (
            None if situation.state is State.A and situation.is_in_force else _own_hold(situation, message)
        ),
    ),
}


def _changed(message: Message, *, is_sent_again: bool) -> Message:
    return Message(
        lane=message.lane,
        where=message.where,
        is_sent_again=is_sent_again,
        is_behind_gap=message.is_behind_gap,
        unit=message.unit,
        is_unit_new=message.is_unit_new,
    )


@pytest.mark.parametrize("name", PLANTED_GATES)
def test_a_rule_of_the_gate_that_is_wrong_shows(name: str) -> None:
    attribute, planted = PLANTED_GATES[name]

    @settings(max_examples=2000, deadline=None, database=None, phases=[Phase.generate])
    @given(situations, st.lists(messages, max_size=4))
    def search(situation: Situation, waiting: list[Message]) -> None:
        check_gate(situation, waiting)

    with patch.object(dispatch_rules, attribute, planted), pytest.raises(AssertionError):
        search()


@pytest.mark.parametrize("kept", ["_lanes", "_units"])
def test_a_gate_that_lets_something_overtake_shows(kept: str) -> None:
    class Forgetful(dict[object, None]):
        def __setitem__(self, key: object, value: None) -> None:
            """It does not remember who waits."""

    made = dispatch_rules.Gate.__init__

    def forgetting(self: dispatch_rules.Gate, situation: Situation) -> None:
        made(self, situation)
        setattr(self, kept, Forgetful())

    @settings(max_examples=2000, deadline=None, database=None, phases=[Phase.generate])
    @given(situations, st.lists(messages, max_size=4))
    def search(situation: Situation, waiting: list[Message]) -> None:
        check_gate(situation, waiting)

    with patch.object(dispatch_rules.Gate, "__init__", forgetting), pytest.raises(AssertionError):
        search()


# ---- the majority of client managers


class View:
    """One order of frames; each client manager hears a beginning of it and then goes its way, with those who heard
    the same. Message managers are with each of them."""

    def __init__(self, count: int, draw: st.DataObject) -> None:
        self.clients = tuple(Incarnation(bytes([number])) for number in range(count))
        self.frames: list[tuple[str, Incarnation, int]] = []  # kind, target or sayer, place
        heard = dict.fromkeys(self.clients, 0)  # at least so far
        for place in range(1, draw.draw(st.integers(1, 7), label="frames") + 1):
            who = draw.draw(st.sampled_from(self.clients), label="who")
            if draw.draw(st.booleans(), label="is a dispatch"):
                self.frames.append(("dispatch", who, place))
            else:  # it has delivered some beginning of what is there
                heard[who] = draw.draw(st.integers(heard[who], place - 1), label="seen up to")
                self.frames.append(("seen", who, heard[who]))
        self.heard = {
            who: draw.draw(st.integers(least, len(self.frames)), label="heard")
            for who, least in heard.items()
        }

    def marks(self, heard: int) -> SeenMarks:
        """What one knows who heard so many frames."""
        marks = SeenMarks(self.clients)
        for kind, who, place in self.frames[:heard]:
            if kind == "dispatch":
                marks.dispatched(place)
            else:
                marks.seen(who, place)
        return marks

    def check(self) -> None:
        for kind, target, place in self.frames:
            if kind == "dispatch":
                self._check_dispatch(target, place)

    def _check_dispatch(self, target: Incarnation, place: int) -> None:
        at_target = self.heard[target]
        is_handed_out = at_target >= place and self.marks(at_target).seen_by_most(target) >= place
        assert is_handed_out == self._is_obvious(target, place)
        for heard in sorted(set(self.heard.values())):
            group = [who for who in self.clients if self.heard[who] == heard]
            goes_through = are_most(group, self.clients)
            if is_handed_out and goes_through:
                assert heard >= place, "who goes on from this view knows what it handed out"
            if is_handed_out and heard >= place:
                was_seen = self.marks(heard).seen_by_most(target) >= place
                fate = fate_of(target_came=target in group, was_seen=was_seen, goes_through=goes_through)
                assert fate is not Fate.DROPPED, "what a client has is not free"
                assert (fate is Fate.STANDS) == (target in group)

    def _is_obvious(self, target: Incarnation, place: int) -> bool:
        """Who said, as far as the target heard, that it has delivered this place."""
        at_target = self.heard[target]
        said = [who for kind, who, upto in self.frames[:at_target] if kind == "seen" and upto >= place]
        return at_target >= place and 2 * len({*said, target}) > len(self.clients)


@settings(max_examples=500, deadline=None)
@given(st.integers(1, 5), st.data())
def test_what_a_client_has_is_known_to_whoever_goes_on(count: int, draw: st.DataObject) -> None:
    View(count, draw).check()


def half(self: SeenMarks, target: Incarnation) -> int:
    seen = [self._delivered if who == target else self._marks.get(who, 0) for who in self._clients]
    return min(self._delivered, sorted(seen, reverse=True)[(len(seen) - 1) // 2])


def without_waiting(self: SeenMarks, _target: Incarnation) -> int:
    return self._delivered


def anybody_counts_for_itself(self: SeenMarks, _target: Incarnation) -> int:
    seen = [self._marks.get(who, 0) for who in self._clients]
    return min(self._delivered, sorted(seen, reverse=True)[len(seen) // 2])


@pytest.mark.parametrize("planted", [half, without_waiting, anybody_counts_for_itself])
def test_a_majority_that_is_none_shows(planted: Callable[[SeenMarks, Incarnation], int]) -> None:
    @settings(max_examples=3000, deadline=None, database=None, phases=[Phase.generate])
    @given(st.integers(1, 4), st.data())
    def search(count: int, draw: st.DataObject) -> None:
        View(count, draw).check()

    with patch.object(seen_marks.SeenMarks, "seen_by_most", planted), pytest.raises(AssertionError):
        search()


def test_one_word_covers_many_dispatches_and_nothing_is_said_twice() -> None:
    one, other = Incarnation(b"1"), Incarnation(b"2")
    marks = SeenMarks((one, other))
    marks.dispatched(3)
    marks.dispatched(4)
    assert marks.seen_by_most(one) == 0
    assert (marks.take_word(), marks.take_word()) == (4, None)
    marks.seen(other, 4)
    assert marks.seen_by_most(one) == 4


def test_alone_a_client_manager_asks_nobody() -> None:
    alone = Incarnation(b"1")
    marks = SeenMarks((alone,))
    marks.dispatched(9)
    assert (marks.seen_by_most(alone), marks.take_word()) == (9, None)


def test_what_a_lost_client_manager_may_still_have_handed_out_waits_for_all_to_be_together() -> None:
    cut = Situation(state=State.C, is_in_force=True)
    whole = Situation(state=State.A, is_in_force=True, is_whole=True)
    assert release_of(situation=cut, is_told=False, has_ended=False) is Release.WHOLE
    assert release_of(situation=cut, is_told=False, has_ended=True) is Release.AFTER_LEASE
    assert release_of(situation=whole, is_told=False, has_ended=False) is Release.AFTER_LEASE
    assert release_of(situation=cut, is_told=True, has_ended=False) is Release.NOW
