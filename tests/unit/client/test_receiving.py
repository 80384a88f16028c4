"""Consumers with a scripted server at the other end: what is handed over, and what is acknowledged when."""

from __future__ import annotations

import asyncio

import pytest

from heliograph.client import Connection, Consumer, connect
from heliograph.frontends.native import frames
from heliograph.model import block
from heliograph.model.errors import ClientFault, ConnectionLost, HeliographError, NotAllowed
from heliograph.model.ids import IdIssuer, lane_of
from tests.unit.client.peer import Peer, listening, story

pytestmark = pytest.mark.req("J12", "J4")

LANE = lane_of(IdIssuer(site=9, node=9, started_ms=9).session(), 1)


def deliver(
    peer: Peer, first_tag: int, count: int, *, consumer: int = 1, earlier: int = 0, session: int = 1
) -> None:
    bodies = [b"%d" % tag for tag in range(first_tag, first_tag + count)]
    peer.line.deliver(
        block.pack(bodies, lane=LANE, first=first_tag),
        first_tag=first_tag,
        consumer=consumer,
        earlier=earlier,
        session=session,
    )


def settled(peer: Peer, *, line: int = -1) -> list[int]:
    """The tags that were acknowledged, in the order in which that was said."""
    return [
        tag
        for _, outcome, ranges, _ in peer.lines[line].settled
        for first, last in ranges
        for tag in range(first, last + 1)
        if outcome == frames.DONE
    ]


async def until_settled(peer: Peer, tags: list[int]) -> None:
    await peer.until(lambda: settled(peer) == tags)


async def consuming(connection: Connection, *, mode: str = "auto", credit: int = 100) -> Consumer:
    session = await connection.session(acknowledge=mode)  # type: ignore[arg-type]
    return await session.consumer("queue:a", credit=credit)


@story
async def test_a_message_is_acknowledged_when_the_next_is_asked_for() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        consumer = await consuming(connection)
        deliver(peer, 1, 2)
        messages = aiter(consumer)
        assert (await anext(messages)).body == b"1"
        assert settled(peer) == []
        assert (await anext(messages)).body == b"2"
        await peer.until(lambda: settled(peer) == [1])
        waiting = asyncio.ensure_future(anext(messages))
        await peer.until(lambda: settled(peer) == [1, 2])
        deliver(peer, 3, 1)
        assert (await waiting).body == b"3"
        assert all(flags & frames.REPLENISH for *_, flags in peer.line.settled)


@story
async def test_a_quick_application_acknowledges_in_large_steps() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        consumer = await consuming(connection, credit=1000)
        for first in range(1, 1000, 100):
            deliver(peer, first, 100)
        seen = 0
        async for _ in consumer:
            seen += 1
            if seen == 1000:
                break
        await consumer.close()
        await peer.until(lambda: len(settled(peer)) == 1000)
        assert settled(peer) == list(range(1, 1001))
        assert len(peer.line.settled) < 20
        assert (
            max(last - first + 1 for *_, ranges, _ in peer.line.settled for first, last in ranges) <= 300
        ), "the server hears of a quarter of its credit before the end"


@story
async def test_an_application_that_yields_after_each_message_does_not_acknowledge_each() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        consumer = await consuming(connection, credit=10_000)
        deliver(peer, 1, 500)
        seen = 0
        async for _ in consumer:
            seen += 1
            await asyncio.sleep(0)
            if seen == 500:
                break
        await consumer.close()
        assert settled(peer) == list(range(1, 501))
        assert len(peer.line.settled) < 100


@story
async def test_a_slow_application_is_acknowledged_message_by_message() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        consumer = await consuming(connection)
        deliver(peer, 1, 5)
        seen = 0
        async for _ in consumer:
            seen += 1
            await until_settled(peer, list(range(1, seen)))
            if seen == 5:
                break


@story
async def test_leaving_the_loop_loses_nothing_and_acknowledges_nothing_unseen() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        consumer = await consuming(connection)
        deliver(peer, 1, 10)
        async for message in consumer:
            if message.body == b"3":
                break
        received = await consumer.receive()
        assert received is not None
        assert received.body == b"4"
        batch = await consumer.receive_batch(3)
        assert [message.body for message in batch] == [b"5", b"6", b"7"]
        await consumer.close()
        assert settled(peer) == [1, 2, 3, 4, 5, 6, 7]
        assert isinstance(peer.line.received[-1], frames.Unsubscribe)


