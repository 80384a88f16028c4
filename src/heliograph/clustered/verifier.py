"""The message verifier: is this message mine? (H1)

    verifier = MessageVerifier(["unit_of_order"], even(["ada", "bob", "cyd"]).of("bob"))
    if verifier.is_mine(message): ...

Each member of a clustered consumer gets every message, computes its value from the chosen fields, and acts on
it only if the value is in its ranges. Pure: a message is anything with the fields as attributes, of whatever
middleware.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from operator import attrgetter
from typing import Any, Final

from heliograph.clustered.hashing import (
    MASK,
    MIX,
    VALUES,
    Field,
    field_sum,
    folded,
    in_range,
    in_ranges,
    value_of_text,
)
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
_REPEATED: Final = ("destination", "mode", "type", "priority")
"""What many messages have alike."""
_NO_TEXT: Final = ("mode", "priority")
_REMEMBERED: Final = 1_024


class MessageVerifier:
    """Fields, a hash and ranges. `value` and `is_mine` are all that a member asks of it."""

    def __init__(self, fields: Sequence[str] = ("id",), ranges: Ranges = EVERYTHING) -> None:
        """`fields`: any of `FIELDS`, or `property:NAME`. A message without a unit of order counts by its id."""
        if not fields:
            raise ClientFault("a message verifier needs a field to hash", code="verifier-fields")
        self.fields = tuple(fields)
        self.ranges = ranges
        self.value: Callable[[Any], int] = _valuer(self.fields)
        self.is_mine: Callable[[Any], bool] = _asker(self.fields, ranges.bounds)

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


def _asker(fields: Sequence[str], bounds: list[int]) -> Callable[[Any], bool]:
    """Whether a message's value is in the ranges: a closure, because it is asked for every message."""
    if len(fields) == 1 and len(bounds) == 2:
        return in_range(_getter(fields[0]), *bounds)
    return in_ranges(_before(fields[:-1]), _getter(fields[-1]), bounds)


def _valuer(fields: Sequence[str]) -> Callable[[Any], int]:
    before, get = _before(fields[:-1]), _getter(fields[-1])

    def value(message: Any) -> int:
        field = get(message)
        if type(field) is str:
            return value_of_text(field, before(message))
        return folded((field,), before(message)) >> 32

    return value


def _before(fields: Sequence[str]) -> Callable[[Any], int]:
    """What the fields in front of the last one come to. They have few values, as a rule, so that what these come to
    is remembered: of those of `_REPEATED` together, as far as they are the first; of others one by one."""
    if not fields:
        return lambda _message: 0
    together = _that_go_together(fields)
    rest = [_getter(field) for field in fields[len(together) :]]
    first = _together(together) if together else _remembering(rest.pop(0))
    return _folding(first, rest) if rest else first


def _that_go_together(fields: Sequence[str]) -> list[str]:
    """Not more than one of them is no text."""
    together: list[str] = []
    for field in takewhile(_REPEATED.__contains__, fields):
        if field in _NO_TEXT and any(each in _NO_TEXT for each in together):
            break
        together.append(field)
    return together


def _together(names: list[str]) -> Callable[[Any], int]:
    if len(names) == 1:
        return _remembering(_getter(names[0]))
    known: dict[tuple[Field, ...], tuple[int, int, type | None]] = {}
    nothing = (0, 0, None)
    get = attrgetter(*(FIELDS[name] for name in names))

    def remembered(fields: tuple[Field, ...]) -> int:
        number = folded(fields)
        others = [at for at, field in enumerate(fields) if type(field) is not str]
        # 0.0 and -0.0 are one key of one kind, and two values.
        if len(known) < _REMEMBERED and len(others) <= 1 and not any(isinstance(f, float) for f in fields):
            at = others[0] if others else 0
            known[fields] = number, at, type(fields[at])
        return number

    def before(message: Any) -> int:
        fields = get(message)
        number, at, kind = known.get(fields, nothing)
        # 1, 1.0 and True are one key, and three values. Nothing else is equal to a text.
        return number if type(fields[at]) is kind else remembered(fields)

    return before


def _remembering(get: Callable[[Any], Field]) -> Callable[[Any], int]:
    """The first field alone."""
    by_kind = _nothing_known()

    def before(message: Any) -> int:
        field = get(message)
        known = by_kind.get(type(field))
        if known is None:
            return folded((field,))
        number = known.get(field)
        if number is None:
            number = folded((field,))
            if len(known) < _REMEMBERED:
                known[field] = number
        return number

    return before


def _folding(first: Callable[[Any], int], fields: list[Callable[[Any], Field]]) -> Callable[[Any], int]:
    """Further fields behind the first, each with what is remembered for it."""
    further = [(get, _nothing_known()) for get in fields]

    def before(message: Any) -> int:
        number = first(message)
        for get, by_kind in further:
            field = get(message)
            known = by_kind.get(type(field))
            if known is None:
                number = folded((field,), number)
                continue
            total = known.get(field)
            if total is None:
                total = field_sum(field) & MASK
                if len(known) < _REMEMBERED:
                    known[field] = total
            number ^= total
            number = (number ^ number >> 32) * MIX & MASK
        return number

    return before


def _nothing_known() -> dict[type, dict[Field, int]]:
    """What is remembered of one field. 1 and True are one key, so each kind has its own; numbers with a
    fraction have none, because 0.0 and -0.0 are one."""
    return {str: {}, int: {}, bool: {}, type(None): {}}


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
