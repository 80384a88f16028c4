"""Which unit a message belongs to: as its producer said, or as the destination's policy rules (U4).

A rule gives units to messages of clients that know nothing of them. The producer's word goes first.
"""

from __future__ import annotations

from collections.abc import Sequence

from heliograph.model.block import UNITS, Block, Span
from heliograph.model.ids import session_of, text_of
from heliograph.model.policy import BY_PROPERTY, BY_SESSION
from heliograph.model.selector import Columns
from heliograph.model.units import NO_UNIT, unit_for_value, unit_number, units_of


class UnitRule:
    """A policy's `unit_from`."""

    def __init__(self, unit_from: str) -> None:
        self._property = unit_from.removeprefix(BY_PROPERTY) if unit_from != BY_SESSION else ""
        self._last: tuple[Block, list[int]] | None = None

    def units(self, span: Span) -> Sequence[int]:
        if span.block.flags & UNITS:
            return [own or ruled for own, ruled in zip(units_of(span), self._ruled(span), strict=True)]
        return self._ruled(span)

    def _ruled(self, span: Span) -> Sequence[int]:
        block = span.block
        if not self._property:
            return (unit_number(text_of(session_of(block.lane))),) * (span.stop - span.start)
        if self._last is None or self._last[0] is not block:
            (values,) = Columns(block).columns((self._property,))
            self._last = (block, [_number_of(value) for value in values])
        return self._last[1][span.start : span.stop]


def _number_of(value: object) -> int:
    """A property that is missing makes no unit."""
    name = unit_for_value(value)
    return unit_number(name) if name else NO_UNIT


def unit_rule(unit_from: str) -> UnitRule | None:
    return UnitRule(unit_from) if unit_from else None
