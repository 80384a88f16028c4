"""Stories that once went wrong, told to the real message manager under the eyes of the model."""

from __future__ import annotations

from pathlib import Path

import pytest

from heliograph.bus.commands import Answered, Command, Dispatched
from heliograph.destinations import pages, sequence, waiting
from heliograph.model.block import pack, pack_lone
from heliograph.model.destination import DEAD_MESSAGES
from heliograph.model.policy import Policy
from tests.properties.destination_parties import EVERYTHING, Lane, Subscriber
from tests.properties.destination_world import QUEUE, TOPIC, Client, World
from tests.properties.surroundings import HERE, SECOND, put_managers_here

NEWS = Subscriber(TOPIC, "one", "news", True, False, EVERYTHING)
ALERTS = Subscriber(TOPIC, "one", "alerts", True, False, EVERYTHING)


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    put_managers_here(monkeypatch, tmp_path)
    for module in (pages, sequence):
        monkeypatch.setattr(module, "PAGE_MESSAGES", 4)
    for module in (pages, waiting, sequence):
        monkeypatch.setattr(module, "PAGE_BYTES", 700)


def publish(
    world: World, lane: Lane, *, persistent: bool = True, count: int = 1, staged: bool = False
) -> None:
    """Lone messages, one after the other, each stored."""
    for _ in range(count):
        buffer = pack_lone(
            b"%d" % lane.next_sequence,
            lane=lane.identity,
            sequence=lane.next_sequence,
            timestamp=HERE.loop.now,
            persistent=persistent,
        )
        world.publish(lane, buffer, staged=staged)
    store(world)


def store(world: World) -> None:
    world.store(world.journal.boundaries[-1])
    world.check()


def snapshot(world: World) -> None:
    world.take_snapshot()
    world.finish_snapshot()


def restart(world: World) -> None:
    world.crash(world.journal.boundaries[-1], machine=False)
    world.check()


def lanes(world: World, client: Client) -> tuple[Lane, Lane]:
    orders, prices = world.lanes_of(client)
    return orders, prices


@pytest.mark.req("J6")
def test_a_snapshot_in_the_middle_of_a_chunk_that_is_only_partly_on_disk_loses_nothing() -> None:
    world = World(10**9)
    client = world.open_session("ann", "one")
    _, prices = lanes(world, client)
    world.subscribe(client, NEWS, 1)
    publish(world, prices, persistent=False)
    publish(world, prices, count=2)
    snapshot(world)
    restart(world)
    world.drain()


@pytest.mark.req("J6")
def test_a_subscription_that_ends_while_a_page_is_read_for_it_does_not_keep_it_from_the_others() -> None:
    world = World(0)
    client = world.open_session("ann", "one")
    _, prices = lanes(world, client)
    for wish in (NEWS, ALERTS):
        taker = world.subscribe(client, wish, 0)
        assert taker is not None
        world.detach(taker)
    publish(world, prices, count=10)
    restart(world)
    world.resume_session(client)
    first = world.subscribe(client, NEWS, 100)
    second = world.subscribe(client, ALERTS, 100)
    assert first is not None
    assert second is not None
    assert world.journal.loads
    world.detach(first)
    world.unsubscribe("one", "news")
    while world.journal.loads:
        world.page_arrives()
    store(world)
    assert len(second.held) == 10
    world.drain()


@pytest.mark.req("J5", "J9")
@pytest.mark.parametrize("snapshot_first", [False, True])
@pytest.mark.parametrize("deleted", [False, True])
def test_a_commit_to_a_temporary_queue_does_not_stop_the_next_start(
    snapshot_first: bool, deleted: bool
) -> None:
    world = World(10**9)
    client = world.open_session("ann", "one")
    orders, _ = lanes(world, client)
    reply = world.make_temporary(client)
    publish(world, reply, staged=True)
    publish(world, orders, staged=True)
    if snapshot_first:
        snapshot(world)
    publish(world, reply, staged=True)
    if deleted:
        world.delete_temporary(client, reply.address)
    world.commit(client, [])
    store(world)
    restart(world)
    assert sum(letter.address == QUEUE for letter in world.model.letters.values()) == 1
    world.drain()


@pytest.mark.req("J9")
def test_a_page_that_a_browser_reads_may_grow_meanwhile() -> None:
    world = World(0)
    client = world.open_session("ann", "one")
    orders, _ = lanes(world, client)
    publish(world, orders, count=3)
    browser = world.attach(client, QUEUE, 100, browse=True)
    assert world.journal.loads
    publish(world, orders, count=2)
    while world.journal.loads:
        world.page_arrives()
    world.check()
    assert browser.next_tag == 4, "it was shown what was there when it came"
    world.drain()


@pytest.mark.req("J9")
def test_what_is_done_before_a_browser_comes_to_it_harms_nobody() -> None:
    world = World(0)
    client = world.open_session("ann", "one")
    orders, _ = lanes(world, client)
    publish(world, orders, count=12)
    world.attach(client, QUEUE, 1, browse=True)
    browser = next(iter(world.model.takers.values()))
    consumer = world.attach(client, QUEUE, 100)
    for _ in range(50):
        store(world)
        if world.journal.loads:
            world.page_arrives()
        if consumer.held:
            ranges = [(tag, tag) for tag in consumer.held]
            world.settle(consumer, ranges, returned=False, replenish=True, ask=False)
        snapshot(world)
    world.grant(browser, 100)
    while world.journal.loads:
        world.page_arrives()
    world.drain()


