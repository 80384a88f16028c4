"""The block: many messages of one lane in one buffer, and the span, a run of messages inside it.

The layout is documented field by field in docs/reference/block-format.md and pinned by golden files. What
follows from it:

- A producer packs the block; everybody else passes its bytes on. They are never rewritten, so its checksum is
  checked wherever
  the bytes were out of our hands: when they arrive from a client and when they are read from the disk.
- What all messages of a block share stands in the header. A column is present only where they differ, and the
  flags say which,
  so a plain block is handled without a look inside.
- Two byte regions (heads, bodies) with n+1 offsets each are Arrow binary columns as they stand; a span is one
  slice of each.

This module does not know queues, sessions or sockets.
"""

from __future__ import annotations

import enum
import struct
from array import array
from collections.abc import Sequence
from itertools import accumulate, groupby, pairwise
from typing import Final, Literal

import msgspec
from crc32c import crc32c

from heliograph.model.errors import ClientFault
from heliograph.model.ids import LaneId
from heliograph.model.limits import MAX_BLOCK_BYTES, MAX_BLOCK_MESSAGES, MAX_SEQUENCE

MAGIC: Final = 0x4248  # "HB"
VERSION: Final = 1
WHOLE: Final = 0
FRAGMENT: Final = 1

_PREFIX = struct.Struct("<HBBII")  # magic, version, form, length, checksum
_REST = struct.Struct("<IIIIBBBB16sQqqq")
_HEADER = struct.Struct("<HBBIIIIIIBBBB16sQqqq")
PREFIX_BYTES: Final = _PREFIX.size
HEADER_BYTES: Final = _HEADER.size
assert PREFIX_BYTES + _REST.size == HEADER_BYTES == 80

# Where the header has the checksum of all that follows it.
CHECKSUM: Final = slice(8, 12)
# Where the header has the length of all heads, and behind it of all bodies.
_TOTALS = struct.Struct("<II")
_TOTALS_AT: Final = 20
# Where the header has the length of all bodies.
_BODY_BYTES = struct.Struct("<I")
_BODY_BYTES_AT: Final = 24

# Where the header has the lane, and behind it the sequence of the first message.
_LANE = struct.Struct("<16sQ")
_LANE_AT: Final = 32

PADDING = tuple(b"\0" * (-size % 8) for size in range(8))


class Flag(enum.IntFlag):
    """What a block contains besides bodies. Plain integers below, for the hot path."""

    LONE = 1  # one message, no columns at all
    HEADS = 2
    TIMESTAMPS = 4
    EXPIRIES = 8
    DELIVERIES = 16
    UNITS = 32
    PRIORITIES = 64
    LARGE = 128  # one message whose body names a file of the large store (docs/decisions/0004)
    SEQUENCES = 256  # picked messages (model/gathering.py): their sequences do not follow one another
    LANES = 512  # picked messages of several lanes


LONE: Final = 1
HEADS: Final = 2
TIMESTAMPS: Final = 4
EXPIRIES: Final = 8
DELIVERIES: Final = 16
UNITS: Final = 32
PRIORITIES: Final = 64
LARGE: Final = 128
SEQUENCES: Final = 256
LANES: Final = 512
_KNOWN: Final = 255  # to producers; only a server picks
# Columns that make the server look at single messages.
UNEVEN: Final = EXPIRIES | DELIVERIES | UNITS | PRIORITIES

PERSISTENT: Final = 1  # delivery flag
_LARGE_KIND: Final = 3


class BodyKind(enum.IntEnum):
    """What the body bytes are. MIXED: each message's head says."""

    BYTES = 0
    TEXT = 1
    DATA = 2  # a map or list, as MessagePack
    LARGE = (
        3  # a reference to content that travels on its own; the block has the flag LARGE and no other message
    )
    MIXED = 255


class Block(msgspec.Struct, gc=False):
    """A block as the server holds it: the header's facts beside the untouched bytes.

    `buffer` is None while only the journal has the bytes; `position` says where (0: not stored yet). `number`
    is the place of the first message in its destination, given when it is accepted. A block that was put
    together from lone messages when they were read back has one position for each in `positions`. `name`: under
    which its bytes were sent to those who hand it out, empty if they know it as it was published.
    """

    buffer: bytes | None
    size: int
    count: int
    flags: int
    priority: int
    persistent: bool
    lane: LaneId
    first: int
    timestamp: int
    expiry: int
    delivery_time: int
    position: int = 0
    number: int = 0
    positions: array[int] | None = None
    name: bytes = b""

    @property
    def last(self) -> int:
        """Sequence of the last message."""
        return self.first + self.count - 1


