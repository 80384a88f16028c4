"""Which delivery tags a consumer holds, as its server would count them: what a claim says after a reconnection (M8).

    received ──▶ held ──told, or answered: done──▶ settled lately ──credit's worth later──▶ forgotten
                   └──taken back──▶ forgotten

Most settlements are not answered. But the server has at most as many messages outstanding as the consumer has credit,
and reads settlements in order: when a credit's worth was settled after one, it has arrived.

A server of another part of a cut may have outstanding what was settled elsewhere, and confirmed there. It is of the
tags that were given before the parts parted, so a credit's worth of the tags of each part is remembered.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable
from operator import itemgetter

from heliograph.model.claim import part_of
from heliograph.model.limits import MAX_CLAIM_PARTS

Range = tuple[int, int]


_first: Callable[[Range], int] = itemgetter(0)
_last: Callable[[Range], int] = itemgetter(1)


class Lately:
    """What was settled last of the tags of one part, a credit's worth."""

    __slots__ = ("_credit", "_messages", "_ranges", "number")

    def __init__(self, number: int, credit: int) -> None:
        self.number = number
        self._credit = credit
        self._ranges: deque[Range] = deque()
        self._messages = 0

    def add(self, first: int, last: int) -> None:
        ranges = self._ranges
        if ranges and ranges[-1][1] + 1 == first:
            ranges[-1] = (ranges[-1][0], last)
        else:
            ranges.append((first, last))
        self._messages += last - first + 1
        while self._messages > self._credit:
            self._forget(self._messages - self._credit)

    def _forget(self, count: int) -> None:
        first, last = self._ranges[0]
        spare = min(last - first + 1, count)
        self._messages -= spare
        if spare == last - first + 1:
            self._ranges.popleft()
        else:
            self._ranges[0] = (first + spare, last)

    def earliest(self, at_most: int) -> list[Range]:
        return sorted(self._ranges)[: max(at_most, 0)]


class Holding:
    """Inclusive ranges of tags; neighbours grow together as they come."""

    __slots__ = ("_credit", "_held", "_part", "_parts")

    def __init__(self, credit: int) -> None:
        self._credit = credit
        self._held: list[Range] = []
        self._part = Lately(0, credit)  # whose tags were settled last
        self._parts: dict[int, Lately] = {0: self._part}

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

    def settled(self, ranges: list[Range]) -> None:
        """These are done: the server was told and does not answer, or has answered."""
        self.gone(ranges)
        for first, last in ranges:
            part = self._part
            if part_of(first) != part.number:
                part = self._turn_to(part_of(first))
            part.add(first, last)

    def _turn_to(self, number: int) -> Lately:
        part = self._parts.pop(number) if number in self._parts else Lately(number, self._credit)
        self._part = self._parts[number] = part
        if len(self._parts) > MAX_CLAIM_PARTS:
            del self._parts[next(iter(self._parts))]
        return part

    def gone(self, ranges: list[Range]) -> None:
        """The server has these, or knows nothing of them."""
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
        """The server delivers again whatever was not settled."""
        self._held.clear()

    def begin_anew(self) -> None:
        """The server knows nothing of the consumer: the same tags may be given to other messages."""
        self._held.clear()
        self._part = Lately(0, self._credit)
        self._parts = {0: self._part}

    def held(self) -> list[Range]:
        return list(self._held)

    def settled_lately(self, at_most: int) -> list[Range]:
        """In order of tags, and no more ranges than that: those of the latest parts, and there the earliest. What is
        left out comes again; so must all that follows it in its unit, or order is lost."""
        found: list[Range] = []
        for part in reversed(self._parts.values()):
            found += part.earliest(at_most - len(found))
        return sorted(found)
