"""The journal of one node: append, write once per tick, sync, report; snapshots, deletion, reading back.

Everything here runs on the loop's thread; three workers (sync, reader, keeper) do what would hold it up. What
the journal guarantees its listener:

- A record is *stored* when it and all before it are on the disk as the durability asks; `journal_stored` is
  called in order.
- Room for a record is taken when it is appended, so a record that has a position is never lost to a full
  disk.
- A bulky record that finds no room is refused: `append` returns 0, its LSN stays a hole that the next frame
  explains, and `journal_refused` follows at the end of the tick, before any `journal_stored` of it.
- A broken disk is reported once; from then on nothing is stored and nothing is said to be.
"""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, Literal, Protocol, TypeVar

import msgspec

from heliograph.journal.directory import Directory, take_room
from heliograph.journal.disk import DISK, Disk
from heliograph.journal.feed import FeedReader
from heliograph.journal.reader import Reader
from heliograph.journal.records import Record, seed_of, segment_of
from heliograph.journal.recovery import LogEnd
from heliograph.journal.replay import replay_log
from heliograph.journal.segments import Holding, Segments
from heliograph.journal.snapshots import SnapshotHead, Snapshots
from heliograph.journal.syncing import Synced, Syncer
from heliograph.journal.writing import LogWriter
from heliograph.model.errors import CorruptJournal, HeliographError, StorageFull
from heliograph.model.limits import (
    COMPACT_BELOW,
    INLINE_SYNC_BYTES,
    INLINE_SYNC_SECONDS,
    SEGMENT_BYTES,
    SNAPSHOT_EVERY_BYTES,
    SNAPSHOT_EVERY_RECORDS,
)

Result = TypeVar("Result")

