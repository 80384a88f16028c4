"""A clock that goes like the world's and can be set forward, for all servers of a test and its clients.

The servers of a test run on a loop whose time is this clock's. When it is set forward, it goes there in steps, and
everything that is due in each step happens in it: leases end, messages expire, delays pass, back-offs too. Clients
take from it when a message is sent and expires; how long *they* wait is real time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from heliograph.nodes.clock import Clock

# Nodes of a cluster believe each other gone after two seconds of silence, and say something four times a second.
_CLUSTER_STEP_SECONDS: Final = 0.1
# So that timers that follow from each other all come to pass.
_STEPS: Final = 500
# What a step sets off is done, or waits for a thread, after so many turns of the loop.
_TURNS: Final = 4
# A cluster goes through every tenth of a second, which takes real time: about a second for two minutes.
MAX_CLUSTER_SECONDS: Final = 3600.0
MAX_SECONDS: Final = 10 * 366 * 86400.0


class TestClock(Clock):
    """The time of a test."""

    __test__ = False  # pytest takes everything for a test that is called so

    def __init__(self) -> None:
        self.ahead_seconds = 0.0
        self.has_cluster = False
        self.on_step: Callable[[], None] = lambda: None
        self.run: Callable[[float], None] = self._no_stage

    def now(self) -> float:
        return time.time() + self.ahead_seconds

    def microseconds(self) -> int:
        return time.time_ns() // 1000 + int(self.ahead_seconds * 1e6)

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead_seconds

    def advance(self, seconds: float) -> None:
        """Set the clock forward. When this returns, what was due has happened."""
        most = MAX_CLUSTER_SECONDS if self.has_cluster else MAX_SECONDS
        if not 0 <= seconds <= most:
            raise ValueError(f"the clock can be set forward by 0 to {most:g} seconds, not by {seconds:g}")
        self.run(seconds)

    def _no_stage(self, seconds: float) -> None:
        self.ahead_seconds += seconds

    async def step_forward(self, seconds: float) -> None:
        """In the loop of the servers."""
        step = _CLUSTER_STEP_SECONDS if self.has_cluster else max(_CLUSTER_STEP_SECONDS, seconds / _STEPS)
        while seconds > 0:
            self.ahead_seconds += min(step, seconds)
            seconds -= step
            self.on_step()
            for _ in range(_TURNS):
                await asyncio.sleep(0)


class TestLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is that of a clock."""

    __test__ = False

    def __init__(self, clock: TestClock) -> None:
        super().__init__()
        self._test_clock = clock

    def time(self) -> float:
        return self._test_clock.monotonic()