class Span(msgspec.Struct, gc=False):
    """Messages `start` up to but not including `stop` of a block, and how often they were handed out before.

    `origin` is the chunk of a shared sequence that they were taken from, -1 where there is none.
    """

    block: Block
    start: int
    stop: int
    deliveries: int = 0
    origin: int = -1

    def part(self, start: int, stop: int) -> Span:
        """Some messages of the same span."""
        return Span(self.block, start, stop, self.deliveries, self.origin)


def pack_lone(
    body: bytes,
    *,
    lane: LaneId,
    sequence: int,
    timestamp: int = 0,
    priority: int = 4,
    persistent: bool = True,
    kind: int = 0,
    head: bytes = b"",
    expiry: int = 0,
    delivery_time: int = 0,
) -> bytes:
    """A block of one message: one `struct` pack, no columns."""
    flags = LONE | HEADS if head else LONE
    rest = _REST.pack(
        1,
        flags | LARGE if kind == _LARGE_KIND else flags,
        len(head),
        len(body),
        priority,
        1 if persistent else 0,
        kind,
        0,
        lane,
        sequence,
        timestamp,
        expiry,
        delivery_time,
    )
    checksum = crc32c(body, crc32c(head, crc32c(rest)))
    prefix = _PREFIX.pack(MAGIC, VERSION, WHOLE, HEADER_BYTES + len(head) + len(body), checksum)
    return b"".join((prefix, rest, head, body))


def pack(
    bodies: Sequence[bytes],
    *,
    lane: LaneId,
    first: int,
    timestamp: int = 0,
    priority: int = 4,
    persistent: bool = True,
    kind: int = 0,
    expiry: int = 0,
    delivery_time: int = 0,
    heads: Sequence[bytes] | None = None,
    timestamps: Sequence[int] | None = None,
    expiries: Sequence[int] | None = None,
    delivery_times: Sequence[int] | None = None,
    units: Sequence[int] | None = None,
    priorities: Sequence[int] | None = None,
) -> bytes:
    """Pack messages first, first+1, … of a lane. A column is written for each sequence that is given."""
    count = len(bodies)
    offsets = array("I", accumulate(map(len, bodies), initial=0))
    body_bytes = offsets[-1]
    flags = LARGE if kind == _LARGE_KIND else 0
    head_bytes = 0
    parts: list[bytes] = [b"", offsets.tobytes(), PADDING[(count + 1) * 4 & 7]]
    if heads is not None:
        flags |= HEADS
        head_offsets = array("I", accumulate(map(len, heads), initial=0))
        head_bytes = head_offsets[-1]
        parts += (head_offsets.tobytes(), PADDING[(count + 1) * 4 & 7])
    for flag, typecode, column in (
        (TIMESTAMPS, "q", timestamps),
        (EXPIRIES, "q", expiries),
        (DELIVERIES, "q", delivery_times),
        (UNITS, "Q", units),
        (PRIORITIES, "B", priorities),
    ):
        if column is not None:
            flags |= flag
            raw = array(typecode, column).tobytes()
            parts += (raw, PADDING[len(raw) & 7])
    if heads is not None:
        parts += heads
        parts.append(PADDING[head_bytes & 7])
    parts += bodies
    parts[0] = _REST.pack(
        count,
        flags,
        head_bytes,
        body_bytes,
        priority,
        1 if persistent else 0,
        kind,
        0,
        lane,
        first,
        timestamp,
        expiry,
        delivery_time,
    )
    rest = b"".join(parts)
    return _PREFIX.pack(MAGIC, VERSION, WHOLE, PREFIX_BYTES + len(rest), crc32c(rest)) + rest


