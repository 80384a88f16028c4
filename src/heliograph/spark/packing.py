"""Arrow to blocks (D3): rows of a batch become messages, packed as a producer packs them.

Bodies and their offsets go over as they stand. Heads are made one by one, where a row has anything that belongs
there. Rows that came from the source say what their bodies are, and of what types their properties: they become
what they were. A large message is refused: its content is not in its row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c
from numpy.typing import NDArray

from heliograph.model.block import (
    EXPIRIES,
    HEADER_BYTES,
    HEADS,
    PADDING,
    PREFIX_BYTES,
    PRIORITIES,
    UNITS,
    WHOLE,
    BodyKind,
    pack_header,
)
from heliograph.model.errors import ClientFault
from heliograph.model.ids import LaneId
from heliograph.model.limits import MAX_BLOCK_BYTES, MAX_BLOCK_MESSAGES
from heliograph.model.message import Head, Property, decode_head, encode_head
from heliograph.model.units import unit_number
from heliograph.spark.rows import said
from heliograph.spark.schema import KINDS

BLOCK_ROWS: Final = 2048
_BLOCK_BYTES: Final = MAX_BLOCK_BYTES // 2
_IN_HEADS: Final = ("correlation_id", "reply_to", "type", "unit_of_order", "properties", "head")
_BODIES: Final = ("body", "value", "text")
Pack = Callable[[LaneId, int], bytes]


def by_destination(batch: pa.RecordBatch, default: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows for each destination. A row that names none goes to the default."""
    if "destination" not in batch.schema.names or default:
        if not default:
            raise ClientFault(
                'say where to with option("destination", …), or in a column', code="option-invalid"
            )
        yield default, batch
        return
    column = batch.column("destination")
    for name in pc.unique(column).to_pylist():
        if name is None:
            raise ClientFault("a row has no destination, and there is no default", code="option-invalid")
        yield name, batch.filter(pc.equal(column, name))


def blocks_of(batch: pa.RecordBatch, now: int) -> Iterator[tuple[int, int, Pack]]:
    """Count, bytes, and what packs them, given the lane and the first sequence. `now` in microseconds."""
    bodies, kinds = _bodies(batch)
    for start, stop in _cut(bodies):
        rows = batch.slice(start, stop - start)
        body = bodies.slice(start, stop - start)
        own = kinds[start:stop]
        kind = int(own[0]) if (own == own[0]).all() else BodyKind.MIXED
        parts = _parts(rows, body, own.tolist() if kind == BodyKind.MIXED else None)
        size = sum(map(len, parts[1]))
        yield stop - start, size, _packer(parts, len(rows), kind, now)


def _bodies(batch: pa.RecordBatch) -> tuple[pa.Array, NDArray[np.uint8]]:
    """The column of bodies, and what each of them is."""
    names = [name for name in _BODIES if name in batch.schema.names]
    if not names:
        raise ClientFault("rows to be sent need a column body, value or text", code="option-invalid")
    name = next((name for name in names if batch.column(name).null_count < len(batch)), names[0])
    column = batch.column(name)
    kinds = _kinds(batch, name)
    if (kinds == BodyKind.LARGE).any():
        if pc.any(pc.and_(pa.array(kinds == BodyKind.LARGE), pc.is_null(column))).as_py():
            raise ClientFault(
                "a row is a large message, whose content is not in it: leave it out,"
                " by body_kind <> 'large' in a feed, or by the selector NOT JMS_helio_large in a queue",
                code="body-missing",
            )
        kinds = np.where(kinds == BodyKind.LARGE, BodyKind.BYTES, kinds)
    if _is_string(column):
        kinds = np.full(len(batch), BodyKind.TEXT, dtype=np.uint8)
    raw = column.cast(pa.binary())
    return pc.fill_null(raw, b"") if raw.null_count else raw, kinds


def _kinds(batch: pa.RecordBatch, name: str) -> NDArray[np.uint8]:
    """As `body_kind` says. Where it says nothing a body is bytes, or text where the row has the same as text."""
    kinds = np.zeros(len(batch), dtype=np.uint8)
    names = batch.schema.names
    told = batch.column("body_kind") if "body_kind" in names else pa.nulls(len(batch), pa.string())
    if told.null_count and name == "body" and "text" in names and _is_string(batch.column("text")):
        same = pc.equal(batch.column("body").cast(pa.binary()), batch.column("text").cast(pa.binary()))
        kinds[pc.fill_null(same, False).to_numpy(zero_copy_only=False)] = BodyKind.TEXT
    if told.null_count == len(batch):
        return kinds
    places = pc.index_in(told, value_set=pa.array(KINDS, told.type))
    if places.null_count > told.null_count:
        raise ClientFault(f"body_kind is one of {', '.join(KINDS)}", code="option-invalid")
    found = pc.fill_null(places, -1).to_numpy(zero_copy_only=False)
    return np.where(found >= 0, found, kinds).astype(np.uint8)


def _is_string(column: pa.Array) -> bool:
    return bool(pa.types.is_string(column.type) or pa.types.is_large_string(column.type))


