"""The bus as a client manager of a cluster sees it: facts go out, decisions come in with their bytes.

Blocks that were heard published are kept for a while, since a dispatch only names them (ARCHITECTURE: a body crosses
the bus once). What a client manager asked and has no answer to, it asks again when another message manager leads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import Protocol

import msgspec

from heliograph.bus.commands import (
    DECISIONS,
    Answered,
    BodyWanted,
    BrowseEnded,
    ChunkRead,
    Command,
    ConsumerAttached,
    ConsumerDetached,
    ConsumerRetired,
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
    Settled,
    Supplied,
)
from heliograph.bus.interface import Incarnation, Origin, Receiver
from heliograph.cluster.bodies import Bodies
from heliograph.cluster.log import name_of
from heliograph.model.block import Block, Span
from heliograph.model.destination import Address
from heliograph.model.errors import Unavailable
from heliograph.model.ids import ConsumerId, SessionId
from heliograph.model.limits import BODY_CACHE_BYTES
from heliograph.nodes.tick import Tick

_NOBODY = ConsumerId(b"")


class Channel(Protocol):
    """What a client manager needs of its member."""

    @property
    def incarnation(self) -> Incarnation | None: ...

    def multicast(self, command: Command) -> None: ...


class ClusterClients:
    """One sub-cluster, for the client manager of this process."""

    def __init__(self, tick: Tick, on_anew: Callable[[], None]) -> None:
        """`on_anew`: the primary knows of nothing that is under way here."""
        self._tick = tick
        self._on_anew = on_anew
        self.channel: Channel | None = None
        self._receivers: list[tuple[Receiver, Collection[type[Command]] | None]] = []
        self._bodies: Bodies[Block] = Bodies(BODY_CACHE_BYTES)
        self._consumers: dict[ConsumerId, Address] = {}
        self._browsers: dict[ConsumerId, None] = {}
        self._unanswered: dict[int, Command] = {}
        self._downloads: dict[tuple[SessionId, int], FetchBegun] = {}
        self._waiting: dict[ConsumerId, deque[Command]] = {}  # decisions that wait for a body
        self._wanted: dict[ConsumerId, int] = {}  # under which tag each has asked for one
        self._unsaid: deque[Command] = deque()
        self.may_speak = True  # somebody hears it who will act upon it
        self.has_spoken = False  # since it is who it is in the channel

    # ---- the bus of the client manager

    def join(self, receiver: Receiver, kinds: Collection[type[Command]] | None = None) -> None:
        self._receivers.append((receiver, kinds))

    def multicast(self, fact: Command) -> None:
        if isinstance(fact, ConsumerAttached):
            self._consumers[fact.consumer] = fact.address
            if fact.browse:
                self._browsers[fact.consumer] = None
        elif isinstance(fact, ConsumerDetached):
            self._detached(fact.consumer)
        elif isinstance(fact, FetchBegun | FetchAllowed | FetchEnded | SessionLost | SessionClosed):
            self._note_download(fact)
        request = getattr(fact, "request", 0)
        if request:
            self._unanswered[request] = fact
        self._unsaid.append(fact)
        self.go_on()

    def _note_download(
        self, fact: FetchBegun | FetchAllowed | FetchEnded | SessionLost | SessionClosed
    ) -> None:
        """Another primary knows nothing of downloads: they are begun again where they are."""
        if isinstance(fact, SessionLost | SessionClosed):
            for key in [key for key in self._downloads if key[0] == fact.session]:
                del self._downloads[key]
        elif isinstance(fact, FetchBegun):
            self._downloads[fact.session, fact.transfer] = msgspec.structs.replace(fact, request=0)
        elif isinstance(fact, FetchEnded):
            self._downloads.pop((fact.session, fact.transfer), None)
        elif (download := self._downloads.get((fact.session, fact.transfer))) is not None:
            download.allowed = max(download.allowed, fact.allowed)

    def _detached(self, consumer: ConsumerId) -> None:
        self._consumers.pop(consumer, None)
        self._browsers.pop(consumer, None)
        self._waiting.pop(consumer, None)
        self._wanted.pop(consumer, None)
        for request, asked in list(self._unanswered.items()):
            if isinstance(asked, ConsumerAttached) and asked.consumer == consumer:
                del self._unanswered[request]

    def go_on(self) -> None:
        """Say what waits, as far as the bus takes it."""
        unsaid = self._unsaid
        while unsaid and self.may_speak and self.channel is not None:
            try:
                self.channel.multicast(unsaid[0])
            except Unavailable:
                return  # `on_flow` says when, or `on_left` that it is over
            unsaid.popleft()
            self.has_spoken = True

    # ---- deliveries

    def on_apply(self, _origin: Origin, commands: list[Command]) -> None:
        for command in commands:
            kind = type(command)
            if kind is Published:
                self._keep(name_of(command.block), command.block)  # type: ignore[attr-defined]
            elif isinstance(command, Logged):
                self.on_decisions(command.decisions)
            elif kind in DECISIONS:
                self._other(command)
        self._tick.ask()

    def on_decisions(self, decisions: list[Command]) -> None:
        """What the primary decided in one tick."""
        for decision in decisions:
            if isinstance(decision, Dispatched | Parcelled):
                self._hand_out(decision)
            else:
                self._other(decision)

    def _other(self, command: Command) -> None:
        if isinstance(command, Supplied):
            self._keep(command.name, command.block)
            for consumer in list(self._waiting):
                self._try_again(consumer)
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
        if isinstance(command, Answered | Rejected):
            self._answered(self._unanswered.pop(command.request, None))
        waiting = self._waiting.get(getattr(command, "consumer", _NOBODY))
        if waiting is not None:
            waiting.append(command)  # in order
        else:
            self._tell(command)

    def _answered(self, fact: Command | None) -> None:
        """What was handed out before a rollback, or before a consumer retired, went back with it. If it still waits
        for its bytes it must not come behind the answer, as if it were new."""
        if isinstance(fact, RollbackAsked):
            for _, consumer, _ in fact.consumers:
                self._waiting.pop(consumer, None)
        elif isinstance(fact, ConsumerRetired):
            self._waiting.pop(fact.consumer, None)

    def _keep(self, name: bytes, block: Block) -> None:
        # A copy: a message manager in the same process lets go of the bytes when it likes.
        self._bodies.add(name, msgspec.structs.replace(block), block.size)

    def _tell(self, command: Command) -> None:
        kind = type(command)
        for receive, kinds in self._receivers:
            if kinds is None or kind in kinds:
                receive(command)

    # ---- bodies

    def _hand_out(self, decision: Dispatched | Parcelled) -> None:
        consumer = decision.consumer
        if consumer not in self._consumers:
            return  # another client manager's, or gone
        if consumer in self._waiting:
            self._waiting[consumer].append(decision)
        elif not self._embody(decision):
            self._waiting[consumer] = deque([decision])
            self._want(consumer, decision)
        else:
            self._tell(decision)

    def _embody(self, decision: Dispatched | Parcelled) -> bool:
        """Put the bytes to what names them. Whether they are here."""
        if isinstance(decision, Dispatched):
            whole = self._whole(decision.span)
            if whole is not None:
                decision.span = whole
            return whole is not None
        spans = [self._whole(span) for span in decision.spans]
        found = [span for span in spans if span is not None]
        if len(found) == len(spans):
            decision.spans = found
        return len(found) == len(spans)

    def _whole(self, span: Span) -> Span | None:
        named = span.block
        if named.buffer is not None:
            return span
        block = self._bodies.get(name_of(named))
        if block is None:
            return None
        block.number = named.number
        return Span(block, span.start, span.stop, span.deliveries, span.origin)

    def _try_again(self, consumer: ConsumerId) -> None:
        waiting = self._waiting.pop(consumer)
        while waiting:
            decision = waiting.popleft()
            if isinstance(decision, Dispatched | Parcelled) and not self._embody(decision):
                waiting.appendleft(decision)
                self._waiting[consumer] = waiting
                self._want(consumer, decision)
                return
            self._tell(decision)
        self._wanted.pop(consumer, None)

    def _want(self, consumer: ConsumerId, decision: Dispatched | Parcelled) -> None:
        """Ask for the first bytes that are not here, once: whatever is supplied, all who wait try again."""
        tag = decision.tag
        for span in decision.spans if isinstance(decision, Parcelled) else ():
            if self._whole(span) is None:
                break
            tag += span.stop - span.start
        if self._wanted.get(consumer) != tag:
            self._wanted[consumer] = tag
            self.multicast(BodyWanted(consumer, tag))

    # ---- another leads

    def _ask_again(self) -> None:
        for fact in list(self._unanswered.values()):
            again = msgspec.structs.replace(fact, again=True) if isinstance(fact, Settled) else fact
            self._unsaid.append(again)
        self._unsaid.extend(msgspec.structs.replace(each) for each in self._downloads.values())
        self._wanted.clear()
        for consumer, (first, *_) in list(self._waiting.items()):
            assert isinstance(first, Dispatched | Parcelled), "it waits for its bytes"
            self._want(consumer, first)
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
        self._bodies.clear()
        self._consumers.clear()
        self._browsers.clear()
        self._unanswered.clear()
        self._downloads.clear()
        self._waiting.clear()
        self._wanted.clear()
        self._unsaid.clear()
        self.has_spoken = False
