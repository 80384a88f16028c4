"""What is read is there until it was read (D2): batches, audits and the first batch of a stream hold the history."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import heliograph
from heliograph.client import Connection
from heliograph.spark.batches import BatchReader
from heliograph.spark.happenings import EventReader
from heliograph.spark.holds import BATCH_SECONDS, held
from heliograph.spark.options import Options, options_of
from heliograph.spark.streams import FeedStream
from tests.servers import embedded, play, url_of
from tests.suites.exchange import receive_all, send_all

pytestmark = pytest.mark.req("D2", "D4")
SMALL = {"journal.segment_bytes": 1 << 20, "journal.snapshot_every_bytes": 1 << 20}
COUNT = 3000
Reader = BatchReader | EventReader


async def send_and_consume(connection: Connection) -> None:
    """Enough to have what was there before thrown away, unless somebody holds it."""
    await send_all(await connection.producer("queue:a"), [b"x" * 1000] * COUNT)
    consumer = await connection.consumer("queue:a")
    await receive_all(consumer, COUNT)
    await consumer.close()
    await send_all(await connection.producer("queue:b"), [b"y" * 1000] * 2000)


async def holds(connection: Connection) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await connection.ask("pipelines"))["holds"]
    return found


def rows_of(reader: Reader, parts: Any) -> int:
    return sum(batch.num_rows for part in parts for batch in reader.read(part))


def published_of(reader: Reader, parts: Any) -> int:
    kinds: Iterator[str] = (
        kind for part in parts for batch in reader.read(part) for kind in batch.column("kind").to_pylist()
    )
    return sum(kind == "published" for kind in kinds)


@pytest.mark.parametrize(
    ("make", "content", "count"),
    [(BatchReader, "messages", rows_of), (EventReader, "events", published_of)],
    ids=["batch", "audit"],
)
def test_what_was_planned_is_there_when_its_tasks_come_to_read_it(
    tmp_path: Path, make: Callable[[Options], Reader], content: str, count: Callable[[Reader, Any], int]
) -> None:
    async def story() -> None:
        async with embedded(tmp_path, SMALL) as server, heliograph.connect(url_of(server)) as connection:
            await send_all(await connection.producer("queue:a"), [b"first"] * 10)
            given = {"url": url_of(server), "destination": "queue:a", "content": content, "partitions": "2"}
            reader = make(options_of(given))
            parts = await asyncio.to_thread(reader.partitions)
            (one,) = await holds(connection)
            assert 0 < one["seconds_left"] <= BATCH_SECONDS
            for _ in range(3):
                await send_and_consume(connection)
            assert await asyncio.to_thread(count, reader, parts) == 10
            (again,) = await holds(connection)
            assert (again["name"], again["after"]) == (one["name"], one["after"]), "renewed, and not one more"

    play(story())


def test_a_batch_reads_without_a_hold_where_there_are_too_many(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            await send_all(await connection.producer("queue:a"), [b"x"] * 10)
            for n in range(64):
                await connection.ask("pipeline.hold", name=f"h{n}", destination="queue:a", after=0)
            reader = BatchReader(options_of({"url": url_of(server), "destination": "queue:a"}))
            assert await asyncio.to_thread(lambda: rows_of(reader, reader.partitions())) == 10

    play(story())


def test_who_knows_the_end_of_a_batch_lets_go_then(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            await send_all(await connection.producer("queue:a"), [b"x"] * 10)
            given = {"url": url_of(server), "destination": "queue:a"}

            def read() -> int:
                with held(given) as own:
                    reader = BatchReader(options_of(own))
                    return rows_of(reader, reader.partitions())

            assert await asyncio.to_thread(read) == 10
            async with asyncio.timeout(60):
                while await holds(connection):
                    await asyncio.sleep(0.02)

    play(story())


def test_the_first_batch_of_a_stream_is_held_for_as_long_as_any(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            await send_all(await connection.producer("queue:a"), [b"x"] * 10)
            given = {"url": url_of(server), "destination": "queue:a", "holdSeconds": "86400"}

            def plan() -> list[float]:
                stream = FeedStream(options_of(given))
                start = stream.initialOffset()
                left = [connection_holds()]
                stream.latestOffset(start, stream.getDefaultReadLimit())
                left.append(connection_holds())
                stream.stop()
                return left

            loop = asyncio.get_running_loop()

            def connection_holds() -> float:
                (one,) = asyncio.run_coroutine_threadsafe(holds(connection), loop).result(30)
                return float(one["seconds_left"])

            before, after = await asyncio.to_thread(plan)
            assert before <= 3600.0, "nobody may come back to it"
            assert 86000.0 < after <= 86400.0

    play(story())


def test_a_stream_for_which_nothing_comes_lets_go_of_what_others_send(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            await send_all(await connection.producer("queue:quiet"), [b"x"])
            stream = FeedStream(options_of({"url": url_of(server), "destination": "queue:quiet"}))
            everything = stream.getDefaultReadLimit()

            def latest(start: dict[str, Any]) -> dict[str, Any]:
                return stream.latestOffset(start, everything)

            began = await asyncio.to_thread(stream.initialOffset)
            first = await asyncio.to_thread(latest, began)
            assert len(stream.partitions(began, first)) == 1
            others = await connection.producer("queue:others")
            await others.send_confirmed(b"y")
            assert await asyncio.to_thread(latest, first) == first, "little is no reason for a batch"
            for _ in range(300):
                await others.send_confirmed(b"y")
            await asyncio.to_thread(stream.prepareForTriggerAvailableNow)
            second = await asyncio.to_thread(latest, first)
            assert second["lsn"] >= first["lsn"] + 300
            assert stream.partitions(first, second) == []
            assert await asyncio.to_thread(latest, second) == second, "and that is the end"
            (one,) = await holds(connection)
            assert one["after"] == second["lsn"]
            stream.stop()

    play(story())
