"""All destinations in a few figures, for the overview and for metrics (X3), and those that need somebody.

A tally is made in portions: with many thousand destinations nobody else has to wait for the whole of it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from heliograph.destinations.destination import Destination
from heliograph.model.destination import DEAD_MESSAGES, name_of


class Tally(msgspec.Struct):
    """What was counted so far. All but the times are sums."""

    destinations: int = 0
    queues: int = 0
    topics: int = 0
    alert_channels: int = 0
    depth: int = 0
    in_flight: int = 0
    consumers: int = 0
    subscriptions: int = 0
    published: int = 0
    delivered: int = 0
    settled: int = 0
    bytes: int = 0
    dead: int = 0
    blocked: int = 0
    paused: int = 0
    stopped_units: int = 0
    held_back: int = 0

    def add(self, destination: Destination) -> None:
        """Its figures, but for the words and for the server's own destinations, which nobody sends to."""
        address = destination.address
        figures = destination.counts()
        if address == DEAD_MESSAGES:
            self.dead += figures[0]
        if name_of(address).startswith("_"):
            return
        self.destinations += 1
        if address.startswith("queue:"):
            self.queues += 1
        elif address.startswith("topic:"):
            self.topics += 1
        else:
            self.alert_channels += 1
        self.depth += figures[0]
        self.in_flight += figures[1]
        self.consumers += figures[2]
        self.delivered += figures[3]
        self.settled += figures[4]
        self.stopped_units += figures[5]
        self.published += figures[6]
        self.bytes += figures[7]
        self.subscriptions += figures[8]
        self.held_back += figures[9]
        self.blocked += bool(destination.flow.blocked)
        pause = destination.pause.state
        self.paused += pause.production or pause.consumption

    def as_body(self) -> dict[str, Any]:
        body: dict[str, Any] = msgspec.to_builtins(self)
        return body
