"""What a group of subscriptions waits for, kept once for all of them (docs/decisions/0003).

A sequence is cut into chunks. A chunk is loaded (spans) or cold (a page of journal positions); a cursor walks
over chunks. Each chunk counts the subscriptions that still need something of it, and is let go at zero.
"""

from __future__ import annotations

from collections.abc import Iterator

from heliograph.destinations.effects import AnyEffect, Release, ReleasePage
from heliograph.destinations.pages import Entry, Page, assemble, entries_of, pages_of, records_of
from heliograph.destinations.waiting import OVERHEAD_BYTES, Residence, Waiting, number_of
from heliograph.model.block import Block, Span
from heliograph.model.ids import ConsumerId
from heliograph.model.limits import PAGE_BYTES, PAGE_MESSAGES


class Chunk:
    """A run of spans that are loaded and let go together."""

    __slots__ = ("bytes", "holders", "loading", "loads", "messages", "number", "page", "spans")

    def __init__(self, number: int, holders: int) -> None:
        self.number = number
        self.holders = holders  # subscriptions that need something of it
        self.spans: list[Span] | None = []
        self.page: Page | None = None
        self.messages = 0
        self.bytes = 0
        self.loading = False
        self.loads = 1  # how often it was brought to memory

    @property
    def full(self) -> bool:
        return self.messages >= PAGE_MESSAGES or self.bytes >= PAGE_BYTES


class Sequence:
    """The chunks of one group at one priority. Cursors are `SharedLevel`s."""

    def __init__(self, residence: Residence) -> None:
        self._residence = residence
        self._chunks: dict[int, Chunk] = {}
        self._next = 0
        self._tail: Chunk | None = None
        self.appended = 0
        self.members = 0

    @property
    def keeps_loaded(self) -> bool:
        return self._residence.used < self._residence.limit

    def append(self, span: Span) -> None:
        """Only for somebody: with no members nothing is kept."""
        if not self.members:
            return
        tail = self._tail
        if tail is None or tail.full:
            self._close_tail()
            tail = self._tail = self._chunks[self._next] = Chunk(self._next, self.members)
            self._next += 1
        assert tail.spans is not None
        tail.holders = self.members  # those who were through with it need it again
        # The bytes of a block are there once, however many spans of it are.
        same = tail.spans and tail.spans[-1].block is span.block
        size = OVERHEAD_BYTES if same else span.block.size + OVERHEAD_BYTES
        tail.spans.append(span)
        count = span.stop - span.start
        tail.messages += count
        tail.bytes += size
        self._residence.used += size
        self.appended += count

    def _close_tail(self) -> None:
        tail = self._tail
        self._tail = None
        if tail is not None and not self.keeps_loaded:
            self._unload(tail)

    def _unload(self, chunk: Chunk) -> None:
        """Keep only where its messages are, if the journal has them all."""
        assert chunk.spans is not None
        if all(span.block.position for span in chunk.spans):
            chunk.page = _page_of(chunk)
            self._drop_spans(chunk)

    def _drop_spans(self, chunk: Chunk) -> None:
        if chunk.spans is not None:
            chunk.spans = None
            self._residence.used -= chunk.bytes

    # ---- recovery

    @classmethod
    def restore(cls, pages: list[Page], residence: Residence) -> Sequence:
        """What recovery found, one cold chunk a page. Holders are counted when its subscriptions are
        restored."""
        sequence = cls(residence)
        for page in pages:
            page.origin = sequence._next
            chunk = sequence._chunks[sequence._next] = Chunk(sequence._next, 0)
            chunk.spans = None
            chunk.page = page
            chunk.messages = page.messages
            sequence._next += 1
            sequence.appended += page.messages
        return sequence

    def drop_unheld(self) -> None:
        for number in [number for number, chunk in self._chunks.items() if not chunk.holders]:
            del self._chunks[number]

    def pages(self) -> list[Page]:
        """Everything that is kept and on disk, a page a chunk."""
        return [page for chunk in self._chunks.values() if len(page := _page_of(chunk))]

    def persistent_pages(self) -> list[Page]:
        """What of it outlives the process."""
        parts = [_page_of(chunk).persistent_part() for chunk in self._chunks.values()]
        return [part for part in parts if part is not None]

    def origins(self) -> dict[int, int]:
        """For each chunk, which of `persistent_pages` it is."""
        kept = [
            chunk.number for chunk in self._chunks.values() if _page_of(chunk).persistent_part() is not None
        ]
        return {number: index for index, number in enumerate(kept)}

    def relocate(self, moves: dict[int, int], segment: int) -> None:
        for chunk in self._chunks.values():
            if chunk.page is not None and chunk.page.touches(segment):
                chunk.page.relocate(moves)

    def spans(self) -> Iterator[Span]:
        for chunk in self._chunks.values():
            if chunk.spans is not None and chunk.page is None:
                yield from chunk.spans

    # ---- members

    def join(self) -> int:
        """A subscription begins here: the number of its first chunk."""
        self._close_tail()
        self.members += 1
        return self._next

    def leave(self, first: int, effects: list[AnyEffect]) -> None:
        """A subscription ends that had not entered chunk `first` and those behind it."""
        for number in range(first, self._next):
            self.done_with(number, effects)
        self._close_tail()
        self.members -= 1

    def chunk(self, number: int) -> Chunk | None:
        return self._chunks.get(number)

    @property
    def first_chunk(self) -> int:
        return next(iter(self._chunks), self._next)

    def chunk_numbers(self) -> list[int]:
        return list(self._chunks)

    def hold(self, number: int) -> None:
        self._chunks[number].holders += 1

    def done_with(self, number: int, effects: list[AnyEffect]) -> None:
        """One subscription needs nothing more of a chunk."""
        chunk = self._chunks[number]
        chunk.holders -= 1
        if chunk.holders:
            return
        del self._chunks[number]
        if chunk is self._tail:
            self._tail = None
        if chunk.page is not None:
            effects.append(ReleasePage(chunk.page))
        else:
            assert chunk.spans is not None
            effects.extend(
                Release(position, count)
                for span in chunk.spans
                for position, count in records_of(span)
                if position
            )
        self._drop_spans(chunk)

    def is_closed(self, number: int) -> bool:
        """Nothing more will be appended to it."""
        return self._tail is None or number != self._tail.number

    def loaded(self, page: Page, buffers: list[bytes]) -> None:
        chunk = self._chunks.get(page.origin)
        if chunk is None or chunk.page is not page:
            return  # let go meanwhile, or not ours
        chunk.loading = False
        if chunk.spans is None:
            chunk.spans = assemble(chunk.page, buffers)
            chunk.loads += 1
            chunk.bytes = _bytes_of(chunk.spans)
            self._residence.used += chunk.bytes

    def passed(self, chunk: Chunk) -> None:
        """A cursor left a chunk. If memory is short, its bytes go."""
        if chunk.page is not None and not self.keeps_loaded:
            self._drop_spans(chunk)


