"""What recovery makes of a topic's records: one sequence per group and priority, one cursor per
subscription."""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter

from heliograph.cluster.ranges import Ranges
from heliograph.destinations.pages import Entry, Page, pages_of
from heliograph.destinations.replay import EntryRuns, again
from heliograph.destinations.sequence import Sequence
from heliograph.destinations.snapshot import (
    CursorState,
    DestinationState,
    SequenceState,
    SubscriptionState,
)
from heliograph.destinations.subscriptions import Group, Subscription
from heliograph.destinations.topic import Topic
from heliograph.destinations.waiting import Residence
from heliograph.model.block import Block

_first = attrgetter("first")


class SequenceReplay:
    """The messages of a group at one priority, oldest first. A page is a chunk."""

    def __init__(self) -> None:
        self.pages: list[Page] = []
        self._grows = False

    def published(self, number: int, position: int, start: int, count: int, size: int) -> None:
        # Pages of the snapshot do not grow: nobody may need their messages, whose segments are then gone, and
        # whoever needs a new one would hold them all.
        if not self._grows or self.pages[-1].full:
            self._grows = True
            self.pages.append(Page(origin=len(self.pages)))
        self.pages[-1].append(number, position, start, count, size)

    @property
    def end(self) -> int:
        """The number behind the last message."""
        return self.pages[-1].next if self.pages else 0

    def between(self, first: int, last: int) -> list[Entry]:
        """Entries with numbers first..last, cut to fit."""
        runs = EntryRuns()
        for index in range(max(bisect_right(self.pages, first, key=_first) - 1, 0), len(self.pages)):
            page = self.pages[index]
            if page.first > last:
                break
            if first < page.next:
                runs.add(page.entries())
        return runs.cut(first, last)

    def trim(self, cursors: list[CursorReplay]) -> None:
        """Nobody will ask for pages that all have read and settled. The others move up."""
        needed = {
            entry.origin for cursor in cursors for entry in (*cursor.waiting.all(), *cursor.handed_out())
        }
        read = min((cursor.next_number for cursor in cursors), default=self.end)
        kept = [page for page in self.pages if page.next > read or page.origin in needed]
        if len(kept) == len(self.pages):
            return
        self._grows = self._grows and bool(kept) and kept[-1] is self.pages[-1]
        self._lay_out(kept, cursors)

    def _lay_out(self, pages: list[Page], cursors: list[CursorReplay]) -> None:
        places = {page.origin: index for index, page in enumerate(pages)}
        for cursor in cursors:
            cursor.waiting.move(places)
            cursor.dispatched.move(places)
            cursor.pledged.move(places)
        for index, page in enumerate(pages):
            page.origin = index
        self.pages = pages

    def entries_like(self, entries: list[Entry], cursors: list[CursorReplay]) -> list[Entry]:
        """The same messages, which another group has, as this one has them.

        What it lacks, because nobody was in it or all were through with it, comes back in pages of its own. All
        cursors have passed that: what somebody has yet to read is here.
        """
        here, lacking = EntryRuns(), EntryRuns()
        for page in self.pages:
            here.add(page.entries())
        lacking.add([entry._replace(deliveries=0, origin=-1) for entry in entries])
        for entry in entries:
            for found in here.cut(entry.number, entry.last):
                lacking.cut(found.number, found.last)
        if lacking.all():
            self._grows = False
            added = pages_of(lacking.all())
            for number, page in enumerate(added, len(self.pages)):
                page.origin = number
            self._lay_out(sorted([*self.pages, *added], key=_first), cursors)
        runs = EntryRuns()
        for page in self.pages:
            runs.add(page.entries())
        return [found for entry in entries for found in runs.cut(entry.number, entry.last)]


def _seen(entry: Entry) -> Entry:
    """Handed out at least once."""
    return entry._replace(deliveries=max(entry.deliveries, 1))


