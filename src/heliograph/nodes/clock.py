"""The world's time and identity, for shells only. Engines are told."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def now() -> float:
    """Seconds since 1970."""
    return time.time()


def microseconds() -> int:
    """The same, as messages carry it."""
    return time.time_ns() // 1000


def boot_id() -> bytes:
    """Names this run of the machine: after another boot, what was not forced to disk is gone."""
    try:
        return _BOOT_ID.read_bytes().strip()
    except OSError:
        return uuid.uuid4().hex.encode()
