"""How the process's allocator treats large buffers: it keeps them for the next, instead of giving them back.

A frame of megabytes that is freed goes back to the system by default, and the next one is made of fresh
pages, which cost the loop a fault each: 20 ms for 7 MiB were measured in a virtual machine, against 1 ms for
memory that was kept. glibc only; elsewhere nothing happens.
"""

from __future__ import annotations

import ctypes

from heliograph.model.limits import MAX_FRAME_BYTES, MIB

# The names and numbers of malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
# Free memory at the end of the heap that is kept: a few of the largest frames.
_KEPT_BYTES = 48 * MIB


def keep_large_buffers() -> None:
    """For the whole process, from now on."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 2 * MAX_FRAME_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
