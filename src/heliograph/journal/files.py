"""The journal of one node: append, write once per tick, sync, report; snapshots, deletion of what is
finished, reading back.

Everything here runs on the loop's thread; three workers (sync, reader, keeper) do what would hold it up. What
the journal guarantees its listener:

- A record is *stored* when it and all before it are on the disk as the durability asks; `journal_stored` is
  called in order.
- Room for a record is taken when it is appended, so a record that has a position is never lost to a full
  disk.
- A bulky record that finds no room is refused: `append` returns 0, its LSN stays a hole that the next frame
  explains.
- A broken disk is reported once; from then on nothing is stored and nothing is said to be.
"""

from __future__ import annotations

import asyncio
import os
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Final, Literal, Protocol

import msgspec
from crc32c import crc32c

from heliograph.journal.directory import Directory, take_room, write_all
from heliograph.journal.reader import Reader
from heliograph.journal.records import (
    FRAME_HEADER_BYTES,
    OFFSET_BITS,
    PADDING,
    RECORD_HEADER,
    RECORD_HEADER_BYTES,
    Record,
    offset_of,
    pack_frame_header,
    position_of,
    seed_of,
    segment_of,
)
from heliograph.journal.recovery import LogEnd
from heliograph.journal.replay import replay_log
from heliograph.journal.segments import Segments
from heliograph.journal.snapshots import SnapshotHead, Snapshots
from heliograph.journal.syncing import Sealed, Synced, Syncer
from heliograph.journal.workers import Worker
from heliograph.model.errors import CorruptJournal, HeliographError, StorageFull
from heliograph.model.limits import (
    COMPACT_BELOW,
    INLINE_SYNC_BYTES,
    INLINE_SYNC_SECONDS,
    KIB,
    MIB,
    SEGMENT_BYTES,
    SNAPSHOT_EVERY_BYTES,
    SNAPSHOT_EVERY_RECORDS,
)

# The end of each segment is kept for records that are not bulky: acknowledgements must find room on a full
# disk, for they are what frees it.
_RESERVE_BYTES: Final = MIB
# Records that nobody waits for are durable this much later at the latest.
_LAZY_SYNC_SECONDS: Final = 0.05
# A full disk is asked this often whether there is room again, and for a snapshot that found none this often.
_ROOM_RETRY_SECONDS: Final = 0.1
_SNAPSHOT_RETRY_SECONDS: Final = 1.0
# Pieces smaller than this on average are joined before the checksum: a call for each costs more than the
# copy.
_JOIN_BELOW: Final = 4 * KIB

_pack_record = RECORD_HEADER.pack


class JournalSettings(msgspec.Struct, frozen=True):
    """`fsync`: stored means synced. `write`: stored means handed to the system; a power cut may lose it.

    Quota 0: the disk limits.
    """

    durability: Literal["fsync", "write"] = "fsync"
    segment_bytes: int = SEGMENT_BYTES
    quota_bytes: int = 0
    snapshot_every_bytes: int = SNAPSHOT_EVERY_BYTES
    snapshot_every_records: int = SNAPSHOT_EVERY_RECORDS
    inline_sync_bytes: int = INLINE_SYNC_BYTES
    inline_sync_seconds: float = INLINE_SYNC_SECONDS


class Listener(Protocol):
    """Who is told what became of appended records. Called on the loop."""

    def journal_stored(self, lsn: int) -> None:
        """Every record up to this LSN is stored, those refused excepted."""

    def journal_refused(self, lsns: list[int], error: StorageFull) -> None:
        """These bulky records found no room and are gone."""

    def journal_failed(self, error: HeliographError | OSError) -> None:
        """The disk broke: the node must stop."""


class RecoveryReport(msgspec.Struct, frozen=True):
    """What recovery found."""

    snapshot_lsn: int  # records up to here came from the snapshot; 0: there was none
    damaged_snapshots: int  # newer ones that were damaged; an older one and the log replaced them
    records: int
    frames: int
    scanned_bytes: int
    cut_bytes: int  # a torn tail of this size was cut
    cut_position: int  # where; 0: nothing was cut
    seconds: float