def pack_header(
    *,
    form: int,
    length: int,
    checksum: int,
    count: int,
    flags: int,
    head_bytes: int,
    body_bytes: int,
    priority: int,
    delivery: int,
    kind: int,
    lane: LaneId,
    first: int,
    timestamp: int,
    expiry: int,
    delivery_time: int,
) -> bytes:
    """A header by itself, for those who put a block together in another way."""
    return _HEADER.pack(
        MAGIC,
        VERSION,
        form,
        length,
        checksum,
        count,
        flags,
        head_bytes,
        body_bytes,
        priority,
        delivery,
        kind,
        0,
        lane,
        first,
        timestamp,
        expiry,
        delivery_time,
    )


def columns_end(count: int, flags: int) -> int:
    """Where the columns end and the heads begin."""
    if flags & LONE:
        return HEADER_BYTES
    offsets = (count + 2 & ~1) * 4
    end = HEADER_BYTES + offsets
    if flags & HEADS:
        end += offsets
    for flag in (TIMESTAMPS, EXPIRIES, DELIVERIES, UNITS, SEQUENCES):
        if flags & flag:
            end += count * 8
    if flags & PRIORITIES:
        end += count + 7 & ~7
    if flags & LANES:
        end += count * 16
    return end


def _refuse(sentence: str) -> ClientFault:
    return ClientFault(sentence, code="block-malformed")


def parse(buffer: bytes) -> Block:
    """Check a whole block that came from outside and read its header.

    Raises ClientFault `block-malformed` or `block-too-large`.
    """
    if len(buffer) < HEADER_BYTES:
        raise _refuse(f"a block has at least {HEADER_BYTES} bytes, this one {len(buffer)}")
    if len(buffer) > MAX_BLOCK_BYTES:
        raise ClientFault(
            f"a block has at most {MAX_BLOCK_BYTES} bytes, this one {len(buffer)}", code="block-too-large"
        )
    (
        magic,
        version,
        form,
        length,
        checksum,
        count,
        flags,
        head_bytes,
        body_bytes,
        priority,
        delivery,
        kind,
        _reserved,
        lane,
        first,
        timestamp,
        expiry,
        delivery_time,
    ) = _HEADER.unpack_from(buffer)
    if magic != MAGIC or version != VERSION or form != WHOLE:
        raise _refuse(f"not a block of version {VERSION}")
    if length != len(buffer):
        raise _refuse(f"the block says {length} bytes and has {len(buffer)}")
    if crc32c(memoryview(buffer)[PREFIX_BYTES:]) != checksum:
        raise _refuse("the block's checksum does not match its bytes")
    if flags & LONE:
        if count != 1 or flags & ~(LONE | HEADS | LARGE) or HEADER_BYTES + head_bytes + body_bytes != length:
            raise _refuse("a lone message has no columns")
        if not flags & HEADS and head_bytes:
            raise _refuse("head bytes without a head")
    else:
        _check_columns(buffer, count, flags, head_bytes, body_bytes)
    if (flags & LARGE != 0) != (kind == _LARGE_KIND) or (flags & LARGE and count != 1):
        raise _refuse("a large message stands alone in its block, which says so")
    if (
        priority > 9
        or timestamp < 0
        or expiry < 0
        or delivery_time < 0
        or not 0 < first <= MAX_SEQUENCE - count
    ):
        raise _refuse("a header field is out of range")
    return Block(
        buffer,
        length,
        count,
        flags,
        priority,
        delivery & PERSISTENT != 0,
        lane,
        first,
        timestamp,
        expiry,
        delivery_time,
    )


def parse_trusted(buffer: bytes | memoryview, position: int = 0, *, keep: bool = True) -> Block:
    """Read the header of a block that was checked when it first came in. The caller has verified a checksum
    over it."""
    header = _HEADER.unpack_from(buffer)
    return Block(
        bytes(buffer) if keep else None,
        header[3],
        header[5],
        header[6],
        header[9],
        header[10] & PERSISTENT != 0,
        header[13],
        header[14],
        header[15],
        header[16],
        header[17],
        position,
    )


def lane_and_first(buffer: bytes | memoryview) -> tuple[LaneId, int]:
    """The lane of a block and the sequence of its first message, and nothing else of its header."""
    lane, first = _LANE.unpack_from(buffer, _LANE_AT)
    return LaneId(lane), first


