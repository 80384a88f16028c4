"""Transacted sessions (J5): what was sent waits as stages, what was received waits outstanding, until one
record decides.

    staged ──commit asked──▶ deciding ──COMMITTED stored──▶ published and done
       └────rollback, session lost──▶ dropped

A session has one transaction at a time. Stages are in the journal as they arrive and belong to nobody; the
COMMITTED record, which also names what was consumed, is the only thing that makes them messages. The outcome
of a session's last transaction is kept, so that a repeated commit gets the same answer (P8).
"""

from __future__ import annotations

import msgspec

from heliograph.destinations.destination import Destination
from heliograph.model.block import Block
from heliograph.model.errors import ClientFault
from heliograph.model.ids import SessionId
from heliograph.model.limits import MAX_TRANSACTION_BYTES


class CommitRecord(msgspec.Struct, array_like=True):
    """How the journal keeps an outcome. `done`: (destination, list, inclusive ranges of message numbers)."""

    session: bytes
    number: int
    committed: bool
    done: list[tuple[int, int, list[tuple[int, int]]]]
    numbers: list[int]  # of each persistent block that was staged: the place of its first message


class Open(msgspec.Struct):
    """The transaction that a session is in."""

    staged: list[tuple[Destination, Block]]
    messages: int = 0
    bytes: int = 0


class Deciding(msgspec.Struct):
    """A commit whose record is on its way to the disk."""

    session: SessionId
    number: int
    requests: list[int]


class Transactions:
    """The open transactions of all sessions, and the outcomes of their last ones."""

    def __init__(self) -> None:
        self._open: dict[SessionId, Open] = {}
        self._deciding: dict[tuple[SessionId, int], Deciding] = {}
        self._outcomes: dict[SessionId, tuple[int, bool]] = {}

    def stage(self, session: SessionId, destination: Destination, block: Block) -> None:
        """A block of a session's transaction. Raises ClientFault when there is too much of it."""
        transaction = self._open.setdefault(session, Open([]))
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
        return last[1] if last is not None and last[0] == number else None

    def joins_deciding(self, session: SessionId, number: int, request: int) -> bool:
        """Whether this commit is under way already; its answer will be given to `request` too."""
        deciding = self._deciding.get((session, number))
        if deciding is None:
            return False
        deciding.requests.append(request)
        return True

    def staged_by(self, session: SessionId) -> list[tuple[Destination, Block]]:
        found = self._open.get(session)
        return found.staged if found is not None else []

    def messages_of(self, session: SessionId) -> int:
        found = self._open.get(session)
        return found.messages if found is not None else 0

    def decide(
        self, session: SessionId, number: int, request: int
    ) -> tuple[Deciding, list[tuple[Destination, Block]]]:
        """Close the transaction for good; it takes effect when its record is stored. Returns what was
        staged."""
        transaction = self._open.pop(session, None)
        deciding = self._deciding[session, number] = Deciding(session, number, [request])
        return deciding, transaction.staged if transaction is not None else []

    def committed(self, deciding: Deciding) -> None:
        del self._deciding[deciding.session, deciding.number]
        self._outcomes[deciding.session] = (deciding.number, True)

    def roll_back(self, session: SessionId, number: int) -> list[tuple[Destination, Block]]:
        """Forget the open transaction. Returns what had been staged."""
        if number:
            self._outcomes[session] = (number, False)
        transaction = self._open.pop(session, None)
        return transaction.staged if transaction is not None else []

    def forget(self, session: SessionId) -> None:
        self._outcomes.pop(session, None)

    # ---- recovery and snapshots

    def outcomes(self) -> dict[SessionId, tuple[int, bool]]:
        return self._outcomes

    def restore_outcome(self, session: SessionId, number: int, committed: bool) -> None:
        self._outcomes[session] = (number, committed)

    def all_staged(self) -> list[tuple[SessionId, Destination, Block]]:
        """Stages that are not decided, persistent ones only."""
        return [
            (session, destination, block)
            for session, transaction in self._open.items()
            for destination, block in transaction.staged
            if block.persistent and not destination.has_ended
        ]

    def undecided(self) -> list[Deciding]:
        """Their records are in the log: for a snapshot they are committed."""
        return list(self._deciding.values())
