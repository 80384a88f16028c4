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

    __slots__ = ("_asked", "_at_last_journal", "_loop", "_on_failure", "_sends", "_writes")

    def __init__(self, loop: asyncio.AbstractEventLoop, on_failure: Callable[[Exception], None]) -> None:
        """`on_failure`: a step failed, which is a bug; going on could confirm what is not stored."""
        self._loop = loop
        self._on_failure = on_failure
        self._writes: tuple[Step, ...] = ()
        self._sends: tuple[Step, ...] = ()
        self._asked = False
        self._at_last_journal = False  # whether it runs, and the others have written what they had

    def add_write(self, step: Step) -> None:
        """A journal's step. It leaves nothing unwritten, whatever happens meanwhile."""
        self._writes += (step,)

    def add_send(self, step: Step) -> None:
        """Lets connections send what was gathered for them."""
        self._sends += (step,)

    def ask(self) -> None:
        if not self._asked:
            self._asked = True
            self._loop.call_soon(self.run)

    def run(self) -> None:
        try:
            for number, write in enumerate(self._writes, start=1):
                self._at_last_journal = number == len(self._writes)
                write()
            # Not earlier: what is asked for while journals write is done by the steps that follow.
            self._asked = self._at_last_journal = False
            for send in self._sends:
                send()
        except Exception as bug:
            self._on_failure(bug)
            raise

    def send_early(self) -> None:
        """A journal that has nothing unwritten has something for clients that need not wait for the rest.

        If another may have something to write, it waits all the same.
        """
        if self._at_last_journal or not self._asked:
            for send in self._sends:
                send()
