"""The end of the log: gathers the records of a tick, writes them as one frame, and finds room for them.

Room is taken when a record is appended, so whatever has a position can be written. When there is no room for
another segment, bulky records are refused and the others use the reserve that every segment keeps for them:
acknowledgements must find room on a full disk, for they are what frees it. Nothing here waits for the disk;
`syncing` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from crc32c import crc32c

from heliograph.journal.directory import Directory, write_all
from heliograph.journal.records import (
    FRAME_HEADER_BYTES,
    OFFSET_BITS,
    PADDING,
    RECORD_HEADER,
    RECORD_HEADER_BYTES,
    pack_frame_header,
)
from heliograph.journal.recovery import LogEnd
from heliograph.journal.segments import Segments
from heliograph.model.errors import StorageFull
from heliograph.model.limits import KIB, MIB

# The end of each segment that is kept for records that are not bulky: tens of thousands of acknowledgements.
_RESERVE_BYTES: Final = MIB
# A full disk is asked this often whether there is room again.
_ROOM_RETRY_SECONDS: Final = 0.1
# Pieces smaller than this on average are joined before the checksum: a call for each costs more than the
# copy.
_JOIN_BELOW: Final = 4 * KIB

_pack_record = RECORD_HEADER.pack


class LogWriter:
    """Appends to the segment in use and rolls to the next.

    Reports a broken disk to `fail`, sealed segments to `seal`.
    """

    def __init__(
        self,
        directory: Directory,
        segments: Segments,
        loop: asyncio.AbstractEventLoop,
        *,
        segment_bytes: int,
        quota_bytes: int,
        seal: Callable[[int, int, int], None],
        fail: Callable[[Exception], None],
    ) -> None:
        self._directory = directory
        self._disk = directory.disk
        self._segments = segments
        self._loop = loop
        self._segment_bytes = segment_bytes
        self._quota_bytes = quota_bytes
        self._reserve = min(_RESERVE_BYTES, segment_bytes // 4)
        self._seal = seal
        self._fail = fail
        self._seed = 0
        self.descriptor = -1
        self._base = 0
        # Where the frame that is being gathered will stand, and where its next record goes.
        self._frame = 0
        self._fill = 0
        self._easy_limit = 0  # up to here any record may go; beyond, something must be decided
        self._limit = 0
        self._pieces: list[bytes | memoryview] = []
        self.count = 0
        self.next_lsn = 1
        self.written_lsn = 0
        self.is_wanted = False  # somebody waits for a record that was appended since this was last cleared
        self.is_full = False
        self.has_failed = False
        # Where the last frame ends. After a roll that is in the segment before: only so can recovery take a
        # durable position beyond the end of what it found for a sign that frames are missing.
        self.frames_end = 0
        self.durable_position = 0  # what the next frame says
        self.snapshot_bytes = 0  # what snapshots take of the quota
        self.refused: list[int] = []
        self._skipped = 0
        self._room_timer: asyncio.TimerHandle | None = None
        self._room_retry_at = 0.0
        self.frames_written = 0
        self.bytes_written = 0

    def start(self, descriptor: int, end: LogEnd, size: int, seed: int) -> None:
        """Go on where the log ends, in this segment."""
        position = end.position
        self._seed = seed
        self.next_lsn = end.next_lsn
        self.written_lsn = end.next_lsn - 1
        self.frames_end = self.durable_position = end.frames_end
        self._use(descriptor, position >> OFFSET_BITS, size)
        self._frame += position - self._base
        self._fill += position - self._base

    def stop(self) -> None:
        if self._room_timer is not None:
            self._room_timer.cancel()
        if self.descriptor >= 0:
            self._disk.close(self.descriptor)
            self.descriptor = -1

    @property
    def position(self) -> int:
        """Where the next frame will stand."""
        return self._base + self._frame

    def append(
        self,
        kind: int,
        destination: int,
        list_number: int,
        parts: Sequence[bytes | memoryview],
        size: int,
        *,
        bulky: bool = False,
        wait: bool = False,
    ) -> int:
        """Add a record to this tick's frame; its LSN is what `next_lsn` was.

        Returns where its payload will stand; 0: refused. `size` is the sum of the parts' lengths. Somebody
        waits for bulky records, and for others if `wait` says so.
        """
        start = self._fill + RECORD_HEADER_BYTES
        end = start + (size + 7 & ~7)
        if end > self._easy_limit:
            start = self._make_room(end - self._fill, bulky)
            if not start:
                return 0
            end = start + (size + 7 & ~7)
        pieces = self._pieces
        pieces.append(_pack_record(size, kind, 0, 0, destination, list_number))
        pieces += parts
        if size & 7:
            pieces.append(PADDING[size & 7])
        self._fill = end
        self.count += 1
        self.next_lsn += 1
        if bulky or wait:
            self.is_wanted = True
        return self._base + start

    def reserve(self, size: int) -> bool:
        """See to it that the next records, `size` bytes with their headers, stand in one frame: all or
        nothing."""
        if self._fill + size <= self._easy_limit:
            return True
        return not self.has_failed and self._try_next_segment(size)

    def write_frame(self) -> None:
        """Hand what was gathered to the system in one write."""
        count = self.count
        if not count or self.has_failed:
            return
        pieces, self._pieces = self._pieces, []
        self.count = 0
        frame = self._frame
        length = self._fill - frame - FRAME_HEADER_BYTES
        if length < _JOIN_BELOW * len(pieces):
            pieces = [b"".join(pieces)]
        checksum = 0
        for piece in pieces:
            checksum = crc32c(piece, checksum)
        if self._write(pieces, length, checksum, count):
            self.written_lsn = self.next_lsn - 1

    def write_mark(self) -> bool:
        """An empty frame that only says how far the log is durable. False: there was no room for it."""
        assert not self.count, "what was gathered is written first"
        return self._fill <= self._limit and self._write([], 0, 0, 0)

    def _write(self, pieces: list[bytes | memoryview], length: int, checksum: int, count: int) -> bool:
        frame = self._frame
        header = pack_frame_header(
            length,
            checksum,
            self.next_lsn - count,
            count,
            self._skipped,
            self.durable_position,
            self._base + frame,
            self._seed,
        )
        pieces.insert(0, header)
        try:
            write_all(self._disk, self.descriptor, pieces, frame)
        except OSError as error:
            self._fail(error)
            return False
        self._skipped = 0
        self.frames_end = self._base + self._fill
        self._frame = self._fill
        self._fill += FRAME_HEADER_BYTES
        self.frames_written += 1
        self.bytes_written += length + FRAME_HEADER_BYTES
        return True

    # ----------------------------------------------------------------------------------------- room

    @property
    def disk_bytes(self) -> int:
        return self._segments.bytes + self.snapshot_bytes

    def is_within_quota(self, more: int) -> bool:
        return not self._quota_bytes or self.disk_bytes + more <= self._quota_bytes

    @property
    def is_tight(self) -> bool:
        """The quota has no room for a further segment, and the last is nearly full."""
        if self.is_full:
            return True
        return self._fill * 4 > self._easy_limit * 3 and not self.is_within_quota(self._segment_bytes)

    def look_for_room(self) -> None:
        """Service resumes by itself when there is room again: a timer asks, and whoever deleted a segment."""
        if self._room_timer is not None:
            self._room_timer.cancel()
            self._room_timer = None
        if self.is_full and not self.has_failed:
            self._room_retry_at = 0.0
            self._try_next_segment(0)

    def give_up(self) -> None:
        """The disk broke, or the journal is closed: from now on every record takes the slow path, and is
        dropped there."""
        self.has_failed = True
        self._easy_limit = 0

    def _make_room(self, needed: int, bulky: bool) -> int:
        """Where a record that does not fit easily may begin its payload, or 0 if it cannot be written."""
        if not self.has_failed and not self._try_next_segment(needed):
            if bulky:
                self._refuse()
                return 0
            if self._fill + needed > self._limit:
                self._take_emergency_segment(needed)
        if self.has_failed:
            self.next_lsn += 1
            return 0
        return self._fill + RECORD_HEADER_BYTES

    def _refuse(self) -> None:
        """The frame ends before the hole: within a frame LSNs have no gap. The next frame names the hole."""
        self.write_frame()
        self.refused.append(self.next_lsn)
        self._skipped += 1
        self.next_lsn += 1

    def _try_next_segment(self, needed: int) -> bool:
        """Roll to a segment with room for a record of this size, if there is room for the segment."""
        if self.is_full and self._loop.time() < self._room_retry_at:
            return False
        size = max(self._segment_bytes, FRAME_HEADER_BYTES + needed + self._reserve)
        try:
            if not self.is_within_quota(size):
                raise StorageFull("the journal has used up its quota")
            self._roll(size)
        except StorageFull:
            self._wait_for_room()
            return False
        except OSError as error:
            self._fail(error)
            return False
        self.is_full = False
        return not self.has_failed

    def _wait_for_room(self) -> None:
        self.is_full = True
        self._room_retry_at = self._loop.time() + _ROOM_RETRY_SECONDS
        if self._room_timer is None:
            self._room_timer = self._loop.call_later(_ROOM_RETRY_SECONDS, self.look_for_room)

    def _take_emergency_segment(self, needed: int) -> None:
        """The reserve is used up: a small segment beyond the quota, for records that cannot be refused."""
        try:
            self._roll(max(self._reserve, FRAME_HEADER_BYTES + needed), bulky=False)
        except (StorageFull, OSError) as error:
            self._fail(error)

    def _roll(self, size: int, *, bulky: bool = True) -> None:
        number = (self._base >> OFFSET_BITS) + 1
        descriptor = self._directory.create_segment(number, size)
        self.write_frame()
        self._seal(self.descriptor, number - 1, self._frame)
        self._segments.add(number, size)
        self._use(descriptor, number, size, bulky=bulky)

    def _use(self, descriptor: int, number: int, size: int, *, bulky: bool = True) -> None:
        self.descriptor = descriptor
        self._base = number << OFFSET_BITS
        self._frame = 0
        self._fill = FRAME_HEADER_BYTES
        self._limit = size
        self._easy_limit = size - self._reserve if bulky else 0
        if self.has_failed:
            self.give_up()
