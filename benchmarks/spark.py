"""What Spark reads from Heliograph, beside what it reads from memory, in one run.

    python -m benchmarks.spark [--rows 1000000] [--json] [--out FOLDER]

Each round writes the same rows, bodies of 256 bytes, to Parquet: from Arrow batches that are made in the task's
memory, from the history of a queue (mode feed), and from the queue itself (mode queue, leased, read and
acknowledged by a query that ends when nothing is left). Figures are the best of the rounds, in rows a second. They
are written to `spark.json` and `spark.md`; under a bar it ends with exit code 1.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

import heliograph
from benchmarks.report import machine, table
from heliograph.spark.pipelines.running import source, start_query, start_spark
from heliograph.spark.schema import ARROW, SCHEMA
from tests.spark.serving import ServerInProcess

BODY_BYTES: Final = 256
BATCH_ROWS: Final = 16_384
ROWS: Final = 1_000_000
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


class Verdict(NamedTuple):
    """What a mode reached of what there is from memory, and what it has to."""

    name: str
    share: float
    bar: float

    @property
    def is_met(self) -> bool:
        return self.share >= self.bar

    def __str__(self) -> str:
        word = "PASS" if self.is_met else "FALLS SHORT"
        return f"{self.share:.0%} of memory, bar {self.bar:.0%}: {word}"


def judged(rates: Mapping[str, float]) -> list[Verdict]:
    return [Verdict(name, rates[name] / rates["memory"], bar) for name, bar in BARS.items()]


def raw(rates: Mapping[str, float], given: Mapping[str, int]) -> dict[str, Any]:
    """Everything that a run has found."""
    return {
        "machine": machine(Path(tempfile.gettempdir())),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        **given,
        "body_bytes": BODY_BYTES,
        "rows_per_second": {name: round(rate) for name, rate in rates.items()},
        "shares": {
            verdict.name: {"share": round(verdict.share, 3), "bar": verdict.bar, "met": verdict.is_met}
            for verdict in judged(rates)
        },
    }


def page(found: Mapping[str, Any]) -> str:
    """The same to read, in Markdown."""
    shares = found["shares"]
    rows = [
        [name, f"{rate:,}", *_share_and_bar(shares.get(name))]
        for name, rate in found["rows_per_second"].items()
    ]
    return (
        "# What Spark reads, side by side\n\n`make bench-spark`. "
        f"{found['rows']:,} rows of {found['body_bytes']} B to Parquet, {found['partitions']} tasks: from Arrow"
        " batches that are made in the task's memory, from the history of a queue (feed), and from the queue itself"
        f" (leased, read and acknowledged), in turns. The best of {found['rounds']} rounds. All figures are in"
        " `spark.json`.\n\n"
        + table(["", ""], [[name, value] for name, value in found["machine"].items()])
        + "\n"
        + table(["from", "rows/s", "of memory", "bar", ""], rows)
    )


def _share_and_bar(share: Mapping[str, Any] | None) -> list[str]:
    if share is None:
        return ["", "", ""]
    return [f"{share['share']:.0%}", f"{share['bar']:.0%}", "PASS" if share["met"] else "**FALLS SHORT**"]


def main(command_line: Sequence[str] | None = None) -> int:
    """Measure, report, and say by the exit code whether the bars are met."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--partitions", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"), help="where the results go")
    given = parser.parse_args(command_line)
    if given.rows < ROWS and given.out == parser.get_default("out"):
        parser.error(f"fewer than {ROWS:,} rows go with --out: such figures are not for keeping")
    rates = figures(given.rows, given.partitions, given.rounds)
    sizes = {"rows": given.rows, "partitions": given.partitions, "rounds": given.rounds}
    return report(rates, sizes, given.out, as_json=given.json)


def report(rates: Mapping[str, float], sizes: Mapping[str, int], out: Path, *, as_json: bool) -> int:
    """Write and say what was found. Returns the exit code: 1 under a bar."""
    found, verdicts = raw(rates, sizes), judged(rates)
    out.mkdir(parents=True, exist_ok=True)
    (out / "spark.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    (out / "spark.md").write_text(page(found))
    if as_json:
        print(json.dumps(found))
    else:
        told = {verdict.name: f"  {verdict}" for verdict in verdicts}
        for name, rate in rates.items():
            print(f"{name:7} {rate:10,.0f} rows/s{told.get(name, '')}")
    return 0 if all(verdict.is_met for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
