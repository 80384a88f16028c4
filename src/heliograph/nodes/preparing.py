"""A sub-cluster's part in transactions that touch several (M10, docs/decisions/0013): it promises, waits to be told,
and, where it is the decider, decides.

What was promised is nobody's but this participant's until COMMITTED is written, either way. Every command may come
again, at this primary or at the next, and is answered when what it asks for is stored.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from heliograph.bus.commands import (
    Answered,
    CommitStateAsked,
    FinalAsked,
    OutcomeAsked,
    OutcomeWanted,
    PrepareAsked,
    Rejected,
)
from heliograph.destinations.destination import Destination
from heliograph.destinations.effects import AnyEffect
from heliograph.destinations.message_list import MessageList
from heliograph.destinations.pipelines import DECIDER
from heliograph.destinations.recovery import Claim
from heliograph.destinations.transactions import (
    CommitRecord,
    FinishedRecord,
    Finishing,
    Key,
    Prepared,
    PreparedRecord,
)
from heliograph.journal.records import RecordKind
from heliograph.model.block import Block
from heliograph.model.errors import NO_ROOM, ClientFault, HeliographError, StorageFull, Unavailable
from heliograph.model.ids import SessionId
from heliograph.model.limits import (
    ASK_AGAIN_SECONDS,
    IN_DOUBT_SECONDS,
    MAX_PREPARED_TRANSACTIONS,
    OUTCOMES_WANTED_AT_ONCE,
    TRANSACTION_PATIENCE_SECONDS,
)
from heliograph.nodes.committing import Committing, Done, in_doubt, releases

if TYPE_CHECKING:
    from heliograph.nodes.message_manager import MessageManager

PROMISES: Final = (PrepareAsked, OutcomeAsked, FinalAsked, CommitStateAsked)
_encode = msgspec.msgpack.Encoder().encode
# What a record takes in the journal, and each number in it, generously.
_COMMIT_BYTES: Final = 128
_NUMBER_BYTES: Final = 16
_COMMITTED: Final = {"outcome": "committed"}
_ABORTED: Final = {"outcome": "aborted"}
_UNDECIDED: Final = {"outcome": "undecided"}


class Preparing:
    """The promises of one message manager."""

    def __init__(self, manager: MessageManager, committing: Committing) -> None:
        self._manager = manager
        self._committing = committing
        self._transactions = manager.catalogue.transactions
        self._handlers: dict[type, Callable[..., None]] = {
            PrepareAsked: self._prepare_asked,
            OutcomeAsked: self._outcome_asked,
            FinalAsked: self._final_asked,
            CommitStateAsked: self._state_asked,
        }

    def on_command(self, command: PrepareAsked | OutcomeAsked | FinalAsked | CommitStateAsked) -> None:
        deciding = self._transactions.deciding(command.session, command.number)
        if self._is_in_doubt(command):
            self._manager.multicast(in_doubt(command.request))
        elif deciding is None or isinstance(command, CommitStateAsked):
            self._handlers[type(command)](command)
        else:  # it is on its way to the disk: whatever is asked about it is answered with that
            deciding.requests.append(command.request)
            deciding.body = _COMMITTED

    def _is_in_doubt(self, command: PrepareAsked | OutcomeAsked | FinalAsked | CommitStateAsked) -> bool:
        """PROTOCOL 7.3 and 7.6: what a restricted part did not decide itself, the others may have decided otherwise.
        It makes no promises, so all it can answer for is what it committed by itself. Who asks whether anything is
        known may be told that nothing is: if it began elsewhere, its commit finds nothing of it here."""
        if not self._committing.is_restricted:
            return False
        key, transactions = (command.session, command.number), self._transactions
        present = self._manager.catalogue.views.present
        deciding = transactions.deciding(*key)
        if deciding is not None:
            return deciding.view != present
        is_known = key in transactions.prepared or transactions.outcome(*key) is not None
        if not is_known and isinstance(command, PrepareAsked | CommitStateAsked):
            return False
        return transactions.decided_in(*key) != present

    def _answer(self, request: int, body: dict[str, str]) -> None:
        """Something that binds this participant, whoever leads it: when all that was written so far is stored."""
        self._manager.announce_when_stored(Answered(request, body, self._manager.view_of_decisions))

    # ---- promising

    def _prepare_asked(self, command: PrepareAsked) -> None:
        transactions, manager = self._transactions, self._manager
        known = transactions.outcome(command.session, command.number)
        prepared = transactions.prepared.get((command.session, command.number))
        if known or (prepared is not None and prepared.record.decider == command.decider):
            self._answer(command.request, {})
        elif known is False or prepared is not None or transactions.is_past(command.session, command.number):
            sentence = "the transaction was rolled back"
            manager.multicast(Rejected(command.request, "transaction-rolled-back", sentence))
        elif command.session not in manager.catalogue.sessions:
            sentence = "the session of the transaction is not known here"
            manager.multicast(Rejected(command.request, "session-unknown", sentence))
        else:
            try:
                self._prepare(command)
            except HeliographError as error:
                # A part that was cut off says nothing of how it ended: the others may have promised it.
                number = 0 if self._committing.is_restricted else command.number
                self._committing.drop(command.session, number)
                manager.multicast(Rejected(command.request, error.code, error.sentence))

    def prepare(self, command: PrepareAsked) -> None:
        """As if it had been asked. Raises HeliographError if it cannot be: then nothing of it takes effect."""
        self._prepare(command)

    def _prepare(self, command: PrepareAsked) -> None:
        """Raises HeliographError if it cannot be: then nothing of it takes effect."""
        manager, transactions = self._manager, self._transactions
        if len(transactions.prepared) >= MAX_PREPARED_TRANSACTIONS:
            raise Unavailable(
                f"{MAX_PREPARED_TRANSACTIONS} transactions are in doubt here already",
                code="too-many-transactions",
            )
        if self._committing.is_restricted:
            raise ClientFault(
                "a part that was cut off does not promise to others what it cannot answer for when they meet",
                code="transaction-rolled-back",
            )
        consumed = self._committing.checked(command)
        self._committing.spill(transactions.staged_by(command.session))
        places: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for destination, messages, consumer, ranges in consumed:
            numbers = messages.pledge((command.session, command.number), consumer, ranges)
            places.setdefault((destination.number, messages.number), []).extend(numbers)
        record = PreparedRecord(
            command.session,
            command.number,
            command.decider,
            command.participants,
            command.participant,
            manager.catalogue.sessions[command.session].connection,
            manager.now(),
            [(*place, numbers) for place, numbers in places.items()],
        )
        transactions.prepare(record, manager.view_of_decisions)
        manager.append(RecordKind.PREPARED, 0, 0, _encode(record), wait=True)
        self._answer(command.request, {})
        for destination, _, _, _ in consumed:
            manager.hand_out(destination)

    # ---- deciding

    def _outcome_asked(self, command: OutcomeAsked) -> None:
        transactions = self._transactions
        key = (command.session, command.number)
        prepared = transactions.prepared.get(key)
        known = transactions.outcome(*key)
        if known:
            self._answer(command.request, _COMMITTED)
        elif prepared is not None and not prepared.record.decides:
            self._manager.multicast(Answered(command.request, _UNDECIDED))  # it was promised to another
        elif prepared is not None and command.decide:
            self._commit(prepared, command.request)
        elif prepared is not None and not self.may_abort(prepared.record):
            self._manager.multicast(Answered(command.request, _UNDECIDED))
        elif command.decide:
            sentence = "the decider has aborted the transaction"
            self._manager.multicast(Rejected(command.request, "transaction-aborted", sentence))
        elif known is None and prepared is None and self._committing.may_be_in_a_branch:
            self._manager.multicast(Answered(command.request, _UNDECIDED))  # PROTOCOL 7.6
        else:
            self._abort_for_good(*key)
            self._answer(command.request, _ABORTED)

    def _abort_for_good(self, session: SessionId, number: int) -> None:
        """Of the decider: it is not committed, and whoever asks from now on must hear nothing else."""
        transactions = self._transactions
        prepared = transactions.prepared.get((session, number))
        is_known = transactions.outcome(session, number) is not None or transactions.is_past(session, number)
        if prepared is not None:
            self._abort(prepared)
        elif not is_known and session in self._manager.catalogue.sessions:
            self._committing.drop(session, number)  # of others nothing can be prepared any more

    def may_abort(self, record: PreparedRecord) -> bool:
        """Whether a decider need not wait for the client manager that is at it: that has lost the session, or takes
        too long."""
        return self._is_left(record) or self._manager.now() >= record.since + TRANSACTION_PATIENCE_SECONDS

    def _is_left(self, record: PreparedRecord) -> bool:
        """Whether the session is not where it was when it was prepared."""
        session = self._manager.catalogue.sessions.get(record.key[0])
        return session is None or session.lost_at > 0 or session.connection != record.connection

    # ---- being told

    def _final_asked(self, command: FinalAsked) -> None:
        if command.participant == command.decider:
            self._final_for_decider(command)
            return
        prepared = self._transactions.prepared.get((command.session, command.number))
        if prepared is not None and prepared.record.decider == command.decider:
            if command.is_commit:
                self._commit(prepared, command.request)
                return
            self._abort(prepared)
        self._answer(command.request, _COMMITTED if command.is_commit else _ABORTED)

    def _final_for_decider(self, command: FinalAsked) -> None:
        """Everybody has committed; or somebody cannot, and it is to be aborted, unless it is committed already."""
        key = (command.session, command.number)
        known = self._transactions.outcome(*key)
        prepared = self._transactions.prepared.get(key)
        if prepared is not None and not prepared.record.decides:
            self._manager.multicast(Answered(command.request, _UNDECIDED))  # it was promised to another
            return
        if command.is_commit:
            if self._transactions.finishing.pop(key, None) is not None:
                self._manager.append(RecordKind.FINISHED, 0, 0, _encode(FinishedRecord(*key)))
        elif not known:
            self._abort_for_good(*key)
        body = _COMMITTED if known or command.is_commit else _ABORTED
        self._answer(command.request, body)

    def _commit(self, prepared: Prepared, request: int) -> None:
        self.carry_out(prepared, [request])

    def reserve(self, transactions: list[Prepared], more: int) -> None:
        """See to it that the records by which all of these are carried out, and `more` bytes, stand in one
        frame. Raises StorageFull."""
        size = more
        for prepared in transactions:
            ranges = sum(len(numbers) for _, _, numbers in prepared.record.consumed)
            size += _COMMIT_BYTES + len(prepared.staged) * _NUMBER_BYTES + ranges * 2 * _NUMBER_BYTES
        if not self._manager.journal.reserve(size):
            raise StorageFull(f"{NO_ROOM}: nothing was carried out")

    def carry_out(self, prepared: Prepared, requests: list[int]) -> None:
        """It is to be. `requests` are answered when that is stored."""
        manager, record = self._manager, prepared.record
        effects: list[AnyEffect] = []
        done: list[Done] = []
        touched: list[Destination] = []
        for destination, messages in self._places(record):
            ended = messages.redeem(record.key, effects)
            if ended:
                done.append((destination.number, messages.number, ended))
            touched.append(destination)
        with contextlib.suppress(StorageFull):  # it was promised: what may be lost stays in memory then
            self._committing.spill(prepared.staged)
        view = manager.view_of_decisions
        deciding = self._transactions.decide_prepared(prepared, requests, manager.now(), view)
        self._committing.take_effect(deciding, prepared.staged, done, effects)
        for destination in touched:
            manager.hand_out(destination)

    def abort(self, prepared: Prepared) -> None:
        """It is not to be. What it consumed returns."""
        self._abort(prepared)

    def _abort(self, prepared: Prepared) -> None:
        manager, record = self._manager, prepared.record
        self._transactions.abort(prepared, manager.view_of_decisions)
        if record.key[0] not in manager.catalogue.sessions:
            self._transactions.forget(record.key[0])
        outcome = CommitRecord(record.session, record.number, False, [], [])
        # Before the notes that what was consumed returned: they are about messages that were handed out.
        manager.append(RecordKind.COMMITTED, 0, 0, _encode(outcome), wait=True)
        manager.run(None, releases(prepared.staged))
        for destination, messages in self._places(record):
            effects: list[AnyEffect] = []
            messages.give_back(record.key, effects, manager.microseconds())
            manager.run(destination, effects)
            manager.hand_out(destination)

    def _places(self, record: PreparedRecord) -> Iterator[tuple[Destination, MessageList]]:
        """Where messages were consumed, as far as that is still there."""
        for number, list_number, _ in record.consumed:
            destination = self._manager.catalogue.by_number.get(number)
            messages = destination.list_by_number(list_number) if destination is not None else None
            if destination is not None and messages is not None:
                yield destination, messages

    # ---- saying what is known

    def _state_asked(self, command: CommitStateAsked) -> None:
        key = (command.session, command.number)
        transactions = self._transactions
        prepared, finishing = transactions.prepared.get(key), transactions.finishing.get(key)
        state, decider, participants = "unknown", "", list[str]()
        if prepared is not None:
            state, decider = "prepared", prepared.record.decider
            participants = prepared.record.participants
        elif transactions.deciding(*key) is not None:
            state = "committed"
        elif (known := transactions.outcome(*key)) is not None:
            state = "committed" if known else "aborted"
        if finishing is not None:
            decider, participants = finishing.participant, finishing.participants
        body = {"state": state, "decider": decider, "participants": participants}
        view = self._manager.view_of_decisions
        self._manager.announce_when_stored(Answered(command.request, body, view))

    # ---- asking

    @property
    def is_concerned(self) -> bool:
        return bool(self._transactions.prepared or self._transactions.finishing)

    def ask(self) -> None:
        """Whoever was told nothing for too long asks, those first who were in doubt first."""
        now = self._manager.now()
        wanted: list[tuple[Prepared | Finishing, OutcomeWanted]] = [
            self._wanted(prepared)
            for prepared in self._transactions.prepared.values()
            if prepared.record.decider != DECIDER and self._is_due(prepared)
        ]
        for finishing in self._transactions.finishing.values():
            if now >= finishing.asked_at + IN_DOUBT_SECONDS:
                wanted.append((finishing, self._unfinished(finishing)))
        for who, question in wanted[:OUTCOMES_WANTED_AT_ONCE]:
            who.asked_at = now
            self._manager.multicast(question)
        if wanted:
            self._manager.ask_for_tick()

    def _is_due(self, prepared: Prepared) -> bool:
        record = prepared.record
        is_left = prepared.has_asked or self._is_left(record)
        patience = TRANSACTION_PATIENCE_SECONDS if record.decides else IN_DOUBT_SECONDS
        return self._manager.now() >= prepared.asked_at + (ASK_AGAIN_SECONDS if is_left else patience)

    def _wanted(self, prepared: Prepared) -> tuple[Prepared, OutcomeWanted]:
        prepared.has_asked = True
        record = prepared.record
        return prepared, OutcomeWanted(*record.key, record.decider, record.participants)

    def _unfinished(self, finishing: Finishing) -> OutcomeWanted:
        key = (SessionId(finishing.session), finishing.number)
        return OutcomeWanted(*key, finishing.participant, finishing.participants)

    # ---- recovery

    def recovered(self, pledged: dict[Key, list[Claim]]) -> None:
        """What was promised before this manager led is held again. `pledged`: what was consumed in it."""
        manager = self._manager
        blocks: dict[int, Block] = {}
        for key, claims in pledged.items():
            for claim in claims:
                destination = manager.catalogue.by_number[claim.destination]
                messages = destination.list_by_number(claim.list)
                assert messages is not None, "it was there a moment ago"
                messages.restore_pledged(key, manager.span_of(claim, blocks))
        for prepared in self._transactions.prepared.values():
            prepared.asked_at, prepared.has_asked = manager.now(), True  # soon
            for _, block in prepared.staged:
                if block.buffer is None:
                    block.buffer = manager.journal.read_now(block.position)
