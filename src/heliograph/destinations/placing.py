"""At which priority of a list a message waits.

A queue goes by the message's own priority. A topic's subscriptions share what waits, so their lists cannot
tell a unit's messages apart that wait at several priorities: there, blocks with units all wait at the normal
one, in the order of arrival (U5).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from heliograph.model.block import PRIORITIES, UNITS, Block, Span, priority_runs
from heliograph.model.message import DEFAULT_PRIORITY

Run = tuple[int, int, int]
"""A priority, and the messages start..stop of a block that wait there."""


def runs_in_queue(block: Block) -> list[Run]:
    return priority_runs(block) if block.flags & PRIORITIES else [(block.priority, 0, block.count)]


def runs_in_topic(block: Block) -> list[Run]:
    return [(DEFAULT_PRIORITY, 0, block.count)] if block.flags & UNITS else runs_in_queue(block)


def place_in_queue(span: Span) -> int:
    if not span.block.flags & PRIORITIES:
        return span.block.priority
    for priority, first, stop in priority_runs(span.block):
        if first <= span.start < stop:
            return priority
    raise AssertionError("a span lies inside its block")


def place_in_topic(span: Span) -> int:
    return DEFAULT_PRIORITY if span.block.flags & UNITS else place_in_queue(span)


def cut(block: Block, runs: Iterable[Run], spans: list[tuple[int, int]]) -> Iterator[tuple[int, Span]]:
    """Some messages of a block, cut where the priority changes."""
    for start, stop in spans:
        for priority, first, last in runs:
            if first < stop and start < last:
                yield priority, Span(block, max(first, start), min(last, stop))
