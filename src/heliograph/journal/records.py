"""Records and the frames they travel in: how they become bytes and how bytes are read back.

A frame is what one write puts on the disk: a header, then records. Its header says where it stands, so that
bytes which only look like a frame (a message whose body is a journal) are never taken for one, and how far
the log was known to be durable, so that recovery can tell a tear from rot. What a record means is its
writer's business. The layout is documented field by field in docs/reference/journal-format.md.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec
from crc32c import crc32c

FORMAT_VERSION: Final = 1
FRAME_MAGIC: Final = b"HJFR"

_FRAME_PREFIX = struct.Struct("<4sI")  # magic, checksum of the rest of the header
# payload length, payload checksum, first LSN, records, LSNs skipped before, durable position, own position
_FRAME_REST = struct.Struct("<IIQIIQQ")
_FRAME_HEADER = struct.Struct("<4sIIIQIIQQ")  # both together
RECORD_HEADER: Final = struct.Struct("<IBBHII")  # length, kind, flags, reserved, destination, list

FRAME_HEADER_BYTES: Final = _FRAME_PREFIX.size + _FRAME_REST.size
RECORD_HEADER_BYTES: Final = RECORD_HEADER.size
assert FRAME_HEADER_BYTES == 48
assert RECORD_HEADER_BYTES == 16

# What stands behind a payload of this many bytes modulo 8. Every record starts at a multiple of 8.
PADDING: Final = tuple(b"\0" * (-size % 8) for size in range(8))

OFFSET_BITS: Final = 32
OFFSET_MASK: Final = (1 << OFFSET_BITS) - 1


class RecordKind(enum.IntEnum):
    """What a record tells. Opaque to the journal, but for SPILLED: those do not outlive a restart."""

    PUBLISHED = 1
    SPILLED = 2
    DONE = 3
    DISPATCHED = 4
    RETURNED = 5
    DESTINATION = 6
    SESSION = 7
    STARTED = 8
    STOPPED = 9
    MOVED = 10
    SUBSCRIPTION = 11
    RELOCATED = 12
    STAGED = 13
    COMMITTED = 14
    UNSEEN = 15
    ADOPTED = 16
    VIEW = 17
    IDENTITY = 18
    PREPARED = 19
    FINISHED = 20
    DOCUMENT = 21
    PATH = 22
    ENTERED = 25
    IN_FORCE = 26
    WHOLE = 27
    HELD = 28
    JOINED = 29
    MISSED = 30
    KNOWN = 31
    MERGED = 32
    DOUBTED = 33
    UNRESTRICTED = 34
    ENROLMENT = 35
    PLACE = 36
    HISTORY = 37
    BROUGHT = 38
    ALERT = 40
    ALERT_HANDED = 41
    ALERT_TAKEN = 42
    ALERT_ENDED = 43
    ALERT_SUBSCRIBER = 44
    PIPELINE = 60
    TIME = 61


_SPILLED: Final = 2
MOMENT: Final = struct.Struct("<q")
"""What TIME says, in microseconds: when what stands in front of it was written, back to the TIME before."""
NO_MOMENT: Final = MOMENT.pack(0)
"""Nobody knows when."""


class Record(msgspec.Struct, gc=False):
    """A record as replay hands it over. `payload` is a view: copy what is to be kept after the call."""

    kind: int
    destination: int
    list: int
    lsn: int
    position: int
    payload: memoryview | bytes


class FrameHeader(NamedTuple):
    """The facts of a frame header whose checksum and place were right."""

    length: int
    checksum: int
    first_lsn: int
    records: int
    skipped: int
    durable: int
    position: int


def position_of(segment: int, offset: int) -> int:
    return segment << OFFSET_BITS | offset


def segment_of(position: int) -> int:
    return position >> OFFSET_BITS


def offset_of(position: int) -> int:
    return position & OFFSET_MASK


def seed_of(store_id: str) -> int:
    """What header checksums of a store start from: another store's segments do not pass for ours."""
    seed: int = crc32c(store_id.encode())
    return seed


def pack_frame_header(
    length: int,
    checksum: int,
    first_lsn: int,
    count: int,
    skipped: int,
    durable: int,
    position: int,
    seed: int,
) -> bytes:
    rest = _FRAME_REST.pack(length, checksum, first_lsn, count, skipped, durable, position)
    return _FRAME_PREFIX.pack(FRAME_MAGIC, crc32c(rest, seed)) + rest


def read_frame_header(view: memoryview, segment: int, offset: int, seed: int) -> FrameHeader | None:
    """The header at this place of a segment, or None if no frame was written here."""
    if offset + FRAME_HEADER_BYTES > len(view):
        return None
    magic, checksum = _FRAME_PREFIX.unpack_from(view, offset)
    if magic != FRAME_MAGIC:
        return None
    start = offset + _FRAME_PREFIX.size
    if crc32c(view[start : start + _FRAME_REST.size], seed) != checksum:
        return None
    header = FrameHeader._make(_FRAME_REST.unpack_from(view, start))
    return header if header.position == position_of(segment, offset) else None


class Scan(NamedTuple):
    """How far good frames reached from where the scan began."""

    offset: int
    next_lsn: int
    durable: int  # what the last of them said; 0: there was none
    records: int
    frames: int
    fault: str  # a frame with good checksums that cannot be: only a bug explains it


def scan_frames(
    view: memoryview, segment: int, offset: int, lsn: int, seed: int, on_record: Callable[[Record], None]
) -> Scan:
    """Hand over the records of every good frame from `offset` on, up to the first place where none stands.

    Written for speed: a start replays some 700,000 records. `read_frame_header` has its checks in plain.
    """
    base = segment << OFFSET_BITS
    last_start = len(view) - FRAME_HEADER_BYTES
    unpack_frame = _FRAME_HEADER.unpack_from
    unpack_record = RECORD_HEADER.unpack_from
    durable = records = frames = 0
    fault = ""
    while offset <= last_start:
        magic, check, length, payload_check, first, count, skipped, said, position = unpack_frame(
            view, offset
        )
        cursor = offset + FRAME_HEADER_BYTES
        stop = cursor + length
        if (
            magic != FRAME_MAGIC
            or position != base | offset
            or crc32c(view[offset + 8 : cursor], seed) != check
            or stop > len(view)
            or crc32c(view[cursor:stop]) != payload_check
        ):
            break
        if first - skipped != lsn:
            fault = f"the frame begins with LSN {first} and skips {skipped}, but LSN {lsn} follows"
            break
        lsn = first
        # Only a record that is all inside its frame is handed over; what else there is does not add up.
        while cursor + RECORD_HEADER_BYTES <= stop:
            size, kind, _flags, _reserved, destination, list_number = unpack_record(view, cursor)
            start = cursor + RECORD_HEADER_BYTES
            cursor = start + (size + 7 & ~7)
            if kind != _SPILLED and cursor <= stop:
                payload = view[start : start + size]
                on_record(Record(kind, destination, list_number, lsn, base | start, payload))
            lsn += 1
        if cursor != stop or lsn != first + count:
            fault = "the records of the frame do not add up"
            break
        offset = stop
        durable = said
        records += count
        frames += 1
    return Scan(offset, lsn, durable, records, frames, fault)
