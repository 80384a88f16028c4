"""Consumers of one list share it, a turn is bounded, and nobody is sent more than it can hold (M4)."""

import pytest

from heliograph.bus.commands import Answered, Confirmed, Dispatched, Published, Rejected, Settled
from heliograph.bus.commands import ConsumerAttached as Attached
from heliograph.bus.commands import ConsumerDetached as Detached
from heliograph.bus.commands import CreditGranted as Granted
from heliograph.destinations import competing
from heliograph.destinations.destination import Destination
from heliograph.destinations.effects import AnyEffect, Continue, Note, Persist, Release, Retain
from heliograph.destinations.events import BlocksReady, BlocksStored, TurnCame
from heliograph.destinations.queue import Queue
from heliograph.destinations.topic import Topic
from heliograph.destinations.waiting import Residence
from heliograph.journal.records import RecordKind
from heliograph.model.block import Block
from heliograph.model.destination import Address
from heliograph.model.ids import ConsumerId, LaneId
from heliograph.model.limits import DISPATCH_SPANS_PER_TURN
from tests.unit.destinations.stories import LANE, a_consumer, a_session, asked, handed_to, lone, several, told

ORDERS = Address("queue:orders")
PRICES = Address("topic:prices")
NOW = 1_000_000


def user_of(lane: LaneId) -> str:
    return "ann" if lane == LANE else ""


def queue() -> Queue:
    return Queue(ORDERS, 1, residence=Residence(10**9), user_of=user_of)


def topic() -> Topic:
    return Topic(
        PRICES,
        2,
        residence=Residence(10**9),
        user_of=user_of,
        senders_of=lambda _session: (b"", b""),
    )


def attach(destination: Destination, credit: int) -> tuple[ConsumerId, list[AnyEffect]]:
    consumer = a_consumer()
    return consumer, destination.handle(Attached(1, destination.address, consumer, a_session(), credit), NOW)


def publish(destination: Destination, *blocks: Block) -> list[AnyEffect]:
    """Accepted, written and stored, all at once. Returns what follows."""
    effects = [
        effect
        for block in blocks
        for effect in destination.handle(Published(destination.address, block), NOW)
    ]
    persisted = [effect.block for effect in asked(effects, Persist)]
    for index, block in enumerate(persisted, start=1):
        block.position = block.number * 8 + index
    if persisted:
        effects += destination.handle(BlocksStored(persisted), NOW)
        effects += destination.handle(BlocksReady(persisted), NOW)
    return effects


def settle(
    destination: Destination,
    consumer: ConsumerId,
    *ranges: tuple[int, int],
    returned: bool = False,
    request: int = 0,
) -> list[AnyEffect]:
    return destination.handle(
        Settled(destination.address, consumer, returned, list(ranges), False, request), NOW
    )


@pytest.mark.req("J1", "M4")
def test_two_consumers_share_a_queue_span_by_span() -> None:
    orders = queue()
    first, _ = attach(orders, 100)
    second, _ = attach(orders, 100)
    effects = publish(orders, *[lone(sequence) for sequence in range(1, 7)])
    assert handed_to(effects, first) == [1, 3, 5]
    assert handed_to(effects, second) == [2, 4, 6]
    assert {each.user for each in told(effects, Dispatched)} == {"ann"}


@pytest.mark.req("M4")
def test_one_without_credit_leaves_its_turn_to_the_other() -> None:
    orders = queue()
    poor, _ = attach(orders, 1)
    rich, _ = attach(orders, 100)
    effects = publish(orders, several(1, 3), lone(4), lone(5))
    assert handed_to(effects, poor) == [1]
    assert handed_to(effects, rich) == [2, 3, 4, 5]
    assert handed_to(orders.handle(Granted(ORDERS, poor, 1), NOW), poor) == []
    assert handed_to(publish(orders, lone(6), lone(7)), poor) == [7]


@pytest.mark.req("M4")
def test_a_turn_is_bounded_and_asks_for_another() -> None:
    orders = queue()
    publish(orders, *[lone(sequence) for sequence in range(1, DISPATCH_SPANS_PER_TURN + 11)])
    taker, effects = attach(orders, 10_000)
    assert len(handed_to(effects, taker)) == DISPATCH_SPANS_PER_TURN
    assert len(asked(effects, Continue)) == 1
    effects = orders.handle(TurnCame(), NOW)
    assert len(handed_to(effects, taker)) == 10
    assert asked(effects, Continue) == []


