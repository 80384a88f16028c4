"""One ordered list of messages and the consumers that compete for it: a queue has one, a topic one per
subscription.

Consumers with credit take turns, a span at a time. A turn of the whole list is bounded, so that one busy
list never holds up the others (M4). What is handed out stays outstanding at its consumer until it is settled:
done, or returned to its old place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import repeat

from heliograph.bus.commands import Answered, Dispatched
from heliograph.destinations.effects import AnyEffect, Continue, Load, Multicast, Note, Release
from heliograph.destinations.outstanding import Outstanding
from heliograph.destinations.pages import Entry, Page, count_by_segment, entries_of
from heliograph.destinations.waiting import Residence, Waiting
from heliograph.journal.records import RecordKind
from heliograph.model.block import PRIORITIES, Block, Span, priority_runs
from heliograph.model.errors import ClientFault
from heliograph.model.ids import ConsumerId, LaneId, SessionId
from heliograph.model.limits import CONSUMER_WINDOW_BYTES, DISPATCH_SPANS_PER_TURN

UserOf = Callable[[LaneId], str]
Ranges = list[tuple[int, int]]


class Consumer:
    """One taker: how much more it wants, and what it has."""

    __slots__ = ("credit", "identity", "next_tag", "outstanding", "outstanding_bytes", "queued", "session")

    def __init__(self, identity: ConsumerId, session: SessionId, credit: int) -> None:
        self.identity = identity
        self.session = session
        self.credit = credit
        self.next_tag = 1
        self.outstanding = Outstanding()
        self.outstanding_bytes = 0
        self.queued = False

    @property
    def wants(self) -> bool:
        return self.credit > 0 and self.outstanding_bytes < CONSUMER_WINDOW_BYTES


class MessageList:
    """Waiting messages by priority, consumers in turn."""

    def __init__(self, number: int, *, residence: Residence, user_of: UserOf) -> None:
        self.number = number
        self._residence = residence
        self._user_of = user_of
        self._levels: dict[int, Waiting] = {}
        self._order: list[Waiting] = []  # highest priority first
        self._turn: deque[Consumer] = deque()
        self.consumers: dict[ConsumerId, Consumer] = {}
        self.in_flight = 0
        self.delivered = 0
        self.settled = 0

    @property
    def depth(self) -> int:
        """Messages that wait for a consumer."""
        return sum(level.messages for level in self._order)

    @property
    def keeps_loaded(self) -> bool:
        return all(level.keeps_loaded for level in self._order)

    # ---- what arrives

    def add(self, block: Block) -> None:
        """A block is there to be handed out."""
        if not block.flags & PRIORITIES:
            self._level(block.priority).append(Span(block, 0, block.count))
            return
        for priority, start, stop in priority_runs(block):
            self._level(priority).append(Span(block, start, stop))

    def _level(self, priority: int) -> Waiting:
        level = self._levels.get(priority)
        if level is None:
            level = self._levels[priority] = Waiting(self._residence)
            self._order = [self._levels[key] for key in sorted(self._levels, reverse=True)]
        return level

    # ---- consumers

    def attach(self, identity: ConsumerId, session: SessionId, credit: int) -> None:
        assert identity not in self.consumers, "consumer ids are issued once"
        consumer = self.consumers[identity] = Consumer(identity, session, credit)
        self._queue(consumer)

    def grant(self, identity: ConsumerId, count: int) -> None:
        consumer = self.consumers.get(identity)
        if consumer is not None:
            consumer.credit += count
            self._queue(consumer)

    def detach(self, identity: ConsumerId, effects: list[AnyEffect]) -> None:
        """A consumer leaves; what it had returns in order."""
        consumer = self.consumers.pop(identity, None)
        if consumer is None:
            return
        if consumer.queued:
            self._turn.remove(consumer)
        spans = consumer.outstanding.take_all()
        if spans:
            self._put_back(spans, effects, 0)

    def _queue(self, consumer: Consumer) -> None:
        if not consumer.queued and consumer.wants:
            consumer.queued = True
            self._turn.append(consumer)

    # ---- settling

    def settle(
        self,
        identity: ConsumerId,
        ranges: Ranges,
        effects: list[AnyEffect],
        *,
        returned: bool,
        replenish: bool,
        request: int,
    ) -> None:
        """Raises ClientFault for tags that are not outstanding; what came before them in the command
        holds."""
        consumer = self.consumers.get(identity)
        if consumer is None:
            return  # it left while this was under way; its messages have returned already
        spans: list[Span] = []
        try:
            for first, last in ranges:
                spans += consumer.outstanding.take(first, last)
        except ClientFault:
            request = 0  # whoever catches this answers
            raise
        finally:
            self._settled(consumer, spans, effects, returned=returned, replenish=replenish, request=request)

    def _settled(
        self,
        consumer: Consumer,
        spans: list[Span],
        effects: list[AnyEffect],
        *,
        returned: bool,
        replenish: bool,
        request: int,
    ) -> None:
        for span in spans:
            consumer.outstanding_bytes -= _share(span)
        if returned:
            self._put_back(spans, effects, request)
        else:
            self._finish(spans, effects, request)
        if replenish:
            consumer.credit += sum(span.stop - span.start for span in spans)
        self._queue(consumer)

    def _finish(self, spans: list[Span], effects: list[AnyEffect], request: int) -> None:
        """These are done: never again, and their bytes may go."""
        ranges: Ranges = []
        for span in spans:
            block = span.block
            count = span.stop - span.start
            self.in_flight -= count
            self.settled += count
            _release(span, effects)
            if block.persistent:
                _extend(ranges, block.number + span.start, count)
        _note(RecordKind.DONE, self.number, ranges, request, effects)

    def _put_back(self, spans: list[Span], effects: list[AnyEffect], request: int) -> None:
        ranges: Ranges = []
        by_level: dict[int, list[Span]] = {}
        for span in sorted(spans, key=_number):
            self.in_flight -= span.stop - span.start
            if span.block.persistent:
                _extend(ranges, _number(span), span.stop - span.start)
            again = Span(span.block, span.start, span.stop, span.deliveries + 1)
            by_level.setdefault(_priority(span), []).append(again)
        for priority, level_spans in by_level.items():
            self._level(priority).put_back(level_spans)
        _note(RecordKind.RETURNED, self.number, ranges, request, effects)

    # ---- handing out

    def dispatch(self, effects: list[AnyEffect]) -> None:
        """Give what waits to those who want it, for one turn."""
        turn = self._turn
        ranges: Ranges = []
        spans_left = DISPATCH_SPANS_PER_TURN
        while turn:
            level = self._next_level()
            if level is None:
                break
            consumer = turn[0]
            span = level.take(consumer.credit)
            if span is None:
                break  # its head is being read from the disk
            self._hand_out(consumer, span, effects)
            if span.block.persistent:
                _extend(ranges, _number(span), span.stop - span.start)
            turn.popleft()
            if consumer.wants:
                turn.append(consumer)
            else:
                consumer.queued = False
            spans_left -= 1
            if not spans_left:
                effects.append(Continue())
                break
        _note(RecordKind.DISPATCHED, self.number, ranges, 0, effects)
        if turn:
            self._read_ahead(effects)

    def _next_level(self) -> Waiting | None:
        for level in self._order:
            if level.messages:
                return level
        return None

    def _hand_out(self, consumer: Consumer, span: Span, effects: list[AnyEffect]) -> None:
        count = span.stop - span.start
        tag = consumer.next_tag
        consumer.next_tag = tag + count
        consumer.credit -= count
        consumer.outstanding.add(tag, span)
        consumer.outstanding_bytes += _share(span)
        self.in_flight += count
        self.delivered += count
        effects.append(Multicast(Dispatched(consumer.identity, tag, span, self._user_of(span.block.lane))))

    def _read_ahead(self, effects: list[AnyEffect]) -> None:
        for priority, level in self._levels.items():
            page = level.page_to_load()
            if page is not None:
                effects.append(Load(self.number, priority, page))

    def loaded(self, priority: int, buffers: list[bytes]) -> None:
        self._levels[priority].loaded(buffers)

    # ---- recovery, snapshots, moving

    def restore(self, priority: int, pages: list[Page]) -> None:
        self._level(priority).restore(pages)

    def waiting_pages(self) -> Iterator[tuple[int, Page]]:
        for priority, level in self._levels.items():
            for page in level.cold_pages():
                yield priority, page

    def loaded_entries(self) -> Iterator[tuple[int, Entry]]:
        """Waiting messages that are in memory and in the journal, by priority."""
        for priority, level in self._levels.items():
            for span in level.hot_spans():
                if span.block.persistent:
                    for entry in entries_of(span):
                        yield priority, entry

    def outstanding_entries(self) -> Iterator[tuple[int, Entry]]:
        for consumer in self.consumers.values():
            for span in consumer.outstanding.spans():
                if span.block.persistent:
                    for entry in entries_of(span):
                        yield _priority(span), entry

    def all_spans(self) -> Iterator[Span]:
        for level in self._order:
            yield from level.hot_spans()
        for consumer in self.consumers.values():
            yield from consumer.outstanding.spans()

    def drop(self, effects: list[AnyEffect]) -> None:
        """The list is gone with all that waits in it."""
        for span in self.all_spans():
            _release(span, effects)
        for _, page in self.waiting_pages():
            for position, count in page.per_segment().items():
                effects.append(Release(position, count))
        for level in self._order:
            level.clear()


def _share(span: Span) -> int:
    """About how many bytes of its block a span is. The shares of its parts add up to its own."""
    block = span.block
    return block.size * span.stop // block.count - block.size * span.start // block.count


def _release(span: Span, effects: list[AnyEffect]) -> None:
    """The journal need not hold these messages for this list any longer."""
    block = span.block
    if block.positions is not None:
        # They came from one segment, and compaction may have moved each on its own since.
        positions = block.positions[span.start : span.stop]
        for position, count in count_by_segment(positions, repeat(1, len(positions))).items():
            effects.append(Release(position, count))
    elif block.position:
        effects.append(Release(block.position, span.stop - span.start))


def _number(span: Span) -> int:
    return span.block.number + span.start


def _priority(span: Span) -> int:
    if not span.block.flags & PRIORITIES:
        return span.block.priority
    for priority, first, stop in priority_runs(span.block):
        if first <= span.start < stop:
            return priority
    raise AssertionError("a span lies inside its block")


def _extend(ranges: Ranges, first: int, count: int) -> None:
    """Add numbers first.. to inclusive ranges, joining neighbours."""
    if ranges and ranges[-1][1] + 1 == first:
        ranges[-1] = (ranges[-1][0], first + count - 1)
    else:
        ranges.append((first, first + count - 1))


def _note(kind: int, number: int, ranges: Ranges, request: int, effects: list[AnyEffect]) -> None:
    """Write it down, or, where nothing of it is on disk, answer at once."""
    if ranges:
        effects.append(Note(kind, number, ranges, request))
    elif request:
        effects.append(Multicast(Answered(request, {})))
