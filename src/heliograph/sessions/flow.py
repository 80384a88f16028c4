"""Which of the destinations that a session sends to have told it to wait (M7)."""

from __future__ import annotations

from heliograph.bus.commands import FlowChanged
from heliograph.model.destination import Address
from heliograph.sessions.commands import TellBlocked


class Blocks:
    """Remembers why, so that a client is told once that it must wait and once that it need not."""

    __slots__ = ("_everywhere", "_own")

    def __init__(self) -> None:
        self._own: dict[Address, str] = {}  # where lanes lead
        self._everywhere = ""

    def opened(self, address: Address, own: str, everywhere: str) -> list[TellBlocked]:
        """A lane leads there now, and this is how things stand."""
        self._own[address] = own
        self._everywhere = everywhere
        reason = own or everywhere
        return [TellBlocked(address, reason)] if reason else []

    def changed(self, news: FlowChanged) -> list[TellBlocked]:
        if not news.address:
            self._everywhere = news.reason
            return [TellBlocked(address, news.reason) for address, own in self._own.items() if not own]
        if news.address not in self._own:
            return []
        self._own[news.address] = news.reason
        return [] if self._everywhere else [TellBlocked(news.address, news.reason)]