def verify_checksum(buffer: bytes) -> bool:
    """Whether the bytes are the ones the producer packed."""
    if len(buffer) < HEADER_BYTES:
        return False
    _magic, _version, _form, length, checksum = _PREFIX.unpack_from(buffer)
    return bool(length == len(buffer) and crc32c(memoryview(buffer)[PREFIX_BYTES:]) == checksum)


def _check_columns(buffer: bytes, count: int, flags: int, head_bytes: int, body_bytes: int) -> None:
    """Offsets must climb from 0 to the size of their region: a consumer will slice by them."""
    if not 0 < count <= MAX_BLOCK_MESSAGES or flags & ~_KNOWN:
        raise _refuse(f"a block holds 1 to {MAX_BLOCK_MESSAGES} messages and knows no flags beyond {_KNOWN}")
    if not flags & HEADS and head_bytes:
        raise _refuse("head bytes without a head column")
    if columns_end(count, flags) + (head_bytes + 7 & ~7) + body_bytes != len(buffer):
        raise _refuse("the parts of the block do not add up to its length")
    width = (count + 1) * 4
    view = memoryview(buffer)
    _check_offsets(view[HEADER_BYTES : HEADER_BYTES + width], body_bytes)
    if flags & HEADS:
        start = HEADER_BYTES + (width + 7 & ~7)
        _check_offsets(view[start : start + width], head_bytes)
    if flags & (EXPIRIES | DELIVERIES):
        # The other times are only passed on; by these the server goes.
        start = HEADER_BYTES + (width + 7 & ~7) * (2 if flags & HEADS else 1)
        start += count * 8 if flags & TIMESTAMPS else 0
        columns = (flags & EXPIRIES != 0) + (flags & DELIVERIES != 0)
        if min(view[start : start + columns * count * 8].cast("q").tolist()) < 0:
            raise _refuse("a time is before 1970")
    if flags & PRIORITIES:
        start = columns_end(count, flags) - (count + 7 & ~7)
        if max(view[start : start + count]) > 9:
            raise _refuse("a priority is beyond 9")


def _check_offsets(raw: memoryview, total: int) -> None:
    offsets = raw.cast("I").tolist()
    if offsets[0] != 0 or offsets[-1] != total or sorted(offsets) != offsets:
        raise _refuse("the offsets do not climb from 0 to the end")


def slice_span(span: Span) -> list[bytes | memoryview]:
    """The bytes of a span as a block of its own: whole as it came, or a fragment with its own header.

    A fragment's offsets are not rebased and its checksum is 0: it only ever travels to a client, over a
    connection.
    """
    block = span.block
    buffer = block.buffer
    assert buffer is not None, "the caller loads a block before it slices it"
    start, stop = span.start, span.stop
    if start == 0 and stop == block.count:
        return [buffer]
    header = _HEADER.unpack_from(buffer)
    flags, _head_bytes, body_bytes = header[6:9]
    view = memoryview(buffer)
    count = stop - start
    total_count = block.count
    parts: list[bytes | memoryview] = [b""]
    width = (total_count + 2 & ~1) * 4
    cursor = HEADER_BYTES
    body_start, body_stop = _slice_offsets(view, cursor, start, stop, parts)
    cursor += width
    head_start = head_stop = 0
    if flags & HEADS:
        head_start, head_stop = _slice_offsets(view, cursor, start, stop, parts)
        cursor += width
    for flag in (TIMESTAMPS, EXPIRIES, DELIVERIES, UNITS):
        if flags & flag:
            parts.append(view[cursor + start * 8 : cursor + stop * 8])
            cursor += total_count * 8
    if flags & PRIORITIES:
        parts += (view[cursor + start : cursor + stop], PADDING[count & 7])
        cursor += total_count + 7 & ~7
    if flags & HEADS:
        parts += (view[cursor + head_start : cursor + head_stop], PADDING[head_stop - head_start & 7])
    body_base = len(buffer) - body_bytes
    parts.append(view[body_base + body_start : body_base + body_stop])
    rest = _REST.pack(
        count,
        flags,
        head_stop - head_start,
        body_stop - body_start,
        *header[9:14],
        header[14] + start,
        *header[15:],
    )
    length = HEADER_BYTES + sum(map(len, parts))
    parts[0] = _PREFIX.pack(MAGIC, VERSION, FRAGMENT, length, 0) + rest
    return parts


