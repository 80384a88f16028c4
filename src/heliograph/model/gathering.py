"""Messages picked from here and there, put together in one block for a consumer (docs/reference/block-format.md).

Where units of order are used, a consumer is handed messages that do not stand side by side. One frame for each
would cost ten times what the message does, so what was picked travels together: a fragment whose sequences,
and lanes where there are several, stand in columns of their own. Only a server makes one, and only for a
client; it is never stored, and never accepted from outside.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from itertools import accumulate
from operator import sub
from typing import Final

from heliograph.model.block import (
    DELIVERIES,
    EXPIRIES,
    FRAGMENT,
    HEADER_BYTES,
    HEADS,
    LANES,
    LONE,
    PADDING,
    PERSISTENT,
    PRIORITIES,
    SEQUENCES,
    TIMESTAMPS,
    UNITS,
    Block,
    BodyKind,
    Span,
    column_of,
    kind_of,
    pack_header,
    priority_runs,
)

Parts = list[bytes | memoryview]
_TWO = struct.Struct("<II")
_TOTALS = struct.Struct("<II")
_TOTALS_AT: Final = 20  # where a header has the length of all heads and of all bodies


def parcels(spans: list[Span]) -> Iterator[list[Span]]:
    """Cut into runs whose messages can share a block."""
    run: list[Span] = []
    for span in spans:
        if run and not _are_alike(run[0], span):
            yield run
            run = []
        run.append(span)
    if run:
        yield run


def _are_alike(one: Span, other: Span) -> bool:
    if one.deliveries != other.deliveries:
        return False
    if one.block is other.block:
        return True
    kind = kind_of(one.block)
    return (
        kind == kind_of(other.block)
        and kind != BodyKind.LARGE
        and one.block.persistent == other.block.persistent
    )


def gather(spans: list[Span]) -> Parts:
    """One block of messages that `parcels` found alike."""
    count = sum(span.stop - span.start for span in spans)
    first = spans[0].block
    bodies, heads = _Strings(), _Strings()
    for span in spans:
        _add_bytes(span, bodies, heads)
    flags = SEQUENCES
    parts: Parts = [b""]
    bodies.add_offsets(parts)
    if heads.size:
        flags |= HEADS
        heads.add_offsets(parts)
    for flag, typecode in ((TIMESTAMPS, "q"), (EXPIRIES, "q"), (DELIVERIES, "q"), (UNITS, "Q")):
        column = _column(spans, flag, typecode)
        if column is not None:
            flags |= flag
            parts.append(column.tobytes())
    if any(span.block.flags & PRIORITIES or span.block.priority != first.priority for span in spans):
        flags |= PRIORITIES
        parts += (bytes(_priorities(spans)), PADDING[count & 7])
    sequences = array("Q")
    for span in spans:
        sequences.extend(range(span.block.first + span.start, span.block.first + span.stop))
    parts.append(sequences.tobytes())
    if any(span.block.lane != first.lane for span in spans):
        flags |= LANES
        parts.append(b"".join([span.block.lane * (span.stop - span.start) for span in spans]))
    if flags & HEADS:
        parts += heads.pieces
        parts.append(PADDING[heads.size & 7])
    parts += bodies.pieces
    return _with_header(parts, first, count, flags, heads.size, bodies.size)


def _with_header(
    parts: Parts, first: Block, count: int, flags: int, head_bytes: int, body_bytes: int
) -> Parts:
    rest = b"".join(parts)
    header = pack_header(
        form=FRAGMENT,
        length=HEADER_BYTES + len(rest),
        checksum=0,
        count=count,
        flags=flags,
        head_bytes=head_bytes,
        body_bytes=body_bytes,
        priority=first.priority,
        delivery=PERSISTENT if first.persistent else 0,
        kind=kind_of(first),
        lane=first.lane,
        first=first.first,
        timestamp=first.timestamp,
        expiry=first.expiry,
        delivery_time=first.delivery_time,
    )
    return [header, rest]


def _add_bytes(span: Span, bodies: _Strings, heads: _Strings) -> None:
    block = span.block
    buffer = block.buffer
    assert buffer is not None, "the caller loads a block before it is gathered from"
    view = memoryview(buffer)
    head_bytes, body_bytes = _TOTALS.unpack_from(buffer, _TOTALS_AT)
    body_base = len(buffer) - body_bytes
    if block.flags & LONE:
        bodies.add(view[body_base:])
        heads.add(view[HEADER_BYTES : HEADER_BYTES + head_bytes])
        return
    bodies.add_run(view, HEADER_BYTES, body_base, span)
    if block.flags & HEADS:
        width = (block.count + 2 & ~1) * 4
        heads.add_run(view, HEADER_BYTES + width, body_base - (head_bytes + 7 & ~7), span)
    else:
        heads.lengths += (0,) * (span.stop - span.start)


class _Strings:
    """Byte strings to be laid side by side: the bytes, neighbours in one piece, and how long each string is."""

    __slots__ = ("lengths", "pieces")

    def __init__(self) -> None:
        self.pieces: list[memoryview] = []
        self.lengths: list[int] = []

    @property
    def size(self) -> int:
        return sum(self.lengths)

    def add(self, piece: memoryview) -> None:
        self.pieces.append(piece)
        self.lengths.append(len(piece))

    def add_run(self, view: memoryview, offsets_at: int, base: int, span: Span) -> None:
        """The strings of a span, which stand side by side in their block too."""
        if span.stop - span.start == 1:
            start, stop = _TWO.unpack_from(view, offsets_at + span.start * 4)
            self.add(view[base + start : base + stop])
            return
        run = view[offsets_at + span.start * 4 : offsets_at + span.stop * 4 + 4]
        offsets = run.cast("I").tolist()
        self.pieces.append(view[base + offsets[0] : base + offsets[-1]])
        self.lengths += map(sub, offsets[1:], offsets)

    def add_offsets(self, parts: Parts) -> None:
        count = len(self.lengths)
        parts += (array("I", accumulate(self.lengths, initial=0)).tobytes(), PADDING[(count + 1) * 4 & 7])


def _column(spans: list[Span], flag: int, typecode: str) -> array[int] | None:
    """What each message says, None where all say what the first block's header does."""
    expected = _shared(spans[0].block, flag)
    if not any(span.block.flags & flag or _shared(span.block, flag) != expected for span in spans):
        return None
    column = array(typecode)
    for span in spans:
        if span.block.flags & flag:
            column.extend(column_of(span, flag, "Q" if typecode == "Q" else "q"))
        else:
            column.extend([_shared(span.block, flag)] * (span.stop - span.start))
    return column


def _shared(block: Block, flag: int) -> int:
    """What a header says for all messages of its block."""
    if flag == TIMESTAMPS:
        return block.timestamp
    if flag == EXPIRIES:
        return block.expiry
    return block.delivery_time if flag == DELIVERIES else 0


def _priorities(spans: list[Span]) -> Iterator[int]:
    for span in spans:
        if not span.block.flags & PRIORITIES:
            yield from (span.block.priority,) * (span.stop - span.start)
            continue
        for priority, start, stop in priority_runs(span.block):
            yield from (priority,) * max(min(stop, span.stop) - max(start, span.start), 0)
