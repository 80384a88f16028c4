"""What was handed out and never got to a client goes back as if nothing had happened (P5)."""

from __future__ import annotations

import pytest

from heliograph.bus.commands import ConsumerAttached, Dispatched, Parcelled
from heliograph.destinations.destination import Destination
from heliograph.destinations.effects import AnyEffect, Continue, Note
from heliograph.destinations.events import ConsumerAway, DispatchesDropped, TurnCame
from heliograph.journal.records import RecordKind
from heliograph.model.block import pack, parse
from heliograph.model.ids import ConsumerId
from tests.unit.destinations.stories import LANE, a_consumer, a_session, asked, handed_to, several, told
from tests.unit.destinations.test_fairness import NOW, attach, publish, queue, settle, topic

pytestmark = pytest.mark.req("P5")


def take_back(destination: Destination, *tags: tuple[ConsumerId, int, int]) -> list[AnyEffect]:
    """Nothing is handed out before the destination's next turn."""
    effects = destination.handle(DispatchesDropped(list(tags)), NOW)
    assert told(effects, Dispatched) == []
    assert asked(effects, Continue)
    return effects


def turn(destination: Destination) -> list[AnyEffect]:
    return destination.handle(TurnCame(), NOW)


def test_it_takes_its_old_place_unmarked_and_its_consumer_has_room_for_it_again() -> None:
    orders = queue()
    consumer, _ = attach(orders, 10)
    publish(orders, several(1, 10))
    effects = take_back(orders, (consumer, 7, 10))
    assert [(note.kind, note.ranges) for note in asked(effects, Note)] == [(RecordKind.UNSEEN, [(7, 10)])]
    assert (orders.figures().depth, orders.figures().in_flight) == (4, 6)
    again = turn(orders)
    assert handed_to(again, consumer) == [7, 8, 9, 10]
    [dispatched] = told(again, Dispatched)
    assert (dispatched.tag, dispatched.span.deliveries) == (11, 0)
    settle(orders, consumer, (1, 6), (11, 14))
    assert orders.figures().in_flight == 0


def test_of_several_consumers_it_goes_back_as_one() -> None:
    orders = queue()
    one, _ = attach(orders, 2)
    other, _ = attach(orders, 2)
    publish(orders, several(1, 2), several(3, 2))
    take_back(orders, (other, 1, 2), (one, 1, 2))
    effects = turn(orders)
    first = told(effects, Dispatched)[0].consumer
    assert handed_to(effects, first) == [1, 2], "whoever comes first gets what comes first"
    assert handed_to(effects, other if first == one else one) == [3, 4]


def test_what_is_settled_or_has_gone_back_already_stays_so() -> None:
    orders = queue()
    consumer, _ = attach(orders, 10)
    publish(orders, several(1, 10))
    settle(orders, consumer, (3, 4))
    take_back(orders, (consumer, 1, 6))
    take_back(orders, (consumer, 1, 6))
    assert handed_to(turn(orders), consumer) == [1, 2, 5, 6]


def test_one_that_is_away_says_itself_what_it_has() -> None:
    orders = queue()
    consumer, _ = attach(orders, 10)
    publish(orders, several(1, 3))
    orders.handle(ConsumerAway(consumer), NOW)
    take_back(orders, (consumer, 1, 3))
    assert orders.figures().in_flight == 3


@pytest.mark.req("U2")
def test_a_unit_goes_back_whole_and_in_order() -> None:
    orders = queue()
    consumer, _ = attach(orders, 10)
    block = parse(pack([b"%d" % number for number in range(4)], lane=LANE, first=1, units=[7, 8, 7, 7]))
    publish(orders, block)
    take_back(orders, (consumer, 1, 1), (consumer, 2, 4))
    effects = turn(orders)
    spans = [span for parcel in told(effects, Parcelled) for span in parcel.spans]
    numbers = [index for span in spans for index in range(span.start, span.stop)]
    assert [number for number in numbers if number != 1] == [0, 2, 3]
    assert sorted(numbers) == [0, 1, 2, 3]
    assert {span.deliveries for span in spans} == {0}


def test_of_a_topic_each_subscription_has_its_own_back() -> None:
    prices = topic()
    subscribers = []
    for name in ("a", "b"):
        subscribers.append(a_consumer())
        prices.handle(
            ConsumerAttached(
                1, prices.address, subscribers[-1], a_session(), 5, subscription=name, shared=True
            ),
            NOW,
        )
    publish(prices, several(1, 3))
    take_back(prices, (subscribers[0], 2, 3))
    effects = turn(prices)
    assert handed_to(effects, subscribers[0]) == [2, 3]
    assert handed_to(effects, subscribers[1]) == []


def test_of_what_is_gone_nothing_comes_back() -> None:
    orders = queue()
    attach(orders, 10)
    publish(orders, several(1, 3))
    effects = take_back(orders, (a_consumer(), 1, 3))
    assert asked(effects, Note) == []
    assert orders.figures().in_flight == 3