def _slice_offsets(
    view: memoryview, cursor: int, start: int, stop: int, parts: list[bytes | memoryview]
) -> tuple[int, int]:
    raw = view[cursor + start * 4 : cursor + (stop + 1) * 4]
    parts += (raw, PADDING[len(raw) & 7])
    offsets = raw.cast("I")
    return offsets[0], offsets[-1]


class Contents(msgspec.Struct, gc=False):
    """A delivered block taken apart, for those who look at single messages."""

    count: int
    flags: int
    priority: int
    persistent: bool
    kind: int
    lane: LaneId
    first: int
    timestamp: int
    expiry: int
    delivery_time: int
    bodies: list[bytes]
    heads: list[bytes] | None
    timestamps: list[int] | None
    expiries: list[int] | None
    delivery_times: list[int] | None
    units: list[int] | None
    priorities: list[int] | None
    sequences: list[int] | None = None
    lanes: list[LaneId] | None = None


def unpack(buffer: bytes) -> Contents:
    """Take a block or fragment apart. Checks a whole block's checksum; raises ClientFault on bytes that are
    no block."""
    try:
        return _unpack(buffer)
    except (struct.error, IndexError, TypeError, ValueError) as fault:
        raise _refuse(f"not a block: {fault}") from None


def _unpack(buffer: bytes) -> Contents:
    (
        magic,
        version,
        form,
        length,
        checksum,
        count,
        flags,
        head_bytes,
        body_bytes,
        priority,
        delivery,
        kind,
        _reserved,
        lane,
        first,
        timestamp,
        expiry,
        delivery_time,
    ) = _HEADER.unpack_from(buffer)
    if magic != MAGIC or version != VERSION or form > FRAGMENT or length != len(buffer):
        raise _refuse(f"not a block of version {VERSION}")
    view = memoryview(buffer)
    if form == WHOLE and crc32c(view[PREFIX_BYTES:]) != checksum:
        raise _refuse("the block's checksum does not match its bytes")
    contents = Contents(
        count,
        flags,
        priority,
        delivery & PERSISTENT != 0,
        kind,
        lane,
        first,
        timestamp,
        expiry,
        delivery_time,
        [],
        None,
        None,
        None,
        None,
        None,
        None,
    )
    if flags & LONE:
        middle = HEADER_BYTES + head_bytes
        contents.bodies = [buffer[middle:]]
        if flags & HEADS:
            contents.heads = [buffer[HEADER_BYTES:middle]]
        return contents
    _unpack_columns(buffer, view, contents, head_bytes, body_bytes)
    return contents


def _unpack_columns(
    buffer: bytes, view: memoryview, into: Contents, head_bytes: int, body_bytes: int
) -> None:
    count, flags = into.count, into.flags
    if columns_end(count, flags) + (head_bytes + 7 & ~7) + body_bytes != len(buffer):
        raise _refuse("the parts of the block do not add up to its length")
    width = (count + 2 & ~1) * 4
    cursor = HEADER_BYTES
    into.bodies = _cut(buffer, view, cursor, count, len(buffer) - body_bytes)
    cursor += width
    head_column = cursor
    if flags & HEADS:
        cursor += width
    if flags & TIMESTAMPS:
        into.timestamps = view[cursor : cursor + count * 8].cast("q").tolist()
        cursor += count * 8
    if flags & EXPIRIES:
        into.expiries = view[cursor : cursor + count * 8].cast("q").tolist()
        cursor += count * 8
    if flags & DELIVERIES:
        into.delivery_times = view[cursor : cursor + count * 8].cast("q").tolist()
        cursor += count * 8
    if flags & UNITS:
        into.units = view[cursor : cursor + count * 8].cast("Q").tolist()
        cursor += count * 8
    if flags & PRIORITIES:
        into.priorities = view[cursor : cursor + count].tolist()
        cursor += count + 7 & ~7
    if flags & SEQUENCES:
        into.sequences = view[cursor : cursor + count * 8].cast("Q").tolist()
        cursor += count * 8
    if flags & LANES:
        into.lanes = [LaneId(buffer[at : at + 16]) for at in range(cursor, cursor + count * 16, 16)]
        cursor += count * 16
    if flags & HEADS:
        into.heads = _cut(buffer, view, head_column, count, cursor)