class CursorReplay:
    """One subscription in one sequence."""

    def __init__(self, sequence: SequenceReplay, next_number: int) -> None:
        self._sequence = sequence
        self.next_number = next_number
        self.seen = 0  # what has a lower number may have been handed out without a trace
        self.waiting = EntryRuns()  # read and not settled
        self.dispatched = EntryRuns()
        self.pledged = EntryRuns()  # handed out, and consumed in transactions that are prepared
        self.claimed: list[Entry] = []

    def _read_to(self, number: int) -> None:
        """The cursor has passed everything up to this number; what was passed waits until a record says
        more."""
        if number >= self.next_number:
            self.waiting.add(self._marked(self._sequence.between(self.next_number, number)))
            self.next_number = number + 1

    def _marked(self, entries: list[Entry]) -> list[Entry]:
        runs = EntryRuns()
        runs.add(entries)
        runs.add([_seen(entry) for entry in runs.cut(0, self.seen - 1)])
        return runs.all()

    def lying(self, numbers: Ranges) -> list[Entry]:
        """What there is of these, read or not; where nobody consumes."""
        runs = EntryRuns()
        runs.add(list(self.waiting.all()))
        runs.add(self._sequence.between(self.next_number, self._sequence.end))
        return [entry for first, last in numbers for entry in runs.cut(first, last)]

    def was_dispatched(self, first: int, last: int) -> None:
        self._read_to(last)
        self.dispatched.add(self.waiting.cut(first, last))

    def was_returned(self, first: int, last: int) -> None:
        self.waiting.add([again(entry) for entry in self.dispatched.cut(first, last)])

    def was_unseen(self, first: int, last: int) -> None:
        self.waiting.add(self.dispatched.cut(first, last))

    def claim(self, first: int, last: int) -> list[Entry]:
        """Somebody has what is handed out of these: they are not for recovery to give back."""
        claimed = self.dispatched.cut(first, last)
        self.claimed += claimed
        return claimed

    def was_done(self, first: int, last: int) -> None:
        self._read_to(last)
        self.dispatched.cut(first, last)
        self.pledged.cut(first, last)
        self.waiting.cut(first, last)

    def was_pledged(self, first: int, last: int) -> None:
        self.pledged.add(self.dispatched.cut(first, last))

    def was_not_redeemed(self, first: int, last: int) -> None:
        """As if a consumer had them; records that follow say that they returned."""
        self.dispatched.add(self.pledged.cut(first, last))

    def claim_pledged(self, first: int, last: int) -> list[Entry]:
        """A transaction has these: they are not for recovery to give back."""
        claimed = self.pledged.cut(first, last)
        self.claimed += claimed
        return claimed

    def handed_out(self) -> list[Entry]:
        return sorted([*self.dispatched.all(), *self.pledged.all()])

    def restarted(self, *, everything_again: bool) -> None:
        """What was handed out returns. `everything_again`: all may have been, without a trace."""
        self.waiting.add([again(entry) for entry in self.dispatched.all()])
        self.dispatched = EntryRuns()
        if everything_again:
            entries = self.waiting.all()
            entries[:] = map(_seen, entries)
            self.seen = self._sequence.end


