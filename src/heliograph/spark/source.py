"""The data source `heliograph`: what Spark calls, and who answers (D1)."""

from __future__ import annotations

import os

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from heliograph.spark.batches import BatchReader
from heliograph.spark.happenings import EVENTS, EventReader
from heliograph.spark.options import Options, check_reading, options_of
from heliograph.spark.schema import SCHEMA
from heliograph.spark.streams import FeedStream, QueueStream
from heliograph.spark.writing import BatchWriter, StreamWriter


class HeliographSource(DataSource):
    """`spark.read.format("heliograph")`, `readStream`, `write` and `writeStream`."""

    @classmethod
    def name(cls) -> str:
        return "heliograph"

    def schema(self) -> str:
        return EVENTS if self._options().content == "events" else SCHEMA

    def _options(self) -> Options:
        return options_of(self.options, default_partitions=os.cpu_count() or 1)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._options()
        check_reading(options, is_stream=False)
        return EventReader(options) if options.content == "events" else BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = self._options()
        check_reading(options, is_stream=True)
        return QueueStream(options) if options.mode == "queue" else FeedStream(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return BatchWriter(self._options())

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return StreamWriter(self._options())
