"""What a client manager hands to its clients: when most have seen it, when its bytes are here, and in order."""

from __future__ import annotations

import pytest

from heliograph.bus.commands import Command, Dispatched, Parcelled, Recalled
from heliograph.cluster.log import name_of
from heliograph.model.block import Block, Span, pack_lone, parse
from heliograph.model.ids import ConsumerId, LaneId
from heliograph.nodes.handing_out import AT_ONCE, HandingOut

pytestmark = pytest.mark.req("P5")

ONE, OTHER = ConsumerId(b"1" * 16), ConsumerId(b"2" * 16)


def block(sequence: int) -> Block:
    return parse(pack_lone(b"body", lane=LaneId(b"l" * 16), sequence=sequence))


class Story:
    def __init__(self) -> None:
        self.told: list[tuple[ConsumerId, int]] = []
        self.wanted: list[tuple[ConsumerId, int]] = []
        self.handing_out = HandingOut(self._tell, lambda consumer, tag: self.wanted.append((consumer, tag)))

    def _tell(self, command: Command) -> None:
        if isinstance(command, Dispatched | Parcelled):
            spans = [command.span] if isinstance(command, Dispatched) else command.spans
            assert all(span.block.buffer is not None for span in spans), "with its bytes"
            self.told.append((command.consumer, command.tag))
        else:
            assert isinstance(command, Recalled)
            self.told.append((command.consumer, -1))

    def hand_out(self, tag: int, place: int, consumer: ConsumerId = ONE, *, known: bool = True) -> None:
        named = block(tag)
        name_of(named)
        named.buffer = None
        if known:
            self.supply(tag)
        self.handing_out.hand_out(Dispatched(consumer, tag, Span(named, 0, 1), ""), place)

    def supply(self, tag: int) -> None:
        self.handing_out.keep(name_of(block(tag)), block(tag))
        self.handing_out.supplied()

    def take_told(self) -> list[tuple[ConsumerId, int]]:
        told, self.told = self.told, []
        return told


def test_each_goes_when_most_have_seen_its_place() -> None:
    story = Story()
    story.hand_out(1, 3)
    story.hand_out(1, 4, OTHER)
    story.hand_out(2, 5)
    story.handing_out.seen(4)
    assert story.take_told() == [(ONE, 1), (OTHER, 1)]
    story.handing_out.seen(4)
    assert story.take_told() == []
    story.handing_out.seen(9)
    assert story.take_told() == [(ONE, 2)]
    assert story.handing_out.unseen == 0


def test_what_waits_for_nobody_goes_past_what_others_have_to_see() -> None:
    story = Story()
    story.hand_out(1, 3)
    story.hand_out(1, AT_ONCE, OTHER)
    assert story.take_told() == [(OTHER, 1)]


def test_what_is_said_of_a_consumer_later_comes_behind() -> None:
    story = Story()
    story.hand_out(1, 3)
    assert story.handing_out.follows(ONE, Recalled(ONE, [(1, 1)]))
    assert not story.handing_out.follows(OTHER, Recalled(OTHER, []))
    story.hand_out(2, 4)
    story.handing_out.seen(3)
    assert story.take_told() == [(ONE, 1), (ONE, -1)]
    story.handing_out.seen(4)
    assert story.take_told() == [(ONE, 2)]


def test_bytes_are_asked_for_while_others_have_not_seen_it_and_only_once() -> None:
    story = Story()
    story.hand_out(1, 3, known=False)
    story.hand_out(2, 4, known=False)
    assert story.wanted == [(ONE, 1)]
    story.handing_out.seen(4)
    assert story.take_told() == []
    story.supply(1)
    assert (story.take_told(), story.wanted) == ([(ONE, 1)], [(ONE, 1), (ONE, 2)])
    story.supply(2)
    assert story.take_told() == [(ONE, 2)]
    story.hand_out(3, 5, known=False)
    assert story.wanted == [(ONE, 1), (ONE, 2), (ONE, 3)]


@pytest.mark.parametrize("has_bytes", [True, False])
def test_who_is_gone_gets_nothing_and_does_not_hold_up_others(has_bytes: bool) -> None:
    story = Story()
    story.hand_out(1, 3, known=has_bytes)
    story.hand_out(1, 3, OTHER)
    story.handing_out.drop(ONE)
    story.handing_out.seen(3)
    story.supply(1)
    assert story.take_told() == [(OTHER, 1)]


def test_when_a_view_ends_what_most_had_seen_still_goes_and_the_rest_is_dropped() -> None:
    story = Story()
    story.hand_out(1, 7, known=False)
    story.hand_out(2, 8)
    story.hand_out(3, 8, OTHER)
    assert story.handing_out.follows(OTHER, Recalled(OTHER, []))
    story.handing_out.seen(7)
    story.handing_out.view_ended()
    assert story.take_told() == [(OTHER, -1)], "it waits for this word"
    story.handing_out.seen(9)
    assert story.take_told() == []
    story.supply(1)
    assert story.take_told() == [(ONE, 1)]


def test_places_of_an_older_view_do_not_count_in_the_next() -> None:
    story = Story()
    story.handing_out.seen(100)
    story.handing_out.view_ended()
    story.hand_out(1, 2)
    assert story.take_told() == []


def test_a_parcel_lacks_the_first_bytes_that_are_not_here() -> None:
    story = Story()
    story.supply(1)
    spans = []
    for sequence in (1, 2):
        named = block(sequence)
        name_of(named)
        named.buffer = None
        spans.append(Span(named, 0, 1))
    story.handing_out.hand_out(Parcelled(ONE, 5, spans, ""), 3)
    assert story.wanted == [(ONE, 6)]
    story.handing_out.ask_again()
    assert story.wanted == [(ONE, 6), (ONE, 6)], "another leads"
    story.handing_out.seen(3)
    story.supply(2)
    assert story.take_told() == [(ONE, 5)]