class TopicReplay:
    """A whole topic. Groups and subscriptions are made in the topic itself as their records come."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self._sequences: dict[tuple[tuple[str, bytes], int], SequenceReplay] = {}
        self._cursors: dict[tuple[int, int], CursorReplay] = {}
        self._begins: dict[int, int] = {}  # subscription: number of its first message

    def sequence(self, group: Group, priority: int) -> SequenceReplay:
        key = (group.key, priority)
        found = self._sequences.get(key)
        if found is None:
            found = self._sequences[key] = SequenceReplay()
        return found

    def cursor(self, subscription: Subscription, priority: int) -> CursorReplay:
        number = subscription.messages.number
        found = self._cursors.get((number, priority))
        if found is None:
            found = CursorReplay(self.sequence(subscription.group, priority), self._begins[number])
            self._cursors[number, priority] = found
        return found

    def begins(self, subscription: Subscription, number: int) -> None:
        of_list = subscription.messages.number
        self._begins[of_list] = number
        # One that ended may have had its number, and needed what was deleted since.
        self._cursors = {key: cursor for key, cursor in self._cursors.items() if key[0] != of_list}

    def inherits(self, subscription: Subscription, numbers: Ranges) -> None:
        """It gets these, of what is kept for subscriptions of other parts: it is one of them (P4)."""
        kept = self.topic.subscriptions.get(self.topic.kept_list or 0)
        if kept is None or not numbers:
            return
        for priority, source in self.by_priority(kept.messages.number):
            entries = source.lying(numbers)
            if entries:
                sequence = self.sequence(subscription.group, priority)
                heir = self.cursor(subscription, priority)
                cursors = self._cursors_in(subscription.group, priority)
                heir.waiting.add(sequence.entries_like(entries, cursors))

    def published(self, block: Block, position: int, runs: list[tuple[int, int, int]]) -> None:
        """`runs`: the block by priority. Only groups that somebody is in keep anything."""
        for group, spans in self.topic.selected(block):
            for start, stop in spans:
                for priority, first, last in runs:
                    low, high = max(start, first), min(stop, last)
                    if low < high:
                        size = block.size * (high - low) // block.count
                        sequence = self.sequence(group, priority)
                        sequence.published(block.number + low, position, low, high - low, size)

    def of_list(self, number: int) -> list[CursorReplay]:
        """The cursors of a subscription, one for each priority that its group has had."""
        return [cursor for _, cursor in self.by_priority(number)]

    def by_priority(self, number: int) -> list[tuple[int, CursorReplay]]:
        subscription = self.topic.subscriptions.get(number)
        if subscription is None:
            return []
        priorities = [priority for key, priority in self._sequences if key == subscription.group.key]
        return [(priority, self.cursor(subscription, priority)) for priority in priorities]

    def end_volatile(self) -> None:
        """Subscriptions that end with their consumers do not outlive the server that had those."""
        for number, subscription in list(self.topic.subscriptions.items()):
            if not subscription.terms.durable:
                self.topic.forget_subscription(number)

    def relocate(self, moves: dict[int, int]) -> None:
        for sequence in self._sequences.values():
            for page in sequence.pages:
                page.relocate(moves)
        for cursor in self._cursors.values():
            cursor.waiting.relocate(moves)
            cursor.dispatched.relocate(moves)
            cursor.pledged.relocate(moves)

    def restarted(self, *, everything_again: bool) -> None:
        if everything_again:
            for number in self.topic.subscriptions:
                self.of_list(number)  # also those to which nothing has happened yet
        for cursor in self._cursors.values():
            cursor.restarted(everything_again=everything_again)

    def add_state(self, state: DestinationState) -> list[Page]:
        """Sequences and subscriptions as they stand. Returns the pages that are held."""
        self._trim()
        held: list[Page] = []
        for ((selector, without), priority), sequence in self._sequences.items():
            state.sequences.append(SequenceState(selector, without, priority, sequence.pages))
            held += sequence.pages
        for number, subscription in self.topic.subscriptions.items():
            cursors = [
                CursorState(
                    priority,
                    cursor.next_number,
                    list(cursor.waiting.all()),
                    cursor.handed_out(),
                    cursor.seen,
                )
                for priority, cursor in self.by_priority(number)
            ]
            begins = self._begins[number]
            state.subscriptions.append(SubscriptionState(number, subscription.terms, begins, cursors))
        return held

    def _trim(self) -> None:
        groups = {group.key: group for group in self.topic.groups()}
        for key, priority in list(self._sequences):
            if key not in groups:
                del self._sequences[key, priority]
        for (key, priority), sequence in self._sequences.items():
            sequence.trim(self._cursors_in(groups[key], priority))

    def _cursors_in(self, group: Group, priority: int) -> list[CursorReplay]:
        members = [each for each in self.topic.subscriptions.values() if each.group is group]
        return [self.cursor(subscription, priority) for subscription in members]

    def finish(self, residence: Residence) -> list[Page]:
        """Give the topic what waits in it. Returns the pages that are held."""
        held: list[Page] = []
        for group in self.topic.groups():
            for (key, priority), replay in self._sequences.items():
                if key == group.key:
                    group.restore_sequence(priority, Sequence.restore(replay.pages, residence))
        for subscription in self.topic.subscriptions.values():
            self.topic.begin(subscription)
            for priority in subscription.group.sequences():
                cursor = self.cursor(subscription, priority)
                level = subscription.messages.shared_level(priority)
                level.restore(cursor.next_number, cursor.waiting.all(), cursor.seen, cursor.claimed)
        for group in self.topic.groups():
            for sequence in group.sequences().values():
                sequence.drop_unheld()
                held += sequence.pages()
        return held
