"""What a message manager finds around it, in virtual time: a loop, a clock and a disk in memory.

Only the folder for large messages is a real one. Nobody sends any here, so that no thread ever starts.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from heliograph.destinations.effects import AnyEffect
from heliograph.destinations.queue import Queue
from heliograph.destinations.topic import Topic
from heliograph.model.block import Block, parse
from heliograph.nodes import gravedigger, message_manager
from heliograph.nodes.clock import Clock
from tests.properties.memory_journal import Listener, MemoryJournal

SECOND = 1_000_000
START = 1_000 * SECOND


class Timer:
    """A call that is due at some time, unless it is cancelled."""

    def __init__(self, due: int, order: int, call: Callable[[], None]) -> None:
        self.due = due
        self.order = order
        self.call = call
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def __lt__(self, other: Timer) -> bool:
        return (self.due, self.order) < (other.due, other.order)


class Failure:
    """The future that a manager sets when it has to give up, which is never."""

    def done(self) -> bool:
        return False

    def set_result(self, error: Exception) -> None:
        raise AssertionError(f"the manager gave up: {error!r}")


class Loop:
    """An event loop that does nothing by itself. Time is in microseconds."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.soon: list[Callable[[], None]] = []
        self._timers: list[Timer] = []
        self._made = 0

    def call_soon(self, call: Callable[..., None], *arguments: Any) -> None:
        self.soon.append(lambda: call(*arguments))

    def call_later(self, delay: float, call: Callable[[], None]) -> Timer:
        self._made += 1
        timer = Timer(self.now + round(delay * SECOND), self._made, call)
        heapq.heappush(self._timers, timer)
        return timer

    def create_future(self) -> Failure:
        return Failure()

    def next_due(self, until: int) -> Timer | None:
        """The next timer up to a moment, taken out."""
        while self._timers and self._timers[0].due <= until:
            timer = heapq.heappop(self._timers)
            if not timer.is_cancelled:
                return timer
        return None


class Surroundings:
    """The world that managers are made in."""

    def __init__(self) -> None:
        self.loop = Loop(START)
        self.journal = MemoryJournal()
        self.folder = Path()
        self.boot = b""
        self.copied: Callable[[bytes], Block] = parse  # sees what the dead message queue is given
        self.added: Callable[[Block], None] = lambda _block: None  # sees what is there for all

    def open_journal(self, *_arguments: object, listener: Listener, **_settings: object) -> MemoryJournal:
        self.journal.listener = listener
        return self.journal


HERE = Surroundings()


class ClockHere(Clock):
    """What managers are told of time and machine."""

    def now(self) -> float:
        return HERE.loop.now / SECOND

    def microseconds(self) -> int:
        return HERE.loop.now

    def boot_id(self) -> bytes:
        return HERE.boot


def put_managers_here(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Managers that are made from now on live in `HERE`."""
    HERE.folder = folder
    HERE.copied, HERE.added = parse, lambda _block: None  # whoever watched before is gone
    running = SimpleNamespace(get_running_loop=lambda: HERE.loop)
    monkeypatch.setattr(message_manager, "asyncio", running)
    monkeypatch.setattr(message_manager, "Journal", HERE.open_journal)
    _watch(monkeypatch)


def _watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two moments that no client sees: a block begins to wait, and a copy is made for the dead."""

    def copied(buffer: bytes) -> Block:
        return HERE.copied(buffer)

    monkeypatch.setattr(gravedigger, "parse", copied)
    kinds: tuple[type[Queue | Topic], ...] = (Queue, Topic)
    for kind in kinds:
        monkeypatch.setattr(kind, "add", _watched(kind.add))


def _watched(add: Callable[..., int]) -> Callable[..., int]:
    def adding(self: Queue | Topic, block: Block, effects: list[AnyEffect], now: int) -> int:
        HERE.added(block)
        return add(self, block, effects, now)

    return adding
