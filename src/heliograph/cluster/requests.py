"""Requests that a sub-cluster has dealt with lately, by number: one that comes twice is carried out once."""

from __future__ import annotations

from collections.abc import Iterator

from heliograph.model.limits import REMEMBERED_REQUESTS


class RecentRequests:
    """The last ones. Numbers are issued once, by all client managers together."""

    def __init__(self) -> None:
        self._numbers: dict[int, None] = {}

    def __contains__(self, request: int) -> bool:
        return request in self._numbers

    def __iter__(self) -> Iterator[int]:
        """Oldest first."""
        return iter(self._numbers)

    def add(self, request: int) -> None:
        self._numbers[request] = None
        if len(self._numbers) > REMEMBERED_REQUESTS:
            del self._numbers[next(iter(self._numbers))]

    def clear(self) -> None:
        self._numbers.clear()