def _cut(buffer: bytes, view: memoryview, column: int, count: int, region: int) -> list[bytes]:
    """Slice a region by its offsets; a fragment's offsets start above 0."""
    offsets = view[column : column + (count + 1) * 4].cast("I").tolist()
    region -= offsets[0]
    if region:
        offsets = [region + offset for offset in offsets]
    return [buffer[start:stop] for start, stop in pairwise(offsets)]


def head_at(block: Block, index: int) -> bytes:
    """The head of one message of a block whose bytes are at hand."""
    buffer = block.buffer
    assert buffer is not None
    if not block.flags & HEADS:
        return b""
    head_bytes, body_bytes = _TOTALS.unpack_from(buffer, _TOTALS_AT)
    if block.flags & LONE:
        return buffer[HEADER_BYTES : HEADER_BYTES + head_bytes]
    offsets = HEADER_BYTES + (block.count + 2 & ~1) * 4 + index * 4
    start, stop = _TOTALS.unpack_from(buffer, offsets)
    base = len(buffer) - body_bytes - (head_bytes + 7 & ~7)
    return buffer[base + start : base + stop]


def kind_of(block: Block) -> int:
    """The body kind of a block whose bytes are at hand."""
    assert block.buffer is not None
    return block.buffer[30]


def lone_body(block: Block) -> bytes:
    """The body of a block of one message whose bytes are at hand."""
    assert block.buffer is not None
    assert block.count == 1
    (body_bytes,) = _BODY_BYTES.unpack_from(block.buffer, _BODY_BYTES_AT)
    return block.buffer[len(block.buffer) - body_bytes :]


def merge_lone(run: Sequence[Block]) -> Block:
    """One block of lone messages that follow one another on a lane and have equal headers and no heads."""
    first = run[0]
    bodies = [block.buffer[HEADER_BYTES:] for block in run if block.buffer is not None]
    assert len(bodies) == len(run)
    buffer = pack(
        bodies,
        lane=first.lane,
        first=first.first,
        timestamp=first.timestamp,
        priority=first.priority,
        persistent=first.persistent,
        kind=kind_of(first),
        timestamps=[block.timestamp for block in run],
    )
    merged = parse_trusted(buffer, first.position)
    merged.number = first.number
    merged.positions = array("Q", [block.position for block in run])
    return merged


def priority_runs(block: Block) -> list[tuple[int, int, int]]:
    """Runs of equal priority in a block whose messages differ: (priority, start, stop)."""
    assert block.buffer is not None
    assert block.flags & PRIORITIES
    start = columns_end(block.count, block.flags) - (block.count + 7 & ~7)
    runs: list[tuple[int, int, int]] = []
    index = 0
    for priority, same in groupby(block.buffer[start : start + block.count]):
        count = sum(1 for _ in same)
        runs.append((priority, index, index + count))
        index += count
    return runs


def expiries_of(span: Span) -> list[int]:
    """When each message of a span expires (microseconds, 0: never)."""
    return _times_of(span, EXPIRIES, span.block.expiry)


def delivery_times_of(span: Span) -> list[int]:
    """When each message of a span may be handed out (microseconds, 0: at once)."""
    return _times_of(span, DELIVERIES, span.block.delivery_time)


def _times_of(span: Span, flag: int, uniform: int) -> list[int]:
    if not span.block.flags & flag:
        return [uniform] * (span.stop - span.start)
    return column_of(span, flag, "q")


def column_of(span: Span, flag: int, typecode: Literal["q", "Q"]) -> list[int]:
    """What a column of 8-byte numbers, which the block has, says of each message of a span."""
    block = span.block
    assert block.buffer is not None
    start = _column_at(block.count, block.flags, flag)
    column = memoryview(block.buffer)[start + span.start * 8 : start + span.stop * 8]
    return column.cast(typecode).tolist()


def _column_at(count: int, flags: int, flag: int) -> int:
    """Where a column of 8-byte numbers begins."""
    offsets = (count + 2 & ~1) * 4
    start = HEADER_BYTES + offsets * (2 if flags & HEADS else 1)
    for earlier in (TIMESTAMPS, EXPIRIES, DELIVERIES, UNITS):
        if earlier < flag and flags & earlier:
            start += count * 8
    return start
