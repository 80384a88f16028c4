"""Cold messages: what waits on disk and not in memory, as a few bytes each.

A page names messages by their place in the journal, in arrays and never as an object per message (a million
waiting messages that came one by one cost 8 MB). When a page is read back, lone messages of one lane are put
together into blocks, so that draining a backlog costs per block again.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import NamedTuple

from heliograph.model import block as blocks
from heliograph.model.block import LONE, Block, Span
from heliograph.model.limits import BLOCK_MESSAGES, PAGE_BYTES, PAGE_MESSAGES

SEGMENT_SHIFT = 32


class Entry(NamedTuple):
    """Messages `start` up to `start + messages` of the block at `position`.

    `number` is the place of the first in its destination.
    """

    number: int
    position: int
    start: int
    messages: int
    deliveries: int

    @property
    def last(self) -> int:
        return self.number + self.messages - 1


class Page:
    """A run of cold messages with one delivery count, ordered by number."""

    __slots__ = (
        "_counts",
        "_numbers",
        "_spilled",
        "_starts",
        "bytes",
        "deliveries",
        "first",
        "highest",
        "lowest",
        "messages",
        "next",
        "positions",
    )

    def __init__(self, deliveries: int = 0) -> None:
        self.deliveries = deliveries
        self.positions: array[int] = array("Q")
        self._counts: array[int] | None = None  # absent: one message each
        self._numbers: array[int] | None = None  # absent: without a gap from `first`
        self._starts: array[int] | None = None  # absent: whole blocks
        self._spilled: array[int] | None = None  # 1: ends with the process; absent: all are persistent
        self.first = 0
        self.next = 0
        self.messages = 0
        self.bytes = 0
        self.lowest = self.highest = 0  # of the positions

    @property
    def full(self) -> bool:
        return self.messages >= PAGE_MESSAGES or self.bytes >= PAGE_BYTES

    def __len__(self) -> int:
        return len(self.positions)

    def append(
        self, number: int, position: int, start: int, count: int, size: int, *, persistent: bool = True
    ) -> None:
        entries = len(self.positions)
        if not entries:
            self.first = self.next = number
            self.lowest = self.highest = position
        elif position > self.highest:
            self.highest = position
        elif position < self.lowest:
            self.lowest = position
        if count != 1 and self._counts is None:
            self._counts = array("I", [1]) * entries
        if self._counts is not None:
            self._counts.append(count)
        if start and self._starts is None:
            self._starts = array("I", [0]) * entries
        if self._starts is not None:
            self._starts.append(start)
        if number != self.next and self._numbers is None:
            self._numbers = array("Q", self._contiguous())
        if self._numbers is not None:
            self._numbers.append(number)
        if not persistent and self._spilled is None:
            self._spilled = array("B", bytes(entries))
        if self._spilled is not None:
            self._spilled.append(not persistent)
        self.positions.append(position)
        self.next = number + count
        self.messages += count
        self.bytes += size

    def _contiguous(self) -> Iterator[int]:
        length = len(self.positions)  # while one is appended, the other columns are ahead
        number = self.first
        for count in (1,) * length if self._counts is None else self._counts[:length]:
            yield number
            number += count

    def entries(self) -> list[Entry]:
        length = len(self.positions)
        counts: Iterable[int] = (1,) * length if self._counts is None else self._counts[:length]
        starts: Iterable[int] = (0,) * length if self._starts is None else self._starts
        numbers: Iterable[int] = self._contiguous() if self._numbers is None else self._numbers
        deliveries = (self.deliveries,) * length
        return list(map(Entry, numbers, self.positions, starts, counts, deliveries))

    def spilled(self) -> Iterable[int]:
        """For each entry whether it ends with the process."""
        return repeat(0, len(self.positions)) if self._spilled is None else self._spilled

    # ---- snapshots: six numbers and the arrays as they stand

    def persistent_part(self) -> Page | None:
        """The page without what a restart may lose."""
        if self._spilled is None:
            return self
        part = Page(self.deliveries)
        size_each = self.bytes // self.messages
        for entry, spilled in zip(self.entries(), self._spilled, strict=True):
            if not spilled:
                size = size_each * entry.messages
                part.append(entry.number, entry.position, entry.start, entry.messages, size)
        return part if part.messages else None

    def dump(self) -> tuple[list[int], list[bytes]]:
        assert self._spilled is None
        columns = (self.positions, self._counts, self._numbers, self._starts)
        facts = [self.deliveries, self.first, self.next, self.messages, self.bytes]
        return facts, [b"" if column is None else column.tobytes() for column in columns]

    @classmethod
    def restore(cls, facts: list[int], columns: list[bytes]) -> Page:
        page = cls()
        page.deliveries, page.first, page.next, page.messages, page.bytes = facts
        page.positions = array("Q", columns[0])
        page._counts = array("I", columns[1]) if columns[1] else None
        page._numbers = array("Q", columns[2]) if columns[2] else None
        page._starts = array("I", columns[3]) if columns[3] else None
        page._span_positions()
        return page

    def _span_positions(self) -> None:
        self.lowest, self.highest = min(self.positions), max(self.positions)

    def touches(self, segment: int) -> bool:
        return self.lowest >> SEGMENT_SHIFT <= segment <= self.highest >> SEGMENT_SHIFT

    def relocate(self, moves: dict[int, int]) -> None:
        positions = self.positions
        for index, position in enumerate(positions):
            if position in moves:
                positions[index] = moves[position]
        self._span_positions()

    def per_segment(self) -> dict[int, int]:
        """Messages by segment, each segment named by one position in it."""
        if self._counts is None:
            return count_by_segment(self.positions, repeat(1, len(self.positions)))
        return count_by_segment(self.positions, self._counts)


def count_by_segment(positions: array[int], counts: Iterable[int]) -> dict[int, int]:
    """How many messages lie in each segment, which is named by one of the positions in it."""
    if min(positions) >> SEGMENT_SHIFT == max(positions) >> SEGMENT_SHIFT:
        return {positions[0]: sum(counts)}
    found: dict[int, int] = {}
    anchors: dict[int, int] = {}
    for position, count in zip(positions, counts, strict=True):
        anchor = anchors.setdefault(position >> SEGMENT_SHIFT, position)
        found[anchor] = found.get(anchor, 0) + count
    return found


def pages_of(entries: Iterable[Entry], size_each: int = 512) -> list[Page]:
    """Pages that hold these entries, which come ordered by number. Sizes are not known any more: `size_each`
    a message."""
    pages: list[Page] = []
    for entry in entries:
        if not pages or pages[-1].full or pages[-1].deliveries != entry.deliveries:
            pages.append(Page(entry.deliveries))
        pages[-1].append(
            entry.number, entry.position, entry.start, entry.messages, entry.messages * size_each
        )
    return pages


def entries_of(span: Span) -> list[Entry]:
    """A loaded span in terms of the journal."""
    block = span.block
    if block.positions is None:
        return [
            Entry(
                block.number + span.start, block.position, span.start, span.stop - span.start, span.deliveries
            )
        ]
    return [
        Entry(block.number + index, block.positions[index], 0, 1, span.deliveries)
        for index in range(span.start, span.stop)
    ]


def assemble(page: Page, buffers: list[bytes]) -> list[Span]:
    """The loaded spans of a page. Runs of lone messages of one lane become blocks again."""
    spans: list[Span] = []
    run = _Run()
    deliveries = page.deliveries
    for entry, spilled, buffer in zip(page.entries(), page.spilled(), buffers, strict=True):
        loaded = blocks.parse_trusted(buffer, entry.position)
        loaded.number = entry.number - entry.start
        loaded.persistent = not spilled  # a server without a store overrules the sender
        if loaded.flags == LONE:
            if not run.takes(loaded):
                run.close(spans, deliveries)
            run.add(loaded)
        else:
            run.close(spans, deliveries)
            spans.append(Span(loaded, entry.start, entry.start + entry.messages, deliveries))
    run.close(spans, deliveries)
    return spans


class _Run:
    """Lone messages that can share a block: one lane, sequences and numbers without a gap, equal headers, one
    segment."""

    __slots__ = ("_blocks", "_last")

    def __init__(self) -> None:
        self._blocks: list[Block] = []

    def takes(self, block: Block) -> bool:
        if not self._blocks:
            return True
        last = self._last
        return (
            block.first == last.first + 1
            and block.number == last.number + 1
            and block.lane == last.lane
            and block.priority == last.priority
            and block.persistent == last.persistent
            and not block.expiry
            and not last.expiry
            and not block.delivery_time
            and not last.delivery_time
            and block.position >> SEGMENT_SHIFT == last.position >> SEGMENT_SHIFT
            and len(self._blocks) < BLOCK_MESSAGES
            and blocks.kind_of(block) == blocks.kind_of(last)
        )

    def add(self, block: Block) -> None:
        self._blocks.append(block)
        self._last = block

    def close(self, spans: list[Span], deliveries: int) -> None:
        run = self._blocks
        if len(run) == 1:
            spans.append(Span(run[0], 0, 1, deliveries))
        elif run:
            spans.append(Span(blocks.merge_lone(run), 0, len(run), deliveries))
        self._blocks = []
