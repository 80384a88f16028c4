"""Clients that come back to the primary before what other parts did is in its log (P6).

What it knows of their sessions is as of the cut, or nothing: it would say that it lacks what their part confirmed, or
that it has never heard of a session that began there, and they would send again what a branch is about to bring. So
whoever resumes a session waits, for a while. What anybody says of the session meanwhile waits behind it, until all
who wait are let in: a session is with the last one that said so (docs/decisions/0010).
Should another primary lead before that, all who were not answered ask again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection

from heliograph.bus.commands import Command, SessionClosed, SessionLost, SessionResumed
from heliograph.bus.interface import Incarnation, Origin
from heliograph.model.ids import SessionId
from heliograph.model.limits import MAX_RETURNING, UNION_WAIT_SECONDS

_OfSession = SessionResumed | SessionLost | SessionClosed


class Returning:
    """Those who wait at one primary, in the order in which they came."""

    def __init__(self) -> None:
        self._said: deque[tuple[Origin, _OfSession]] = deque()
        self._sessions: dict[SessionId, None] = {}
        self._until = 0.0  # 0: nobody has waited in this view

    @property
    def is_waited_for(self) -> bool:
        return bool(self._said)

    def keeps(self, origin: Origin, command: Command, now: float) -> bool:
        """Whether somebody who says this waits."""
        if not isinstance(command, _OfSession):
            return False
        if command.session not in self._sessions:
            if not isinstance(command, SessionResumed):
                return False
            self._until = self._until or now + UNION_WAIT_SECONDS
            if self.is_over(now) or len(self._said) >= MAX_RETURNING:
                return False
            self._sessions[command.session] = None
        self._said.append((origin, command))
        return True

    def is_behind(self, command: Command) -> bool:
        """Whether something waits that was said before about the same session."""
        return isinstance(command, _OfSession) and command.session in self._sessions

    def only_these_are_here(
        self, came: Collection[Incarnation], lease_after: Callable[[Incarnation], float]
    ) -> None:
        """A view begins. Client managers that did not come along can say no more that their sessions are lost: it is
        said for them, in its turn. `lease_after`: how long what clients of one have is kept."""
        last = {command.session: (origin, command) for origin, command in self._said}
        for origin, command in last.values():
            if isinstance(command, SessionClosed) or origin.incarnation in came:
                continue
            lost = SessionLost(command.session, lease_after(origin.incarnation), command.connection)
            if lost != command:
                self._said.append((origin, lost))

    def is_over(self, now: float) -> bool:
        return now >= self._until

    def taken(self) -> list[tuple[Origin, _OfSession]]:
        """All that waited; nothing does any more."""
        said = list(self._said)
        self._said.clear()
        self._sessions.clear()
        return said

    def patience_begins_anew(self) -> None:
        self._until = 0.0
