"""Calls made from another network namespace of this host.

Corosync and its clients find each other by the name of an abstract socket, of which there is one in each network
namespace. So the corosync of a second bus runs in a namespace of its own, and whoever connects to it is
there for that moment. What is connected stays so.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from heliograph.model.errors import Unavailable

_NAMED: Final = Path("/run/netns")
_OWN: Final = "/proc/thread-self/ns/net"
_NETWORK: Final = 0x40000000  # CLONE_NEWNET


@contextmanager
def inside(namespace: str) -> Iterator[None]:
    """What is done here, this thread does in that network namespace: a path, or a name that `ip netns` gave. Empty:
    in its own. Raises Unavailable `bus-unavailable`."""
    if not namespace:
        yield
        return
    own = os.open(_OWN, os.O_RDONLY)
    try:
        _move(_opened(namespace), namespace)
        try:
            yield
        finally:
            _move(own, "its own")
    finally:
        os.close(own)


def _opened(namespace: str) -> int:
    try:
        return os.open(_NAMED / namespace, os.O_RDONLY)
    except OSError as error:
        raise Unavailable(
            f"there is no network namespace {namespace} here ({error.strerror}): make it (ip netns add {namespace}),"
            " and start the corosync of that bus in it; `helio cluster init --bus` says how",
            code="bus-unavailable",
        ) from None


def _move(descriptor: int, namespace: str) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    failed = library.setns(descriptor, _NETWORK)
    number = ctypes.get_errno()
    if namespace != "its own":
        os.close(descriptor)
    if failed:
        raise Unavailable(
            f"this process cannot enter the network namespace {namespace} ({os.strerror(number)}): run it as root, or"
            " with the capability CAP_SYS_ADMIN",
            code="bus-unavailable",
        )
