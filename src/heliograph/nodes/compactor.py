"""Rewrites what is still needed of segments that are mostly done, so that a few waiting messages do not keep
much disk.

One destination's part of one segment at a time: read, append again, and, once the copies are stored, tell
the lists where they are now. A message is never without a stored record: the old one goes with the next
snapshot. What is done meanwhile is not moved.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

from heliograph.destinations.catalogue import Catalogue
from heliograph.destinations.destination import Destination
from heliograph.destinations.pages import SEGMENT_SHIFT, Page, entries_of
from heliograph.destinations.recovery import relocate
from heliograph.destinations.topic import Topic
from heliograph.journal.files import Journal
from heliograph.journal.records import RecordKind
from heliograph.model.errors import CorruptJournal

_PAIR = struct.Struct("<QQ")


class _Copies(msgspec.Struct):
    """Records that were appended again, and the LSN of the last."""

    destination: Destination
    moves: dict[int, int]
    lsns: range


class Compactor:
    """Moves the last messages out of old segments."""

    def __init__(self, journal: Journal, catalogue: Catalogue) -> None:
        self._journal = journal
        self._catalogue = catalogue
        self._segment: int | None = None
        self._reading = False
        self._copies: _Copies | None = None
        self.moved = 0

    def step(self) -> None:
        """Go on with a segment, if one is worth it and nothing is under way."""
        if self._reading or self._copies is not None or self._journal.is_full:
            return
        self._segment = self._journal.compactable()
        if self._segment is None:
            return
        for destination in self._catalogue.all_destinations():
            positions = list(needed_in(destination, self._segment))
            if positions:
                self._reading = True
                self._journal.load(positions, _Moving(self, destination, positions))
                return

    def read(
        self, destination: Destination, positions: list[int], found: list[bytes] | CorruptJournal
    ) -> None:
        """The records are here: append them again."""
        self._reading = False
        assert self._segment is not None
        if isinstance(found, CorruptJournal):
            return  # whoever needs the message will say so
        journal = self._journal
        needed = needed_in(destination, self._segment)
        first_lsn = journal.next_lsn
        moves = {
            position: journal.append(
                RecordKind.MOVED, destination.number, 0, (payload,), len(payload), bulky=True
            )
            for position, payload in zip(positions, found, strict=True)
            if position in needed
        }
        if moves:
            self._copies = _Copies(destination, moves, range(first_lsn, journal.next_lsn))

    def stored(self, lsn: int) -> None:
        """The log is stored this far."""
        copies = self._copies
        if copies is None or lsn < copies.lsns[-1]:
            return
        self._copies = None
        assert self._segment is not None
        needed = needed_in(copies.destination, self._segment)
        moves = {old: new for old, new in copies.moves.items() if old in needed}
        if not moves:
            return
        pairs = b"".join([_PAIR.pack(old, new) for old, new in moves.items()])
        self._journal.append(RecordKind.RELOCATED, copies.destination.number, 0, (pairs,), len(pairs))
        relocate(copies.destination, moves)
        self._catalogue.large.relocate(moves)
        for old, new in moves.items():
            self._journal.retain(new, needed[old])
            self._journal.release(old, needed[old])
        self.moved += len(moves)

    def refused(self, lsns: dict[int, None]) -> None:
        """The disk is full: stay where we are."""
        if self._copies is not None and any(lsn in lsns for lsn in self._copies.lsns):
            self._copies = None


class _Moving:
    """What to do with the records once they are read."""

    __slots__ = ("_compactor", "_destination", "_positions")

    def __init__(self, compactor: Compactor, destination: Destination, positions: list[int]) -> None:
        self._compactor = compactor
        self._destination = destination
        self._positions = positions

    def __call__(self, found: list[bytes] | CorruptJournal) -> None:
        self._compactor.read(self._destination, self._positions, found)


def needed_in(destination: Destination, segment: int) -> dict[int, int]:
    """Positions in a segment that are still needed, with the number of messages held there."""
    needed: dict[int, int] = {}
    for position, count in _held_by(destination, segment):
        if position >> SEGMENT_SHIFT == segment:
            needed[position] = needed.get(position, 0) + count
    return needed


def _held_by(destination: Destination, segment: int) -> Iterator[tuple[int, int]]:
    """What a topic's groups hold, they hold for all their subscriptions; a queue holds for itself."""
    if isinstance(destination, Topic):
        for group in destination.groups():
            for sequence in group.sequences().values():
                for page in sequence.pages():
                    yield from _of_page(page, segment)
        return
    for messages in destination.lists():
        for _, page in messages.waiting_pages():
            yield from _of_page(page, segment)
        for _, entry in messages.schedule.entries(spilled=True):
            yield entry.position, entry.messages
        for span in messages.all_spans():
            for entry in entries_of(span):
                if entry.position:
                    yield entry.position, entry.messages


def _of_page(page: Page, segment: int) -> Iterator[tuple[int, int]]:
    if page.touches(segment):
        for entry in page.entries():
            yield entry.position, entry.messages
