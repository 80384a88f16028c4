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
        """Up to `limit` messages, and whether there may be more; some may have to be read from the disk first."""
        spans: list[Span] = []
        left, more = limit, False
        for priority, level in list(self.queue.messages.levels()):
            for span in self._take_from(level, left, effects):
                spans.append(span)
                left -= span.stop - span.start
            if left <= 0:
                return spans, True
            more = more or self._may_have_more(level)
            page = level.page_to_load()
            if page is not None:
                effects.append(Load(self.queue.messages.number, priority, page))
        if self.queue.messages.let_units_go_on():
            effects.append(Continue())
            more = True
        return spans, more

    def _take_from(self, level: Level, left: int, effects: list[AnyEffect]) -> Iterator[Span]:
        while left > 0 and level.messages:
            span = level.take(left, self._identity, effects)
            if span is None:
                return
            count = min(span.stop - span.start, self._until - number_of(span))
            if count < span.stop - span.start:
                level.put_back([span.part(span.start + max(count, 0), span.stop)])
                if count <= 0:
                    return
            yield span.part(span.start, span.start + count)
            left -= count

    def _may_have_more(self, level: Level) -> bool:
        if not level.messages:
            return False
        if isinstance(level, SelectiveLevel):
            return 0 < level.first_for(self._identity) < self._until
        assert isinstance(level, Waiting), "a queue has no other levels"
        return level.head_number < self._until

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
