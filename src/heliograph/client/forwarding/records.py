"""The bytes of a store: how records become frames, and the judgement of what a disk gave back.

A segment is a header with the store's id, then frames, each with one record. A frame's header says where it stands,
so that bytes which only look like a frame are never taken for one, and how far the store was known to be durable, so
that a tear can be told from damage. At the first place where no good frame stands:

1. A later frame says that the store had been durable beyond this place: no crash explains that. Damage.
2. It is the last segment and the place shows a tear (the file ends inside the frame, or a sector of it is zeros):
   nobody was told that what follows is stored, so it is cut.
3. Everything is there and a checksum differs: refuse rather than guess. Damage.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from crc32c import crc32c

from heliograph.model.errors import CorruptJournal

FORMAT_VERSION: Final = 1
SECTOR_BYTES: Final = 512
STORE_ID_BYTES: Final = 16

_SEGMENT_MAGIC: Final = b"HELIOSAF"
_SEGMENT_HEADER = struct.Struct("<8sII16s")  # magic, version, checksum of version and id, id of the store
_VERSION = struct.Struct("<I")
SEGMENT_HEADER_BYTES: Final = _SEGMENT_HEADER.size
assert SEGMENT_HEADER_BYTES == 32

_FRAME_MAGIC: Final = b"HSFR"
_PREFIX = struct.Struct("<4sI")  # magic, checksum of the rest of the header
_REST = struct.Struct(
    "<IIBxxxIQQ"
)  # payload length, payload checksum, kind, lane, own position, durable position
FRAME_HEADER_BYTES: Final = _PREFIX.size + _REST.size
assert FRAME_HEADER_BYTES == 40

_OFFSET_BITS: Final = 32
_OFFSET_MASK: Final = (1 << _OFFSET_BITS) - 1


class RecordKind(enum.IntEnum):
    """What a record tells."""

    STATE = 1  # the session and all lanes with their marks
    LANE = 2  # a new lane
    BLOCK = 3  # messages, as the client packs them
    CONFIRMED = 4  # pairs of a lane and the last sequence that the server has
    MOVED = 5  # a block again, whose segment is to go


class Frame(NamedTuple):
    """A frame as a scan hands it over. `payload` is a view: copy what is to be kept after the call."""

    kind: int
    lane: int
    position: int
    payload: memoryview


class _Header(NamedTuple):
    length: int
    checksum: int
    kind: int
    lane: int
    position: int
    durable: int


def position_of(segment: int, offset: int) -> int:
    return segment << _OFFSET_BITS | offset


def segment_of(position: int) -> int:
    return position >> _OFFSET_BITS


def offset_of(position: int) -> int:
    return position & _OFFSET_MASK


def pack_segment_header(store_id: bytes) -> bytes:
    checksum = crc32c(_VERSION.pack(FORMAT_VERSION) + store_id)
    return _SEGMENT_HEADER.pack(_SEGMENT_MAGIC, FORMAT_VERSION, checksum, store_id)


def read_segment_header(view: memoryview, path: str) -> bytes:
    """The store's id. Raises CorruptJournal where no segment of ours begins."""
    if len(view) < SEGMENT_HEADER_BYTES:
        raise CorruptJournal("the file is too short for a segment of a store", path=path, position=len(view))
    magic, version, checksum, store_id = _SEGMENT_HEADER.unpack_from(view)
    if magic != _SEGMENT_MAGIC or checksum != crc32c(_VERSION.pack(version) + store_id):
        raise CorruptJournal(
            "this is not a segment of a store, or its header is damaged", path=path, position=0
        )
    if version != FORMAT_VERSION:
        raise CorruptJournal(f"the store has format {version}, not {FORMAT_VERSION}", path=path, position=8)
    found: bytes = store_id
    return found


def seed_of(store_id: bytes) -> int:
    """What header checksums of a store start from: another store's frames do not pass for ours."""
    seed: int = crc32c(store_id)
    return seed


def pack_frame(kind: int, lane: int, payload: bytes, *, position: int, durable: int, seed: int) -> bytes:
    """The header that goes before a payload."""
    rest = _REST.pack(len(payload), crc32c(payload), kind, lane, position, durable)
    return _PREFIX.pack(_FRAME_MAGIC, crc32c(rest, seed)) + rest


def read_frame(view: memoryview, offset: int, position: int, seed: int) -> Frame | None:
    """The frame that stands here, or None."""
    header = _read_header(view, offset, position, seed)
    if header is None:
        return None
    start = offset + FRAME_HEADER_BYTES
    payload = view[start : start + header.length]
    if len(payload) != header.length or crc32c(payload) != header.checksum:
        return None
    return Frame(header.kind, header.lane, header.position, payload)


def _read_header(view: memoryview, offset: int, position: int, seed: int) -> _Header | None:
    if offset + FRAME_HEADER_BYTES > len(view):
        return None
    magic, checksum = _PREFIX.unpack_from(view, offset)
    start = offset + _PREFIX.size
    if magic != _FRAME_MAGIC or crc32c(view[start : start + _REST.size], seed) != checksum:
        return None
    header = _Header._make(_REST.unpack_from(view, start))
    return header if header.position == position else None


def scan_segment(
    buffer: bytes,
    segment: int,
    *,
    path: str,
    seed: int,
    is_last: bool,
    on_frame: Callable[[Frame], None],
) -> int:
    """Hand over every good frame. Returns where the segment ends: before its length where a tear is to be cut.

    Raises CorruptJournal.
    """
    view = memoryview(buffer)
    offset = SEGMENT_HEADER_BYTES
    if read_frame(view, offset, position_of(segment, offset), seed) is None:
        # A segment gets its name when its first frame is durable.
        raise CorruptJournal("the segment does not begin with its state", path=path, position=offset)
    while offset < len(view):
        frame = read_frame(view, offset, position_of(segment, offset), seed)
        if frame is None:
            _judge(buffer, view, segment, offset, path=path, seed=seed, is_last=is_last)
            return offset
        on_frame(frame)
        offset += FRAME_HEADER_BYTES + len(frame.payload)
    return offset


def _judge(
    buffer: bytes, view: memoryview, segment: int, offset: int, *, path: str, seed: int, is_last: bool
) -> None:
    """Raises CorruptJournal unless a crash explains what stands here."""
    place = position_of(segment, offset)
    found = buffer.find(_FRAME_MAGIC, offset + 1)
    while found >= 0:
        header = _read_header(view, found, position_of(segment, found), seed)
        if header is not None and header.durable > place:
            raise CorruptJournal("bytes that had been stored are damaged", path=path, position=offset)
        found = buffer.find(_FRAME_MAGIC, found + 1)
    if not is_last:
        raise CorruptJournal("a segment that was complete is damaged", path=path, position=offset)
    if not _is_torn(view, offset, _read_header(view, offset, place, seed)):
        raise CorruptJournal(
            "the checksum does not match the bytes, and no tear explains it", path=path, position=offset
        )


def _is_torn(view: memoryview, offset: int, header: _Header | None) -> bool:
    """Whether the end of the file, or a sector that was never written, explains the bad frame here."""
    stop = offset + FRAME_HEADER_BYTES + (header.length if header is not None else 0)
    if stop > len(view):
        return True
    while offset < stop:
        boundary = min((offset // SECTOR_BYTES + 1) * SECTOR_BYTES, stop)
        if not any(view[offset:boundary]):
            return True
        offset = boundary
    return False
