"""Dead letters (D4): what lies in the dead message queue, by reason, and back to where it came from.

Triage reads the feed and leaves the queue alone. Redriving leases the queue, sends what is chosen to its original
destination, and only then acknowledges: the batch is published under the name of the lease, so that one that was
cut off is done again without sending anything twice. What is not chosen stays dead.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from heliograph.destinations.dead_letters import ORIGINAL_DESTINATION, REASON
from heliograph.spark.options import options_of
from heliograph.spark.pipelines.replay import sequence
from heliograph.spark.pipelines.running import Tell, source
from heliograph.spark.server import Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

DEAD = "queue:_DMQ"


def described(messages: DataFrame) -> DataFrame:
    """With reason and origin as columns."""
    from pyspark.sql import functions as f

    return messages.withColumn("reason", f.col("properties")[REASON]).withColumn(
        "origin", f.col("properties")[ORIGINAL_DESTINATION]
    )


def triage(spark: SparkSession, options: dict[str, Any]) -> list[Row]:
    """By reason and origin: how many, since when."""
    from pyspark.sql import functions as f

    dead = described(source(spark, {**options, "destination": DEAD, "mode": "feed"}, streams=False))
    groups = dead.groupBy("reason", "origin").agg(
        f.count("*").alias("messages"), f.min("timestamp").alias("first"), f.max("timestamp").alias("last")
    )
    rows: list[Row] = groups.orderBy(f.desc("messages")).collect()
    return rows


def selector_for(*, reason: str, origin: str, where: str) -> str:
    """Which of the dead are meant, as the server understands it."""
    terms = [f"{ORIGINAL_DESTINATION} IS NOT NULL"]
    if reason:
        terms.append(f"{REASON} = {_quoted(reason)}")
    if origin:
        terms.append(f"{ORIGINAL_DESTINATION} = {_quoted(origin)}")
    if where:
        terms.append(f"({where})")
    return " AND ".join(terms)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def redrive(
    spark: SparkSession,
    options: dict[str, Any],
    tell: Tell,
    *,
    reason: str = "",
    origin: str = "",
    where: str = "",
    lease: str = "",
) -> int:
    """Send what is chosen back to where it came from. Returns how many."""
    from pyspark.sql import functions as f

    lease = lease or f"redrive-{uuid.uuid4().hex}"
    selector = selector_for(reason=reason, origin=origin, where=where)
    leased = {**options, "destination": DEAD, "mode": "queue", "lease": lease, "selector": selector}
    dead = described(source(spark, leased, streams=False))
    properties = f.map_filter(f.col("properties"), lambda name, _: ~name.startswith("JMS_helio_"))
    rows = dead.select(
        f.col("origin").alias("destination"),
        *("body", "text", "priority", "correlation_id", "reply_to", "type", "unit_of_order", "lsn"),
        sequence().alias("sequence"),
        properties.alias("properties"),
    )
    count: int = rows.count()
    if count:
        writer = rows.repartition(1).sortWithinPartitions("lsn", "sequence").write.format("heliograph")
        told = {key: str(value) for key, value in options.items() if key != "destination"}
        writer.options(**told, name=lease).mode("append").save()
        with Server(options_of(leased), "dead letters") as server:
            server.ask("pipeline.acknowledge", name=lease, epoch=1, destination=DEAD)
    tell(f"{count} messages were sent back to where they came from")
    return count