def _cut(bodies: pa.Array) -> Iterator[tuple[int, int]]:
    """Runs of rows that fit a block."""
    ends = np.cumsum(pc.binary_length(bodies).to_numpy(zero_copy_only=False).astype(np.int64))
    start = 0
    while start < len(bodies):
        before = ends[start - 1] if start else 0
        stop = int(np.searchsorted(ends, before + _BLOCK_BYTES, side="right"))
        stop = max(start + 1, min(stop, start + BLOCK_ROWS, len(bodies)))
        yield start, stop
        start = stop


def _parts(
    rows: pa.RecordBatch, body: pa.Array, kinds: list[int] | None
) -> tuple[dict[str, Any], list[bytes]]:
    """The header's facts, and the columns and regions that follow it. `kinds`: where bodies differ in that."""
    count = len(rows)
    flags = 0
    offsets = np.frombuffer(body.buffers()[1], np.int32)[body.offset : body.offset + count + 1]
    raw = memoryview(body.buffers()[2] or b"")[int(offsets[0]) : int(offsets[-1])]
    columns = [_padded((offsets - offsets[0]).astype("<u4").tobytes())]
    heads, units = _heads(rows, kinds)
    head_bytes = 0
    if heads is not None:
        flags |= HEADS
        head_offsets = np.concatenate([[0], np.cumsum([len(head) for head in heads])]).astype("<u4")
        head_bytes = int(head_offsets[-1])
        columns.append(_padded(head_offsets.tobytes()))
    expiries = _numbers(rows, "expiration", "<i8")
    if expiries is not None:
        flags |= EXPIRIES
        columns.append(expiries)
    if units is not None:
        flags |= UNITS
        columns.append(np.array(units, dtype="<u8").tobytes())
    priorities = _numbers(rows, "priority", np.uint8, default=4)
    if priorities is not None:
        flags |= PRIORITIES
        columns.append(_padded(priorities))
    if heads is not None:
        columns.append(_padded(b"".join(heads)))
    columns.append(bytes(raw))
    return {"count": count, "flags": flags, "head_bytes": head_bytes, "body_bytes": len(raw)}, columns


def _padded(raw: bytes) -> bytes:
    return raw + PADDING[len(raw) & 7]


def _numbers(rows: pa.RecordBatch, name: str, kind: Any, default: int = 0) -> bytes | None:
    if name not in rows.schema.names or rows.column(name).null_count == len(rows):
        return None
    column = rows.column(name)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
    values = pc.fill_null(column.cast(pa.int64()), default).to_numpy(zero_copy_only=False)
    if name == "priority" and not ((values >= 0) & (values <= 9)).all():
        raise ClientFault("a priority is 0 to 9", code="priority-invalid")
    return bytes(values.astype(kind).tobytes())


def _heads(rows: pa.RecordBatch, kinds: list[int] | None) -> tuple[list[bytes] | None, list[int] | None]:
    """The head of each row, None if none has one; and the numbers of units, if any has one."""
    names = [
        name for name in _IN_HEADS if name in rows.schema.names and rows.column(name).null_count < len(rows)
    ]
    if not names and kinds is None:
        return None, None
    columns = {name: rows.column(name).to_pylist() for name in names}
    empty = [None] * len(rows)
    heads, units = [], []
    for body_kind, correlation, reply, kind, unit, properties, left in zip(
        kinds or [0] * len(rows), *(columns.get(name, empty) for name in _IN_HEADS), strict=True
    ):
        head = Head(correlation, reply, kind, body_kind, unit, properties=dict(properties or ()))
        heads.append(encode_head(_as_it_was(head, left) if left else head))
        units.append(unit_number(unit) if unit else 0)
    return heads, units if any(units) else None


def _as_it_was(head: Head, left: bytes) -> Head:
    """With the group, and the types of properties, that a message from the source had. A property that says something
    else by now is the text that the row has."""
    before = decode_head(left)
    head.group_id, head.group_sequence = before.group_id, before.group_sequence
    typed: dict[str, Property] = before.properties
    for name, value in typed.items():
        if name in head.properties and head.properties[name] == said(value):
            head.properties[name] = value
    return head


def _packer(parts: tuple[dict[str, Any], list[bytes]], count: int, kind: int, now: int) -> Pack:
    facts, columns = parts
    assert count <= MAX_BLOCK_MESSAGES, "a block has no more rows than this"

    def pack(lane: LaneId, first: int) -> bytes:
        rest = b"".join(columns)
        common: dict[str, Any] = {
            "form": WHOLE,
            "length": HEADER_BYTES + len(rest),
            **facts,
            "priority": 4,
            "delivery": 1,
            "kind": int(kind),
            "lane": lane,
            "first": first,
            "timestamp": now,
            "expiry": 0,
            "delivery_time": 0,
        }
        header = pack_header(checksum=0, **common)
        checksum = crc32c(rest, crc32c(header[PREFIX_BYTES:]))
        return pack_header(checksum=checksum, **common) + rest

    return pack
