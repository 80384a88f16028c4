"""Which of the destinations that a session sends to have told it to wait (M7)."""

from __future__ import annotations

from heliograph.bus.commands import FlowChanged
from heliograph.model.destination import Address
from heliograph.sessions.commands import TellBlocked


class Blocks:
    """Knows where lanes lead, so that a client hears of those destinations and of no others."""

    __slots__ = ("_reasons",)

    def __init__(self) -> None:
        self._reasons: dict[Address, str] = {}

    def opened(self, address: Address, reason: str) -> list[TellBlocked]:
        """A lane leads there now, and this is how things stand."""
        self._reasons[address] = reason
        return [TellBlocked(address, reason)] if reason else []

    def changed(self, news: FlowChanged) -> list[TellBlocked]:
        if self._reasons.get(news.address, news.reason) == news.reason:
            return []  # no lane leads there, or the client knows
        self._reasons[news.address] = news.reason
        return [TellBlocked(news.address, news.reason)]