@pytest.mark.req("M4")
def test_a_consumer_is_not_sent_more_bytes_than_its_window(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [several(1, 7), several(8, 7), several(15, 7)]
    monkeypatch.setattr(competing, "CONSUMER_WINDOW_BYTES", 2 * blocks[0].size)
    orders = queue()
    taker, _ = attach(orders, 1000)
    effects = publish(orders, *blocks)
    assert handed_to(effects, taker) == list(range(1, 15))
    assert handed_to(settle(orders, taker, (1, 1)), taker) == list(range(15, 22))


@pytest.mark.req("M4")
def test_settling_one_by_one_gives_the_whole_window_back() -> None:
    orders = queue()
    taker, _ = attach(orders, 1000)
    for first in range(1, 70, 7):
        publish(orders, several(first, 7))
        for tag in range(first, first + 7):
            settle(orders, taker, (tag, tag))
    assert orders.messages.consumers[taker].outstanding_bytes == 0


@pytest.mark.req("J1")
def test_a_topic_gives_each_subscriber_its_copy_and_holds_the_record_once_for_all() -> None:
    prices = topic()
    first, _ = attach(prices, 100)
    second, _ = attach(prices, 100)
    effects = publish(prices, several(1, 3))
    assert handed_to(effects, first) == handed_to(effects, second) == [1, 2, 3]
    assert asked(effects, Retain) == [], "it was held when it was written, and that is enough for both"
    assert asked(settle(prices, first, (1, 3)), Release) == [], "the other still needs it"
    gone = prices.handle(Detached(PRICES, second, 7), NOW)
    assert [each.count for each in asked(gone, Release)] == [3]
    assert told(gone, Answered) == [Answered(7, {})]


@pytest.mark.req("J1", "J7")
def test_subscribers_who_want_different_things_hold_the_record_each() -> None:
    prices = topic()
    plain, _ = attach(prices, 100)
    choosy = a_consumer()
    wish = Attached(1, PRICES, choosy, a_session(), 100, selector="JMSPriority = 4")
    prices.handle(wish, NOW)
    effects = publish(prices, several(1, 3, priorities=[4, 9, 4]))
    assert handed_to(effects, plain) == [2, 1, 3]
    assert handed_to(effects, choosy) == [1, 3]
    assert [each.count for each in asked(effects, Retain)] == [2], "once was held when it was written"
    assert sum(each.count for each in asked(settle(prices, choosy, (1, 2)), Release)) == 2
    assert sum(each.count for each in asked(settle(prices, plain, (1, 3)), Release)) == 3


@pytest.mark.req("J1")
def test_a_topic_without_subscribers_keeps_nothing() -> None:
    prices = topic()
    assert asked(publish(prices, lone(1)), Persist) == []
    late, effects = attach(prices, 100)
    assert handed_to(effects, late) == []
    assert handed_to(publish(prices, lone(2)), late) == [2]


@pytest.mark.req("J4")
def test_what_a_consumer_had_goes_to_the_next_in_order_and_marked() -> None:
    orders = queue()
    first, _ = attach(orders, 3)
    publish(orders, several(1, 3), several(4, 3))
    settle(orders, first, (2, 2))
    effects = orders.handle(Detached(ORDERS, first, 0), NOW)
    assert [(each.kind, each.ranges) for each in asked(effects, Note)] == [
        (RecordKind.RETURNED, [(1, 1), (3, 3)])
    ]
    second, effects = attach(orders, 100)
    assert handed_to(effects, second) == [1, 3, 4, 5, 6]
    assert [each.span.deliveries for each in told(effects, Dispatched)] == [1, 1, 0]


@pytest.mark.req("J4")
def test_messages_that_are_not_persistent_return_to_their_place_too() -> None:
    orders = queue()
    first, _ = attach(orders, 6)
    publish(
        orders, several(1, 3, persistent=False), several(4, 3, persistent=False), lone(7, persistent=False)
    )
    orders.handle(Detached(ORDERS, first, 0), NOW)
    second, effects = attach(orders, 100)
    assert handed_to(effects, second) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.req("J4")
def test_a_settlement_that_waits_is_answered_once_stored_or_at_once_if_nothing_is() -> None:
    orders = queue()
    taker, _ = attach(orders, 100)
    publish(orders, several(1, 2), lone(3, persistent=False))
    (note,) = asked(settle(orders, taker, (2, 3), request=8), Note)
    assert (note.kind, note.ranges, note.request) == (RecordKind.DONE, [(1, 2)], 8)
    assert told(settle(orders, taker, (1, 1), request=9), Answered) == [Answered(9, {})]
    assert told(settle(orders, taker, request=10, returned=True), Answered) == [Answered(10, {})]


@pytest.mark.req("J4")
def test_unknown_tags_are_refused_once_and_what_came_before_them_holds() -> None:
    orders = queue()
    taker, _ = attach(orders, 100)
    publish(orders, several(1, 4))
    effects = settle(orders, taker, (1, 2), (9, 9), request=5)
    assert [(each.request, each.code) for each in told(effects, Rejected)] == [(5, "settlement-unknown")]
    assert [(note.ranges, note.request) for note in asked(effects, Note)] == [([(1, 2)], 0)]
    assert orders.messages.in_flight == 2
    gone = settle(orders, a_consumer(), (1, 1), request=6)
    assert [each.code for each in told(gone, Rejected)] == ["consumer-unknown"]


@pytest.mark.req("J11")
def test_higher_priorities_go_first_and_equal_ones_in_order() -> None:
    orders = queue()
    publish(orders, several(1, 5, priorities=[4, 9, 4, 0, 9]), lone(6))
    taker, effects = attach(orders, 100)
    assert handed_to(effects, taker) == [2, 5, 1, 3, 6, 4]


@pytest.mark.req("J3")
def test_a_persistent_message_waits_for_the_disk_before_it_is_handed_out() -> None:
    orders = queue()
    taker, _ = attach(orders, 100)
    block = lone(1)
    effects = orders.handle(Published(ORDERS, block), NOW)
    assert asked(effects, Persist) == [Persist(block)]
    assert told(effects, Dispatched) == []
    block.position = 8
    assert told(orders.handle(BlocksStored([block]), NOW), Confirmed) == [Confirmed(block.lane, 1)]
    assert handed_to(orders.handle(BlocksReady([block]), NOW), taker) == [1]
