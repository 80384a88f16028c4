"""What an audit reads of a journal: whose it was, and no more in memory than it needs (D4)."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import heliograph
from heliograph.destinations.queue import Queue
from heliograph.journal.records import RecordKind
from heliograph.model.destination import Address
from heliograph.spark.happenings import EventReader, Stretch
from heliograph.spark.options import options_of
from tests.servers import embedded, play, url_of
from tests.suites.exchange import receive_all, send_all

pytestmark = pytest.mark.req("D4")


def read(reader: EventReader, part: Stretch) -> list[list[dict[str, Any]]]:
    return [batch.to_pylist() for batch in reader.read(part)]


def test_what_a_transaction_consumed_is_told_by_the_name_of_its_destination(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            await send_all(await connection.producer("queue:a"), [b"x"] * 5)
            session = await connection.session(acknowledge="transacted")
            await receive_all(await session.consumer("queue:a"), 5)
            before = (await connection.ask("pipeline.positions", destination="*"))["last"]
            await session.commit()
            last = (await connection.ask("pipeline.positions", destination="*"))["last"]
            reader = EventReader(options_of({"url": url_of(server), "destination": "*", "content": "events"}))
            (rows,) = await asyncio.to_thread(read, reader, Stretch(before, last))
            (lsn,) = [row["lsn"] for row in rows if row["kind"] == "done"]
            ((alone,),) = await asyncio.to_thread(read, reader, Stretch(lsn - 1, lsn))
            assert (alone["destination"], alone["first"], alone["last"]) == ("queue:a", 1, 5)

    play(story())


def test_however_much_was_written_at_once_has_its_time_and_was_elsewhere_if_a_merge_says_so(
    tmp_path: Path,
) -> None:
    """More than ten batches of rows, and more than 65,536, in one frame."""
    count = 80_000

    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            await send_all(await connection.producer("queue:a"), [b"x"])
            before = (await connection.ask("pipeline.positions", destination="*"))["last"]
            await connection.ask("pipeline.hold", name="h", destination="*", after=before)
            manager = server._messages
            assert manager is not None
            queue = manager.catalogue.by_address[Address("queue:a")]
            assert isinstance(queue, Queue)
            ranges = [(n, n) for n in range(2, count + 2)]
            manager.note(RecordKind.DISPATCHED, queue, queue.messages.number, ranges[: count // 2])
            manager.note(RecordKind.DONE, queue, queue.messages.number, ranges[: count // 2])
            await send_all(await connection.producer("queue:a"), [b"x"])
            manager.note(RecordKind.DONE, queue, queue.messages.number, ranges)
            manager.append(RecordKind.MERGED, 0, 0, b"a branch")
            await send_all(await connection.producer("queue:a"), [b"x"])
            last = (await connection.ask("pipeline.positions", destination="*"))["last"]
            reader = EventReader(options_of({"url": url_of(server), "destination": "*", "content": "events"}))
            batches = await asyncio.to_thread(read, reader, Stretch(before, last))
            rows = [row for batch in batches for row in batch]
            assert Counter(row["kind"] for row in rows) == {
                "dispatched": count // 2,
                "done": count // 2,
                "united": count,
                "published": 2,
            }
            assert all(row["written"] for row in rows)
            assert max(map(len, batches)) <= 10_000, "and no more than that waits in memory"

    play(story())


def test_what_was_written_when_nobody_held_the_history_has_no_time(tmp_path: Path) -> None:
    """Not that of the next who held it. Who leads next goes on as it was."""

    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            producer = await connection.producer("queue:a")
            await send_all(producer, [b"unheld"] * 20)
            await connection.ask("pipeline.hold", name="h", destination="*", after=0)
            await send_all(producer, [b"held"] * 20)
            await connection.ask("pipeline.release", name="h")
            await send_all(producer, [b"unheld"] * 20)
            await connection.ask("pipeline.hold", name="h", destination="*", after=0)
            await send_all(producer, [b"held"] * 20)
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            await send_all(await connection.producer("queue:a"), [b"held"] * 20)
            last = (await connection.ask("pipeline.positions", destination="*"))["last"]
            reader = EventReader(options_of({"url": url_of(server), "destination": "*", "content": "events"}))
            for middle in range(last):  # wherever a task begins
                parts = [Stretch(0, middle), Stretch(middle, last)]
                read_now = [await asyncio.to_thread(read, reader, part) for part in parts]
                rows = [row for batches in read_now for batch in batches for row in batch]
                rows = [row for row in rows if row["destination"] == "queue:a" and row["kind"] == "published"]
                assert [row["first"] for row in rows] == list(range(1, 101))
                timed = [row["first"] for row in rows if row["written"]]
                assert timed == [*range(21, 41), *range(61, 101)]

    play(story())


def test_what_was_handed_out_as_soon_as_it_was_stored_has_the_time_of_that(tmp_path: Path) -> None:
    """And not that of whatever happens next, hours later."""

    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            await connection.ask("pipeline.hold", name="h", destination="*", after=0)
            session = await connection.session(acknowledge="client")
            consumer = await session.consumer("queue:a")
            await send_all(await connection.producer("queue:a"), [b"first"])
            await anext(aiter(consumer))
            await send_all(await connection.producer("queue:a"), [b"second"])
            await anext(aiter(consumer))
            await send_all(await connection.producer("queue:a"), [b"third"])
            last = (await connection.ask("pipeline.positions", destination="*"))["last"]
            reader = EventReader(options_of({"url": url_of(server), "destination": "*", "content": "events"}))
            (rows,) = await asyncio.to_thread(read, reader, Stretch(0, last))
            first, *_ = [row for row in rows if row["kind"] == "dispatched"]
            _, second, _ = [row for row in rows if row["kind"] == "published"]
            assert first["written"] <= second["sent"]

    play(story())
