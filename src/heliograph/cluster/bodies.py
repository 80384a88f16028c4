"""Blocks that everybody on a channel has heard lately, by name: the oldest go first.

A client manager keeps the blocks themselves. The primary keeps their names: since all count the same bytes in the
same order, it knows what they have.
"""

from __future__ import annotations

from typing import Generic, TypeVar

Kept = TypeVar("Kept")


class Bodies(Generic[Kept]):
    """What came last, up to a number of bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: dict[bytes, tuple[Kept, int]] = {}
        self.bytes = 0

    def __contains__(self, name: bytes) -> bool:
        return name in self._kept

    def get(self, name: bytes) -> Kept | None:
        found = self._kept.get(name)
        return None if found is None else found[0]

    def add(self, name: bytes, what: Kept, size: int) -> None:
        if name in self._kept:
            return  # heard again: it keeps its place, as it does with everybody
        self._kept[name] = (what, size)
        self.bytes += size
        while self.bytes > self._limit and len(self._kept) > 1:
            oldest = next(iter(self._kept))
            self.bytes -= self._kept.pop(oldest)[1]

    def clear(self) -> None:
        self._kept.clear()
        self.bytes = 0
