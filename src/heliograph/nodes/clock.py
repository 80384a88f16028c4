"""The world's time, chance and identity, for shells only. Engines are told.

Every node is given its own: those of a simulation share a process and still have clocks that differ.
"""

from __future__ import annotations

import secrets
import time
import uuid
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Clock:
    """The system's."""

    def now(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def microseconds(self) -> int:
        """The same, as messages carry it."""
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        """Seconds since whenever, as exactly as they come."""
        return time.monotonic()

    def boot_id(self) -> bytes:
        """Names this run of the machine: after another boot, what was not forced to disk is gone."""
        try:
            return _BOOT_ID.read_bytes().strip()
        except OSError:
            return uuid.uuid4().hex.encode()

    def secret(self, size: int) -> bytes:
        """Bytes that nobody can guess."""
        return secrets.token_bytes(size)


CLOCK = Clock()
