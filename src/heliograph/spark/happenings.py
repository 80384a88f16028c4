"""What happened to messages (D4), as the journal tells it: published, handed out, returned, done. For an audit.

The journal is cut into stretches of LSNs, one for each task. When something happened stands at the end of the
frame that it was written in, so a task reads a little beyond its stretch for the last of them. Times are there
only while somebody holds the history.

Where parts of a cluster have met, the log notes what another part did: `united` is what was done there, or took a new
number, `seen` what was handed out there. These notes stand between the last time before the record MERGED and that.
`removed`, with a reason, is what was done because somebody wanted it away and not because a consumer had it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from heliograph.destinations.dead_letters import ORIGINAL_ID, REASON
from heliograph.destinations.removals import reason_in
from heliograph.destinations.transactions import CommitRecord
from heliograph.journal.records import RecordKind
from heliograph.model.block import Contents, unpack
from heliograph.model.errors import ClientFault
from heliograph.model.ids import message_id, text_of
from heliograph.model.limits import MAX_BLOCK_MESSAGES
from heliograph.model.message import decode_head
from heliograph.model.portions import FED
from heliograph.spark.holds import Hold, Renewing, begin, starting_position
from heliograph.spark.options import Options
from heliograph.spark.reading import cut
from heliograph.spark.rows import said
from heliograph.spark.schema import TIME, time_of
from heliograph.spark.server import Server

EVENTS: Final = (
    "lsn bigint, place int, kind string, destination string, list int, first bigint, last bigint, id string,"
    " lane string, unit bigint, priority int, sent timestamp, expires timestamp, is_delayed boolean,"
    " original_id string, reason string, written timestamp"
)
_ARROW: Final = pa.schema(
    [
        ("lsn", pa.int64()),
        ("place", pa.int32()),
        ("kind", pa.string()),
        ("destination", pa.string()),
        ("list", pa.int32()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("id", pa.string()),
        ("lane", pa.string()),
        ("unit", pa.int64()),
        ("priority", pa.int32()),
        ("sent", TIME),
        ("expires", TIME),
        ("is_delayed", pa.bool_()),
        ("original_id", pa.string()),
        ("reason", pa.string()),
        ("written", TIME),
    ]
)
_NOTES: Final = {
    RecordKind.DONE: "done",
    RecordKind.DISPATCHED: "dispatched",
    RecordKind.RETURNED: "returned",
    RecordKind.UNSEEN: "returned",
}
_ELSEWHERE: Final = {"done": "united", "dispatched": "seen", "returned": "seen"}
_PAIR = struct.Struct("<QQ")
_MOMENT = struct.Struct("<q")
_decode_commit = msgspec.msgpack.Decoder(CommitRecord).decode
_ROWS: Final = 10_000
_FRAME_ROWS: Final = 8 * MAX_BLOCK_MESSAGES
"""More than stands in a frame: so many wait in memory for the time at its end."""
_BEYOND_BYTES: Final = 1 << 20
Row = dict[str, Any]


class Stretch(InputPartition):
    """Behind LSN `after`, up to `until`."""

    def __init__(self, after: int, until: int, held: Hold | None = None) -> None:
        super().__init__((after, until))
        self.after, self.until, self.held = after, until, held


class EventReader(DataSourceReader):
    """What happened to messages of all destinations."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        with Server(self._options, "audit") as server:
            after, held = begin(server, self._options)
            until = starting_position(server, self._options.destination, self._options.endingoffset)
        count = self._options.partitions
        bounds = [after + (until - after) * n // count for n in range(count + 1)]
        return [Stretch(low, high, held) for low, high in pairwise(bounds) if low < high]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(
            partition, Stretch
        ):  # where there is nothing to read, Spark reads a partition of its own
            return
        rows: list[Row] = []
        waiting = 0  # rows whose frame has not ended yet
        merged = 0  # those up to here are of a merge
        for row in self._rows(partition):
            if row["kind"] == "merged":
                merged = len(rows)
            elif row["kind"] == "time":
                for earlier in rows[len(rows) - waiting : merged]:
                    earlier["kind"] = _ELSEWHERE.get(earlier["kind"], earlier["kind"])
                for earlier in rows[len(rows) - waiting :]:
                    earlier["written"] = row["written"]
                waiting = merged = 0
                if len(rows) >= _ROWS:
                    yield pa.RecordBatch.from_pylist(rows, schema=_ARROW)
                    rows = []
                if row["lsn"] > partition.until:
                    break
            elif row["lsn"] <= partition.until:
                rows.append(row)
                waiting += 1
                if (
                    waiting >= _FRAME_ROWS + _ROWS
                ):  # nobody held the history then: no time comes for the earlier ones
                    yield pa.RecordBatch.from_pylist(rows[:-_FRAME_ROWS], schema=_ARROW)
                    merged = max(merged - (len(rows) - _FRAME_ROWS), 0)
                    rows = rows[-_FRAME_ROWS:]
                    waiting = len(rows)
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=_ARROW)

    def _rows(self, partition: Stretch) -> Iterator[Row]:
        after, beyond = partition.after, 0
        with Server(self._options, "audit") as server:
            renewing = Renewing(server, partition.held)
            while beyond < 2:
                renewing.go_on()
                portion = server.ask(
                    "pipeline.feed",
                    destination=self._options.destination,
                    after=after,
                    events=True,
                    bytes=_BEYOND_BYTES,
                )
                names = portion["destinations"]
                for (_, kind, destination, list_number, lsn), payload in cut(portion["records"], FED):
                    name = names.get(destination, f"#{destination}")
                    yield from rows_of(kind, name, list_number, lsn, payload, names)
                if portion["upto"] <= after:
                    return
                after = portion["upto"]
                beyond += after > partition.until


