"""Counts all destinations for whoever asks (X3): a portion in each turn of the loop, and the same figures for all who
ask within a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from heliograph.admin.totals import Tally
from heliograph.destinations.catalogue import Catalogue
from heliograph.destinations.destination import Destination
from heliograph.model.limits import TALLY_PORTION, TALLY_SECONDS

Tell = Callable[[dict[str, Any]], None]


class Gauge:
    """For the destinations of one message manager."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._waiting: list[Tell] = []
        self._known: dict[str, Any] = {}
        self._known_at = 0.0

    def ask(self, tell: Tell) -> None:
        loop = asyncio.get_running_loop()
        if self._known and loop.time() - self._known_at < TALLY_SECONDS:
            tell(dict(self._known))
            return
        self._waiting.append(tell)
        if len(self._waiting) == 1:
            self._go_on(loop, Tally(), iter(list(self._catalogue.by_address.values())))

    def _go_on(self, loop: asyncio.AbstractEventLoop, tally: Tally, left: Iterator[Destination]) -> None:
        portion = list(islice(left, TALLY_PORTION))
        for destination in portion:
            tally.add(destination)
        if len(portion) == TALLY_PORTION:
            loop.call_soon(self._go_on, loop, tally, left)
            return
        self._known, self._known_at = tally.as_body(), loop.time()
        waiting, self._waiting = self._waiting, []
        for tell in waiting:
            tell(dict(self._known))
