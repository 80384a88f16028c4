"""What waits in a queue with sort keys (U3): in the order of the keys, and of arrival where they are equal.

Everything that waits is in memory, since any of it may be next; that is the price of sort keys, and the marks
at which producers have to wait are what bounds it. What was set aside on disk is read as soon as it may go.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from sortedcontainers import SortedList

from heliograph.destinations.competing import Consumer
from heliograph.destinations.effects import AnyEffect, Release, ReleasePage
from heliograph.destinations.pages import Page, assemble, records_of
from heliograph.destinations.selective import Takers
from heliograph.destinations.waiting import OVERHEAD_BYTES, Ranges, Residence, cut_page, number_of
from heliograph.model.block import Block, Span
from heliograph.model.ids import ConsumerId
from heliograph.model.sort_keys import Key, SortKey, keys_of

OwnerOf = Callable[[Span], Consumer | None]
"""The only consumer that may have a message, because it has something of its unit."""


class SortedLevel:
    """All that waits in a queue, in the shape of `Waiting`."""

    keeps_loaded = True

    def __init__(
        self, by: tuple[SortKey, ...], takers: Takers, residence: Residence, owner_of: OwnerOf
    ) -> None:
        self._by = by
        self._owner_of = owner_of
        self._takers = takers
        self._residence = residence
        self._waiting: SortedList[tuple[Key, int, Span]] = SortedList()  # a message, by its key and number
        self._cold: deque[Page] = deque()  # keys are not known before they are read
        self._loading: Page | None = None
        self._last: tuple[Block, list[Key]] | None = None
        self._cold_messages = 0

    @property
    def messages(self) -> int:
        return len(self._waiting) + self._cold_messages

    # ---- in

    def append(self, span: Span) -> None:
        keys = self._keys(span.block)
        number = span.block.number
        for index in range(span.start, span.stop):
            self._waiting.add((keys[index], number + index, span.part(index, index + 1)))
        self._residence.used += (OVERHEAD_BYTES + _size_each(span)) * (span.stop - span.start)

    def _keys(self, block: Block) -> list[Key]:
        """Spans of one block come one after the other: it is looked at once."""
        if self._last is None or self._last[0] is not block:
            self._last = (block, keys_of(block, self._by))
        return self._last[1]

    def put_back(self, spans: list[Span]) -> None:
        for span in spans:
            self.append(span)

    def put_back_cold(self, page: Page) -> None:
        self._cold.append(page)
        self._cold_messages += page.messages

    def lay_out(self, spans: list[Span], pages: list[Page]) -> None:
        self.put_back(spans)
        for page in pages:
            self.put_back_cold(page)

    def lay_out_anew(self) -> None:
        """It is looked through in any case."""

    # ---- out

    def extract(self, ranges: Ranges) -> tuple[list[Span], list[Page]]:
        """Take out what has these numbers, given in order."""
        pages: list[Page] = []
        cold, self._cold = self._cold, deque()
        self._cold_messages = 0
        self._loading = None
        for page in cold:
            chosen, rest = cut_page(page, ranges)
            pages += chosen
            for part in rest:
                self.put_back_cold(part)
        spans = self.take_out(lambda span: any(low <= number_of(span) <= high for low, high in ranges))
        return spans, pages

    def take(self, limit: int, consumer: ConsumerId, _effects: list[AnyEffect]) -> Span | None:
        """The first messages that a consumer may have, as far as they stand side by side in one block."""
        found: Span | None = None
        first = stop = 0
        for place, (_, _, span) in enumerate(self._waiting):
            if found is None:
                if consumer and not self._may_take(consumer, span):
                    continue
                found, first = span.part(span.start, span.stop), place
            elif not _follows(found, span) or (consumer and not self._may_take(consumer, span)):
                break
            else:
                found.stop += 1
            stop = place + 1
            if stop - first == limit:
                break
        if found is not None:
            del self._waiting[first:stop]
            self._residence.used -= (OVERHEAD_BYTES + _size_each(found)) * (stop - first)
        return found

    def take_out(self, chosen: Callable[[Span], bool]) -> list[Span]:
        """Take out all messages that are chosen, in the order of their arrival."""
        taken = [item for item in self._waiting if chosen(item[2])]
        for item in taken:
            self._waiting.remove(item)
            self._residence.used -= OVERHEAD_BYTES + _size_each(item[2])
        return sorted((span for _, _, span in taken), key=number_of)

    def _may_take(self, consumer: ConsumerId, span: Span) -> bool:
        """Whether the message is of no unit that another has something of, and the selector says yes."""
        owner = self._owner_of(span)
        if owner is not None and owner.identity != consumer:
            return False
        if not self._takers.any_selective:
            return True
        return any(consumer in takers for takers, _ in self._takers.sort(span))

    def take_earliest(self, consumer: ConsumerId) -> Span | None:
        """Of what a consumer may have the one that arrived first, whatever its key; None while some must be read."""
        if self._cold:
            return None
        items = [item for item in self._waiting if self._may_take(consumer, item[2])]
        if not items:
            return None
        found = min(items, key=lambda item: item[1])
        self._waiting.remove(found)
        span: Span = found[2]
        self._residence.used -= OVERHEAD_BYTES + _size_each(span)
        return span

    def first_for(self, consumer: ConsumerId) -> int:
        """The lowest number that may be for a consumer, of what was read and what was not; 0: there is none."""
        numbers = [number for _, number, span in self._waiting if self._may_take(consumer, span)]
        return min([*numbers, *(page.first for page in self._cold)], default=0)

    def settled(self, position: int, count: int, _origin: int, effects: list[AnyEffect]) -> None:
        if position:
            effects.append(Release(position, count))

    # ---- pages

    def page_to_load(self) -> Page | None:
        if self._loading is not None or not self._cold:
            return None
        self._loading = self._cold[0]
        return self._loading

    def loaded(self, page: Page, buffers: list[bytes]) -> None:
        if page is not self._loading:
            return  # the list was cleared meanwhile
        self._cold.popleft()
        self._loading = None
        self._cold_messages -= page.messages
        for span in assemble(page, buffers):
            self.append(span)

    # ---- for those who look

    def hot_spans(self) -> Iterator[Span]:
        return iter(sorted((span for _, _, span in self._waiting), key=number_of))

    def cold_pages(self) -> Iterator[Page]:
        return iter(self._cold)

    def leave(self, effects: list[AnyEffect]) -> None:
        for _, _, span in self._waiting:
            for position, count in records_of(span):
                self.settled(position, count, span.origin, effects)
        effects.extend(ReleasePage(page) for page in self._cold)
        self.clear()

    def purge(self, effects: list[AnyEffect]) -> None:
        self.leave(effects)

    def clear(self) -> None:
        """Forget everything without letting go of it."""
        for _, _, span in self._waiting:
            self._residence.used -= OVERHEAD_BYTES + _size_each(span)
        self._waiting.clear()
        self._cold.clear()
        self._cold_messages = 0
        self._loading = None


def _size_each(span: Span) -> int:
    return span.block.size // span.block.count


def _follows(one: Span, other: Span) -> bool:
    return (
        one.block is other.block
        and one.stop == other.start
        and one.deliveries == other.deliveries
        and one.origin == other.origin
    )
