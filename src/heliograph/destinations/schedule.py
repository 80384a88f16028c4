"""Messages that may not go yet: delayed by their sender, or backing off after a failure (J8, J10).

A heap by time. What the journal has is kept as a few numbers and read again when it is due; idle time costs
nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from heliograph.destinations.pages import Entry, Page, entries_of
from heliograph.model.block import Span


class Schedule:
    """What waits for its time, for one list."""

    __slots__ = ("_heap", "messages")

    def __init__(self) -> None:
        # due, number, priority, whether it outlives the process, and either where it is or, for what is not
        # on disk, itself
        self._heap: list[tuple[int, int, int, bool, Entry | _Held]] = []
        self.messages = 0

    def add(self, due: int, priority: int, span: Span) -> None:
        self.messages += span.stop - span.start
        if span.block.position:
            for entry in entries_of(span):
                heapq.heappush(self._heap, (due, entry.number, priority, span.block.persistent, entry))
        else:
            number = span.block.number + span.start
            heapq.heappush(self._heap, (due, number, priority, False, _Held(span)))

    @property
    def next_due(self) -> int:
        """When the next message is due (microseconds), 0 if none waits."""
        return self._heap[0][0] if self._heap else 0

    def due_of(self, number: int) -> int:
        """When the message with this number is due, 0 if it is not here."""
        for due, first, _, _, what in self._heap:
            count = what.messages if isinstance(what, Entry) else what.span.stop - what.span.start
            if first <= number < first + count:
                return due
        return 0

    def due(self, now: int) -> Iterator[tuple[int, Page | Span]]:
        """Take out what is due, by priority: runs on disk as pages, the rest as spans."""
        pages: dict[tuple[int, int, int], Page] = {}
        taken: list[tuple[int, int, int, bool, Entry | _Held]] = []
        while self._heap and self._heap[0][0] <= now:
            taken.append(heapq.heappop(self._heap))
        taken.sort(key=lambda item: item[1])
        for _, _, priority, persistent, what in taken:
            if isinstance(what, Entry):
                self.messages -= what.messages
                key = (priority, what.origin, what.deliveries)
                page = pages.setdefault(key, Page(what.deliveries, what.origin))
                size = what.messages * 512
                page.append(
                    what.number, what.position, what.start, what.messages, size, persistent=persistent
                )
            else:
                self.messages -= what.span.stop - what.span.start
                yield priority, what.span
        for (priority, _, _), page in pages.items():
            yield priority, page

    def entries(self, *, spilled: bool) -> Iterator[tuple[int, Entry]]:
        """What is on disk, by priority, with or without what a restart may lose."""
        for _, _, priority, persistent, what in self._heap:
            if isinstance(what, Entry) and (persistent or spilled):
                yield priority, what

    def everything(self) -> Iterator[tuple[int, int, Entry | Span]]:
        """All of it, with its priority and origin."""
        for _, _, priority, _, what in self._heap:
            if isinstance(what, _Held):
                yield priority, what.span.origin, what.span
            else:
                yield priority, what.origin, what

    def clear(self) -> None:
        self._heap.clear()
        self.messages = 0

    def relocate(self, moves: dict[int, int]) -> None:
        for index, (due, number, priority, persistent, what) in enumerate(self._heap):
            if isinstance(what, Entry) and what.position in moves:
                moved = what._replace(position=moves[what.position])
                self._heap[index] = (due, number, priority, persistent, moved)


class _Held:
    """A span in a heap: never compared by content."""

    __slots__ = ("span",)

    def __init__(self, span: Span) -> None:
        self.span = span

    def __lt__(self, _other: object) -> bool:
        return False

    def __gt__(self, _other: object) -> bool:
        return False
