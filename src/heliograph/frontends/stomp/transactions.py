"""STOMP's transactions: what is sent and acknowledged in one stays here until COMMIT, when all of it goes out
at once.

A client may have several open, under names of its choice, beside what it does in none; a session has one at a
time. What is in one is in memory, so it has bounds.
"""

from __future__ import annotations

import msgspec

from heliograph.frontends.held_tags import Ranges
from heliograph.frontends.prepared import Prepared
from heliograph.frontends.stomp.subscriptions import Subscription
from heliograph.model.errors import ClientFault
from heliograph.model.limits import MAX_STOMP_TRANSACTIONS, MAX_TRANSACTION_BYTES


class Transaction(msgspec.Struct):
    """What is to take effect together."""

    messages: list[tuple[str, Prepared]]
    acknowledged: list[tuple[Subscription, Ranges]]

    @property
    def consumed(self) -> list[tuple[int, Ranges]]:
        by_number: dict[int, Ranges] = {}
        for subscription, ranges in self.acknowledged:
            by_number.setdefault(subscription.number, []).extend(ranges)
        return [(number, sorted(ranges)) for number, ranges in by_number.items()]


class OpenTransactions:
    """All of one connection."""

    def __init__(self) -> None:
        self._open: dict[str, Transaction] = {}
        self._bytes = 0

    def begin(self, name: str) -> None:
        if name in self._open:
            raise ClientFault(f"transaction {name[:40]!r} was begun before", code="transaction-exists")
        if len(self._open) >= MAX_STOMP_TRANSACTIONS:
            raise ClientFault(
                f"a connection has at most {MAX_STOMP_TRANSACTIONS} transactions",
                code="transactions-open",
            )
        self._open[name] = Transaction([], [])

    def named(self, name: str) -> Transaction:
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

    def end(self, name: str) -> Transaction:
        transaction = self.named(name)
        del self._open[name]
        self._bytes -= sum(message.size for _, message in transaction.messages)
        return transaction
