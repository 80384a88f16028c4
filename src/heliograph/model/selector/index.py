"""Thousands of selectors over one block: only those that can match are tried, each distinct one once.

A selector that demands `type = 'N'`, alone or beside other terms, can only match messages whose `type` is
'N'. It is filed under that name and value, and tried on just these messages. One that demands nothing of the
kind is tried on every message. What is filed only narrows down; the selector itself decides.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from heliograph.model.selector.columns import HEADER_NAMES, Columns
from heliograph.model.selector.compiler import Pick
from heliograph.model.selector.selector import Selector
from heliograph.model.selector.tree import (
    Comparison,
    Condition,
    Constant,
    Either,
    Identifier,
    Literal,
    Membership,
    conjuncts,
)

K = TypeVar("K", bound=Hashable)


class _Entry(Generic[K]):
    """A distinct selector, the keys that share it, and the name and values it is filed under."""

    __slots__ = ("keys", "name", "selector", "values")

    def __init__(self, selector: Selector, name: str, values: tuple[Constant, ...]) -> None:
        self.selector = selector
        self.keys: dict[K, None] = {}
        self.name = name
        self.values = values

    @property
    def shape(self) -> _Shape:
        return self.selector.compiled.pick, self.selector.names


_Shape = tuple[Pick, tuple[str, ...]]


class _Drawer(Generic[K]):
    """The selectors that demand one value of one property.

    Those that demand just this value stand by their shape, to be tried in one call. Those that would also
    take another value are collected from several drawers before they are tried.
    """

    __slots__ = ("also", "only")

    def __init__(self) -> None:
        self.only: dict[_Shape, dict[_Entry[K], tuple[Any, ...]]] = {}
        self.also: dict[_Entry[K], None] = {}

    def __len__(self) -> int:
        return len(self.also) + sum(map(len, self.only.values()))

    def put(self, entry: _Entry[K]) -> None:
        if len(entry.values) > 1:
            self.also[entry] = None
        else:
            self.only.setdefault(entry.shape, {})[entry] = entry.selector.compiled.constants

    def take(self, entry: _Entry[K]) -> None:
        if len(entry.values) > 1:
            del self.also[entry]
            return
        alike = self.only[entry.shape]
        del alike[entry]
        if not alike:
            del self.only[entry.shape]


# Dictionaries stand for ordered sets here: engines answer in the same order on every replica.
_Drawers = dict[Constant, _Drawer[K]]


class SelectorIndex(Generic[K]):
    """Keys, such as subscriptions, each with its selector."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry[K]] = {}
        self._by_key: dict[K, _Entry[K]] = {}
        self._filed: dict[str, _Drawers[K]] = {}
        self._others: dict[_Entry[K], None] = {}
        self._names: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def __contains__(self, key: K) -> bool:
        return key in self._by_key

    def add(self, key: K, selector: Selector) -> None:
        assert key not in self._by_key, "a key has one selector; remove it before it gets another"
        entry = self._entries.get(selector.canonical)
        if entry is None:
            entry = self._entries[selector.canonical] = self._file(selector)
        entry.keys[key] = None
        self._by_key[key] = entry

    def remove(self, key: K) -> None:
        """Does nothing for a key that is not there."""
        entry = self._by_key.pop(key, None)
        if entry is None:
            return
        del entry.keys[key]
        if not entry.keys:
            del self._entries[entry.selector.canonical]
            self._unfile(entry)

    def match(self, columns: Columns) -> list[tuple[K, list[int]]]:
        """Each key that wants some of the block's messages, with their places in the block.

        Keys of one selector get the same list: it must not be changed.
        """
        columns.prepare(self._names)
        matched: list[tuple[K, list[int]]] = []
        for entry, found in self._matched_entries(columns):
            for key in entry.keys:
                matched.append((key, found))
        return matched

    def _matched_entries(self, columns: Columns) -> Iterator[tuple[_Entry[K], list[int]]]:
        scattered: dict[_Entry[K], list[int]] = {}
        for name, drawers in self._filed.items():
            for drawer, rows in _opened(columns, name, drawers):
                for (pick, names), constants in drawer.only.items():
                    yield from pick(rows, constants, *columns.columns(names))
                for entry in drawer.also:
                    scattered.setdefault(entry, []).extend(rows)
        for entry, some in scattered.items():
            if found := entry.selector.select(columns, sorted(some)):
                yield entry, found
        for entry in self._others:
            if found := entry.selector.select(columns):
                yield entry, found

    def _file(self, selector: Selector) -> _Entry[K]:
        for name in selector.names:
            self._names[name] = self._names.get(name, 0) + 1
        choices = [demand for term in conjuncts(selector.tree) if (demand := _demanded(term)) is not None]
        if not choices:
            entry: _Entry[K] = _Entry(selector, "", ())
            self._others[entry] = None
            return entry
        name, values = min(choices, key=self._crowd)
        entry = _Entry(selector, name, values)
        drawers = self._filed.setdefault(name, {})
        for value in values:
            drawers.setdefault(value, _Drawer()).put(entry)
        return entry

    def _crowd(self, choice: tuple[str, tuple[Constant, ...]]) -> tuple[bool, int]:
        """How badly a choice narrows down: headers are often the same for all messages, and the more
        selectors are already filed under a value, the more likely it is a common one."""
        name, values = choice
        drawers = self._filed.get(name, {})
        return name in HEADER_NAMES, sum(1 + len(drawers.get(value, ())) for value in values)

    def _unfile(self, entry: _Entry[K]) -> None:
        for name in entry.selector.names:
            self._names[name] -= 1
            if not self._names[name]:
                del self._names[name]
        if not entry.values:
            del self._others[entry]
            return
        drawers = self._filed[entry.name]
        for value in entry.values:
            drawers[value].take(entry)
            if not len(drawers[value]):
                del drawers[value]
        if not drawers:
            del self._filed[entry.name]


def _opened(columns: Columns, name: str, drawers: _Drawers[K]) -> Iterable[tuple[_Drawer[K], Sequence[int]]]:
    """The drawers of the values that some messages have, each with these messages."""
    shared = columns.shared((name,))
    if shared is not None:
        drawer = drawers.get(shared[0][0])
        return [(drawer, range(columns.count))] if drawer is not None else []
    rows_by_value: dict[Any, list[int]] = {}
    (column,) = columns.columns((name,))
    try:
        for row, value in enumerate(column):
            if value in drawers:
                rows_by_value.setdefault(value, []).append(row)
    except TypeError:  # a list or a map where a property should be: it equals no constant
        rows_by_value = {}
        for row, value in enumerate(column):
            if isinstance(value, bool | int | float | str) and value in drawers:
                rows_by_value.setdefault(value, []).append(row)
    return [(drawers[value], rows) for value, rows in rows_by_value.items()]


def _demanded(term: Condition) -> tuple[str, tuple[Constant, ...]] | None:
    """The name that must have one of some values, or else the term cannot be true."""
    match term:
        case Comparison("=", Identifier(name), Literal(value)) | Comparison(
            "=", Literal(value), Identifier(name)
        ):
            return name, (value,)
        case Membership(Identifier(name), values):
            return name, tuple(dict.fromkeys(values))
        case Identifier(name):
            return name, (True,)
        case Either(terms):
            demands = [_demanded(each) for each in terms]
            names = dict.fromkeys(demand[0] if demand else None for demand in demands)
            if None in names or len(names) != 1:
                return None
            return demands[0][0], tuple(  # type: ignore[index]  # none is None: checked above
                dict.fromkeys(value for demand in demands if demand for value in demand[1])
            )
        case _:
            return None
