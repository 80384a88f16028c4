"""What clients left under a name for the time when they come again (MQTT), and when they come no more.

A keepsake is its user's: nobody else gets it, replaces it or ends what it stands for. It counts as long as its client
has not been elsewhere: there it may have gone on, and what is known here is of yesterday. Nothing is sent from here.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from heliograph.bus.interface import Incarnation
from heliograph.frontends.conversation import Keepsake
from heliograph.model.limits import MAX_KEEPSAKES

# Client and durable subscription.
Ended = list[tuple[str, str]]
_NOTHING: Final[Ended] = []


class _Kept(msgspec.Struct):
    user: str
    keepsake: Keepsake
    until: float


class Keepsakes:
    """Those of one client manager."""

    def __init__(self, most: int = MAX_KEEPSAKES) -> None:
        self._most = most
        self._kept: dict[str, _Kept] = {}
        self._me: dict[str, Incarnation] = {}
        # By channel: client managers that are in this part, and with those that may be in another.
        self._here: dict[str, frozenset[str]] = {}
        self._known: dict[str, frozenset[str]] = {}

    def holder(self, name: str, now: float) -> str:
        """The user who left something under a name; empty if nobody did, or its time is over."""
        kept = self._kept.get(name)
        return kept.user if kept is not None and kept.until >= now else ""

    def keep(self, name: str, user: str, keepsake: Keepsake, now: float) -> Ended:
        """What ends to make room for it: the oldest, since whoever comes for it would come to half of it. What was to
        last for ever lasts: it loses what is known of it here only."""
        kept = self._kept.get(name)
        if kept is not None and kept.user != user and kept.until >= now:
            return _NOTHING
        ended = (
            self._end(next(iter(self._kept))) if kept is None and len(self._kept) >= self._most else _NOTHING
        )
        self._kept.pop(name, None)  # it is the youngest now
        self._kept[name] = _Kept(user, keepsake, now + keepsake.seconds)
        return ended

    def take(self, name: str, user: str, now: float) -> Keepsake | None:
        """What this user left under a name, which is not kept any more."""
        kept = self._kept.get(name)
        if kept is None or (kept.user != user and kept.until >= now):
            return None
        del self._kept[name]
        return kept.keepsake if kept.user == user and kept.until >= now else None

    def drop(self, name: str, user: str) -> None:
        """It counts no more: its client is at another client manager, which counts its time when it goes."""
        kept = self._kept.get(name)
        if kept is not None and kept.user == user:
            del self._kept[name]

    def due(self, now: float) -> Ended:
        """Clients that were away for as long as they said do not come again. While the cluster is in parts, they may
        be in another one."""
        if self._are_parted:
            return _NOTHING
        late = [name for name, kept in self._kept.items() if kept.until < now]
        return [ended for name in late for ended in self._end(name)]

    def _end(self, name: str) -> Ended:
        kept = self._kept.pop(name)
        if kept.keepsake.is_for_ever:
            return []
        return [(name, subscription) for subscription in kept.keepsake.subscriptions]

    # ---- where clients may have been without anybody here hearing of it

    def note_managers(self, channel: str, me: Incarnation, here: Collection[str], *, is_whole: bool) -> None:
        """The client managers of a view, and as whom this one is in it. One that has gone while the cluster is not
        whole may serve clients in another part; and who was out has not heard all."""
        has_missed = self._are_parted or self._me.get(channel, me) != me
        self._me[channel] = me
        self._known[channel] = frozenset(here) | (
            frozenset() if is_whole else self._known.get(channel, frozenset())
        )
        self._here[channel] = frozenset(here)
        if has_missed and not self._are_parted:
            self.forget()

    @property
    def _are_parted(self) -> bool:
        return self._known != self._here

    def forget(self) -> None:
        """Clients may have been elsewhere. Their subscriptions stay until they come again."""
        self._kept.clear()
