"""Sets of sequence numbers as sorted, separate, inclusive ranges: a million messages in a few bytes."""

from __future__ import annotations

from collections.abc import Iterable

Ranges = tuple[tuple[int, int], ...]
"""Neighbours are one range, so equal sets are equal values."""

NONE: Ranges = ()
ALL_THAT_FOLLOWS = 1 << 62


def union(*parts: Iterable[tuple[int, int]]) -> Ranges:
    joined: list[tuple[int, int]] = []
    for first, last in sorted(each for part in parts for each in part):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)


def minus(one: Ranges, other: Ranges) -> Ranges:
    """What is in one and not in the other; one walk through both."""
    left: list[tuple[int, int]] = []
    place = 0
    for first, last in one:
        while place < len(other) and other[place][1] < first:
            place += 1
        at = place
        while at < len(other) and other[at][0] <= last:
            if other[at][0] > first:
                left.append((first, other[at][0] - 1))
            first = other[at][1] + 1  # noqa: PLW2901 - what is left of this range
            at += 1
        if first <= last:
            left.append((first, last))
    return tuple(left)


def common(one: Ranges, other: Ranges) -> Ranges:
    return minus(one, minus(one, other))


def count(ranges: Ranges) -> int:
    return sum(last - first + 1 for first, last in ranges)
