"""A walk over everything that waits in a list, in the order of arrival over all its priorities.

Needed once when units of order and several priorities meet: a message of high priority must not come up
before an earlier one of its unit that waits at a lower one, so from then on the list has to know which units
wait where. What is on disk is read page by page; until all is seen, nothing is handed out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from heliograph.destinations.pages import Page, assemble
from heliograph.destinations.selective import SelectiveLevel
from heliograph.destinations.sorted_level import SortedLevel
from heliograph.destinations.waiting import Ranges, Waiting, cut_page, cut_span, number_of
from heliograph.model.block import Span

Item = tuple[int, Span | Page]
"""A priority, and what waits there."""


class Survey:
    """What was taken out of the levels and has not been looked at."""

    def __init__(self, levels: Sequence[tuple[int, Waiting | SelectiveLevel | SortedLevel]]) -> None:
        items: list[Item] = []
        for priority, level in levels:
            items += [(priority, span) for span in level.hot_spans()]
            items += [(priority, page) for page in level.cold_pages()]
            level.clear()
        self._items: deque[Item] = deque(sorted(items, key=_first))
        self._loading: Item | None = None
        self.messages = sum(_count(item) for item in items)

    def restart(self, levels: Sequence[tuple[int, Waiting | SelectiveLevel | SortedLevel]]) -> None:
        """Look at everything once more, with what was not looked at yet."""
        again = Survey(levels)
        items = [*self._items, *again._items]
        if self._loading is not None:
            items.append(self._loading)
            self._loading = None
        self._items = deque(sorted(items, key=_first))
        self.messages += again.messages

    def add(self, priority: int, page: Page) -> None:
        """What recovery found to wait."""
        self._put_in_order((priority, page))
        self.messages += page.messages

    def extract(self, ranges: Ranges) -> tuple[list[tuple[int, Span]], list[tuple[int, Page]]]:
        """Take out what has these numbers, given in order."""
        items = [*self._items, *([self._loading] if self._loading is not None else [])]
        spans: list[tuple[int, Span]] = []
        pages: list[tuple[int, Page]] = []
        rest: list[Item] = []
        for priority, what in items:
            if isinstance(what, Page):
                chosen, others = cut_page(what, ranges)
                pages += [(priority, page) for page in chosen]
                rest += [(priority, page) for page in others]
            else:
                for part, is_chosen in cut_span(what, ranges):
                    (spans if is_chosen else rest).append((priority, part))
        self._loading = None
        self._items = deque(sorted(rest, key=_first))
        self.messages = sum(_count(item) for item in rest)
        return spans, pages

    def include(self, priority: int, items: Iterable[Span | Page]) -> None:
        """More that is to be looked at in its place."""
        more: list[Item] = [(priority, item) for item in items]
        self.messages += sum(_count(item) for item in more)
        if self._loading is not None:  # it is read again when it is its turn: something may come before it
            more.append(self._loading)
            self._loading = None
        self._items = deque(sorted([*self._items, *more], key=_first))

    def append(self, priority: int, span: Span) -> None:
        """A message arrives meanwhile, behind all others; but for those that needed no disk, and overtook it."""
        if self._items and number_of(span) < _first(self._items[-1]):
            self._put_in_order((priority, span))
        else:
            self._items.append((priority, span))
        self.messages += span.stop - span.start

    def insert(self, priority: int, span: Span) -> None:
        """A message that was taken out just before the others takes its place among them."""
        self._put_in_order((priority, span))
        self.messages += span.stop - span.start

    def spans(self) -> Iterator[Span]:
        """Take out, in order, what can be looked at without reading the disk."""
        while self._loading is None and self._items:
            what = self._items[0][1]
            if isinstance(what, Page):
                return
            self._items.popleft()
            stop = self._stop_of(what.block.number + what.stop) - what.block.number
            if stop < what.stop:
                self._put_in_order((0, what.part(stop, what.stop)))
                what = what.part(what.start, stop)
            self.messages -= what.stop - what.start
            yield what

    def page_to_load(self) -> tuple[int, Page] | None:
        """The page that must be read now, with its priority."""
        if self._loading is not None or not self._items:
            return None
        priority, page = self._items.popleft()
        assert isinstance(page, Page), "spans were taken before"
        oldest, newest = page.oldest, page.newest
        stop = self._stop_of(newest + 1)
        if stop <= newest:
            self._put_in_order((priority, page.between(stop, newest)))
            page = page.between(oldest, stop - 1)
        self._loading = (priority, page)
        return priority, page

    def loaded(self, page: Page, buffers: list[bytes]) -> bool:
        """Whether this was the page asked for."""
        if self._loading is None or self._loading[1] is not page:
            return False
        priority, _ = self._loading
        self._loading = None
        self._items.extendleft((priority, span) for span in reversed(assemble(page, buffers)))
        return True

    def _stop_of(self, number: int) -> int:
        """Up to which number the first item may be looked at before the next one's turn."""
        return min(number, _first(self._items[0])) if self._items else number

    def _put_in_order(self, rest: Item) -> None:
        self._items = deque(sorted([*self._items, rest], key=_first))

    # ---- for those who look

    def hot_spans(self) -> Iterator[Span]:
        return (what for _, what in self._items if isinstance(what, Span))

    def pages(self) -> Iterator[tuple[int, Page]]:
        items = [*self._items, *([self._loading] if self._loading is not None else [])]
        return ((priority, what) for priority, what in items if isinstance(what, Page))


def _first(item: Item) -> int:
    what = item[1]
    return what.oldest if isinstance(what, Page) else number_of(what)


def _count(item: Item) -> int:
    what = item[1]
    return what.messages if isinstance(what, Page) else what.stop - what.start
