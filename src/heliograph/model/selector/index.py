"""Thousands of selectors over one block: only those that can match are tried, each distinct one once.

A selector that demands `type = 'N'`, alone or beside other terms, can only match messages whose `type` is
'N'. It is filed under that name and value, and tried on just these messages. One that demands nothing of the
kind is tried on every message. What is filed only narrows down; the selector itself decides.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from heliograph.model.selector.columns import HEADER_NAMES, Columns
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

    __slots__ = ("keys", "name", "names", "pick", "selector", "values")

    def __init__(self, selector: Selector, name: str, values: tuple[Constant, ...]) -> None:
        self.selector = selector
        self.names = selector.names
        self.pick = selector.pick
        self.keys: dict[K, None] = {}
        self.name = name
        self.values = values


# Dictionaries stand for ordered sets here: engines answer in the same order on every replica.
_Entries = dict[_Entry[K], None]


class SelectorIndex(Generic[K]):
    """Keys, such as subscriptions, each with its selector."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry[K]] = {}
        self._by_key: dict[K, _Entry[K]] = {}
        self._filed: dict[str, dict[Constant, _Entries[K]]] = {}
        self._others: _Entries[K] = {}
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
        for entry in self._others:
            found = entry.selector.select(columns)
            if found:
                matched += [(key, found) for key in entry.keys]
        scattered: dict[_Entry[K], list[int]] = {}
        columns_of: dict[tuple[str, ...], list[list[Any]]] = {}
        for name, by_value in self._filed.items():
            for entries, rows in _candidates(columns, name, by_value):
                for entry in entries:
                    if len(entry.values) > 1:
                        scattered.setdefault(entry, []).extend(rows)
                        continue
                    wanted = columns_of.get(entry.names)
                    if wanted is None:
                        wanted = columns_of[entry.names] = columns.columns(entry.names)
                    found = entry.pick(rows, *wanted)
                    if found:
                        for key in entry.keys:
                            matched.append((key, found))
        for entry, scattered_rows in scattered.items():
            found = entry.selector.select(columns, sorted(scattered_rows))
            if found:
                matched += [(key, found) for key in entry.keys]
        return matched

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
        by_value = self._filed.setdefault(name, {})
        for value in values:
            by_value.setdefault(value, {})[entry] = None
        return entry

    def _crowd(self, choice: tuple[str, tuple[Constant, ...]]) -> tuple[bool, int]:
        """How badly a choice narrows down: headers are often the same for all messages, and the more
        selectors are already filed under a value, the more likely it is a common one."""
        name, values = choice
        by_value = self._filed.get(name, {})
        return name in HEADER_NAMES, sum(1 + len(by_value.get(value, ())) for value in values)

    def _unfile(self, entry: _Entry[K]) -> None:
        for name in entry.selector.names:
            self._names[name] -= 1
            if not self._names[name]:
                del self._names[name]
        if not entry.values:
            del self._others[entry]
            return
        by_value = self._filed[entry.name]
        for value in entry.values:
            del by_value[value][entry]
            if not by_value[value]:
                del by_value[value]
        if not by_value:
            del self._filed[entry.name]


def _candidates(
    columns: Columns, name: str, by_value: dict[Constant, _Entries[K]]
) -> Iterable[tuple[_Entries[K], Sequence[int]]]:
    """The messages that have a value which somebody demands, with those who do."""
    shared = columns.shared((name,))
    if shared is not None:
        entries = by_value.get(shared[0][0])
        return [(entries, range(columns.count))] if entries else []
    rows_by_value: dict[Any, list[int]] = {}
    (column,) = columns.columns((name,))
    try:
        for row, value in enumerate(column):
            if value in by_value:
                rows_by_value.setdefault(value, []).append(row)
    except TypeError:  # a list or a map where a property should be: it equals no constant
        rows_by_value = {}
        for row, value in enumerate(column):
            if isinstance(value, bool | int | float | str) and value in by_value:
                rows_by_value.setdefault(value, []).append(row)
    return [(by_value[value], rows) for value, rows in rows_by_value.items()]


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
