"""Waiting for a change: everybody who waits is woken at once and looks for themselves."""

from __future__ import annotations

import asyncio


class Signal:
    """Futures of those who wait. Truthy while somebody does."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: list[asyncio.Future[None]] = []

    def __bool__(self) -> bool:
        return bool(self._waiters)

    async def wait(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._waiters:  # cancelled while it waited
                self._waiters.remove(waiter)

    def wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
