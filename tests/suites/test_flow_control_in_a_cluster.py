"""Flow control across nodes (M7): each of its four routes, with client managers and message managers apart.

A full destination tells the producers at every client manager, whoever leads; a consumer, a client or a session that
is full slows nobody but those who are concerned.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import heliograph
from heliograph import HeliographError
from heliograph.client.producer import Producer
from heliograph.frontends.native import frames
from heliograph.frontends.native.frames import DELIVER, PREAMBLE, FrameReader, control_frame
from heliograph.model.block import pack
from heliograph.model.ids import SessionId, lane_of
from heliograph.model.limits import CONSUMER_WINDOW_BYTES, KIB, MIB
from heliograph.nodes.connection import Connection
from tests.servers import until
from tests.suites.cluster_in_process import CLIENTS, MESSAGES, Cluster, told, url
from tests.suites.exchange import receive_all, send_all

pytestmark = [pytest.mark.req("M7"), pytest.mark.slow]

POLICIES = [{"destinations": "*:small", "high_water_messages": 100}]


async def gather(cluster: Cluster) -> None:
    """Two client managers, and three message managers that know of a small queue."""
    await cluster.nodes.pop(1).stop()
    for node in (1, 2):
        await cluster.add(node, CLIENTS, policies=POLICIES)
    for node in (3, 4, 5):
        await cluster.add(node, MESSAGES, policies=POLICIES)


async def shown(connection: heliograph.Connection, destination: str) -> dict[str, Any]:
    return await connection.ask("destination.show", destination=destination)


async def is_refused(producer: Producer) -> None:
    assert not await producer.try_send(b"refused")
    with pytest.raises(HeliographError) as late:
        await producer.send(b"late", timeout=0.05)
    assert late.value.code == "send-timeout"


def test_a_full_queue_blocks_producers_at_all_client_managers_and_goes_on_when_another_leads(
    tmp_path: Path,
) -> None:
    async def story(cluster: Cluster) -> None:
        await gather(cluster)
        async with (
            heliograph.connect(url(cluster, 1)) as one,
            heliograph.connect(url(cluster, 2)) as two,
        ):
            here, there = await one.producer("queue:small"), await two.producer("queue:small")
            elsewhere = await two.producer("queue:other")
            await send_all(here, [b"%d" % n for n in range(100)])
            await until(lambda: here.is_blocked and there.is_blocked, "both client managers tell their own")
            for _ in range(2):
                cluster.crash(led := cluster.leader())
                await elsewhere.send_confirmed(b"another leads")
                assert cluster.leader() != led
                late = await one.producer("queue:small")
                assert late.is_blocked, "whoever comes now is told by whoever leads now"
                for producer in (here, there, late):
                    assert producer.is_blocked
                    await is_refused(producer)
                assert (await shown(two, "queue:small"))["blocked"] == "messages"
                await cluster.add(led, MESSAGES, policies=POLICIES)
            waiting = [
                asyncio.create_task(send_all(producer, [b"%s%d" % (name, n) for n in range(200)]))
                for name, producer in ((b"a", here), (b"b", there))
            ]
            await asyncio.sleep(0.2)
            assert not any(task.done() for task in waiting)
            async with await two.consumer("queue:small") as consumer:
                bodies = [message.body for message in await receive_all(consumer, 500)]
            assert bodies[:100] == [b"%d" % n for n in range(100)]
            for name in (b"a", b"b"):  # each in its order
                ours = [body for body in bodies[100:] if isinstance(body, bytes) and body.startswith(name)]
                assert ours == [b"%s%d" % (name, n) for n in range(200)]
            await asyncio.gather(*waiting)
            await until(lambda: not here.is_blocked and not there.is_blocked, "both are told to go on")
            assert await here.try_send(b"taken")
            assert await there.try_send(b"taken")

    told(tmp_path, story)


def test_a_consumer_that_takes_nothing_stops_what_feeds_it_and_nothing_else(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        await gather(cluster)
        async with (
            heliograph.connect(url(cluster, 1)) as one,
            heliograph.connect(url(cluster, 1)) as other,
            heliograph.connect(url(cluster, 2)) as sender,
        ):
            session = await one.session(acknowledge="client")
            full = await session.consumer("queue:a", credit=10)
            beside = await one.consumer("queue:b")  # of the same client
            producers = [await sender.producer(name) for name in ("queue:a", "queue:b", "topic:t")]
            slow, quick = await session.consumer("topic:t", credit=10), await other.consumer("topic:t")
            await asyncio.gather(*(send_all(each, [b"%d" % n for n in range(1000)]) for each in producers))
            expected = [b"%d" % n for n in range(1000)]
            assert [message.body for message in await receive_all(beside, 1000)] == expected
            assert [message.body for message in await receive_all(quick, 1000)] == expected
            figures = await shown(other, "queue:a")
            assert (figures["in_flight"], figures["depth"]) == (10, 990)
            taking = await other.consumer("queue:a")  # of the same queue at the same client manager
            assert [message.body for message in await receive_all(taking, 990)] == expected[10:]
            assert [message.body for message in await receive_all(full, 10)] == expected[:10]
            got: list[object] = []
            while len(got) < 1000:
                got += [message.body for message in await receive_all(slow, 10)]
                await session.acknowledge(confirm=True)
            assert got == expected

    told(tmp_path, story)


class Peer(asyncio.Protocol):
    """A client that reads and writes as it likes."""

    def __init__(self) -> None:
        self._frames = FrameReader()
        self.delivered_bytes = 0
        self.heard: list[frames.FromServer] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        for kind, _flags, _number, payload in self._frames.feed(data):
            if kind == DELIVER:
                self.delivered_bytes += len(payload)
            elif kind == frames.CONTROL:
                self.heard.append(frames.decode_from_server(payload))

    def tell(self, message: frames.Control) -> None:
        self.transport.write(control_frame(message))

    async def hear(self, kind: type) -> frames.FromServer:
        await until(lambda: any(isinstance(each, kind) for each in self.heard), f"it hears {kind.__name__}")
        return next(each for each in self.heard if isinstance(each, kind))


async def peer_at(cluster: Cluster, node: int) -> tuple[Peer, Connection, SessionId]:
    """With a session, and what its client manager has of it."""
    address, clients = cluster.nodes[node].address, cluster.nodes[node].clients
    assert address is not None
    assert clients is not None
    before = list(clients.connections)
    _, peer = await asyncio.get_running_loop().create_connection(Peer, *address)
    peer.transport.write(PREAMBLE)
    peer.tell(frames.Hello(heartbeat_seconds=3600))
    await peer.hear(frames.Welcome)
    peer.tell(frames.OpenSession(request=1, number=1))
    opened = await peer.hear(frames.SessionOpened)
    assert isinstance(opened, frames.SessionOpened)
    [there] = [each for each in clients.connections if each not in before]
    return peer, there, SessionId(opened.session)


class Watch:
    """Looks at a connection of a server in this process, in each turn of the loop."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.stopped = 0  # in how many turns it was not read from
        self.worst_bytes = 0

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        looking = asyncio.create_task(self._look())
        try:
            yield
        finally:
            looking.cancel()

    async def _look(self) -> None:
        while True:
            self.stopped += not self._connection._reading
            self.worst_bytes = max(self.worst_bytes, self._connection._window.unconfirmed)
            await asyncio.sleep(0)


