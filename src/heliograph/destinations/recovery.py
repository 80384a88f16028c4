"""From the journal back to a catalogue, and from a catalogue to the snapshot that makes the next recovery
short.

A snapshot is the state after every record before it: sessions, destinations, marks, and for each list what
waits (the pages' arrays as they stand) and what is handed out. Recovery takes the newest and applies the
records that follow.
"""

from __future__ import annotations

import struct
from typing import Protocol

import msgspec

from heliograph.destinations.catalogue import Catalogue, KnownSession
from heliograph.destinations.destination import Destination, Queue
from heliograph.destinations.message_list import MessageList
from heliograph.destinations.pages import SEGMENT_SHIFT, Entry, Page, pages_of
from heliograph.destinations.replay import ListReplay
from heliograph.journal.records import Record, RecordKind
from heliograph.model.block import PRIORITIES, Block, parse_trusted, priority_runs
from heliograph.model.destination import Address
from heliograph.model.ids import LaneId, SessionId, session_of

_PAIR = struct.Struct("<QQ")


class LevelState(msgspec.Struct, array_like=True):
    """One priority of a list: its pages, stored as (facts, columns), and entries that are handed out."""

    priority: int
    pages: list[Page]
    dispatched: list[Entry]


class DestinationState(msgspec.Struct, array_like=True):
    """A destination. `levels` belong to the one list of a queue."""

    number: int
    address: str
    next_number: int
    marks: list[tuple[bytes, int]]
    levels: list[LevelState]


class SessionState(msgspec.Struct, array_like=True):
    """A session and its lanes."""

    session: bytes
    user: str
    token: bytes
    lanes: list[tuple[int, str]]


class CatalogueState(msgspec.Struct, array_like=True):
    """The whole snapshot. Fields are appended, never reordered."""

    sessions: list[SessionState]
    destinations: list[DestinationState]
    boot: bytes


_Dumped = tuple[list[int], list[bytes]]


def _dump(page: Page) -> _Dumped:
    """For one page at a time, so that millions of positions are not held twice while they are encoded."""
    return page.dump()


def _restore(_page: type[Page], dumped: object) -> Page:
    return Page.restore(*msgspec.convert(dumped, _Dumped))


_encode = msgspec.msgpack.Encoder(enc_hook=_dump).encode
_decode = msgspec.msgpack.Decoder(CatalogueState, dec_hook=_restore).decode


class Holder(Protocol):
    """Who keeps count of what is still needed in each segment."""

    def retain(self, position: int, messages: int) -> None: ...


# ---- snapshots


def snapshot_of(catalogue: Catalogue, boot: bytes) -> bytes:
    """`boot` names the run of the machine that the snapshot is taken in."""
    sessions = [
        SessionState(
            identity, session.user, session.token, [(lane, str(to)) for lane, to in session.lanes.items()]
        )
        for identity, session in catalogue.sessions.items()
    ]
    destinations = [_state_of(destination) for destination in catalogue.all_destinations()]
    return _encode(CatalogueState(sessions, destinations, boot))


def _state_of(destination: Destination) -> DestinationState:
    intake = destination.intake
    levels = _levels_of(destination) if isinstance(destination, Queue) else []
    marks = [(bytes(lane), mark) for lane, mark in intake.marks().items()]
    return DestinationState(destination.number, destination.address, intake.next_number, marks, levels)


def _levels_of(queue: Queue) -> list[LevelState]:
    messages = queue.messages
    loaded: dict[int, list[Entry]] = {}
    for priority, entry in messages.loaded_entries():
        loaded.setdefault(priority, []).append(entry)
    pending: dict[int, list[Entry]] = {}
    for block in queue.intake.pending:
        if block.persistent:
            for priority, start, stop in _runs(block):
                entry = Entry(block.number + start, block.position, start, stop - start, 0)
                pending.setdefault(priority, []).append(entry)
    cold: dict[int, list[Page]] = {}
    for priority, page in messages.waiting_pages():
        persistent = page.persistent_part()
        if persistent is not None:
            cold.setdefault(priority, []).append(persistent)
    dispatched: dict[int, list[Entry]] = {}
    for priority, entry in messages.outstanding_entries():
        dispatched.setdefault(priority, []).append(entry)
    return [
        LevelState(
            priority,
            # What is loaded comes before what is cold, and what is pending comes last.
            [
                *pages_of(sorted(loaded.get(priority, []))),
                *cold.get(priority, []),
                *pages_of(pending.get(priority, [])),
            ],
            sorted(dispatched.get(priority, [])),
        )
        for priority in sorted({*loaded, *cold, *pending, *dispatched})
    ]


def _runs(block: Block) -> list[tuple[int, int, int]]:
    """A block by priority: (priority, start, stop)."""
    return priority_runs(block) if block.flags & PRIORITIES else [(block.priority, 0, block.count)]


# ---- recovery