class SharedLevel:
    """One subscription's way through a sequence, in the shape of `Waiting`: what came back first, then what
    is next.

    A chunk is held from the moment the subscription exists until all of it was settled.
    """

    __slots__ = (
        "_chunk",
        "_index",
        "_loads",
        "_offset",
        "_private",
        "_rested",
        "_sequence",
        "_taken",
        "_unsettled",
        "_within",
        "seen",
    )

    def __init__(self, sequence: Sequence, residence: Residence) -> None:
        self._sequence = sequence
        self._private = Waiting(residence)
        self._taken = sequence.appended  # messages of the sequence that lie before the cursor
        self._chunk = sequence.join()  # the chunk to read from
        self._within = 0  # messages of it that were taken
        self._rested = 0  # messages it had when all of them were settled and it was let go, 0: it was not
        self._loads = 0  # the loading of the chunk that the next two belong to
        self._index = 0  # span in it
        self._offset = 0  # message in the span
        self._unsettled: dict[int, int] = {}  # chunks entered: messages handed out and not settled
        # What has a lower number may have been handed out by a machine that was lost, without a trace.
        self.seen = 0

    @property
    def messages(self) -> int:
        return self._private.messages + self._sequence.appended - self._taken

    @property
    def keeps_loaded(self) -> bool:
        return self._sequence.keeps_loaded

    def restore(
        self, next_number: int, entries: list[Entry], seen: int, handed_out: list[Entry] | None = None
    ) -> None:
        """Recovery: the next message to read is `next_number`, or what follows it; `entries` were read and
        are not settled, nor are those `handed_out`, which consumers have."""
        sequence = self._sequence
        self.seen = seen
        self._taken = self._within = 0
        self._chunk = sequence.first_chunk
        while (chunk := sequence.chunk(self._chunk)) is not None and chunk.page is not None:
            passed = chunk.page.count_before(next_number)
            self._taken += passed
            if passed < chunk.messages:
                self._within = passed
                break
            self._chunk += 1
        self._loads = 0
        for entry in (*entries, *(handed_out or ())):
            self._unsettled[entry.origin] = self._unsettled.get(entry.origin, 0) + entry.messages
        for number in sequence.chunk_numbers():
            if number >= self._chunk or self._unsettled.get(number):
                sequence.hold(number)
        self._private.restore(pages_of(sorted(entries)))

    def private_entries(self) -> Iterator[Entry]:
        """What came back and is on disk."""
        for span in self._private.hot_spans():
            if span.block.persistent:
                yield from entries_of(span)
        for page in self._private.cold_pages():
            persistent = page.persistent_part()
            if persistent is not None:
                yield from persistent.entries()

    @property
    def next_number(self) -> int:
        """The number of the next persistent message that was not read, 0 if there is none.

        Those are in the order of their numbers. What is in memory alone is not: it need not wait for the disk
        and overtakes them, so that its number would let a restart begin behind messages that still wait.
        """
        for part in self._ahead():
            if isinstance(part, Page):
                kept = part.persistent_part()
                if kept is not None:
                    return kept.first
            else:
                for span in part:
                    if span.block.persistent:
                        return number_of(span)
        return 0

    # ---- handing out

    def take(self, limit: int, consumer: ConsumerId, effects: list[AnyEffect]) -> Span | None:
        """Up to `limit` messages from the head, or None while the head is not in memory."""
        if self._private.messages:
            return self._private.take(limit, consumer, effects)
        chunk = self._current(effects)
        if chunk is None or chunk.spans is None:
            return None
        if self._loads != chunk.loads:
            self._find_place(chunk.spans)
            self._loads = chunk.loads
        whole = chunk.spans[self._index]
        start = whole.start + self._offset
        count = min(whole.stop - start, limit)
        unmarked = whole.block.number + start - self.seen
        if unmarked < 0:
            count = min(count, -unmarked)
        if start + count == whole.stop:
            self._index += 1
            self._offset = 0
        else:
            self._offset += count
        self._taken += count
        self._within += count
        self._unsettled[chunk.number] = self._unsettled.get(chunk.number, 0) + count
        return Span(whole.block, start, start + count, 1 if unmarked < 0 else 0, chunk.number)

    def _current(self, effects: list[AnyEffect]) -> Chunk | None:
        """The chunk that the next message is in, or None while there is none."""
        while self._taken < self._sequence.appended:
            chunk = self._sequence.chunk(self._chunk)
            if chunk is not None and self._within < chunk.messages:
                return chunk
            self._leave_chunk(effects)
        return None

    def _leave_chunk(self, effects: list[AnyEffect]) -> None:
        number, has_let_go = self._chunk, self._has_let_go
        chunk = self._sequence.chunk(number)
        assert chunk is not None or has_let_go, "a chunk stays until every subscription is through with it"
        if chunk is not None:
            self._sequence.passed(chunk)
        self._chunk += 1
        self._within = self._index = self._offset = self._loads = self._rested = 0
        if not has_let_go:
            self._let_go_if_settled(number, effects)

    @property
    def _has_let_go(self) -> bool:
        """Whether the chunk at the cursor is not held: all of it was settled, and no more came since."""
        chunk = self._sequence.chunk(self._chunk)
        return self._rested > 0 and (chunk is None or chunk.messages == self._rested)

    def _place(self) -> tuple[int, int]:
        """The chunk to read from, and how many messages of it were taken."""
        if self._rested and self._sequence.chunk(self._chunk) is None:
            return self._chunk + 1, 0
        return self._chunk, self._within

    def _find_place(self, spans: list[Span]) -> None:
        """The chunk was read again, perhaps into other spans."""
        left = self._within
        self._index = 0
        while left >= spans[self._index].stop - spans[self._index].start:
            left -= spans[self._index].stop - spans[self._index].start
            self._index += 1
        self._offset = left

    # ---- what became of it

    def put_back(self, spans: list[Span]) -> None:
        self._private.put_back(spans)

    def put_back_cold(self, page: Page) -> None:
        self._private.put_back_cold(page)

    def lay_out(self, spans: list[Span], pages: list[Page]) -> None:
        self._private.lay_out(spans, pages)

    def lay_out_anew(self) -> None:
        self._private.lay_out_anew()

    def settled(self, _position: int, count: int, origin: int, effects: list[AnyEffect]) -> None:
        """Messages that were handed out are done for this subscription."""
        self._unsettled[origin] -= count
        self._let_go_if_settled(origin, effects)

    def _let_go_if_settled(self, number: int, effects: list[AnyEffect]) -> None:
        """Of a chunk that the cursor has left, or is at the end of, nothing is needed once all of it is
        settled."""
        if number > self._chunk or self._unsettled.get(number):
            return
        if number == self._chunk:
            chunk = self._sequence.chunk(number)
            if chunk is None or self._within < chunk.messages:
                return
            self._rested = chunk.messages
        self._unsettled.pop(number, None)
        self._sequence.done_with(number, effects)

    def leave(self, effects: list[AnyEffect]) -> None:
        """The subscription ends."""
        for number in [number for number in self._unsettled if number < self._chunk]:
            self._sequence.done_with(number, effects)
        self._sequence.leave(self._chunk + self._has_let_go, effects)
        self._private.clear()

    def purge(self, effects: list[AnyEffect]) -> None:
        """Everything that waits is done for this subscription."""
        came_back: dict[int, int] = {}
        for span in self._private.hot_spans():
            came_back[span.origin] = came_back.get(span.origin, 0) + span.stop - span.start
        for page in self._private.cold_pages():
            came_back[page.origin] = came_back.get(page.origin, 0) + page.messages
        self._private.clear()
        while (chunk := self._current(effects)) is not None:
            self._taken += chunk.messages - self._within
            self._within = chunk.messages
            self._loads = 0  # its place among the spans is found again when more comes
        for origin, count in came_back.items():
            self.settled(0, count, origin, effects)
        if not self._has_let_go:
            self._let_go_if_settled(self._chunk, effects)

    # ---- cold chunks

    def page_to_load(self) -> Page | None:
        """The page that must be read before the next message can be handed out."""
        if self._private.messages:
            return self._private.page_to_load()
        if self._taken == self._sequence.appended:
            return None
        for number in (self._chunk, self._chunk + 1):
            chunk = self._sequence.chunk(number)
            if chunk is not None and chunk.spans is None and not chunk.loading:
                chunk.loading = True
                return chunk.page
        return None

    def loaded(self, page: Page, buffers: list[bytes]) -> None:
        self._private.loaded(page, buffers)
        self._sequence.loaded(page, buffers)

    # ---- for those who look

    def hot_spans(self) -> Iterator[Span]:
        """What waits for this subscription and is in memory."""
        yield from self._private.hot_spans()
        for spans in self._ahead():
            if not isinstance(spans, Page):
                yield from spans

    def cold_pages(self) -> Iterator[Page]:
        yield from self._private.cold_pages()
        for page in self._ahead():
            if isinstance(page, Page):
                yield page

    def _ahead(self) -> Iterator[list[Span] | Page]:
        """What the cursor has not passed, chunk by chunk."""
        number, within = self._place()
        while (chunk := self._sequence.chunk(number)) is not None:
            if chunk.spans is None:
                assert chunk.page is not None
                yield chunk.page.behind(within)
            else:
                yield list(_behind(chunk.spans, within))
            number, within = number + 1, 0


def _behind(spans: list[Span], passed: int) -> Iterator[Span]:
    """Spans without their first `passed` messages."""
    for span in spans:
        count = span.stop - span.start
        if passed < count:
            yield span.part(span.start + passed, span.stop) if passed else span
        passed = max(passed - count, 0)


def _bytes_of(spans: list[Span]) -> int:
    """What spans take in memory. Those of one block follow one another."""
    total = 0
    last: Block | None = None
    for span in spans:
        total += OVERHEAD_BYTES if span.block is last else span.block.size + OVERHEAD_BYTES
        last = span.block
    return total


def _page_of(chunk: Chunk) -> Page:
    """Where the messages of a chunk are, as far as the journal has them."""
    if chunk.page is not None:
        return chunk.page
    assert chunk.spans is not None
    page = Page(origin=chunk.number)
    for span in chunk.spans:
        if span.block.position:
            for entry in entries_of(span):
                size = span.block.size * entry.messages // span.block.count
                page.append(
                    entry.number,
                    entry.position,
                    entry.start,
                    entry.messages,
                    size,
                    persistent=span.block.persistent,
                )
    return page
