"""The bus as a client manager of a cluster sees it: facts go out, decisions come in with their bytes.

Blocks that were heard published are kept for a while, since a dispatch only names them (ARCHITECTURE: a body crosses
the bus once); when it may reach its client, `handing_out.py` says. What a client manager asked and has no answer
to, it asks again when another message manager leads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import Protocol

import msgspec

from heliograph.bus.commands import (
    DECISIONS,
    AlertsAttached,
    Answered,
    BodyWanted,
    BrowseEnded,
    ChunkRead,
    Command,
    ConsumerAttached,
    ConsumerDetached,
    ConsumerRetired,
    DestinationGone,
    Dispatched,
    FetchAllowed,
    FetchBegun,
    FetchEnded,
    Leads,
    Logged,
    Parcelled,
    Published,
    Rejected,
    RollbackAsked,
    SessionClosed,
    SessionLost,
    SessionOpened,
    SessionResumed,
    Settled,
    Supplied,
    TransferFailed,
)
from heliograph.bus.interface import Incarnation, Origin, Receiver
from heliograph.cluster.handed_out import needs_majority
from heliograph.cluster.log import name_of
from heliograph.model.errors import NotKnownToAll, Unavailable
from heliograph.model.ids import ConsumerId, SessionId
from heliograph.model.limits import MAX_RETURNING
from heliograph.nodes.attached_alerts import AttachedAlerts
from heliograph.nodes.handing_out import AT_ONCE, HandingOut
from heliograph.nodes.tick import Tick

_NOBODY = ConsumerId(b"")
# What a client asks for that has to be told to whoever leads when it is gone.
_OF_WHO_IS_HERE = (AlertsAttached, ConsumerAttached, FetchBegun)


class Channel(Protocol):
    """What a client manager needs of its member."""

    @property
    def incarnation(self) -> Incarnation | None: ...

    def multicast(self, command: Command) -> None: ...


class _Consumer(msgspec.Struct):
    """One of this client manager's."""

    session: SessionId
    waits: bool  # for most client managers to have seen what it is handed