def rows_of(
    kind: int, destination: str, list_number: int, lsn: int, payload: bytes, names: dict[int, str]
) -> Iterator[Row]:
    """What one record tells."""
    if kind in (RecordKind.PUBLISHED, RecordKind.ADOPTED, RecordKind.JOINED):
        yield from _published(kind, destination, list_number, lsn, payload)
    elif kind in _NOTES:
        yield from _noted(_NOTES[RecordKind(kind)], destination, list_number, lsn, payload)
    elif kind == RecordKind.COMMITTED:
        record = _decode_commit(payload)
        if record.committed:
            for number, done_list, ranges in record.done:
                for place, (first, last) in enumerate(ranges):
                    yield _row(lsn, place, "done", names.get(number, f"#{number}"), done_list, first, last)
    elif kind == RecordKind.STARTED:
        yield _row(lsn, 0, "started", "", 0, 0, 0)
    elif kind == RecordKind.MERGED:
        yield _row(lsn, 0, "merged", "", 0, 0, 0)
    elif kind == RecordKind.TIME:
        yield {**_row(lsn, 0, "time", "", 0, 0, 0), "written": time_of(_MOMENT.unpack(payload)[0])}


def _noted(kind: str, destination: str, list_number: int, lsn: int, payload: bytes) -> Iterator[Row]:
    ranges = list(_PAIR.iter_unpack(payload))
    reason = None
    if ranges and not ranges[-1][1]:
        kind, reason = "removed", reason_in(ranges.pop())
    for place, (first, last) in enumerate(ranges):
        yield {**_row(lsn, place, kind, destination, list_number, first, last), "reason": reason}


def _row(lsn: int, place: int, kind: str, destination: str, list_number: int, first: int, last: int) -> Row:
    return {
        "lsn": lsn,
        "place": place,
        "kind": kind,
        "destination": destination,
        "list": list_number,
        "first": first,
        "last": last,
    }


def _published(kind: int, destination: str, number: int, lsn: int, payload: bytes) -> Iterator[Row]:
    contents = unpack(payload)
    lane = text_of(contents.lane)
    what = "adopted" if kind == RecordKind.ADOPTED else "published"
    for index in range(contents.count):
        original, reason = _death(contents, index) if destination.startswith("queue:_DMQ") else (None, None)
        unit = contents.units[index] if contents.units else 0
        delivery = contents.delivery_times[index] if contents.delivery_times else contents.delivery_time
        yield {
            **_row(lsn, index, what, destination, 0, number + index, number + index),
            "id": message_id(contents.lane, contents.first + index),
            "lane": lane,
            "unit": unit - (1 << 64) if unit >= 1 << 63 else unit,
            "priority": contents.priorities[index] if contents.priorities else contents.priority,
            "sent": time_of(contents.timestamps[index] if contents.timestamps else contents.timestamp),
            "expires": time_of(contents.expiries[index] if contents.expiries else contents.expiry),
            "is_delayed": delivery > 0,
            "original_id": original,
            "reason": reason,
        }


def _death(contents: Contents, index: int) -> tuple[str | None, str | None]:
    if contents.heads is None:
        return None, None
    try:
        properties = decode_head(contents.heads[index]).properties
    except ClientFault:
        return None, None
    return said(properties.get(ORIGINAL_ID)), said(properties.get(REASON))
