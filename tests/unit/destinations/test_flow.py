"""When a destination tells its producers to wait, and what it costs to know (M7)."""

from __future__ import annotations

import pytest

from heliograph.bus.commands import (
    Confirmed,
    ConsumerAttached,
    ConsumerDetached,
    FlowChanged,
    Published,
    Refused,
    Settled,
)
from heliograph.destinations.catalogue import Catalogue
from heliograph.destinations.destination import Destination, Event
from heliograph.destinations.effects import AnyEffect
from heliograph.destinations.flow import Flow
from heliograph.destinations.waiting import Residence
from heliograph.model.destination import Address
from heliograph.model.limits import PRODUCER_WINDOW_BYTES, PRODUCER_WINDOW_MESSAGES
from heliograph.model.policy import Policy
from tests.unit.destinations.stories import LANE, SESSION, a_consumer, several, told

pytestmark = pytest.mark.req("M7")

NOW = 1_000_000
MARKS = Policy(high_water_messages=100, high_water_bytes=10_000)


def measured(flow: Flow, held: int, number: int, total: int) -> tuple[bool, str, int]:
    changed = flow.measured(held, number, total, MARKS)
    return changed, flow.blocked, flow.bytes


def test_it_blocks_at_a_mark_and_opens_at_four_fifths_of_both() -> None:
    flow = Flow()
    assert measured(flow, 99, 100, 1000) == (False, "", 1000)
    assert measured(flow, 100, 101, 1010) == (True, "messages", 1010)
    assert measured(flow, 81, 101, 1010)[:2] == (False, "messages")
    assert measured(flow, 80, 101, 1010)[:2] == (True, "")
    assert measured(flow, 80, 101, 10_900)[:2] == (True, "bytes")
    assert measured(flow, 79, 101, 10_900)[:2] == (False, "bytes")
    assert measured(flow, 59, 101, 10_900)[:2] == (True, "")


def test_bytes_leave_with_their_messages_on_average() -> None:
    flow = Flow()
    assert measured(flow, 10, 11, 1000)[2] == 1000
    assert measured(flow, 5, 11, 1000)[2] == 500
    assert measured(flow, 10, 16, 2000)[2] == 1500
    assert measured(flow, 0, 16, 2000)[2] == 0
    assert measured(flow, 1, 17, 2100)[2] == 100


def test_it_is_looked_at_only_when_a_mark_could_be_reached() -> None:
    flow = Flow()
    flow.measured(40, 41, 4000, MARKS)
    assert (flow.due_number, flow.due_bytes) == (41 + 60, 4000 + 6000)


def test_what_recovery_found_counts() -> None:
    flow = Flow()
    flow.restore(9_999, 5_000)
    assert measured(flow, 50, 5_000, 0) == (False, "", 9_999)
    assert measured(flow, 51, 5_001, 100) == (True, "bytes", 10_099)


def test_the_hard_limit_leaves_room_for_what_was_under_way() -> None:
    flow = Flow()
    flow.messages = 100 + PRODUCER_WINDOW_MESSAGES - 1
    flow.bytes = 10_000 + PRODUCER_WINDOW_BYTES - 1
    assert not flow.is_beyond(MARKS)
    flow.messages += 1
    assert flow.is_beyond(MARKS)
    large = Policy(high_water_messages=1_000_000)
    flow.messages = 1_999_999
    assert not flow.is_beyond(large)
    flow.messages = 2_000_000
    assert flow.is_beyond(large)


class Place:
    """A destination with small marks, in which nothing needs a disk."""

    def __init__(self, address: str) -> None:
        catalogue = Catalogue(Residence(10**9))
        effects: list[AnyEffect] = []
        self.destination: Destination = catalogue.find_or_make(Address(address), effects, create=True)
        self.destination.set_policy(MARKS)
        self.next = 1

    def do(self, event: Event) -> list[AnyEffect]:
        return self.destination.handle(event, NOW)

    def publish(self, count: int) -> list[AnyEffect]:
        block = several(self.next, count, persistent=False)
        self.next += count
        return self.do(Published(self.destination.address, block))

    def attach(self, credit: int = 1000) -> bytes:
        consumer = a_consumer()
        self.do(ConsumerAttached(1, self.destination.address, consumer, SESSION, credit))
        return consumer


def news(effects: list[AnyEffect]) -> list[str]:
    return [each.reason for each in told(effects, FlowChanged)]


def test_a_queue_tells_once_that_it_is_full_and_once_that_it_is_not() -> None:
    place = Place("queue:a")
    assert news(place.publish(99)) == []
    assert news(place.publish(1)) == ["messages"]
    assert news(place.publish(20)) == []
    consumer = place.attach()
    assert news(place.do(Settled(Address("queue:a"), consumer, False, [(1, 39)]))) == []  # type: ignore[arg-type]
    assert news(place.do(Settled(Address("queue:a"), consumer, False, [(40, 40)]))) == [""]  # type: ignore[arg-type]


def test_a_topic_is_as_full_as_its_slowest_subscription() -> None:
    place = Place("topic:a")
    assert news(place.publish(500)) == []  # nobody wants them
    slow, quick = place.attach(credit=0), place.attach()
    assert news(place.publish(99)) == []
    place.do(Settled(Address("topic:a"), quick, False, [(1, 99)]))  # type: ignore[arg-type]
    assert news(place.publish(1)) == ["messages"]
    settled = Settled(Address("topic:a"), quick, False, [(100, 100)])  # type: ignore[arg-type]
    assert news(place.do(settled)) == []
    assert news(place.do(ConsumerDetached(Address("topic:a"), slow))) == [""]  # type: ignore[arg-type]


def test_who_ignores_it_is_turned_away_where_it_is_too_much() -> None:
    place = Place("queue:a")
    limit = 100 + PRODUCER_WINDOW_MESSAGES
    while place.next <= limit:
        effects = place.publish(100)
        assert told(effects, Refused) == []
    (refused,) = told(place.publish(100), Refused)
    assert (refused.lane, refused.first, refused.code) == (LANE, limit + 1, "destination-full")
    assert told(place.publish(100), Refused) == []  # it has been told
    resent = Published(Address("queue:a"), several(1, 100, persistent=False))
    assert told(place.do(resent), Confirmed) == [Confirmed(LANE, limit)]  # this it has


def test_a_purge_opens_it() -> None:
    place = Place("queue:a")
    place.publish(150)
    effects: list[AnyEffect] = []
    assert place.destination.purge(effects) == 150
    assert news(effects) == [""]
    assert place.destination.figures().depth == 0
    assert news(place.publish(99)) == []
