"""The primary's side of replication: what it writes travels to the backups, and nothing is stored before one of them
says so (docs/decisions/0010).

A tick ends with one `Logged` command, and behind it go the decisions that were made meanwhile. What was multicast
and has not come back yet is kept: if the view changes, everybody drops it, and it is said again in the next one.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable

from heliograph.bus.commands import (
    Command,
    CommitAsked,
    ConsumerAttached,
    ConsumerDetached,
    ConsumerRetired,
    CreditGranted,
    Dispatched,
    Logged,
    Parcelled,
    Published,
    Recalled,
    RollbackAsked,
    SessionLost,
    Settled,
    Shipped,
    Standing,
    Supplied,
)
from heliograph.bus.interface import Incarnation
from heliograph.cluster.bodies import Bodies
from heliograph.cluster.log import LOCAL, name_of
from heliograph.model.block import LANES, SEQUENCES, Block, Span
from heliograph.model.destination import Address
from heliograph.model.errors import Unavailable
from heliograph.model.ids import ConsumerId, SessionId
from heliograph.model.limits import BODY_CACHE_BYTES
from heliograph.nodes.message_manager import MessageManager

_OF_A_CONSUMER = (ConsumerAttached, ConsumerDetached, ConsumerRetired, CreditGranted, Settled)


class Leading:
    """From the moment in which a message manager leads until it does no more."""

    def __init__(
        self,
        manager: MessageManager,
        say: Callable[[Command], None],
        own_disk_has: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`say` multicasts, and raises Unavailable while the bus takes no more."""
        self._manager = manager
        self._say = say
        self._own_disk_has = own_disk_has
        self._records: list[Shipped] = []
        self._before = (manager.place.index, manager.place.chain)  # the log before this tick
        self._marks: deque[tuple[int, int]] = deque()  # index, and the LSN it has here
        self._here = 0
        self._there: dict[Incarnation, int] = {}  # what synchronised backups have stored, by index
        self._lsn_there = 0
        self._handled: dict[Incarnation, int] = {}
        self._published: dict[bytes, None] = {}  # heard in this tick
        self._touched: dict[ConsumerId, Address | None] = {}
        self._attached: list[ConsumerAttached] = []
        self._addresses: dict[ConsumerId, Address] = {}
        self._of_session: dict[SessionId, dict[ConsumerId, None]] = {}
        self._bodies: Bodies[None] = Bodies(BODY_CACHE_BYTES // 2)
        self._names = itertools.count(1)
        self._decisions: list[Command] = []
        self._unsaid: deque[Command] = deque()
        self._flying: deque[Command] = deque()
        self._may_say = False
        manager.shipping = self

    # ---- what comes in

    def handle(self, sender: Incarnation, sequence: int, fact: Command) -> None:
        """A fact of a frame that was delivered."""
        self._handled[sender] = sequence
        kind = type(fact)
        if kind is Published:
            name = name_of(fact.block)  # type: ignore[attr-defined]
            self._published[name] = None
            self._bodies.add(name, None, fact.block.size)  # type: ignore[attr-defined]
        elif kind in _OF_A_CONSUMER:
            self._touch(fact.consumer, fact.address)  # type: ignore[attr-defined]
            if isinstance(fact, ConsumerAttached):
                self._attached.append(fact)
                self._of_session.setdefault(fact.session, {})[fact.consumer] = None
        elif isinstance(fact, CommitAsked):
            for address, consumer, _ in fact.consumed:
                self._touch(consumer, address)
        elif isinstance(fact, RollbackAsked):
            for address, consumer, _ in fact.consumers:
                self._touch(consumer, address)
        self._manager.on_command(fact)
        self._manager.ask_for_tick()

    def _touch(self, consumer: ConsumerId, address: Address | None = None) -> None:
        if address is not None:
            self._addresses[consumer] = address
        self._touched[consumer] = None

    def remembers(self, consumer: ConsumerId, attached: ConsumerAttached) -> None:
        """A consumer of the primary before this one. The next one learns of it from here."""
        self._touch(consumer, attached.address)
        self._attached.append(attached)
        self._of_session.setdefault(attached.session, {})[consumer] = None

    def lost(self, session: SessionId) -> None:
        """The client manager that a session was with is gone, and can say so no more."""
        for consumer in self._of_session.pop(session, {}):
            address = self._addresses.get(consumer)
            if address is not None:
                self._touch(consumer)
                self._manager.on_command(ConsumerDetached(address, consumer))
        self._manager.on_command(SessionLost(session))
        self._manager.ask_for_tick()

    # ---- what the manager does

    def multicast(self, command: Command) -> None:
        """A decision: it leaves behind the log of this tick."""
        if isinstance(command, Dispatched | Parcelled | Recalled):
            self._touched[command.consumer] = None
        self._decisions.append(command)
        self._manager.ask_for_tick()

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

    def stored_here(self, lsn: int) -> int:
        self._here = lsn
        self._own_disk_has(lsn)
        return self._stored()

    # ---- backups

    def follows(self, backup: Incarnation, index: int) -> None:
        """A backup is synchronised, and has stored this much."""
        self._there[backup] = index
        self._tell()

    def stored_there(self, backup: Incarnation, index: int) -> None:
        """PROTOCOL 5: the mark of a synchronised backup, given in this view."""
        if backup in self._there:
            self._there[backup] = max(index, self._there[backup])
            self._tell()

    def only_these_follow(self, backups: list[Incarnation]) -> None:
        """A view begins: who of it is synchronised. Their marks count anew."""
        self._there = dict.fromkeys(backups, 0)
        self._tell()

    def _tell(self) -> None:
        self._manager.log_stored(self._stored())

    def _stored(self) -> int:
        """PROTOCOL 5: here, and with one synchronised backup if there is one."""
        if not self._there:
            return self._here
        index = max(self._there.values())
        while self._marks and self._marks[0][0] <= index:
            self._lsn_there = self._marks.popleft()[1]
        return min(self._here, self._lsn_there)

    # ---- the end of a tick

    def end_of_tick(self) -> None:
        """Everything that was written is in the journal: ship it, then say what was decided."""
        if self._records or self._handled or self._touched:
            self._unsaid.append(self._log())
        for command in self._decisions:
            self._supply(command)
            self._unsaid.append(command)
        self._decisions.clear()
        self.go_on()

    def _log(self) -> Logged:
        manager = self._manager
        index, chain = self._before
        standing: list[Standing] = []
        gone: list[ConsumerId] = []
        for consumer in self._touched:
            found = self._standing(consumer)
            if found is not None:
                standing.append(found)
            else:
                gone.append(consumer)
                self._addresses.pop(consumer, None)
        logged = Logged(
            index + 1,
            chain,
            [(bytes(sender), sequence) for sender, sequence in self._handled.items()],
            self._records,
            self._attached,
            standing,
            gone,
        )
        self._before = (manager.place.index, manager.place.chain)
        if self._records:
            self._marks.append((manager.place.index, manager.journal.next_lsn - 1))
        self._records, self._attached = [], []
        self._handled, self._touched, self._published = {}, {}, {}
        return logged

    def _standing(self, identity: ConsumerId) -> Standing | None:
        address = self._addresses.get(identity)
        destination = self._manager.catalogue.by_address.get(address) if address is not None else None
        messages = destination.list_of(identity) if destination is not None else None
        consumer = messages.consumers.get(identity) if messages is not None else None
        if consumer is None or messages is None:
            return None
        return Standing(identity, messages.number, consumer.credit, consumer.next_tag, consumer.retired)

    def _supply(self, command: Command) -> None:
        """A body crosses the bus once, unless it is handed out much later."""
        if isinstance(command, Dispatched):
            self._supply_block(command.span.block)
        elif isinstance(command, Parcelled):
            for span in command.spans:
                self._supply_block(span.block)

    def _supply_block(self, block: Block) -> None:
        if not block.name and (block.positions is not None or block.flags & (SEQUENCES | LANES)):
            block.name = b"s" + next(self._names).to_bytes(8, "little")
        name = name_of(block)
        if name not in self._bodies:
            self._bodies.add(name, None, block.size)
            self._unsaid.append(Supplied(name, block))

    def body_wanted(self, address: Address, consumer: ConsumerId, tag: int) -> None:
        """A client manager does not have what it was told to hand out."""
        destination = self._manager.catalogue.by_address.get(address)
        messages = destination.list_of(consumer) if destination is not None else None
        found = messages.consumers.get(consumer) if messages is not None else None
        for first, span in found.outstanding.tagged() if found is not None else ():
            if first <= tag < first + _count(span) and span.block.buffer is not None:
                self._decisions.append(Supplied(name_of(span.block), span.block))
                self._manager.ask_for_tick()

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

    def install(self, *, forget_bodies: bool) -> None:
        """Say again what nobody took. `forget_bodies`: somebody is new, and has heard nothing yet."""
        self._unsaid = self._flying + self._unsaid
        self._flying = deque()
        if forget_bodies:
            self._bodies.clear()
        self._may_say = True
        self.go_on()


def _count(span: Span) -> int:
    return span.stop - span.start
