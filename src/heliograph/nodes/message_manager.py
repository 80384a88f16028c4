"""The message manager: stores and distributes messages, and never talks to clients (M1).

A shell: it feeds commands from the bus and answers of the journal to the destination engines and carries out
what they return.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from pathlib import Path
from typing import Any

import msgspec

from heliograph.bus.commands import (
    Answered,
    Asked,
    Command,
    ConsumerAttached,
    ConsumerDetached,
    CreditGranted,
    DestinationWanted,
    Published,
    Rejected,
    SessionClosed,
    SessionLost,
    SessionOpened,
    SessionResumed,
    Settled,
)
from heliograph.bus.interface import Bus
from heliograph.destinations.catalogue import Catalogue
from heliograph.destinations.destination import Destination
from heliograph.destinations.effects import (
    AnyEffect,
    Continue,
    Load,
    Multicast,
    Note,
    Persist,
    Release,
    Retain,
    Write,
)
from heliograph.destinations.events import BlockRefused, BlocksStored, PageLoaded, TurnCame
from heliograph.destinations.intake import number_mark
from heliograph.destinations.recovery import CatalogueRecovery, snapshot_of
from heliograph.destinations.waiting import Residence
from heliograph.journal.files import Journal, JournalSettings
from heliograph.journal.records import RecordKind
from heliograph.model.block import Block
from heliograph.model.errors import CorruptJournal, HeliographError, StorageFull, Unavailable
from heliograph.model.limits import SESSION_MEMORY_SECONDS
from heliograph.nodes.clock import boot_id, now
from heliograph.nodes.compactor import Compactor
from heliograph.nodes.tick import Tick

_PAIR = struct.Struct("<QQ")
# How often sessions that nobody will resume, and segments worth rewriting, are looked for.
_HOUSEKEEPING_SECONDS = 5.0


class MessageManager:
    """One message manager with its journal."""

    def __init__(
        self,
        directory: Path,
        *,
        bus: Bus,
        tick: Tick,
        settings: JournalSettings,
        resident_bytes: int,
        in_memory: bool,
    ) -> None:
        self._bus = bus
        self._tick = tick
        self._in_memory = in_memory
        self._loop = asyncio.get_running_loop()
        self._boot = boot_id()
        self.catalogue = Catalogue(Residence(resident_bytes))
        self.journal = Journal(directory, settings=settings, listener=self, loop=self._loop)
        self._compactor = Compactor(self.journal, self.catalogue)
        self._persisting: deque[tuple[int, Destination, Block]] = deque()
        self._noting: deque[tuple[int, int]] = deque()
        self._turns: dict[int, Destination] = {}
        self._housekeeping: asyncio.TimerHandle | None = None
        self.failed: asyncio.Future[HeliographError] = self._loop.create_future()
        self.recovered_messages = 0

    # ---- life

    def start(self) -> None:
        """Recover, then join the bus. Raises CorruptJournal, or whatever else keeps the store from
        opening."""
        recovery = CatalogueRecovery(self.catalogue, now())
        self.journal.recover(on_snapshot=recovery.snapshot, on_record=recovery.record)
        self.recovered_messages = recovery.finish(self.journal, boot=self._boot)
        self.journal.check_all_there()
        self._append(RecordKind.STARTED, 0, 0, self._boot)
        self.journal.sync_now()  # whatever is handed out from now on, a restart will know that there was one
        self._tick.add(self._end_of_tick)
        self._bus.join(self.on_command)
        self._keep_house()

    def stop(self) -> None:
        """Everything that was confirmed is on disk when this returns."""
        if self._housekeeping is not None:
            self._housekeeping.cancel()
        self._append(RecordKind.STOPPED, 0, 0, b"")
        self.journal.close()

    def _keep_house(self) -> None:
        self._run(None, self.catalogue.forget_lost_before(now() - SESSION_MEMORY_SECONDS))
        self._compactor.step()
        self._tick.ask()
        self._housekeeping = self._loop.call_later(_HOUSEKEEPING_SECONDS, self._keep_house)

    # ---- from the bus

    def on_command(self, command: Command) -> None:
        kind = type(command)
        if kind is Published or kind is Settled or kind is CreditGranted or kind is ConsumerDetached:
            if self._in_memory and kind is Published:
                command.block.persistent = False  # type: ignore[attr-defined]
            destination = self.catalogue.by_address.get(command.address)  # type: ignore[attr-defined]
            if destination is None:
                return  # a consumer that never came to be is gone again
            self._run(destination, destination.handle(command))  # type: ignore[arg-type]
        else:
            self._rarer(command)

    def _rarer(self, command: Command) -> None:
        catalogue = self.catalogue
        if isinstance(command, ConsumerAttached):
            self._attach(command)
        elif isinstance(command, DestinationWanted):
            self._run(None, catalogue.wanted(command))
        elif isinstance(command, SessionOpened):
            self._run(None, catalogue.session_opened(command, now()))
        elif isinstance(command, SessionResumed):
            self._run(None, catalogue.session_resumed(command))
        elif isinstance(command, SessionLost):
            catalogue.session_lost(command, now())
        elif isinstance(command, SessionClosed):
            self._run(None, catalogue.session_closed(command))
        elif isinstance(command, Asked):
            self._asked(command)

    def _attach(self, command: ConsumerAttached) -> None:
        effects: list[AnyEffect] = []
        try:
            destination = self.catalogue.find_or_make(command.address, effects, create=command.create)
        except HeliographError as error:
            self._bus.multicast(Rejected(command.request, error.code, error.sentence))
            return
        self._run(None, effects)
        self._run(destination, destination.handle(command))

    def _asked(self, command: Asked) -> None:
        body: dict[str, Any]
        if command.subject == "destinations":
            figures = [msgspec.to_builtins(each.figures()) for each in self.catalogue.all_destinations()]
            body = {"destinations": figures}
        else:
            body = {"journal": self.journal.stats(), "resident_bytes": self.catalogue.residence.used}
        self._bus.multicast(Answered(command.request, body))

    # ---- carrying out

    def _run(self, destination: Destination | None, effects: list[AnyEffect]) -> None:
        for effect in effects:
            kind = type(effect)
            if kind is Multicast:
                self._bus.multicast(effect.command)  # type: ignore[union-attr]
            elif kind is Release:
                self.journal.release(effect.position, effect.count)  # type: ignore[union-attr]
            elif destination is not None:
                self._run_for(destination, effect)
            else:
                assert isinstance(effect, Write)
                self._append(effect.kind, 0, 0, effect.payload)

    def _run_for(self, destination: Destination, effect: AnyEffect) -> None:
        match effect:
            case Persist(block):
                self._persist(destination, block)
            case Note(kind, list_number, ranges, request):
                payload = b"".join([_PAIR.pack(first, last) for first, last in ranges])
                if request:
                    self._noting.append((self.journal.next_lsn, request))
                self._append(kind, destination.number, list_number, payload, wait=bool(request))
            case Load(list_number, priority, page):
                self._load(destination, list_number, priority, page.positions)
            case Retain(position, count):
                self.journal.retain(position, count)
            case Continue():
                if not self._turns:
                    self._loop.call_soon(self._next_turns)
                self._turns[destination.number] = destination
            case Write(kind, payload):
                self._append(kind, destination.number, 0, payload)

    def _persist(self, destination: Destination, block: Block) -> None:
        journal = self.journal
        kind = RecordKind.PUBLISHED if block.persistent else RecordKind.SPILLED
        assert block.buffer is not None
        lsn = journal.next_lsn
        block.position = journal.append(
            kind, destination.number, number_mark(block), (block.buffer,), block.size, bulky=True
        )
        if block.position:
            journal.retain(block.position, block.count)
            self._persisting.append((lsn, destination, block))
        else:
            # No room. It has to be taken back before anything else is accepted after it.
            full = StorageFull("the disk, or the quota on it, is full: nothing was stored")
            self._run(destination, destination.handle(BlockRefused(block, full.code, full.sentence)))
        self._tick.ask()

    def _append(
        self, kind: int, destination: int, list_number: int, payload: bytes, *, wait: bool = False
    ) -> None:
        self.journal.append(kind, destination, list_number, (payload,), len(payload), wait=wait)
        self._tick.ask()

    def _load(self, destination: Destination, list_number: int, priority: int, positions: Any) -> None:
        def then(found: list[bytes] | CorruptJournal) -> None:
            if isinstance(found, CorruptJournal):
                self.journal_failed(found)
                return
            self._run(destination, destination.handle(PageLoaded(list_number, priority, found)))
            self._tick.ask()

        self.journal.load(positions, then)

    def _next_turns(self) -> None:
        turns, self._turns = self._turns, {}
        for destination in turns.values():
            self._run(destination, destination.handle(TurnCame()))
        self._tick.ask()

    # ---- from the journal

    def _end_of_tick(self) -> None:
        journal = self.journal
        journal.end_of_tick()
        if journal.has_pending:
            journal.end_of_tick()  # what was stored just now was handed out: write that down before it leaves
        if journal.snapshot_due:
            journal.snapshot([snapshot_of(self.catalogue, self._boot)])

    def journal_stored(self, lsn: int) -> None:
        persisting = self._persisting
        by_destination: dict[int, tuple[Destination, list[Block]]] = {}
        while persisting and persisting[0][0] <= lsn:
            _, destination, block = persisting.popleft()
            found = by_destination.get(destination.number)
            if found is None:
                by_destination[destination.number] = (destination, [block])
            else:
                found[1].append(block)
        for destination, stored in by_destination.values():
            self._run(destination, destination.handle(BlocksStored(stored)))
        while self._noting and self._noting[0][0] <= lsn:
            self._bus.multicast(Answered(self._noting.popleft()[1], {}))
        self._compactor.stored(lsn)
        self._tick.ask()

    def journal_refused(self, lsns: list[int], _error: StorageFull) -> None:
        """Published blocks were taken back when the journal had no place for them; copies are simply not
        made."""
        self._compactor.refused(dict.fromkeys(lsns))

    def journal_failed(self, error: HeliographError | OSError) -> None:
        if isinstance(error, OSError):
            error = Unavailable(f"the journal's disk failed: {error}", code="disk-failed")
        if not self.failed.done():
            self.failed.set_result(error)
