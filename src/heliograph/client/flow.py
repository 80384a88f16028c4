"""Which destinations the server wants us to wait with (M7)."""

from __future__ import annotations

import logging
from collections.abc import Callable

log = logging.getLogger("heliograph.client")

OnBlocked = Callable[[str, str], None]
"""Called with a destination and the reason to wait, or with an empty reason when that is over."""


class Blocks:
    """What the server said on one connection, by session. On another connection it says it again."""

    def __init__(self) -> None:
        self.on_change: OnBlocked | None = None
        self._reasons: dict[str, dict[int, str]] = {}

    def reason(self, destination: str, session: int | None = None) -> str:
        """Why messages to a destination wait, empty if they need not."""
        found = self._reasons.get(destination, {})
        return next(iter(found.values()), "") if session is None else found.get(session, "")

    def told(self, session: int, destination: str, reason: str) -> None:
        before = self.reason(destination)
        if reason:
            self._reasons.setdefault(destination, {})[session] = reason
        else:
            found = self._reasons.get(destination, {})
            found.pop(session, None)
            if not found:
                self._reasons.pop(destination, None)
        self._notify(destination, before)

    def forget_all(self) -> None:
        """The connection is gone."""
        before, self._reasons = self._reasons, {}
        for destination in before:
            self._notify(destination, "unknown")

    def _notify(self, destination: str, before: str) -> None:
        """Once for all sessions, however many are concerned."""
        reason = self.reason(destination)
        if self.on_change is not None and bool(reason) != bool(before):
            try:
                self.on_change(destination, reason)
            except Exception:
                log.exception("the on_blocked callback failed")