class Journal:
    """One directory, one caller, one loop. `recover` comes first and `close` last."""

    def __init__(
        self,
        directory: pathlib.Path,
        *,
        settings: JournalSettings,
        listener: Listener,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._settings = settings
        self._listener = listener
        self._loop = loop
        self._directory = Directory(directory)
        self._segments = Segments()
        self._snapshots = Snapshots(self._directory)
        self._reader = Reader(self._directory)
        self._reader_worker = Worker("journal-reader", loop)
        self._keeper = Worker("journal-keeper", loop)
        self._syncer = Syncer(
            self._directory,
            loop,
            inline_bytes=settings.inline_sync_bytes,
            inline_seconds=settings.inline_sync_seconds,
            on_done=self._sync_done,
        )
        self._reserve = min(_RESERVE_BYTES, settings.segment_bytes // 4)
        self._waits_for_sync = settings.durability == "fsync"
        self.store_id = ""
        self.next_lsn = 1
        self.is_full = False
        self._seed = 0
        # The segment in use. `_frame` is where the frame that is being gathered will stand, `_fill` where its
        # next record goes.
        self._descriptor = -1
        self._base = 0
        self._frame = 0
        self._fill = 0
        self._easy_limit = 0  # up to here every record may go; beyond, something must be decided
        self._limit = 0
        self._pieces: list[bytes | memoryview] = []
        self._count = 0
        self._skipped = 0
        self._refused: list[int] = []
        # How far things got, as LSNs: written, reported as stored, durable.
        self._written_lsn = 0
        self._stored_lsn = 0
        self._durable_lsn = 0
        self._durable_position = 0
        self._unsynced_bytes = 0
        self._wanted = False  # somebody waits for a record of this tick
        self._due = False  # somebody waits for what is written
        self._lazy_timer: asyncio.TimerHandle | None = None
        self._room_timer: asyncio.TimerHandle | None = None
        self._room_retry_at = 0.0
        self._snapshot_running = False
        self._snapshot_retry_at = 0.0
        self._snapshot_lsn = 0
        self._snapshot_bytes = 0
        self._bytes_since_snapshot = 0
        self._frames_written = 0
        self._bytes_written = 0
        self._refused_count = 0
        self._failed = False
        self._closed = False

    # ------------------------------------------------------------------------------------- recovery

    def recover(
        self, *, on_snapshot: Callable[[memoryview], None], on_record: Callable[[Record], None]
    ) -> RecoveryReport:
        """Lock the directory, or make it, and hand over what it remembers. Raises CorruptJournal."""
        started = time.perf_counter()
        self.store_id = self._directory.open()
        try:
            self._seed = seed_of(self.store_id)
            self._snapshots.bind(self._seed)
            for number, size in self._directory.segment_sizes().items():
                self._segments.add(number, size)
            snapshot = self._snapshots.newest()
            if snapshot is not None:
                self._snapshot_lsn = snapshot.head.next_lsn - 1
                self._segments.snapshot_stored(segment_of(snapshot.head.replay))
                on_snapshot(snapshot.state)
                self._segments.restore_totals(snapshot.head.totals)
            end = replay_log(self._directory, self._segments, snapshot, self._seed, on_record)
            self._check_all_there()
            self._go_on_from(end)
        except BaseException:
            self._closed = True
            self._directory.close()
            raise
        return RecoveryReport(
            snapshot_lsn=self._snapshot_lsn,
            damaged_snapshots=snapshot.damaged if snapshot else 0,
            records=end.records,
            frames=end.frames,
            scanned_bytes=end.scanned_bytes,
            cut_bytes=end.cut_bytes,
            cut_position=end.position if end.cut_bytes else 0,
            seconds=time.perf_counter() - started,
        )

    def _check_all_there(self) -> None:
        missing = self._segments.settle()
        if missing is not None:
            path = str(self._directory.segment_path(missing))
            raise CorruptJournal(
                "the segment holds messages that are still needed, and it is gone", path=path, position=0
            )

    def _go_on_from(self, end: LogEnd) -> None:
        self.next_lsn = end.next_lsn
        self._written_lsn = self._stored_lsn = self._durable_lsn = end.next_lsn - 1
        self._durable_position = end.position
        self._bytes_since_snapshot = end.scanned_bytes
        self._snapshots.take_room()
        self._snapshot_bytes = self._snapshots.bytes_on_disk()
        number, offset = segment_of(end.position), offset_of(end.position)
        size = self._segments.sizes.get(number)
        if size is None:
            size = self._settings.segment_bytes
            descriptor = self._directory.create_segment(number, size)
            self._segments.add(number, size)
            self._directory.sync()
        else:
            descriptor = self._directory.open_segment(number)
            size = self._extend(descriptor, number, size)
        self._use(descriptor, number, offset, size)

    def _extend(self, descriptor: int, number: int, size: int) -> int:
        """Take back the room that a cut gave away;

        without it the journal starts full, and stores acknowledgements if it can.
        """
        wanted = self._settings.segment_bytes
        if size < wanted and self._is_within_quota(wanted - size):
            try:
                take_room(descriptor, wanted)
                size = wanted
                os.fsync(descriptor)
            except StorageFull:
                pass
        self._segments.resize(number, size)
        return size

    def _use(self, descriptor: int, number: int, offset: int, size: int, *, bulky: bool = True) -> None:
        self._descriptor = descriptor
        self._base = number << OFFSET_BITS
        self._frame = offset
        self._fill = offset + FRAME_HEADER_BYTES
        self._limit = size
        self._easy_limit = size - self._reserve if bulky else 0

    # ------------------------------------------------------------------------------------ appending

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
        self._count += 1
        self.next_lsn += 1
        if bulky or wait:
            self._wanted = True
        return self._base + start

    def _make_room(self, needed: int, bulky: bool) -> int:
        """Where a record that does not fit easily may begin its payload, or 0 if it is refused."""
        if self._failed:
            self.next_lsn += 1
            return 0
        if not self._try_next_segment(needed):
            if bulky:
                self._refuse()
                return 0
            if self._fill + needed > self._limit and not self._take_emergency_segment(needed):
                self.next_lsn += 1
                return 0
        return self._fill + RECORD_HEADER_BYTES

    def _refuse(self) -> None:
        """The frame ends before the hole, for records in a frame have LSNs without a gap;

        the next frame names the hole.
        """
        self._write_frame()
        self._refused.append(self.next_lsn)
        self._skipped += 1
        self.next_lsn += 1

    # ------------------------------------------------------------------------------- room and segments

    @property
    def disk_bytes(self) -> int:
        return self._segments.bytes + self._snapshot_bytes

    def _is_within_quota(self, more: int) -> bool:
        quota = self._settings.quota_bytes
        return not quota or self.disk_bytes + more <= quota

    def _try_next_segment(self, needed: int) -> bool:
        """Roll to a segment with room for a record of this size, if there is room for the segment."""
        if self.is_full and time.monotonic() < self._room_retry_at:
            return False
        size = max(self._settings.segment_bytes, FRAME_HEADER_BYTES + needed + self._reserve)
        try:
            if not self._is_within_quota(size):
                raise StorageFull("the journal has used up its quota")
            self._roll(size)
        except StorageFull:
            self._wait_for_room()
            return False
        except OSError as error:
            self._fail(error)
            return False
        self.is_full = False
        return True

    def _take_emergency_segment(self, needed: int) -> bool:
        """The reserve is used up: a small segment beyond the quota, for records that cannot be refused."""
        try:
            self._roll(max(self._reserve, FRAME_HEADER_BYTES + needed), bulky=False)
        except (StorageFull, OSError) as error:
            self._fail(error)
            return False
        return True

    def _roll(self, size: int, *, bulky: bool = True) -> None:
        number = (self._base >> OFFSET_BITS) + 1
        descriptor = self._directory.create_segment(number, size)
        self._write_frame()
        self._syncer.seal(Sealed(self._descriptor, number - 1, self._frame))
        self._segments.add(number, size)
        self._use(descriptor, number, 0, size, bulky=bulky)

    def _wait_for_room(self) -> None:
        self.is_full = True
        self._room_retry_at = time.monotonic() + _ROOM_RETRY_SECONDS
        if self._room_timer is None and not self._closed:
            self._room_timer = self._loop.call_later(_ROOM_RETRY_SECONDS, self._look_for_room)

    def _look_for_room(self) -> None:
        """Service resumes by itself when there is room again."""
        if self._room_timer is not None:
            self._room_timer.cancel()
            self._room_timer = None
        if self.is_full and not self._closed and not self._failed:
            self._room_retry_at = 0.0
            self._try_next_segment(0)

    def retain(self, position: int, messages: int) -> None:
        """This many messages of the record at `position` may be asked for."""
        self._segments.retain(position, messages)

    def release(self, position: int, messages: int) -> None:
        """They are done; the record that says so is appended in the same tick."""
        self._segments.release(position, messages)

    def compactable(self) -> int | None:
        """A sealed segment that is mostly done: move its live messages to the end and it can go.

        Looks at every segment.
        """
        return self._segments.compactable(COMPACT_BELOW)

    def _delete_finished(self) -> None:
        for number in self._segments.finished(self._durable_lsn):
            self._segments.remove(number)
            path = self._directory.segment_path(number)
            self._reader_worker.post(lambda number=number: self._reader.forget(number), self._forgotten)  # type: ignore[misc]
            self._keeper.post(path.unlink, self._deleted)

    def _forgotten(self, result: Exception | None) -> None:
        if result is not None:
            self._fail(result)

    def _deleted(self, result: Exception | None) -> None:
        if result is not None:
            self._fail(result)
        elif self.is_full:
            self._look_for_room()

    # ------------------------------------------------------------------------------- writing and syncing

    def end_of_tick(self, *, quiet: bool = False) -> None:
        """Write what was appended as one frame and see to it that it becomes durable. `quiet`:

        nobody waits for it.
        """
        if self._count:
            self._write_frame()
        self._segments.end_of_tick(self.next_lsn - 1)
        if self._refused:
            self._report_refused()
        if self._wanted:
            self._wanted = False
            self._due = self._due or not quiet
        if self._waits_for_sync:
            if self._unsynced_bytes and not self._syncer.running:
                self._sync_or_wait()
        elif not self._failed:
            self._stored(self._written_lsn)
            if self._syncer.has_sealed and not self._syncer.running:
                self._sync()

    def _write_frame(self) -> None:
        count = self._count
        if not count or self._failed:
            return
        pieces, self._pieces = self._pieces, []
        self._count = 0
        frame = self._frame
        length = self._fill - frame - FRAME_HEADER_BYTES
        if length < _JOIN_BELOW * len(pieces):
            pieces = [b"".join(pieces)]
        checksum = 0
        for piece in pieces:
            checksum = crc32c(piece, checksum)
        position = self._base + frame
        first_lsn = self.next_lsn - count
        header = pack_frame_header(
            length, checksum, first_lsn, count, self._skipped, self._durable_position, position, self._seed
        )
        pieces.insert(0, header)
        try:
            write_all(self._descriptor, pieces, frame)
        except OSError as error:
            self._fail(error)
            return
        self._skipped = 0
        self._frame = self._fill
        self._fill += FRAME_HEADER_BYTES
        self._written_lsn = self.next_lsn - 1
        size = length + FRAME_HEADER_BYTES
        self._unsynced_bytes += size
        self._bytes_since_snapshot += size
        self._bytes_written += size
        self._frames_written += 1

    def _sync_or_wait(self) -> None:
        if self._due:
            self._sync()
        elif self._lazy_timer is None:
            self._lazy_timer = self._loop.call_later(_LAZY_SYNC_SECONDS, self._lazy_sync)

    def _lazy_sync(self) -> None:
        self._lazy_timer = None
        if self._unsynced_bytes and not self._syncer.running and not self._closed and not self._failed:
            self._sync()

    def _sync(self) -> None:
        size = self._unsynced_bytes
        self._unsynced_bytes = 0
        self._due = False
        if self._lazy_timer is not None:
            self._lazy_timer.cancel()
            self._lazy_timer = None
        self._syncer.start(self._descriptor, size, self._written_lsn, self._base + self._frame)

    def _sync_done(self, result: Synced | Exception) -> None:
        if self._closed or self._failed:
            return
        if not isinstance(result, Synced):
            self._fail(result)
            return
        for sealed in result.sealed:
            self._segments.resize(sealed.number, sealed.size)
        self._durable(result.lsn, result.position)
        if self._unsynced_bytes and self._waits_for_sync and not self._syncer.running:
            self._sync_or_wait()

    def _durable(self, lsn: int, position: int) -> None:
        self._durable_position = max(self._durable_position, position)
        self._durable_lsn = max(self._durable_lsn, lsn)
        if self._segments.may_have_finished:
            self._delete_finished()
        self._stored(self._durable_lsn)

    def _stored(self, lsn: int) -> None:
        if lsn > self._stored_lsn:
            self._stored_lsn = lsn
            self._listener.journal_stored(lsn)

    def _report_refused(self) -> None:
        refused, self._refused = self._refused, []
        self._refused_count += len(refused)
        self._listener.journal_refused(
            refused, StorageFull("the disk, or the journal's quota on it, is full")
        )

    def _fail(self, error: Exception) -> None:
        """Nothing more is written: a second try after a failed sync could call lost bytes durable."""
        if self._failed or self._closed:
            return
        self._failed = True
        self._easy_limit = 0
        if not isinstance(error, HeliographError | OSError):
            error = HeliographError(f"the journal failed: {error!r}", code="journal-failed")
        self._listener.journal_failed(error)

    # ------------------------------------------------------------------------------------ reading back

    def load(self, positions: Sequence[int], then: Callable[[list[bytes] | CorruptJournal], None]) -> None:
        """Read the blocks at these positions on the reader's thread and hand them over on the loop, in the
        order of calls.
        """
        wanted = list(positions)
        if self._count and max(wanted) > self._base + self._frame:
            self._write_frame()

        def read(result: list[bytes] | Exception) -> None:
            if isinstance(result, list | CorruptJournal):
                then(result)
            else:
                self._fail(result)

        self._reader_worker.post(lambda: self._reader.read(wanted), read)

    def read_now(self, position: int) -> bytes:
        """The block at this position, at once. For tools and tests: it holds up the loop."""
        self._write_frame()
        reader = Reader(self._directory)
        try:
            return reader.read([position])[0]
        finally:
            reader.close()

    # -------------------------------------------------------------------------------------- snapshots

    @property
    def snapshot_due(self) -> bool:
        """Enough was written since the last one, or one would free room on a full disk."""
        if self._snapshot_running or self._failed:
            return False
        settings = self._settings
        if (
            self._bytes_since_snapshot >= settings.snapshot_every_bytes
            or self.next_lsn - 1 - self._snapshot_lsn >= settings.snapshot_every_records
            or (self.is_full and self._segments.frees_room())
        ):
            return time.monotonic() >= self._snapshot_retry_at
        return False

    def snapshot(self, parts: list[bytes | memoryview]) -> None:
        """Store a state that covers every record appended so far. The parts must not change meanwhile."""
        assert not self._snapshot_running, "one snapshot at a time"
        self._write_frame()
        if self._failed:
            return
        replay = self._base + self._frame
        head = SnapshotHead(replay, self.next_lsn, self._segments.totals())
        unsafe = [number for number in self._segments.sizes if number >= segment_of(self._durable_position)]
        self._snapshot_running = True
        self._snapshot_lsn = self.next_lsn - 1
        self._bytes_since_snapshot = 0
        last_lsn = self._written_lsn

        def write() -> int:
            # The state must never be ahead of the log: what it claims done must not come back without its
            # messages.
            for number in unsafe:
                self._directory.sync_segment(number)
            self._directory.sync()
            return self._snapshots.write(head, parts)

        self._keeper.post(write, lambda result: self._snapshot_done(result, last_lsn, replay))

    def _snapshot_done(self, result: int | Exception, last_lsn: int, replay: int) -> None:
        self._snapshot_running = False
        if self._closed or self._failed:
            return
        if isinstance(result, StorageFull):
            # The older snapshot still counts. Asking for a new one again soon is all there is to do.
            self._snapshot_lsn = -self._settings.snapshot_every_records
            self._snapshot_retry_at = time.monotonic() + _SNAPSHOT_RETRY_SECONDS
        elif isinstance(result, Exception):
            self._fail(result)
        else:
            self._snapshot_bytes = result
            self._segments.snapshot_stored(segment_of(replay))
            self._durable(last_lsn, replay)

    # ------------------------------------------------------------------------------------- the rest

    def stats(self) -> dict[str, int | float | bool]:
        return {
            "segments": len(self._segments.sizes),
            "disk_bytes": self.disk_bytes,
            "is_full": self.is_full,
            "live_messages": self._segments.live_messages(),
            "next_lsn": self.next_lsn,
            "stored_lsn": self._stored_lsn,
            "durable_lsn": self._durable_lsn,
            "frames_written": self._frames_written,
            "bytes_written": self._bytes_written,
            "syncs_inline": self._syncer.inline_count,
            "syncs_on_thread": self._syncer.thread_count,
            "sync_average_seconds": self._syncer.average_seconds,
            "refused": self._refused_count,
        }

    def close(self) -> None:
        """Write, sync, end the threads, release the lock.

        A clean stop leaves a frame that says that all is durable.
        """
        if self._closed:
            return
        for timer in (self._lazy_timer, self._room_timer):
            if timer is not None:
                timer.cancel()
        if self._refused:
            self._report_refused()
        self._write_frame()
        self._keeper.stop()
        try:
            self._make_all_durable()
        except OSError as error:
            self._fail(error)
        self._closed = True
        self._reader_worker.stop()
        self._reader.close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._directory.close()

    def _make_all_durable(self) -> None:
        if self._failed or self._descriptor < 0:
            return
        self._syncer.finish(self._descriptor)
        position = position_of(self._base >> OFFSET_BITS, self._frame)
        self._durable(self._written_lsn, position)
        if self._frames_written and self._fill <= self._limit:
            header = pack_frame_header(0, 0, self.next_lsn, 0, self._skipped, position, position, self._seed)
            write_all(self._descriptor, [header], self._frame)
            os.fdatasync(self._descriptor)
