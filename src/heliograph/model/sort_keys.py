"""Sort keys of a destination (U3): by which headers and properties what waits is ordered, and in which direction.

Written as in SQL: `JMSPriority desc, price asc, region`. Names are those of selectors. Messages with equal keys
are in the order of their arrival. A message that lacks a property comes behind those that have it, whatever
the direction; texts, numbers and booleans are ordered among themselves, in this order.
"""

from __future__ import annotations

from typing import Any

import msgspec

from heliograph.model.block import Block
from heliograph.model.selector import Columns

Key = tuple[Any, ...]
_TEXT, _NUMBER, _TRUTH, _BYTES, _NOTHING = range(5)


class SortKey(msgspec.Struct, frozen=True):
    """One name to sort by."""

    name: str
    descending: bool = False


def parse_sort_keys(text: str) -> tuple[SortKey, ...]:
    """The keys that a policy, which was checked, asks for."""
    keys = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, direction = part.partition(" ")
        keys.append(SortKey(name, direction == "desc"))
    return tuple(keys)


class _Descending:
    """A value that is ordered the other way round."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: _Descending) -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Descending) and bool(self.value == other.value)

    def __hash__(self) -> int:
        raise TypeError("a key is ordered, never looked up")


def keys_of(block: Block, by: tuple[SortKey, ...]) -> list[Key]:
    """What each message of a block is ordered by."""
    columns = Columns(block).columns([key.name for key in by])
    parts = [
        [_part(value, key.descending) for value in column] for key, column in zip(by, columns, strict=True)
    ]
    return list(zip(*parts, strict=True))


def _part(value: object, descending: bool) -> tuple[int, Any]:
    if value is None or value != value:  # noqa: PLR0124 - only nan differs from itself
        return _NOTHING, 0
    if isinstance(value, bool):
        rank: int = _TRUTH
    elif isinstance(value, int | float):
        rank = _NUMBER
    elif isinstance(value, str):
        rank = _TEXT
    else:
        rank = _BYTES
    return rank, _Descending(value) if descending else value
