"""The columns of messages in Spark, and the same in Arrow."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

LAST_MOMENT: Final = 253_402_000_000_000_000
"""In the last days of the year 9999, behind which Python knows no date in any zone; an expiry may lie there."""
SCHEMA: Final = (
    "id string, lsn bigint, destination string, timestamp timestamp, priority int, expiration timestamp,"
    " correlation_id string, reply_to string, type string, unit_of_order string, delivery_count int,"
    " properties map<string,string>, body binary, text string, body_kind string, head binary"
)
TIME: Final = pa.timestamp("us", tz="UTC")
PROPERTIES: Final = pa.map_(pa.string(), pa.string())
KINDS: Final = ("bytes", "text", "data", "large")
"""What a body is, in words; their places are the numbers of `BodyKind`."""
ARROW: Final = pa.schema(
    [
        ("id", pa.string()),
        ("lsn", pa.int64()),
        ("destination", pa.string()),
        ("timestamp", TIME),
        ("priority", pa.int32()),
        ("expiration", TIME),
        ("correlation_id", pa.string()),
        ("reply_to", pa.string()),
        ("type", pa.string()),
        ("unit_of_order", pa.string()),
        ("delivery_count", pa.int32()),
        ("properties", PROPERTIES),
        ("body", pa.binary()),
        ("text", pa.string()),
        ("body_kind", pa.string()),
        ("head", pa.binary()),
    ]
)


def time_of(microseconds: int) -> datetime | None:
    """As near to it as a date can be. None: there is none."""
    seconds = min(max(microseconds, 0), LAST_MOMENT) / 1_000_000
    return datetime.fromtimestamp(seconds, UTC) if microseconds else None


def with_dates(batch: pa.RecordBatch, name: str, last: int = LAST_MOMENT) -> pa.RecordBatch:
    """A column of times, each as near to what it is as a date can be, so that rows can be made of the batch."""
    place = batch.schema.get_field_index(name)
    if place < 0 or not pa.types.is_timestamp(batch.schema.field(place).type):
        return batch
    times = batch.column(place)
    whole = times.cast(pa.timestamp("us", tz=times.type.tz)).cast(pa.int64())
    within = pc.min_element_wise(pc.max_element_wise(whole, 0, skip_nulls=False), last, skip_nulls=False)
    dates = within.cast(pa.timestamp("us", tz=times.type.tz))
    return batch.set_column(place, batch.schema.field(place).with_type(dates.type), dates)
