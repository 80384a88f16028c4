"""What Spark reads from Heliograph, beside what it reads from memory, in one run.

    python -m benchmarks.spark [--rows 1000000] [--json]

Each round writes the same rows, bodies of 256 bytes, to Parquet: from Arrow batches that are made in the task's
memory, from the history of a queue (mode feed), and from the queue itself (mode queue, leased, read and
acknowledged by a query that ends when nothing is left). Figures are the best of the rounds, in rows a second.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

import heliograph
from heliograph.spark.pipelines.running import source, start_query, start_spark
from heliograph.spark.schema import ARROW, SCHEMA
from tests.spark.serving import ServerInProcess

BODY_BYTES: Final = 256
BATCH_ROWS: Final = 16_384
ROUNDS: Final = 3
BARS: Final = {"feed": 0.6, "queue": 0.25}
_QUEUE: Final = "queue:bench"


class MemoryReader(DataSourceReader):
    """The same columns and bodies, out of nothing but memory."""

    def __init__(self, rows: int, partitions: int) -> None:
        self._rows, self._partitions = rows, partitions

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        left = self._rows // self._partitions
        batch = _batch(BATCH_ROWS)
        while left:
            count = min(left, BATCH_ROWS)
            yield batch.slice(0, count)
            left -= count


class MemorySource(DataSource):
    """`spark.read.format("memory-of-the-task")`."""

    @classmethod
    def name(cls) -> str:
        return "memory-of-the-task"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return MemoryReader(int(self.options["rows"]), int(self.options["partitions"]))


def _batch(rows: int) -> pa.RecordBatch:
    """As the source `heliograph` would make it of such messages."""
    made: dict[str, Any] = {
        "id": [f"1.1.19a5b3c4d5e.7/1-{n}" for n in range(rows)],
        "lsn": list(range(rows)),
        "destination": [_QUEUE] * rows,
        "timestamp": [1_790_000_000_000_000 + n for n in range(rows)],
        "priority": [4] * rows,
        "delivery_count": [0] * rows,
        "body": [os.urandom(BODY_BYTES)] * rows,
    }
    arrays = [
        pa.array(made[field.name], field.type) if field.name in made else pa.nulls(rows, field.type)
        for field in ARROW
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW)


class Bench:
    """One server, one session of Spark, and what they move."""

    def __init__(self, spark: Any, url: str, folder: Path, rows: int, partitions: int) -> None:
        self._spark, self._url, self._folder = spark, url, folder
        self._rows, self._partitions = rows, partitions
        self._feed_from = 0
        self._is_made = False
        spark.dataSource.register(MemorySource)

    def fill(self) -> None:
        """One queue's worth of messages; the history of the rounds before is behind `feed_from`."""
        body = os.urandom(BODY_BYTES)
        with heliograph.connect_blocking(self._url) as connection:
            if not self._is_made:
                connection.ask("destination.create", destination=_QUEUE)
                self._is_made = True
            self._feed_from = connection.ask("pipeline.positions", destination=_QUEUE)["last"]
            producer = connection.producer(_QUEUE)
            for _ in range(self._rows):
                producer.send(body)
            producer.flush()

    def _options(self, **more: Any) -> dict[str, Any]:
        return {"url": self._url, "destination": _QUEUE, "partitions": self._partitions, **more}

    def memory(self, out: Path) -> None:
        reader = self._spark.read.format("memory-of-the-task").option("rows", self._rows)
        reader.option("partitions", self._partitions).load().write.parquet(str(out))

    def feed(self, out: Path) -> None:
        options = self._options(mode="feed", startingOffset=self._feed_from)
        source(self._spark, options, streams=False).write.parquet(str(out))

    def queue(self, out: Path) -> None:
        options = self._options(mode="queue", maxRowsPerTrigger=200_000)
        writer = source(self._spark, options).writeStream.format("parquet").option("path", str(out))
        query = start_query(writer, out.with_suffix(".checkpoint"), once=True)
        assert query.awaitTermination(600)
        assert query.exception() is None

    def timed(self, what: Callable[[Path], None]) -> float:
        """Rows a second. Raises AssertionError if they are not all there."""
        out = self._folder / what.__name__
        began = time.perf_counter()
        what(out)
        seconds = time.perf_counter() - began
        assert self._spark.read.parquet(str(out)).count() == self._rows // self._partitions * self._partitions
        shutil.rmtree(out)
        shutil.rmtree(out.with_suffix(".checkpoint"), ignore_errors=True)
        return self._rows / seconds


def figures(rows: int, partitions: int, rounds: int) -> dict[str, float]:
    best = dict.fromkeys(("memory", "feed", "queue"), 0.0)
    with tempfile.TemporaryDirectory(prefix="helio-bench-") as name:
        folder = Path(name)
        spark = start_spark("bench", f"local[{partitions}]", {"spark.driver.memory": "2g"})
        with ServerInProcess(folder / "server") as url:
            bench = Bench(spark, url, folder, rows, partitions)
            for _ in range(rounds):
                bench.fill()
                for what in (bench.memory, bench.feed, bench.queue):
                    best[what.__name__] = max(best[what.__name__], bench.timed(what))
        spark.stop()
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--partitions", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = figures(given.rows, given.partitions, given.rounds)
    if given.json:
        print(json.dumps(found))
        return
    for name, rate in found.items():
        share = rate / found["memory"]
        bar = f", {share:.0%} of it (bar: {BARS[name]:.0%})" if name in BARS else ""
        print(f"{name:7} {rate:10,.0f} rows/s{bar}")


if __name__ == "__main__":
    main()
