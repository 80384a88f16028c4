"""Taking single messages out of a queue whose consumption is paused, to move or to delete them (U8).

A `Gathering` looks like one more consumer with a selector to the queue: what waits is sorted for it as for any
other, page by page, so that a deep backlog never has to be in memory. It takes what was there when it began,
in order, and nothing that is handed out, delayed or backing off.
"""

from __future__ import annotations

from collections.abc import Iterator

from heliograph.destinations.effects import AnyEffect, Continue, Load
from heliograph.destinations.queue import Queue
from heliograph.destinations.selective import SelectiveLevel
from heliograph.destinations.sorted_level import SortedLevel
from heliograph.destinations.waiting import Level, Waiting, number_of
from heliograph.model.block import Contents, Span, pack, pack_lone, slice_span, unpack
from heliograph.model.ids import ConsumerId
from heliograph.model.selector import Selector


class Gathering:
    """The messages of a queue that a selector selects."""

    def __init__(self, queue: Queue, identity: ConsumerId, selector: Selector | None) -> None:
        self.queue = queue
        self._identity = identity
        self._until = queue.intake.next_number  # what has this number, or a higher one, came later
        queue.begin_pulling(identity, selector)

    def end(self) -> None:
        self.queue.end_pulling(self._identity)

    def take(self, limit: int, effects: list[AnyEffect]) -> tuple[list[Span], bool]:
        """Up to `limit` messages in the order of their arrival, and whether there may be more; some may have to be
        read from the disk first."""
        messages = self.queue.messages
        spans: list[Span] = []
        left = limit
        if not messages.can_be_pulled_from(effects):
            return [], True
        while True:
            firsts = sorted(
                (first, priority)
                for priority, level in messages.levels()
                if 0 < (first := self._first_in(level)) < self._until
            )
            if not firsts or left <= 0:
                return spans, bool(firsts)
            # Not beyond what another priority has next: a unit's messages may wait at several.
            until = firsts[1][0] if len(firsts) > 1 else self._until
            span = self._take_from(firsts[0][1], min(left, until - firsts[0][0]), effects)
            if span is not None:
                spans.append(span)
                left -= span.stop - span.start
            elif self._first_in(messages.level(firsts[0][1])) == firsts[0][0]:
                return spans, True  # it is being read
            elif wants_another_turn(effects):
                return spans, True

    def _take_from(self, priority: int, limit: int, effects: list[AnyEffect]) -> Span | None:
        level = self.queue.messages.level(priority)
        if isinstance(level, SortedLevel):
            span = level.take_earliest(self._identity)
        else:
            span = level.take(limit, self._identity, effects)
        page = level.page_to_load() if span is None else None
        if page is not None:
            effects.append(Load(self.queue.messages.number, priority, page))
        if span is not None and number_of(span) >= self._until:  # what was not sorted yet is for others
            level.put_back([span])
            return None
        return span

    def _first_in(self, level: Level) -> int:
        if not level.messages:
            return 0
        if isinstance(level, SelectiveLevel | SortedLevel):
            return level.first_for(self._identity)
        assert isinstance(level, Waiting), "a queue has no other levels"
        return level.head_number

    def put_back(self, spans: list[Span]) -> None:
        """They could not be moved after all."""
        self.queue.messages.put_back(spans)


def wants_another_turn(effects: list[AnyEffect]) -> bool:
    """Whether there was more to sort than fits one turn."""
    return any(type(effect) is Continue for effect in effects)


def copies_of(span: Span) -> Iterator[bytes]:
    """Each message of a span as a block of its own, with the id and everything else that it had."""
    block = span.block
    if block.count == 1 and block.buffer is not None:
        yield block.buffer
        return
    contents = unpack(b"".join(slice_span(span)))
    for index in range(contents.count):
        yield _alone(contents, index)


def _alone(contents: Contents, index: int) -> bytes:
    timestamp = contents.timestamps[index] if contents.timestamps else contents.timestamp
    priority = contents.priorities[index] if contents.priorities else contents.priority
    head = contents.heads[index] if contents.heads else b""
    expiry = contents.expiries[index] if contents.expiries else contents.expiry
    due = contents.delivery_times[index] if contents.delivery_times else contents.delivery_time
    if contents.units is not None:  # only a column can say it
        return pack(
            [contents.bodies[index]],
            lane=contents.lane,
            first=contents.first + index,
            timestamp=timestamp,
            priority=priority,
            persistent=contents.persistent,
            kind=contents.kind,
            heads=[head] if head else None,
            expiry=expiry,
            delivery_time=due,
            units=[contents.units[index]],
        )
    return pack_lone(
        contents.bodies[index],
        lane=contents.lane,
        sequence=contents.first + index,
        timestamp=timestamp,
        priority=priority,
        persistent=contents.persistent,
        kind=contents.kind,
        head=head,
        expiry=expiry,
        delivery_time=due,
    )
