"""Batches: a stretch of the feed, or a lease, read once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from heliograph.model.errors import ClientFault
from heliograph.spark.holds import begin, starting_position
from heliograph.spark.options import Options, required_destination
from heliograph.spark.reading import FeedPart, LeasePart, feed_parts, lease_parts, read_feed, read_lease
from heliograph.spark.server import Server


class BatchReader(DataSourceReader):
    """What is there when the plan is made."""

    def __init__(self, options: Options) -> None:
        required_destination(options)
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with Server(options, "batch") as server:
            if options.mode == "queue":
                return self._leased(server)
            after, held = begin(server, options)
            until = starting_position(server, options.destination, options.endingoffset)
        return feed_parts(options, after, until, held)

    def _leased(self, server: Server) -> Sequence[InputPartition]:
        """Who leases acknowledges, or returns, under the same name: a batch does not say how it ended."""
        options = self._options
        if not options.lease:
            raise ClientFault(
                'a batch in mode queue needs option("lease", NAME), to acknowledge it by',
                code="option-invalid",
            )
        lent = server.ask(
            "pipeline.lease",
            name=options.lease,
            epoch=options.epoch,
            messages=options.lease_messages,
            destination=options.destination,
            seconds=options.leaseseconds,
            selector=options.selector,
        )["messages"]
        return lease_parts(options, options.lease, options.epoch) if lent else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, LeasePart):
            return read_lease(self._options, partition)
        if isinstance(partition, FeedPart):
            return read_feed(self._options, partition)
        return iter(())  # where there is nothing to read, Spark reads a partition of its own
