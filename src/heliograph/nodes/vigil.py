"""Stays awake for a client that sends one message, waits for its confirmation, and sends the next at once.

A process that sleeps in the kernel needs tens of microseconds to wake up, which such a client would pay for with
each message. So when a lone message was confirmed and the one before was answered with the next within
`VIGIL_SECONDS`, the loop looks for the next one for as long instead of going to sleep. It costs processor time
only then: whoever sends blocks, or takes its time, is waited for asleep.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from heliograph.model.limits import VIGIL_SECONDS


class Vigil:
    """One for all connections of a node."""

    __slots__ = ("_answered_at", "_is_awake", "_loop", "_monotonic", "_until", "_was_prompt")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._loop = loop
        self._monotonic = monotonic
        self._answered_at = 0.0  # when a lone message was last confirmed, 0: something else came since
        self._was_prompt = False
        self._until = 0.0
        self._is_awake = False

    def heard_lone(self) -> None:
        """A client sent one message and nothing else."""
        self._was_prompt = self._monotonic() - self._answered_at < VIGIL_SECONDS

    def heard_more(self) -> None:
        """Somebody is at work who does not wait for each confirmation."""
        self._was_prompt = False

    def answered(self) -> None:
        """What was heard is confirmed."""
        self._answered_at = moment = self._monotonic()
        if self._was_prompt:
            self._until = moment + VIGIL_SECONDS
            if not self._is_awake:
                self._is_awake = True
                self._loop.call_soon(self._look)

    @property
    def is_awake(self) -> bool:
        """Whether the loop looks again instead of going to sleep."""
        return self._is_awake

    def _look(self) -> None:
        if self._was_prompt and self._monotonic() < self._until:
            self._loop.call_soon(self._look)
        else:
            self._is_awake = False
