"""Transactions over several sub-clusters that are prepared and wait for their outcome, as an administrator sees them
(M10): whom they wait for, and since when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from heliograph.admin.administration import Administration, Outcome
from heliograph.admin.handlers import PAGE_ENTRIES
from heliograph.admin.subjects import Arguments, argument
from heliograph.destinations.catalogue import Catalogue
from heliograph.destinations.transactions import Finishing, Prepared
from heliograph.model.ids import SessionId, text_of


class TransactionHandlers:
    """Answers for the transactions of one message manager."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def register_with(self, administration: Administration) -> None:
        administration.register("transactions", self._transactions)

    def _transactions(self, arguments: Arguments) -> Outcome:
        """A page of them, those behind the first `after`; `next` is 0 on the last."""
        after = argument(arguments, "after", int, 0)
        entries = list(self._entries())
        page = entries[after : after + PAGE_ENTRIES]
        behind = after + len(page)
        return Outcome({"transactions": page, "next": behind if behind < len(entries) else 0})

    def _entries(self) -> Iterator[dict[str, Any]]:
        transactions = self._catalogue.transactions
        for prepared in transactions.prepared.values():
            yield self._prepared(prepared)
        for finishing in transactions.finishing.values():
            yield self._finishing(finishing)

    def _prepared(self, prepared: Prepared) -> dict[str, Any]:
        record = prepared.record
        waits_for = (
            "its client manager, to be told that all others are prepared"
            if record.decides
            else f"sub-cluster {record.decider}, which decides"
        )
        return {
            **self._who(record.key[0], record.number),
            "state": "prepared",
            "sentence": f"it is promised, and waits for {waits_for}",
            "here": record.participant,
            "decider": record.decider,
            "participants": record.participants,
            "since": record.since,
            "sent": sum(block.count for _, block in prepared.staged),
            "consumed": self._consumed(prepared),
        }

    def _finishing(self, finishing: Finishing) -> dict[str, Any]:
        others = ", ".join(name for name in finishing.participants if name != finishing.participant)
        return {
            **self._who(SessionId(finishing.session), finishing.number),
            "state": "committed",
            "sentence": f"it is committed, and not every one of {others} is known to have heard of it",
            "here": finishing.participant,
            "decider": finishing.participant,
            "participants": finishing.participants,
            "since": finishing.since,
            "sent": 0,
            "consumed": 0,
        }

    def _who(self, session: SessionId, number: int) -> dict[str, Any]:
        known = self._catalogue.sessions.get(session)
        return {
            "session": text_of(session),
            "number": number,
            "user": known.user if known is not None else "",
        }

    def _consumed(self, prepared: Prepared) -> int:
        """Messages that are locked."""
        key = prepared.record.key
        return sum(
            messages.pledged[key].outstanding.messages
            for destination in self._catalogue.all_destinations()
            for messages in destination.lists()
            if key in messages.pledged
        )
