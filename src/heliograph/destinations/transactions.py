"""Transacted sessions (J5): what was sent waits as stages, what was received waits outstanding, until one
record decides.

    staged ──commit asked──▶ deciding ──COMMITTED stored──▶ published and done
       │                         ▲
       ├──prepare asked──▶ prepared ──told otherwise──▶ dropped and returned
       └────rollback, session lost──▶ dropped

A session has one transaction at a time. Stages are in the journal as they arrive and belong to nobody; the
COMMITTED record, which also names what was consumed, is the only thing that makes them messages. The outcome
of a session's last transaction is kept, so that a repeated commit gets the same answer (P8).

One that touches several sub-clusters is prepared first (docs/decisions/0013). From then on it belongs to nobody's
session: `Prepared` has all that it needs to be carried out, or not. The decider remembers that it committed until
everybody has done so (`Finishing`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from heliograph.model.block import Block
from heliograph.model.errors import ClientFault
from heliograph.model.ids import SessionId
from heliograph.model.limits import MAX_TRANSACTION_BYTES

if TYPE_CHECKING:
    from heliograph.destinations.destination import Destination


class CommitRecord(msgspec.Struct, array_like=True):
    """How the journal keeps an outcome. `done`: (destination, list, inclusive ranges of message numbers)."""

    session: bytes
    number: int
    committed: bool
    done: list[tuple[int, int, list[tuple[int, int]]]]
    numbers: list[int]  # of each persistent block that was staged: the place of its first message


Key = tuple[SessionId, int]
"""A session, and the number of its transaction."""

BEFORE = b"before"
"""Some view in the past."""


class PreparedRecord(msgspec.Struct, array_like=True):
    """How the journal keeps a promise. `consumed` as `done` of an outcome; what was sent is staged before it."""

    session: bytes
    number: int
    decider: str
    participants: list[str]
    participant: str  # who keeps it
    connection: bytes  # that the session was on
    since: float
    consumed: list[tuple[int, int, list[tuple[int, int]]]]

    @property
    def key(self) -> Key:
        return SessionId(self.session), self.number

    @property
    def decides(self) -> bool:
        return self.participant == self.decider


class FinishedRecord(msgspec.Struct, array_like=True):
    """All participants have carried it out: its decider need not remember it."""

    session: bytes
    number: int


class Prepared(msgspec.Struct):
    """A promise that was given. `asked_at`: when it was last asked what became of it, or when it was given."""

    record: PreparedRecord
    staged: list[tuple[Destination, Block]]
    asked_at: float
    has_asked: bool = False
    view: bytes = BEFORE  # in which it was given


class Finishing(msgspec.Struct, array_like=True):
    """A decider committed this, and somebody may not have heard of it."""

    session: bytes
    number: int
    participants: list[str]
    participant: str
    since: float
    asked_at: float


class Open(msgspec.Struct):
    """The transaction that a session is in. `view`: in which it began to send; empty: in none that is known."""

    staged: list[tuple[Destination, Block]]
    view: bytes = b""
    messages: int = 0
    bytes: int = 0


class Deciding(msgspec.Struct):
    """A commit whose record is on its way to the disk."""

    session: SessionId
    number: int
    requests: list[int]
    body: dict[str, str] = {}  # of the answer
    was_prepared: bool = False
    view: bytes = b""  # in which it is decided


class Transactions:
    """The open transactions of all sessions, and the outcomes of their last ones."""

    def __init__(self) -> None:
        self._open: dict[SessionId, Open] = {}
        self._deciding: dict[tuple[SessionId, int], Deciding] = {}
        self._outcomes: dict[SessionId, tuple[int, bool]] = {}
        self._views: dict[SessionId, bytes] = {}  # in which these were decided; none: in the past
        self.prepared: dict[Key, Prepared] = {}
        self.finishing: dict[Key, Finishing] = {}

    def stage(self, session: SessionId, destination: Destination, block: Block, view: bytes = b"") -> None:
        """A block of a session's transaction, in a view. Raises ClientFault when there is too much of it."""
        transaction = self._open.get(session)
        if transaction is None:
            transaction = self._open[session] = Open([], view)
        if transaction.bytes + block.size > MAX_TRANSACTION_BYTES:
            raise ClientFault(
                f"a transaction holds at most {MAX_TRANSACTION_BYTES} bytes: commit more often",
                code="transaction-too-large",
            )
        transaction.staged.append((destination, block))
        transaction.messages += block.count
        transaction.bytes += block.size

    def unstage(self, session: SessionId, block: Block) -> None:
        """The block that was staged last found no room."""
        transaction = self._open[session]
        transaction.staged.pop()
        transaction.messages -= block.count
        transaction.bytes -= block.size

    def outcome(self, session: SessionId, number: int) -> bool | None:
        """True: committed, False: rolled back, None: not known, or not decided yet."""
        last = self._outcomes.get(session)
        if last is not None and last[0] == number:
            return last[1]
        return True if (session, number) in self.finishing else None

    def decided_in(self, session: SessionId, number: int) -> bytes:
        """The view in which an outcome that is known was decided, empty if there are none."""
        last = self._outcomes.get(session)
        return self._views.get(session, BEFORE) if last is not None and last[0] == number else BEFORE

    def is_past(self, session: SessionId, number: int) -> bool:
        """Whether a later transaction of the session was decided: nothing can become of this one any more."""
        last = self._outcomes.get(session)
        return last is not None and number < last[0]

    def is_promised(self, session: SessionId, number: int) -> bool:
        """Whether it is not for this session to end it, or to say how it ended."""
        key = (session, number)
        return key in self.prepared or key in self._deciding or key in self.finishing

    def joins_deciding(self, session: SessionId, number: int, request: int) -> bool:
        """Whether this commit is under way already; its answer will be given to `request` too."""
        deciding = self._deciding.get((session, number))
        if deciding is None:
            return False
        deciding.requests.append(request)
        return True

    def deciding(self, session: SessionId, number: int) -> Deciding | None:
        return self._deciding.get((session, number))

    def staged_by(self, session: SessionId) -> list[tuple[Destination, Block]]:
        found = self._open.get(session)
        return found.staged if found is not None else []

    def began_in(self, session: SessionId) -> bytes | None:
        """The view in which the open transaction of a session began to send, None if it has sent nothing."""
        found = self._open.get(session)
        return found.view if found is not None else None

    def messages_of(self, session: SessionId) -> int:
        found = self._open.get(session)
        return found.messages if found is not None else 0

    def decide(
        self, session: SessionId, number: int, request: int, view: bytes = b""
    ) -> tuple[Deciding, list[tuple[Destination, Block]]]:
        """Close the transaction for good; it takes effect when its record is stored. Returns what was
        staged."""
        transaction = self._open.pop(session, None)
        deciding = self._deciding[session, number] = Deciding(session, number, [request], view=view)
        return deciding, transaction.staged if transaction is not None else []

    def committed(self, deciding: Deciding) -> None:
        del self._deciding[deciding.session, deciding.number]
        if deciding.was_prepared:
            self.was_decided(deciding.session, deciding.number, True, deciding.view)
        else:
            self.restore_outcome(deciding.session, deciding.number, True, deciding.view)

    def roll_back(
        self, session: SessionId, number: int, view: bytes = b""
    ) -> list[tuple[Destination, Block]]:
        """Forget the open transaction. Returns what had been staged."""
        if number:
            self.restore_outcome(session, number, False, view)
        transaction = self._open.pop(session, None)
        return transaction.staged if transaction is not None else []

    def forget(self, session: SessionId) -> None:
        """The session is no more. What was promised in it stays."""
        self._outcomes.pop(session, None)
        self._views.pop(session, None)

    # ---- over several sub-clusters

    def prepare(self, record: PreparedRecord, view: bytes = b"") -> None:
        """The open transaction of a session is not the session's any more."""
        transaction = self._open.pop(record.key[0], None)
        staged = transaction.staged if transaction is not None else []
        self.prepared[record.key] = Prepared(record, staged, record.since, view=view)

    def decide_prepared(
        self, prepared: Prepared, requests: list[int], now: float, view: bytes = b""
    ) -> Deciding:
        """It is to be; that takes effect when its record is stored."""
        record = prepared.record
        del self.prepared[record.key]
        self.is_decided(record, now)
        self._deciding[record.key] = deciding = Deciding(
            *record.key, requests, {"outcome": "committed"}, was_prepared=True, view=view
        )
        return deciding

    def is_decided(self, record: PreparedRecord, now: float) -> None:
        """A decider remembers what it committed until everybody has."""
        if record.decides:
            self.finishing[record.key] = Finishing(
                record.session, record.number, record.participants, record.participant, now, now
            )

    def abort(self, prepared: Prepared, view: bytes = b"") -> None:
        """It is not to be."""
        record = prepared.record
        del self.prepared[record.key]
        self.was_decided(*record.key, False, view)

    # ---- recovery and snapshots

    def outcomes(self) -> dict[SessionId, tuple[int, bool]]:
        return self._outcomes

    def restore_outcome(self, session: SessionId, number: int, committed: bool, view: bytes = BEFORE) -> None:
        self._outcomes[session] = (number, committed)
        self._views[session] = view

    def was_decided(self, session: SessionId, number: int, committed: bool, view: bytes = BEFORE) -> None:
        """The outcome of one that was prepared, perhaps for so long that its successors were decided before it. The
        last one counts."""
        if not self.is_past(session, number):
            self.restore_outcome(session, number, committed, view)

    def all_staged(self) -> list[tuple[Destination, Block]]:
        """Stages that are neither decided nor prepared, persistent ones only."""
        return [
            (destination, block)
            for transaction in self._open.values()
            for destination, block in _lasting(transaction.staged)
        ]

    def all_prepared(self) -> list[tuple[PreparedRecord, list[tuple[Destination, Block]]]]:
        """Promises, with stages that are persistent."""
        return [(prepared.record, _lasting(prepared.staged)) for prepared in self.prepared.values()]

    def stages_for(self, destination: Destination) -> bool:
        """Whether anything is staged for a destination."""
        staged = [*self.all_staged(), *(stage for _, stages in self.all_prepared() for stage in stages)]
        return any(to is destination for to, _ in staged)

    def undecided(self) -> list[Deciding]:
        """Their records are in the log: for a snapshot they are committed."""
        return list(self._deciding.values())


def _lasting(staged: list[tuple[Destination, Block]]) -> list[tuple[Destination, Block]]:
    return [(to, block) for to, block in staged if block.persistent and not to.has_ended]
