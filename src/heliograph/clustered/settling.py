"""What waits until messages are done: somebody is told when the last of them is. An engine: no clock, no I/O."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class Settling(Generic[T]):
    """Sets of messages, each with what to tell. Told once, in the order in which they were given."""

    def __init__(self) -> None:
        self._waiting: list[tuple[T, dict[str, None]]] = []

    def add(self, what: T, ids: Iterable[str]) -> list[T]:
        """To tell at once: if nothing is to be waited for."""
        self._waiting.append((what, dict.fromkeys(ids)))
        return self._settled()

    def done(self, ids: Iterable[str]) -> list[T]:
        if not self._waiting:
            return []
        for identity in ids:
            for _, waiting in self._waiting:
                waiting.pop(identity, None)
        return self._settled()

    def _settled(self) -> list[T]:
        settled = [what for what, waiting in self._waiting if not waiting]
        if settled:
            self._waiting = [each for each in self._waiting if each[1]]
        return settled
