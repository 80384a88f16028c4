"""Streams (D2): how a query of Spark goes forward in the feed, or in a queue, and finds its place again.

Offsets carry the name under which the server knows the query: drawn once, when the query begins, and from then on in
its checkpoint. They also carry from where their batch goes: when Spark does the first batch again it asks for the
initial offset anew, and by then that may be another.

When Spark asks where to go from an offset, everything up to that offset is in its commit log: only then is a hold
moved on, and a lease acknowledged. `commit` alone would not do: for the last batch it comes with the next run.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from heliograph.spark.holds import held_start, hold, new_name
from heliograph.spark.options import Options, required_destination
from heliograph.spark.reading import (
    FeedPart,
    LeasePart,
    feed_parts,
    lease_parts,
    read_feed,
    read_lease,
)
from heliograph.spark.server import Server

Offset = dict[str, Any]
_FIRST_HOLD_SECONDS = 3600.0
_IDLE_RECORDS = 256
"""So many records of others, and a stream for which nothing came goes on with an empty batch: what it holds would
otherwise keep the journal of all of them."""


class FeedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The history of a destination, from a position on."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._destination = required_destination(options)
        self._server = Server(options, "feed")
        self._ceiling = 0
        self._held: tuple[int, float] = (-1, 0.0)

    def initialOffset(self) -> Offset:
        name = new_name()
        # If Spark asks for this again nobody comes back to this name: it need not be kept for days. When Spark asks
        # where the batch ends, which it does next, the batch is held for as long as any.
        seconds = min(self._options.holdseconds, _FIRST_HOLD_SECONDS)
        text = self._options.startingoffset
        position = held_start(self._server, self._destination, text, name, seconds)
        return {"query": name, "lsn": position}

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.maxrowspertrigger
        return ReadMaxRows(most) if most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._ceiling = self._last()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        self._hold(start["query"], start["lsn"])
        last = self._ceiling or self._last()
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else 0
        lsn, counted = start["lsn"], 0
        while lsn < last:
            found = self._measure(lsn, last, max(most - counted, 1) if most else 0)
            lsn, counted = found["upto"], counted + found["messages"]
            if most and counted >= most:
                break
        if not counted and lsn - start["lsn"] < _IDLE_RECORDS:
            return start  # records of our own hold would keep us busy
        offset = {"query": start["query"], "lsn": lsn, "from": start["lsn"]}
        return offset if counted else {**offset, "is_empty": True}

    def _measure(self, after: int, until: int, messages: int) -> dict[str, Any]:
        more = {"messages": messages} if messages else {}
        return self._server.ask(
            "pipeline.measure", destination=self._destination, after=after, until=until, **more
        )

    def _last(self) -> int:
        return int(self._server.ask("pipeline.positions", destination=self._destination)["last"])

    def _hold(self, name: str, position: int) -> None:
        """Keep what comes behind this position; often enough, and not more often."""
        held, until = self._held
        if position == held and time.monotonic() < until:
            return
        seconds = self._options.holdseconds
        hold(self._server, self._destination, name, position, seconds)
        self._held = (position, time.monotonic() + min(seconds / 10, 60.0))

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        if start == end or end.get("is_empty"):
            return []
        begins = end["from"] if "from" in end else start["lsn"]
        return feed_parts(self._options, begins, end["lsn"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, FeedPart)
        return read_feed(self._options, partition)

    def commit(self, end: Offset) -> None:
        self._hold(end["query"], end["lsn"])

    def stop(self) -> None:
        self._server.close()

    def __getstate__(self) -> dict[str, Any]:
        """Tasks read, and open connections of their own."""
        return {**self.__dict__, "_server": None}


class QueueStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The messages of a queue, each leased to one epoch."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._destination = required_destination(options)
        self._server = Server(options, "queue")
        self._left: int | None = None  # with AvailableNow: how many more to take

    def initialOffset(self) -> Offset:
        """By a name of its own a query finds again what was lent to it before Spark wrote down its first offset."""
        return {"query": self._options.lease or new_name(), "epoch": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.lease_messages)

    def prepareForTriggerAvailableNow(self) -> None:
        shown = self._server.ask("pipeline.depth", destination=self._destination)
        self._left = int(shown["messages"])

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        name, epoch = start["query"], start["epoch"]
        self._acknowledge(name, epoch)
        most = min(limit.max_rows, self._options.lease_messages) if isinstance(limit, ReadMaxRows) else 0
        wanted = most or self._options.lease_messages
        if self._left is not None:
            # Also if nothing waits: what was lent before a crash is in no depth, and in no offset of Spark's.
            wanted = max(min(wanted, self._left), 0)
        lent = self._server.ask(
            "pipeline.lease",
            name=name,
            epoch=epoch + 1,
            messages=wanted,
            destination=self._destination,
            seconds=self._options.leaseseconds,
            selector=self._options.selector,
        )
        if self._left is not None and not lent["again"]:
            self._left -= lent["messages"]
        return {"query": name, "epoch": epoch + 1} if lent["messages"] else start

    def _acknowledge(self, name: str, epoch: int) -> None:
        if epoch:
            self._server.ask("pipeline.acknowledge", name=name, epoch=epoch, destination=self._destination)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        if start == end:
            return []
        return lease_parts(self._options, end["query"], end["epoch"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, LeasePart)
        return read_lease(self._options, partition)

    def commit(self, end: Offset) -> None:
        self._acknowledge(end["query"], end["epoch"])

    def stop(self) -> None:
        self._server.close()

    def __getstate__(self) -> dict[str, Any]:
        """Tasks read, and open connections of their own."""
        return {**self.__dict__, "_server": None}
