"""The clock that leases are measured by: one that goes on while the machine sleeps.

`CLOCK_MONOTONIC`, which a loop goes by, stands still while a machine is suspended, and a virtual machine may be at
any time. A member would wake with a lease that ended long ago for all others. `CLOCK_BOOTTIME` counts that time,
where there is one (Linux); elsewhere the monotonic clock of the system does what it does.
"""

from __future__ import annotations

import time


def lease_clock() -> float:
    """Seconds since some moment; never goes back."""
    return _read()


if hasattr(time, "CLOCK_BOOTTIME"):

    def _read() -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:
    _read = time.monotonic
