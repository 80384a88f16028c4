"""Blocks to Arrow (D1): many messages become rows without a step of Python for each.

A block's offsets and bodies are an Arrow column as they stand; what its messages share becomes runs, which numpy
repeats when a batch is full. Only heads (properties, types, names of units) are opened one by one, where there
are any.
A reader of a hash range gets whole blocks and keeps the rows that are its own, by `model/hash_ranges.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from heliograph.model.block import (
    DELIVERIES,
    EXPIRIES,
    HEADER_BYTES,
    HEADS,
    LANES,
    LARGE,
    LONE,
    PRIORITIES,
    SEQUENCES,
    TIMESTAMPS,
    UNITS,
    Block,
    BodyKind,
    parse_trusted,
)
from heliograph.model.hash_ranges import KEY, KIND, MIX, STRETCH_BITS, VALUES, stretch_number
from heliograph.model.ids import LaneId, text_of
from heliograph.model.message import Head
from heliograph.spark.schema import ARROW, KINDS, PROPERTIES, TIME

BATCH_ROWS: Final = 16_384
"""Rows of a batch: what it costs to hand one over is spread, and it is a few megabytes."""

_U64 = np.uint64
_HEAD = msgspec.msgpack.Decoder(Head)
_NO_HEAD = Head()
_encode = msgspec.msgpack.Encoder().encode
_BODY = msgspec.msgpack.Decoder()
_SIZES: Final = np.dtype("<u4")
Longs = NDArray[np.int64]


class _Columns:
    """A block taken apart into views."""

    def __init__(self, buffer: bytes) -> None:
        self.block: Block = parse_trusted(buffer, keep=False)
        self.buffer = buffer
        self.kind = buffer[30]
        count, flags = self.block.count, self.block.flags
        head_bytes, body_bytes = (int(size) for size in np.frombuffer(buffer, _SIZES, 2, 20))
        self._bodies_at = len(buffer) - body_bytes
        self.body_offsets: NDArray[np.uint32] | None = None
        self.head_offsets: NDArray[np.uint32] | None = None
        at = HEADER_BYTES
        if flags & LONE:
            self._heads_at = at
            self.timestamps: Longs | None = None
            self.expiries: Longs | None = None
            self.sequences: Longs | None = None
            self.units: NDArray[np.uint64] | None = None
            self.priorities: NDArray[np.uint8] | None = None
            self.lanes: list[LaneId] | None = None
            self._head_bytes = head_bytes
            return
        width = (count + 2 & ~1) * 4
        self.body_offsets = np.frombuffer(buffer, _SIZES, count + 1, at)
        at += width
        if flags & HEADS:
            self.head_offsets = np.frombuffer(buffer, _SIZES, count + 1, at)
            at += width
        found: dict[int, Any] = {}
        for flag, kind in ((TIMESTAMPS, "<i8"), (EXPIRIES, "<i8"), (DELIVERIES, "<i8"), (UNITS, "<u8")):
            if flags & flag:
                found[flag] = np.frombuffer(buffer, kind, count, at)
                at += count * 8
        if flags & PRIORITIES:
            found[PRIORITIES] = np.frombuffer(buffer, np.uint8, count, at)
            at += count + 7 & ~7
        if flags & SEQUENCES:
            found[SEQUENCES] = np.frombuffer(buffer, "<i8", count, at)
            at += count * 8
        self.lanes = None
        if flags & LANES:
            self.lanes = [LaneId(buffer[place : place + 16]) for place in range(at, at + count * 16, 16)]
            at += count * 16
        self._heads_at = at
        self.timestamps, self.expiries = found.get(TIMESTAMPS), found.get(EXPIRIES)
        self.units, self.priorities = found.get(UNITS), found.get(PRIORITIES)
        self.sequences = found.get(SEQUENCES)

    @property
    def count(self) -> int:
        return self.block.count

    def bodies(self) -> bytes | pa.Array:
        """The one body of a lone message, or a column."""
        if self.body_offsets is None:
            return self.buffer[self._bodies_at :]
        offsets = (self.body_offsets - self.body_offsets[0]).astype(np.int32)
        data = pa.py_buffer(self.buffer).slice(self._bodies_at)
        return pa.Array.from_buffers(pa.binary(), self.count, [None, pa.py_buffer(offsets), data])

    def heads(self) -> list[Head] | None:
        if not self.block.flags & HEADS:
            return None
        if self.head_offsets is None:
            return [_head(self.buffer[self._heads_at : self._heads_at + self._head_bytes])]
        bounds = (self.head_offsets - self.head_offsets[0] + self._heads_at).tolist()
        return [_head(self.buffer[bounds[n] : bounds[n + 1]]) for n in range(self.count)]

    def all_sequences(self) -> Longs:
        if self.sequences is not None:
            return self.sequences
        return np.arange(self.block.first, self.block.first + self.count, dtype=np.int64)


def _head(raw: bytes) -> Head:
    if not raw:
        return _NO_HEAD
    try:
        return _HEAD.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _NO_HEAD  # what an application put there is its own affair


def values_of(numbers: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """`hash_ranges.value_of` of many."""
    mixed = numbers * _U64(KEY) + _U64(KIND)
    mixed = (mixed ^ (mixed >> _U64(32))) * _U64(MIX)
    return (mixed >> _U64(32)).astype(np.uint32)


def _keys(columns: _Columns) -> NDArray[np.uint64]:
    """What each message of a block is hashed by."""
    lanes = columns.lanes or [columns.block.lane]
    stretches = columns.all_sequences() >> STRETCH_BITS
    if len(lanes) == 1:
        found, which = np.unique(stretches, return_inverse=True)
        numbers = [stretch_number(lanes[0], stretch) for stretch in found.tolist()]
        keys = np.array(numbers, dtype=np.uint64)[which]
    else:
        pairs = zip(lanes, stretches.tolist(), strict=True)
        keys = np.array([stretch_number(lane, stretch) for lane, stretch in pairs], dtype=np.uint64)
    if columns.units is not None:
        keys = np.where(columns.units != 0, columns.units, keys)
    return keys


class Rows:
    """Gathers blocks of one range, and hands out batches."""

    def __init__(self, low: int = 0, high: int = VALUES) -> None:
        self._low, self._high = low, high
        self._begin()

    def _begin(self) -> None:
        self.count = 0
        self._runs: list[int] = []
        self._bodies: list[pa.Array] = []
        self._lone: list[bytes | None] = []
        self._lane_names: list[str] = []
        self._lane_runs: list[int] = []
        self._sequences: list[Longs] = []
        self._constants: list[tuple[int, str, int, int]] = []  # LSN, destination, deliveries, kind
        self._timestamps: list[Any] = []
        self._expiries: list[Any] = []
        self._priorities: list[Any] = []
        self._heads: list[list[Head] | int] = []

    def add(
        self, buffer: bytes, *, lsn: int, destination: str, deliveries: int = 0
    ) -> Iterator[pa.RecordBatch]:
        """Take a block. Yields a batch when there is enough for one."""
        columns = _Columns(buffer)
        kept = self._kept(columns)
        if kept is None or len(kept):
            self._take(columns, kept, lsn, destination, deliveries)
            if self.count >= BATCH_ROWS:
                yield self.flush()

    def _kept(self, columns: _Columns) -> Longs | None:
        """Which messages are in the range; None: all of them."""
        if self._high - self._low == VALUES:
            return None
        values = values_of(_keys(columns))
        inside = (values >= self._low) & (values <= np.uint32(self._high - 1))
        return None if inside.all() else np.flatnonzero(inside)

    def _take(
        self, columns: _Columns, kept: Longs | None, lsn: int, destination: str, deliveries: int
    ) -> None:
        count = columns.count if kept is None else len(kept)
        self._take_bodies(columns, kept)
        block = columns.block
        sequences = columns.all_sequences()
        names = [text_of(lane) for lane in columns.lanes] if columns.lanes else [text_of(block.lane)]
        if kept is not None:
            sequences = sequences[kept]
            names = [names[n] for n in kept.tolist()] if columns.lanes else names
        self._lane_names += names
        self._lane_runs += [1] * count if columns.lanes else [count]
        self._sequences.append(sequences)
        self._runs.append(count)
        self._constants.append((lsn, destination, deliveries, columns.kind))
        self._timestamps.append(_part(columns.timestamps, kept, block.timestamp))
        self._expiries.append(_part(columns.expiries, kept, block.expiry))
        self._priorities.append(_part(columns.priorities, kept, block.priority))
        heads = columns.heads()
        if heads is not None and kept is not None:
            heads = [heads[n] for n in kept.tolist()]
        self._heads.append(count if heads is None else heads)
        self.count += count

    def _take_bodies(self, columns: _Columns, kept: Longs | None) -> None:
        bodies = columns.bodies()
        if isinstance(bodies, bytes):
            # What refers to content that travels on its own has no body here.
            self._lone.append(None if columns.block.flags & LARGE else bodies)
            return
        self._gather_lone()
        if columns.block.flags & LARGE:
            bodies = pa.nulls(columns.count, pa.binary())
        self._bodies.append(bodies if kept is None else bodies.take(pa.array(kept)))

    def _gather_lone(self) -> None:
        if self._lone:
            self._bodies.append(pa.array(self._lone, pa.binary()))
            self._lone = []

    def flush(self) -> pa.RecordBatch:
        """Everything gathered so far."""
        self._gather_lone()
        runs = np.array(self._runs, dtype=np.int64)
        sequences = pa.array(np.concatenate(self._sequences)).cast(pa.string())
        names = _repeated(tuple(self._lane_names), np.array(self._lane_runs, dtype=np.int64))
        lsns, destinations, deliveries, kinds = zip(*self._constants, strict=True)
        body = pa.concat_arrays(self._bodies)
        expiries = self._spread(self._expiries)
        heads = self._all_heads()
        body_kinds = _body_kinds(np.repeat(np.array(kinds, dtype=np.uint8), runs), heads)
        columns = [
            pc.binary_join_element_wise(names, sequences, "-"),
            pa.array(np.repeat(np.array(lsns, dtype=np.int64), runs)),
            _repeated(destinations, runs),
            pa.array(self._spread(self._timestamps)).cast(TIME),
            pa.array(self._spread(self._priorities).astype(np.int32)),
            pa.array(expiries, mask=expiries == 0).cast(TIME),
            *_head_columns(heads, self.count),
            pa.array(np.repeat(np.array(deliveries, dtype=np.int32), runs)),
            _properties(heads, self.count),
            body,
            _text(body, body_kinds),
            pa.array(KINDS, pa.string()).take(pa.array(body_kinds)),
            _heads_left(heads, self.count),
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=ARROW)
        self._begin()
        return batch

    def rest(self) -> Iterator[pa.RecordBatch]:
        if self.count:
            yield self.flush()

    def _spread(self, pieces: list[Any]) -> Longs:
        """A column of what is one number for a run, or a number for each."""
        if all(isinstance(piece, int) for piece in pieces):
            return np.repeat(np.array(pieces, dtype=np.int64), self._runs)
        columns = [
            np.full(run, piece, dtype=np.int64) if isinstance(piece, int) else piece.astype(np.int64)
            for run, piece in zip(self._runs, pieces, strict=True)
        ]
        return np.concatenate(columns)

    def _all_heads(self) -> list[Head] | None:
        if all(isinstance(heads, int) for heads in self._heads):
            return None
        found: list[Head] = []
        for heads in self._heads:
            found += [_NO_HEAD] * heads if isinstance(heads, int) else heads
        return found


def _part(column: Any, kept: Longs | None, uniform: int) -> Any:
    if column is None:
        return uniform
    return column if kept is None else column[kept]


def _repeated(values: tuple[str, ...], runs: Longs) -> pa.Array:
    names = list(dict.fromkeys(values))
    places = {name: place for place, name in enumerate(names)}
    indices = np.repeat(np.array([places[value] for value in values], dtype=np.int32), runs)
    return pa.array(names, pa.string()).take(pa.array(indices))


def _head_columns(heads: list[Head] | None, count: int) -> list[pa.Array]:
    """Correlation id, reply-to, type, unit of order."""
    if heads is None:
        return [pa.nulls(count, pa.string())] * 4
    return [
        pa.array([head.correlation_id for head in heads], pa.string()),
        pa.array([head.reply_to for head in heads], pa.string()),
        pa.array([head.type for head in heads], pa.string()),
        pa.array([head.unit for head in heads], pa.string()),
    ]


def _properties(heads: list[Head] | None, count: int) -> pa.Array:
    if heads is None:
        return pa.nulls(count, PROPERTIES)
    rows = [[(name, said(value)) for name, value in head.properties.items()] or None for head in heads]
    return pa.array(rows, PROPERTIES)


def said(value: Any) -> str | None:
    """A property as a text."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.hex() if isinstance(value, bytes) else str(value)