@story
async def test_a_message_whose_processing_failed_is_not_acknowledged() -> None:
    async with listening() as peer:

        async def process() -> None:
            async with connect(peer.url) as connection:
                consumer = await consuming(connection)
                deliver(peer, 1, 3)
                async for message in consumer:
                    if message.body == b"2":
                        raise RuntimeError("could not process it")

        with pytest.raises(RuntimeError):
            await process()
        assert settled(peer) == [1]


@story
async def test_client_mode_settles_everything_handed_over_by_all_consumers() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        session = await connection.session(acknowledge="client")
        first, second = await session.consumer("queue:a"), await session.consumer("queue:b")
        deliver(peer, 1, 3, consumer=1)
        deliver(peer, 1, 3, consumer=2)
        for consumer in (first, first):
            assert await consumer.receive() is not None
        last = await second.receive()
        assert last is not None
        assert peer.line.settled == []
        await last.acknowledge(confirm=True)
        assert [(consumer, ranges) for consumer, _, ranges, _ in peer.line.settled] == [
            (1, [(1, 2)]),
            (2, [(1, 1)]),
        ]
        await session.acknowledge(confirm=True)
        assert len(peer.line.settled) == 2, "nothing was handed over since"


@story
async def test_individual_mode_settles_just_that_message() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        consumer = await consuming(connection, mode="individual")
        deliver(peer, 1, 6)
        messages = await consumer.receive_batch()
        await messages[4].acknowledge(confirm=True)
        assert settled(peer) == [5]
        for index in (2, 0, 1):
            await messages[index].acknowledge()
        await peer.until(lambda: settled(peer) == [5, 1, 2, 3])
        await consumer.close()
        assert settled(peer) == [5, 1, 2, 3]


@story
async def test_a_confirmed_acknowledgement_waits_for_the_server() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        peer.settles = False
        consumer = await consuming(connection, mode="individual")
        deliver(peer, 1, 1)
        message = await consumer.receive()
        assert message is not None
        acknowledging = asyncio.create_task(message.acknowledge(confirm=True))
        await peer.until(lambda: settled(peer) == [1])
        assert not acknowledging.done()
        peer.line.send(frames.Settled(number=1, consumer=1))
        await acknowledging


@story
async def test_receive_waits_no_longer_than_it_is_told() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        consumer = await consuming(connection)
        assert await consumer.receive(timeout=0) is None
        assert await consumer.receive(timeout=0.01) is None
        assert await consumer.receive_batch(timeout=0.01) == []
        deliver(peer, 1, 1)
        assert await consumer.receive(timeout=30) is not None


@story
async def test_a_stopped_connection_hands_over_nothing_until_it_is_started() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        consumer = await consuming(connection)
        deliver(peer, 1, 3)
        messages = aiter(consumer)
        assert (await anext(messages)).body == b"1"
        connection.stop()
        later = await (await connection.session()).consumer("queue:b")
        assert await consumer.receive(timeout=0.02) is None
        deliver(peer, 1, 1, session=2)
        assert await later.receive(timeout=0.02) is None
        waiting = asyncio.ensure_future(anext(messages))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        connection.start()
        assert (await waiting).body == b"2"
        assert await later.receive(timeout=30) is not None


@story
async def test_a_closed_consumer_ends_its_loop_and_its_waits() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        consumer = await consuming(connection)

        async def read() -> int:
            return len([message async for message in consumer])

        reading, receiving = asyncio.create_task(read()), asyncio.create_task(consumer.receive())
        await asyncio.sleep(0)
        await consumer.close()
        assert (await reading, await receiving) == (0, None)
        with pytest.raises(ClientFault, match="closed"):
            await consumer.receive()


@story
async def test_a_consumer_that_the_server_ends_says_why() -> None:
    heard: list[HeliographError] = []
    async with listening() as peer, connect(peer.url, on_error=heard.append) as connection:
        consumer = await consuming(connection)
        receiving = asyncio.create_task(consumer.receive())
        await asyncio.sleep(0)
        peer.line.send(frames.ConsumerClosed(1, 1, "not-allowed", "rights were withdrawn"))
        with pytest.raises(NotAllowed):
            await receiving
        assert [error.code for error in heard] == ["not-allowed"]


@story
async def test_bytes_that_are_no_block_end_the_connection_not_the_application() -> None:
    heard: list[HeliographError] = []
    async with (
        listening() as peer,
        connect(peer.url, reconnect_seconds=0, on_error=heard.append) as connection,
    ):
        consumer = await consuming(connection)
        peer.line.deliver(b"nonsense", first_tag=1)
        with pytest.raises(ConnectionLost):
            await consumer.receive()
        assert heard
        assert not connection.is_alive()
