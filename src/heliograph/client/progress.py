"""How far the application has come with what a consumer was sent: the last tag that it saw, and the last that was
collected as done.

Tags climb as messages are handed over, but only those that one part of a cluster gave: of two parts, the later one
may give the lower tags (`model/claim.py`). So the parts are known in the order in which they were met.
"""

from __future__ import annotations

from heliograph.model.claim import part_of
from heliograph.model.limits import MAX_CLAIM_PARTS


class Progress:
    """Of one consumer."""

    __slots__ = ("_seen", "last_seen", "last_taken")

    def __init__(self) -> None:
        self.last_seen = 0
        self.last_taken = 0
        self._seen: dict[int, int] = {}  # the last tag of each part, but for that of `last_seen`

    def saw(self, tag: int) -> None:
        if part_of(tag) != part_of(self.last_seen):
            self._turn()
        self.last_seen = tag

    def _turn(self) -> None:
        part = part_of(self.last_seen)
        self._seen.pop(part, None)
        self._seen[part] = self.last_seen
        if len(self._seen) >= MAX_CLAIM_PARTS:
            del self._seen[next(iter(self._seen))]

    def took(self, ranges: list[tuple[int, int]]) -> None:
        """These are collected: all that was seen before them is, too."""
        for _, last in ranges:
            if self._is_later(last, self.last_taken):
                self.last_taken = last

    def is_taken(self, tag: int) -> bool:
        return not self._is_later(tag, self.last_taken)

    def is_seen(self, tag: int) -> bool:
        return not self._is_later(tag, self.last_seen)

    def _is_later(self, tag: int, other: int) -> bool:
        part, before = part_of(tag), part_of(other)
        return tag > other if part == before else self._place(part) > self._place(before)

    def _place(self, part: int) -> int:
        """Of a part among those that were met; one that is not there was not met yet."""
        for place, met in enumerate((*self._seen, part_of(self.last_seen))):
            if met == part:
                return place
        return len(self._seen) + 1

    def elsewhere(self) -> list[int]:
        """The last tags that were seen of other parts."""
        return list(self._seen.values())

    def clear(self) -> None:
        self.last_seen = self.last_taken = 0
        self._seen.clear()
