"""Reading the history of the journal by LSN (D2): from a position on, record by record, as it was written.

Runs on a thread of its own. A **cursor** is a place between two records, with what must be known there to go on:
blocks
of transactions that are staged and not decided. A block of a transaction is fed at the LSN of the record that
committed
it, wherever it stands. Cursors at the beginnings of segments, and those where readers were last, are remembered;
a reader whose place is not among them costs a walk over headers from the next one before it.

Whoever reads for long has a hold (`destinations/pipelines.py`): `floor` says from which segment on it needs the
journal.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

import msgspec
from crc32c import crc32c

from heliograph.journal.directory import Directory
from heliograph.journal.reader import Reader
from heliograph.journal.records import (
    FRAME_HEADER_BYTES,
    OFFSET_BITS,
    RECORD_HEADER,
    RECORD_HEADER_BYTES,
    FrameHeader,
    RecordKind,
    offset_of,
    position_of,
    read_frame_header,
    segment_of,
)
from heliograph.model.block import lane_and_first
from heliograph.model.errors import ClientFault, CorruptJournal
from heliograph.model.ids import session_of
from heliograph.model.limits import FEED_CURSORS, FEED_LOOK_BYTES

_BLOCKS: Final = (RecordKind.PUBLISHED, RecordKind.ADOPTED, RecordKind.JOINED)
OF_TRANSACTIONS: Final = (
    RecordKind.STAGED,
    RecordKind.PREPARED,
    RecordKind.COMMITTED,
    RecordKind.STARTED,
)
_LOW_BITS: Final = (1 << 32) - 1


class _Promise(msgspec.Struct, array_like=True):
    """The beginning of a PREPARED record."""

    session: bytes
    number: int


class _Outcome(msgspec.Struct, array_like=True):
    """A COMMITTED record, so far as it concerns what was sent."""

    session: bytes
    number: int
    committed: bool
    done: list[tuple[int, int, list[tuple[int, int]]]]
    numbers: list[int]


_decode_promise = msgspec.msgpack.Decoder(_Promise).decode
_decode_outcome = msgspec.msgpack.Decoder(_Outcome).decode


class Fed(NamedTuple):
    """A record of the history. Of a block of a transaction: its kind is PUBLISHED, its LSN that of the commit."""

    kind: int
    destination: int
    list: int
    lsn: int
    payload: bytes


class Portion(NamedTuple):
    """What a reader gets at a time. Everything up to `upto` was looked at."""

    records: list[Fed]
    upto: int


Stage = tuple[int, int, int]
"""The number of the destination, where the block stands, and its LSN."""


class Cursor(msgspec.Struct):
    """A place in the log: in front of the frame at `position`, whose first record has at least LSN `lsn`."""

    lsn: int
    position: int
    staged: dict[bytes, list[Stage]]
    prepared: dict[tuple[bytes, int], list[Stage]]

    def copy(self) -> Cursor:
        staged = {session: list(stages) for session, stages in self.staged.items()}
        return Cursor(self.lsn, self.position, staged, dict(self.prepared))

    @property
    def floor(self) -> int:
        """The first segment that somebody needs who goes on from here."""
        groups = [*self.staged.values(), *self.prepared.values()]
        positions = [position for stages in groups for _, position, _ in stages]
        return segment_of(min([self.position, *positions]))

    @property
    def needs(self) -> int:
        """The LSN of the first record that somebody needs who goes on from here."""
        groups = [*self.staged.values(), *self.prepared.values()]
        return min([self.lsn, *(lsn for stages in groups for _, _, lsn in stages)])


class FeedReader:
    """One owner at a time: the thread that it runs on."""

    def __init__(self, directory: Directory) -> None:
        self.directory = directory
        self.reader = Reader(directory)
        self.seed = 0
        self._at_segments: dict[int, Cursor] = {}
        self._recent: dict[int, Cursor] = {}  # by LSN, the one used last at the end

    def bind(self, seed: int) -> None:
        self.seed = seed

    def close(self) -> None:
        self.reader.close()

    def read(
        self,
        segments: Sequence[int],
        after: int,
        until: int,
        limit: int,
        wants: Callable[[int, int, memoryview | bytes], bool],
        kinds: Collection[int] = (),
        is_enough: Callable[[], bool] = lambda: False,
    ) -> Portion:
        """Records behind LSN `after`, up to `until`, of about `limit` bytes: blocks that `wants` takes, given
        destination,
        kind and block, and records of `kinds` as they stand. Raises ClientFault `feed-gone` when that is not
        there any more."""
        walk = Walk(self.reader, after, until, limit, wants, frozenset(kinds), is_enough)
        cursor = self._walk(segments, after, walk)
        if cursor is not None:
            self._remember(cursor)
        return Portion(walk.records, walk.upto)

    def floor(self, segments: Sequence[int], after: int) -> int:
        """The first segment that a reader needs who has everything up to `after`. Raises ClientFault `feed-gone`."""
        walk = Walk(self.reader, after, after, 0, lambda *_: False, frozenset(), lambda: False)
        cursor = self._walk(segments, after, walk)
        if cursor is None:
            return segments[-1]
        self._remember(cursor)
        return cursor.floor

    def first(self, segments: Sequence[int]) -> int:
        """The LSN before the first record that is there."""
        for number in segments:
            with self.directory.disk.mapped(self.directory.segment_path(number)) as buffer:
                header = read_frame_header(memoryview(buffer), number, 0, self.seed)
            if header is not None:
                return header.first_lsn - header.skipped - 1
        return 0

    # ---- places

    def _remember(self, cursor: Cursor) -> None:
        if offset_of(cursor.position) == 0:
            self._at_segments[segment_of(cursor.position)] = cursor
            return
        self._recent.pop(cursor.lsn, None)
        self._recent[cursor.lsn] = cursor
        if len(self._recent) > FEED_CURSORS:
            del self._recent[next(iter(self._recent))]

    def _start(self, segments: Sequence[int], after: int) -> Cursor:
        """The last known place at or before the record that follows `after`."""
        there = dict.fromkeys(segments)
        for number in [number for number in self._at_segments if number not in there]:
            del self._at_segments[number]
        known = [*self._at_segments.values(), *self._recent.values()]
        known = [
            cursor for cursor in known if cursor.lsn <= after + 1 and segment_of(cursor.position) in there
        ]
        if known:
            return max(known, key=lambda cursor: cursor.lsn).copy()
        first = self.first(segments)
        if after < first:
            raise ClientFault(
                f"the history behind {after} is gone: what is there begins behind {first}", code="feed-gone"
            )
        return Cursor(first + 1, position_of(segments[0], 0), {}, {})

    # ---- walking

    def _walk(self, segments: Sequence[int], after: int, walk: Walk) -> Cursor | None:
        """Go through the log. Returns the place where it ended, None if there is nothing at all."""
        if not segments:
            return None
        cursor = self._start(segments, after)
        numbers = [number for number in segments if number >= segment_of(cursor.position)]
        for number in numbers:
            if segment_of(cursor.position) != number:
                cursor.position = position_of(number, 0)
                self._remember(cursor.copy())
            path = self.directory.segment_path(number)
            try:
                with self.directory.disk.mapped(path) as buffer:
                    view = memoryview(buffer)
                    try:
                        if walk.segment(view, number, cursor, self.seed):
                            return cursor
                    finally:
                        view.release()
            except FileNotFoundError:
                raise ClientFault(
                    f"the history behind {after} was deleted a moment ago", code="feed-gone"
                ) from None
        walk.came_to_the_end()
        return cursor


class Walk:
    """One walk: what is looked for, and what was found."""

    def __init__(
        self,
        reader: Reader,
        after: int,
        until: int,
        limit: int,
        wants: Callable[[int, int, memoryview | bytes], bool],
        kinds: frozenset[int],
        is_enough: Callable[[], bool],
    ) -> None:
        self._reader = reader
        self.after = after
        self.until = until
        self._limit = limit
        self._wants = wants
        self._kinds = kinds
        self._is_enough = is_enough
        self._size = 0
        self._looked = 0
        self.records: list[Fed] = []
        self.upto = after

    def came_to_the_end(self) -> None:
        """Of the log. What is missing up to where it was asked for was refused for want of room."""
        self.upto = max(self.upto, self.until)

    def segment(self, view: memoryview, number: int, cursor: Cursor, seed: int) -> bool:
        """Go through a segment from the cursor on. Whether the walk is over."""
        offset = offset_of(cursor.position)
        while True:
            header = read_frame_header(view, number, offset, seed)
            if header is None or offset + FRAME_HEADER_BYTES + header.length > len(view):
                return False
            if header.records and header.first_lsn > self.until:
                self.upto = max(self.upto, self.until)
                return True
            start = offset + FRAME_HEADER_BYTES
            end = header.first_lsn + header.records
            if not self._frame(view, start, header, number << OFFSET_BITS, cursor):
                return True  # in the middle of a frame: the cursor stays in front of it
            offset = start + header.length
            cursor.position, cursor.lsn = number << OFFSET_BITS | offset, end
            self.upto = max(self.upto, end - 1)
            if self.is_over(header.length if end > self.after else 0):
                return True

    def is_over(self, looked: int) -> bool:
        """Whether that was enough for now, having looked through so many bytes more."""
        self._looked += looked
        return self._size >= self._limit > 0 or self._looked >= FEED_LOOK_BYTES or self._is_enough()

    def _frame(self, view: memoryview, start: int, header: FrameHeader, base: int, cursor: Cursor) -> bool:
        """Whether it was gone through to its end."""
        stop = start + header.length
        is_read = header.first_lsn + header.records > self.after + 1
        if is_read and crc32c(view[start:stop]) != header.checksum:
            raise CorruptJournal(
                "a stored frame is damaged", path=f"segment {base >> OFFSET_BITS}", position=start
            )
        lsn, at = header.first_lsn, start
        before = None
        while at < stop:
            size, kind, _, _, destination, list_number = RECORD_HEADER.unpack_from(view, at)
            at += RECORD_HEADER_BYTES
            if lsn > self.until:
                self._undo(cursor, before)
                return False
            if before is None and is_read and self.until < header.first_lsn + header.records - 1:
                before = cursor.copy()  # the walk will end in this frame
            payload = view[at : at + size]
            if kind in OF_TRANSACTIONS:
                self.transaction(kind, destination, lsn, base | at, payload, cursor)
            if lsn > self.after:
                self.record(kind, destination, list_number, lsn, payload)
                self.upto = lsn
            at += size + 7 & ~7
            lsn += 1
        return True

    def _undo(self, cursor: Cursor, before: Cursor | None) -> None:
        if before is not None:
            cursor.staged, cursor.prepared = before.staged, before.prepared

    def record(self, kind: int, destination: int, list_number: int, lsn: int, payload: memoryview) -> None:
        if kind in self._kinds or (kind in _BLOCKS and self._wants(destination, kind, payload)):
            self.add(Fed(kind, destination, list_number, lsn, bytes(payload)))

    def add(self, record: Fed) -> None:
        self.records.append(record)
        self._size += len(record.payload) + RECORD_HEADER_BYTES

    # ---- transactions

    def transaction(
        self, kind: int, destination: int, lsn: int, position: int, payload: memoryview, cursor: Cursor
    ) -> None:
        if kind == RecordKind.STAGED:
            session = session_of(lane_and_first(payload)[0])
            cursor.staged.setdefault(session, []).append((destination, position, lsn))
        elif kind == RecordKind.PREPARED:
            promise = _decode_promise(payload)
            cursor.prepared[promise.session, promise.number] = cursor.staged.pop(promise.session, [])
        elif kind == RecordKind.STARTED:
            # What was open when the process before ended is in no transaction of those that its session begins since.
            cursor.staged.clear()
        else:
            outcome = _decode_outcome(payload)
            stages = cursor.prepared.pop((outcome.session, outcome.number), None)
            if stages is None:
                stages = cursor.staged.pop(outcome.session, [])
            if outcome.committed and stages and lsn > self.after:
                self._committed(outcome, stages, lsn)

    def _committed(self, outcome: _Outcome, stages: list[Stage], lsn: int) -> None:
        numbers = outcome.numbers if len(outcome.numbers) == len(stages) else [0] * len(stages)
        for (destination, position, _), number in zip(stages, numbers, strict=True):
            (block,) = self._reader.read([position])
            if RecordKind.PUBLISHED in self._kinds or self._wants(destination, RecordKind.PUBLISHED, block):
                self.add(Fed(RecordKind.PUBLISHED, destination, number & _LOW_BITS, lsn, block))
