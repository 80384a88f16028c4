"""What of the order of a channel was echoed on another bus, and what was not yet.

A central member hears both orders, and either may be ahead. In step, it knows of everything that was ordered whether
it was echoed; then it can go on echoing where another stopped. Out of step it keeps the last events, so that it gets
into step again with the next word of whoever leads.
"""

from __future__ import annotations

from collections import deque

from heliograph.bus.bridge_words import Event
from heliograph.model.limits import BRIDGE_BACKLOG_EVENTS, BRIDGE_BACKLOG_HIGH_WATER

_Entry = tuple[Event, bool]


class Backlog:
    """`chain`: up to where the order was echoed, as far as is known."""

    def __init__(self) -> None:
        self.chain = b""
        self._knows = False
        self._entries: deque[_Entry] = deque()  # ordered and not echoed; or, not knowing, the last ones
        self._to_echo: deque[_Entry] = deque()  # of these, what was not said yet
        self._ahead: deque[bytes] = deque()  # echoed, and not ordered here yet
        self._is_restarting = False
        self._is_leading = False
        self._ordered = b""  # the chain of all that is ordered

    @property
    def is_in_step(self) -> bool:
        return self._knows and not self._ahead and not self._is_restarting

    @property
    def owes(self) -> bool:
        """Something is ordered and was not echoed."""
        return self._knows and bool(self._entries)

    @property
    def is_short(self) -> bool:
        return not self._knows or len(self._entries) < BRIDGE_BACKLOG_HIGH_WATER

    @property
    def is_overrun(self) -> bool:
        return self._knows and len(self._entries) > BRIDGE_BACKLOG_EVENTS

    def ordered(self, event: Event, *, is_heard: bool) -> None:
        self._ordered = event.chain
        if self._ahead:
            self._catch_up(event, is_heard)
            return
        entry = event, is_heard
        self._entries.append(entry)
        if self._is_leading:
            self._to_echo.append(entry)
        if not self._knows and len(self._entries) > BRIDGE_BACKLOG_EVENTS:
            self._entries.popleft()

    def _catch_up(self, event: Event, is_heard: bool) -> None:
        if self._ahead[0] == event.chain:
            self._ahead.popleft()
        elif not self._knows and event.chain in self._ahead:
            while self._ahead.popleft() != event.chain:
                pass
        elif self._knows:
            self.lose_step()
            self._entries.append((event, is_heard))
            return
        else:
            self._entries.append((event, is_heard))
            return
        self._knows = True
        self._entries.clear()
        self._to_echo.clear()

    def echoed(self, chain: bytes) -> None:
        """By whoever leads."""
        if self._is_restarting:
            return
        self.chain = chain
        if self._ahead:
            self._ahead.append(chain)
            if len(self._ahead) > BRIDGE_BACKLOG_EVENTS:
                self.lose_step()
        elif self._knows and self._entries and self._entries[0][0].chain != chain:
            self.lose_step()
        elif not self._drop_up_to(chain):
            self._ahead.append(chain)

    def _drop_up_to(self, chain: bytes) -> bool:
        """False: it is not here."""
        for count, (event, _) in enumerate(self._entries, 1):
            if event.chain == chain:
                for _ in range(count):
                    self._entries.popleft()
                self._knows = True
                return True
        return False

    def led(self, chain: bytes, *, is_mine: bool) -> None:
        """Somebody leads, and goes on from here; without a chain, from where it was."""
        if is_mine:
            self._is_restarting = False
        elif chain and not (self.is_in_step and chain == self.chain):
            self.chain = chain
            self._ahead.clear()
            self._is_restarting = False
            if chain == self._ordered:
                self._entries.clear()
                self._knows = True
            elif not self._drop_up_to(chain):
                self._knows = False
                self._ahead.append(chain)
        self._is_leading = is_mine
        self._to_echo = deque(self._entries) if is_mine else deque()

    def lose_step(self) -> None:
        self._knows = False
        self._ahead.clear()

    def interrupted(self) -> None:
        """Nobody leads: what is echoed from here on and was not heard counts for nothing."""
        self._is_leading = False
        self._to_echo.clear()

    def restart(self) -> None:
        """Go on from what is ordered now, whatever was echoed."""
        self.chain = self._ordered
        self._knows = self._is_restarting = True
        self._ahead.clear()
        self._entries.clear()
        self._to_echo.clear()

    def next_to_echo(self) -> _Entry | None:
        return self._to_echo.popleft() if self._to_echo and not self._is_restarting else None
