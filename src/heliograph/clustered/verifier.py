"""The message verifier: is this message mine? (H1)

    verifier = MessageVerifier(["unit_of_order"], even(["ada", "bob", "cyd"]).of("bob"))
    if verifier.is_mine(message): ...

Each member of a clustered consumer gets every message, computes its value from the chosen fields, and acts on
it only if the value is in its ranges. Pure: a message is anything with the fields as attributes, of whatever
middleware.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

from heliograph.clustered.hashing import VALUES, Field, in_range, value_of, value_of_text
from heliograph.clustered.ranges import EVERYTHING, Assignment, Ranges, Weighted
from heliograph.model.errors import ClientFault

# What a person writes, and the attribute that has it.
FIELDS: Final = {
    "id": "id",
    "destination": "destination",
    "mode": "persistent",
    "time": "timestamp",
    "type": "type",
    "expiration": "expiration",
    "priority": "priority",
    "unit_of_order": "unit_of_order",
    "correlation_id": "correlation_id",
}
PROPERTY: Final = "property:"


class MessageVerifier:
    """Fields, a hash and ranges. `value` and `is_mine` are all that a member asks of it."""

    def __init__(self, fields: Sequence[str] = ("id",), ranges: Ranges = EVERYTHING) -> None:
        """`fields`: any of `FIELDS`, or `property:NAME`. A message without a unit of order counts by its id."""
        if not fields:
            raise ClientFault("a message verifier needs a field to hash", code="verifier-fields")
        self.fields = tuple(fields)
        self.ranges = ranges
        self.value: Callable[[Any], int] = _valuer(self.fields)
        self.is_mine: Callable[[Any], bool] = _asker(self.fields, self.value, ranges.bounds)

    def given(self, ranges: Ranges) -> MessageVerifier:
        """The same question with other ranges."""
        return MessageVerifier(self.fields, ranges)


def even(members: Iterable[str]) -> Assignment:
    """The space cut evenly: what a cluster with these members begins with."""
    return weighted(dict.fromkeys(members, 1))


def weighted(weights: Mapping[str, int]) -> Assignment:
    """The space cut by weight."""
    return Weighted().assign(weights, Assignment())


def slot(value: int, slots: int) -> int:
    """Which of so many even slots a value is in: for those who split by number, as a Spark query does."""
    return value * slots // VALUES


def _asker(fields: Sequence[str], value: Callable[[Any], int], bounds: list[int]) -> Callable[[Any], bool]:
    """Whether a message's value is in the ranges: a closure, because it is asked for every message."""
    if len(bounds) == 2:
        first, stop = bounds
        if len(fields) == 1:
            return in_range(_getter(fields[0]), first, stop)
        return lambda message: first <= value(message) < stop
    return lambda message: bisect_right(bounds, value(message)) & 1 == 1


def _valuer(fields: Sequence[str]) -> Callable[[Any], int]:
    if len(fields) == 1:
        return _single(_getter(fields[0]))
    getters = [_getter(field) for field in fields]
    return lambda message: value_of([get(message) for get in getters])


def _single(get: Callable[[Any], Field]) -> Callable[[Any], int]:
    def value(message: Any) -> int:
        field = get(message)
        return value_of_text(field) if type(field) is str else value_of((field,))

    return value


def _getter(field: str) -> Callable[[Any], Any]:
    if field.startswith(PROPERTY) and len(field) > len(PROPERTY):
        name = field.removeprefix(PROPERTY)
        return lambda message: message.properties.get(name)
    if field == "unit_of_order":
        # A message outside every unit may go to anybody: by its id they are spread.
        return lambda message: message.unit_of_order or message.id
    if field not in FIELDS:
        known = ", ".join(FIELDS)
        raise ClientFault(
            f"no field {field[:60]!r}; there are {known} and property:NAME", code="verifier-fields"
        )
    return attrgetter(FIELDS[field])
