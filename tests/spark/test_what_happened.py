"""What an audit reads of a journal: whose it was, and no more in memory than it needs (D4)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import heliograph
from heliograph.spark import happenings
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


def test_where_no_times_are_written_rows_wait_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody held the history, so no frame ends with the time."""
    monkeypatch.setattr(happenings, "_ROWS", 50)
    monkeypatch.setattr(happenings, "_FRAME_ROWS", 100)

    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            producer = await connection.producer("queue:a")

            async def send(count: int) -> int:
                for _ in range(count // 10):
                    await send_all(producer, [b"x"] * 10)
                return int((await connection.ask("pipeline.positions", destination="*"))["last"])

            reader = EventReader(options_of({"url": url_of(server), "destination": "*", "content": "events"}))
            last = await send(500)
            batches = await asyncio.to_thread(read, reader, Stretch(0, last))
            assert max(map(len, batches)) <= 150
            rows = [row for batch in batches for row in batch if row["kind"] == "published"]
            assert [row["first"] for row in rows] == list(range(1, 501))
            assert not any(row["written"] for row in rows)
            await connection.ask("pipeline.hold", name="h", destination="*", after=last)
            batches = await asyncio.to_thread(read, reader, Stretch(0, await send(500)))
            rows = [row for batch in batches for row in batch if row["kind"] == "published"]
            assert [row["first"] for row in rows] == list(range(1, 1001))
            assert all(row["written"] for row in rows[500:])

    play(story())
