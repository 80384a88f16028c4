"""The backup's side of replication: a message manager that never stops recovering (docs/decisions/0010).

The primary's records go into the journal and to recovery as they come. Facts are kept until the log says that it
covers them, so that whoever leads next can handle those that it does not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from functools import partial

import msgspec

from heliograph.bus.commands import (
    Answered,
    Command,
    Confirmed,
    ConsumerAttached,
    DestinationWanted,
    Dispatched,
    FlowChanged,
    Introduction,
    Logged,
    Parcelled,
    Published,
    Refused,
    Rejected,
    SessionClosed,
    SessionLost,
    SessionOpened,
    SessionResumed,
    Shipped,
    Standing,
    Stored,
)
from heliograph.bus.interface import Incarnation
from heliograph.cluster.handed_out import Handed, needs_majority
from heliograph.cluster.log import LOCAL, LogPlace, name_of
from heliograph.cluster.requests import RecentRequests
from heliograph.destinations.recovery import Given
from heliograph.journal.records import RECORD_HEADER_BYTES, Record, RecordKind
from heliograph.model.block import LARGE, Block, Span, parse_trusted
from heliograph.model.destination import Address
from heliograph.model.errors import NO_ROOM, HeliographError, Unavailable
from heliograph.model.ids import ConsumerId, LaneId, SessionId, lane_number, lane_of, session_of
from heliograph.model.large import FileId, LargeReference, reference_of
from heliograph.nodes.inherited import restore_consumer
from heliograph.nodes.large_store import CONCERNED, FETCHES
from heliograph.nodes.leading import Leading
from heliograph.nodes.message_manager import MessageManager

_BLOCKS = (RecordKind.PUBLISHED, RecordKind.STAGED, RecordKind.ADOPTED, RecordKind.JOINED)
_RECORD_BYTES = RECORD_HEADER_BYTES + 8
"""What a record takes beside its payload, at most."""
# Hand-outs that are looked through for those that are over.
_PRUNE_AT = 2_000


Fact = tuple[Incarnation, int, Command]
"""Who said it, the number of its frame, and what."""


class LostPlace(HeliographError):
    """This manager cannot go on from its log: it has to catch up. `is_parted`: its log is not the primary's."""

    def __init__(self, sentence: str, *, is_parted: bool = False) -> None:
        super().__init__(sentence, code="log-parted")
        self.is_parted = is_parted


class Known(msgspec.Struct):
    """A consumer of the primary."""

    attached: ConsumerAttached
    standing: Standing


