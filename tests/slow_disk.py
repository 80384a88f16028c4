"""A server on a slow disk: `python -m tests.slow_disk SECONDS serve …`. Every sync takes that much longer.

With it a test can look at a server between a write and its sync: what is not on disk must not be confirmed.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from heliograph.cli.main import main

_sync = os.fdatasync


def slow(seconds: float) -> None:
    def sync(fd: Any) -> None:
        time.sleep(seconds)
        _sync(fd)

    os.fdatasync = sync


if __name__ == "__main__":
    slow(float(sys.argv.pop(1)))
    main()
