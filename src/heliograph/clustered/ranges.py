"""Who owns which values: ranges of the space of values, cut evenly, by weight, or by an explicit table (H2).

An *assignment* is the whole space from 0 to `VALUES` in slices without gap or overlap, each with the name of
its owner ("" is nobody). When members come or go, `Even` and `Weighted` move as little as they can: whoever
has too much gives from the end of what it has, whoever has too little takes that. The outcome depends on
nothing but the members, their weights and the assignment before.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from heliograph.clustered.hashing import VALUES
from heliograph.model.errors import ClientFault

NOBODY = ""
Slice = tuple[int, int, str]
"""First value, the value behind the last, owner."""


class Ranges:
    """Some of the values, as ranges in order. `in` is the question that is asked for every message."""

    __slots__ = ("bounds",)

    def __init__(self, ranges: Sequence[tuple[int, int]] = ()) -> None:
        bounds: list[int] = []
        for first, stop in sorted(ranges):
            if not 0 <= first < stop <= VALUES:
                raise ClientFault(f"{first} to {stop} is no range of values", code="ranges-invalid")
            if bounds and first < bounds[-1]:
                raise ClientFault(f"ranges overlap at {first}", code="ranges-invalid")
            if bounds and first == bounds[-1]:
                bounds[-1] = stop
            else:
                bounds += (first, stop)
        self.bounds = bounds
        """Beginnings and ends in turn."""

    def __contains__(self, value: int) -> bool:
        return bisect_right(self.bounds, value) & 1 == 1

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.bounds[::2], self.bounds[1::2], strict=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranges) and self.bounds == other.bounds

    __hash__ = None  # type: ignore[assignment]  # a value, and never a key

    def __repr__(self) -> str:
        return f"Ranges({list(self)!r})"

    def __bool__(self) -> bool:
        return bool(self.bounds)

    def __and__(self, other: Ranges) -> Ranges:
        """The values in both."""
        cuts = sorted({*self.bounds, *other.bounds})
        return Ranges([(first, stop) for first, stop in pairwise(cuts) if first in self and first in other])

    @property
    def size(self) -> int:
        """How many values; not `len`, which `list` takes for the number of ranges."""
        return sum(stop - first for first, stop in self)


EVERYTHING = Ranges([(0, VALUES)])


@dataclass(frozen=True, slots=True)
class Assignment:
    """Who owns what: slices over the whole space."""

    slices: tuple[Slice, ...] = ((0, VALUES, NOBODY),)

    def owner(self, value: int) -> str:
        return self.slices[bisect_right(self.slices, value, key=_first) - 1][2]

    def of(self, owner: str) -> Ranges:
        return Ranges([(first, stop) for first, stop, name in self.slices if name == owner])


def _first(piece: Slice) -> int:
    return piece[0]


def assignment_of(slices: Sequence[Slice]) -> Assignment:
    """Slices in any order, whole; neighbours of one owner become one."""
    merged: list[Slice] = []
    behind = 0
    for first, stop, owner in sorted(slices):
        if first != behind or stop <= first:
            raise ClientFault(
                f"the slices of an assignment must meet: {behind}, {first}", code="ranges-invalid"
            )
        behind = stop
        if merged and merged[-1][2] == owner:
            merged[-1] = (merged[-1][0], stop, owner)
        else:
            merged.append((first, stop, owner))
    if behind != VALUES:
        raise ClientFault(f"an assignment ends at {VALUES}, not at {behind}", code="ranges-invalid")
    return Assignment(tuple(merged))


class Policy(Protocol):
    """How the space is cut: a function of the members with their weights, and of how it was cut before."""

    def assign(self, weights: Mapping[str, int], before: Assignment) -> Assignment: ...


class Weighted:
    """To each member its share by weight."""

    def assign(self, weights: Mapping[str, int], before: Assignment) -> Assignment:
        wanted = shares(weights)
        if not wanted:
            return Assignment()
        kept: list[Slice] = []
        free: list[tuple[int, int]] = []
        for first, stop, owner in before.slices:
            mine = min(stop - first, wanted.get(owner, 0))
            if mine:
                wanted[owner] -= mine
                kept.append((first, first + mine, owner))
            if first + mine < stop:
                free.append((first + mine, stop))
        return assignment_of(kept + _handed_out(free, wanted))


class Even(Weighted):
    """To each member the same share, whatever its weight."""

    def assign(self, weights: Mapping[str, int], before: Assignment) -> Assignment:
        return super().assign(dict.fromkeys(weights, 1), before)


class Table:
    """To each member what a table says; what belongs to somebody who is not there goes to the others evenly."""

    def __init__(self, table: Mapping[str, Sequence[tuple[int, int]]]) -> None:
        listed = [(first, stop, name) for name, ranges in table.items() for first, stop in ranges]
        self._whole = assignment_of(listed)

    def assign(self, weights: Mapping[str, int], before: Assignment) -> Assignment:
        if not weights:
            return Assignment()
        kept = [piece for piece in self._whole.slices if piece[2] in weights]
        orphaned = [piece for piece in self._whole.slices if piece[2] not in weights]
        total = sum(stop - first for first, stop, _ in orphaned)
        share, rest = divmod(total, len(weights))
        wanted = {name: share + (place < rest) for place, name in enumerate(sorted(weights))}
        return assignment_of(kept + _handed_out([(first, stop) for first, stop, _ in orphaned], wanted))


def shares(weights: Mapping[str, int]) -> dict[str, int]:
    """How many values each member gets; what cannot be divided goes to the first by name."""
    total = sum(weights.values())
    if total <= 0:
        return {}
    wanted = {name: VALUES * weights[name] // total for name in sorted(weights)}
    rest = VALUES - sum(wanted.values())
    for name in [name for name in wanted if weights[name]][:rest]:
        wanted[name] += 1
    return wanted


def _handed_out(free: Sequence[tuple[int, int]], wanted: dict[str, int]) -> list[Slice]:
    """Free ranges to those who want values, by name. There are as many as are wanted."""
    slices: list[Slice] = []
    pieces = list(reversed(free))
    for name in sorted(wanted):
        missing = wanted[name]
        while missing:
            first, stop = pieces.pop()
            taken = min(missing, stop - first)
            slices.append((first, first + taken, name))
            missing -= taken
            if first + taken < stop:
                pieces.append((first + taken, stop))
    return slices
