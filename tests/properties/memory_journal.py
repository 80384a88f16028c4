"""A journal in memory for property tests: small, slow and honest.

It keeps the promises of the journal on disk and nothing more: records are stored in order and late, a crash
loses whatever was not stored, a bulky record finds no room while the disk is full, pages arrive late, and a
segment that nobody needs is gone for good. The account of segments is the real one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from heliograph.journal.records import Record, RecordKind, position_of, segment_of
from heliograph.journal.segments import Segments
from heliograph.model.errors import CorruptJournal, StorageFull

RECORDS_PER_SEGMENT = 4
_SEGMENT_SIZE = 1000

Then = Callable[[list[bytes] | CorruptJournal], None]


class Listener(Protocol):
    """Who is told when a bulky record found no room."""

    def journal_refused(self, lsns: list[int], error: StorageFull) -> None: ...


class Boundary(msgspec.Struct, frozen=True):
    """The end of a tick: what one write put on the disk, all of it or nothing."""

    tick: int
    records: int
    next_lsn: int


class Snapshot(msgspec.Struct, frozen=True):
    """A state, and where the records begin that it does not cover."""

    payload: bytes
    boundary: Boundary
    replay_segment: int
    totals: list[tuple[int, int]]


class MemoryJournal:
    """What a disk would hold is what survives `crash`; everything else is the running process."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.boundaries = [Boundary(0, 0, 1)]
        self.stored = self.boundaries[0]
        self.snapshot: Snapshot | None = None
        self._writing: Snapshot | None = None
        self._segments = Segments()
        self._segments.add(1, _SEGMENT_SIZE)
        self._segments.settle([])
        self._payloads: dict[int, bytes] = {}
        self._loading: deque[tuple[list[bytes], Then]] = deque()
        self._in_segment = 0
        self._pending = 0  # records since the end of the last tick
        self.next_lsn = 1
        self.tick = 1
        self.is_full = False
        self.is_tight = False  # whether producers are told to wait is not this journal's business
        self.disk_bytes = 0
        self.snapshot_due = False  # the world decides when
        self.refused: list[int] = []
        self.listener: Listener | None = None

    # ---- the interface of the journal on disk

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
        payload = b"".join(parts)
        assert len(payload) == size
        lsn = self.next_lsn
        self.next_lsn += 1
        if bulky and self.is_full:
            self.refused.append(lsn)
            return 0
        if self._in_segment == RECORDS_PER_SEGMENT:
            self._segments.add(self._segments.newest + 1, _SEGMENT_SIZE)
            self._in_segment = 0
        self._in_segment += 1
        self._pending += 1
        position = position_of(self._segments.newest, self._in_segment * 100)
        self.records.append(Record(kind, destination, list_number, lsn, position, payload))
        self._payloads[position] = payload
        return position

    @property
    def has_pending(self) -> bool:
        return self._pending > 0

    def reserve(self, _size: int) -> bool:
        """A tick is one write here: whatever there is room for stands in one frame."""
        return not self.is_full

    def load(self, positions: Sequence[int], then: Then) -> None:
        for position in positions:
            assert position in self._payloads, "a message that is needed lies in a segment that is gone"
        self._loading.append(([self._payloads[position] for position in positions], then))

    def read_now(self, position: int) -> bytes:
        return self._payloads[position]

    @property
    def stored_lsn(self) -> int:
        return self.stored.next_lsn - 1

    def retain(self, position: int, messages: int) -> None:
        assert messages > 0
        self._segments.retain(position, messages)

    def release(self, position: int, messages: int) -> None:
        assert messages > 0
        self._segments.release(position, messages)

    def compactable(self) -> int | None:
        return self._segments.compactable(1.1)

    # ---- what the world does with it

    def end_of_tick(self) -> None:
        self._pending = 0
        self._segments.end_of_tick(self.next_lsn - 1)
        if self.refused and self.listener is not None:
            self.listener.journal_refused(self.refused, StorageFull("the disk is full"))
            self.refused = []
        boundary = Boundary(self.tick, len(self.records), self.next_lsn)
        if self.boundaries[-1].next_lsn == boundary.next_lsn:
            self.boundaries.pop()  # nothing was written meanwhile
        self.boundaries.append(boundary)
        self.tick += 1

    def store_up_to(self, boundary: Boundary) -> int:
        """Everything up to the end of a tick is on disk. Returns the last LSN of it."""
        if boundary.next_lsn > self.stored.next_lsn:
            self.stored = boundary
        return self.stored.next_lsn - 1

    def sync_now(self) -> None:
        self.end_of_tick()
        if self.boundaries:
            self.store_up_to(self.boundaries[-1])

    def close(self) -> None:
        self.sync_now()

    def unstored(self) -> list[Boundary]:
        """The ends of ticks that a crash may lose."""
        return [boundary for boundary in self.boundaries if boundary.next_lsn > self.stored.next_lsn]

    @property
    def loads(self) -> int:
        return len(self._loading)

    def page_arrives(self) -> None:
        buffers, then = self._loading.popleft()
        then(buffers)

    def begin_snapshot(self, payload: bytes) -> None:
        """Right after the end of a tick: the state covers every record so far."""
        self._writing = Snapshot(payload, self.boundaries[-1], self._segments.newest, self._segments.totals())

    @property
    def writes_snapshot(self) -> bool:
        return self._writing is not None

    def finish_snapshot(self) -> int:
        """Returns the last LSN that is stored now: what the state covers was synced before it."""
        assert self._writing is not None
        self.snapshot, self._writing = self._writing, None
        self._segments.snapshot_stored(self.snapshot.replay_segment)
        return self.store_up_to(self.snapshot.boundary)

    def delete_finished(self) -> None:
        """After those who wait were told: they may retain copies, now that these are stored."""
        for number in self._segments.finished(self.stored.next_lsn - 1):
            self._segments.remove(number)
            for position in [each for each in self._payloads if segment_of(each) == number]:
                del self._payloads[position]

    def live(self) -> dict[int, int]:
        """Messages held by segment."""
        return {number: live for number, live in self._segments.live.items() if live}

    # ---- the end of a process, and the next

    def crash(self, kept: Boundary) -> None:
        """Only what was written up to this end of a tick is found again."""
        assert kept.tick >= self.stored.tick
        for record in self.records[kept.records :]:
            self._payloads.pop(record.position, None)
        del self.records[kept.records :]
        self.boundaries = [boundary for boundary in self.boundaries if boundary.tick <= kept.tick]
        self.stored = kept
        self.next_lsn = kept.next_lsn
        self._loading.clear()
        self._writing = None
        self._pending = 0
        self.refused.clear()
        self._reopen()

    def _reopen(self) -> None:
        sizes = dict.fromkeys(self._segments.sizes, _SEGMENT_SIZE)
        newest = segment_of(self.records[-1].position) if self.records else 1
        self._segments = Segments()
        for number in sizes:
            if number <= newest:
                self._segments.add(number, _SEGMENT_SIZE)
        if self.snapshot is not None:
            self._segments.replay_segment = self.snapshot.replay_segment
        self._in_segment = sum(segment_of(record.position) == newest for record in self.records)

    def recover(
        self, *, on_snapshot: Callable[[memoryview], None], on_record: Callable[[Record], None]
    ) -> None:
        begin = 0
        if self.snapshot is not None:
            on_snapshot(memoryview(self.snapshot.payload))
            begin = self.snapshot.boundary.records
        for record in self.records[begin:]:
            if record.kind != RecordKind.SPILLED:
                on_record(record)

    def check_all_there(self) -> None:
        missing = self._segments.settle(self.snapshot.totals if self.snapshot else [])
        assert missing is None, "messages wait in a segment that is gone"
