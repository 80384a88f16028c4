"""Consumers of alerts that are with a client manager, and what is on the wire to each: the log does not say so, and
another primary must know. Whoever leads anew is told (docs/decisions/0020).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from heliograph.bus.commands import (
    AlertHanded,
    AlertsAttached,
    AlertsClosed,
    AlertsDetached,
    AlertsTaken,
    AlertTopicsChanged,
    Answered,
    Command,
    Rejected,
    SessionClosed,
    SessionLost,
)
from heliograph.model.ids import SessionId


class _Attached(msgspec.Struct):
    """One consumer."""

    fact: AlertsAttached
    held: dict[bytes, None]


class AttachedAlerts:
    """Of one client manager in one sub-cluster."""

    def __init__(self) -> None:
        self._of_session: dict[SessionId, dict[int, _Attached]] = {}

    def clear(self) -> None:
        self._of_session.clear()

    # ---- what clients say

    def said(self, fact: Command) -> None:
        if isinstance(fact, AlertsAttached):
            again = msgspec.structs.replace(fact, request=0, create=False, held=[], taken=[])
            attached = _Attached(again, dict.fromkeys(fact.held))
            self._of_session.setdefault(fact.session, {})[fact.number] = attached
        elif isinstance(fact, AlertsTaken):
            attached_there = self._find(fact.session, fact.number)
            for identity in (*fact.taken, *fact.dropped) if attached_there is not None else ():
                assert attached_there is not None
                attached_there.held.pop(identity, None)
        elif isinstance(fact, AlertTopicsChanged):
            self._topics_changed(fact)
        elif isinstance(fact, AlertsDetached):
            self._of_session.get(fact.session, {}).pop(fact.number, None)
        elif isinstance(fact, SessionLost | SessionClosed):
            self.left(fact.session)

    def left(self, session: SessionId) -> None:
        """It is not here any more: what it wants is for another client manager to say."""
        self._of_session.pop(session, None)

    def _find(self, session: SessionId, number: int) -> _Attached | None:
        return self._of_session.get(session, {}).get(number)

    def _topics_changed(self, fact: AlertTopicsChanged) -> None:
        attached = self._find(fact.session, fact.number)
        if attached is not None:
            topics = {topic: None for topic in attached.fact.topics if topic not in fact.removed}
            topics.update(dict.fromkeys(fact.added))
            attached.fact.topics = list(topics)

    # ---- what they are told

    def heard(self, decision: Command) -> None:
        if isinstance(decision, AlertHanded):
            for session, number, _ in decision.recipients:
                attached = self._find(session, number)
                if attached is not None:
                    attached.held[decision.alert.id] = None
        elif isinstance(decision, AlertsClosed):
            self._of_session.get(decision.session, {}).pop(decision.number, None)

    def answered(self, fact: Command | None, answer: Answered | Rejected) -> None:
        if isinstance(fact, AlertsAttached) and isinstance(answer, Rejected):
            self._of_session.get(fact.session, {}).pop(fact.number, None)

    def announcements(self) -> Iterator[AlertsAttached]:
        """For a primary that knows nothing of them."""
        for consumers in self._of_session.values():
            for attached in consumers.values():
                yield msgspec.structs.replace(attached.fact, held=list(attached.held))
