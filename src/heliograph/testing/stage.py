"""Where the servers of a test run: a thread with an event loop of its own, so that tests may block or be asyncio,
with whatever loop they like."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Final, Protocol, TypeVar

from heliograph.testing.clock import TestClock, TestLoop

T = TypeVar("T")

# Longer than anything here takes on a machine that is busy with other tests.
PATIENCE_SECONDS: Final = 60.0


class Player(Protocol):
    """A server or a cluster."""

    def time_passed(self) -> None:
        """The clock was set forward: no client was silent meanwhile."""

    async def end(self) -> None: ...


class Stage:
    """The thread, its loop, and who is on it."""

    def __init__(self, clock: TestClock) -> None:
        self.clock = clock
        self._loop = TestLoop(clock)
        self._players: list[Player] = []
        self._thread = threading.Thread(target=self._loop.run_forever, name="heliograph-test", daemon=True)
        self._thread.start()
        clock.on_step = self._time_passed
        clock.run = self._set_forward

    def add(self, player: Player) -> None:
        self._players.append(player)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Have this done on the stage, and wait for it."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("a server's own thread cannot wait for it")
        done: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return done.result(PATIENCE_SECONDS)
        except TimeoutError:
            done.cancel()
            raise

    def _set_forward(self, seconds: float) -> None:
        self.run(self.clock.step_forward(seconds))

    def _time_passed(self) -> None:
        for player in self._players:
            player.time_passed()

    def end(self) -> None:
        """Raises what the first of them could not end with; the others are ended all the same."""
        failures: list[BaseException] = []
        for player in reversed(self._players):
            try:
                self.run(player.end())
            except Exception as failure:
                failures.append(failure)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_SECONDS)
        if not self._thread.is_alive():
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()
        if failures:
            raise failures[0]
