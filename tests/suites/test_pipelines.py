"""What a server does for data pipelines (D2, D3), without Spark: the feed and its holds, leases, batches."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

import heliograph
from heliograph import HeliographError
from heliograph.client import Connection
from heliograph.model.block import unpack
from heliograph.model.portions import FED, LENT
from tests.servers import ServerProcess, embedded, play, url_of
from tests.suites.exchange import receive_all

pytestmark = pytest.mark.req("D2")


async def fill(connection: Connection, destination: str, bodies: list[bytes], **options: Any) -> None:
    producer = await connection.producer(destination)
    for body in bodies:
        await producer.send(body, **options)
    await producer.flush()


def bodies(numbers: range) -> list[bytes]:
    return [b"%d" % n for n in numbers]


async def fed(
    connection: Connection, destination: str, after: int = 0, **more: Any
) -> tuple[list[bytes], int]:
    """All that is there, and how far that goes."""
    found: list[bytes] = []
    last = (await connection.ask("pipeline.positions", destination=destination))["last"]
    while after < last:
        portion = await connection.ask(
            "pipeline.feed", destination=destination, after=after, until=last, **more
        )
        found += [body for _, block in blocks_of(portion["records"], FED) for body in unpack(block).bodies]
        after = portion["upto"]
    return found, last


def blocks_of(portion: bytes, header: struct.Struct) -> list[tuple[tuple[int, ...], bytes]]:
    found, at = [], 0
    while at < len(portion):
        fields = header.unpack_from(portion, at)
        at += header.size
        found.append((fields, portion[at : at + fields[0]]))
        at += fields[0]
    return found


async def lent(connection: Connection, name: str, epoch: int, *, portion: int = 1000) -> list[bytes]:
    found: list[bytes] = []
    after = 0
    while True:
        answer = await connection.ask(
            "pipeline.read", name=name, epoch=epoch, destination="queue:a", after=after, bytes=portion
        )
        found += [body for _, block in blocks_of(answer["blocks"], LENT) for body in unpack(block).bodies]
        after = answer["next"]
        if not after:
            return found


async def lease(connection: Connection, name: str, epoch: int, messages: int, **more: Any) -> int:
    answer = await connection.ask(
        "pipeline.lease", name=name, epoch=epoch, messages=messages, destination="queue:a", **more
    )
    count: int = answer["messages"]
    return count


async def depth(connection: Connection, destination: str = "queue:a") -> tuple[int, int]:
    shown = await connection.ask("destination.show", destination=destination)
    return shown["depth"], shown["in_flight"]


def test_the_feed_has_what_was_sent_whether_it_was_consumed_or_not(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            await fill(connection, "queue:a", bodies(range(100)))
            await fill(connection, "queue:b", bodies(range(5)))
            await receive_all(await connection.consumer("queue:a"), 50)
            found, last = await fed(connection, "queue:a")
            assert found == bodies(range(100))
            await fill(connection, "queue:a", bodies(range(100, 110)))
            assert (await fed(connection, "queue:a", last))[0] == bodies(range(100, 110))
            assert (await fed(connection, "queue:b"))[0] == bodies(range(5))
            assert (await fed(connection, "queue:a", bytes=1))[0] == bodies(range(110))

    play(story())


def test_a_transaction_is_in_the_feed_where_it_was_committed(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            session = await connection.session(acknowledge="transacted")
            sender = await session.producer("queue:a")
            await sender.send(b"staged")
            await sender.flush()
            await fill(connection, "queue:a", [b"plain"])
            found, last = await fed(connection, "queue:a")
            assert found == [b"plain"]
            await session.commit()
            assert (await fed(connection, "queue:a", last))[0] == [b"staged"]
            await sender.send(b"dropped")
            await session.rollback()
            assert (await fed(connection, "queue:a"))[0] == [b"plain", b"staged"]

    play(story())


def test_what_was_open_when_the_server_died_is_in_no_later_transaction_of_its_session(tmp_path: Path) -> None:
    async def story() -> None:
        server = ServerProcess(tmp_path)
        async with server, heliograph.connect(server.url) as connection:
            session = await connection.session(acknowledge="transacted")
            sender = await session.producer("queue:a")
            await sender.send(b"before")
            await session.commit()
            await sender.send(b"never")
            await sender.flush()
            await server.restart()
            with pytest.raises(HeliographError) as lost:
                await session.commit()
            assert lost.value.code == "transaction-rolled-back"
            await sender.send(b"after")
            await session.commit()
            last = (await connection.ask("pipeline.positions", destination="queue:a"))["last"]
            portion = await connection.ask("pipeline.feed", destination="queue:a", after=0, until=last)
            blocks = blocks_of(portion["records"], FED)
            assert [unpack(block).bodies for _, block in blocks] == [[b"before"], [b"after"]]
            places = [fields[3] for fields, _ in blocks]
            assert places == [1, 2], "each says the number of its first message"

    play(story())


def test_what_is_held_stays_and_what_is_not_held_goes(tmp_path: Path) -> None:
    small = {"journal.segment_bytes": 1 << 20, "journal.snapshot_every_bytes": 1 << 20}

    async def story() -> None:
        async with embedded(tmp_path, small) as server, heliograph.connect(url_of(server)) as connection:
            await connection.ask("pipeline.hold", name="reader", destination="queue:a", after=0)
            await send_and_consume(connection)
            found, last = await fed(connection, "queue:a")
            assert len(found) == 3000
        async with embedded(tmp_path, small) as server, heliograph.connect(url_of(server)) as connection:
            found, _ = await fed(connection, "queue:a")
            assert len(found) == 3000
            shown = await connection.ask("pipelines")
            assert [hold["name"] for hold in shown["holds"]] == ["reader"]
            await connection.ask("pipeline.release", name="reader")
            await send_and_consume(connection)
            with pytest.raises(HeliographError) as gone:
                await connection.ask("pipeline.feed", destination="queue:a", after=0)
            assert gone.value.code == "feed-gone"

    async def send_and_consume(connection: Connection) -> None:
        await fill(connection, "queue:a", [b"x" * 1000] * 3000)
        consumer = await connection.consumer("queue:a")
        await receive_all(consumer, 3000)
        await consumer.close()
        await fill(connection, "queue:b", [b"y" * 1000] * 2000)

    play(story())


def test_a_topic_that_is_held_has_a_history_without_subscribers(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            await fill(connection, "topic:t", [b"before"])
            await connection.ask("pipeline.hold", name="reader", destination="topic:t", after=0)
            await fill(connection, "topic:t", [b"after"])
            assert (await fed(connection, "topic:t"))[0] == [b"after"]

    play(story())


@pytest.mark.crash
def test_a_lease_is_the_same_however_often_it_is_read_and_after_a_crash(tmp_path: Path) -> None:
    async def story() -> None:
        server = ServerProcess(tmp_path)
        async with server:
            async with heliograph.connect(server.url) as connection:
                await fill(connection, "queue:a", bodies(range(100)))
                assert await lease(connection, "q", 0, 60) == 60
                assert await lent(connection, "q", 0) == bodies(range(60))
                assert await depth(connection) == (40, 60)
            await server.restart()
            async with heliograph.connect(server.url) as connection:
                assert await lease(connection, "q", 0, 10) == 60
                assert await lent(connection, "q", 0) == bodies(range(60))
                assert await lease(connection, "q", 1, 100) == 40
                await connection.ask("pipeline.acknowledge", name="q", epoch=0, destination="queue:a")
                assert await depth(connection) == (0, 40)
            await server.restart()
            async with heliograph.connect(server.url) as connection:
                again = await connection.ask("pipeline.acknowledge", name="q", epoch=0, destination="queue:a")
                assert again == {"took_effect": False}
                assert await lent(connection, "q", 1) == bodies(range(60, 100))
                await connection.ask("pipeline.return", name="q", epoch=1, destination="queue:a")
                consumer = await connection.consumer("queue:a")
                messages = await receive_all(consumer, 40)
                assert [message.body for message in messages] == bodies(range(60, 100))
                assert all(message.redelivered for message in messages)

    play(story())


def test_who_asks_for_nothing_learns_whether_it_was_lent_before(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            await fill(connection, "queue:a", bodies(range(10)))
            question = {"name": "q", "epoch": 1, "destination": "queue:a", "messages": 0}
            assert await connection.ask("pipeline.lease", **question) == {"messages": 0, "again": False}
            assert await lease(connection, "q", 1, 10) == 10
            assert await connection.ask("pipeline.lease", **question) == {"messages": 10, "again": True}

    play(story())


def test_a_lease_that_nobody_asks_about_ends_and_its_reader_is_told(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            await fill(connection, "queue:a", bodies(range(10)))
            assert await lease(connection, "q", 0, 10, seconds=0.1) == 10
            consumer = await connection.consumer("queue:a")
            assert [m.body for m in await receive_all(consumer, 10)] == bodies(range(10))
            for subject in ("pipeline.read", "pipeline.acknowledge"):
                with pytest.raises(HeliographError) as lost:
                    await connection.ask(subject, name="q", epoch=0, destination="queue:a")
                assert lost.value.code == "lease-lost"

    play(story())


def test_a_unit_of_order_waits_for_the_lease_that_has_something_of_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            await fill(connection, "queue:a", bodies(range(10)), unit_of_order="u")
            assert await lease(connection, "q", 0, 4) == 4
            assert await lent(connection, "q", 0) == bodies(range(4))
            assert await lease(connection, "other", 0, 10) == 0
            await connection.ask("pipeline.acknowledge", name="q", epoch=0, destination="queue:a")
            assert await lease(connection, "other", 0, 10) == 6
            assert await lent(connection, "other", 0) == bodies(range(4, 10))

    play(story())


def test_a_large_lease_has_what_is_first_in_the_queue_with_all_of_its_units(tmp_path: Path) -> None:
    """It takes many turns of the queue, and the next lease is as large."""

    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            producer = await connection.producer("queue:a")
            for n in range(45_000):
                await producer.send(b"%d" % n, unit_of_order=f"u{n % 50}" if n % 2 else None)
            await producer.flush()
            for epoch, first in enumerate((0, 20_000), start=1):
                assert await lease(connection, "q", epoch, 20_000) == 20_000
                found = sorted(map(int, await lent(connection, "q", epoch, portion=1_000_000)))
                assert found == list(range(first, first + 20_000))
                await connection.ask("pipeline.acknowledge", name="q", epoch=epoch, destination="queue:a")
            assert await depth(connection) == (5_000, 0)

    play(story())


class Task:
    """What a task of a writer does."""

    def __init__(self, connection: Connection, name: str, batch: int) -> None:
        self.connection, self.name, self.batch = connection, name, batch
        self.part: tuple[bytes, bytes] = (b"", b"")

    async def write(self, rows: list[bytes], destination: str = "queue:out") -> tuple[bytes, bytes]:
        session = await self.connection.session(acknowledge="transacted")
        producer = await session.producer(destination)
        for row in rows:
            await producer.send(row)
        await producer.flush()
        self.part = session.credentials
        await self.connection.ask(
            "pipeline.stage",
            name=self.name,
            batch=self.batch,
            session=self.part[0],
            token=self.part[1],
            messages=len(rows),
            destination=destination,
        )
        return self.part


async def publish(connection: Connection, batch: int, parts: list[tuple[bytes, bytes]]) -> bool:
    answer = await connection.ask(
        "pipeline.publish", name="w", batch=batch, parts=parts, destination="queue:out"
    )
    took: bool = answer["took_effect"]
    return took


async def published(connection: Connection) -> int:
    """How far a writer has come."""
    return int((await connection.ask("pipeline.published", name="w", destination="queue:out"))["batch"])


@pytest.mark.req("D3")
def test_a_batch_takes_effect_once_and_as_a_whole(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            parts = []
            for n in range(3):
                async with heliograph.connect(url_of(server)) as worker:
                    parts.append(await Task(worker, "w", 0).write([b"%d.%d" % (n, k) for k in range(4)]))
            assert (await depth(connection, "queue:out"))[0] == 0
            assert await published(connection) == -1
            assert await publish(connection, 0, parts) is True
            assert await published(connection) == 0
            assert (await depth(connection, "queue:out"))[0] == 12
            # The driver died before it noted that, and everything is done once more.
            async with heliograph.connect(url_of(server)) as worker:
                again = await Task(worker, "w", 0).write([b"again"])
            assert await publish(connection, 0, [again]) is False
            assert (await connection.ask("pipelines"))["stages"] == []
            consumer = await connection.consumer("queue:out")
            found = [message.body for message in await receive_all(consumer, 12)]
            assert found == [b"%d.%d" % (n, k) for n in range(3) for k in range(4)]
            assert await consumer.receive(timeout=0.05) is None

    play(story())


@pytest.mark.req("D3")
def test_what_is_discarded_or_not_all_there_does_not_take_effect(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            part = await Task(connection, "w", 0).write([b"1"])
            with pytest.raises(HeliographError) as unknown:
                await publish(connection, 0, [part, (part[0], b"another token")])
            assert unknown.value.code == "stage-unknown"
            await connection.ask("pipeline.discard", name="w", batch=0, parts=[part], destination="queue:out")
            with pytest.raises(HeliographError) as unknown:
                await publish(connection, 0, [part])
            assert unknown.value.code == "stage-unknown"
            assert (await depth(connection, "queue:out"))[0] == 0
            # An abort that comes too late discards nothing.
            part = await Task(connection, "w", 0).write([b"2"])
            assert await publish(connection, 0, [part])
            await connection.ask("pipeline.discard", name="w", batch=0, parts=[part], destination="queue:out")
            assert (await depth(connection, "queue:out"))[0] == 1

    play(story())


@pytest.mark.crash
@pytest.mark.req("D3")
def test_what_was_staged_and_what_was_published_outlives_a_crash(tmp_path: Path) -> None:
    async def story() -> None:
        server = ServerProcess(tmp_path)
        async with server:
            async with heliograph.connect(server.url) as connection:
                parts = [await Task(connection, "w", 0).write([b"1", b"2"])]
                parts += [await Task(connection, "w", 0).write([b"3"])]
            await server.restart()
            async with heliograph.connect(server.url) as connection:
                assert (await depth(connection, "queue:out"))[0] == 0
                assert await publish(connection, 0, parts) is True
            await server.restart()
            async with heliograph.connect(server.url) as connection:
                assert await publish(connection, 0, parts) is False
                assert (await depth(connection, "queue:out"))[0] == 3

    play(story())
