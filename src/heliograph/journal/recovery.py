"""Judges what the disk gave back: a clean end, a torn tail to be cut, or corruption that stops the node.

What a crash may do: the disk writes sectors of 512 bytes whole, but of everything that was not yet synced any
sector may be missing and then shows what stood there before; in a segment that is zeros. So at the first
place where no good frame stands:

1. A later frame says that the log had been durable beyond this place: no crash explains that. Corrupt.
2. The place shows a tear (zeros where the frame or a sector of it should be, or the file ends inside it):
   nobody was told that what follows is stored, so it is cut.
3. Everything is there and the checksum differs: refuse rather than guess. Corrupt.

Nothing here reads a file: the shell feeds the bytes of one segment after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from heliograph.journal.records import (
    FRAME_HEADER_BYTES,
    FRAME_MAGIC,
    FrameHeader,
    Record,
    offset_of,
    position_of,
    read_frame_header,
    scan_frames,
    segment_of,
)
from heliograph.model.errors import CorruptJournal

if TYPE_CHECKING:
    import mmap

    SegmentBytes = bytes | mmap.mmap

SECTOR_BYTES: Final = 512
_CHUNK_BYTES: Final = 1 << 20
_ZEROS: Final = bytes(_CHUNK_BYTES)


class LogEnd(msgspec.Struct, frozen=True):
    """Where the log ends and the next frame goes."""

    position: int
    frames_end: int  # where the last frame ends: the same place, or the end of a segment before
    next_lsn: int
    durable: int  # how far the log was surely durable, by the last frame's word
    records: int
    frames: int
    scanned_bytes: int
    cut_bytes: int  # torn bytes behind the end, in this segment and later ones


class _Place(msgspec.Struct):
    """A place where no good frame stands."""

    position: int
    path: str
    torn: bool
    residue: int  # bytes behind it that are not zero


class LogScan:
    """Walks over the frames of a log from the start of replay.

    Feed every segment from there on, in order, then finish.
    """

    def __init__(self, *, seed: int, start: int, lsn: int, on_record: Callable[[Record], None]) -> None:
        self._seed = seed
        self._on_record = on_record
        self._expected_segment = segment_of(start)
        self._offset = offset_of(start)
        self._lsn = lsn
        self._durable = start
        self._records = 0
        self._frames = 0
        self._bytes = 0
        # Where the frames first ran out since the last good one, and where they ran out last: a roll leaves
        # such a place too.
        self._first_end: _Place | None = None
        self._last_end: _Place | None = None
        self._stop: _Place | None = None
        self._evidence = 0  # the largest durable position that any frame behind the end names

    def feed(self, number: int, buffer: SegmentBytes, path: str) -> None:
        if number != self._expected_segment:
            raise CorruptJournal(
                f"segment {self._expected_segment} is missing before this one", path=path, position=0
            )
        self._expected_segment += 1
        with memoryview(buffer) as view:
            if self._stop is None and self._first_end and self._last_end:
                self._check_chain(view, number, self._first_end, self._last_end)
            if self._stop is not None:
                self._search(buffer, view, number, 0)
                self._stop.residue += _residue(buffer, 0)
            else:
                self._walk(buffer, view, number, path)

    def finish(self) -> LogEnd:
        """The verdict. Raises CorruptJournal."""
        place = self._stop or self._last_end
        assert place is not None, "at least one segment was fed"
        frames_end = (self._first_end or place).position
        if self._stop is not None or place.residue:
            if self._evidence > frames_end:
                raise _corrupt(place, "bytes that had been stored are damaged or gone")
            if not place.torn:
                raise _corrupt(place, "the checksum does not match the bytes, and no tear explains it")
        return LogEnd(
            position=place.position,
            frames_end=frames_end,
            next_lsn=self._lsn,
            durable=min(self._durable, place.position),
            records=self._records,
            frames=self._frames,
            scanned_bytes=self._bytes,
            cut_bytes=place.residue,
        )

    def _check_chain(self, view: memoryview, number: int, first_end: _Place, last_end: _Place) -> None:
        """Whether the first frame of this segment goes on where the frames before ran out.

        If not, frames are missing there. If there is none, what stood behind the end before may be the rest
        of one.
        """
        header = read_frame_header(view, number, 0, self._seed)
        if last_end.residue if header is None else not self._follows(header):
            if first_end is not last_end:
                first_end.residue += last_end.residue
            self._stop = first_end

    def _follows(self, header: FrameHeader) -> bool:
        """Whether this frame is the next one.

        A snapshot may have counted LSNs that the first frame behind it skips.
        """
        if self._frames == 0:
            return header.first_lsn - header.skipped <= self._lsn <= header.first_lsn
        return header.first_lsn - header.skipped == self._lsn

    def _walk(self, buffer: SegmentBytes, view: memoryview, number: int, path: str) -> None:
        start = self._offset
        self._offset = 0
        if start > len(view):
            raise CorruptJournal(
                "the segment is shorter than its snapshot says", path=path, position=len(view)
            )
        header = read_frame_header(view, number, start, self._seed)
        if header is not None and self._follows(header):
            self._lsn = header.first_lsn - header.skipped
        scan = scan_frames(view, number, start, self._lsn, self._seed, self._on_record)
        if scan.fault:
            raise CorruptJournal(scan.fault, path=path, position=scan.offset)
        if scan.frames:
            self._lsn = scan.next_lsn
            self._durable = scan.durable
            self._records += scan.records
            self._frames += scan.frames
            self._bytes += scan.offset - start
            self._first_end = self._last_end = None
            self._evidence = 0
        self._end_at(buffer, view, number, scan.offset, path)

    def _end_at(self, buffer: SegmentBytes, view: memoryview, number: int, offset: int, path: str) -> None:
        """No good frame stands here: either nothing was written, or something is wrong."""
        is_blank = _is_zero(buffer, offset, offset + FRAME_HEADER_BYTES)
        torn = is_blank or _is_torn(buffer, offset, read_frame_header(view, number, offset, self._seed))
        place = _Place(position_of(number, offset), path, torn, _residue(buffer, offset))
        self._search(buffer, view, number, offset)
        if not is_blank:
            self._stop = place
            return
        self._last_end = place
        self._first_end = self._first_end or place

    def _search(self, buffer: SegmentBytes, view: memoryview, number: int, offset: int) -> None:
        """Look for frames behind the end and note how far they say the log was durable.

        Their headers are witness enough.
        """
        found = buffer.find(FRAME_MAGIC, offset)
        while found >= 0:
            header = read_frame_header(view, number, found, self._seed)
            if header is not None:
                self._evidence = max(self._evidence, header.durable)
            found = buffer.find(FRAME_MAGIC, found + 1)


def _corrupt(place: _Place, sentence: str) -> CorruptJournal:
    return CorruptJournal(sentence, path=place.path, position=offset_of(place.position))


def _is_torn(buffer: SegmentBytes, offset: int, header: FrameHeader | None) -> bool:
    """Whether a missing sector, or the end of the file, explains the bad frame here."""
    stop = offset + FRAME_HEADER_BYTES + (header.length if header else 0)
    if stop > len(buffer):
        return True
    cursor = offset
    while cursor < stop:
        boundary = min((cursor // SECTOR_BYTES + 1) * SECTOR_BYTES, stop)
        if _is_zero(buffer, cursor, boundary):
            return True
        cursor = boundary
    return False


def _is_zero(buffer: SegmentBytes, start: int, stop: int) -> bool:
    found = buffer[start:stop]
    return found == _ZEROS[: len(found)]


def _residue(buffer: SegmentBytes, offset: int) -> int:
    """How many bytes there are from here to the last one that is not zero."""
    stop = len(buffer)
    while stop > offset:
        start = max(offset, stop - _CHUNK_BYTES)
        chunk = buffer[start:stop]
        if chunk != _ZEROS[: len(chunk)]:
            return start + len(chunk.rstrip(b"\0")) - offset
        stop = start
    return 0
