"""Delivery tags of messages that a client has and has not settled: ascending ranges without overlap."""

from __future__ import annotations

from bisect import bisect_right

Ranges = list[tuple[int, int]]


class HeldTags:
    """Of one consumer."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges())

    def __contains__(self, tag: int) -> bool:
        index = bisect_right(self._firsts, tag) - 1
        return index >= 0 and tag <= self._lasts[index]

    def ranges(self) -> Ranges:
        return list(zip(self._firsts, self._lasts, strict=True))

    def add(self, first: int, last: int) -> None:
        """Tags that are new, or come back."""
        index = bisect_right(self._firsts, first)
        if index and self._lasts[index - 1] == first - 1:
            self._lasts[index - 1] = last
        else:
            self._firsts.insert(index, first)
            self._lasts.insert(index, last)

    def take_up_to(self, tag: int) -> Ranges:
        """All that are not beyond `tag`, which are gone then."""
        return self.take(0, tag)

    def take(self, first: int, last: int) -> Ranges:
        """Those from `first` to `last` that are there; they are gone then."""
        taken: Ranges = []
        kept: Ranges = []
        index = begin = max(bisect_right(self._firsts, first) - 1, 0)
        while index < len(self._firsts) and self._firsts[index] <= last:
            low, high = self._firsts[index], self._lasts[index]
            index += 1
            if high < first:
                kept.append((low, high))
                continue
            if low < first:
                kept.append((low, first - 1))
            taken.append((max(low, first), min(high, last)))
            if high > last:
                kept.append((last + 1, high))
        self._firsts[begin:index] = [low for low, _ in kept]
        self._lasts[begin:index] = [high for _, high in kept]
        return taken
