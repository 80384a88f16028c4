"""The world's time and chance, for a client. A simulation gives each of its clients another."""

from __future__ import annotations

import random
import secrets
import time


class Clock:
    """The system's."""

    def microseconds(self) -> int:
        """Since 1970, as messages carry it."""
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        """Seconds since whenever, as exactly as they come."""
        return time.monotonic()

    def chance(self) -> float:
        """Between 0 and 1."""
        return random.random()

    def secret(self) -> str:
        """A text that nobody can guess."""
        return secrets.token_hex(16)


CLOCK = Clock()
