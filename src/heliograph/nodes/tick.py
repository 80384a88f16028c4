"""The end of a loop iteration, shared by the nodes of a process: first the journals write, then the
connections send.

Work that arrives during an iteration is gathered; at its end everything that was appended goes to the disk
in one write, and only then do deliveries leave for the clients, so that what was handed out is always written
down before (PROTOCOL: intent before dispatch).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

Step = Callable[[], None]


class Tick:
    """Runs its steps once, soon after somebody asked."""

    __slots__ = ("_asked", "_loop", "_on_failure", "_steps")

    def __init__(self, loop: asyncio.AbstractEventLoop, on_failure: Callable[[Exception], None]) -> None:
        """`on_failure`: a step failed, which is a bug; going on could confirm what is not stored."""
        self._loop = loop
        self._on_failure = on_failure
        self._steps: tuple[Step, ...] = ()
        self._asked = False

    def add(self, step: Step) -> None:
        """Steps run in the order in which they were added."""
        self._steps += (step,)

    def ask(self) -> None:
        if not self._asked:
            self._asked = True
            self._loop.call_soon(self.run)

    def run(self) -> None:
        self._asked = False
        try:
            for step in self._steps:
                step()
        except Exception as bug:
            self._on_failure(bug)
            raise
