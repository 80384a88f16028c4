"""Archive (D4): the history of destinations to Parquet, by day and destination, each message once.

A batch is written to a folder of its own first; then its files get their places, and an entry of the manifest
makes them
part of the archive. Done again after a crash at any point, it ends the same. The archive is a folder that the
driver and all workers see: local files, or a network's.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from heliograph.spark.pipelines.manifest import Entry, Manifest
from heliograph.spark.pipelines.running import Tell, run_query, source
from heliograph.spark.schema import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SMALL_BYTES: Final = 32 * 1024 * 1024
"""Files below this are put together."""
SMALL_FILES: Final = 8
"""And only where there are so many of one day and destination: rewriting costs, too."""
GROUP_BYTES: Final = 128 * 1024 * 1024
"""Of files that are put together, which takes a few times as much memory."""
COMPACT_EVERY: Final = 100
"""Batches, while an archive goes on."""
_STAGING: Final = "_staging"


def with_day(messages: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return messages.withColumn("day", f.date_format("timestamp", "yyyy-MM-dd"))


def writer_of(archive: Path, tell: Tell) -> Callable[[DataFrame, int], None]:
    """What each batch is given to. An archive that goes on for long is put together now and then, too."""
    key_of = {"query": ""}
    manifest = Manifest(archive)

    def write(batch: DataFrame, number: int) -> None:
        if not key_of["query"]:
            key_of["query"] = _query_id(batch)
        add_batch(batch, archive, f"{key_of['query']}:{number}", manifest)
        if number % COMPACT_EVERY == COMPACT_EVERY - 1:
            compact(archive, tell, manifest)

    return write


def _query_id(batch: DataFrame) -> str:
    found = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    return str(found or "batch")


def add_batch(batch: DataFrame, archive: Path, key: str, manifest: Manifest | None = None) -> None:
    manifest = manifest or Manifest(archive)
    if manifest.has(key):
        return
    name = key.replace(":", "-")
    staging = archive / _STAGING / name
    shutil.rmtree(staging, ignore_errors=True)
    with_day(batch).write.partitionBy("day", "destination").parquet(str(staging))
    adds = []
    for number, path in enumerate(sorted(staging.rglob("*.parquet"))):
        place = path.parent.relative_to(staging) / f"{name}-{number:05d}.parquet"
        target = archive / place
        target.parent.mkdir(parents=True, exist_ok=True)
        path.replace(target)
        adds.append(str(place))
    manifest.add(Entry(key=key, adds=adds, rows=_rows_in(archive, adds)))
    shutil.rmtree(staging, ignore_errors=True)


def _rows_in(archive: Path, names: list[str]) -> int:
    from pyarrow.parquet import ParquetFile

    return sum(ParquetFile(archive / name).metadata.num_rows for name in names)


def read_archive(spark: SparkSession, archive: Path) -> DataFrame | None:
    """The messages of an archive, None if there are none yet."""
    names = Manifest(archive).files()
    if not names:
        return None
    # Files of older archives lack columns that came later, so none of them is asked what there are.
    reader = spark.read.schema(f"{SCHEMA}, day date").option("basePath", str(archive))
    return reader.parquet(*[str(archive / name) for name in names])


def compact(archive: Path, tell: Tell, manifest: Manifest | None = None) -> int:
    """Put small files of one day and destination together. Returns how many were replaced."""
    manifest = manifest or Manifest(archive)
    folders: dict[Path, list[str]] = {}
    for name in manifest.files():
        path = archive / name
        if path.stat().st_size < SMALL_BYTES:
            folders.setdefault(path.parent, []).append(name)
    replaced = 0
    for folder, names in sorted(folders.items()):
        if len(names) >= SMALL_FILES:
            for group in _groups(archive, names):
                _put_together(archive, folder, group, tell, manifest)
                replaced += len(group)
    return replaced


def _groups(archive: Path, names: list[str]) -> Iterator[list[str]]:
    """Neighbours, so many that they are put together in memory. One alone is left as it is."""
    group: list[str] = []
    size = 0
    for name in names:
        own = (archive / name).stat().st_size
        if group and size + own > GROUP_BYTES:
            if len(group) > 1:
                yield group
            group, size = [], 0
        group.append(name)
        size += own
    if len(group) > 1:
        yield group


def _put_together(archive: Path, folder: Path, names: list[str], tell: Tell, manifest: Manifest) -> None:
    from pyarrow import concat_tables, parquet

    tables = [parquet.read_table(archive / name, partitioning=None) for name in names]
    table = concat_tables(tables, promote_options="default")
    number = sum(1 for _ in manifest.entries()) + 1
    place = (folder / f"compacted-{number:010d}.parquet").relative_to(archive)
    parquet.write_table(table, archive / place)
    manifest.add(Entry(key=f"compaction:{place}", adds=[str(place)], removes=names))
    tell(f"{folder.relative_to(archive)}: {len(names)} files became one, {table.num_rows} rows")
    for name in names:  # readers that began before hold them open, or begin again
        (archive / name).unlink(missing_ok=True)


def run(
    spark: SparkSession,
    options: dict[str, Any],
    archive: Path,
    checkpoint: Path,
    tell: Tell,
    *,
    once: bool,
    stopped: Callable[[], bool] = lambda: False,
) -> int:
    """Archive what there is, or go on until stopped. Returns the rows that were read."""
    messages = source(spark, options)
    writer = messages.writeStream.foreachBatch(writer_of(archive, tell))
    rows = run_query(writer, checkpoint, tell, once=once, stopped=stopped)
    compact(archive, tell)
    return rows
