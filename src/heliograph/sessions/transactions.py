"""A session's transactions (J5): what its client calls by small numbers, told to the message managers by id.

What was staged and what is outstanding is known to them; a session only says whose messages are decided on.
"""

from __future__ import annotations

from collections.abc import Callable

from heliograph.bus.commands import CommitAsked, RollbackAsked
from heliograph.model.destination import Address
from heliograph.model.errors import ClientFault
from heliograph.model.ids import ConsumerId, SessionId
from heliograph.sessions.commands import AnySessionEffect, Commit, Multicast, Recover, Rollback
from heliograph.sessions.consumers import Consumers
from heliograph.sessions.requests import Requests

Ranges = list[tuple[int, int]]


class Transactions:
    """Commit, rollback and recover of one session."""

    def __init__(self, session: SessionId, consumers: Consumers, requests: Requests) -> None:
        self._session = session
        self._consumers = consumers
        self._requests = requests

    def handlers(self) -> dict[type, Callable[..., list[AnySessionEffect]]]:
        return {Commit: self._commit, Rollback: self._rollback, Recover: self._recover}

    def _commit(self, command: Commit) -> list[AnySessionEffect]:
        consumed: list[tuple[Address, ConsumerId, Ranges]] = []
        released: list[AnySessionEffect] = []
        for number, ranges in command.consumed:
            consumer = self._consumers.by_number.get(number)
            wildcard = self._consumers.many.wildcards.get(number)
            if consumer is not None:
                consumed.append((consumer.address, consumer.identity, ranges))
                continue
            try:
                if wildcard is not None:
                    consumed += wildcard.consumed(ranges)
                    released += wildcard.after_commit()
                    continue
            except ClientFault:
                pass
            # What it had went back; but where this is asked again, it may have been decided before.
            consumed.append((Address(""), ConsumerId(b""), ranges))
        request = self._requests.ask(Commit, command.request, command.transaction)
        asked = CommitAsked(request, self._session, command.transaction, command.messages, consumed)
        return [*released, Multicast(asked)]

    def _rollback(self, command: Rollback) -> list[AnySessionEffect]:
        request = self._requests.ask(Rollback, command.request, command.transaction)
        return self._roll_back(command.transaction, request, command.seen)

    def _recover(self, command: Recover) -> list[AnySessionEffect]:
        # A rollback of no transaction: everything returns before the answer, which comes before anything is
        # handed out again.
        return self._roll_back(0, self._requests.ask(Recover, command.request), command.seen)

    def _roll_back(
        self, transaction: int, request: int, seen: list[tuple[int, int]]
    ) -> list[AnySessionEffect]:
        last_seen = dict(seen)
        consumers = [
            (consumer.address, consumer.identity, last_seen.get(consumer.number, -1))
            for consumer in self._consumers.by_number.values()
        ]
        for wildcard in self._consumers.many.wildcards.values():
            consumers += wildcard.returned(last_seen.get(wildcard.number, -1))
        return [Multicast(RollbackAsked(request, self._session, transaction, consumers))]
