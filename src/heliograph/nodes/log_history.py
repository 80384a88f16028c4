"""Reading the log of a sub-cluster by index (D2, docs/decisions/0024): what `journal/feed.py` does by LSN.

A journal is looked through once, from header to header, for **stretches**: records of the log that follow one another
in a segment. Where they begin is counted from the places that say their index. What a cut disowned is in none of
them; what was brought from another manager is in stretches of its own. A reader goes through those that follow one
another by index, wherever they are, and never over a hole.

Runs on the thread of the feed, of which it uses the files.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

import msgspec
from crc32c import crc32c

from heliograph.cluster.history import Cut, HistoryMap
from heliograph.cluster.log import LOCAL, place_in
from heliograph.journal.feed import OF_TRANSACTIONS, Cursor, Fed, FeedReader, Portion, Walk
from heliograph.journal.records import (
    FRAME_HEADER_BYTES,
    RECORD_HEADER,
    RECORD_HEADER_BYTES,
    FrameHeader,
    RecordKind,
    offset_of,
    position_of,
    read_frame_header,
    segment_of,
)
from heliograph.model.errors import ClientFault, CorruptJournal
from heliograph.model.limits import FEED_CURSORS

_INDEX_BYTES: Final = 8
_BEFORE_PAYLOAD: Final = _INDEX_BYTES + RECORD_HEADER_BYTES
_PLACES: Final = (RecordKind.VIEW, RecordKind.PLACE)


class Known(NamedTuple):
    """What is known of a journal when it is looked at: all of it up to `lsn` is written, and the log had `reached`
    this index there."""

    lsn: int
    reached: int
    history: HistoryMap


class Stretch(msgspec.Struct):
    """Records `first` to `last` of the log, in a segment from the frame at `position` on."""

    position: int
    first: int
    last: int
    is_brought: bool = False

    @property
    def segment(self) -> int:
        return segment_of(self.position)


class Entry(NamedTuple):
    """One record of the log, and where its payload stands."""

    number: int
    kind: int
    destination: int
    list: int
    position: int
    payload: memoryview


def history_record(fed: Fed) -> bytes:
    """What a record HISTORY says: an index, and the record with its header. Whoever reads the payload at its position
    finds in front of it what is always there."""
    index = fed.lsn.to_bytes(_INDEX_BYTES, "little")
    header = RECORD_HEADER.pack(len(fed.payload), fed.kind, 0, 0, fed.destination, fed.list)
    return index + header + fed.payload


class LogHistory:
    """The history that one journal has. One owner at a time: the thread of its feed."""

    def __init__(self) -> None:
        self._history: HistoryMap | None = None
        self._known = Known(0, 0, HistoryMap())
        self._stretches: list[Stretch] = []
        self._cursors: dict[int, Cursor] = {}  # by the index of what comes next, the one used last at the end
        self._begin()

    def _begin(self) -> None:
        """Look through everything anew."""
        self._stretches.clear()
        self._cursors.clear()
        self._at = 0  # how far was looked, as a position
        self._next_lsn = 0
        self._index = 0  # of the last record there; if it is not placed, counted from where the looking began
        self._is_placed = False
        self._unplaced: list[Stretch] = []
        self._open: Stretch | None = None
        self._open_brought: Stretch | None = None
        self._cuts: deque[Cut] = deque()

    def on(self, feed: FeedReader, segments: Sequence[int], known: Known) -> LogHistory:
        """Look at what was written since this was last done, and forget what was deleted."""
        self._feed, self._known = feed, known
        if known.history != self._history:
            self._begin()
            self._history = known.history
            self._cuts.extend(known.history.cuts)
        there = dict.fromkeys(segments)
        self._stretches = [each for each in self._stretches if each.segment in there]
        self._unplaced = [each for each in self._unplaced if each.segment in there]
        self._cursors = {
            index: cursor for index, cursor in self._cursors.items() if segment_of(cursor.position) in there
        }
        for number in segments:
            if number >= segment_of(self._at) and not self._look_through(number):
                break
        if self._next_lsn > known.lsn:
            self._placed_at(known.reached)
        return self

    # ---- looking through

    def _look_through(self, number: int) -> bool:
        """Whether that was all of it: more may have been written meanwhile."""
        if segment_of(self._at) != number:
            self._at, self._open = position_of(number, 0), None
        with self._mapped(number) as view:
            offset = offset_of(self._at)
            while header := self._frame_at(view, number, offset):
                if header.first_lsn + header.records - 1 > self._known.lsn:
                    return False
                self._look_at_frame(view, position_of(number, offset), header)
                offset += FRAME_HEADER_BYTES + header.length
                self._at = position_of(number, offset)
        return True

    def _look_at_frame(self, view: memoryview, position: int, header: FrameHeader) -> None:
        if header.first_lsn - header.skipped != self._next_lsn:
            self._came_from_elsewhere(header.first_lsn - header.skipped)
        while self._cuts and header.first_lsn > self._cuts[0].lsn:
            self._cut(self._cuts.popleft())
        lsn, at = header.first_lsn, offset_of(position) + FRAME_HEADER_BYTES
        stop = at + header.length
        while at < stop:
            size, kind, *_ = RECORD_HEADER.unpack_from(view, at)
            at += RECORD_HEADER_BYTES
            if kind not in LOCAL:
                self._index += 1
                self._counted(position)
            elif kind in _PLACES:
                index = place_in(kind, view[at : at + size])
                assert index is not None, "it is a record that says so"
                self._placed_at(index)
            elif kind == RecordKind.HISTORY and self._known.history.counts(lsn):
                self._was_brought(position, int.from_bytes(view[at : at + _INDEX_BYTES], "little"))
            at += size + 7 & ~7
            lsn += 1
        self._next_lsn = lsn

    def _came_from_elsewhere(self, lsn: int) -> None:
        """What stood between was deleted before it was looked at, or never was."""
        self._unplaced.clear()
        self._open = None
        self._index, self._is_placed = 0, lsn <= 1

    def _counted(self, position: int) -> None:
        if self._open is None:
            self._open = Stretch(position, self._index, self._index)
            (self._stretches if self._is_placed else self._unplaced).append(self._open)
        self._open.last = self._index

    def _placed_at(self, index: int) -> None:
        if self._is_placed:
            if index != self._index:
                raise CorruptJournal(
                    f"the log is at {index}, and its records come to {self._index}",
                    path=f"segment {segment_of(self._at)}",
                    position=offset_of(self._at),
                )
            return
        for stretch in self._unplaced:
            stretch.first += index - self._index
            stretch.last += index - self._index
        self._stretches += self._unplaced
        self._unplaced = []
        self._index, self._is_placed = index, True

    def _cut(self, cut: Cut) -> None:
        """Nothing of what was found so far counts that is behind the fork."""
        self._unplaced.clear()
        for stretch in self._stretches:
            stretch.last = min(stretch.last, cut.fork)
        self._stretches = [each for each in self._stretches if each.first <= each.last]
        self._cursors.clear()
        # What is brought from here on does not go on with what was brought before, though it follows by index: what
        # the cut disowned stands between.
        self._open = self._open_brought = None
        self._index, self._is_placed = cut.index, True

    def _was_brought(self, position: int, index: int) -> None:
        last = self._open_brought
        if last is not None and last.last + 1 == index and last.segment == segment_of(position):
            last.last = index
        else:
            self._open_brought = Stretch(position, index, index, is_brought=True)
            self._stretches.append(self._open_brought)

    # ---- what there is

    def _chain(self, index: int) -> list[Stretch]:
        """Stretches one behind the other, from the one that has this index on."""
        chain: list[Stretch] = []
        for stretch in sorted(self._stretches, key=_order):
            if stretch.last >= index >= stretch.first:
                chain.append(stretch)
                index = stretch.last + 1
        return chain

    def first(self, _segments: Sequence[int] = ()) -> int:
        """The index before the first from which on everything is there."""
        first = self._known.reached + 1
        for stretch in sorted(self._stretches, key=_end, reverse=True):
            if stretch.last >= first - 1:
                first = min(first, stretch.first)
        return first - 1

    def missing(self, after: int, until: int) -> list[tuple[int, int]]:
        """What is not there: everything behind the first of two indexes up to the second."""
        holes: list[tuple[int, int]] = []
        for stretch in sorted(self._stretches, key=_order):
            if stretch.first > after + 1 and after < until:
                holes.append((after, min(stretch.first - 1, until)))
            after = max(after, stretch.last)
        if after < until:
            holes.append((after, until))
        return holes

    def floor(self, _segments: Sequence[int], after: int) -> int:
        """The first segment that a reader needs who has everything up to `after`. Raises ClientFault `feed-gone`."""
        return min([self._cursor_behind(after).floor, *self._segments_behind(after)])

    def floor_of_rest(self, _segments: Sequence[int], after: int) -> int:
        """The same, where not all of it has to be there."""
        try:
            return self.floor(_segments, after)
        except ClientFault:
            return min(self._segments_behind(after))

    def needs(self, after: int) -> int:
        """The index before the first record that such a reader needs. Raises ClientFault `feed-gone`."""
        return self._cursor_behind(after).needs - 1

    def lacks(self, after: int) -> bool:
        """Whether such a reader would not find all that it needs."""
        try:
            return bool(self.missing(self.needs(after), self._known.reached))
        except ClientFault:
            return True

    def _segments_behind(self, after: int) -> list[int]:
        """Where there is anything behind an index, and where more will be."""
        return [segment_of(self._at), *(each.segment for each in self._stretches if each.last > after)]

    def _cursor_behind(self, after: int) -> Cursor:
        cursor = self._walk(Walk(self._feed.reader, after, after, 0, _nothing, frozenset(), _never))
        self._remember(cursor)
        return cursor

    # ---- reading

    def read(
        self,
        _segments: Sequence[int],
        after: int,
        until: int,
        limit: int,
        wants: Callable[[int, int, memoryview | bytes], bool],
        kinds: Collection[int] = (),
        is_enough: Callable[[], bool] = lambda: False,
    ) -> Portion:
        """As the feed of a journal does."""
        walk = Walk(self._feed.reader, after, until, limit, wants, frozenset(kinds), is_enough)
        self._remember(self._walk(walk))
        return Portion(walk.records, walk.upto)

    def copy(self, after: int, until: int, limit: int) -> Portion:
        """All records behind an index, up to another, as they stand: for a manager that lacks them.

        Raises ClientFault `feed-gone`."""
        walk = _Copying(self._feed.reader, after, until, limit, _nothing, frozenset(), _never)
        self._walk(walk, self._start(after, keeps_stages=False))
        return Portion(walk.records, walk.upto)

    def _remember(self, cursor: Cursor) -> None:
        self._cursors.pop(cursor.lsn, None)
        self._cursors[cursor.lsn] = cursor
        if len(self._cursors) > FEED_CURSORS:
            del self._cursors[next(iter(self._cursors))]

    def _start(self, after: int, *, keeps_stages: bool = True) -> Cursor:
        """The last known place at or before the record that follows `after`."""
        at = min(after, self._known.reached)
        for lsn in sorted((lsn for lsn in self._cursors if lsn <= at + 1), reverse=True):
            if self._reaches(lsn, at):
                return self._cursors[lsn].copy()
        firsts = sorted(each.first for each in self._stretches if each.first <= at + 1)
        for first in firsts if keeps_stages else reversed(firsts):
            if self._reaches(first, at):
                return Cursor(first, self._chain(first)[0].position, {}, {})
        if after >= self._known.reached:  # there is nothing yet
            return Cursor(self._known.reached + 1, self._at, {}, {})
        raise ClientFault(
            f"the history behind {after} is gone: what is there begins behind {self.first()}",
            code="feed-gone",
        )

    def _reaches(self, index: int, at: int) -> bool:
        """Whether there is no hole from one to the other."""
        if index > at:
            return True
        chain = self._chain(index)
        return bool(chain) and chain[-1].last >= at

    def _walk(self, walk: Walk, cursor: Cursor | None = None) -> Cursor:
        """Go through the log. Returns the place where it ended."""
        cursor = cursor or self._start(walk.after)
        for stretch in self._chain(cursor.lsn):
            if not _is_in(stretch, cursor):
                cursor.position = stretch.position
            with self._mapped(stretch.segment) as view:
                if self._walk_in(view, stretch, walk, cursor):
                    return cursor
        # Whoever asks for what is not there is told so when it asks again.
        if cursor.lsn <= min(walk.until, self._known.reached) and walk.upto <= walk.after < walk.until:
            raise ClientFault(
                f"of the history something is missing behind {cursor.lsn - 1}", code="feed-gone"
            )
        return cursor

    def _walk_in(self, view: memoryview, stretch: Stretch, walk: Walk, cursor: Cursor) -> bool:
        """Go through a stretch from the cursor on. Whether the walk is over."""
        number, offset = stretch.segment, offset_of(cursor.position)
        index = cursor.lsn if offset != offset_of(stretch.position) else stretch.first
        while index <= stretch.last:
            if index > walk.until:
                walk.upto = max(walk.upto, walk.until)
                return True
            header = self._frame_at(view, number, offset)
            if header is None:
                raise CorruptJournal(
                    "a frame that was read before is gone", path=f"segment {number}", position=offset
                )
            end = self._walk_frame(view, position_of(number, offset), header, stretch, index, walk, cursor)
            if not end:
                return True  # in the middle of a frame: the cursor stays in front of it
            looked = header.length if end - 1 > walk.after else 0
            index = end
            offset += FRAME_HEADER_BYTES + header.length
            cursor.position = position_of(number, offset)
            if cursor.lsn < index:
                cursor.lsn = index
                walk.upto = max(walk.upto, index - 1)
            if walk.is_over(looked):
                return True
        return False

    def _walk_frame(
        self,
        view: memoryview,
        position: int,
        header: FrameHeader,
        stretch: Stretch,
        index: int,
        walk: Walk,
        cursor: Cursor,
    ) -> int:
        """The index behind the frame; 0: it was not gone through to its end."""
        before: Cursor | None = None
        is_checked = False
        for entry in _entries(view, position, header, index, stretch, self._known.history):
            index = entry.number + 1
            if entry.number < cursor.lsn:
                continue  # it was come to on another way
            if entry.number > walk.until:
                walk.upto = max(walk.upto, walk.until)
                if before is not None:
                    cursor.staged, cursor.prepared = before.staged, before.prepared
                return 0
            if entry.kind in OF_TRANSACTIONS:
                before = before or cursor.copy()
                walk.transaction(
                    entry.kind, entry.destination, entry.number, entry.position, entry.payload, cursor
                )
            if entry.number > walk.after:
                if not is_checked:
                    is_checked = True
                    _check(view, position, header)
                walk.record(entry.kind, entry.destination, entry.list, entry.number, entry.payload)
                walk.upto = entry.number
        return index

    # ---- files

    @contextmanager
    def _mapped(self, number: int) -> Iterator[memoryview]:
        """The bytes of a segment, for a while. Raises ClientFault `feed-gone`."""
        directory = self._feed.directory
        try:
            with directory.disk.mapped(directory.segment_path(number)) as buffer:
                view = memoryview(buffer)
                try:
                    yield view
                finally:
                    view.release()
        except FileNotFoundError:
            raise ClientFault(
                f"segment {number} of the history was deleted a moment ago", code="feed-gone"
            ) from None

    def _frame_at(self, view: memoryview, number: int, offset: int) -> FrameHeader | None:
        header = read_frame_header(view, number, offset, self._feed.seed)
        if header is None or offset + FRAME_HEADER_BYTES + header.length > len(view):
            return None
        return header


class _Copying(Walk):
    """Takes everything as it stands."""

    def transaction(self, *_: object) -> None:
        """Whoever has the copy makes of it what it likes."""

    def record(self, kind: int, destination: int, list_number: int, lsn: int, payload: memoryview) -> None:
        self.add(Fed(kind, destination, list_number, lsn, bytes(payload)))


def _entries(
    view: memoryview, position: int, header: FrameHeader, index: int, stretch: Stretch, history: HistoryMap
) -> Iterator[Entry]:
    """The records of a frame that a stretch has; `index`: of the first of them that is not brought."""
    base, lsn = position - offset_of(position), header.first_lsn
    at = offset_of(position) + FRAME_HEADER_BYTES
    stop = at + header.length
    while at < stop:
        size, kind, _, _, destination, list_number = RECORD_HEADER.unpack_from(view, at)
        at += RECORD_HEADER_BYTES
        behind = at + (size + 7 & ~7)
        if stretch.is_brought:
            if kind == RecordKind.HISTORY and history.counts(lsn):
                index = int.from_bytes(view[at : at + _INDEX_BYTES], "little")
                inner, stop_at = at + _BEFORE_PAYLOAD, at + size
                _, kind, _, _, destination, list_number = RECORD_HEADER.unpack_from(view, at + _INDEX_BYTES)
                if stretch.first <= index <= stretch.last:
                    yield Entry(index, kind, destination, list_number, base | inner, view[inner:stop_at])
        elif kind not in LOCAL:
            if index > stretch.last:
                return
            yield Entry(index, kind, destination, list_number, base | at, view[at : at + size])
            index += 1
        at = behind
        lsn += 1


def _check(view: memoryview, position: int, header: FrameHeader) -> None:
    start = offset_of(position) + FRAME_HEADER_BYTES
    if crc32c(view[start : start + header.length]) != header.checksum:
        raise CorruptJournal(
            "a stored frame is damaged", path=f"segment {segment_of(position)}", position=start
        )


def _is_in(stretch: Stretch, cursor: Cursor) -> bool:
    """Whether a cursor is somewhere in a stretch; if it is at its beginning, that is where it begins anyway."""
    return (
        segment_of(cursor.position) == stretch.segment
        and cursor.position > stretch.position
        and stretch.first < cursor.lsn <= stretch.last
    )


def _order(stretch: Stretch) -> tuple[int, int]:
    return stretch.first, -stretch.last


def _end(stretch: Stretch) -> int:
    return stretch.last


def _nothing(*_: object) -> bool:
    return False


def _never() -> bool:
    return False
