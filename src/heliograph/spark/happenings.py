"""What happened to messages (D4), as the journal tells it: published, handed out, returned, done. For an audit.

The journal is cut into stretches of LSNs, one for each task. When something happened stands behind it, at the end of
the frame that it was written in, so times are read ahead, and a little beyond the stretch for the last rows. They are
there only while somebody holds the history; what happened when nobody did has none. A task has in memory the times of
one portion of the feed (1 MiB), a portion of the records, and a batch of rows, however much was written at once.

Where parts of a cluster have met, the log notes what another part did: `united` is what was done there, or took a new
number, `seen` what was handed out there. These notes stand between the last record TIME before MERGED and that.
`removed`, with a reason, is what was done because somebody wanted it away and not because a consumer had it.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from heliograph.destinations.dead_letters import ORIGINAL_ID, REASON
from heliograph.destinations.removals import reason_in
from heliograph.destinations.transactions import CommitRecord
from heliograph.journal.records import MOMENT, RecordKind
from heliograph.model.block import Contents, unpack
from heliograph.model.errors import ClientFault
from heliograph.model.ids import message_id, text_of
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
_decode_commit = msgspec.msgpack.Decoder(CommitRecord).decode
_ROWS: Final = 10_000
_PORTION_BYTES: Final = 1 << 20
_PORTIONS_BEYOND: Final = 2
"""The time of the last rows of a stretch stands behind it."""
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
        for row in self._rows(partition):
            rows.append(row)
            if len(rows) >= _ROWS:
                yield pa.RecordBatch.from_pylist(rows, schema=_ARROW)
                rows = []
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=_ARROW)

    def _rows(self, partition: Stretch) -> Iterator[Row]:
        after = partition.after
        with Server(self._options, "audit") as server:
            renewing = Renewing(server, partition.held)

            def ask(after: int, **more: Any) -> dict[str, Any]:
                renewing.go_on()
                where = self._options.destination
                return server.ask(
                    "pipeline.feed", destination=where, after=after, bytes=_PORTION_BYTES, **more
                )

            times = Times(lambda after: ask(after, times=True), partition.after, partition.until)
            while after < partition.until:
                portion = ask(after, until=partition.until, events=True)
                names = portion["destinations"]
                for (_, kind, destination, list_number, lsn), payload in cut(portion["records"], FED):
                    name = names.get(destination, f"#{destination}")
                    tick = times.tick_of(lsn)
                    for row in rows_of(kind, name, list_number, lsn, payload, names):
                        row["written"] = tick.written
                        if lsn < tick.merged:
                            row["kind"] = _ELSEWHERE.get(row["kind"], row["kind"])
                        yield row
                if portion["upto"] <= after:
                    return
                after = portion["upto"]


class Tick(NamedTuple):
    """Records that were written together, behind those of the tick before."""

    last: int  # the LSN of the time
    merged: int  # the LSN up to which they are of a merge
    written: datetime | None


_UNKNOWN: Final = Tick(0, 0, None)


class Times:
    """What the journal says of time, read ahead of everything else. A row gets its time when it is made, however many
    were written together and whether or not a time follows: in memory are times alone, of one portion."""

    def __init__(self, ask: Callable[[int], dict[str, Any]], after: int, until: int) -> None:
        self._ask = ask
        self._after, self._until = after, until
        self._beyond = 0  # portions that ended behind the stretch
        self._merged = 0
        self._ticks: deque[Tick] = deque()

    def tick_of(self, lsn: int) -> Tick:
        """LSNs only rise from call to call."""
        while True:
            while self._ticks and self._ticks[0].last < lsn:
                self._ticks.popleft()
            if self._ticks:
                return self._ticks[0]
            if self._beyond >= _PORTIONS_BEYOND:
                return _UNKNOWN
            self._read_on()

    def _read_on(self) -> None:
        portion = self._ask(self._after)
        for (_, kind, _, _, lsn), payload in cut(portion["records"], FED):
            if kind == RecordKind.MERGED:
                self._merged = lsn
            elif kind == RecordKind.TIME:
                self._ticks.append(Tick(lsn, self._merged, time_of(MOMENT.unpack(payload)[0])))
                self._merged = 0
        is_all = portion["upto"] <= self._after
        self._after = portion["upto"]
        self._beyond += _PORTIONS_BEYOND if is_all else self._after > self._until


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
