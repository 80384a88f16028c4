"""What tasks of Spark read: a hash range of a stretch of the feed, or of a lease, as Arrow batches."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from heliograph.model.hash_ranges import ranges
from heliograph.model.portions import FED, LENT
from heliograph.spark.holds import Hold, Renewing
from heliograph.spark.options import Options
from heliograph.spark.rows import Rows
from heliograph.spark.server import Server


class FeedPart(InputPartition):
    """Messages behind LSN `after` up to `until` whose values are from `low` up to `high`."""

    def __init__(self, after: int, until: int, low: int, high: int, held: Hold | None = None) -> None:
        super().__init__((after, until, low, high))
        self.after, self.until, self.low, self.high = after, until, low, high
        self.held = held  # of a stream the driver takes care


class LeasePart(InputPartition):
    """Messages of a lease whose values are from `low` up to `high`."""

    def __init__(self, name: str, epoch: int, low: int, high: int) -> None:
        super().__init__((name, epoch, low, high))
        self.name, self.epoch, self.low, self.high = name, epoch, low, high


def feed_parts(options: Options, after: int, until: int, held: Hold | None = None) -> list[FeedPart]:
    if after >= until:
        return []
    return [FeedPart(after, until, low, high, held) for low, high in ranges(options.partitions)]


def lease_parts(options: Options, name: str, epoch: int) -> list[LeasePart]:
    return [LeasePart(name, epoch, low, high) for low, high in ranges(options.partitions)]


def read_feed(options: Options, part: FeedPart) -> Iterator[pa.RecordBatch]:
    rows = Rows(part.low, part.high)
    after = part.after
    with Server(options, "feed") as server:
        renewing = Renewing(server, part.held)
        while after < part.until:
            renewing.go_on()
            portion = server.ask(
                "pipeline.feed",
                destination=options.destination,
                after=after,
                until=part.until,
                low=part.low,
                high=part.high,
            )
            names = portion["destinations"]
            for (_, _, destination, _, lsn), block in cut(portion["records"], FED):
                yield from rows.add(block, lsn=lsn, destination=names.get(destination, ""))
            after = portion["upto"]
    yield from rows.rest()


def read_lease(options: Options, part: LeasePart) -> Iterator[pa.RecordBatch]:
    rows = Rows(part.low, part.high)
    after = 0
    with Server(options, "lease") as server:
        while True:
            portion = server.ask(
                "pipeline.read",
                destination=options.destination,
                name=part.name,
                epoch=part.epoch,
                after=after,
                low=part.low,
                high=part.high,
            )
            for (_, deliveries, number), block in cut(portion["blocks"], LENT):
                yield from rows.add(block, lsn=number, destination=options.destination, deliveries=deliveries)
            after = portion["next"]
            if not after:
                break
    yield from rows.rest()


def cut(portion: bytes, header: struct.Struct) -> Iterator[tuple[Any, bytes]]:
    """The records of a portion. What stands before each begins with its length."""
    at = 0
    while at < len(portion):
        fields = header.unpack_from(portion, at)
        at += header.size
        yield fields, portion[at : at + fields[0]]
        at += fields[0]
