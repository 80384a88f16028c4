"""What waits at one priority of one list, in order of arrival: the head in memory, a deep backlog on disk
only.

    taken ← [ loaded spans ] [ cold pages … ] ← appended

While there is room, everything stays loaded. Once the shared budget is used up, what arrives goes to the
cold end, and the journal's copy is the only one. Pages are loaded again as the head is taken, two ahead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from heliograph.destinations.pages import Page, assemble
from heliograph.model.block import Span
from heliograph.model.limits import PAGE_BYTES

# What a loaded span costs in memory besides its bytes.
_OVERHEAD_BYTES = 400


class Residence:
    """How many bytes of waiting messages are in memory, over all destinations of a node."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0


class Waiting:
    """A first-in-first-out run of messages. The caller loads what `page_to_load` names and hands it to
    `loaded`."""

    __slots__ = ("_cold", "_hot", "_loading", "_residence", "_resident", "messages")

    def __init__(self, residence: Residence) -> None:
        self._hot: deque[Span] = deque()
        self._cold: deque[Page] = deque()
        self._loading: Page | None = None
        self._residence = residence
        self._resident = 0
        self.messages = 0

    @property
    def keeps_loaded(self) -> bool:
        """Whether the next message to arrive would stay in memory."""
        return not self._cold and (not self._hot or self._residence.used < self._residence.limit)

    def append(self, span: Span) -> None:
        block = span.block
        count = span.stop - span.start
        self.messages += count
        if not block.position or self.keeps_loaded:
            self._hot.append(span)
            self._charge(block.size)
            return
        cold = self._cold
        if not cold or cold[-1].full or cold[-1] is self._loading or cold[-1].deliveries != span.deliveries:
            cold.append(Page(span.deliveries))
        cold[-1].append(
            block.number + span.start,
            block.position,
            span.start,
            count,
            block.size,
            persistent=block.persistent,
        )

    def put_back(self, spans: list[Span]) -> None:
        """Return messages to where they came from. They never come after what is cold: that has not been
        taken yet."""
        hot = self._hot
        spans.sort(key=_number)
        front: list[Span] = []
        highest = _number(spans[-1])
        while hot and _number(hot[0]) < highest:
            front.append(hot.popleft())
        hot.extendleft(sorted(front + spans, key=_number, reverse=True))
        for span in spans:
            self.messages += span.stop - span.start
            self._charge(span.block.size)

    def take(self, limit: int) -> Span | None:
        """Up to `limit` messages from the head, or None while the head is not in memory."""
        hot = self._hot
        if not hot:
            return None
        span = hot[0]
        count = span.stop - span.start
        if count <= limit:
            del hot[0]
            self._charge(-span.block.size, -_OVERHEAD_BYTES)
        else:
            span.start += limit
            count = limit
            span = Span(span.block, span.start - limit, span.start, span.deliveries)
        self.messages -= count
        return span

    def page_to_load(self) -> Page | None:
        """The page that should be read now, if any: one at a time, while less than two pages are ahead."""
        if self._loading is not None or not self._cold or self._resident >= 2 * PAGE_BYTES:
            return None
        self._loading = self._cold[0]
        return self._loading

    def loaded(self, buffers: list[bytes]) -> None:
        """The page asked for is here."""
        page = self._loading
        assert page is not None
        assert self._cold[0] is page
        self._cold.popleft()
        self._loading = None
        for span in assemble(page, buffers):
            self._hot.append(span)
            self._charge(span.block.size)

    def restore(self, pages: Iterable[Page]) -> None:
        """What recovery found to wait, all of it cold."""
        assert not self._hot
        assert not self._cold
        for page in pages:
            self._cold.append(page)
            self.messages += page.messages

    def _charge(self, size: int, overhead: int = _OVERHEAD_BYTES) -> None:
        self._resident += size + overhead
        self._residence.used += size + overhead

    def hot_spans(self) -> Iterable[Span]:
        return self._hot

    def cold_pages(self) -> Iterable[Page]:
        return self._cold

    def clear(self) -> None:
        """Forget everything: the list is gone."""
        self._residence.used -= self._resident
        self._resident = 0
        self.messages = 0
        self._hot.clear()
        self._cold.clear()
        self._loading = None


def _number(span: Span) -> int:
    return span.block.number + span.start
