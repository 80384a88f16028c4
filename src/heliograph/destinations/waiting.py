"""What waits at one priority of one list, in order of arrival: the head in memory, a deep backlog on disk
only.

    taken ← [ loaded spans ] [ cold pages … ] ← appended

While there is room, everything stays loaded. Once the shared budget is used up, what arrives goes to the cold
end, and the journal's copy is the only one. Pages are loaded again as the head is taken, two ahead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Protocol

from heliograph.destinations.effects import AnyEffect, Release, ReleasePage
from heliograph.destinations.pages import Page, assemble, entries_of, in_order, pages_of, records_of
from heliograph.model.block import Block, Span
from heliograph.model.ids import ConsumerId
from heliograph.model.limits import PAGE_BYTES

Ranges = list[tuple[int, int]]
NO_NUMBER = 2**63  # behind every other
# What a loaded span costs in memory besides its bytes.
OVERHEAD_BYTES = 400


class Residence:
    """How many bytes of waiting messages are in memory, over all destinations of a node."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0


class Level(Protocol):
    """What waits at one priority of a list, however it is kept."""

    @property
    def messages(self) -> int: ...

    @property
    def keeps_loaded(self) -> bool: ...

    def take(self, limit: int, consumer: ConsumerId, effects: list[AnyEffect]) -> Span | None:
        """Up to `limit` messages for a consumer, or None while there is nothing in memory for it."""

    def put_back(self, spans: list[Span]) -> None: ...

    def put_back_cold(self, page: Page) -> None: ...

    def lay_out(self, spans: list[Span], pages: list[Page]) -> None:
        """Messages that were kept elsewhere take their places among all others."""

    def lay_out_anew(self) -> None:
        """Everything comes up in the order of numbers, whatever was let go before something else."""

    def settled(self, position: int, count: int, origin: int, effects: list[AnyEffect]) -> None: ...

    def page_to_load(self) -> Page | None: ...

    def loaded(self, page: Page, buffers: list[bytes]) -> None: ...

    def hot_spans(self) -> Iterator[Span]: ...

    def cold_pages(self) -> Iterator[Page]: ...

    def leave(self, effects: list[AnyEffect]) -> None: ...

    def purge(self, effects: list[AnyEffect]) -> None:
        """Let go of everything that waits, and go on."""