def _heads_left(heads: list[Head] | None, count: int) -> pa.Array:
    """What the other columns cannot say, so that a message can become the same again: types of properties, groups."""
    if heads is None:
        return pa.nulls(count, pa.binary())
    return pa.array([_head_left(head) for head in heads], pa.binary())


def _head_left(head: Head) -> bytes | None:
    typed = {
        name: value
        for name, value in head.properties.items()
        if isinstance(value, bool | int | float | bytes)
    }
    if not typed and head.group_id is None and not head.group_sequence:
        return None
    return _encode(Head(group_id=head.group_id, group_sequence=head.group_sequence, properties=typed))


def _body_kinds(kinds: NDArray[np.uint8], heads: list[Head] | None) -> NDArray[np.uint8]:
    """What each body is; where a block is mixed, as its head says. No head makes a message a large one."""
    is_mixed = kinds == BodyKind.MIXED
    if not is_mixed.any():
        return kinds
    own = [head.kind if head.kind in (BodyKind.TEXT, BodyKind.DATA) else 0 for head in heads or ()]
    return np.where(is_mixed, np.array(own or 0, dtype=np.uint8), kinds)


def _text(body: pa.Array, kinds: NDArray[np.uint8]) -> pa.Array:
    """The body as text, where it is one; maps and lists as JSON."""
    is_text, is_data = kinds == BodyKind.TEXT, kinds == BodyKind.DATA
    if is_text.all():
        try:
            return body.cast(pa.string())
        except pa.ArrowInvalid:
            pass  # not all of it is
    if not is_text.any() and not is_data.any():
        return pa.nulls(len(body), pa.string())
    return pa.array(
        [_told(raw.as_py(), kind) for raw, kind in zip(body, kinds.tolist(), strict=True)], pa.string()
    )


def _told(raw: bytes | None, kind: int) -> str | None:
    if raw is None:
        return None
    try:
        if kind == BodyKind.TEXT:
            return raw.decode()
        if kind == BodyKind.DATA:
            return json.dumps(_BODY.decode(raw), default=str, ensure_ascii=False)
    except (UnicodeDecodeError, msgspec.MsgspecError, ValueError, TypeError, RecursionError):
        pass  # not what it claims to be, or nothing that JSON can say: the body has it as bytes
    return None
