"""What came in and was not taken yet, for adapters whose client calls back."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")
_AT_ONCE = 500


class Arrivals(Generic[T]):
    """Of one loop. It has no bound of its own: a middleware sends no more ahead than may be unacknowledged. Where
    there are no acknowledgements, whoever adds looks at how many wait."""

    def __init__(self) -> None:
        self._waiting: deque[T | asyncio.Event] = deque()
        self._is_there = asyncio.Event()
        self._error: Exception | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, item: T) -> None:
        self._waiting.append(item)
        self._is_there.set()

    def add_mark(self, taken: asyncio.Event) -> None:
        """Set when everything that came before is taken."""
        self._waiting.append(taken)
        self._is_there.set()

    def end(self, error: Exception) -> None:
        """Whoever waits now or later is told, once everything is taken."""
        self._error = self._error or error
        self._is_there.set()

    async def _wait(self) -> None:
        while not self._waiting:
            if self._error is not None:
                raise self._error
            self._is_there.clear()
            await self._is_there.wait()

    async def one(self) -> T:
        return (await self.some(1))[0]

    async def some(self, most: int = _AT_ONCE) -> list[T]:
        """At least one, and not so many that nothing else gets its turn."""
        taken: list[T] = []
        while not taken:
            await self._wait()
            while self._waiting and len(taken) < most:
                item = self._waiting.popleft()
                if isinstance(item, asyncio.Event):
                    item.set()
                else:
                    taken.append(item)
        return taken
