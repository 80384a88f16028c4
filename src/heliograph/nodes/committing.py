"""Carries transactions out: stages to the journal, one record that decides, and the answer when it is
stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from heliograph.bus.commands import Answered, CommitAsked, PrepareAsked, Rejected, RollbackAsked
from heliograph.cluster.partition_state import State
from heliograph.destinations.destination import Destination
from heliograph.destinations.effects import AnyEffect, Release
from heliograph.destinations.message_list import MessageList
from heliograph.destinations.transactions import CommitRecord, Deciding
from heliograph.journal.records import RecordKind
from heliograph.model.block import LARGE, Block
from heliograph.model.claim import part_of
from heliograph.model.destination import Address
from heliograph.model.errors import NO_ROOM, ClientFault, HeliographError, StorageFull
from heliograph.model.ids import ConsumerId, SessionId, session_of

if TYPE_CHECKING:
    from heliograph.nodes.message_manager import MessageManager

Ranges = list[tuple[int, int]]
Consumption = tuple[Destination, MessageList, ConsumerId, Ranges]
Done = tuple[int, int, Ranges]
_encode = msgspec.msgpack.Encoder().encode
# Something of a transaction is not here.
_MISSING = ("transaction-rolled-back", "consumer-unknown", "settlement-unknown")


class Committing:
    """The transactions of one message manager."""

    def __init__(self, manager: MessageManager) -> None:
        self._manager = manager
        self._transactions = manager.catalogue.transactions

    def stage(self, destination: Destination, block: Block) -> None:
        """A block of a transaction: written down, seen by nobody."""
        manager = self._manager
        effects: list[AnyEffect] = []
        if not destination.intake.accept(block, effects, number=False):
            manager.run(destination, effects)
            return
        session = session_of(block.lane)
        try:
            self._transactions.stage(session, destination, block, self._manager.catalogue.views.present)
        except ClientFault as fault:
            destination.intake.stage_refused(block, fault.code, fault.sentence, effects)
            manager.run(destination, effects)
            return
        # A large message has its record in any case; one that is not persistent ends with this run of the server.
        kind = RecordKind.STAGED if block.persistent else RecordKind.SPILLED
        if (block.persistent or block.flags & LARGE) and not manager.store(kind, destination, block):
            self._transactions.unstage(session, block)
            sentence = f"{NO_ROOM}: nothing was stored"
            destination.intake.stage_refused(block, "storage-full", sentence, effects)
        else:
            # The commit's record comes behind it in the log: that is early enough to be sure of it.
            destination.intake.confirm(block, effects)
        manager.run(destination, effects)

    def commit(self, command: CommitAsked) -> None:
        transactions = self._transactions
        outcome = transactions.outcome(command.session, command.number)
        if outcome is not None:
            self._answer_again(command, committed=outcome)
        elif (command.session, command.number) in transactions.prepared:
            sentence = "the transaction is prepared here, and not yet decided: ask again"
            self._manager.multicast(Rejected(command.request, "transaction-in-doubt", sentence))
        elif not transactions.joins_deciding(command.session, command.number, command.request):
            try:
                if not self._may_decide(command):
                    raise ClientFault("it began before this part was cut off", code="transaction-rolled-back")
                self._decide(command)
            except HeliographError as error:
                if error.code in _MISSING and self.may_be_known_elsewhere:
                    self.drop(command.session, 0)  # what became of it is not decided here
                    self._manager.multicast(in_doubt(command.request))
                    return
                self.drop(command.session, command.number)
                self._manager.multicast(Rejected(command.request, error.code, error.sentence))

    @property
    def may_be_known_elsewhere(self) -> bool:
        """PROTOCOL 7.6: while the cluster is in parts nobody says that something did not happen of which it knows
        nothing: a restricted part may have committed what began there, and its client come here."""
        situation = self._manager.catalogue.views.situation
        return situation is not None and not situation.is_whole

    @property
    def is_restricted(self) -> bool:
        """Whether others may have gone on from where this part was cut off."""
        situation = self._manager.catalogue.views.situation
        return situation is not None and situation.state is State.D

    @property
    def may_be_in_a_branch(self) -> bool:
        """Whether what this log knows nothing of may have happened where others went on, or where those who are here
        were before, and is not in the log yet."""
        situation = self._manager.catalogue.views.situation
        return self.is_restricted or (situation is not None and not situation.is_joined)

    def _may_decide(self, command: CommitAsked) -> bool:
        """PROTOCOL 7.7: a restricted part decides about what began in its view alone. Of what was sent, and consumed,
        before that, another part may have made something else."""
        views = self._manager.catalogue.views
        if views.situation is None or views.situation.state is not State.D:
            return True
        part = part_of(views.situation.first_tag)
        is_consumed_here = all(
            part_of(first) == part for _, _, ranges in command.consumed for first, _ in ranges
        )
        return is_consumed_here and self._transactions.began_in(command.session) in (None, views.present)

    def _decide(self, command: CommitAsked) -> None:
        """Raises ClientFault when something of the transaction is missing, and StorageFull when there is no
        room for it: then nothing of it takes effect."""
        transactions = self._transactions
        consumed = self.checked(command)
        self.spill(transactions.staged_by(command.session))
        done: list[Done] = []
        effects: list[AnyEffect] = []
        for destination, messages, consumer, ranges in consumed:
            spans = messages.take_outstanding(consumer, ranges)
            ended = messages.finish(spans, effects, note=False)
            if ended:
                done.append((destination.number, messages.number, ended))
        view = self._manager.view_of_decisions
        deciding, staged = transactions.decide(command.session, command.number, command.request, view)
        self.take_effect(deciding, staged, done, effects)
        for destination, _, _, _ in consumed:
            self._manager.hand_out(destination)

    def checked(self, command: CommitAsked | PrepareAsked) -> list[Consumption]:
        """What was consumed, and where it is. Raises ClientFault when something of the transaction is missing."""
        manager, transactions = self._manager, self._transactions
        staged_messages = transactions.messages_of(command.session)
        if staged_messages != command.messages:
            raise ClientFault(
                f"the transaction sent {command.messages} messages and {staged_messages} are here: it was"
                " rolled back",
                code="transaction-rolled-back",
            )
        consumed = []
        for (address, consumer), ranges in _by_consumer(command).items():
            destination = manager.catalogue.by_address.get(address)
            messages = destination.list_of(consumer) if destination is not None else None
            if destination is None or messages is None:
                raise ClientFault(
                    "a consumer of the transaction is gone, and what it had went back",
                    code="transaction-rolled-back",
                )
            messages.require_outstanding(consumer, ranges)
            consumed.append((destination, messages, consumer, ranges))
        return consumed

    def take_effect(
        self,
        deciding: Deciding,
        staged: list[tuple[Destination, Block]],
        done: list[Done],
        effects: list[AnyEffect],
    ) -> None:
        """Write the record that makes it happen, all of it, when it is stored."""
        manager = self._manager
        effects += releases([stage for stage in staged if stage[0].has_ended])
        staged = [stage for stage in staged if not stage[0].has_ended]
        for destination, block in staged:
            destination.intake.number(block)
            destination.intake.persist(block)
            destination.count(block)
        is_volatile = manager.catalogue.is_volatile
        numbers = [block.number for to, block in staged if block.persistent and not is_volatile(to.address)]
        record = CommitRecord(deciding.session, deciding.number, True, done, numbers)
        lsn = manager.append(RecordKind.COMMITTED, 0, 0, _encode(record), wait=True)
        manager.await_commit(lsn, staged, deciding)
        manager.run(None, effects)

    def spill(self, staged: list[tuple[Destination, Block]]) -> None:
        """What may be lost and finds no room in memory goes to the disk: there it waits in its place. Raises
        StorageFull."""
        for destination, block in staged:
            stays = block.position or destination.has_ended or destination.needs_no_disk(block)
            if not stays and not self._manager.store(RecordKind.SPILLED, destination, block):
                raise StorageFull(f"{NO_ROOM}: the transaction was rolled back")

    def committed(self, deciding: Deciding) -> None:
        """The record is stored: it has happened."""
        self._transactions.committed(deciding)
        if deciding.session not in self._manager.catalogue.sessions:
            self._transactions.forget(deciding.session)  # it was in doubt for longer than its session lived
        for request in deciding.requests:
            self._manager.multicast(Answered(request, deciding.body, deciding.view))

    def roll_back(self, command: RollbackAsked) -> None:
        """What was sent is dropped; what was received returns, in order.

        The answer comes before anything is handed out again, so that the client can tell what it had from
        what it gets.
        """
        manager = self._manager
        self.drop(command.session, command.number)
        touched: dict[Address, list[AnyEffect]] = {}
        for address, consumer, seen in command.consumers:
            destination = manager.catalogue.by_address.get(address)
            messages = destination.list_of(consumer) if destination is not None else None
            if messages is not None:
                messages.return_all(consumer, touched.setdefault(address, []), manager.microseconds(), seen)
        self._manager.multicast(Answered(command.request, {}))
        # Whoever is buried now may be handed out at once, to a consumer of the dead in this very session.
        for address, effects in touched.items():
            manager.run(manager.catalogue.by_address[address], effects)
        for address in touched:
            manager.hand_out(manager.catalogue.by_address[address])

    def session_gone(self, session: SessionId) -> None:
        """An open transaction ends with its connection."""
        if self._transactions.messages_of(session):
            self.drop(session, 0)

    def drop(self, session: SessionId, number: int) -> None:
        """The open transaction of a session is rolled back; not one that was promised, if it is of that number."""
        if self._transactions.is_promised(session, number):
            number = 0
        view = self._manager.view_of_decisions
        held = releases(self._transactions.roll_back(session, number, view))
        self._manager.run(None, held)
        if held or number:
            record = CommitRecord(session, number, False, [], [])
            self._manager.append(RecordKind.COMMITTED, 0, 0, _encode(record))

    def _answer_again(self, command: CommitAsked, *, committed: bool) -> None:
        view = self._transactions.decided_in(command.session, command.number)
        if committed:
            self._manager.multicast(Answered(command.request, {}, view))
        elif self.is_restricted and view != self._manager.catalogue.views.present:
            self._manager.multicast(in_doubt(command.request))
        else:
            sentence = "the transaction was rolled back"
            self._manager.multicast(Rejected(command.request, "transaction-rolled-back", sentence))


def in_doubt(request: int) -> Rejected:
    """PROTOCOL 7.6: nobody here can say."""
    sentence = "another part of the cluster may have committed the transaction: look later"
    return Rejected(request, "transaction-in-doubt", sentence)


def _by_consumer(
    command: CommitAsked | PrepareAsked,
) -> dict[tuple[Address, ConsumerId], list[tuple[int, int]]]:
    """What was consumed, each consumer named once: nothing can be consumed twice."""
    found: dict[tuple[Address, ConsumerId], list[tuple[int, int]]] = {}
    for address, consumer, ranges in command.consumed:
        found.setdefault((address, consumer), []).extend(ranges)
    return found


def releases(staged: list[tuple[Destination, Block]]) -> list[AnyEffect]:
    """Nobody needs what was staged."""
    return [Release(block.position, block.count) for _, block in staged if block.position]
