"""Which delivery tags a consumer holds, as its server would count them: what a claim says after a reconnection (M8).

    received ──▶ held ──told, no answer expected──▶ settled lately ──credit's worth later──▶ forgotten
                   └──answered: done, taken back──▶ forgotten

Settlements are not answered. But the server has at most as many messages outstanding as the consumer has credit, and
reads settlements in order: when a credit's worth was settled after one, it has arrived.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable
from operator import itemgetter

Range = tuple[int, int]


_first: Callable[[Range], int] = itemgetter(0)
_last: Callable[[Range], int] = itemgetter(1)


class Holding:
    """Inclusive ranges of tags; neighbours grow together as they come."""

    __slots__ = ("_credit", "_held", "_told", "_told_messages")

    def __init__(self, credit: int) -> None:
        self._credit = credit
        self._held: list[Range] = []
        self._told: deque[Range] = deque()
        self._told_messages = 0

    def received(self, first: int, last: int) -> None:
        held = self._held
        if held and held[-1][1] + 1 == first:
            held[-1] = (held[-1][0], last)
        else:
            held.append((first, last))

    def has(self, tag: int) -> bool:
        held = self._held
        if not held or tag < held[0][0]:
            return False
        if tag <= held[0][1]:
            return True
        return held[bisect_right(held, tag, key=_first) - 1][1] >= tag

    def told(self, ranges: list[Range]) -> None:
        """The server was told that these are done, and does not answer."""
        self.gone(ranges)
        told = self._told
        for first, last in ranges:
            if told and told[-1][1] + 1 == first:
                told[-1] = (told[-1][0], last)
            else:
                told.append((first, last))
            self._told_messages += last - first + 1
        while self._told_messages - self._credit > 0:
            first, last = told[0]
            spare = min(last - first + 1, self._told_messages - self._credit)
            self._told_messages -= spare
            if spare == last - first + 1:
                told.popleft()
            else:
                told[0] = (first + spare, last)

    def gone(self, ranges: list[Range]) -> None:
        """These are known to be settled."""
        for first, last in ranges:
            self._remove(first, last)

    def _remove(self, first: int, last: int) -> None:
        held = self._held
        begin = end = 0 if held and held[0][1] >= first else bisect_left(held, first, key=_last)
        kept: list[Range] = []
        while end < len(held) and held[end][0] <= last:
            low, high = held[end]
            if low < first:
                kept.append((low, first - 1))
            if last < high:
                kept.append((last + 1, high))
            end += 1
        held[begin:end] = kept

    def clear(self) -> None:
        """The server delivers again whatever was not settled, or has forgotten all of it."""
        self._held.clear()
        self._told.clear()
        self._told_messages = 0

    def held(self) -> list[Range]:
        return list(self._held)

    def settled_lately(self) -> list[Range]:
        """In order of tags."""
        return sorted(self._told)
