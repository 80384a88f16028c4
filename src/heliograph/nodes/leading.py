"""The primary's side of replication: what it writes travels to the backups, and nothing is stored before one of them
says so (docs/decisions/0010).

A tick ends with one `Logged` command, and behind it go the decisions that were made meanwhile. What was multicast
and has not come back yet is kept: if the view changes, everybody drops it, and it is said again in the next one.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Collection

import msgspec

from heliograph.bus.commands import (
    Answered,
    Asked,
    ChunkRead,
    Command,
    CommitAsked,
    Confirmed,
    ConsumerAttached,
    ConsumerDetached,
    ConsumerRetired,
    CreditGranted,
    DestinationDeleted,
    DestinationGone,
    Dispatched,
    Introduction,
    Logged,
    Parcelled,
    PrepareAsked,
    Published,
    Recalled,
    Refused,
    Rejected,
    RollbackAsked,
    SessionClosed,
    SessionLost,
    SessionOpened,
    SessionResumed,
    Settled,
    Shipped,
    Standing,
    Supplied,
)
from heliograph.bus.interface import Incarnation
from heliograph.cluster.bodies import Bodies
from heliograph.cluster.handed_out import Handed, needs_majority, parts_of
from heliograph.cluster.log import LOCAL, name_of
from heliograph.cluster.partition_state import State
from heliograph.cluster.requests import RecentRequests
from heliograph.cluster.said_again import as_one
from heliograph.destinations.competing import Consumer
from heliograph.destinations.message_list import MessageList
from heliograph.model.block import LANES, SEQUENCES, Block, Span
from heliograph.model.destination import TEMPORARY_PREFIX, Address
from heliograph.model.destination import name_of as name_of_address
from heliograph.model.errors import Unavailable
from heliograph.model.ids import ConsumerId, LaneId, SessionId, session_of, text_of
from heliograph.model.limits import BODY_CACHE_BYTES, DOUBT_SECONDS
from heliograph.nodes.committing import in_doubt
from heliograph.nodes.message_manager import NOT_YET, MessageManager
from heliograph.nodes.pipelines import OF_THE_FEED, RESTRICTED
from heliograph.nodes.preparing import PROMISES

# Their answer may have to be given again: when most client managers have not seen it, it did not count.
_ASKED_AGAIN = (CommitAsked, *PROMISES)
_OF_A_CONSUMER = (ConsumerDetached, ConsumerRetired, CreditGranted, Settled)
# Another primary may have had room for the same message, and no reason to turn it away.
_FOR_WANT_OF_ROOM = ("storage-full", "destination-full", "destination-paused")


class Leading:
    """From the moment in which a message manager leads until it does no more."""

    def __init__(
        self,
        manager: MessageManager,
        say: Callable[[Command], None],
        own_disk_has: Callable[[int], None],
        *,
        backups: Collection[Incarnation] = (),
        prefix: bytes,
        lease_seconds: float,
    ) -> None:
        """`say` multicasts, and raises Unavailable while the bus takes no more. `backups` have the log: from the
        first record on, nothing counts as stored before one of them has it. `prefix` begins the names of blocks that
        are put together here: no other primary's do."""
        self._manager = manager
        self._prefix = prefix
        self.lease_seconds = lease_seconds  # of sessions whose client manager is gone
        self._say = say
        self._own_disk_has = own_disk_has
        self._records: list[Shipped] = []
        self._before = (manager.place.index, manager.place.chain)  # the log before this tick
        self._marks: deque[tuple[int, int]] = deque()  # index, and the LSN it has here
        self._here = 0
        self._there = dict.fromkeys(backups, 0)  # what synchronised backups have stored, by index
        self._lsn_there = 0
        self._ticks: deque[tuple[int, int]] = deque()  # index and LSN, of what is not stored as "yes" asks
        self._stable = 0  # the index up to which it is
        self._inherited = manager.place.index
        self._handled: dict[Incarnation, int] = {}  # through which frame of each sender
        self._newly_handled: dict[Incarnation, int] = {}
        self._requests = RecentRequests()  # that were carried out
        self._answered = RecentRequests()  # and of those whose answer is in the log too
        self._last_lsn = 0
        self._published: dict[bytes, None] = {}  # heard in this tick
        self._lanes: dict[LaneId, Published] = {}  # the last of each that was heard in this tick
        self._sent_again: LaneId | None = None  # of the block that is being handled, if it was sent before
        self._touched: dict[ConsumerId, None] = {}
        self._attached: list[ConsumerAttached] = []
        self._consumers: dict[ConsumerId, ConsumerAttached] = {}
        self.sessions: dict[SessionId, Incarnation] = {}  # with which client manager each is
        self._introduces = False
        self._introduces_again = False  # an introduction was not delivered before its view ended
        self._bodies: Bodies[None] = Bodies(BODY_CACHE_BYTES // 2)
        self._names = itertools.count(1)
        self._decisions: list[Command] = []
        self._told = 0  # the index up to which "yes" may have been decided
        self._had: dict[Incarnation, int] = {}  # through which index those who came along have had it on disk
        self._owed = 0  # the index that a backup of this view must have on disk before a "yes" is said again
        self._held: list[Command] = []  # what waits for that
        self._of_the_stored = RecentRequests()  # whose answers say that something is stored
        self._unsaid: deque[Command] = deque()
        self._flying: deque[Command] = deque()
        self._may_say = False
        self._takes_back = False  # something that was said, and not heard, was taken back since
        manager.shipping = self

    # ---- taking in a branch (docs/decisions/0018)

    @property
    def has_said_all(self) -> bool:
        """Whether nothing waits to be said, or for its delivery."""
        return not (self._unsaid or self._flying or self._decisions or self._held or self._records)

    def introduces_itself(self) -> Logged:
        """All that this log does not say, as whoever has just caught up is told it."""
        self._manager.end_of_tick()
        self.end_of_tick()
        self._introduces = True
        introduction = self._log()
        assert not introduction.records, "all that was written has left"
        return introduction

    def introduces_all(self) -> None:
        """Backups are told anew what the log does not say."""
        if self._there:
            self._introduces = True
            self._manager.ask_for_tick()

    def goes_on_as(self, manager: MessageManager) -> None:
        """The same log is read again by another manager. Consumers and what was asked are told by who takes over."""
        self._manager = manager
        self._requests = RecentRequests()
        self._consumers.clear()
        self._attached, self._touched = [], {}
        self._here = manager.journal.stored_lsn
        manager.shipping = self
        self._is_stable(0)

    def ships(self, kind: int, destination: int, list_number: int, payload: bytes) -> None:
        """A record that is written by who takes in a branch, and counted there."""
        if kind not in LOCAL:
            self._records.append(Shipped(kind, destination, list_number, payload))

    def stored_by_backups(self) -> dict[Incarnation, int]:
        return dict(self._there)

    # ---- what comes in

    def handle(self, sender: Incarnation, sequence: int, fact: Command) -> None:
        """A fact of a frame that was delivered."""
        # What waited for something has the number that it had; what was said since counts as handled all the same.
        self._handled[sender] = self._newly_handled[sender] = max(sequence, self._handled.get(sender, 0))
        if not self._is_new(fact) or not self._is_of_sender(fact, sender):
            return
        if isinstance(fact, SessionResumed):
            fact = self._opened_elsewhere(fact) or fact
        kind = type(fact)
        if isinstance(fact, Published):
            name = name_of(fact.block)
            self._published[name] = None
            self._lanes[fact.block.lane] = fact
            self._sent_again = fact.block.lane if fact.resent else None
            self._bodies.add(name, None, fact.block.size)
        elif isinstance(fact, ConsumerAttached):
            self.remembers(fact)
        elif kind in _OF_A_CONSUMER:
            self._touched[fact.consumer] = None  # type: ignore[attr-defined]
        elif isinstance(fact, CommitAsked | PrepareAsked):
            self._touched.update((consumer, None) for _, consumer, _ in fact.consumed)
        elif isinstance(fact, RollbackAsked):
            self._touched.update((consumer, None) for _, consumer, _ in fact.consumers)
        elif isinstance(fact, SessionOpened | SessionResumed):
            if isinstance(fact, SessionOpened) or self._manager.catalogue.may_resume(fact):
                self.sessions[fact.session] = sender
        elif isinstance(fact, SessionClosed):
            self.sessions.pop(fact.session, None)
        self._manager.on_command(fact)
        self._manager.ask_for_tick()

    def may_lack_some(self, sender: Incarnation, fact: Published) -> None:
        """Its client manager was elsewhere in between: something that it said before may not have come here."""
        destination = self._manager.catalogue.by_address.get(fact.address)
        if destination is not None and self._is_of_sender(fact, sender):
            destination.intake.may_lack(fact.block.lane)

    def _opened_elsewhere(self, fact: SessionResumed) -> SessionOpened | None:
        """A session that another part of the cluster knows goes on here all the same, behind what is there (P7)."""
        manager = self._manager
        if not manager.catalogue.is_of_another_part(fact, manager.place.identity):
            return None
        return SessionOpened(
            fact.request, fact.session, fact.user, fact.token, fact.connection, fact.client, fact.kept
        )

    def handled_before(self, through: dict[Incarnation, int]) -> None:
        """What primaries before this one handled: whoever is introduced must not think that nobody did."""
        self._handled.update(through)

    def answered_before(self, requests: RecentRequests) -> None:
        """What primaries before this one answered: whoever asked has heard it, and may be given something since."""
        for request in requests:
            self._requests.add(request)
            self._answered.add(request)

    def _is_new(self, fact: Command) -> bool:
        """A request may come twice: under way when another led, and asked again."""
        request = getattr(fact, "request", 0)
        if not request or isinstance(fact, _ASKED_AGAIN):
            return True
        if isinstance(fact, Asked) and fact.subject in OF_THE_FEED:
            return True
        if request in self._requests:
            return False
        self._requests.add(request)
        return True

    def _is_of_sender(self, fact: Command, sender: Incarnation) -> bool:
        """A client manager that lost a session to another has nothing to say about its end, nor does it begin to
        commit for it: the other has been told that nothing was under way. What its client sends comes again there."""
        if isinstance(fact, Published):
            return self.sessions.get(session_of(fact.block.lane)) == sender
        if isinstance(fact, ConsumerDetached):
            return not self._is_in_doubt(fact, sender)
        if not isinstance(fact, SessionLost | SessionClosed | PrepareAsked):
            return True
        is_of_sender = self.sessions.get(fact.session, sender) == sender
        if not is_of_sender and isinstance(fact, PrepareAsked):
            self.multicast(
                Rejected(fact.request, "session-moved", "the session is with another client manager")
            )
        return is_of_sender

    def _is_in_doubt(self, fact: ConsumerDetached, sender: Incarnation) -> bool:
        """Whether a consumer that leaves may have settled in another part what it has here. It waits for all to be
        whole, unless its session is back."""
        attached = self._consumers.get(fact.consumer)
        is_back = attached is None or self.sessions.get(attached.session) == sender
        if is_back or not self._manager.may_be_elsewhere(fact.consumer):
            return False
        if fact.request:
            self.multicast(Answered(fact.request, {}))
        return True

    def remembers(self, attached: ConsumerAttached) -> None:
        """A consumer, perhaps of the primary before this one. The next one learns of it from here."""
        self._consumers[attached.consumer] = attached
        self._attached.append(attached)
        self._touched[attached.consumer] = None

    def only_these_are_here(
        self, came: Collection[Incarnation], has_ended: Callable[[Incarnation], bool]
    ) -> None:
        """Client managers that are gone can say no more that their sessions are lost. One that has not `ended` may be
        in another part of a cut, and its clients have what they have: that is in doubt until the cluster is whole
        (PROTOCOL 4). So is what clients of one have that was elsewhere in between, though it is here: it has asked
        them to come again, and who knows where they are. `came`: those who were not."""
        for session, where in list(self.sessions.items()):
            if where not in came:
                self._lost(session, self.lease_after(where, has_ended))

    def lease_after(self, where: Incarnation, has_ended: Callable[[Incarnation], bool]) -> float:
        """For how long what clients of a client manager have that is gone is kept for them."""
        return self.lease_seconds if has_ended(where) else DOUBT_SECONDS

    def _lost(self, session: SessionId, lease_seconds: float) -> None:
        del self.sessions[session]
        self._delete_temporaries(session)
        known = self._manager.catalogue.sessions.get(session)
        connection = known.connection if known is not None else b""
        self._manager.on_command(SessionLost(session, lease_seconds, connection))
        self._manager.ask_for_tick()

    def _delete_temporaries(self, lost: SessionId) -> None:
        """They end with their connection (J9), and all its sessions were with the same client manager."""
        catalogue = self._manager.catalogue
        known = catalogue.sessions.get(lost)
        if known is None or not known.connection:
            return
        prefix = f"{TEMPORARY_PREFIX}{text_of(known.connection)}."
        for address in [each for each in catalogue.by_address if name_of_address(each).startswith(prefix)]:
            self._manager.on_command(DestinationDeleted(address))

    # ---- what the manager does

    def multicast(self, command: Command) -> None:
        """A decision: it leaves behind the log of this tick."""
        if isinstance(command, Dispatched | Parcelled | Recalled):
            self._touched[command.consumer] = None
        elif isinstance(command, DestinationGone):
            self._touched.update(dict.fromkeys(command.consumers))
        elif isinstance(command, Answered | Rejected):
            self._answered.add(command.request)
            if self._manager.tells_stored:
                self._of_the_stored.add(command.request)
            command = self._as_may_be_said(command)
        elif isinstance(command, Refused) and command.lane == self._sent_again:
            command = _perhaps_taken(command)
        if self._owed and self._is_yes(command):
            self._held.append(command)
        else:
            self._decisions.append(command)
        self._manager.ask_for_tick()

    def _as_may_be_said(self, answer: Answered | Rejected) -> Answered | Rejected:
        """PROTOCOL 7.5: what was promised, or decided, before a part was cut off is in doubt there: the others may
        know nothing of it. Nor does it tell history (PROTOCOL 5), whenever it was asked for."""
        views = self._manager.catalogue.views
        is_restricted = views.situation is not None and views.situation.state is State.D
        if not (isinstance(answer, Answered) and answer.binds and is_restricted):
            return answer
        is_of_this_part = answer.binds == views.present and not answer.is_history
        return answer if is_of_this_part else _not_here(answer)

    def wrote_block(self, kind: int, destination: int, list_number: int, block: Block) -> None:
        assert block.buffer is not None, "it was written just now"
        name = name_of(block)
        if name in self._published:
            shipped = Shipped(kind, destination, list_number, name, named=True)
        else:
            shipped = Shipped(kind, destination, list_number, bytes(block.buffer))
        self._records.append(shipped)
        self._manager.place.add(kind, destination, list_number, block.buffer)

    def wrote(self, kind: int, destination: int, list_number: int, payload: bytes) -> None:
        if kind not in LOCAL:
            self._records.append(Shipped(kind, destination, list_number, payload))
            self._manager.place.add(kind, destination, list_number, payload)

    def consumer_changed(self, consumer: ConsumerId) -> None:
        self._touched[consumer] = None

    def stored_here(self, lsn: int) -> int:
        self._here = lsn
        self._own_disk_has(lsn)
        return self._stored()

    # ---- backups

    def follows(self, backup: Incarnation) -> None:
        """A backup has caught up. Its marks come when it has been introduced."""
        self._note_told()
        self._there[backup], self._had[backup] = 0, 0
        self._introduces = True
        self._manager.ask_for_tick()
        self._tell()

    def stored_there(self, backup: Incarnation, index: int) -> None:
        """PROTOCOL 5: the mark of a synchronised backup, given in this view."""
        if backup in self._there:
            self._there[backup] = max(index, self._there[backup])
            if self._owed and index >= self._owed:
                self._let_go()
            self._tell()

    def only_these_follow(self, backups: Collection[Incarnation]) -> None:
        """Another view begins, before anything is handled in it: who is synchronised. Their marks count anew."""
        self._note_told()
        self._had = {each: max(self._had.get(each, 0), self._there.get(each, 0)) for each in backups}
        self._there = dict.fromkeys(backups, 0)
        if backups and max(self._had.values()) < self._told:
            self._hold_back()
        else:
            self._let_go()
        self._tell()

    def _note_told(self) -> None:
        """How far "yes" may have been decided: by the marks of backups, or without any by this disk alone."""
        told = max(self._there.values()) if self._there else self._manager.place.index
        self._told = max(self._told, told)

    def _hold_back(self) -> None:
        """PROTOCOL 5: a "yes" counts by the marks of one view. What was one without a backup and was not heard there
        is one here when a backup of this view has the log too. The same goes for what is asked again."""
        self._owed = self._told
        for waiting in (self._flying, self._unsaid):
            for at, command in enumerate(waiting):
                if isinstance(command, Logged):
                    others = self._without_yes(command.decisions)
                    waiting[at] = msgspec.structs.replace(command, decisions=others)
        self._decisions = self._without_yes(self._decisions)

    def _without_yes(self, decisions: list[Command]) -> list[Command]:
        self._held += [each for each in decisions if self._is_yes(each)]
        return [each for each in decisions if not self._is_yes(each)]

    def _is_yes(self, decision: Command) -> bool:
        """Whether it says that something is stored. Such a decision may come later than others that were made with
        it: it does whenever a disk is slow."""
        if isinstance(decision, Answered):
            return bool(decision.binds) or decision.request in self._of_the_stored
        return isinstance(decision, Confirmed)

    def _let_go(self) -> None:
        self._owed = 0
        self._decisions = self._held + self._decisions
        self._held = []

    @property
    def backups(self) -> list[Incarnation]:
        """Those that have the log."""
        return list(self._there)

    @property
    def has_backup(self) -> bool:
        """Whether anybody else has the log."""
        return bool(self._there)

    def _tell(self) -> None:
        self._manager.log_stored(self._stored())

    def _stored(self) -> int:
        """PROTOCOL 5: here, and with one synchronised backup if there is one. Readers of the history see as much."""
        lsn = self._stored_by_both()
        self._is_stable(lsn)
        return lsn

    def _is_stable(self, lsn: int) -> None:
        """Whoever takes over tells nothing before all that it has inherited is stored: who reads may have read it."""
        while self._ticks and self._ticks[0][1] <= lsn:
            self._stable = self._ticks.popleft()[0]
        self._manager.stable_index = self._stable if self._stable >= self._inherited else NOT_YET

    def _stored_by_both(self) -> int:
        if not self._there:
            return self._here
        index = max(self._there.values())
        while self._marks and self._marks[0][0] <= index:
            self._lsn_there = self._marks.popleft()[1]
        return min(self._here, self._lsn_there)

    # ---- the end of a tick

    def end_of_tick(self) -> None:
        """Everything that was written is in the journal: ship it, with what was decided."""
        pieces = [command for command in self._decisions if isinstance(command, ChunkRead | Supplied)]
        if pieces:  # they are bulky, and mean nothing to the log
            self._decisions = [each for each in self._decisions if not isinstance(each, ChunkRead | Supplied)]
        lsn = self._manager.journal.next_lsn - 1
        if lsn > self._last_lsn:
            self._last_lsn = lsn
            self._marks.append((self._manager.place.index, lsn))
            self._ticks.append((self._manager.place.index, lsn))
            if self._there and self._marks[0][0] <= max(self._there.values()):
                self._manager.soon(
                    self._tell
                )  # it concerns this journal alone: nobody will say more about it
            self._is_stable(self._stored_by_both())  # a quick disk has it by now
        if self._records or self._newly_handled or self._touched or self._introduces or self._decisions:
            for command in self._decisions:
                self._supply(command)
            self._unsaid.append(self._log())
        self._unsaid.extend(pieces)
        self.go_on()

    def _log(self) -> Logged:
        manager = self._manager
        index, chain = self._before
        introduction = self._introduction() if self._introduces else None
        standing: list[Standing] = []
        gone: list[ConsumerId] = []
        for consumer in self._touched:
            found = self._standing(consumer)
            if found is not None:
                standing.append(found)
            else:
                gone.append(consumer)
                self._forget(consumer)
        logged = Logged(
            index + 1,
            chain,
            [(bytes(sender), sequence) for sender, sequence in self._newly_handled.items()],
            self._records,
            self._attached,
            standing,
            gone,
            introduction,
            self._decisions,
            self._beside(),
        )
        self._before = (manager.place.index, manager.place.chain)
        self._records, self._attached, self._decisions = [], [], []
        self._newly_handled, self._touched, self._published, self._lanes = {}, {}, {}, {}
        return logged

    def _beside(self) -> list[tuple[Address, LaneId, int, bool]]:
        """Lanes of this tick that came further than the log says."""
        found: list[tuple[Address, LaneId, int, bool]] = []
        by_address = self._manager.catalogue.by_address
        for lane, last in self._lanes.items():
            destination = by_address.get(last.address)
            mark = destination.intake.mark_beyond_log(lane) if destination is not None else 0
            if mark:
                found.append((last.address, lane, mark, last.staged))
        return found

    def _forget(self, consumer: ConsumerId) -> None:
        self._consumers.pop(consumer, None)

    def _introduction(self) -> Introduction:
        """Somebody has caught up: tell everything that the log does not."""
        self._introduces = False
        self._attached = list(self._consumers.values())
        self._touched = dict.fromkeys(self._consumers)
        given = []
        for identity in self._consumers:
            _, consumer = self._find(identity)
            for tag, span in consumer.outstanding.tagged() if consumer is not None else ():
                if span.block.persistent:
                    first = span.block.number + span.start
                    given.append((identity, tag, first, first + _count(span) - 1))
        known = self._manager.catalogue.sessions
        sessions = [
            (session, bytes(where), known[session].connection)
            for session, where in self.sessions.items()
            if session in known
        ]
        handled = [(bytes(sender), sequence) for sender, sequence in self._handled.items()]
        refused: list[tuple[Address, LaneId]] = []
        # What is held back is news to clients: whoever takes over before it is said has to say it.
        unconfirmed = [(each.lane, each.last) for each in self._held if isinstance(each, Confirmed)]
        marks: list[tuple[Address, LaneId, int]] = []
        resumed: list[tuple[Address, LaneId]] = []
        for destination in self._manager.catalogue.all_destinations():
            marks += [(destination.address, *mark) for mark in destination.intake.beyond_log()]
            refused += [(destination.address, lane) for lane in destination.intake.refused()]
            unconfirmed += destination.intake.unconfirmed()
            resumed += [(destination.address, lane) for lane in destination.intake.resumed()]
        held = {each.request: None for each in self._held if isinstance(each, Answered | Rejected)}
        answered = [request for request in self._answered if request not in held]
        return Introduction(sessions, given, handled, refused, answered, unconfirmed, marks, resumed)

    def _find(self, identity: ConsumerId) -> tuple[MessageList | None, Consumer | None]:
        attached = self._consumers.get(identity)
        by_address = self._manager.catalogue.by_address
        destination = by_address.get(attached.address) if attached is not None else None
        messages = destination.list_of(identity) if destination is not None else None
        return messages, messages.consumers.get(identity) if messages is not None else None

    def _standing(self, identity: ConsumerId) -> Standing | None:
        messages, consumer = self._find(identity)
        if consumer is None or messages is None:
            return None
        return Standing(
            identity,
            messages.number,
            consumer.credit,
            consumer.next_tag,
            consumer.retired,
            self._manager.lease_of(identity),
            consumer.given,
            consumer.former,
        )

    def _supply(self, command: Command) -> None:
        """A body crosses the bus once, unless it is handed out much later."""
        if isinstance(command, Dispatched):
            self._supply_block(command.span.block)
        elif isinstance(command, Parcelled):
            for span in command.spans:
                self._supply_block(span.block)

    def _supply_block(self, block: Block) -> None:
        if not block.name and (block.positions is not None or block.flags & (SEQUENCES | LANES)):
            block.name = self._prefix + next(self._names).to_bytes(8, "little")
        name = name_of(block)
        if name not in self._bodies:
            self._bodies.add(name, None, block.size)
            self._unsaid.append(Supplied(name, block))

    def body_wanted(self, consumer: ConsumerId, tag: int) -> None:
        """A client manager does not have what it was told to hand out."""
        _, found = self._find(consumer)
        for first, span in found.outstanding.tagged() if found is not None else ():
            if first <= tag < first + _count(span) and span.block.buffer is not None:
                self._decisions.append(Supplied(name_of(span.block), span.block))
                self._manager.ask_for_tick()

    # ---- what was handed out in vain

    def targets(self) -> Callable[[ConsumerId], Incarnation | None]:
        """The client manager that hands a consumer what most of them have seen."""
        return self._target_of

    def _target_of(self, consumer: ConsumerId) -> Incarnation | None:
        attached = self._consumers.get(consumer)
        if attached is None or not needs_majority(attached):
            return None
        return self.sessions.get(attached.session)

    def decide_afresh(self, dropped: list[Handed], *, is_restricted: bool) -> None:
        """PROTOCOL 2 and 4: a view that does not go on from the last one. What was handed out and no client has goes
        back: what was `dropped`, and what nobody has heard of yet, which must not be said again. Nor must, in a
        restricted view, what became of transactions before it, or in any that something was not taken: it was sent
        before this view, and others may have taken it who are not here."""
        unheard: list[Handed] = []
        self._decisions = _in_doubt(self._decisions, is_restricted=is_restricted)
        self._held = _in_doubt(self._held, is_restricted=is_restricted)
        for said in (self._unsaid, self._flying):
            for at, command in enumerate(said):
                if isinstance(command, Logged):
                    doubtful = _in_doubt(command.decisions, is_restricted=is_restricted)
                    said[at] = msgspec.structs.replace(command, decisions=doubtful)
        self._decisions = self._without_dispatches(self._decisions, unheard)
        for waiting in (self._unsaid, self._flying):
            for at, command in enumerate(waiting):
                if isinstance(command, Logged):
                    kept = self._without_dispatches(command.decisions, unheard)
                    waiting[at] = msgspec.structs.replace(command, decisions=kept)
        self._takes_back = self._takes_back or bool(unheard)
        self.take_back(dropped + unheard)

    def _without_dispatches(self, decisions: list[Command], unheard: list[Handed]) -> list[Command]:
        kept = []
        for decision in decisions:
            is_dispatch = isinstance(decision, Dispatched | Parcelled)
            if is_dispatch and self._target_of(decision.consumer) is not None:  # type: ignore[attr-defined]
                unheard += parts_of(decision, 0)
            else:
                kept.append(decision)
        return kept

    def take_back(self, dropped: list[Handed]) -> None:
        """These were never given to a client: they take their old places, without a mark."""
        by_address: dict[Address, list[tuple[ConsumerId, int, int]]] = {}
        for handed in dropped:
            attached = self._consumers.get(handed.consumer)
            if attached is not None:
                self._touched[handed.consumer] = None
                tags = (handed.consumer, handed.first, handed.last)
                by_address.setdefault(attached.address, []).append(tags)
        for address, of_consumers in by_address.items():
            self._manager.take_back(address, of_consumers)

    # ---- saying

    def go_on(self) -> None:
        """Say what waits, as far as the bus takes it."""
        unsaid = self._unsaid
        while unsaid and self._may_say:
            try:
                self._say(unsaid[0])
            except Unavailable:
                return  # `on_flow` says when
            self._flying.append(unsaid.popleft())

    def heard_own(self, _command: Command) -> None:
        """One of our decisions was delivered, in the view in which it was made."""
        self._flying.popleft()

    def suspend(self) -> None:
        """PROTOCOL 2: nothing is decided between views; what was not delivered is not going to be."""
        self._may_say = False
        self._introduces_again = self._introduces or self._introduces_again
        self._introduces = False
        for waiting in (self._unsaid, self._flying):
            for at, command in enumerate(waiting):
                if isinstance(command, Logged) and command.introduction is not None:
                    # By then it would say what was, and whoever is introduced goes by what is.
                    waiting[at] = msgspec.structs.replace(command, introduction=None)
                    self._introduces_again = True

    def install(self, *, forget_bodies: bool) -> None:
        """Say again what nobody took. `forget_bodies`: somebody is new, and has heard nothing yet."""
        if self._takes_back:
            self._takes_back = False
            self._manager.end_of_tick()
            self.end_of_tick()
            self._unsaid = as_one(self._flying + self._unsaid)
        else:
            self._unsaid = self._flying + self._unsaid
        self._flying = deque()
        if forget_bodies:
            self._bodies.clear()
        self._may_say = True
        if self._introduces_again:
            self._introduces_again = False
            self.introduces_all()
        self.go_on()


def _in_doubt(decisions: list[Command], *, is_restricted: bool) -> list[Command]:
    return [_as_doubtful(each, is_restricted=is_restricted) for each in decisions]


def _as_doubtful(decision: Command, *, is_restricted: bool) -> Command:
    if isinstance(decision, Refused):
        return _perhaps_taken(decision)
    if isinstance(decision, Answered) and decision.binds and is_restricted:
        return _not_here(decision)
    return decision


def _perhaps_taken(refused: Refused) -> Refused:
    """What is said instead where another primary may have taken the same message, and has it: its log comes when it
    is back. Only who has heard of a message first can say that it was not taken."""
    if refused.code not in _FOR_WANT_OF_ROOM:
        return refused
    sentence = "it cannot be taken now, and another that led may have taken it before: look whether it comes"
    return Refused(refused.lane, refused.first, "message-in-doubt", sentence)


def _not_here(answer: Answered) -> Rejected:
    """What is said instead in a part that was cut off while it answered."""
    if answer.is_history:
        return Rejected(answer.request, RESTRICTED.code, RESTRICTED.sentence)
    return in_doubt(answer.request)


def _count(span: Span) -> int:
    return span.stop - span.start
