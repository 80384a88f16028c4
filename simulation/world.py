"""Virtual time, one source of chance, and the order in which things happen. A seed says it all.

`note` adds to the trace, whose digest is the same for the same seed, whatever the run and the hash seed of Python.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from random import Random
from typing import Any, Final

Action = Callable[[], Any]
# So many lines of the trace go into its digest together.
_NOTES_AT_ONCE: Final = 256


class Timer:
    """Something that will happen, unless it is cancelled."""

    __slots__ = ("action",)

    def __init__(self, action: Action | None) -> None:
        self.action = action

    def cancel(self) -> None:
        self.action = None


class World:
    """Everything that happens, happens from `run`, one thing at a time."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.dice = Random(seed)
        self.now = 0.0
        self.events = 0
        self.failures: list[BaseException] = []  # what nobody caught
        self.graveyard: list[Any] = []  # what is kept until the end, so that nothing of it ever runs
        self._queue: list[tuple[float, int, Action]] = []
        self._count = 0
        self._until = 0.0
        self.whose_turn: asyncio.AbstractEventLoop | None = None  # or was, last
        self._random = self.dice.random
        self._trace = hashlib.blake2b(digest_size=16)
        self._noted: list[str] = []  # and not in the digest yet

    def after(self, delay: float, action: Action) -> None:
        self._count = count = self._count + 1
        heappush(self._queue, (self.now + delay, count, action))

    def passes_alone(self, seconds: float) -> bool:
        """Let time pass for whoever acts now, if nothing else happens meanwhile. Whether it did."""
        moment = self.now + seconds
        if moment > self._until or (self._queue and self._queue[0][0] <= moment):
            return False
        self.now = moment
        self.events += 1
        return True

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self._random()

    def chance(self, probability: float) -> bool:
        return self._random() < probability

    def note(self, *words: object) -> None:
        self._noted.append(f"{self.now:.9f} {words!r}\n")
        if len(self._noted) >= _NOTES_AT_ONCE:
            self._digest_notes()

    def _digest_notes(self) -> None:
        self._trace.update("".join(self._noted).encode())
        self._noted.clear()

    @property
    def digest(self) -> str:
        self._digest_notes()
        return self._trace.hexdigest()

    def turn_of(self, loop: asyncio.AbstractEventLoop) -> None:
        """Code of this process runs now. Telling asyncio costs a system call."""
        self.whose_turn = loop
        asyncio._set_running_loop(loop)

    def run(self, until: float) -> None:
        """Up to a moment of virtual time."""
        queue, self._until = self._queue, until
        try:
            while queue and queue[0][0] <= until:
                self.now, _, action = heappop(queue)
                self.events += 1
                action()
        finally:
            self.whose_turn = None
            asyncio._set_running_loop(None)
        self.now = until


class SimLoop:
    """The event loop of one simulated process, which can be stopped and killed.

    While it is stopped, whatever would have run waits; a killed one never runs again.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.is_stopped = False
        self.is_dead = False
        self._held: list[Timer] = []
        self._readers: dict[int, Action] = {}
        self._woken: dict[int, None] = {}

    def call_soon(self, callback: Action) -> Timer:
        return self.call_later(0.0, callback)

    def call_later(self, delay: float, callback: Action) -> Timer:
        timer = Timer(callback)
        self.world.after(delay, lambda: self._fire(timer))
        return timer

    def _fire(self, timer: Timer) -> None:
        if self.is_stopped:
            self._held.append(timer)
        elif timer.action is not None and not self.is_dead:
            timer.action()

    def add_reader(self, fd: int, callback: Action) -> None:
        self._readers[fd] = callback
        self.readable(fd)

    def remove_reader(self, fd: int) -> None:
        self._readers.pop(fd, None)

    def readable(self, fd: int) -> None:
        """There is something to read, until the reader has been called."""
        if fd not in self._woken:
            self._woken[fd] = None
            self.call_later(self.world.between(1e-5, 1e-4), lambda: self._read(fd))

    def _read(self, fd: int) -> None:
        self._woken.pop(fd, None)
        reader = self._readers.get(fd)
        if reader is not None:
            reader()

    def stop(self) -> None:
        self.is_stopped = True

    def resume(self) -> None:
        self.is_stopped = False
        held, self._held = self._held, []
        for timer in held:
            self.world.after(0.0, partial(self._fire, timer))

    def kill(self) -> None:
        self.is_dead = True
        self._held = []
        self._readers = {}
