"""Replay (D4): from an archive back to a destination, filtered, no faster than asked."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heliograph.model.errors import ClientFault
from heliograph.spark.pipelines.archive import read_archive
from heliograph.spark.pipelines.running import Tell

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORIGINAL_ID = "helio_original_id"


def selected(messages: DataFrame, *, where: str, since: str, until: str, origin: str) -> DataFrame:
    """`where`: a condition in SQL over the columns of messages."""
    from pyspark.sql import functions as f

    if origin:
        messages = messages.where(f.col("destination") == origin)
    if since:
        messages = messages.where(f.col("timestamp") >= f.lit(since).cast("timestamp"))
    if until:
        messages = messages.where(f.col("timestamp") < f.lit(until).cast("timestamp"))
    return messages.where(f.expr(where)) if where else messages


def as_new(messages: DataFrame) -> DataFrame:
    """What was a message becomes one again: a new one, that says which it was. It does not expire a second time."""
    from pyspark.sql import functions as f

    origin = f.create_map(f.lit(ORIGINAL_ID), f.col("id"))
    empty = f.create_map().cast("map<string,string>")
    kept = f.map_filter(f.coalesce(f.col("properties"), empty), lambda name, _: name != f.lit(ORIGINAL_ID))
    columns = ("body", "text", "priority", "correlation_id", "reply_to", "type", "unit_of_order", "lsn")
    return messages.select(
        *columns, sequence().alias("sequence"), f.map_concat(kept, origin).alias("properties")
    )


def sequence() -> Any:
    """The end of a message's id: what messages of one block, which share an LSN, are in order by."""
    from pyspark.sql import functions as f

    return f.substring_index("id", "-", -1).cast("bigint")


def run(
    spark: SparkSession,
    archive: Path,
    options: dict[str, Any],
    tell: Tell,
    *,
    where: str = "",
    since: str = "",
    until: str = "",
    origin: str = "",
    rate: float = 0.0,
    name: str = "",
) -> int:
    """Returns how many messages were sent. `rate`: messages a second at most. `name`: a replay that was cut off
    goes on under its name, and sends nothing twice."""
    messages = read_archive(spark, archive)
    if messages is None:
        raise ClientFault(f"there is no archive in {archive}, or it is empty", code="archive-empty")
    rows = as_new(selected(messages, where=where, since=since, until=until, origin=origin))
    # One partition sends in the order of the journal; more would be quicker, and units could overtake one another.
    rows = rows.repartition(1).sortWithinPartitions("lsn", "sequence")
    total: int = rows.count()
    name = name or f"replay-{uuid.uuid4().hex}"
    portion = max(1, int(rate)) if rate else max(total, 1)
    sent = 0
    began = time.monotonic()
    indexed = (
        rows.rdd.zipWithIndex().map(lambda pair: (*pair[0], pair[1])).toDF(_with_place(rows))
        if rate
        else rows
    )
    for number, start in enumerate(range(0, total, portion)):
        part = indexed
        if rate:
            part = indexed.where(f"place >= {start} AND place < {start + portion}").drop("place")
        part.write.format("heliograph").options(**_texts(options), name=f"{name}-{number}").mode(
            "append"
        ).save()
        sent = min(start + portion, total)
        tell(f"{sent} of {total} messages sent")
        if rate:
            time.sleep(max(0.0, began + sent / rate - time.monotonic()))
    return total


def _with_place(rows: DataFrame) -> Any:
    from pyspark.sql.types import LongType, StructField, StructType

    return StructType([*rows.schema.fields, StructField("place", LongType())])


def _texts(options: dict[str, Any]) -> dict[str, str]:
    return {key: str(value) for key, value in options.items()}
