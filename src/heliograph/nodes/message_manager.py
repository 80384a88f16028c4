"""The message manager: stores and distributes messages, and never talks to clients (M1).

A shell: it feeds commands from the bus, answers of the journal and the time to the destination engines and
carries out what they return.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from heliograph.bus.commands import (
    FACTS,
    Answered,
    Asked,
    Command,
    CommitAsked,
    ConsumerAttached,
    ConsumerDetached,
    ConsumerRetired,
    CreditGranted,
    Decision,
    DestinationDeleted,
    DestinationSought,
    DestinationWanted,
    DocumentOffered,
    DocumentTold,
    OldestWanted,
    OutcomeWanted,
    PathsChecked,
    PathWanted,
    PlacementWanted,
    Published,
    Refused,
    Rejected,
    RollbackAsked,
    SessionClosed,
    SessionLost,
    SessionOpened,
    SessionResumed,
    Settled,
    SubscriptionEnded,
    TopicsWanted,
)
from heliograph.bus.interface import Bus
from heliograph.cluster.log import LogPlace, encode_place
from heliograph.destinations.alerts.channel import ALERT_FACTS
from heliograph.destinations.attendance import NO_NUMBER
from heliograph.destinations.catalogue import Catalogue
from heliograph.destinations.destination import Destination
from heliograph.destinations.documents import Document, encode_document
from heliograph.destinations.doubts import Doubt, doubt_of, encode_doubt
from heliograph.destinations.effects import (
    Administer,
    Announce,
    Answer,
    AnyEffect,
    Bury,
    Continue,
    Load,
    Missed,
    Multicast,
    Note,
    Persist,
    Release,
    ReleasePage,
    Retain,
    StoreAlert,
    Wake,
    Write,
)
from heliograph.destinations.events import (
    BlockRefused,
    BlocksReady,
    BlocksStored,
    ConsumerAway,
    ConsumersGone,
    DispatchesDropped,
    PageLoaded,
    Swept,
    TimeCame,
    TurnCame,
)
from heliograph.destinations.intake import number_mark
from heliograph.destinations.ledger import MissedRecord, encode_record
from heliograph.destinations.pages import Page
from heliograph.destinations.recovery import CatalogueRecovery, Claim, Given, Inheritance
from heliograph.destinations.snapshot import encode_state, snapshot_of
from heliograph.destinations.transactions import BEFORE, Deciding
from heliograph.destinations.waiting import Residence
from heliograph.journal.disk import DISK, Disk
from heliograph.journal.files import Journal, JournalSettings
from heliograph.journal.records import MOMENT, NO_MOMENT, RecordKind
from heliograph.model.block import LARGE, Block, Span, parse_trusted
from heliograph.model.destination import Address
from heliograph.model.errors import NO_ROOM, CorruptJournal, HeliographError, StorageFull, Unavailable
from heliograph.model.ids import ConsumerId, IdIssuer, LaneId, SessionId
from heliograph.model.large import FileId, LargeReference, reference_of
from heliograph.model.limits import (
    DEAF_HEARTBEATS,
    DOUBT_SECONDS,
    HEARTBEAT_SECONDS,
    KEPT_SESSION_SECONDS,
    LARGE_RESERVE_BYTES,
    SESSION_MEMORY_SECONDS,
    UPLOAD_MEMORY_SECONDS,
)
from heliograph.model.policy_rules import NO_RULES, PolicyRules
from heliograph.nodes.administrator import Administrator
from heliograph.nodes.alerting import Alerting
from heliograph.nodes.clock import CLOCK, Clock
from heliograph.nodes.committing import Committing
from heliograph.nodes.compactor import Compactor
from heliograph.nodes.event_log import Record, ignore
from heliograph.nodes.gravedigger import Gravedigger
from heliograph.nodes.inherited import restore_doubtful
from heliograph.nodes.large_files import LargeFiles
from heliograph.nodes.large_store import CONCERNED, LargeStore, checked_reference
from heliograph.nodes.mover import Mover
from heliograph.nodes.own_messages import OwnMessages
from heliograph.nodes.pipelines import Pipelines
from heliograph.nodes.preparing import PROMISES, Preparing
from heliograph.nodes.tick import Tick

_PAIR = struct.Struct("<QQ")
# How often sessions that nobody will resume, and segments worth rewriting, are looked for.
_HOUSEKEEPING_SECONDS = 5.0
# How often messages that are past their time are looked for.
_SWEEP_SECONDS = 1.0
_IDENTITY_BYTES = 8
# Of a lease that has just passed, until that is noticed.
_LEAST_LEASE_SECONDS = 0.001
# Of the log: how far it is stored elsewhere is not known yet.
NOT_YET: Final = -1
_FULL = StorageFull(f"{NO_ROOM}: nothing was stored")
_TO_ONE_DESTINATION = (Published, Settled, CreditGranted, ConsumerRetired)


class Shipping(Protocol):
    """Who has the log of this manager stored by others too (docs/decisions/0010)."""

    def wrote_block(self, kind: int, destination: int, list_number: int, block: Block) -> None: ...

    def wrote(self, kind: int, destination: int, list_number: int, payload: bytes) -> None: ...

    def consumer_changed(self, consumer: ConsumerId) -> None:
        """A consumer went, or went away, without having said so."""

    def stored_here(self, lsn: int) -> int:
        """Our own disk has the log up to here. How far may it be called stored?"""


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
        issuer: IdIssuer,
        rules: PolicyRules = NO_RULES,
        node: str = "",
        record: Record = ignore,
        large_quota_bytes: int = 0,
        large_reserve_bytes: int = LARGE_RESERVE_BYTES,
        kept_seconds: float = KEPT_SESSION_SECONDS,
        is_replicated: bool = False,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
        disk: Disk = DISK,
        clock: Clock = CLOCK,
    ) -> None:
        """`heartbeat_seconds`: the longest that clients and client managers are silent."""
        self._bus = bus
        self._tick = tick
        self.folder, self.disk = directory.parent, disk
        self._in_memory = in_memory
        self._kept_seconds = kept_seconds
        self._loop = asyncio.get_running_loop()
        self.now, self.microseconds = clock.now, clock.microseconds
        self.boot = clock.boot_id()  # names this run of the machine
        self._load_rate = 0.0
        self._load_at, self._load_bytes = 0.0, 0.0
        self._new_identity = partial(clock.secret, _IDENTITY_BYTES)
        self.record = record
        self.catalogue = Catalogue(
            Residence(resident_bytes),
            rules,
            is_replicated=is_replicated,
            doubt_seconds=DEAF_HEARTBEATS * heartbeat_seconds,
        )
        self.journal = Journal(directory, settings=settings, listener=self, loop=self._loop, disk=disk)
        files = LargeFiles(
            directory.parent / "large",
            forces=settings.durability == "fsync" and not in_memory,
            quota_bytes=large_quota_bytes,
            reserve_bytes=large_reserve_bytes,
            disk=disk,
        )
        self.large = LargeStore(files, self.catalogue.large, bus=bus, tick=tick, loop=self._loop)
        self._compactor = Compactor(self.journal, self.catalogue)
        self._gravedigger = Gravedigger(self, issuer)
        self._committing = Committing(self)
        self.alerting = Alerting(self, in_memory=in_memory)
        self._preparing = Preparing(self, self._committing)
        self.pipelines = Pipelines(self, issuer, self._preparing)
        self.stable_lsn = 0  # everything up to here is stored, wherever it has to be
        self.tells_stored = False  # whether what is decided just now was waiting for that
        self.stable_index = NOT_YET  # the same as an index of the log, where several managers have it
        self.mover = Mover(self, issuer)
        self.own_messages = OwnMessages(self, issuer)
        self.administrator = Administrator(self, self.own_messages, node=node, record=record)
        # What waits for the disk, in the order of the log: blocks, and commits whose record is behind their
        # blocks.
        self._persisting: deque[tuple[int, Destination, Block] | tuple[int, None, Deciding]] = deque()
        self._noting: deque[tuple[int, Decision]] = deque()  # what is told when so much is stored
        self._turns: dict[int, Destination] = {}
        self._loading: dict[int, int] = {}  # pages that are being read, by the number of their destination
        self._timers: dict[int, Destination] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = 0
        self._housekeeping: asyncio.TimerHandle | None = None
        self._sweeping: asyncio.TimerHandle | None = None
        self.failed: asyncio.Future[HeliographError] = self._loop.create_future()
        self.recovered_messages = 0
        self._is_tight = False
        self._writes_times = False
        self.recovery: CatalogueRecovery | None = None  # while it follows, which may be for ever
        self.place = LogPlace(reader=self.catalogue.ledger if is_replicated else None)
        self.shipping: Shipping | None = None

    # ---- life

    def start(self) -> None:
        """Recover, then join the bus. Raises CorruptJournal, or whatever else keeps the store from
        opening."""
        self.open()
        self.lead()
        self._tick.add_write(self.end_of_tick)
        self._bus.join(self.on_command, FACTS)

    def open(self, until: int | None = None) -> None:
        """Read the journal. What another manager writes may follow. `until`: as if it ended at this index."""
        place = self.place if self.catalogue.is_replicated else None
        recovery = self.recovery = CatalogueRecovery(self.catalogue, self.now(), place, until)
        self.journal.recover(on_snapshot=recovery.snapshot, on_record=recovery.record)
        if self.catalogue.is_replicated:
            self.large.start(self.catalogue.sessions.__contains__, self._reference_to)
        if self.catalogue.is_replicated and until is None:
            here = encode_place(self.place.index)
            self.journal.append(RecordKind.PLACE, 0, 0, (here,), len(here))
            self.pipelines.follow_holds()

    def _reference_to(self, file: FileId) -> LargeReference | None:
        """None: the messages that referred to it are over, as recovery will find."""
        for position, named in self.catalogue.large.pairs():
            if named == file and self.journal.has_segment_of(position):
                return reference_of(parse_trusted(self.journal.read_now(position)))
        return None

    def externalise(self) -> bytes:
        """The state at this index, as another manager could start from it."""
        self.end_of_tick()
        if self.recovery is None:
            return snapshot_of(self.catalogue, self.boot, self.place.state)
        state, _ = self.recovery.state(self.place.state)
        return encode_state(state)

    def lead(self) -> None:
        """Go to work with what was there when the last manager that led had ended."""
        assert self.recovery is not None, "it leads already"
        files = self.large.references()
        inheritance = self.recovery.finish(self.journal, boot=self.boot)
        self.recovered_messages = inheritance.messages
        self.journal.check_all_there()
        pledged, self.recovery = self.recovery.pledged, None
        self._writes_times = self.catalogue.pipelines.has_holds  # as whoever wrote before
        if self.catalogue.is_replicated:
            self.large.counted_anew(files, self.journal.next_lsn)
        else:
            self.large.start(self.catalogue.sessions.__contains__)
        self._preparing.recovered(pledged)
        if self.catalogue.is_replicated and not self.place.identity:
            self.append(RecordKind.IDENTITY, 0, 0, self._new_identity())
        self.append(RecordKind.STARTED, 0, 0, self.boot)
        self._begin()
        restore_doubtful(self, inheritance)

    @property
    def has_lost_its_end(self) -> bool:
        """Whether the log that it reads may once have been longer: what was not forced is lost with the machine."""
        assert self.recovery is not None, "who leads has its own end"
        return not self.recovery.stopped_clean and self.place.boot != self.boot

    def take_over(self, given: list[Given]) -> Inheritance:
        """Go to work where another manager stopped a moment ago. What consumers have is for the caller to
        restore."""
        assert self.recovery is not None, "it leads already"
        self.journal.count_anew([])
        files = self.large.references()
        inheritance = self.recovery.take_over(given, self.journal)
        self.journal.check_all_there()
        pledged, self.recovery = self.recovery.pledged, None
        self._writes_times = self.catalogue.pipelines.has_holds  # as whoever wrote before
        self.large.counted_anew(files, self.journal.next_lsn)
        self._preparing.recovered(pledged)
        for destination, list_number, ranges in inheritance.returned:
            self.note(RecordKind.RETURNED, self.catalogue.by_number[destination], list_number, ranges)
        self.begin_view()
        self._begin()
        return inheritance

    def begin_view(self) -> None:
        """What client managers said before may not have been heard here."""
        for each in self.catalogue.all_destinations():
            each.intake.begin_view()

    def _begin(self) -> None:
        effects: list[AnyEffect] = []
        self.catalogue.make_well_known(effects)
        self.run(None, effects)
        for destination in self.catalogue.all_destinations():
            destination.recovered()
        self.pipelines.recovered()
        self.journal.sync_now()  # whatever is handed out from now on, a restart will know that there was one
        self._keep_house()
        self._sweep()

    def stop(self, *, led: bool = True) -> None:
        """Everything that was confirmed is on disk when this returns. Not `led`: others lead now."""
        for timer in (self._housekeeping, self._sweeping, self._alarm):
            if timer is not None:
                timer.cancel()
        self.large.stop()
        self.pipelines.stop()
        if self.recovery is None and led:
            self._write_time()
            self.append(RecordKind.STOPPED, 0, 0, b"")
        self.journal.close()

    def _keep_house(self) -> None:
        moment = self.now()
        self.run(
            None,
            self.catalogue.forget_lost_before(moment - SESSION_MEMORY_SECONDS, moment - self._kept_seconds),
        )
        for news in self.catalogue.paths.unused(int(moment * 1_000_000)):
            self._bus.multicast(news)
        self._compactor.step()
        self.large.expire(self._may_go_on)
        self._tick.ask()
        self._housekeeping = self._loop.call_later(_HOUSEKEEPING_SECONDS, self._keep_house)

    def _may_go_on(self, session: SessionId) -> bool:
        """Whether a session is there, or was so lately that its client may go on with an upload."""
        known = self.catalogue.sessions.get(session)
        if known is None:
            return False
        return not known.lost_at or self.now() - known.lost_at < UPLOAD_MEMORY_SECONDS

    def _sweep(self) -> None:
        moment = self.microseconds()
        for destination in list(self.catalogue.all_destinations()):
            if destination.needs_sweeping:
                self.run(destination, destination.handle(Swept(), moment))
        for attendant in self.catalogue.attendance.overdue(self.now()):
            self._detach(ConsumerDetached(attendant.address, attendant.consumer))
            self._tick.ask()
        if self._preparing.is_concerned:
            self._preparing.ask()
        self.pipelines.sweep()
        self._sweeping = self._loop.call_later(_SWEEP_SECONDS, self._sweep)

    # ---- from the bus

    def on_command(self, command: Command) -> None:
        if isinstance(command, _TO_ONE_DESTINATION):
            destination = self.catalogue.by_address.get(command.address)
            if type(command) is Published:
                if destination is None:  # deleted, as temporary ones are; its sender must not wait for ever
                    block, sentence = command.block, f"{command.address} does not exist any more"
                    self._bus.multicast(Refused(block.lane, block.first, "destination-unknown", sentence))
                    return
                if self._in_memory:
                    command.block.persistent = False
                if command.block.flags & LARGE:
                    self._publish_large(destination, command)
                    return
                if command.staged:
                    self._committing.stage(destination, command.block)
                    return
            if destination is not None:
                self.run(destination, destination.handle(command, self.microseconds()))
        else:
            self._rarer(command)

    def _publish_large(self, destination: Destination, command: Published) -> None:
        """A message that refers to a file: taken if all of the file is here."""
        block, intake = command.block, destination.intake
        reference = checked_reference(block)
        if reference is None or not self.large.knows(reference):
            effects: list[AnyEffect] = []
            if intake.accept(block, effects, number=False):  # otherwise it is here already
                sentence = "the content of the large message is not here: send it again"
                intake.stage_refused(block, code="large-unknown", sentence=sentence, effects=effects)
            self.run(destination, effects)
            return
        if command.staged:
            self._committing.stage(destination, block)
        else:
            self.run(destination, destination.handle(command, self.microseconds()))
        if intake.marks().get(block.lane, 0) >= block.last:
            self.large.accepted(reference)

    def _rarer(self, command: Command) -> None:
        catalogue = self.catalogue
        if isinstance(command, CONCERNED):
            self.large.on_command(command)
        elif isinstance(command, ConsumerAttached):
            self._attach(command)
        elif isinstance(command, ConsumerDetached):
            self._detach(command)
        elif isinstance(command, DestinationWanted):
            self.run(None, catalogue.wanted(command))
        elif isinstance(command, DestinationSought):
            self.run(None, catalogue.sought(command, self.load()))
        elif isinstance(command, PlacementWanted):
            self.run(None, catalogue.place(command))
        elif isinstance(command, PathWanted | PathsChecked | OldestWanted):
            self._on_path(command)
        elif isinstance(command, CommitAsked):
            self._committing.commit(command)
        elif isinstance(command, RollbackAsked):
            self._committing.roll_back(command)
        elif isinstance(command, PROMISES):
            self._preparing.on_command(command)
        elif isinstance(command, DestinationDeleted):
            if command.address in catalogue.by_address:
                doubts = catalogue.doubts.at(catalogue.by_address[command.address].number)
                self.run(None, catalogue.delete(command.address))
                self.end_stale_doubts(doubts)
            else:
                self.run(None, catalogue.forget_placement(command.address))
        elif isinstance(command, TopicsWanted):
            self.run(None, catalogue.topics_wanted(command))
        elif isinstance(command, SubscriptionEnded):
            self.run(None, catalogue.end_subscription(command))
            self.end_stale_doubts(catalogue.doubts.at((command.client, command.subscription)))
        elif isinstance(command, SessionOpened):
            self.run(None, catalogue.session_opened(command, self.now()))
        elif isinstance(command, SessionResumed):
            if catalogue.may_resume(command):  # whoever had it before has it no more
                self._committing.session_gone(command.session)
                self._consumers_leave(command.session, command.lease_seconds)
            self.run(None, catalogue.session_resumed(command))
        elif isinstance(command, SessionLost):
            self._session_lost(command)
        elif isinstance(command, SessionClosed):
            self._session_closed(command)
        elif isinstance(command, ALERT_FACTS):
            self.alerting.on_command(command)
        elif isinstance(command, Asked):
            self._asked(command)
        elif isinstance(command, DocumentOffered):
            self._document_offered(command)

    def _asked(self, question: Asked) -> None:
        if self.pipelines.answers_to(question.subject):
            self.pipelines.asked(question)
        else:
            self.administrator.asked(question)

    def _on_path(self, command: PathWanted | PathsChecked | OldestWanted) -> None:
        """Nobody is told of a path that could be forgotten: others would be told of another."""
        catalogue = self.catalogue
        if isinstance(command, OldestWanted):
            self.run(None, catalogue.oldest(command))
            return
        if isinstance(command, PathsChecked):
            self.run(None, catalogue.paths_checked(command))
            return
        try:
            member, record = catalogue.path_wanted(command)
        except Unavailable as refusal:
            self._bus.multicast(Rejected(command.request, refusal.code, refusal.sentence))
            return
        if record:
            self.append(RecordKind.PATH, 0, 0, record, wait=True)
        self.answer_when_stored(command.request, {"member": member})

    def load(self) -> float:
        """How much there is to do: megabytes a second that were written since this was last asked."""
        now, written = self.now(), self.journal.stats()["bytes_written"]
        seconds = now - self._load_at
        if seconds >= 1.0:
            self._load_rate = (written - self._load_bytes) / seconds / 1e6
            self._load_at, self._load_bytes = now, written
        return self._load_rate

    def _document_offered(self, offer: DocumentOffered) -> None:
        """M14: the highest version wins, and whoever has another copy hears of it."""
        here = self.catalogue.documents.by_key.get(offer.key)
        if offer.version >= 0:
            self.take_document(Document(offer.key, offer.version, offer.content), offer.node)
        if here is not None and here.version >= offer.version and here.content != offer.content:
            self.record(
                "document-stale", key=here.key, here=here.version, there=offer.version, which=offer.node
            )
            self._bus.multicast(DocumentTold(here.key, here.version, here.content))

    def take_document(self, document: Document, node: str) -> None:
        """If it is newer than what is here, everybody is to have it."""
        before = self.catalogue.documents.by_key.get(document.key)
        if not self.catalogue.documents.offered(document):
            return
        self.append(RecordKind.DOCUMENT, 0, 0, encode_document(document))
        known = before.version if before is not None else -1
        self.record("document-taken", key=document.key, version=document.version, before=known, which=node)
        self._bus.multicast(DocumentTold(document.key, document.version, document.content))

    # ---- who consumes

    def _session_closed(self, command: SessionClosed) -> None:
        self._consumers_leave(command.session, 0, is_closed=True)
        self.alerting.session_closed(command.session)
        self._committing.session_gone(command.session)
        self.large.session_closed(command.session)
        self.run(None, self.catalogue.session_closed(command))

    def _session_lost(self, command: SessionLost) -> None:
        if not self.catalogue.is_elsewhere(command):
            self._committing.session_gone(command.session)
            self.large.session_lost(command.session)
            self.catalogue.session_lost(command, self.now())
            self._consumers_leave(command.session, command.lease_seconds, is_lost=True)
            self.alerting.session_lost(command.session)

    def _consumers_leave(
        self, session: SessionId, lease_seconds: float, *, is_lost: bool = False, is_closed: bool = False
    ) -> None:
        """The consumers of a session go, or, with a lease, those that can be claimed are away. What is lost once more
        is waited for no less: it may be in doubt, and whoever says so now is not the one that it was with. Nor does
        the end of a session say what its client settled in another part before."""
        attendance, now = self.catalogue.attendance, self.microseconds()
        gone: dict[Address, list[ConsumerId]] = {}
        for attendant in attendance.of(session):
            if is_lost and attendant.away_until > self.now() + lease_seconds:
                continue
            if is_closed and self.may_be_elsewhere(attendant.consumer):
                continue
            destination = self.catalogue.by_address.get(attendant.address)
            self._consumer_changed(attendant.consumer)
            if lease_seconds and attendant.can_be_claimed and destination is not None:
                begins_doubt = lease_seconds >= DOUBT_SECONDS
                attendance.went_away(attendant, self.now() + lease_seconds, is_in_doubt=begins_doubt)
                self.run(destination, destination.handle(ConsumerAway(attendant.consumer), now))
                is_in_doubt = attendant.consumer in self.catalogue.doubts
                if begins_doubt and attendant.attached is not None and not is_in_doubt:
                    self._note_doubt(doubt_of(attendant.attached, destination))
            else:
                self._end_doubt(attendant.consumer)
                attendance.detached(attendant.consumer)
                gone.setdefault(attendant.address, []).append(attendant.consumer)
        for address, consumers in gone.items():
            destination = self.catalogue.by_address.get(address)
            if destination is not None:
                self.run(destination, destination.handle(ConsumersGone(consumers), now))

    def _note_doubt(self, doubt: Doubt | None) -> None:
        if doubt is not None:
            self.catalogue.doubts.note(doubt)
            self.append(RecordKind.DOUBTED, doubt.destination, 0, encode_doubt(doubt))

    def end_stale_doubts(self, doubts: Iterable[Doubt]) -> None:
        """Of these, those of consumers that are there, or are gone."""
        for doubt in doubts:
            destination = self.catalogue.by_number.get(doubt.destination)
            is_gone = destination is None or destination.list_of(doubt.consumer) is None
            if is_gone or not self.catalogue.attendance.away_until(doubt.consumer):
                self._end_doubt(doubt.consumer)

    def _end_doubt(self, consumer: ConsumerId) -> None:
        if consumer in self.catalogue.doubts:
            self._note_doubt(self.catalogue.doubts.end(consumer))

    def _consumer_changed(self, consumer: ConsumerId) -> None:
        if self.shipping is not None:
            self.shipping.consumer_changed(consumer)

    def _detach(self, command: ConsumerDetached) -> None:
        self._consumer_changed(command.consumer)
        self._end_doubt(command.consumer)
        self.catalogue.attendance.detached(command.consumer)
        destination = self.catalogue.by_address.get(command.address)
        if destination is not None:
            self.run(destination, destination.handle(command, self.microseconds()))

    def _attach(self, command: ConsumerAttached) -> None:
        effects: list[AnyEffect] = []
        try:
            self.catalogue.settle_name(command, effects)
            destination = self.catalogue.find_or_make(command.address, effects, create=command.create)
        except HeliographError as error:
            self._bus.multicast(Rejected(command.request, error.code, error.sentence))
            return
        self.run(None, effects)
        number = number_of_consumer(command)
        self.catalogue.attendance.attached(
            command.session, command.consumer, command.address, number, command
        )
        self.run(destination, destination.handle(command, self.microseconds()))
        self._end_doubt(command.consumer)
        self.end_stale_doubts(self.catalogue.doubts.at((command.client, command.subscription)))

    def take_back(self, address: Address, of_consumers: list[tuple[ConsumerId, int, int]]) -> None:
        """Consumers were never given what they have under these tags, first and last."""
        destination = self.catalogue.by_address.get(address)
        if destination is not None:
            self.run(destination, destination.handle(DispatchesDropped(of_consumers), self.microseconds()))
            self._tick.ask()

    @property
    def view_of_decisions(self) -> bytes:
        """The view in which a transaction is decided now; empty for a server that is alone."""
        views = self.catalogue.views
        return views.present or (BEFORE if views.standing is not None else b"")

    def end_doubts(self, lease_seconds: float) -> None:
        """The cluster is whole: what was with clients of another part has the lease of any other."""
        self.catalogue.attendance.wait_at_most_until(self.now() + lease_seconds)

    def view_is_over(self) -> None:
        """The cluster may be in parts from here on: no lease of what is in doubt passes."""
        self.catalogue.attendance.doubt_until(self.now() + DOUBT_SECONDS)

    def view_begins(self, *, was_whole: bool) -> None:
        """`was_whole`: no part can have gone its own way since the last one."""
        if was_whole:
            self.catalogue.attendance.was_whole()
        else:
            self.view_is_over()
            self.catalogue.attendance.was_not_whole()

    def may_be_elsewhere(self, consumer: ConsumerId) -> bool:
        """Whether its client may settle in another part what it has. While the cluster is whole nobody does."""
        return consumer in self.catalogue.doubts and self.lease_of(consumer) > DOUBT_SECONDS / 2

    def lease_of(self, consumer: ConsumerId) -> float:
        """For how many seconds a consumer that is away is waited for; 0: it is there."""
        until = self.catalogue.attendance.away_until(consumer)
        return max(until - self.now(), _LEAST_LEASE_SECONDS) if until else 0.0

    def restore_attendant(self, attached: ConsumerAttached, lease_seconds: float) -> None:
        """A consumer that another manager had. With a lease: it is away."""
        attendance = self.catalogue.attendance
        attendance.attached(
            attached.session, attached.consumer, attached.address, number_of_consumer(attached), attached
        )
        if lease_seconds:
            for attendant in attendance.of(attached.session):
                if attendant.consumer == attached.consumer:
                    is_in_doubt = lease_seconds >= DOUBT_SECONDS or attached.consumer in self.catalogue.doubts
                    attendance.went_away(attendant, self.now() + lease_seconds, is_in_doubt=is_in_doubt)

    # ---- carrying out

    def run(self, destination: Destination | None, effects: list[AnyEffect]) -> None:
        for effect in effects:
            kind = type(effect)
            if kind is Multicast:
                self._bus.multicast(effect.command)  # type: ignore[union-attr]
            elif kind is Persist:
                assert destination is not None
                self._persist(destination, effect.block)  # type: ignore[union-attr]
            elif kind is Release:
                self.journal.release(effect.position, effect.count)  # type: ignore[union-attr]
                self.catalogue.large.release(effect.position, effect.count)  # type: ignore[union-attr]
            elif kind is ReleasePage:
                self._release_page(effect.page)  # type: ignore[union-attr]
            elif kind is Write:
                self.append(effect.kind, 0, 0, effect.payload, wait=effect.wait)  # type: ignore[union-attr]
            elif kind is Announce:
                self.announce_when_stored(effect.command)  # type: ignore[union-attr]
            else:
                assert destination is not None
                self._run_for(destination, effect)

    def _run_for(self, destination: Destination, effect: AnyEffect) -> None:
        match effect:
            case Note(kind, list_number, ranges, request):
                if request:
                    self._noting.append((self.journal.next_lsn, Answered(request, {})))
                self.note(kind, destination, list_number, ranges, wait=bool(request))
            case Answer(request, body):
                self.answer_when_stored(request, body)
            case Load(list_number, priority, page):
                self._load(destination, list_number, priority, page)
            case Retain(position, count):
                self.journal.retain(position, count)
                self.catalogue.large.retain(position, count)
            case Continue():
                if not self._turns:
                    self._loop.call_soon(self._next_turns)
                self._turns[destination.number] = destination
            case Wake(due):
                self._wake(destination, due)
            case Bury():
                self._gravedigger.bury(destination, effect)
            case Missed(lane, first, last):
                self._miss(destination, lane, first, last)
            case StoreAlert(index, payload):
                self.alerting.store(destination, index, payload)
            case Administer(block):
                # Not at once: whoever published it is not through with it yet.
                self._loop.call_soon(self.administrator.by_message, block)

    def _miss(self, destination: Destination, lane: LaneId, first: int, last: int) -> None:
        """P7: where there is another part, it may have what a lane goes on behind."""
        if self.catalogue.is_replicated:
            destination.intake.miss(lane, first, last)
            record = encode_record(MissedRecord(lane, first, last))
            self.append(RecordKind.MISSED, destination.number, 0, record)

    def became_whole(self) -> None:
        """Every message manager has all that any had."""
        self.run(None, self.catalogue.views.becomes_whole())
        self.catalogue.became_whole()

    def answer_when_stored(self, request: int, body: dict[str, Any]) -> None:
        """Answer when all that was written so far is stored."""
        self.announce_when_stored(Answered(request, body))

    def announce_when_stored(self, decision: Decision) -> None:
        """Tell everybody when all that was written so far is stored, wherever it has to be."""
        lsn = self.journal.next_lsn - 1
        self._noting.append((lsn, decision))
        if lsn <= self.stable_lsn:
            self._tell_noted(lsn)
        else:
            self._tick.ask()

    def _release_page(self, page: Page) -> None:
        for position, count in page.per_segment().items():
            self.journal.release(position, count)
        self.catalogue.large.release_page(page)

    def _persist(self, destination: Destination, block: Block) -> None:
        kind = RecordKind.PUBLISHED if block.persistent else RecordKind.SPILLED
        lsn = self.journal.next_lsn
        if self.store(kind, destination, block):
            self._persisting.append((lsn, destination, block))
        else:
            # No room. It has to be taken back before anything else is accepted after it.
            refused = BlockRefused(block, _FULL.code, _FULL.sentence)
            self.run(destination, destination.handle(refused, self.microseconds()))

    def store(self, kind: int, destination: Destination, block: Block) -> bool:
        """Append a block and hold it once. False: there was no room."""
        journal = self.journal
        assert block.buffer is not None
        block.position = journal.append(
            kind, destination.number, number_mark(block), (block.buffer,), block.size, bulky=True
        )
        if block.position:
            if self.shipping is not None and kind != RecordKind.SPILLED:
                self.shipping.wrote_block(kind, destination.number, number_mark(block), block)
            journal.retain(block.position, block.count)
            if block.flags & LARGE:
                self.large.stored(block)
        self._tick.ask()
        return block.position != 0

    def adopt(self, destination: Destination, block: Block) -> None:
        """Store a block that another destination had. There is room for it."""
        kind = RecordKind.ADOPTED if block.persistent else RecordKind.SPILLED
        lsn = self.journal.next_lsn
        is_stored = self.store(kind, destination, block)
        assert is_stored, "room was reserved"
        self._persisting.append((lsn, destination, block))

    @property
    def stable_position(self) -> int:
        """How far readers of the history may see."""
        return self.stable_index if self.catalogue.is_replicated else self.stable_lsn

    @property
    def last_position(self) -> int:
        """How far the history goes, by what readers may hold on to."""
        return self.place.index if self.catalogue.is_replicated else self.stable_lsn

    @property
    def is_all_stored(self) -> bool:
        """Whether nobody waits for the disk, here or elsewhere."""
        waits = self._persisting or self._noting or self.alerting.waits
        return not waits and self.journal.is_all_stored

    def ask_for_tick(self) -> None:
        self._tick.ask()

    def begin_turns(self) -> None:
        """Let every destination hand out what it can."""
        for destination in list(self.catalogue.all_destinations()):
            self.hand_out(destination)

    def hand_out(self, destination: Destination) -> None:
        """Let everybody who waits for messages of a destination have theirs."""
        effects: list[AnyEffect] = []
        destination.dispatch(effects, self.microseconds())
        self.run(destination, effects)

    def span_of(self, claim: Claim, blocks: dict[int, Block]) -> Span:
        """What a consumer has of a block. `blocks` are those that were read so far, by position."""
        entry = claim.entry
        block = blocks.get(entry.position)
        if block is None:
            block = parse_trusted(self.journal.read_now(entry.position), entry.position)
            block.number = entry.number - entry.start
            blocks[entry.position] = block
        return Span(block, entry.start, entry.start + entry.messages, entry.deliveries, entry.origin)

    def soon(self, call: Callable[[], None]) -> None:
        """After everybody else had their turn."""
        self._loop.call_soon(self._take_turn, call)

    def _take_turn(self, call: Callable[[], None]) -> None:
        call()
        self._tick.ask()

    def append(
        self, kind: int, destination: int, list_number: int, payload: bytes, *, wait: bool = False
    ) -> int:
        """Append a small record. Returns its LSN."""
        lsn = self.journal.next_lsn
        self.journal.append(kind, destination, list_number, (payload,), len(payload), wait=wait)
        if self.shipping is not None:
            self.shipping.wrote(kind, destination, list_number, payload)
        self._tick.ask()
        return lsn

    def append_if_room(self, kind: int, payload: bytes) -> bool:
        """Append a record that somebody waits for, unless that would use up what acknowledgements need."""
        position = self.journal.append(kind, 0, 0, (payload,), len(payload), bulky=True)
        if position and self.shipping is not None:
            self.shipping.wrote(kind, 0, 0, payload)
        self._tick.ask()
        return bool(position)

    def note(
        self,
        kind: int,
        destination: Destination,
        list_number: int,
        ranges: list[tuple[int, int]],
        *,
        wait: bool = False,
    ) -> None:
        """Append what happened to inclusive ranges of message numbers of a list."""
        payload = b"".join([_PAIR.pack(first, last) for first, last in ranges])
        self.append(kind, destination.number, list_number, payload, wait=wait)

    def await_commit(self, lsn: int, staged: list[tuple[Destination, Block]], deciding: Deciding) -> None:
        """The blocks of a transaction are there for all when its record is stored."""
        for destination, block in staged:
            self._persisting.append((lsn, destination, block))
        self._persisting.append((lsn, None, deciding))

    def multicast(self, command: Answered | Rejected | OutcomeWanted) -> None:
        self._bus.multicast(command)

    def _load(self, destination: Destination, list_number: int, priority: int, page: Page) -> None:
        self._loading[destination.number] = self._loading.get(destination.number, 0) + 1

        def then(found: list[bytes] | CorruptJournal) -> None:
            self._loading[destination.number] -= 1
            if not isinstance(found, CorruptJournal):
                loaded = PageLoaded(list_number, priority, page, page.buffers(found))
            elif list_number < 0:
                # A browser holds nothing: what it wanted to see may have been done, and its segment deleted.
                loaded = PageLoaded(list_number, priority, page, [])
            else:
                self.journal_failed(found)
                return
            self.run(destination, destination.handle(loaded, self.microseconds()))
            self.mover.page_loaded(destination)
            self._tick.ask()

        page.close()
        self.journal.load(page.records(), then)

    def is_loading(self, destination: Destination) -> bool:
        """Whether messages of a destination are being read from the disk."""
        return self._loading.get(destination.number, 0) > 0

    # ---- turns and time

    def _next_turns(self) -> None:
        turns, self._turns = self._turns, {}
        for destination in turns.values():
            self.run(destination, destination.handle(TurnCame(), self.microseconds()))
        self._tick.ask()

    def _wake(self, destination: Destination, due: int) -> None:
        self._timers[destination.number] = destination
        if not self._alarm_at or due < self._alarm_at:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm_at = due
            self._alarm = self._loop.call_later(max(due - self.microseconds(), 0) / 1e6, self._ring)

    def _ring(self) -> None:
        """Something is due: let those who wait for it have it, and set the clock for the next."""
        timers, self._timers = self._timers, {}
        self._alarm, self._alarm_at = None, 0
        for destination in timers.values():
            self.run(destination, destination.handle(TimeCame(), self.microseconds()))
            due = destination.next_due
            if due:
                self._wake(destination, due)
        self._tick.ask()

    # ---- from the journal

    def end_of_tick(self) -> None:
        journal = self.journal
        self._write_time()
        journal.end_of_tick()
        while journal.has_pending:
            self._write_time()
            journal.end_of_tick()  # what was stored just now was handed out: write that down before it leaves
        self.large.end_of_tick(journal.next_lsn)
        if journal.is_tight != self._is_tight:
            self._note_tight(journal.is_tight)
        if journal.snapshot_due:
            self._snapshot()

    def _write_time(self) -> None:
        """Whoever reads the history learns when things happened: at the end of a frame stands when it was written.
        Where nobody held it before, it is said first that nobody knows when that was."""
        if self.recovery is not None or not self.journal.has_pending:
            return
        if not self.catalogue.pipelines.has_holds:
            self._writes_times = False
            return
        now = MOMENT.pack(self.microseconds())
        for payload in (now,) if self._writes_times else (NO_MOMENT, now):
            self.journal.append(RecordKind.TIME, 0, 0, (payload,), len(payload))
            if self.shipping is not None:
                self.shipping.wrote(RecordKind.TIME, 0, 0, payload)
        self._writes_times = True

    def _snapshot(self) -> None:
        place = self.place.state
        if self.recovery is None:
            self.journal.snapshot([snapshot_of(self.catalogue, self.boot, place)])
            return
        state, held = self.recovery.state(place)
        self.journal.count_anew(held)
        files = self.large.references()
        self.recovery.recount_large(held)
        self.large.counted_anew(files, self.journal.next_lsn)
        self.journal.snapshot([encode_state(state)])

    def _note_tight(self, tight: bool) -> None:
        """Whoever sends is told by a refusal (storage-full); whoever watches, by the event log."""
        self._is_tight = tight
        self.record("disk-full" if tight else "disk-has-room", disk_bytes=self.journal.disk_bytes)

    def journal_stored(self, lsn: int) -> None:
        """Our own disk has it."""
        self.log_stored(lsn if self.shipping is None else self.shipping.stored_here(lsn))
        # Copies concern this journal alone. Until they are held nothing keeps their segment,
        # so they do not wait for others.
        self._compactor.stored(lsn)

    def log_stored(self, lsn: int) -> None:
        """The log is stored up to here, wherever it has to be."""
        self.stable_lsn = max(self.stable_lsn, lsn)
        self.tells_stored = True
        persisting = self._persisting
        stored: dict[int, tuple[Destination, list[Block]]] = {}
        while persisting and persisting[0][0] <= lsn:
            _, destination, what = persisting.popleft()
            if destination is None:
                assert isinstance(what, Deciding)
                self._tell_stored(stored)
                stored = {}
                self._committing.committed(what)
                continue
            assert isinstance(what, Block)
            found = stored.get(destination.number)
            if found is None:
                stored[destination.number] = (destination, [what])
            else:
                found[1].append(what)
        self._tell_stored(stored)
        self.alerting.stored(lsn)
        self._tell_noted(lsn)
        self.large.log_stored(lsn)
        self.administrator.stored(lsn)
        self.tells_stored = False
        self._tick.ask()

    def _tell_noted(self, lsn: int) -> None:
        was, self.tells_stored = self.tells_stored, True
        while self._noting and self._noting[0][0] <= lsn:
            self._bus.multicast(self._noting.popleft()[1])
        self.tells_stored = was

    def _tell_stored(self, stored: dict[int, tuple[Destination, list[Block]]]) -> None:
        """Producers wait for this: their confirmations leave before anything is handed out."""
        moment = self.microseconds()
        for destination, blocks in stored.values():
            self.run(destination, destination.handle(BlocksStored(blocks), moment))
        if stored and not self.journal.has_pending:
            self._tick.send_early()
        for destination, blocks in stored.values():
            self.run(destination, destination.handle(BlocksReady(blocks), moment))

    def journal_refused(self, lsns: list[int], _error: StorageFull) -> None:
        """Published blocks were taken back when the journal had no place for them; copies are simply not
        made."""
        self._compactor.refused(dict.fromkeys(lsns))

    def journal_failed(self, error: HeliographError | OSError) -> None:
        if isinstance(error, OSError):
            error = Unavailable(f"the journal's disk failed: {error}", code="disk-failed")
        if not self.failed.done():
            self.failed.set_result(error)


def number_of_consumer(command: ConsumerAttached) -> int:
    """Under which it can be claimed. A browser begins anew; what no-local leaves out hangs on the connection, or
    on the client."""
    begins_anew = command.browse or (command.no_local and not command.durable)
    return NO_NUMBER if begins_anew else command.number
