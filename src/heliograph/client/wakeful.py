"""Stays awake while a confirmation is awaited that is about to come.

A process that sleeps in the kernel needs tens of microseconds to wake up. Whoever sends one message and waits for its
confirmation before the next would pay them each time, so the loop looks for the confirmation, for at most
`WAKEFUL_SECONDS`, if the one before came within that time. Where the server is farther away or the machine is
busy, confirmations take longer, and are waited for asleep.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from heliograph.model.limits import WAKEFUL_SECONDS


class Wakeful:
    """For one lane."""

    __slots__ = ("_asked_at", "_is_awake", "_is_worth_it", "_loop", "_monotonic", "_until")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._loop = loop
        self._monotonic = monotonic
        self._asked_at = 0.0
        self._until = 0.0
        self._is_awake = False
        self._is_worth_it = False

    def asked(self) -> None:
        """A message left, and somebody waits for its confirmation."""
        self._asked_at = moment = self._monotonic()
        if self._is_worth_it:
            self._until = moment + WAKEFUL_SECONDS
            if not self._is_awake:
                self._is_awake = True
                self._loop.call_soon(self._look)

    def answered(self) -> None:
        self._until = 0.0
        self._is_worth_it = self._monotonic() - self._asked_at < WAKEFUL_SECONDS

    @property
    def is_awake(self) -> bool:
        """Whether the loop looks again instead of going to sleep."""
        return self._is_awake

    def _look(self) -> None:
        if self._monotonic() < self._until:
            self._loop.call_soon(self._look)
        else:
            self._is_awake = False
