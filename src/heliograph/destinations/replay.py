"""What recovery makes of a list's records: which messages still wait, and which were handed out with no
outcome.

Records come in log order: published, dispatched, returned, done. A message that was dispatched and neither
done nor returned when the log ends may have been seen by its consumer, so it waits again with one delivery
more: marked redelivered.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from operator import attrgetter

from heliograph.destinations.pages import Entry, Page, in_order, pages_of

_number = attrgetter("number")


class EntryRuns:
    """Entries ordered by number, from which ranges of numbers can be cut."""

    __slots__ = ("_entries", "_numbers")

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._entries: list[Entry] = []

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entries: list[Entry]) -> None:
        if not entries:
            return
        in_order = not self._numbers or entries[0].number > self._numbers[-1]
        self._entries += entries
        self._numbers += map(_number, entries)
        if not in_order:
            self._entries.sort(key=_number)
            self._numbers.sort()

    def cut(self, first: int, last: int) -> list[Entry]:
        """Remove and return whatever there is of numbers first..last."""
        numbers, entries = self._numbers, self._entries
        begin = max(bisect_right(numbers, first) - 1, 0)
        end = bisect_right(numbers, last)
        if end - begin == 1:  # nearly always it is one, and whole
            entry = entries[begin]
            if entry.number >= first and entry.number + entry.messages - 1 <= last:
                del entries[begin], numbers[begin]
                return [entry]
        taken: list[Entry] = []
        kept: list[Entry] = []
        for entry in entries[begin:end]:
            before = min(max(first - entry.number, 0), entry.messages)
            behind = min(max(entry.last - last, 0), entry.messages)
            if entry.messages in (before, behind):
                kept.append(entry)
                continue
            if before:
                kept.append(_part(entry, 0, before))
            taken.append(_part(entry, before, entry.messages - behind))
            if behind:
                kept.append(_part(entry, entry.messages - behind, entry.messages))
        entries[begin:end] = kept
        numbers[begin:end] = map(_number, kept)
        return taken

    def has(self, first: int, last: int) -> bool:
        """Whether there is anything of numbers first..last."""
        index = bisect_right(self._numbers, last) - 1
        return index >= 0 and self._entries[index].last >= first

    def all(self) -> list[Entry]:
        return self._entries

    def move(self, places: dict[int, int]) -> None:
        """The pages that entries come from have other numbers now."""
        self._entries[:] = [entry._replace(origin=places[entry.origin]) for entry in self._entries]

    def relocate(self, moves: dict[int, int]) -> None:
        for index, entry in enumerate(self._entries):
            if entry.position in moves:
                self._entries[index] = entry._replace(position=moves[entry.position])


def _part(entry: Entry, start: int, stop: int) -> Entry:
    if start == 0 and stop == entry.messages:
        return entry
    return entry._replace(number=entry.number + start, start=entry.start + start, messages=stop - start)


class LevelReplay:
    """One priority of one list."""

    def __init__(self) -> None:
        self._head = EntryRuns()
        self._pages: deque[Page] = deque()
        self.dispatched = EntryRuns()
        self.pledged = EntryRuns()  # handed out, and consumed in transactions that are prepared

    def published(self, number: int, position: int, start: int, count: int, size: int) -> None:
        pages = self._pages
        if not pages or pages[-1].full or pages[-1].deliveries:
            pages.append(Page())
        pages[-1].append(number, position, start, count, size)

    def was_dispatched(self, first: int, last: int) -> None:
        self.dispatched.add(self._cut_waiting(first, last))

    def was_returned(self, first: int, last: int) -> None:
        self._head.add([again(entry) for entry in self.dispatched.cut(first, last)])

    def was_unseen(self, first: int, last: int) -> None:
        self._head.add(self.dispatched.cut(first, last))

    def claim(self, first: int, last: int) -> list[Entry]:
        """Somebody has what is handed out of these: they are not for recovery to give back."""
        return self.dispatched.cut(first, last)

    def was_done(self, first: int, last: int) -> None:
        self.dispatched.cut(first, last)
        self.pledged.cut(first, last)
        self._cut_waiting(first, last)

    def was_pledged(self, first: int, last: int) -> None:
        self.pledged.add(self.dispatched.cut(first, last))

    def was_not_redeemed(self, first: int, last: int) -> None:
        """As if a consumer had them; records that follow say that they returned."""
        self.dispatched.add(self.pledged.cut(first, last))

    def claim_pledged(self, first: int, last: int) -> list[Entry]:
        """A transaction has these: they are not for recovery to give back."""
        return self.pledged.cut(first, last)

    def handed_out(self) -> list[Entry]:
        return sorted([*self.dispatched.all(), *self.pledged.all()])

    def _cut_waiting(self, first: int, last: int) -> list[Entry]:
        pages = self._pages
        while pages and pages[0].first <= last:
            self._head.add(pages.popleft().entries())
        return self._head.cut(first, last)

    def restore(self, pages: list[Page], dispatched: list[Entry]) -> None:
        self._pages.extend(in_order(pages))
        self.dispatched.add(dispatched)

    def restarted(self, *, everything_again: bool) -> None:
        """What was handed out returns. `everything_again`: all may have been, without a trace."""
        self._head.add([again(entry) for entry in self.dispatched.all()])
        self.dispatched = EntryRuns()
        if everything_again:
            entries = self._head.all()
            entries[:] = [entry._replace(deliveries=max(entry.deliveries, 1)) for entry in entries]
            for page in self._pages:
                page.deliveries = max(page.deliveries, 1)

    def finish(self) -> list[Page]:
        """The pages that wait now. More may follow."""
        entries = self._head.all()
        while self._pages and entries and self._pages[0].first <= entries[-1].last:
            self._head.add(self._pages.popleft().entries())
            entries = self._head.all()
        return [*pages_of(entries), *self._pages]

    def relocate(self, moves: dict[int, int]) -> None:
        for page in self._pages:
            page.relocate(moves)
        self._head.relocate(moves)
        self.dispatched.relocate(moves)
        self.pledged.relocate(moves)


def again(entry: Entry) -> Entry:
    """Handed out once more than before."""
    return entry._replace(deliveries=entry.deliveries + 1)
