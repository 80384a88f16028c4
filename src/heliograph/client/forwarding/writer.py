"""Fills a store: gathers what is sent, and makes it durable, one write and one sync for all that came meanwhile.

The disk is used on a thread of the writer's own, for one thing at a time. What comes while it is busy is gathered and
goes next, so the batches grow with the load by themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, TypeVar

from heliograph.client.clock import CLOCK
from heliograph.client.forwarding.files import Record, StoreFiles
from heliograph.client.forwarding.ledger import Entry, Lane, Ledger
from heliograph.client.forwarding.records import FRAME_HEADER_BYTES, RecordKind
from heliograph.client.outgoing import Lane as Packer
from heliograph.client.preparing import Outgoing
from heliograph.client.resending import Sealed
from heliograph.client.sender import renewed
from heliograph.model.block import HEADER_BYTES
from heliograph.model.errors import HeliographError, StorageFull, Unavailable
from heliograph.model.ids import ID_BYTES, LaneId
from heliograph.model.limits import (
    FORWARD_MARK_SECONDS,
    STORE_COMPACT_BELOW,
    STORE_IDLE_BYTES,
    STORE_SEGMENT_BYTES,
)

# In a store a block has no lane yet: the server's session gives it one.
_NO_LANE = LaneId(bytes(ID_BYTES))
# What a message takes at most besides body and head: a frame and a block of its own.
_MESSAGE_OVERHEAD = FRAME_HEADER_BYTES + HEADER_BYTES

T = TypeVar("T")
OnStored = Callable[[list[tuple[Lane, Sealed]]], None]
OnRefused = Callable[[HeliographError], None]


class _Batch(NamedTuple):
    """What one write holds, in this order."""

    state: bytes | None  # in a segment of its own if it begins one
    begins_segment: bool
    lanes: list[Lane]
    blocks: list[tuple[Lane, Sealed]]
    moved: list[tuple[Lane, Entry, bytes]]
    marks: list[tuple[Lane, int]]
    finished: list[int]  # segments that may go once this is durable
    told: asyncio.Future[None] | None

    def records(self) -> list[Record]:
        records = []
        if self.state is not None and not self.begins_segment:
            records.append(Record(RecordKind.STATE, 0, self.state))
        records += [Record(RecordKind.LANE, 0, Ledger.lane_record(lane)) for lane in self.lanes]
        records += [Record(RecordKind.BLOCK, lane.key, sealed.buffer) for lane, sealed in self.blocks]
        records += [Record(RecordKind.MOVED, lane.key, payload) for lane, _, payload in self.moved]
        if self.marks and self.state is None:
            records.append(Record(RecordKind.CONFIRMED, 0, Ledger.confirmed_record(self.marks)))
        return records


class Writer:
    """Owns the files of a store and the thread that uses them."""

    def __init__(
        self,
        files: StoreFiles,
        ledger: Ledger,
        *,
        limit_bytes: int,
        block_messages: int,
        on_stored: OnStored,
        on_refused: OnRefused,
    ) -> None:
        self._files = files
        self._ledger = ledger
        self._limit_bytes = limit_bytes
        self._block_messages = block_messages
        self._on_stored = on_stored
        self._on_refused = on_refused
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="heliograph-store")
        self._packers: dict[int, Packer] = {}
        self._gathered_bytes = 0
        self._writing_bytes = 0
        self._gathered: asyncio.Future[None] | None = None
        self._is_writing = False
        self._is_scheduled = False
        self._is_state_due = False
        self._marking: asyncio.TimerHandle | None = None
        self._moving: list[tuple[Lane, Entry, bytes]] = []
        self._compacting: asyncio.Task[None] | None = None
        self.failed: HeliographError | None = None

    # ---- in

    @property
    def file_bytes(self) -> int:
        return self._files.bytes

    def has_room(self, message: Outgoing) -> bool:
        taken = self._files.bytes + self._gathered_bytes + self._writing_bytes
        return taken + message.size + _MESSAGE_OVERHEAD <= self._limit_bytes

    def put(self, lane: Lane, message: Outgoing) -> tuple[int, asyncio.Future[None]]:
        """Take a message. Returns its sequence, and what says when it is on the disk; raises StorageFull."""
        if self.failed is not None:
            raise renewed(self.failed)
        if not self.has_room(message):
            raise StorageFull(
                f"the store holds {self._limit_bytes} bytes at most, and is full: nothing was stored",
                code="store-full",
            )
        packer = self._packers.get(lane.key)
        if packer is None:
            packer = self._packers[lane.key] = Packer(
                lane.key, _NO_LANE, block_messages=self._block_messages, first=lane.stored + 1
            )
        now = CLOCK.microseconds()
        packer.put(message, now)
        if packer.is_block_full:
            packer.seal(now)
        self._gathered_bytes += message.size + _MESSAGE_OVERHEAD
        return packer.last, self._soon()

    def last_of(self, lane: Lane) -> int:
        """The sequence of the last message taken."""
        packer = self._packers.get(lane.key)
        return packer.last if packer is not None else lane.stored

    def note_state(self) -> None:
        """Session and lanes are written down as they are, soon."""
        self._is_state_due = True
        self._soon()

    async def durable(self, *, state: bool = False) -> None:
        """Until all that was taken so far, and with `state` session and lanes as they are, is on the disk."""
        self._is_state_due |= state
        # Others wait for the same: who is cancelled must not take it from them.
        await asyncio.shield(self._soon())

    def note_confirmed(self) -> None:
        """Marks of lanes have moved; that is written with the next batch, or a moment later."""
        if self._marking is None:
            self._marking = self._loop.call_later(FORWARD_MARK_SECONDS, self._mark)

    def _mark(self) -> None:
        self._marking = None
        self._soon()

    def _soon(self) -> asyncio.Future[None]:
        if self._gathered is None:
            self._gathered = self._loop.create_future()
            self._gathered.add_done_callback(_heard)
            if self.failed is not None:
                self._gathered.set_exception(renewed(self.failed))
        if not self._is_writing and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._write)
        return self._gathered

    # ---- out

    def _write(self) -> None:
        self._is_scheduled = False
        if self._is_writing or self.failed is not None:
            return
        batch = self._collect()
        self._is_writing = True
        self._writing_bytes, self._gathered_bytes = self._gathered_bytes, 0
        job = self._loop.run_in_executor(self._thread, self._store, batch)
        job.add_done_callback(partial(self._written, batch))

    def _collect(self) -> _Batch:
        ledger = self._ledger
        now = CLOCK.microseconds()
        blocks: list[tuple[Lane, Sealed]] = []
        for key, packer in self._packers.items():
            packer.seal(now)
            blocks += [(ledger.lanes[key], sealed) for sealed in packer.take_sealed()]
        begins_segment = self._is_due_to_roll(is_idle=not blocks)
        state = ledger.state() if begins_segment or self._is_state_due else None
        self._is_state_due = False
        lanes = [lane for lane in ledger.lanes.values() if not lane.is_recorded]
        for lane in lanes:
            lane.is_recorded = True
        # What lets a segment go must be in this batch or an earlier one: so whatever has moved is, always.
        marks = [(lane, lane.confirmed) for lane in ledger.lanes.values() if lane.confirmed != lane.noted]
        moved, self._moving = self._moving, []
        finished = [number for number in self._files.sizes() if not ledger.needed_bytes(number)]
        if begins_segment and not ledger.needed_bytes(self._files.current):
            finished.append(self._files.current)
        told, self._gathered = self._gathered, None
        return _Batch(state, begins_segment, lanes, blocks, moved, marks, finished, told)

    def _is_due_to_roll(self, *, is_idle: bool) -> bool:
        size = self._files.current_bytes
        if size >= STORE_SEGMENT_BYTES:
            return True
        return is_idle and not self._ledger.messages and size >= STORE_IDLE_BYTES

    def _store(self, batch: _Batch) -> list[int]:
        """On the writer's thread. Returns where the records stand."""
        if batch.begins_segment:
            assert batch.state is not None
            self._files.begin_segment(batch.state)
        records = batch.records()
        positions = self._files.append(records) if records else []
        for number in batch.finished:
            self._files.remove(number)
        return positions

    def _written(self, batch: _Batch, job: asyncio.Future[list[int]]) -> None:
        self._is_writing = False
        self._writing_bytes = 0
        fault = job.exception()
        if fault is not None:
            self._not_written(batch, fault)
            return
        positions = job.result()
        before = len(batch.lanes) + (batch.state is not None and not batch.begins_segment)
        places = iter(positions[before:])
        for lane, sealed in batch.blocks:
            self._ledger.added(lane, sealed.first, sealed.count, next(places), len(sealed.buffer))
        for lane, upto in batch.marks:
            lane.noted = upto
        for lane, entry, _ in batch.moved:
            self._ledger.moved(lane, entry, next(places))
        if batch.told is not None and not batch.told.done():
            batch.told.set_result(None)
        self._on_stored(batch.blocks)
        if self._gathered is not None:
            self._soon()
        self._compact_if_worth()

    def _not_written(self, batch: _Batch, fault: BaseException) -> None:
        """Nothing of the batch counts, nor does what was gathered behind it: its sequences follow."""
        if not isinstance(fault, HeliographError):
            fault = Unavailable(f"the store failed: {fault!r}", code="disk-failed")
        self._is_state_due |= batch.state is not None
        for lane in batch.lanes:
            lane.is_recorded = False
        self._packers.clear()
        self._gathered_bytes = 0
        if not isinstance(fault, StorageFull):
            self.failed = fault
        waiting, self._gathered = (batch.told, self._gathered), None
        for told in waiting:
            if told is not None and not told.done():
                told.set_exception(renewed(fault))
        self._on_refused(fault)

    # ---- reading and making room

    async def read(self, entries: list[Entry]) -> list[bytes]:
        """Blocks of the store. Raises CorruptJournal."""
        return await self._on_thread(
            lambda: [self._files.read(entry.position, entry.size) for entry in entries]
        )

    async def _on_thread(self, work: Callable[[], T]) -> T:
        return await self._loop.run_in_executor(self._thread, work)

    def _compact_if_worth(self) -> None:
        """What a destination that is held keeps in old segments must not keep the room of its neighbours."""
        if self._files.bytes * 2 < self._limit_bytes or self._compacting is not None or self._moving:
            return
        for number, size in self._files.sizes().items():
            if 0 < self._ledger.needed_bytes(number) < size * STORE_COMPACT_BELOW:
                self._compacting = self._loop.create_task(self._compact(number))
                return

    async def _compact(self, segment: int) -> None:
        """Write again, at the end, what is still needed of a segment."""
        try:
            needed = self._ledger.entries_in(segment)
            payloads = await self.read([entry for _, entry in needed])
            self._moving = [
                (lane, entry, payload) for (lane, entry), payload in zip(needed, payloads, strict=True)
            ]
            self._soon()
        except HeliographError as fault:
            self._on_refused(fault)
        finally:
            self._compacting = None

    # ---- the end

    async def close(self) -> None:
        """Everything taken is on the disk when this returns, and the folder is free."""
        if self._marking is not None:
            self._marking.cancel()
        try:
            while self.failed is None and (self._is_writing or self._gathered is not None):
                await asyncio.gather(self.durable(), return_exceptions=True)
            if self.failed is None:
                # A last word, so that damage to what is behind it is never taken for a tear.
                await asyncio.gather(self.durable(state=True), return_exceptions=True)
        finally:
            if self._compacting is not None:
                self._compacting.cancel()
            await self._loop.run_in_executor(None, partial(self._thread.shutdown, wait=True))
            self._files.close()


def _heard(told: asyncio.Future[None]) -> None:
    """Those who wait hear it; if nobody does, the loop must not complain."""
    if not told.cancelled():
        told.exception()