# Records that nobody waits for are durable this much later at the latest.
_LAZY_SYNC_SECONDS: Final = 0.05
# A snapshot that found no room is tried again after this long.
_SNAPSHOT_RETRY_SECONDS: Final = 1.0


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
        disk: Disk = DISK,
    ) -> None:
        self._settings = settings
        self._listener = listener
        self._loop = loop
        self._disk = disk
        self._directory = Directory(directory, disk)
        self._segments = Segments()
        self._snapshots = Snapshots(self._directory)
        self._reader = Reader(self._directory)
        self._reader_worker = disk.worker("journal-reader", loop)
        self._keeper = disk.worker("journal-keeper", loop)
        self._feed = FeedReader(self._directory)
        self._feed_worker = disk.worker("journal-feed", loop)
        self._syncer = Syncer(
            self._directory,
            loop,
            inline_bytes=settings.inline_sync_bytes,
            inline_seconds=settings.inline_sync_seconds,
            on_done=self._sync_done,
        )
        self._writer = LogWriter(
            self._directory,
            self._segments,
            loop,
            segment_bytes=settings.segment_bytes,
            quota_bytes=settings.quota_bytes,
            seal=self._syncer.seal,
            fail=self._fail,
        )
        # The hot path goes straight to those who do the work.
        self.append = self._writer.append
        self.reserve = self._writer.reserve
        self.retain = self._segments.retain
        self.release = self._segments.release
        self.store_id = ""
        self._waits_for_sync = settings.durability == "fsync"
        self._stored_lsn = 0
        self._durable_lsn = 0
        self._synced_bytes = 0  # of all bytes written, those that a sync covers or has under way
        self._is_due = False  # somebody waits for what is written
        self._lazy_timer: asyncio.TimerHandle | None = None
        self._snapshot_running = False
        self._snapshot_retry_at = 0.0
        self._snapshot_lsn = 0
        self._bytes_at_snapshot = 0
        self._totals: list[tuple[int, int]] = []
        self._refused_count = 0
        self._closed = False

    @property
    def next_lsn(self) -> int:
        """The LSN that the next record gets."""
        return self._writer.next_lsn

    @property
    def stored_lsn(self) -> int:
        """Everything up to this is stored."""
        return self._stored_lsn

    @property
    def is_full(self) -> bool:
        """Bulky records are refused. Ends by itself when there is room again."""
        return self._writer.is_full

    @property
    def is_tight(self) -> bool:
        """Bulky records are about to be refused: whoever can wait should."""
        return self._writer.is_tight

    @property
    def has_pending(self) -> bool:
        """Whether records wait for the end of the tick."""
        return self._writer.count > 0

    @property
    def is_all_stored(self) -> bool:
        """Whether everything that was appended and not refused is on disk, as far as the durability asks for it."""
        return not self.has_pending and self._stored_lsn >= self._writer.written_lsn

    @property
    def sync_age(self) -> float:
        """For how many seconds the disk has been asked to make something durable, and has not."""
        return self._syncer.age

    @property
    def written_lsn(self) -> int:
        """The last record that has left for the disk."""
        return self._writer.written_lsn

    def sync_soon(self) -> None:
        """Somebody waits for what was written, whoever wrote it."""
        self._is_due = True
        if self._waits_for_sync and not self._syncer.running and not self._writer.has_failed:
            self._sync()

    @property
    def disk_bytes(self) -> int:
        return self._writer.disk_bytes

    # ------------------------------------------------------------------------------------- recovery

    def recover(
        self, *, on_snapshot: Callable[[memoryview], None], on_record: Callable[[Record], None]
    ) -> RecoveryReport:
        """Lock the directory, or make it, and hand over what it remembers. Raises CorruptJournal.

        The caller then retains what is live and says so with `check_all_there`; no segment goes before that.
        """
        started = self._disk.seconds()
        try:
            self.store_id = self._directory.open()
            seed = seed_of(self.store_id)
            self._snapshots.bind(seed)
            self._feed.bind(seed)
            for number, size in self._directory.segment_sizes().items():
                self._segments.add(number, size)
            snapshot = self._snapshots.newest()
            if snapshot is not None:
                self._snapshot_lsn = snapshot.head.next_lsn - 1
                self._totals = snapshot.head.totals
                self._segments.snapshot_stored(segment_of(snapshot.head.replay))
                on_snapshot(snapshot.state)
            end = replay_log(self._directory, self._segments, snapshot, seed, on_record)
            self._go_on_from(end, seed)
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
            seconds=self._disk.seconds() - started,
        )

    def check_all_there(self) -> None:
        """All that recovery found is retained: no message may wait in a segment that is gone."""
        missing = self._segments.settle(self._totals)
        if missing is not None:
            path = str(self._directory.segment_path(missing))
            raise CorruptJournal(
                "the segment holds messages that are still needed and is gone", path=path, position=0
            )

    def count_anew(self, held: Iterable[Holding]) -> None:
        """Whoever has not kept count of what is live says all of it at once."""
        self._segments.count_anew(held, self._writer.next_lsn - 1)

    def _go_on_from(self, end: LogEnd, seed: int) -> None:
        self._stored_lsn = self._durable_lsn = end.next_lsn - 1
        self._bytes_at_snapshot = -end.scanned_bytes
        self._snapshots.take_room()
        self._writer.snapshot_bytes = self._snapshots.bytes_on_disk()
        number = segment_of(end.position)
        if number in self._segments.sizes:
            descriptor = self._directory.open_segment(number)
            self._extend(descriptor, number)
        else:
            descriptor = self._directory.create_segment(number, self._settings.segment_bytes)
            self._segments.add(number, self._settings.segment_bytes)
            self._directory.sync()
        self._writer.start(descriptor, end, self._segments.sizes[number], seed)

    def _extend(self, descriptor: int, number: int) -> None:
        """Take back the room that a cut gave away. Without it the journal starts full."""
        wanted = self._settings.segment_bytes
        size = self._segments.sizes[number]
        if size < wanted and self._writer.is_within_quota(wanted - size):
            try:
                take_room(self._disk, descriptor, wanted)
            except StorageFull:
                return
            self._disk.fsync(descriptor)
            self._segments.resize(number, wanted)

    # ------------------------------------------------------------------------------ writing and syncing

    def end_of_tick(self, *, quiet: bool = False) -> None:
        """Write what was appended as one frame and have it made durable. `quiet`: nobody waits for it."""
        writer = self._writer
        if writer.count:
            writer.write_frame()
        self._segments.end_of_tick(writer.next_lsn - 1)
        if writer.refused:
            self._report_refused()
        if writer.is_wanted:
            writer.is_wanted = False
            self._is_due = self._is_due or not quiet
        if writer.has_failed:
            return
        if self._waits_for_sync:
            if writer.bytes_written > self._synced_bytes and not self._syncer.running:
                self._sync_or_wait()
        else:
            self._stored(writer.written_lsn)
            if self._syncer.has_sealed and not self._syncer.running:
                self._sync()

    def _sync_or_wait(self) -> None:
        if self._is_due:
            self._sync()
        elif self._lazy_timer is None:
            self._lazy_timer = self._loop.call_later(_LAZY_SYNC_SECONDS, self._lazy_sync)

    def _lazy_sync(self) -> None:
        self._lazy_timer = None
        if not self._syncer.running and not self._closed and not self._writer.has_failed:
            self._sync()

    def _sync(self) -> None:
        writer = self._writer
        size = writer.bytes_written - self._synced_bytes
        self._synced_bytes = writer.bytes_written
        self._is_due = False
        if self._lazy_timer is not None:
            self._lazy_timer.cancel()
            self._lazy_timer = None
        self._syncer.start(writer.descriptor, size, writer.written_lsn, writer.frames_end)

    def _sync_done(self, result: Synced | Exception) -> None:
        if self._closed or self._writer.has_failed:
            return
        if not isinstance(result, Synced):
            self._fail(result)
            return
        for sealed in result.sealed:
            self._segments.resize(sealed.number, sealed.size)
        self._made_durable(result.lsn, result.position)
        is_behind = self._writer.bytes_written > self._synced_bytes
        if is_behind and self._waits_for_sync and not self._syncer.running:
            self._sync_or_wait()

    def _made_durable(self, lsn: int, position: int) -> None:
        self._writer.durable_position = max(self._writer.durable_position, position)
        self._durable_lsn = max(self._durable_lsn, lsn)
        # First this: the listener may retain copies that it appended, now that they are stored.
        self._stored(self._durable_lsn)
        if self._segments.may_have_finished:
            self._delete_finished()

    def _stored(self, lsn: int) -> None:
        if lsn > self._stored_lsn:
            self._stored_lsn = lsn
            self._listener.journal_stored(lsn)

    def _report_refused(self) -> None:
        refused, self._writer.refused = self._writer.refused, []
        self._refused_count += len(refused)
        error = StorageFull("the disk, or the journal's quota on it, is full")
        self._listener.journal_refused(refused, error)

    def _fail(self, error: Exception) -> None:
        """Nothing more is written: a second try after a failed sync could call lost bytes durable."""
        if self._writer.has_failed or self._closed:
            return
        self._writer.give_up()
        if not isinstance(error, HeliographError | OSError):
            error = HeliographError(f"the journal failed: {error!r}", code="journal-failed")
        self._listener.journal_failed(error)

    # ------------------------------------------------------------------------------------ reading back

    def load(self, positions: Sequence[int], then: Callable[[list[bytes] | CorruptJournal], None]) -> None:
        """Read the blocks at these positions on a thread; each `then` gets its own in the order of calls."""
        wanted = list(positions)
        if self._writer.count and max(wanted) > self._writer.position:
            self._writer.write_frame()

        def read(result: list[bytes] | Exception) -> None:
            if isinstance(result, list | CorruptJournal):
                then(result)
            else:
                self._fail(result)

        self._reader_worker.post(lambda: self._reader.read(wanted), read)

    def read_now(self, position: int) -> bytes:
        """The block at this position, at once. For tools and tests: it holds up the loop."""
        self._writer.write_frame()
        reader = Reader(self._directory)
        try:
            return reader.read([position])[0]
        finally:
            reader.close()

    def write_now(self) -> int:
        """Hand what was appended to the system: whoever reads the files finds it. Returns the last LSN of it."""
        self._writer.write_frame()
        return self._writer.written_lsn

    def feed(
        self, job: Callable[[FeedReader, list[int]], Result], then: Callable[[Result | Exception], None]
    ) -> None:
        """Read the history on a thread of its own: `job` is given the reader, and the segments that there are."""
        numbers = sorted(self._segments.sizes)
        self._feed_worker.post(lambda: job(self._feed, numbers), then)

    def hold_from(self, number: int) -> None:
        """Segments from this one on are needed by readers of the history; 0: none are."""
        self._segments.hold_from(number)
        if not self._closed:
            self._delete_finished()

    @property
    def held_bytes(self) -> int:
        """What is on the disk for readers of the history alone."""
        return self._segments.held_bytes()

    # -------------------------------------------------------------------------- snapshots and deletion

    @property
    def snapshot_due(self) -> bool:
        """Enough was written since the last one, or one would free room on a disk that is nearly full."""
        if self._snapshot_running or self._writer.has_failed:
            return False
        return (
            self._writer.bytes_written - self._bytes_at_snapshot >= self._settings.snapshot_every_bytes
            or self.next_lsn - 1 - self._snapshot_lsn >= self._settings.snapshot_every_records
            or (self.is_tight and self._segments.frees_room())
        ) and self._loop.time() >= self._snapshot_retry_at

    @property
    def is_snapshotting(self) -> bool:
        return self._snapshot_running

    def has_segment_of(self, position: int) -> bool:
        return segment_of(position) in self._segments.sizes

    def pin(self) -> None:
        """Nothing moves or goes: somebody reads by position, for longer than a moment."""
        self._segments.pins += 1

    def unpin(self) -> None:
        self._segments.pins -= 1
        self._segments.may_have_finished = True

    def snapshot(
        self, parts: list[bytes | memoryview], then: Callable[[Exception | None], None] | None = None
    ) -> None:
        """Store a state that covers every record appended so far. The parts must not change meanwhile."""
        assert not self._snapshot_running, "one snapshot at a time"
        writer = self._writer
        writer.write_frame()
        if writer.has_failed:
            return
        head = SnapshotHead(writer.position, writer.next_lsn, self._segments.totals())
        unsafe = [number for number in self._segments.sizes if number >= segment_of(writer.durable_position)]
        self._snapshot_running = True
        last_lsn = writer.written_lsn
        last_byte = writer.bytes_written
        frames_end = writer.frames_end

        def write() -> int:
            # The state must never be ahead of the log: positions in it must lead to bytes that are there.
            for number in unsafe:
                self._directory.sync_segment(number)
            self._directory.sync()
            return self._snapshots.write(head, parts)

        def done(result: int | Exception) -> None:
            self._snapshot_running = False
            if then is not None:
                then(result if isinstance(result, Exception) else None)
            if self._closed or writer.has_failed:
                return
            if isinstance(result, StorageFull):
                # The older snapshot still counts; another is due soon.
                self._snapshot_retry_at = self._loop.time() + _SNAPSHOT_RETRY_SECONDS
            elif isinstance(result, Exception):
                self._fail(result)
            else:
                self._snapshot_lsn = head.next_lsn - 1
                self._bytes_at_snapshot = last_byte
                writer.snapshot_bytes = result
                self._segments.snapshot_stored(segment_of(head.replay))
                self._made_durable(last_lsn, frames_end)

        self._keeper.post(write, done)

    def compactable(self) -> int | None:
        """A sealed segment that is mostly done: once its live messages are moved to the end, it can go.

        Looks at every segment: ask after a snapshot or now and then, not in every tick.
        """
        return None if self._segments.pins else self._segments.compactable(COMPACT_BELOW)

    def _delete_finished(self) -> None:
        for number in self._segments.finished(self._durable_lsn):
            self._segments.remove(number)
            # Reads that were asked for earlier come first: the reader must be through with it.
            self._reader_worker.post(partial(self._reader.forget, number), partial(self._forgotten, number))

    def _forgotten(self, number: int, result: Exception | None) -> None:
        if result is not None:
            self._fail(result)
        elif not self._closed:
            self._keeper.post(partial(self._disk.remove, self._directory.segment_path(number)), self._deleted)

    def _deleted(self, result: Exception | None) -> None:
        if result is not None:
            self._fail(result)
        elif self.is_full and not self._closed:
            self._writer.look_for_room()

    # --------------------------------------------------------------------------------------- the rest

    def stats(self) -> dict[str, int | float | bool]:
        return {
            "segments": len(self._segments.sizes),
            "disk_bytes": self.disk_bytes,
            "is_full": self.is_full,
            "live_messages": self._segments.live_messages(),
            "next_lsn": self.next_lsn,
            "stored_lsn": self._stored_lsn,
            "durable_lsn": self._durable_lsn,
            "frames_written": self._writer.frames_written,
            "bytes_written": self._writer.bytes_written,
            "syncs_inline": self._syncer.inline_count,
            "syncs_on_thread": self._syncer.thread_count,
            "sync_average_seconds": self._syncer.average_seconds,
            "refused": self._refused_count,
        }

    def close(self) -> None:
        """Write, sync, end the threads, release the lock.

        A clean stop leaves a frame that says all is durable.
        """
        if self._closed:
            return
        if self._lazy_timer is not None:
            self._lazy_timer.cancel()
        writer = self._writer
        writer.write_frame()
        if writer.refused:
            self._report_refused()
        self._keeper.stop()
        self._syncer.stop()
        try:
            if not writer.has_failed and writer.descriptor >= 0:
                self._make_all_durable()
        except OSError as error:
            self._fail(error)
        self._closed = True
        self._keeper.stop()
        self._reader_worker.stop()
        self._reader.close()
        self._feed_worker.stop()
        self._feed.close()
        writer.stop()
        writer.give_up()  # a tick that was asked for before may come later
        self._directory.close()

    def sync_now(self) -> None:
        """Write what was appended and see it durable before this returns."""
        self._writer.write_frame()
        if not self._writer.has_failed:
            self._disk.fdatasync(self._writer.descriptor)
            self._made_durable(self._writer.written_lsn, self._writer.frames_end)

    def _make_all_durable(self) -> None:
        writer = self._writer
        self._syncer.finish(writer.descriptor)
        self._made_durable(writer.written_lsn, writer.frames_end)
        writer.write_frame()  # what the listener may have added when it heard that
        if writer.frames_written and writer.write_mark():
            self._disk.fdatasync(writer.descriptor)