class ClusterClients:
    """One sub-cluster, for the client manager of this process."""

    def __init__(
        self,
        tick: Tick,
        on_anew: Callable[[], None],
        on_taken: Callable[[SessionId], None] = lambda _: None,
        on_opened: Callable[[SessionOpened, bool], None] = lambda _fact, _is_elsewhere: None,
    ) -> None:
        """`on_anew`: the primary knows of nothing that is under way here. `on_taken`: a session is with another
        client manager now. `on_opened`: a client has begun one, here or elsewhere."""
        self._tick = tick
        self._on_anew = on_anew
        self._on_taken = on_taken
        self._on_opened = on_opened
        self.channel: Channel | None = None
        self._receivers: list[tuple[Receiver, Collection[type[Command]] | None]] = []
        self.handing_out = HandingOut(self._tell, self._want)
        self._consumers: dict[ConsumerId, _Consumer] = {}
        self._of_session: dict[SessionId, dict[ConsumerId, None]] = {}
        self._browsers: dict[ConsumerId, None] = {}
        self._unanswered: dict[int, Command] = {}
        self._opening: dict[SessionId, int] = {}  # sessions whose opening is not answered: the last request
        self._resumed_elsewhere: dict[int, SessionId] = {}  # by others who have no answer yet
        self._downloads: dict[tuple[SessionId, int], FetchBegun] = {}
        self._alerts = AttachedAlerts()
        self._unsaid: deque[Command] = deque()
        # Promises and outcomes that most client managers of the view have not seen, by place (PROTOCOL 7.2).
        self._unseen: deque[tuple[int, Answered]] = deque()
        self.may_speak = True  # somebody hears it who will act upon it
        self.has_spoken = False  # since it is who it is in the channel

    # ---- the bus of the client manager

    def join(self, receiver: Receiver, kinds: Collection[type[Command]] | None = None) -> None:
        self._receivers.append((receiver, kinds))

    def multicast(self, fact: Command) -> None:
        if isinstance(fact, ConsumerAttached):
            self.handing_out.drop(fact.consumer)  # what it claims is all that it has
            self._consumers[fact.consumer] = _Consumer(fact.session, needs_majority(fact))
            self._of_session.setdefault(fact.session, {})[fact.consumer] = None
            if fact.browse:
                self._browsers[fact.consumer] = None
        elif isinstance(fact, ConsumerDetached):
            self._detached(fact.consumer)
        elif isinstance(fact, FetchBegun | FetchAllowed | FetchEnded | SessionLost | SessionClosed):
            self._note_download(fact)
            if isinstance(fact, SessionLost):
                self._lost(fact.session)
            if isinstance(fact, SessionLost | SessionClosed):
                self._no_longer_attaches(fact.session)
                self._no_longer_opens(fact)
        self._alerts.said(fact)
        request = getattr(fact, "request", 0)
        if request:
            self._unanswered[request] = fact
            if isinstance(fact, SessionOpened | SessionResumed):
                self._opening[fact.session] = request
        self._unsaid.append(fact)
        self.go_on()

    def _note_download(
        self, fact: FetchBegun | FetchAllowed | FetchEnded | SessionLost | SessionClosed
    ) -> None:
        """Another primary knows nothing of downloads: they are begun again where they are."""
        if isinstance(fact, SessionLost | SessionClosed):
            self._end_downloads(fact.session)
        elif isinstance(fact, FetchBegun):
            self._downloads[fact.session, fact.transfer] = msgspec.structs.replace(fact, request=0)
        elif isinstance(fact, FetchEnded):
            self._downloads.pop((fact.session, fact.transfer), None)
        elif (download := self._downloads.get((fact.session, fact.transfer))) is not None:
            download.allowed = max(download.allowed, fact.allowed)

    def _end_downloads(self, session: SessionId) -> None:
        for key in [key for key in self._downloads if key[0] == session]:
            del self._downloads[key]

    def has(self, consumer: ConsumerId) -> bool:
        """Whether it is one of this client manager's."""
        return consumer in self._consumers

    def has_asked(self, request: int) -> bool:
        return request in self._unanswered

    def _lost(self, session: SessionId) -> None:
        """Nobody is there any more to hand anything to. Who claims its consumers says what came through."""
        for consumer in self._of_session.pop(session, ()):
            self._forget(consumer)

    def _no_longer_attaches(self, session: SessionId) -> None:
        """Its client is not here any more. What it wanted to be given must not be asked for again when another leads:
        nobody would say of that consumer that it went."""
        for request, asked in list(self._unanswered.items()):
            if isinstance(asked, _OF_WHO_IS_HERE) and asked.session == session:
                del self._unanswered[request]

    def _no_longer_opens(self, fact: SessionLost | SessionClosed) -> None:
        """Its client went before it was open. It must not be opened for it when another leads."""
        asked = self._unanswered.get(self._opening.pop(fact.session, 0))
        if isinstance(asked, SessionOpened | SessionResumed):
            if isinstance(fact, SessionClosed) or fact.connection in (b"", asked.connection):
                del self._unanswered[asked.request]
            else:
                self._opening[fact.session] = asked.request  # it has come again

    def _forget(self, consumer: ConsumerId) -> None:
        known = self._consumers.pop(consumer, None)
        of_session = self._of_session.get(known.session) if known is not None else None
        if known is not None and of_session is not None:
            del of_session[consumer]
            if not of_session:
                del self._of_session[known.session]
        self._browsers.pop(consumer, None)
        self.handing_out.drop(consumer)

    def _detached(self, consumer: ConsumerId) -> None:
        self._forget(consumer)
        for request, asked in list(self._unanswered.items()):
            if isinstance(asked, ConsumerAttached) and asked.consumer == consumer:
                del self._unanswered[request]

    def go_on(self) -> None:
        """Say what waits, as far as the bus takes it."""
        unsaid = self._unsaid
        while unsaid and self.may_speak and self.channel is not None:
            try:
                self.channel.multicast(unsaid[0])
            except NotKnownToAll as refusal:
                self._refuse(unsaid.popleft(), refusal)
                continue
            except Unavailable:
                return  # `on_flow` says when, or `on_left` that it is over
            unsaid.popleft()
            self.has_spoken = True

    def _refuse(self, fact: Command, refusal: NotKnownToAll) -> None:
        request = getattr(fact, "request", 0)
        assert request, "what came later than the first level is asked for"
        self._other(Rejected(request, refusal.code, refusal.sentence))

    # ---- deliveries

    def on_apply(self, origin: Origin, commands: list[Command], place: int = AT_ONCE) -> None:
        """`place`: of the view; `AT_ONCE` if nobody waits for others in it."""
        for command in commands:
            kind = type(command)
            if kind is Published:
                self.handing_out.keep(name_of(command.block), command.block)  # type: ignore[attr-defined]
            elif kind is Logged:
                assert isinstance(command, Logged)
                self.on_decisions(command.decisions, place)
            elif kind in DECISIONS:
                self._other(command, place)
            elif kind is SessionResumed:
                assert isinstance(command, SessionResumed)
                self._note_resumed(origin, command)
            elif kind is SessionOpened:
                assert isinstance(command, SessionOpened)
                self._on_opened(command, self._is_elsewhere(origin))
        self._tick.ask()

    def _is_elsewhere(self, origin: Origin) -> bool:
        return self.channel is not None and origin.incarnation != self.channel.incarnation

    def _note_resumed(self, origin: Origin, fact: SessionResumed) -> None:
        if self._is_elsewhere(origin):
            self._resumed_elsewhere[fact.request] = fact.session
            if len(self._resumed_elsewhere) > MAX_RETURNING:
                del self._resumed_elsewhere[next(iter(self._resumed_elsewhere))]

    def _taken(self, session: SessionId) -> None:
        """Another client manager has it now. If that was long ago stopped in the middle of it, the client is still
        here, and nobody hears it any more: it is to come again, and takes its session back."""
        self.leave(session)
        self._on_taken(session)

    def leave(self, session: SessionId) -> None:
        """Nothing more is handed to it here, nor asked for it."""
        self._lost(session)
        self._no_longer_attaches(session)
        self._alerts.left(session)
        self._end_downloads(session)

    def on_decisions(self, decisions: list[Command], place: int = AT_ONCE) -> None:
        """What the primary decided in one tick."""
        for decision in decisions:
            if isinstance(decision, Dispatched | Parcelled):
                consumer = self._consumers.get(decision.consumer)
                if consumer is not None:  # else another client manager's, or gone
                    self.handing_out.hand_out(decision, place if consumer.waits else AT_ONCE)
            else:
                self._other(decision, place)

    def _other(self, command: Command, place: int = AT_ONCE) -> None:
        if isinstance(command, Answered) and command.binds and place > self.handing_out.seen_place:
            if command.request in self._unanswered:
                self._unseen.append((place, command))
            return
        if isinstance(command, Supplied):
            self.handing_out.keep(command.name, command.block)
            self.handing_out.supplied()
            return
        if isinstance(command, Leads):
            if command.anew:
                self._on_anew()
            else:
                self._ask_again()
            return
        if isinstance(command, ChunkRead):
            download = self._downloads.get((command.session, command.transfer))
            if download is not None and command.offset != download.offset:
                return  # of a primary that read on before it heard where this one is
            if download is not None:
                download.offset += len(command.data)
        elif isinstance(command, TransferFailed):
            self._downloads.pop((command.session, command.transfer), None)
        self._alerts.heard(command)
        if isinstance(command, Answered | Rejected):
            taken = self._resumed_elsewhere.pop(command.request, None)
            if taken is not None and isinstance(command, Answered):
                self._taken(taken)
            asked = self._unanswered.pop(command.request, None)
            if isinstance(asked, FetchBegun) and isinstance(command, Rejected):
                self._downloads.pop((asked.session, asked.transfer), None)
            self._answered(asked)
            self._alerts.answered(asked, command)
        elif isinstance(command, DestinationGone):
            for consumer in command.consumers:  # and all that they could be handed
                self.handing_out.drop(consumer)
        if not self.handing_out.follows(getattr(command, "consumer", _NOBODY), command):
            self._tell(command)

    def _answered(self, fact: Command | None) -> None:
        """What was handed out before a rollback, or before a consumer retired, went back with it. If it still waits
        here it must not come behind the answer, as if it were new."""
        if isinstance(fact, RollbackAsked):
            for _, consumer, _ in fact.consumers:
                self.handing_out.drop(consumer)
        elif isinstance(fact, ConsumerRetired):
            self.handing_out.drop(fact.consumer)
        elif isinstance(fact, SessionOpened | SessionResumed) and (
            self._opening.get(fact.session) == fact.request
        ):
            del self._opening[fact.session]

    def _want(self, consumer: ConsumerId, tag: int) -> None:
        self.multicast(BodyWanted(consumer, tag))

    def _tell(self, command: Command) -> None:
        kind = type(command)
        for receive, kinds in self._receivers:
            if kinds is None or kind in kinds:
                receive(command)

    # ---- another view, another leads

    def seen(self, place: int) -> None:
        """Most client managers of the view have delivered everything up to there."""
        self.handing_out.seen(place)
        while self._unseen and self._unseen[0][0] <= self.handing_out.seen_place:
            self._other(self._unseen.popleft()[1])

    def view_ended(self) -> None:
        """What was handed out in it and most client managers have not seen goes back: the managers know the same.
        Promises and outcomes that they have not seen are asked for again."""
        unseen, self._unseen = self._unseen, deque()
        for _, answer in unseen:
            fact = self._unanswered.get(answer.request)
            if fact is not None:
                self._unsaid.append(fact)
        self.handing_out.view_ended()
        self._tick.ask()

    def _ask_again(self) -> None:
        self._unsaid.extend(self._alerts.announcements())
        for fact in list(self._unanswered.values()):
            says_so = isinstance(fact, ConsumerAttached | Settled)
            self._unsaid.append(msgspec.structs.replace(fact, again=True) if says_so else fact)
        self._unsaid.extend(msgspec.structs.replace(each) for each in self._downloads.values())
        self.handing_out.ask_again()
        self._end_browsing()
        self.go_on()

    def _end_browsing(self) -> None:
        """Who looks through a queue is known to the primary alone: it has seen what it has seen."""
        asked = [fact.consumer for fact in self._unanswered.values() if isinstance(fact, ConsumerAttached)]
        for consumer in [each for each in self._browsers if each not in asked]:
            del self._browsers[consumer]
            self._tell(BrowseEnded(consumer))

    def forget(self) -> None:
        """This process is somebody else in the channel now: nothing it had asked or was told counts."""
        self.handing_out.clear()
        self._consumers.clear()
        self._of_session.clear()
        self._browsers.clear()
        self._unanswered.clear()
        self._opening.clear()
        self._resumed_elsewhere.clear()
        self._downloads.clear()
        self._alerts.clear()
        self._unsaid.clear()
        self._unseen.clear()
        self.has_spoken = False
