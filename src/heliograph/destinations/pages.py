"""Cold messages: what waits on disk and not in memory, as a few bytes each.

A page names messages by their place in the journal, in arrays and never as an object per message (a million
waiting messages that came one by one cost 8 MB). When a page is read back, lone messages of one lane are put
together into blocks, so that draining a backlog costs per block again.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from itertools import groupby, repeat
from operator import add, attrgetter
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
    origin: int = -1

    @property
    def last(self) -> int:
        return self.number + self.messages - 1


class Page:
    """A run of cold messages with one delivery count, ordered by number."""

    __slots__ = (
        "_counts",
        "_is_being_read",
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
        "origin",
        "positions",
    )

    def __init__(self, deliveries: int = 0, origin: int = -1) -> None:
        self.deliveries = deliveries
        self.origin = origin
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
        self._is_being_read = False

    @property
    def oldest(self) -> int:
        """The lowest number of a message in it."""
        return self.first if self._numbers is None else min(self._numbers)

    @property
    def newest(self) -> int:
        """The highest number of a message in it."""
        if self._numbers is None:
            return self.next - 1
        if self._counts is None:
            return max(self._numbers)
        ends: Iterator[int] = map(add, self._numbers, self._counts)
        return max(ends) - 1

    @property
    def full(self) -> bool:
        return self.messages >= PAGE_MESSAGES or self.bytes >= PAGE_BYTES or self._is_being_read

    def records(self) -> list[int]:
        """The positions, each once where entries of one block follow one another."""
        return [position for position, _ in groupby(self.positions)]

    def close(self) -> None:
        """It is being read: what is appended from now on would not be among what comes."""
        self._is_being_read = True

    def buffers(self, records: list[bytes]) -> list[bytes]:
        """For each entry the bytes of its record, given those of `records`."""
        counts = (sum(1 for _ in same) for _, same in groupby(self.positions))
        return [record for record, count in zip(records, counts, strict=True) for _ in range(count)]

    def suits(self, span: Span) -> bool:
        """Whether a span can be told apart from the others by its place alone."""
        return self.deliveries == span.deliveries and self.origin == span.origin

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
        origins = (self.origin,) * length
        return list(map(Entry, numbers, self.positions, starts, counts, deliveries, origins))

    def spilled(self) -> Iterable[int]:
        """For each entry whether it ends with the process."""
        return repeat(0, len(self.positions)) if self._spilled is None else self._spilled

    def persistent_part(self) -> Page | None:
        """The page without what a restart may lose, None if nothing is left."""
        if self._spilled is None:
            return self if self.messages else None
        part = Page(self.deliveries, self.origin)
        size_each = self.bytes // self.messages
        for entry, spilled in zip(self.entries(), self._spilled, strict=True):
            if not spilled:
                size = size_each * entry.messages
                part.append(entry.number, entry.position, entry.start, entry.messages, size)
        return part if part.messages else None

    def count_before(self, number: int) -> int:
        """How many messages of the page come before this number."""
        if number <= self.first:
            return 0
        if number >= self.next:
            return self.messages
        return sum(min(max(number - entry.number, 0), entry.messages) for entry in self.entries())

    def between(self, first: int, last: int) -> Page:
        """A page of its own with what has numbers first..last."""
        part = Page(self.deliveries, self.origin)
        for entry, spilled in zip(self.entries(), self.spilled(), strict=True):
            skip = max(first - entry.number, 0)
            count = min(entry.last, last) - entry.number - skip + 1
            if count > 0:
                start = entry.start + skip
                part.append(
                    entry.number + skip, entry.position, start, count, count * 512, persistent=not spilled
                )
        return part

    def behind(self, passed: int) -> Page:
        """The page without its first `passed` messages."""
        if not passed:
            return self
        rest = Page(self.deliveries, self.origin)
        for entry, spilled in zip(self.entries(), self.spilled(), strict=True):
            skip = min(passed, entry.messages)
            passed -= skip
            if skip < entry.messages:
                left = entry.messages - skip
                rest.append(
                    entry.number + skip,
                    entry.position,
                    entry.start + skip,
                    left,
                    left * 512,
                    persistent=not spilled,
                )
        return rest

    # ---- snapshots: six numbers and the arrays as they stand

    def dump(self) -> tuple[list[int], list[bytes]]:
        assert self._spilled is None
        columns = (self.positions, self._counts, self._numbers, self._starts)
        facts = [self.deliveries, self.first, self.next, self.messages, self.bytes, self.origin]
        return facts, [b"" if column is None else column.tobytes() for column in columns]

    @classmethod
    def restore(cls, facts: list[int], columns: list[bytes]) -> Page:
        page = cls()
        page.deliveries, page.first, page.next, page.messages, page.bytes, page.origin = facts
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


def records_of(span: Span) -> Iterable[tuple[int, int]]:
    """The journal's records that a span's messages are in: a position in the segment, and how many
    messages."""
    block = span.block
    if block.positions is None:
        return ((block.position, span.stop - span.start),)
    # They came from one segment, and compaction may have moved each on its own since.
    positions = block.positions[span.start : span.stop]
    return count_by_segment(positions, repeat(1, len(positions))).items()


def pages_of(entries: Iterable[Entry], size_each: int = 512, *, persistent: bool = True) -> list[Page]:
    """Pages that hold these entries, which come ordered by number. Sizes are not known any more: `size_each`
    a message."""
    pages: list[Page] = []
    for entry in entries:
        _add(pages, entry, entry.messages * size_each, persistent=persistent)
    return pages


def _add(pages: list[Page], entry: Entry, size: int, *, persistent: bool) -> None:
    last = pages[-1] if pages else None
    if last is None or last.full or (last.deliveries, last.origin) != (entry.deliveries, entry.origin):
        pages.append(Page(entry.deliveries, entry.origin))
    pages[-1].append(entry.number, entry.position, entry.start, entry.messages, size, persistent=persistent)


def in_order(pages: Iterable[Page]) -> list[Page]:
    """The same messages in order. Pages that lie among one another, as what units of order hold back lies among what
    waits, become others."""
    found: list[Page] = []
    among: list[Page] = []
    behind = 0
    for page in sorted(pages, key=attrgetter("oldest")):
        if page.oldest >= behind:
            found += _joined(among)
            among = []
        among.append(page)
        behind = max(behind, page.newest + 1)
    return found + _joined(among)


def _joined(pages: list[Page]) -> list[Page]:
    if len(pages) < 2:
        return pages
    size_each = sum(page.bytes for page in pages) // sum(page.messages for page in pages)
    joined: list[Page] = []
    for entry, spilled in _in_order(pages):
        _add(joined, entry, entry.messages * size_each, persistent=not spilled)
    return joined


def _in_order(pages: list[Page]) -> Iterator[tuple[Entry, int]]:
    """The entries of pages that are ordered by their oldest, and whether each ends with the process: no more of
    them at once than where pages overlap."""
    ahead: list[tuple[Entry, int]] = []
    for page in pages:
        while ahead and ahead[0][0].number < page.oldest:
            yield heappop(ahead)
        for item in zip(page.entries(), page.spilled(), strict=True):
            heappush(ahead, item)
    while ahead:
        yield heappop(ahead)


def entries_of(span: Span) -> list[Entry]:
    """A loaded span in terms of the journal."""
    block = span.block
    if block.positions is None:
        return [
            Entry(
                block.number + span.start,
                block.position,
                span.start,
                span.stop - span.start,
                span.deliveries,
                span.origin,
            )
        ]
    return [
        Entry(block.number + index, block.positions[index], 0, 1, span.deliveries, span.origin)
        for index in range(span.start, span.stop)
    ]


def assemble(page: Page, buffers: list[bytes]) -> list[Span]:
    """The loaded spans of a page. Runs of lone messages of one lane become blocks again."""
    spans: list[Span] = []
    run = _Run(page)
    loaded: Block | None = None
    for entry, spilled, buffer in zip(page.entries(), page.spilled(), buffers, strict=True):
        if loaded is None or loaded.position != entry.position:
            loaded = blocks.parse_trusted(buffer, entry.position)
            loaded.number = entry.number - entry.start
            loaded.persistent = not spilled  # a server without a store overrules the sender
        if loaded.flags == LONE:
            if not run.takes(loaded):
                run.close(spans)
            run.add(loaded)
        else:
            run.close(spans)
            spans.append(
                Span(loaded, entry.start, entry.start + entry.messages, page.deliveries, page.origin)
            )
    run.close(spans)
    return spans


class _Run:
    """Lone messages that can share a block: one lane, sequences and numbers without a gap, equal headers, one
    segment."""

    __slots__ = ("_blocks", "_last", "_page")

    def __init__(self, page: Page) -> None:
        self._page = page
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

    def close(self, spans: list[Span]) -> None:
        run = self._blocks
        if run:
            block = run[0] if len(run) == 1 else blocks.merge_lone(run)
            spans.append(Span(block, 0, len(run), self._page.deliveries, self._page.origin))
        self._blocks = []