class Following:
    """From the moment in which a message manager has the primary's log until it leads, or has it no more."""

    def __init__(
        self,
        manager: MessageManager,
        say: Callable[[Command], None],
        own_disk_has: Callable[[int], None] = lambda _: None,
        bring: Callable[[], None] = lambda: None,
    ) -> None:
        """`bring`: what is in `lacking` has to be brought."""
        self._manager = manager
        self._say = say
        self._own_disk_has = own_disk_has
        self._bring = bring
        self.has_log = False  # records are applied as they come; before, it is behind
        self.is_synchronised = False  # and it knows all that is not in the log
        self.is_announced = False  # it has said that it has the log: an introduction may be meant for it
        self.sessions: dict[
            SessionId, Incarnation
        ] = {}  # with which client manager each is, as was heard last
        # The same, as far as the primary has handled the facts: it is by this that it judges those that follow.
        self._served: dict[SessionId, Incarnation] = {}
        self._marks: deque[tuple[int, int]] = deque()  # index, and the LSN it has here
        self._stored = manager.place.index
        self._said = 0
        self._facts: deque[Fact] = deque()
        self._older_facts = 0  # how many of these, at most, were heard before this view
        self._blocks: dict[bytes, list[Block]] = {}  # as often as they were heard and not yet handled
        self._blocked: dict[Address, str] = {}
        self._refused: dict[LaneId, None] = {}
        self._consumers: dict[ConsumerId, Known] = {}
        self._attaching: dict[ConsumerId, ConsumerAttached] = {}
        self._given: list[Given] = []
        self._dropped: list[Handed] = []  # of that: what no client was given, and the log need not say so yet
        self._prune_at = _PRUNE_AT
        self._unconfirmed: dict[
            LaneId, int
        ] = {}  # what was taken of lanes whose client has not been told yet
        self._answered = RecentRequests()
        self._handled: dict[Incarnation, int] = {}
        self._files: dict[
            FileId, int
        ] = {}  # content that is not on disk yet, and the index that waits for it
        self.lacking: dict[FileId, LargeReference] = {}  # and of that what somebody has to bring

    # ---- deliveries

    def heard(self, sender: Incarnation, sequence: int, fact: Command) -> None:
        """Somebody said something that the primary will act upon."""
        self._note_session(sender, fact)
        if sequence <= self._handled.get(sender, 0):
            return
        if isinstance(fact, CONCERNED):
            # Content is the same with everybody, and is stored as it comes. Downloads are the primary's alone.
            if not isinstance(fact, FETCHES):
                self._manager.large.on_command(fact)
            return
        self._facts.append((sender, sequence, fact))
        if isinstance(fact, Published):
            self._blocks.setdefault(name_of(fact.block), []).append(fact.block)

    def view_began(self) -> None:
        """Whoever leads in it has handled all that it had heard by now."""
        self._older_facts = len(self._facts)

    def _note_session(self, sender: Incarnation, fact: Command) -> None:
        """With which client manager a session is: with the last one that said so."""
        if isinstance(fact, SessionOpened | SessionResumed):
            self.sessions[fact.session] = sender
        elif isinstance(fact, SessionClosed) and self.sessions.get(fact.session, sender) == sender:
            self.sessions.pop(fact.session, None)

    def logged(self, logged: Logged) -> None:
        """Raises LostPlace."""
        place = self._manager.place
        if logged.introduction is not None and not self.is_announced and self._is_older(logged):
            self._drop_handled(logged.through)  # somebody else was introduced before this one had caught up
            return
        records = self._behind(logged)
        for at, shipped in enumerate(records):
            if shipped.kind == RecordKind.PIPELINE:
                self._keep_together(records[at:])
            self._write(shipped)
        if records:
            self._marks.append((place.index, self._manager.journal.next_lsn - 1))
        if any(shipped.kind == RecordKind.PIPELINE for shipped in records):
            self._manager.pipelines.follow_holds()
        self._drop_handled(logged.through)
        for address, lane, last, staged in logged.beside:
            self._came_so_far(address, lane, last, staged=staged)
        if logged.introduction is not None:
            self._consumers.clear()
            self._attaching.clear()
        for attached in logged.attached:
            self._attaching[attached.consumer] = attached
        for standing in logged.standing:
            self._stands(standing)
        for consumer in logged.gone:
            self._consumers.pop(consumer, None)
            self._attaching.pop(consumer, None)
        if logged.introduction is not None:
            self._introduced(logged.introduction)
        for decision in logged.decisions:
            self.decided(decision)
        self._manager.ask_for_tick()

    def _keep_together(self, records: list[Shipped]) -> None:
        """The note that a batch took effect stands in one frame with all of the batch, here too: after a crash of
        everybody this journal may be all that is left (docs/decisions/0024)."""
        size = upto_last = 0
        for shipped in records:
            size += len(self._payload_of(shipped)) + _RECORD_BYTES
            if shipped.kind in (RecordKind.COMMITTED, RecordKind.ALERT):
                upto_last = size
        self._manager.journal.reserve(upto_last)  # if that is too much, whoever writes it says so

    def _is_older(self, logged: Logged) -> bool:
        return logged.first + len(logged.records) <= self._manager.place.index

    def _behind(self, logged: Logged) -> list[Shipped]:
        """The records that are new here. Only who has just caught up has some of them, or all."""
        place = self._manager.place
        known = place.index + 1 - logged.first
        if known > len(logged.records):
            if logged.introduction is not None:
                raise LostPlace(f"the primary's log ends before {place.index}, which is ours")
            return []
        checked = LogPlace(logged.first - 1, logged.chain)
        for shipped in logged.records[: max(known, 0)]:
            checked.add(shipped.kind, shipped.destination, shipped.list, self._payload_of(shipped))
        if (checked.index, checked.chain) != (place.index, place.chain):
            raise LostPlace(
                f"the primary's log goes on at {logged.first} (chain {logged.chain}), ours at"
                f" {place.index + 1} (chain {place.chain})",
                is_parted=True,
            )
        return logged.records[known:]

    def _introduced(self, introduction: Introduction) -> None:
        for session, _, connection in introduction.sessions:
            known = self._manager.catalogue.sessions.get(session)
            if known is not None:
                known.lost_at, known.connection = 0.0, connection
        self._drop_handled(introduction.handled)
        self._served = {session: Incarnation(where) for session, where, _ in introduction.sessions}
        self.sessions = dict(self._served)
        self._facts = deque(
            heard
            for place, heard in enumerate(self._facts)
            if (place >= self._older_facts and heard[1] > self._handled.get(heard[0], 0))
            or not self._forget(
                heard[2]
            )  # what was heard elsewhere, and the primary never hears, is nobody's
        )
        self._older_facts = 0
        for sender, _, fact in self._facts:  # the primary may be slow: what it has yet to handle is newer
            self._note_session(sender, fact)
        self._refused = {lane: None for _, lane in introduction.refused}
        self._answered.clear()
        for request in introduction.answered:
            self._answered.add(request)
        self._unconfirmed = dict(introduction.unconfirmed)
        for address, lane, last in introduction.marks:
            destination = self._manager.catalogue.by_address.get(address)
            if destination is not None:
                destination.intake.advance(lane, last)
        for destination in self._manager.catalogue.all_destinations():
            for lane in destination.intake.resumed():
                destination.intake.went_on(lane)
        for address, lane in introduction.resumed:
            self._was_resumed(address, lane)
        self._given.clear()
        self._dropped.clear()
        for consumer, tag, first, last in introduction.given:
            self._was_given_numbers(consumer, tag, first, last)
        self.is_synchronised = True
        self.say_stored()  # also if it was before: the primary counts anew whom it introduces

    def _payload_of(self, shipped: Shipped) -> bytes:
        if not shipped.named:
            return shipped.payload
        heard = self._blocks.get(shipped.payload)
        if not heard or heard[0].buffer is None:
            raise LostPlace("the primary's log names a block that was not heard here")
        return heard[0].buffer

    def _forget(self, fact: Command) -> bool:
        """A fact was handled: its block is not needed any more. True."""
        if isinstance(fact, Published):
            name = name_of(fact.block)
            heard = self._blocks[name]
            heard.pop(0)
            if not heard:
                del self._blocks[name]
        return True

    def _write(self, shipped: Shipped) -> None:
        manager = self._manager
        payload = self._payload_of(shipped)
        is_block = shipped.kind in _BLOCKS
        lsn = manager.journal.next_lsn
        position = manager.journal.append(
            shipped.kind,
            shipped.destination,
            shipped.list,
            (payload,),
            len(payload),
            wait=True,
            bulky=is_block,
        )
        if not position:
            raise LostPlace(NO_ROOM)
        assert manager.recovery is not None, "a manager that leads follows nobody"
        record = Record(shipped.kind, shipped.destination, shipped.list, lsn, position, payload)
        manager.recovery.record(record)
        if is_block:
            header = parse_trusted(payload, keep=False)
            if shipped.kind == RecordKind.PUBLISHED:
                self._was_taken(header.lane, header.last)
            if header.flags & LARGE:
                self._refers(reference_of(parse_trusted(payload)))

    def _refers(self, reference: LargeReference) -> None:
        """A message has its content in a file: it is not stored before that is."""
        is_here = self._manager.large.refers(reference, partial(self._file_came, reference))
        if not is_here:
            self._files[FileId(reference.file)] = self._manager.place.index
        if is_here is False:
            self._lacks(reference)

    def _lacks(self, reference: LargeReference) -> None:
        self.lacking[FileId(reference.file)] = reference
        self._bring()

    def _file_came(self, reference: LargeReference, is_here: bool) -> None:
        if not is_here:
            self._lacks(reference)
            return
        file = FileId(reference.file)
        self._files.pop(file, None)
        self.lacking.pop(file, None)
        self.say_stored()

    def _drop_handled(self, through: list[tuple[bytes, int]]) -> None:
        for sender, sequence in through:
            self._handled[Incarnation(sender)] = sequence
        facts = self._facts
        while facts and facts[0][1] <= self._handled.get(facts[0][0], 0):
            self._older_facts = max(self._older_facts - 1, 0)
            self._was_handled(*facts.popleft())

    def _was_handled(self, sender: Incarnation, _sequence: int, fact: Command) -> None:
        """What a fact leads to beside the log."""
        catalogue = self._manager.catalogue
        self._forget(fact)
        if isinstance(fact, Published):
            destination = catalogue.by_address.get(fact.address)
            if destination is not None and self._served.get(session_of(fact.block.lane)) == sender:
                destination.intake.went_on(fact.block.lane)
        elif isinstance(fact, SessionResumed) and not catalogue.may_resume(fact):
            if fact.session in self._served and self.sessions.get(fact.session) == sender:
                self.sessions[fact.session] = self._served[fact.session]  # it was not theirs to take
        elif isinstance(fact, SessionOpened | SessionResumed):
            self._served[fact.session] = sender
            if isinstance(fact, SessionResumed):
                self._refused = {lane: None for lane in self._refused if session_of(lane) != fact.session}
            session = catalogue.sessions.get(fact.session)
            if session is not None:
                session.lost_at, session.connection, session.client = 0.0, fact.connection, fact.client
                if isinstance(fact, SessionResumed):
                    for number, address in session.lanes.items():
                        self._was_resumed(address, lane_of(fact.session, number))
        elif isinstance(fact, SessionClosed | SessionLost):
            if self._served.get(fact.session, sender) != sender:
                return  # the primary passed it over: the session was with another client manager
            if isinstance(fact, SessionClosed):
                self._served.pop(fact.session, None)
                self._manager.large.session_closed(fact.session)
            elif not catalogue.is_elsewhere(fact):
                catalogue.session_lost(fact, self._manager.now())
        elif isinstance(fact, DestinationWanted):
            self._refused.pop(fact.lane, None)
            catalogue.lane_used(fact.lane, fact.address)
            self._was_resumed(fact.address, fact.lane)

    def _was_resumed(self, address: Address, lane: LaneId) -> None:
        """Its client was told how far the lane has come, perhaps less far than was confirmed: it may begin further on
        with whoever leads then."""
        destination = self._manager.catalogue.by_address.get(address)
        if destination is not None:
            destination.intake.resume(lane)

    def _came_so_far(self, address: Address, lane: LaneId, last: int, *, staged: bool) -> None:
        """A lane came further than the log says. It may be confirmed later than it was taken."""
        destination = self._manager.catalogue.by_address.get(address)
        if destination is not None:
            destination.intake.advance(lane, last)
            if not staged:
                self._was_taken(lane, last)

    def _was_taken(self, lane: LaneId, last: int) -> None:
        """Whoever leads when it is stored, or needs no disk, confirms it."""
        self._unconfirmed[lane] = max(last, self._unconfirmed.get(lane, 0))

    def _was_refused(self, refused: Refused) -> None:
        self._refused[refused.lane] = None
        session = self._manager.catalogue.sessions.get(session_of(refused.lane))
        address = session.lanes.get(lane_number(refused.lane)) if session is not None else None
        destination = self._manager.catalogue.by_address.get(address) if address is not None else None
        if destination is not None:
            destination.intake.retreat(refused.lane, refused.first - 1)
        if refused.lane in self._unconfirmed:
            self._unconfirmed[refused.lane] = min(self._unconfirmed[refused.lane], refused.first - 1)

    def _stands(self, standing: Standing) -> None:
        known = self._consumers.get(standing.consumer)
        attached = self._attaching.pop(standing.consumer, None)
        if known is not None:
            known.standing = standing
            known.attached = attached or known.attached
            return
        if attached is not None:
            self._consumers[standing.consumer] = Known(attached, standing)

    def decided(self, decision: Command) -> None:
        """Something that the primary told the client managers."""
        if isinstance(decision, Dispatched):
            self._was_given(decision.consumer, decision.tag, decision.span)
        elif isinstance(decision, Parcelled):
            tag = decision.tag
            for span in decision.spans:
                self._was_given(decision.consumer, tag, span)
                tag += span.stop - span.start
        elif isinstance(decision, Answered | Rejected):
            self._answered.add(decision.request)
        elif isinstance(decision, Refused):
            self._was_refused(decision)
        elif isinstance(decision, FlowChanged):
            if decision.reason:
                self._blocked[decision.address] = decision.reason
            else:
                self._blocked.pop(decision.address, None)
        elif isinstance(decision, Confirmed) and self._unconfirmed.get(decision.lane, 0) <= decision.last:
            self._unconfirmed.pop(decision.lane, None)

    def _was_given(self, consumer: ConsumerId, tag: int, span: Span) -> None:
        if span.block.persistent:
            first = span.block.number + span.start
            self._was_given_numbers(consumer, tag, first, first + span.stop - span.start - 1)

    def _was_given_numbers(self, consumer: ConsumerId, tag: int, first: int, last: int) -> None:
        known = self._consumers.get(consumer)
        destination = self._manager.catalogue.by_address.get(known.attached.address) if known else None
        if known is None or destination is None:
            return
        self._given.append(Given(consumer, tag, destination.number, known.standing.list, first, last))
        if len(self._given) >= self._prune_at:
            assert self._manager.recovery is not None, "a manager that leads follows nobody"
            self._given = self._manager.recovery.still_given(self._given)
            self._prune_at = max(_PRUNE_AT, 2 * len(self._given))

    # ---- the end of a view

    def pass_what_waits(self) -> None:
        """Something that waits at the primary (`returning.py`) keeps behind it here what that has handled since. It
        counts before the end of a view is judged, and before anybody takes over."""
        facts, older = self._facts, self._older_facts
        self._facts, self._older_facts = deque(), 0
        for place, (sender, sequence, fact) in enumerate(facts):
            if sequence <= self._handled.get(sender, 0):
                self._was_handled(sender, sequence, fact)
            else:
                self._facts.append((sender, sequence, fact))
                self._older_facts += place < older

    def targets(self) -> Callable[[ConsumerId], Incarnation | None]:
        """The client manager that hands a consumer what most of them have seen. None for one whose session is on its
        way to another: it is given nothing more, and its client says what it holds."""
        moving = {fact.session: None for _, _, fact in self._facts if isinstance(fact, SessionResumed)}

        def target_of(consumer: ConsumerId) -> Incarnation | None:
            known = self._consumers.get(consumer)
            if known is None or known.standing.lease_seconds or not needs_majority(known.attached):
                return None
            session = known.attached.session
            return self.sessions.get(session) if session not in moving else None

        return target_of

    def only_these_came(self, came: Collection[Incarnation]) -> None:
        """Of what the others said something may be lost: their clients come again, and resume their lanes."""
        for destination in self._manager.catalogue.all_destinations():
            for lane in destination.intake.resumed():
                if self._served.get(session_of(lane)) not in came:
                    destination.intake.may_lack(lane)

    def was_dropped(self, dropped: list[Handed]) -> None:
        """The client managers of these consumers have dropped what they were to hand out. The primary takes it back;
        if it ends before anybody hears of that, whoever takes over does."""
        self._dropped = [handed for handed in self._dropped if handed.consumer in self._consumers]
        for handed in dropped:
            known = self._consumers[handed.consumer]
            if handed.persistent:
                self._dropped.append(handed)
            else:  # it ends with the primary that had it, and the consumer can take as many others
                standing = known.standing
                credit = standing.credit + handed.last - handed.first + 1
                known.standing = msgspec.structs.replace(standing, credit=credit)

    # ---- the disk

    def wrote_block(self, kind: int, destination: int, list_number: int, block: Block) -> None:
        raise AssertionError("a manager that follows writes what the primary wrote")

    def consumer_changed(self, consumer: ConsumerId) -> None:
        raise AssertionError("a manager that follows has no consumers")

    def wrote(self, kind: int, destination: int, list_number: int, payload: bytes) -> None:
        assert kind in LOCAL, "a manager that follows writes what the primary wrote"

    def stored_here(self, lsn: int) -> int:
        self._own_disk_has(lsn)
        while self._marks and self._marks[0][1] <= lsn:
            self._stored = self._marks.popleft()[0]
        if self._stored > self._said:
            self.say_stored()
        return lsn

    @property
    def lacks_content(self) -> bool:
        """Whether a message in its log has no content here: others have it, and should lead."""
        return bool(self._files)

    @property
    def stored_index(self) -> int:
        return min([self._stored, *(index - 1 for index in self._files.values())])

    def say_stored(self) -> None:
        """PROTOCOL 5: the primary hears how far this manager has the log on disk; what it said in an older view does
        not count."""
        if self.is_synchronised:
            stored = self.stored_index
            try:
                self._say(Stored(stored))
            except Unavailable:
                return  # `on_flow` says when
            self._said = stored

    def is_attended(self, address: Address, number: int) -> bool:
        """Whether anybody consumes from a list of a destination; -1: from any."""
        return any(
            known.attached.address == address and number in (-1, known.standing.list)
            for known in self._consumers.values()
        )

    # ---- catching up

    def goes_on_as(self, manager: MessageManager) -> None:
        """The manager was started anew from what another gave it: its log follows from there."""
        self._manager = manager
        self.is_announced = False
        self._marks.clear()
        self._files.clear()
        self.lacking.clear()
        self._stored, self._said = manager.place.index, 0
        manager.shipping = self

    # ---- taking over

    def take_over(self, lead: Leading) -> list[Fact]:
        """Be the primary, where the last one stopped. Returns what was said, and nobody has handled yet."""
        manager = self._manager
        self.pass_what_waits()
        lead.sessions = self._served
        lead.handled_before(self._handled)
        lead.answered_before(self._answered)
        inheritance = manager.take_over(self._given)
        blocks: dict[int, Block] = {}
        for consumer, known in self._consumers.items():
            claims = inheritance.claims.get(consumer, [])
            if restore_consumer(manager, known.attached, known.standing, claims, blocks):
                lead.remembers(known.attached)
        manager.end_stale_doubts(manager.catalogue.doubts)
        lead.take_back(self._dropped)
        manager.large.takes_over()
        self._restore_producers(lead)
        for lane, last in self._unconfirmed.items():
            lead.multicast(Confirmed(lane, last))
        return list(self._facts)

    def _restore_producers(self, lead: Leading) -> None:
        """Lanes that were refused stay so, and whoever was told to wait hears whether it still has to."""
        catalogue = self._manager.catalogue
        for lane in self._refused:
            session = catalogue.sessions.get(session_of(lane))
            address = session.lanes.get(lane_number(lane)) if session is not None else None
            destination = catalogue.by_address.get(address) if address is not None else None
            if destination is not None:
                destination.intake.refuse_again(lane)
        for destination in catalogue.all_destinations():
            destination.measure([])
            if destination.flow.blocked or destination.address in self._blocked:
                lead.multicast(FlowChanged(destination.address, destination.flow.blocked))
