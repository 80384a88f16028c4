"""A queue whose consumers have selectors: what waits is sorted by who may take it (J7, docs/decisions/0003).

    sources ──looked at once, in order──▶ buckets, one for each set of consumers that may take a message

A message that nobody may take waits in the bucket of the empty set. When a consumer comes or goes, every
bucket becomes a source again and is sorted anew, a little each turn. A consumer takes from the buckets that
it is in, lowest number first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from heliograph.destinations.competing import Consumer
from heliograph.destinations.effects import AnyEffect, Continue
from heliograph.destinations.pages import Page
from heliograph.destinations.waiting import Ranges, Residence, Waiting, number_of, stays_loaded
from heliograph.model.block import Block, Span
from heliograph.model.ids import ConsumerId
from heliograph.model.limits import MAX_BUCKETS, MAX_CREDIT, SORT_MESSAGES_PER_TURN
from heliograph.model.selector import Columns, Selector, SelectorIndex

Key = tuple[ConsumerId, ...]


class Offers(Protocol):
    """Holds back what its unit of order does not allow to go."""

    def screen(self, span: Span) -> list[tuple[Span, Consumer | None]]:
        """What of a span may be offered now, and the only consumer that may have it, if there is one."""

    def unfit(self, span: Span) -> None:
        """The only consumer that may have it does not want it."""


class Takers:
    """The consumers of a queue and what each may take."""

    def __init__(self) -> None:
        self._everything: dict[ConsumerId, None] = {}
        self._index: SelectorIndex[ConsumerId] = SelectorIndex()
        self._last: tuple[Block, list[tuple[ConsumerId, list[int]]]] | None = None

    @property
    def any_selective(self) -> bool:
        return len(self._index) > 0

    def add(self, consumer: ConsumerId, selector: Selector | None) -> None:
        self._last = None
        if selector is None:
            self._everything[consumer] = None
        else:
            self._index.add(consumer, selector)

    def remove(self, consumer: ConsumerId) -> None:
        self._last = None
        if self._everything.pop(consumer, self) is self and consumer in self._index:
            self._index.remove(consumer)

    def sort(self, span: Span) -> Iterator[tuple[Key, Span]]:
        """A span cut into runs of messages that the same consumers may take."""
        matches = self._matches(span.block)
        keys: list[Key] = [tuple(self._everything)] * (span.stop - span.start)
        for consumer, indices in matches:
            for index in indices:
                if span.start <= index < span.stop:
                    keys[index - span.start] += (consumer,)
        begin = 0
        for index in range(1, len(keys) + 1):
            if index == len(keys) or keys[index] != keys[begin]:
                yield keys[begin], span.part(span.start + begin, span.start + index)
                begin = index

    def _matches(self, block: Block) -> list[tuple[ConsumerId, list[int]]]:
        """Spans of one block come one after the other: it is looked at once."""
        if self._last is None or self._last[0] is not block:
            self._last = (block, self._index.match(Columns(block)))
        return self._last[1]


class SelectiveLevel:
    """One priority of a queue with selectors, in the shape of `Waiting`."""

    def __init__(self, takers: Takers, residence: Residence, first: Waiting, offers: Offers) -> None:
        self._takers = takers
        self._residence = residence
        self._arrivals = first
        self._offers = offers
        self._returned = Waiting(residence)
        self._sources: list[Waiting] = []  # besides arrivals and what was returned
        self._buckets: dict[Key, Waiting] = {}
        # What cannot stand at the end of its bucket: it comes before something there, or it stays in memory
        # while the end of the bucket is on the disk. Nothing here is ever on the disk only.
        self._beside: dict[Key, Waiting] = {}

        self._needed: Waiting | None = None  # where the oldest message was when somebody last looked

    @property
    def messages(self) -> int:
        return sum(waiting.messages for waiting in self._all())

    @property
    def keeps_loaded(self) -> bool:
        return self._arrivals.keeps_loaded

    def _all(self) -> Iterator[Waiting]:
        yield self._arrivals
        yield self._returned
        yield from self._sources
        yield from self._buckets.values()
        yield from self._beside.values()

    def append(self, span: Span) -> None:
        self._arrivals.append(span)

    def takers_changed(self) -> None:
        """Everything may belong to others now."""
        self._sources = [waiting for waiting in self._sources if waiting.messages]
        for buckets in (self._buckets, self._beside):
            self._sources += [waiting for waiting in buckets.values() if waiting.messages]
        self._buckets, self._beside = {}, {}

    # ---- out

    def take(self, limit: int, consumer: ConsumerId, effects: list[AnyEffect]) -> Span | None:
        if not consumer:
            return self._take_oldest(limit, consumer, effects)
        budget = SORT_MESSAGES_PER_TURN
        while True:
            bucket = self._bucket_for(consumer)
            source = self._next_source()
            if source is None or (bucket is not None and bucket.head_number < source.head_number):
                return bucket.take(limit, consumer, effects) if bucket is not None else None
            if budget <= 0:
                effects.append(Continue())
                return None
            span = source.take(MAX_CREDIT, consumer, effects)
            if span is None:
                return None  # being read from the disk
            budget -= span.stop - span.start
            for offered, only in self._offers.screen(span):
                for key, part in self._takers.sort(offered):
                    if only is None:
                        self._put(key, part)
                    elif only.identity in key:
                        self._put((only.identity,), part)
                    else:
                        self._offers.unfit(part)

    def _take_oldest(self, limit: int, nobody: ConsumerId, effects: list[AnyEffect]) -> Span | None:
        """Whoever removes messages is no consumer: what arrived first, wherever it waits."""
        waiting = [each for each in self._all() if each.messages]
        self._needed = min(waiting, key=lambda each: each.head_number, default=None)
        return self._needed.take(limit, nobody, effects) if self._needed is not None else None

    def _put(self, key: Key, span: Span) -> None:
        bucket = self._buckets.get(key)
        if bucket is None:
            if len(self._buckets) >= MAX_BUCKETS:
                key = key[:1]  # too many sets to tell apart: the first that may, gets it
            bucket = self._buckets.setdefault(key, Waiting(self._residence))
        if bucket.messages and number_of(span) < bucket.last_number:
            self._beside.setdefault(key, Waiting(self._residence)).put_back([span])
        elif bucket.is_partly_cold and stays_loaded(span.block):
            self._beside.setdefault(key, Waiting(self._residence)).append(span)
        else:
            bucket.append(span)

    def _bucket_for(self, consumer: ConsumerId) -> Waiting | None:
        mine = [
            bucket
            for buckets in (self._buckets, self._beside)
            for key, bucket in buckets.items()
            if bucket.messages and consumer in key
        ]
        return min(mine, key=lambda bucket: bucket.head_number, default=None)

    def first_for(self, consumer: ConsumerId) -> int:
        """The lowest number that may be for a consumer, of what is sorted and what is not; 0: there is none."""
        found = [each for each in (self._bucket_for(consumer), self._next_source()) if each is not None]
        return min((each.head_number for each in found), default=0)

    def _next_source(self) -> Waiting | None:
        waiting = [source for source in (self._arrivals, self._returned, *self._sources) if source.messages]
        return min(waiting, key=lambda source: source.head_number, default=None)

    # ---- back

    def put_back(self, spans: list[Span]) -> None:
        self._returned.put_back(spans)

    def put_back_cold(self, page: Page) -> None:
        self._returned.put_back_cold(page)

    def lay_out(self, spans: list[Span], pages: list[Page]) -> None:
        """One more source: what is lowest of all is looked at first."""
        source = Waiting(self._residence)
        source.lay_out(spans, pages)
        self._sources.append(source)

    def lay_out_anew(self) -> None:
        self.takers_changed()
        for waiting in self._all():
            waiting.lay_out_anew()

    def extract(self, ranges: Ranges) -> tuple[list[Span], list[Page]]:
        found = [waiting.extract(ranges) for waiting in self._all()]
        return [span for spans, _ in found for span in spans], [page for _, pages in found for page in pages]

    def settled(self, position: int, count: int, origin: int, effects: list[AnyEffect]) -> None:
        self._arrivals.settled(position, count, origin, effects)

    # ---- pages

    def page_to_load(self) -> Page | None:
        """What is sorted, or can be taken, or must be looked at because it is the oldest. What nobody may
        take stays where it is."""
        needed = [self._needed] if self._needed is not None and self._needed.is_all_cold else []
        for waiting in (*needed, self._arrivals, self._returned, *self._sources):
            page = waiting.page_to_load()
            if page is not None:
                return page
        for key, bucket in self._buckets.items():
            page = bucket.page_to_load() if key else None
            if page is not None:
                return page
        return None

    def loaded(self, page: Page, buffers: list[bytes]) -> None:
        for waiting in self._all():
            waiting.loaded(page, buffers)

    # ---- for those who look

    def hot_spans(self) -> Iterator[Span]:
        spans = [span for waiting in self._all() for span in waiting.hot_spans()]
        return iter(sorted(spans, key=number_of))

    def cold_pages(self) -> Iterator[Page]:
        for waiting in self._all():
            yield from waiting.cold_pages()

    def leave(self, effects: list[AnyEffect]) -> None:
        for waiting in self._all():
            waiting.leave(effects)

    def purge(self, effects: list[AnyEffect]) -> None:
        self.leave(effects)

    def clear(self) -> None:
        """Forget everything without letting go of it."""
        for waiting in self._all():
            waiting.clear()
