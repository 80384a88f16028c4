"""Replay (D4): from an archive back to a destination, filtered, no faster than asked.

Messages go out a portion at a time, each under the name of the replay and the place of its last message in the
history, which the server keeps with the portion in one frame. So a replay that was cut off goes on behind the last
message that was sent, at whatever rate, and also when the archive has grown meanwhile.

An archive has no content of large messages: they are left out, and counted.
"""

from __future__ import annotations

import time
import uuid
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from heliograph.frontends.alert_messages import is_channel
from heliograph.model.errors import ClientFault
from heliograph.spark.options import options_of
from heliograph.spark.pipelines.archive import read_archive
from heliograph.spark.pipelines.running import Tell
from heliograph.spark.server import Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORIGINAL_ID: Final = "helio_original_id"
AS_THEY_WERE: Final = (
    *("body", "text", "body_kind", "head", "priority", "correlation_id", "reply_to", "type"),
    *("unit_of_order", "lsn"),
)
"""Columns of a message that is sent again; beside these its properties, and where to."""


PORTION: Final = 100_000
"""Messages that are sent as one batch; with a rate, those of a second, if they are fewer."""
_WITHIN_BITS: Final = 24
"""Messages that share a position, those of a block or a transaction, are fewer than that."""


class Sent(NamedTuple):
    """How many messages were sent, and how many could not be because they are large ones."""

    messages: int
    left_out: int


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
    return messages.select(
        "id", *AS_THEY_WERE, sequence().alias("sequence"), f.map_concat(kept, origin).alias("properties")
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
) -> Sent:
    """`rate`: messages a second at most. `name`: a replay that was cut off goes on under its name, and sends nothing
    twice. One of other messages, or to elsewhere, is another one."""
    if is_channel(options["destination"]):
        raise ClientFault("a replay goes to a queue or a topic", code="option-invalid")
    messages = read_archive(spark, archive)
    if messages is None:
        raise ClientFault(f"there is no archive in {archive}, or it is empty", code="archive-empty")
    chosen = selected(messages, where=where, since=since, until=until, origin=origin)
    left_out: int = chosen.where("body IS NULL").count()
    if left_out:
        tell(f"{left_out} large messages are left out: their content is not in the archive")
    whole = as_new(chosen.where("body IS NOT NULL"))
    told = (str(archive.resolve()), options["destination"], where, since, until, origin)
    name = known_as(name, *told) if name else f"replay-{uuid.uuid4().hex}"
    with Server(options_of(options), "replay") as server:
        before = server.ask("pipeline.published", name=name, destination=options["destination"])["batch"]
    rows = in_order(whole, int(before)).persist()
    try:
        return Sent(send(rows, {**options, "name": name}, tell, rate), left_out)
    finally:
        rows.unpersist()


def known_as(name: str, *told: str) -> str:
    """How the server knows a replay."""
    digest = blake2b("\0".join(told).encode(), digest_size=8).hexdigest()
    return f"{name}-{digest}"


def in_order(messages: DataFrame, before: int) -> DataFrame:
    """Those behind `before`, in the order of the journal, with the `number` of each, by which it is known, and its
    `place` among all. They are in one partition: more would be quicker, and units could overtake one another."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    within = f.row_number().over(Window.partitionBy("lsn").orderBy("sequence", "id"))
    numbered = messages.withColumn("number", f.shiftleft("lsn", _WITHIN_BITS) + within)
    later = numbered.where(f.col("number") > f.lit(before))
    return later.withColumn("place", f.row_number().over(Window.orderBy("number")))


def send(rows: DataFrame, options: dict[str, Any], tell: Tell, rate: float) -> int:
    """Portion by portion, each under the number of its last message."""
    total: int = rows.count()
    portion = max(1, min(PORTION, int(rate))) if rate else PORTION
    ends = rows.where(f"place % {portion} = 0 OR place = {total}").select("place", "number").orderBy("place")
    began, sent = time.monotonic(), 0
    for stop, number in ends.collect():
        part = rows.where(f"place > {sent} AND place <= {stop}").coalesce(1).sortWithinPartitions("place")
        writer = part.write.format("heliograph").options(**_texts(options), batch=str(number))
        writer.mode("append").save()
        sent = stop
        tell(f"{sent} of {total} messages sent")
        if rate and sent < total:
            time.sleep(max(0.0, began + sent / rate - time.monotonic()))
    return total


def _texts(options: dict[str, Any]) -> dict[str, str]:
    return {key: str(value) for key, value in options.items()}