@pytest.mark.req("J8")
def test_a_sweep_leaves_each_message_once() -> None:
    world = World(10**9)
    client = world.open_session("ann", "one")
    orders, _ = lanes(world, client)
    now = HERE.loop.now
    buffer = pack(
        [b"stays", b"goes", b"stays too"],
        lane=orders.identity,
        first=1,
        expiries=[0, now + SECOND, 0],
        timestamps=[now] * 3,
    )
    world.publish(orders, buffer)
    store(world)
    world.pass_time(5)
    world.check()
    world.drain()


@pytest.mark.req("J10", "M11")
def test_a_full_disk_does_not_make_a_dead_message_look_new() -> None:
    world = World(10**9)
    client = world.open_session("ann", "one")
    orders, _ = lanes(world, client)
    world.set_policy(QUEUE, Policy(redelivery_limit=1))
    publish(world, orders)
    consumer = world.attach(client, QUEUE, 100)
    world.journal.is_full = True
    world.settle(consumer, [(1, 1)], returned=True, replenish=True, ask=True)
    world.check()
    world.pass_time(6)
    world.page_arrives()
    world.check()
    assert len(consumer.held) == 1, "it is tried again, and marked"
    world.journal.is_full = False
    world.settle(consumer, [(2, 2)], returned=True, replenish=True, ask=True)
    world.check()
    assert any(letter.address == DEAD_MESSAGES for letter in world.model.letters.values())
    world.drain()


@pytest.mark.req("J10", "M11")
def test_the_dead_stay_where_they_are_whatever_an_administrator_says() -> None:
    world = World(10**9)
    client = world.open_session("ann", "one")
    orders, _ = lanes(world, client)
    world.set_policy(QUEUE, Policy(redelivery_limit=1))
    harsh = Policy(redelivery_limit=1, expired_to_dead=True, undelivered_to_dead_after=1.0)
    world.catalogue.set_policy(DEAD_MESSAGES, harsh, [])
    publish(world, orders)
    consumer = world.attach(client, QUEUE, 100)
    world.settle(consumer, [(1, 1)], returned=True, replenish=True, ask=True)
    store(world)
    mourner = world.attach(client, DEAD_MESSAGES, 100)
    world.settle(mourner, [(1, 1)], returned=True, replenish=True, ask=True)
    world.pass_time(10)
    world.check()
    assert len(mourner.held) == 1
    world.drain()


@pytest.mark.req("J5", "J10")
@pytest.mark.parametrize("mourner_first", [False, True])
def test_what_a_rollback_buries_comes_to_the_same_session_behind_its_answer(mourner_first: bool) -> None:
    world = World(10**9)
    client = world.open_session("ann", "one")
    orders, _ = lanes(world, client)
    world.set_policy(QUEUE, Policy(redelivery_limit=1))
    addresses = (DEAD_MESSAGES, QUEUE) if mourner_first else (QUEUE, DEAD_MESSAGES)
    takers = {address: world.attach(client, address, 100) for address in addresses}
    publish(world, orders, persistent=False)
    heard: list[Command] = []
    world.roll_back(client, {takers[QUEUE].identity: 1}, heard)
    kinds = [type(each) for each in heard if isinstance(each, Answered | Dispatched)]
    assert kinds == [Answered, Dispatched]
    assert takers[QUEUE].held == {}
    assert list(takers[DEAD_MESSAGES].held) == [1], "nobody else got it meanwhile"
    world.drain()


@pytest.mark.req("J6", "J11")
def test_what_overtook_a_persistent_message_does_not_make_a_restart_forget_it() -> None:
    world = World(10**9)
    client = world.open_session("ann", "one")
    _, prices = lanes(world, client)
    world.subscribe(client, NEWS, 0)
    for number, persistent in ((1, True), (2, False)):
        body = b"%d" % number
        world.publish(prices, pack_lone(body, lane=prices.identity, sequence=number, persistent=persistent))
    store(world)
    snapshot(world)
    restart(world)
    assert sum(letter.address == TOPIC for letter in world.model.letters.values()) == 1
    world.drain()


@pytest.mark.req("J6", "J11")
def test_what_nobody_needs_any_more_does_not_keep_a_server_from_starting() -> None:
    world = World(0)
    client = world.open_session("ann", "one")
    _, prices = lanes(world, client)
    visitor = world.open_session("bob", "two")
    world.attach(visitor, TOPIC, 100)
    buffer = pack_lone(b"for the visitor", lane=prices.identity, sequence=1, timestamp=HERE.loop.now)
    world.publish(prices, buffer)
    world.subscribe(client, NEWS, 0)  # begins behind what is on its way to the disk
    for _ in range(6):
        world.close_session(world.open_session("eve"))  # so that the next records are in other segments
    snapshot(world)
    world.close_session(visitor)
    store(world)
    assert world.journal.live() == {}, "nobody needs it any more"
    publish(world, prices)
    restart(world)
    world.drain()
