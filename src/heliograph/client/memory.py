"""Which messages a consumer is through with, by their ids: another part of a cut cluster may give them to it again,
and then it knows them (PROTOCOL 6).

    received ──▶ under a tag ──settled──▶ remembered, as ranges of a lane

A topic's subscriber gets in every part what waits for it there, and tags are a part's own, so only ids tell that it
had a message elsewhere. Work is done for each delivery and each settlement, not for each message; beyond
`MAX_REMEMBERED_RANGES` the lane that was remembered first is forgotten.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import NamedTuple

from heliograph.model.block import Contents
from heliograph.model.ids import LaneId
from heliograph.model.limits import MAX_REMEMBERED_RANGES

Range = tuple[int, int]


class Under(NamedTuple):
    """Messages that came under these tags. Those of a parcel have a lane and a sequence each."""

    first: int
    last: int
    contents: Contents | None
    lane: LaneId
    sequence: int  # of the first, or its place in a parcel

    def part(self, first: int, last: int) -> Under:
        return Under(first, last, self.contents, self.lane, self.sequence + first - self.first)

    def runs(self) -> Iterator[tuple[LaneId, int, int]]:
        """Lane, first and last sequence."""
        count = self.last - self.first + 1
        if self.contents is None:
            yield self.lane, self.sequence, self.sequence + count - 1
            return
        for index in range(self.sequence, self.sequence + count):
            lane, sequence = id_at(self.contents, index)
            yield lane, sequence, sequence


def id_at(contents: Contents, index: int) -> tuple[LaneId, int]:
    lane = contents.lane if contents.lanes is None else contents.lanes[index]
    return lane, contents.first + index if contents.sequences is None else contents.sequences[index]


_first: Callable[[Under | Range], int] = itemgetter(0)
_last: Callable[[Under | Range], int] = itemgetter(1)


class Remembered:
    """Messages, as ranges of their lanes."""

    __slots__ = ("_count", "_lanes")

    def __init__(self) -> None:
        self._lanes: dict[LaneId, list[Range]] = {}
        self._count = 0  # ranges of all lanes

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def add(self, lane: LaneId, first: int, last: int) -> None:
        ranges = self._lanes.get(lane)
        if ranges is not None and ranges[-1][1] + 1 == first:
            ranges[-1] = (ranges[-1][0], last)
            return
        if ranges is None:
            self._lanes[lane] = [(first, last)]
            self._count += 1
        else:
            before = len(ranges)
            _insert(ranges, first, last)
            self._count += len(ranges) - before
        while self._count > MAX_REMEMBERED_RANGES:
            self._forget_some()

    def _forget_some(self) -> None:
        lane = next(iter(self._lanes))
        self._count -= 1
        ranges = self._lanes[lane]
        del ranges[0]
        if not ranges:
            del self._lanes[lane]

    def has(self, lane: LaneId, sequence: int) -> bool:
        ranges = self._lanes.get(lane)
        if ranges is None:
            return False
        at = bisect_right(ranges, sequence, key=_first) - 1
        return at >= 0 and sequence <= ranges[at][1]


class Memory:
    """Of one consumer. `is_consulted`: whether it has been to another part, so that what comes may be known."""

    __slots__ = ("_done", "_shown", "_under", "is_consulted")

    def __init__(self) -> None:
        self.is_consulted = False
        self._under: list[Under] = []  # by tags
        self._done = Remembered()
        self._shown = Remembered()  # to the application, which was not through with it

    def received(self, first: int, last: int, contents: Contents) -> None:
        """All messages of a delivery, under these tags."""
        if contents.sequences is None and contents.lanes is None:
            under = Under(first, last, None, contents.lane, contents.first)
        else:
            under = Under(first, last, contents, contents.lane, 0)
        all_under = self._under
        if not all_under or all_under[-1].last < first:
            all_under.append(under)
        else:  # a part's tags may be lower than those of the one before
            all_under.insert(bisect_left(all_under, first, key=_first), under)

    def settled(self, ranges: list[Range]) -> None:
        """The application is through with what came under these tags."""
        all_under = self._under
        for first, last in ranges:
            if all_under and all_under[0][:3] == (first, last, None):  # as a rule
                under = all_under.pop(0)
                self._done.add(under.lane, under.sequence, under.sequence + last - first)
                continue
            for under in self._take(first, last):
                for lane, low, high in under.runs():
                    self._done.add(lane, low, high)

    def gone(self, ranges: list[Range], is_seen: Callable[[int], bool]) -> None:
        """The server has these back, or knows nothing of them: they come again, perhaps to others. What of it the
        application has seen is no news to it then."""
        for first, last in ranges:
            for under in self._take(first, last):
                self._note_shown(under, is_seen)

    def _note_shown(self, under: Under, is_seen: Callable[[int], bool]) -> None:
        last = next((tag for tag in range(under.last, under.first - 1, -1) if is_seen(tag)), 0)
        if last:
            for lane, low, high in under.part(under.first, last).runs():
                self._shown.add(lane, low, high)

    def clear(self, is_seen: Callable[[int], bool]) -> None:
        """All that is not settled comes again."""
        for under in self._under:
            self._note_shown(under, is_seen)
        self._under.clear()

    def _take(self, first: int, last: int) -> list[Under]:
        under = self._under
        begin = end = 0 if under and under[0].last >= first else bisect_left(under, first, key=_last)
        taken: list[Under] = []
        kept: list[Under] = []
        while end < len(under) and under[end].first <= last:
            found = under[end]
            low, high = max(first, found.first), min(last, found.last)
            if found.first < low:
                kept.append(found.part(found.first, low - 1))
            if high < found.last:
                kept.append(found.part(high + 1, found.last))
            taken.append(found if (low, high) == found[:2] else found.part(low, high))
            end += 1
        under[begin:end] = kept
        return taken

    def knows(self, contents: Contents, index: int) -> bool:
        """Whether the application is through with a message of a delivery."""
        return self._done.has(*id_at(contents, index))

    def has_shown(self, contents: Contents, index: int) -> bool:
        """Whether the application has seen it, and was not through with it."""
        return bool(self._shown) and self._shown.has(*id_at(contents, index))


def _insert(ranges: list[Range], first: int, last: int) -> None:
    """Add a range to others that are in order, and join it with those that it touches."""
    begin = bisect_left(ranges, first - 1, key=_last)
    end = bisect_right(ranges, last + 1, key=_first)
    touched = ranges[begin:end]
    low = min([first, *(each[0] for each in touched)])
    high = max([last, *(each[1] for each in touched)])
    ranges[begin:end] = [(low, high)]
