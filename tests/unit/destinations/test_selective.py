"""A queue whose consumers have selectors keeps the order, wherever its messages wait."""

from __future__ import annotations

import pytest

from heliograph.destinations.message_list import MessageList
from heliograph.destinations.selective import SelectiveLevel, Takers
from heliograph.destinations.waiting import Residence, Waiting
from heliograph.model.ids import ConsumerId
from heliograph.model.selector import parse_selector
from tests.unit.destinations.stories import a_consumer, lone, sequences, span_of

pytestmark = pytest.mark.req("J7")

NOWHERE = 0  # a message that is in memory alone
SOMEWHERE = 800


def a_list(residence: Residence) -> MessageList:
    """A list none of whose messages has a unit."""
    return MessageList(
        0, make_level=lambda _: Waiting(residence), user_of=lambda _: "somebody", residence=residence
    )


class Story:
    """A level in front of which memory is short, and one consumer that wants nothing of what is there."""

    def __init__(self) -> None:
        self.takers = Takers()
        self.picky = a_consumer()
        self.takers.add(self.picky, parse_selector("colour = 'red'"))
        residence = Residence(1)
        self.level = SelectiveLevel(self.takers, residence, Waiting(residence), a_list(residence))

    def append(self, number: int, position: int) -> None:
        self.level.append(span_of(lone(number), number=number, position=position))

    def sort(self) -> None:
        assert self.level.take(1, self.picky, []) is None

    def greedy(self) -> ConsumerId:
        consumer = a_consumer()
        self.takers.add(consumer, None)
        self.level.takers_changed()
        return consumer

    def taken_by(self, consumer: ConsumerId) -> list[int]:
        """What can be taken before anything is read from the disk."""
        taken = []
        while (span := self.level.take(1, consumer, [])) is not None:
            taken.append(span)
        return sequences(taken)


def test_what_is_in_memory_alone_does_not_overtake_what_is_on_disk_before_it() -> None:
    story = Story()
    for number, position in ((1, NOWHERE), (2, SOMEWHERE), (3, NOWHERE), (4, NOWHERE)):
        story.append(number, position)
        story.sort()
    assert story.taken_by(story.greedy()) == [1]


def test_what_returned_does_not_overtake_what_is_on_disk_before_it() -> None:
    story = Story()
    for number in (1, 2, 5):
        story.append(number, NOWHERE if number == 1 else SOMEWHERE)
        story.sort()
    story.level.put_back([span_of(lone(number), number=number, position=SOMEWHERE) for number in (3, 4)])
    story.sort()
    assert story.taken_by(story.greedy()) == [1]
    assert story.level.messages == 4
