"""A query over a queue goes on where it was, also where Spark did not get to write that down (D2)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import heliograph
from heliograph.client.blocking import BlockingConnection
from heliograph.spark.options import options_of
from heliograph.spark.reading import read_feed, read_lease
from heliograph.spark.streams import FeedStream, QueueStream

pytestmark = pytest.mark.req("D2")


def send(connection: BlockingConnection, numbers: range) -> None:
    producer = connection.producer("queue:in")
    for n in numbers:
        producer.send(b"%d" % n)
    producer.flush()


def run_until_the_queue_is_empty(spark: Any, url: str, checkpoint: Path) -> list[int]:
    """One run of the query. Returns what it processed."""
    found: list[int] = []
    options = {"url": url, "destination": "queue:in", "mode": "queue", "partitions": "1"}
    rows = spark.readStream.format("heliograph").options(**options).load()

    def collect(batch: Any, _number: int) -> None:
        found.extend(int(bytes(row["body"])) for row in batch.select("body").collect())

    writer = rows.writeStream.foreachBatch(collect).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(240)
    assert query.exception() is None
    return found


def last_offset(checkpoint: Path) -> dict[str, Any]:
    """As Spark wrote it down."""
    newest = max((path for path in (checkpoint / "offsets").iterdir() if path.name.isdigit()), key=_number_of)
    offset: dict[str, Any] = json.loads(newest.read_text(encoding="utf-8").splitlines()[-1])
    return offset


def _number_of(path: Path) -> int:
    return int(path.name)


def test_what_was_lent_before_a_crash_is_processed_though_nothing_waits_in_the_queue(
    spark: Any, url: str, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    with heliograph.connect_blocking(url) as connection:
        send(connection, range(10))
        assert run_until_the_queue_is_empty(spark, url, checkpoint) == list(range(10))
        # A driver leases the next epoch, and dies before Spark has written down that there is one.
        send(connection, range(10, 20))
        offset = last_offset(checkpoint)
        connection.ask(
            "pipeline.acknowledge", name=offset["query"], epoch=offset["epoch"], destination="queue:in"
        )
        lent = connection.ask(
            "pipeline.lease",
            name=offset["query"],
            epoch=offset["epoch"] + 1,
            messages=100,
            destination="queue:in",
        )
        assert lent == {"messages": 10, "again": False}
        assert connection.ask("pipeline.depth", destination="queue:in")["messages"] == 0
        assert run_until_the_queue_is_empty(spark, url, checkpoint) == list(range(10, 20))
        # And what came meanwhile is in the same run.
        send(connection, range(20, 25))
        assert run_until_the_queue_is_empty(spark, url, checkpoint) == list(range(20, 25))
        assert run_until_the_queue_is_empty(spark, url, checkpoint) == []
        shown = connection.ask("destination.show", destination="queue:in")
        assert (shown["depth"], shown["in_flight"]) == (0, 0)


def test_the_first_batch_is_the_same_when_it_is_done_again(url: str) -> None:
    """Spark has no record of where it began, and asks anew; more has come since."""
    options = options_of({"url": url, "destination": "queue:in", "startingOffset": "latest"})
    with heliograph.connect_blocking(url) as connection:
        send(connection, range(5))
        first = FeedStream(options)
        start = first.initialOffset()
        send(connection, range(5, 10))
        end = first.latestOffset(start, first.getDefaultReadLimit())
        first.stop()
        send(connection, range(10, 15))
        again = FeedStream(options)
        parts = again.partitions(again.initialOffset(), end)
        again.stop()
        rows = [body for part in parts for batch in read_feed(options, part) for body in bodies_of(batch)]
        assert sorted(rows) == list(range(5, 10))


def test_a_query_with_a_name_finds_what_it_leased_before_its_first_offset(url: str) -> None:
    options = options_of({"url": url, "destination": "queue:in", "mode": "queue", "lease": "mine"})
    with heliograph.connect_blocking(url) as connection:
        send(connection, range(5))
        dies = QueueStream(options)
        dies.prepareForTriggerAvailableNow()
        dies.latestOffset(dies.initialOffset(), dies.getDefaultReadLimit())
        dies.stop()
        again = QueueStream(options)
        again.prepareForTriggerAvailableNow()
        start = again.initialOffset()
        end = again.latestOffset(start, again.getDefaultReadLimit())
        parts = again.partitions(start, end)
        rows = [body for part in parts for batch in read_lease(options, part) for body in bodies_of(batch)]
        assert sorted(rows) == list(range(5))
        assert again.latestOffset(end, again.getDefaultReadLimit()) == end
        again.stop()
        assert connection.ask("pipeline.depth", destination="queue:in")["messages"] == 0


def bodies_of(batch: Any) -> list[int]:
    return [int(body) for body in batch.column("body").to_pylist()]