class Waiting:
    """A first-in-first-out run of messages."""

    __slots__ = ("_blocks", "_cold", "_hot", "_loading", "_residence", "_resident", "messages")

    def __init__(self, residence: Residence) -> None:
        self._hot: deque[Span] = deque()
        self._cold: deque[Page] = deque()
        self._loading: Page | None = None
        self._residence = residence
        self._resident = 0
        self._blocks: dict[int, int] = {}  # how many loaded spans each block has: its bytes are there once
        self.messages = 0

    @property
    def keeps_loaded(self) -> bool:
        """Whether the next message to arrive would stay in memory."""
        return not self._cold and (not self._hot or self._residence.used < self._residence.limit)

    @property
    def is_partly_cold(self) -> bool:
        return bool(self._cold)

    @property
    def is_all_cold(self) -> bool:
        return bool(self._cold) and not self._hot

    @property
    def head_number(self) -> int:
        """The number of the first message. There is one."""
        return number_of(self._hot[0]) if self._hot else self._cold[0].first

    @property
    def last_number(self) -> int:
        """The number of the last span or page, 0 if there is none."""
        if self._cold:
            return self._cold[-1].next - 1
        return number_of(self._hot[-1]) if self._hot else 0

    # ---- in

    def append(self, span: Span) -> None:
        block = span.block
        if self._cold and block.positions is not None:
            # Read for another purpose, and behind what is on disk: it waits there again.
            self.restore(_cold_pages_of(span))
            return
        count = span.stop - span.start
        self.messages += count
        if self.keeps_loaded or stays_loaded(block):
            self._hot.append(span)
            self._charge(block)
            return
        cold = self._cold
        if not cold or cold[-1].full or cold[-1] is self._loading or not cold[-1].suits(span):
            cold.append(Page(span.deliveries, span.origin))
        cold[-1].append(
            block.number + span.start,
            block.position,
            span.start,
            count,
            block.size,
            persistent=block.persistent,
        )

    def put_back(self, spans: list[Span]) -> None:
        """Return messages to where they came from. They never come after what is cold."""
        # All before them are laid out anew, and not searched by halves: pages that a unit let go are loaded
        # behind later messages, so what is here does not always stand in order.
        hot = self._hot
        spans.sort(key=number_of)
        front: list[Span] = []
        highest = number_of(spans[-1])
        while hot and number_of(hot[0]) < highest:
            front.append(hot.popleft())
        hot.extendleft(sorted(front + spans, key=number_of, reverse=True))
        for span in spans:
            self.messages += span.stop - span.start
            self._charge(span.block)

    def put_back_cold(self, page: Page) -> None:
        """Messages that are on disk only come before everything else that is."""
        if self._loading is not None and self._cold and self._cold[0] is self._loading:
            self._cold.insert(1, page)
        else:
            self._cold.appendleft(page)
        self.messages += page.messages

    def lay_out(self, spans: list[Span], pages: list[Page]) -> None:
        """Everything is in the order of numbers then. What is in memory behind something that is on disk goes there
        too, if it can."""
        loaded = sorted([*self._hot, *spans], key=number_of)
        cold = [*self._cold, *pages]
        self.clear()
        behind = min((page.oldest for page in cold), default=NO_NUMBER)
        for span in loaded:
            cut = min(max(span.start, behind - span.block.number), span.stop)
            if cut < span.stop and (span.block.position or span.block.positions is not None):
                cold += _cold_pages_of(span.part(cut, span.stop))
                span = span.part(span.start, cut)  # noqa: PLW2901 - what is left of it
            if span.start < span.stop:
                self._hot.append(span)
                self._charge(span.block)
                self.messages += span.stop - span.start
        self.restore(in_order(cold))

    def lay_out_anew(self) -> None:
        self.lay_out([], [])

    # ---- out

    def extract(self, ranges: Ranges) -> tuple[list[Span], list[Page]]:
        """Take out what has these numbers, given in order. The rest stays where it is."""
        hot, cold = list(self._hot), list(self._cold)
        self.clear()
        spans: list[Span] = []
        pages: list[Page] = []
        for span in hot:
            for part, is_chosen in cut_span(span, ranges):
                if is_chosen:
                    spans.append(part)
                else:
                    self._hot.append(part)
                    self._charge(part.block)
                    self.messages += part.stop - part.start
        for page in cold:
            chosen, rest = cut_page(page, ranges)
            pages += chosen
            self.restore(rest)
        return spans, pages

    def take(self, limit: int, _consumer: ConsumerId, _effects: list[AnyEffect]) -> Span | None:
        """Up to `limit` messages from the head, or None while the head is not in memory."""
        hot = self._hot
        if not hot:
            return None
        span = hot[0]
        count = span.stop - span.start
        if count <= limit:
            del hot[0]
            self._discharge(span.block)
        else:
            count = limit
            span.start += limit
            span = span.part(span.start - limit, span.start)
        self.messages -= count
        return span

    def settled(self, position: int, count: int, _origin: int, effects: list[AnyEffect]) -> None:
        """What a list alone holds, it alone lets go."""
        if position:
            effects.append(Release(position, count))

    # ---- pages

    def page_to_load(self) -> Page | None:
        """The page that should be read now, if any: one at a time, while less than two pages are ahead."""
        if self._loading is not None or not self._cold or self._resident >= 2 * PAGE_BYTES:
            return None
        self._loading = self._cold[0]
        return self._loading

    def loaded(self, page: Page, buffers: list[bytes]) -> None:
        """The page asked for is here."""
        if page is not self._loading:
            return  # the list was cleared, or sorted anew, meanwhile
        self._cold.remove(page)
        self._loading = None
        for span in assemble(page, buffers):
            self._hot.append(span)
            self._charge(span.block)

    def restore(self, pages: Iterable[Page]) -> None:
        """What recovery found to wait, all of it cold."""
        for page in pages:
            self._cold.append(page)
            self.messages += page.messages

    def _charge(self, block: Block) -> None:
        key = id(block)
        spans = self._blocks.get(key, 0)
        self._blocks[key] = spans + 1
        size = OVERHEAD_BYTES if spans else block.size + OVERHEAD_BYTES
        self._resident += size
        self._residence.used += size

    def _discharge(self, block: Block) -> None:
        key = id(block)
        spans = self._blocks[key] - 1
        size = OVERHEAD_BYTES
        if spans:
            self._blocks[key] = spans
        else:
            del self._blocks[key]
            size += block.size
        self._resident -= size
        self._residence.used -= size

    # ---- for those who look

    def hot_spans(self) -> Iterator[Span]:
        return iter(self._hot)

    def cold_pages(self) -> Iterator[Page]:
        return iter(self._cold)

    def leave(self, effects: list[AnyEffect]) -> None:
        """The list is gone, and all that waits in it."""
        for span in self._hot:
            for position, count in records_of(span):
                self.settled(position, count, span.origin, effects)
        effects.extend(ReleasePage(page) for page in self._cold)
        self.clear()

    def purge(self, effects: list[AnyEffect]) -> None:
        self.leave(effects)

    def clear(self) -> None:
        """Forget everything without letting go of it."""
        self._residence.used -= self._resident
        self._resident = 0
        self._blocks.clear()
        self.messages = 0
        self._hot.clear()
        self._cold.clear()
        self._loading = None


def stays_loaded(block: Block) -> bool:
    """Whether it is in memory alone, or was put together there from several records."""
    return not block.position or block.positions is not None


def number_of(span: Span) -> int:
    return span.block.number + span.start


def cut_span(span: Span, ranges: Ranges) -> Iterator[tuple[Span, bool]]:
    """The parts of a span that have numbers within ranges, given in order, and the others."""
    number, start = span.block.number, span.start
    for first, last in ranges:
        low = min(max(first - number, start), span.stop)
        high = min(max(last - number + 1, low), span.stop)
        if start < low < high:
            yield span.part(start, low), False
        if low < high:
            yield span.part(low, high), True
            start = high
    if start < span.stop:
        yield (span.part(start, span.stop) if start > span.start else span), False


def cut_page(page: Page, ranges: Ranges) -> tuple[list[Page], list[Page]]:
    """The same of a page: parts within ranges, and the others. A page that is on one side stays itself."""
    chosen: list[Page] = []
    rest: list[Page] = []
    oldest, newest = page.oldest, page.newest
    start = oldest
    for first, last in ranges:
        low, high = max(first, start), min(last, newest)
        if low <= high:
            if start < low:
                rest.append(page.between(start, low - 1))
            is_whole = (low, high) == (oldest, newest)
            chosen.append(page if is_whole else page.between(low, high))
            start = high + 1
    if start == oldest:
        return [], [page]
    if start <= newest:
        rest.append(page.between(start, newest))
    return [part for part in chosen if len(part)], [part for part in rest if len(part)]


def _cold_pages_of(span: Span) -> list[Page]:
    block = span.block
    return pages_of(entries_of(span), block.size // block.count, persistent=block.persistent)