class CatalogueRecovery:
    """Takes a snapshot and records, in order; `finish` hands over a catalogue that can go to work."""

    def __init__(self, catalogue: Catalogue, now: float) -> None:
        self._catalogue = catalogue
        self._now = now
        self._queues: dict[int, ListReplay] = {}
        self.started_on = b""
        self.stopped_clean = True

    def snapshot(self, payload: memoryview) -> None:
        state = _decode(payload)
        self.started_on, self.stopped_clean = state.boot, False
        for session in state.sessions:
            lanes = {lane: Address(address) for lane, address in session.lanes}
            known = KnownSession(session.user, session.token, lanes, lost_at=self._now)
            self._catalogue.sessions[SessionId(session.session)] = known
        for destination in state.destinations:
            self._restore(destination)

    def _restore(self, state: DestinationState) -> None:
        made = self._catalogue.replay_destination(_encode((state.number, state.address)))
        made.intake.restore({LaneId(lane): mark for lane, mark in state.marks}, state.next_number)
        if isinstance(made, Queue):
            replay = self._queues[state.number] = ListReplay()
            for level in state.levels:
                pages = sorted(level.pages, key=lambda page: page.first)
                replay.level(level.priority).restore(pages, level.dispatched)

    def record(self, record: Record) -> None:
        kind = record.kind
        if kind == RecordKind.PUBLISHED:
            self._published(record)
        elif kind in (RecordKind.DONE, RecordKind.DISPATCHED, RecordKind.RETURNED):
            self._noted(record)
        elif kind == RecordKind.SESSION:
            self._catalogue.replay_session(bytes(record.payload), self._now)
        elif kind == RecordKind.DESTINATION:
            made = self._catalogue.replay_destination(bytes(record.payload))
            if isinstance(made, Queue):
                self._queues[made.number] = ListReplay()
        elif kind == RecordKind.STARTED:
            self._restarted(bytes(record.payload))
            self.started_on, self.stopped_clean = bytes(record.payload), False
        elif kind == RecordKind.STOPPED:
            self.stopped_clean = True
        elif kind == RecordKind.RELOCATED:
            self._relocated(record)

    def _published(self, record: Record) -> None:
        destination = self._catalogue.by_number[record.destination]
        payload = record.payload
        block = parse_trusted(payload, record.position, keep=False)
        destination.intake.replay(block, record.list)
        self._lane_used(block.lane, destination)
        replay = self._queues.get(record.destination)
        if replay is None:
            return
        if block.flags & PRIORITIES:
            block.buffer = bytes(payload)
        for priority, start, stop in _runs(block):
            replay.level(priority).published(
                block.number + start, record.position, start, stop - start, block.size
            )

    def _lane_used(self, lane: LaneId, destination: Destination) -> None:
        session = self._catalogue.sessions.get(session_of(lane))
        if session is not None:
            session.lanes.setdefault(lane[14] << 8 | lane[15], destination.address)

    def _noted(self, record: Record) -> None:
        replay = self._queues.get(record.destination)
        if replay is None:
            return
        for first, last in _PAIR.iter_unpack(record.payload):
            for level in replay.levels.values():
                if record.kind == RecordKind.DONE:
                    level.was_done(first, last)
                elif record.kind == RecordKind.DISPATCHED:
                    level.was_dispatched(first, last)
                else:
                    level.was_returned(first, last)

    def _relocated(self, record: Record) -> None:
        replay = self._queues.get(record.destination)
        if replay is not None:
            moves = dict(_PAIR.iter_unpack(record.payload))
            for level in replay.levels.values():
                level.relocate(moves)

    def _restarted(self, boot: bytes) -> None:
        """One process ended here and another begins. With the machine, the last records may have gone too."""
        lost_machine = not self.stopped_clean and self.started_on != boot
        for replay in self._queues.values():
            for level in replay.levels.values():
                level.restarted(everything_again=lost_machine)

    def finish(self, holder: Holder, *, boot: bytes) -> int:
        """Give every queue what waits in it. Returns how many messages wait."""
        self._restarted(boot)
        total = 0
        for number, replay in self._queues.items():
            destination = self._catalogue.by_number[number]
            assert isinstance(destination, Queue)
            for priority, level in replay.levels.items():
                pages = level.finish()
                destination.messages.restore(priority, pages)
                total += sum(page.messages for page in pages)
                _hold(pages, holder)
        return total


def _hold(pages: list[Page], holder: Holder) -> None:
    for page in pages:
        for position, count in page.per_segment().items():
            holder.retain(position, count)


def relocate(messages: MessageList, moves: dict[int, int]) -> None:
    """The journal moved records: follow."""
    segment = next(iter(moves)) >> SEGMENT_SHIFT  # all of them come out of one
    for _, page in messages.waiting_pages():
        if page.touches(segment):
            page.relocate(moves)
    for span in messages.all_spans():
        block = span.block
        block.position = moves.get(block.position, block.position)
        if block.positions is not None:
            for index, position in enumerate(block.positions):
                block.positions[index] = moves.get(position, position)