@pytest.mark.alone
def test_a_client_that_sends_regardless_is_not_read_from_and_slows_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    most, count, size = MIB, 1200, 64 * KIB
    monkeypatch.setattr("heliograph.sessions.window.SESSION_UNCONFIRMED_BYTES", most)

    async def story(cluster: Cluster) -> None:
        await gather(cluster)
        greedy, there, session = await peer_at(cluster, 1)
        greedy.tell(frames.OpenLane(request=2, number=1, lane=1, destination="queue:greedy"))
        await greedy.hear(frames.LaneOpened)
        async with heliograph.connect(url(cluster, 1)) as connection:
            producer = await connection.producer("queue:modest")
            await producer.send_confirmed(b"before")
            for number in range(count):
                block = pack([bytes(size)], lane=lane_of(session, 1), first=number + 1)
                greedy.transport.write(frames.publish_frame(1, block))
            watch = Watch(there)
            worst_seconds = 0.0
            sent = 0
            async with watch.watching():
                while (await shown(connection, "queue:greedy"))["depth"] < count:
                    began = time.monotonic()
                    await producer.send_confirmed(b"%d" % sent)
                    worst_seconds = max(worst_seconds, time.monotonic() - began)
                    sent += 1
            stopped, worst_bytes = watch.stopped, watch.worst_bytes
            print(f"{sent} meanwhile, the slowest in {worst_seconds:.3f} s; {stopped} times it was stopped")
            assert stopped
            assert sent >= 10
            assert worst_seconds < 2.0
            assert worst_bytes < most + MIB, "no more is taken in than one turn of the loop reads"
            await until(lambda: there._reading, "it is read from again")
        greedy.transport.abort()

    told(tmp_path, story)


def test_a_client_that_does_not_read_stops_the_destinations_that_feed_it_and_no_others(
    tmp_path: Path,
) -> None:
    count, size = 100, 100_000
    names = ("queue:one", "queue:two", "queue:three", "queue:four")

    async def story(cluster: Cluster) -> None:
        await gather(cluster)
        deaf, there, _ = await peer_at(cluster, 1)
        async with (
            heliograph.connect(url(cluster, 1)) as same,
            heliograph.connect(url(cluster, 2)) as sender,
        ):
            deaf.transport.pause_reading()
            for number, name in enumerate(names):
                deaf.tell(
                    frames.Subscribe(
                        request=10 + number, number=1, consumer=number, destination=name, credit=10_000
                    )
                )
            for name in names:
                await send_all(await sender.producer(name), [bytes(size)] * count)
            await until(lambda: there._clogged, "its client manager notices")
            transport = there._transport
            assert transport is not None
            assert transport.get_write_buffer_size() < len(names) * CONSUMER_WINDOW_BYTES + MIB
            fed = [(await shown(same, name))["in_flight"] for name in names]
            assert all(0 < each * size <= CONSUMER_WINDOW_BYTES + MIB for each in fed)
            others = await same.producer("queue:other")
            async with await same.consumer("queue:other") as consumer:
                await send_all(others, [b"%d" % n for n in range(5000)])
                bodies = [message.body for message in await receive_all(consumer, 5000)]
            assert bodies == [b"%d" % n for n in range(5000)]
            taking = await same.consumer(names[0])  # what it has not is for others
            assert len(await receive_all(taking, count - fed[0])) == count - fed[0]
            assert [(await shown(same, name))["in_flight"] for name in names[1:]] == fed[1:]
            deaf.transport.resume_reading()
            await until(lambda: deaf.delivered_bytes >= sum(fed) * size, "it comes when it is read")
        deaf.transport.abort()

    told(tmp_path, story)
