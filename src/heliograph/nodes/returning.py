"""Clients that come back to the primary before what other parts did is in its log (P6).

What it knows of their sessions is as of the cut, or nothing: it would say that it lacks what their part confirmed, or
that it has never heard of a session that began there, and they would send again what a branch is about to bring. So
whoever resumes a session waits, for a while. What its client manager says of the session meanwhile waits behind it.
Should another primary lead before that, all who were not answered ask again.
"""

from __future__ import annotations

from collections import deque

from heliograph.bus.commands import Command, SessionClosed, SessionLost, SessionResumed
from heliograph.bus.interface import Origin
from heliograph.model.ids import SessionId
from heliograph.model.limits import MAX_RETURNING, UNION_WAIT_SECONDS


class Returning:
    """Those who wait at one primary, in the order in which they came."""

    def __init__(self) -> None:
        self._said: deque[tuple[Origin, Command]] = deque()
        self._sessions: dict[SessionId, None] = {}
        self._until = 0.0  # 0: nobody has waited in this view

    @property
    def is_waited_for(self) -> bool:
        return bool(self._said)

    def keeps(self, origin: Origin, command: Command, now: float) -> bool:
        """Whether somebody who says this waits."""
        if isinstance(command, SessionResumed):
            self._until = self._until or now + UNION_WAIT_SECONDS
            if self.is_over(now) or len(self._said) >= MAX_RETURNING:
                return False
            self._sessions[command.session] = None
        elif not isinstance(command, SessionLost | SessionClosed) or command.session not in self._sessions:
            return False
        self._said.append((origin, command))
        return True

    def is_over(self, now: float) -> bool:
        return now >= self._until

    def taken(self) -> list[tuple[Origin, Command]]:
        """All that waited; nothing does any more."""
        said = list(self._said)
        self._said.clear()
        self._sessions.clear()
        return said

    def patience_begins_anew(self) -> None:
        self._until = 0.0
