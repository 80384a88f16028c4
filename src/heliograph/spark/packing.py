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
from heliograph.model.limits import MAX_BLOCK_BYTES, MAX_BLOCK_MESSAGES, MAX_MESSAGE_BYTES
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
    for place in range(0, len(batch), BLOCK_ROWS):
        rows, body = batch.slice(place, BLOCK_ROWS), bodies.slice(place, BLOCK_ROWS)
        heads, units = _heads(rows)
        raw = None if heads is None else [encode_head(head) for head in heads]
        for start, stop in _cut(body, raw):
            own = kinds[place + start : place + stop]
            kind = int(own[0]) if (own == own[0]).all() else BodyKind.MIXED
            part = None if raw is None else raw[start:stop]
            if kind == BodyKind.MIXED:
                part = _with_kinds(None if heads is None else heads[start:stop], own.tolist())
            count = stop - start
            parts = _parts(rows.slice(start, count), body.slice(start, count), part, units[start:stop])
            yield count, sum(map(len, parts[1])), _packer(parts, count, kind, now)


def _bodies(batch: pa.RecordBatch) -> tuple[pa.Array, NDArray[np.uint8]]:
    """The body of each row, which stands in the first of the columns where it has one, and what it is."""
    names = [name for name in _BODIES if name in batch.schema.names]
    if not names:
        raise ClientFault("rows to be sent need a column body, value or text", code="option-invalid")
    kinds = _kinds(batch)
    raw = pa.nulls(len(batch), pa.binary())
    first = next((name for name in names if batch.column(name).null_count < len(batch)), names[0])
    for name in names:
        column = batch.column(name)
        if raw.null_count and column.null_count < len(batch):
            if _is_string(column):
                taken = pc.and_(pc.is_null(raw), pc.is_valid(column)).to_numpy(zero_copy_only=False)
                kinds = np.where(taken, np.uint8(BodyKind.TEXT), kinds)
            own = column.cast(pa.binary())
            raw = own if raw.null_count == len(raw) else pc.coalesce(raw, own)
    is_empty = pc.is_null(raw).to_numpy(zero_copy_only=False)
    if (is_empty & (kinds == BodyKind.LARGE)).any():
        raise ClientFault(
            "a row is a large message, whose content is not in it: leave it out,"
            " by body_kind <> 'large' in a feed, or by the selector NOT JMS_helio_large in a queue",
            code="body-missing",
        )
    kinds = np.where(kinds == BodyKind.LARGE, np.uint8(BodyKind.BYTES), kinds)
    if _is_string(batch.column(first)):
        kinds = np.where(is_empty, np.uint8(BodyKind.TEXT), kinds)
    return pc.fill_null(raw, b"") if raw.null_count else raw, kinds


def _kinds(batch: pa.RecordBatch) -> NDArray[np.uint8]:
    """As `body_kind` says. Where it says nothing a body is bytes, or text where the row has the same as text."""
    kinds = np.zeros(len(batch), dtype=np.uint8)
    names = batch.schema.names
    told = batch.column("body_kind") if "body_kind" in names else pa.nulls(len(batch), pa.string())
    if told.null_count and "body" in names and "text" in names and _is_string(batch.column("text")):
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


def _cut(bodies: pa.Array, heads: list[bytes] | None) -> Iterator[tuple[int, int]]:
    """Runs of rows that fit a block, with all that each of them has. Raises ClientFault where one alone does not."""
    sizes = pc.binary_length(bodies).to_numpy(zero_copy_only=False).astype(np.int64)
    if heads is not None:
        sizes = sizes + np.fromiter(map(len, heads), np.int64, len(heads))
    largest = int(sizes.max(initial=0))
    if largest > MAX_MESSAGE_BYTES:
        raise ClientFault(
            f"a row has {largest} bytes; at most {MAX_MESSAGE_BYTES} are allowed in a message",
            code="message-too-large",
        )
    ends = np.cumsum(sizes)
    start = 0
    while start < len(bodies):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + _BLOCK_BYTES, side="right")))
        yield start, stop
        start = stop


def _parts(
    rows: pa.RecordBatch, body: pa.Array, heads: list[bytes] | None, units: list[int]
) -> tuple[dict[str, Any], list[bytes]]:
    """The header's facts, and the columns and regions that follow it."""
    count = len(rows)
    flags = 0
    offsets = np.frombuffer(body.buffers()[1], np.int32)[body.offset : body.offset + count + 1]
    raw = memoryview(body.buffers()[2] or b"")[int(offsets[0]) : int(offsets[-1])]
    columns = [_padded((offsets - offsets[0]).astype("<u4").tobytes())]
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
    if any(units):
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


def _heads(rows: pa.RecordBatch) -> tuple[list[Head] | None, list[int]]:
    """The head of each row, None if none has one; and the numbers of units, where there are heads."""
    names = [
        name for name in _IN_HEADS if name in rows.schema.names and rows.column(name).null_count < len(rows)
    ]
    if not names:
        return None, []
    columns = {name: rows.column(name).to_pylist() for name in names}
    empty = [None] * len(rows)
    heads, units = [], []
    for correlation, reply, kind, unit, properties, left in zip(
        *(columns.get(name, empty) for name in _IN_HEADS), strict=True
    ):
        head = Head(correlation, reply, kind, unit=unit, properties=dict(properties or ()))
        heads.append(_as_it_was(head, left) if left else head)
        units.append(unit_number(unit) if unit else 0)
    return heads, units


def _with_kinds(heads: list[Head] | None, kinds: list[int]) -> list[bytes]:
    """Where bodies of a block are of several kinds each head says what its own is."""
    found = [Head() for _ in kinds] if heads is None else heads
    for head, kind in zip(found, kinds, strict=True):
        head.kind = kind
    return [encode_head(head) for head in found]


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
