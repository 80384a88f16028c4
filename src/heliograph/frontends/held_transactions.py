"""Transactions of clients of other protocols: what is sent and acknowledged in one stays here until it is
committed, when all of it goes out at once.

A client may have several open, under names of its choice, beside what it does in none; a session has one at a
time. What is in one is in memory, so it has bounds.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

import msgspec

from heliograph.frontends.held_tags import Ranges
from heliograph.frontends.prepared import Prepared
from heliograph.model.errors import ClientFault
from heliograph.model.limits import MAX_HELD_TRANSACTIONS, MAX_TRANSACTION_BYTES


class Holder(Protocol):
    """Whoever has what is acknowledged: a consumer, by its number."""

    number: int


H = TypeVar("H", bound=Holder)


class Transaction(msgspec.Struct, Generic[H]):
    """What is to take effect together."""

    messages: list[tuple[str, Prepared]]
    acknowledged: list[tuple[H, Ranges]]

    @property
    def consumed(self) -> list[tuple[int, Ranges]]:
        by_number: dict[int, Ranges] = {}
        for subscription, ranges in self.acknowledged:
            by_number.setdefault(subscription.number, []).extend(ranges)
        return [(number, sorted(ranges)) for number, ranges in by_number.items()]


class OpenTransactions(Generic[H]):
    """All of one connection."""

    def __init__(self) -> None:
        self._open: dict[str, Transaction[H]] = {}
        self._bytes = 0
        self._last = 0

    def new_name(self) -> str:
        """For a protocol whose server names them."""
        self._last += 1
        return f"{self._last:08x}"

    def begin(self, name: str) -> None:
        if name in self._open:
            raise ClientFault(f"transaction {name[:40]!r} was begun before", code="transaction-exists")
        if len(self._open) >= MAX_HELD_TRANSACTIONS:
            raise ClientFault(
                f"a connection has at most {MAX_HELD_TRANSACTIONS} transactions",
                code="transactions-open",
            )
        self._open[name] = Transaction([], [])

    def named(self, name: str) -> Transaction[H]:
        found = self._open.get(name)
        if found is None:
            raise ClientFault(f"transaction {name[:40]!r} was not begun", code="transaction-unknown")
        return found

    def add(self, name: str, address: str, message: Prepared) -> None:
        transaction = self.named(name)
        if self._bytes + message.size > MAX_TRANSACTION_BYTES:
            raise ClientFault(
                f"transactions hold at most {MAX_TRANSACTION_BYTES} bytes: commit more often",
                code="transaction-too-large",
            )
        self._bytes += message.size
        transaction.messages.append((address, message))

    def holders(self) -> list[H]:
        """Whoever has something that is acknowledged in a transaction that is open."""
        return [holder for transaction in self._open.values() for holder, _ in transaction.acknowledged]

    def acknowledged_of(self, holder: H) -> Ranges:
        """What somebody has that is acknowledged in a transaction that is open."""
        return [
            each
            for transaction in self._open.values()
            for other, ranges in transaction.acknowledged
            if other is holder
            for each in ranges
        ]

    def end(self, name: str) -> Transaction[H]:
        transaction = self.named(name)
        del self._open[name]
        self._bytes -= sum(message.size for _, message in transaction.messages)
        return transaction
