"""Three client managers in one process, some of which are slow to say what they have seen: what their clients get,
when, and what becomes of the rest (P5, PROTOCOL 4)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import heliograph
from heliograph.bus.commands import Command, Dispatched, DispatchSeen, Logged
from heliograph.bus.interface import Incarnation, Listener
from heliograph.bus.local_channels import LocalMembership
from heliograph.cluster import seen_marks
from heliograph.cluster.seen_marks import SeenMarks
from heliograph.nodes import cluster_clients
from heliograph.nodes.handing_out import HandingOut
from tests.servers import play, until
from tests.suites.cluster_in_process import CLIENTS, Channels, Cluster, url
from tests.suites.test_moving_sessions import send, shown, taken

pytestmark = pytest.mark.req("P5")

Story = Callable[["SlowCluster"], Awaitable[None]]


class SlowMembership(LocalMembership):
    """What it has to say about what it has seen may be late."""

    is_slow = False

    def multicast(self, command: Command) -> None:
        if self.is_slow and isinstance(command, DispatchSeen):
            self.late = command  # a later word covers the one before
        else:
            super().multicast(command)

    late: DispatchSeen | None = None


class SlowChannels(Channels):
    def enter(self, channel: str, listener: Listener) -> LocalMembership:
        membership = super().enter(channel, listener)
        membership.__class__ = SlowMembership
        return membership


class SlowCluster(Cluster):
    """Client managers 1 to 3, message managers from 4 on."""

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        self._bus = SlowChannels()

    def _membership(self, node: int) -> SlowMembership:
        stay = self.nodes[node].member._stay
        assert stay is not None
        assert isinstance(stay.membership, SlowMembership)
        return stay.membership

    def slow(self, *nodes: int) -> None:
        for node in nodes:
            self._membership(node).is_slow = True

    def quick(self, *nodes: int) -> None:
        """They say now what they had to say, and do so at once from here on."""
        for node in nodes:
            membership = self._membership(node)
            membership.is_slow = False
            if membership.late is not None:
                late, membership.late = membership.late, None
                membership.multicast(late)

    def handing_out(self, node: int) -> HandingOut:
        clients = self.nodes[node].own.clients
        assert clients is not None
        return clients.handing_out

    async def holds(self, node: int, messages: int) -> None:
        handing_out = self.handing_out(node)
        await until(lambda: handing_out.unseen == messages, f"{messages} wait at {node}")

    async def remove(self, node: int) -> None:
        await self.nodes.pop(node).stop()

    async def in_flight(self, destination: str) -> int:
        at = 3 if 3 in self.nodes else 1
        async with heliograph.connect(url(self, at)) as connection:
            shown = await connection.ask("destination.show", destination=destination)
        return int(shown["in_flight"])


def told(base: Path, story: Story, managers: int = 1, **settings: Any) -> None:
    async def whole() -> None:
        cluster = SlowCluster(base)
        try:
            for node in (1, 2, 3):
                await cluster.add(node, CLIENTS, **settings)
            for node in range(4, 4 + managers):
                await cluster.add(node, **settings)
            members = [cluster.nodes[node].own for node in (1, 2, 3)]
            await until(
                lambda: all(each.roles and len(each.roles.client_managers) == 3 for each in members),
                "all three are in the view",
            )
            await story(cluster)
        finally:
            await cluster.stop()

    play(whole())


def is_new(message: heliograph.Message) -> bool:
    return not message.redelivered and message.delivery_count == 1


# ---- what waits


async def it_waits_for_one_other(cluster: SlowCluster) -> None:
    cluster.slow(2, 3)
    async with heliograph.connect(url(cluster)) as connection:
        consumer = await (await connection.session()).consumer("queue:orders")
        await send(url(cluster, 2), "queue:orders", b"1", b"2")
        await cluster.holds(1, 2)
        assert await cluster.in_flight("queue:orders") == 2
        assert await consumer.receive(timeout=0) is None
        cluster.quick(3)
        assert shown(await taken(consumer, 2)) == [(b"1", False), (b"2", False)]


def test_a_message_reaches_its_client_when_most_client_managers_know_of_it(tmp_path: Path) -> None:
    told(tmp_path, it_waits_for_one_other)


def counted_twice(self: SeenMarks, target: Incarnation) -> int:
    seen = [self._delivered, *(self._marks.get(who, 0) for who in self._clients)]
    return min(self._delivered, sorted(seen, reverse=True)[len(self._clients) // 2])


def without_waiting(self: SeenMarks, _target: Incarnation) -> int:
    return self._delivered


@pytest.mark.parametrize("planted", [counted_twice, without_waiting])
def test_a_majority_that_is_none_shows(planted: Any, tmp_path: Path) -> None:
    with (
        patch.object(seen_marks.SeenMarks, "seen_by_most", planted),
        pytest.raises((AssertionError, ExceptionGroup)),
    ):
        told(tmp_path, it_does_not_go_at_once)


async def it_does_not_go_at_once(cluster: SlowCluster) -> None:
    cluster.slow(2, 3)
    async with heliograph.connect(url(cluster)) as connection:
        consumer = await (await connection.session()).consumer("queue:orders")
        await send(url(cluster, 2), "queue:orders", b"1")
        assert await consumer.receive(timeout=0.5) is None


def test_who_hands_out_at_once_shows(tmp_path: Path) -> None:
    told(tmp_path / "right", it_does_not_go_at_once)
    with (
        patch.object(cluster_clients, "needs_majority", lambda _attached: False),
        pytest.raises((AssertionError, ExceptionGroup)),
    ):
        told(tmp_path / "wrong", it_does_not_go_at_once)


def test_without_the_rule_nobody_waits_and_nobody_says_a_word(tmp_path: Path) -> None:
    async def story(cluster: SlowCluster) -> None:
        cluster.slow(1, 2, 3)
        async with heliograph.connect(url(cluster)) as connection:
            consumer = await (await connection.session()).consumer("queue:orders")
            await send(url(cluster, 2), "queue:orders", b"1")
            assert shown(await taken(consumer, 1)) == [(b"1", False)]
        assert [cluster._membership(node).late for node in (1, 2, 3)] == [None] * 3

    told(tmp_path, story, cluster__dispatch_majority=False)


def test_the_last_client_manager_waits_for_nobody(tmp_path: Path) -> None:
    async def story(cluster: SlowCluster) -> None:
        await cluster.remove(2)
        await cluster.remove(3)
        cluster.slow(1)
        async with heliograph.connect(url(cluster)) as connection:
            consumer = await (await connection.session()).consumer("queue:orders")
            await send(url(cluster), "queue:orders", b"1")
            assert shown(await taken(consumer, 1)) == [(b"1", False)]
        assert cluster._membership(1).late is None

    told(tmp_path, story)


def test_who_browses_or_has_a_subscription_for_itself_does_not_wait_and_who_shares_one_does(
    tmp_path: Path,
) -> None:
    async def story(cluster: SlowCluster) -> None:
        cluster.slow(2, 3)
        async with heliograph.connect(url(cluster), client_id="till") as connection:
            session = await connection.session()
            own = await session.consumer("topic:news")
            durable = await session.consumer("topic:news", durable="d")
            shared = await session.consumer("topic:news", shared="s")
            await send(url(cluster, 2), "topic:news", b"1")
            await send(url(cluster, 2), "queue:orders", b"2")
            for subscriber in (own, durable):
                assert shown(await taken(subscriber, 1)) == [(b"1", False)]
            browser = await session.browser("queue:orders")
            assert [message.body async for message in browser] == [b"2"]
            await cluster.holds(1, 1)
            assert await shared.receive(timeout=0) is None
            cluster.quick(2)
            assert shown(await taken(shared, 1)) == [(b"1", False)]

    told(tmp_path, story)


# ---- the view ends


def test_what_most_have_not_seen_goes_back_unmarked_where_the_view_begins_anew(tmp_path: Path) -> None:
    async def story(cluster: SlowCluster) -> None:
        cluster.slow(2, 3)
        async with heliograph.connect(url(cluster)) as connection:
            consumer = await (await connection.session()).consumer("queue:orders")
            await send(url(cluster), "queue:orders", *[b"%d" % number for number in range(10)])
            await until(lambda: cluster.handing_out(1).unseen, "something waits")
            await cluster.remove(3)
            cluster.quick(2)
            messages = await taken(consumer, 10)
            assert [message.body for message in messages] == [b"%d" % number for number in range(10)]
            assert all(is_new(message) for message in messages)
            await send(url(cluster), "queue:orders", b"last")
            assert shown(await taken(consumer, 1)) == [(b"last", False)], "nothing comes twice"
        await until_nothing_is_in_flight(cluster)

    told(tmp_path, story)


async def until_nothing_is_in_flight(cluster: SlowCluster) -> None:
    while await cluster.in_flight("queue:orders"):
        pass


def test_a_backup_that_takes_over_knows_what_no_client_has(tmp_path: Path) -> None:
    async def story(cluster: SlowCluster) -> None:
        async with heliograph.connect(url(cluster)) as connection:
            session = await connection.session(acknowledge="client")
            consumer = await session.consumer("queue:orders")
            await send(url(cluster), "queue:orders", b"with the client")
            first = await taken(consumer, 1)
            cluster.slow(2, 3)
            await send(url(cluster), "queue:orders", b"1", b"2")
            await send(url(cluster), "queue:orders", b"3", persistent=False)
            await cluster.holds(1, 3)
            cluster.crash(cluster.leader())
            await until(lambda: cluster.nodes[5].replica.is_leading, "5 leads")  # type: ignore[union-attr]
            cluster.quick(2, 3)
            messages = first + await taken(consumer, 2)
            bodies = [b"with the client", b"1", b"2"]
            assert [message.body for message in messages] == bodies, (
                "what is not persistent may go with the primary"
            )
            assert all(is_new(message) for message in messages)
            await session.acknowledge(confirm=True)
            await send(url(cluster), "queue:orders", b"4")
            assert shown(await taken(consumer, 1)) == [(b"4", False)]
            await session.acknowledge(confirm=True)
        await until_nothing_is_in_flight(cluster)

    told(tmp_path, story, managers=2)


def test_a_consumer_has_room_for_others_when_what_it_was_not_given_ended_with_the_primary(
    tmp_path: Path,
) -> None:
    async def story(cluster: SlowCluster) -> None:
        async with heliograph.connect(url(cluster)) as connection:
            consumer = await (await connection.session()).consumer("queue:orders", credit=1)
            cluster.slow(2, 3)
            await send(url(cluster), "queue:orders", b"1", persistent=False)
            await cluster.holds(1, 1)
            cluster.crash(cluster.leader())
            await until(lambda: cluster.nodes[5].replica.is_leading, "5 leads")  # type: ignore[union-attr]
            cluster.quick(2, 3)
            await send(url(cluster), "queue:orders", b"2")
            assert shown(await taken(consumer, 1)) == [(b"2", False)]

    told(tmp_path, story, managers=2)


def test_what_was_never_heard_is_decided_afresh_where_the_view_begins_anew(tmp_path: Path) -> None:
    """The primary has handed out to consumers and nobody has heard of it yet: it does not say so in the new view."""

    async def story(cluster: SlowCluster) -> None:
        async with heliograph.connect(url(cluster)) as connection:
            consumer = await (await connection.session()).consumer("queue:orders")
            producer = await connection.producer("queue:orders")
            leading = cluster.nodes[4].replica._leading  # type: ignore[union-attr]
            assert leading is not None
            leading._may_say = False  # the bus takes nothing more
            for number in range(5):
                await producer.send(b"%d" % number, persistent=False)
            await until(lambda: _dispatches(leading._unsaid), "it has handed them out")
            await cluster.remove(3)
            messages = await taken(consumer, 5)
            assert [message.body for message in messages] == [b"%d" % number for number in range(5)]
            assert messages[0]._delivery.first_tag > 1, "under other tags than those that nobody has heard of"

    told(tmp_path, story)


def _dispatches(waiting: Any) -> bool:
    return any(
        isinstance(decision, Dispatched)
        for logged in waiting
        if isinstance(logged, Logged)
        for decision in logged.decisions
    )


# ---- what clients do meanwhile


@pytest.mark.req("J4", "J5")
@pytest.mark.parametrize("what", ["closes", "recovers", "rolls back"])
def test_who_gives_back_what_it_has_also_gives_back_what_it_was_not_given_yet(
    tmp_path: Path, what: str
) -> None:
    async def story(cluster: SlowCluster) -> None:
        async with heliograph.connect(url(cluster)) as connection:
            mode: Any = "transacted" if what == "rolls back" else "client"
            session = await connection.session(acknowledge=mode)
            consumer = await session.consumer("queue:orders")
            await send(url(cluster), "queue:orders", b"1")
            await taken(consumer, 1)
            cluster.slow(2, 3)
            await send(url(cluster), "queue:orders", b"2", b"3")
            await cluster.holds(1, 2)
            if what == "closes":
                await consumer.close()
                consumer = await session.consumer("queue:orders")
            elif what == "recovers":
                await session.recover()
            else:
                await session.rollback()
            cluster.quick(2, 3)
            again = [] if what == "closes" else [(b"1", True)]  # which its application still has
            messages = await taken(consumer, len(again) + 2)
            assert shown(messages) == [*again, (b"2", False), (b"3", False)]
            await (session.commit() if what == "rolls back" else session.acknowledge(confirm=True))
        await until_nothing_is_in_flight(cluster)

    told(tmp_path, story)


@pytest.mark.req("M8")
def test_a_session_that_moves_gets_what_it_was_not_given_once_and_unmarked(tmp_path: Path) -> None:
    async def story(cluster: SlowCluster) -> None:
        both = f"{url(cluster)},{url(cluster, 2).removeprefix('helio://')}"
        async with heliograph.connect(both) as connection:
            session = await connection.session(acknowledge="client")
            consumer = await session.consumer("queue:orders")
            here = await where(cluster, connection)
            there = 3 - here
            await send(url(cluster, 3), "queue:orders", b"1")
            messages = await taken(consumer, 1)
            cluster.slow(there, 3)
            await send(url(cluster, 3), "queue:orders", b"2")
            await cluster.holds(here, 1)
            clients = cluster.nodes[here].clients
            assert clients is not None
            assert await clients.drain(10)
            cluster.quick(there, 3)
            messages += await taken(consumer, 1)
            assert shown(messages) == [(b"1", False), (b"2", False)]
            await session.acknowledge(confirm=True)
        await until_nothing_is_in_flight(cluster)

    told(tmp_path, story)


@pytest.mark.req("M8")
def test_a_client_that_comes_back_to_the_same_client_manager_gets_it_once_too(tmp_path: Path) -> None:
    async def story(cluster: SlowCluster) -> None:
        async with heliograph.connect(url(cluster)) as connection:
            session = await connection.session(acknowledge="client")
            consumer = await session.consumer("queue:orders")
            cluster.slow(2, 3)
            await send(url(cluster, 2), "queue:orders", b"1")
            await cluster.holds(1, 1)
            former, clients = connection._link.wire, cluster.nodes[1].clients
            assert clients is not None
            for each in list(clients.connections):
                assert each._transport is not None
                each._transport.abort()
            await until(lambda: connection._link.wire not in (None, former), "the client is back")
            cluster.quick(2, 3)
            await send(url(cluster, 2), "queue:orders", b"2")
            assert shown(await taken(consumer, 2)) == [(b"1", False), (b"2", False)]
            await session.acknowledge(confirm=True)
        await until_nothing_is_in_flight(cluster)

    told(tmp_path, story)


async def where(cluster: SlowCluster, connection: heliograph.Connection) -> int:
    wire = await connection._link.ready()
    return 1 if url(cluster).endswith(wire.name) else 2
