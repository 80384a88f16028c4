"""Events of all nodes in one log (M15): each says on the bus what happened to it, and whoever leads publishes it.

Every message manager remembers the last events of all nodes, so that whoever leads next can tell them. What a node
says is bounded, in number and in rate: events that do not fit are dropped, and their count is an event.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle
from collections import deque
from collections.abc import Callable

from heliograph.admin.administration import Outcome
from heliograph.admin.subjects import Arguments
from heliograph.bus.commands import Command, Happened
from heliograph.model.errors import Unavailable
from heliograph.model.limits import (
    EVENTS_REMEMBERED,
    RELAY_SECONDS,
    RELAYED_AT_ONCE,
    RELAYED_EVENTS_WAITING,
)
from heliograph.nodes.event_log import Event, last_events


class LogRelay:
    """Between the event log of a node and that of the cluster."""

    def __init__(
        self,
        *,
        loop: AbstractEventLoop,
        say: Callable[[Command], None],
        may_speak: Callable[[], bool],
        publish: Callable[[Event], object],
    ) -> None:
        """`say` multicasts and raises Unavailable; `may_speak`: somebody leads; `publish`: to those who watch, if it
        is this node that leads."""
        self._loop = loop
        self._say = say
        self._may_speak = may_speak
        self._publish = publish
        self._waiting: deque[Event] = deque()
        self._dropped = 0
        self._last_dropped: Event = {}
        self._timer: TimerHandle | None = None
        self._remembered: deque[Event] = deque(maxlen=EVENTS_REMEMBERED)

    # ---- of this node

    def add(self, event: Event) -> None:
        if len(self._waiting) >= RELAYED_EVENTS_WAITING:
            self._dropped += 1
            self._last_dropped = event
            return
        self._waiting.append(event)
        self._soon()

    def _soon(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(RELAY_SECONDS, self._speak)

    def go_on(self) -> None:
        """Somebody leads."""
        if self._waiting:
            self._soon()

    def _speak(self) -> None:
        self._timer = None
        if not self._waiting or not self._may_speak():
            return
        batch = [self._waiting[at] for at in range(min(RELAYED_AT_ONCE, len(self._waiting)))]
        try:
            self._say(Happened(batch))
        except Unavailable:
            batch = []
        for _ in batch:
            self._waiting.popleft()
        if self._dropped and len(self._waiting) < RELAYED_EVENTS_WAITING:
            self._tell_of_dropped()
        self.go_on()

    def _tell_of_dropped(self) -> None:
        last, count = self._last_dropped, self._dropped
        self._dropped = 0
        self.add({"time": last["time"], "node": last["node"], "event": "events-dropped", "count": count})

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # ---- of all nodes

    def on_command(self, happened: Happened) -> None:
        for event in happened.events:
            self._remembered.append(event)
            self._publish(event)

    def ask(self, arguments: Arguments) -> Outcome:
        """The last events of all nodes that fit an answer, in the order in which they happened. What a node had to
        wait with comes later than what happened elsewhere meanwhile."""
        in_order = sorted(self._remembered, key=lambda event: float(event["time"]))
        return Outcome({"events": last_events(in_order, arguments)})
