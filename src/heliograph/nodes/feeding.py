"""Hands out the history of the journal by LSN, and keeps it for those who hold it (D2).

A position is an LSN: everything up to it was read. Readers see what is stored and nothing beyond, so that what they
saw once stays (PROTOCOL 5).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from heliograph.admin.pipelines import name_in, number_in, seconds_in
from heliograph.admin.subjects import argument
from heliograph.bus.commands import Asked
from heliograph.destinations.pipelines import Kind, Mark
from heliograph.destinations.transactions import CommitRecord
from heliograph.journal.feed import Fed, FeedReader, Portion
from heliograph.journal.records import RecordKind
from heliograph.model.address_pattern import AddressPattern
from heliograph.model.block import UNITS, parse_trusted
from heliograph.model.errors import ClientFault, HeliographError, Unavailable
from heliograph.model.hash_ranges import VALUES, stretches_in
from heliograph.model.limits import (
    FEED_PORTION_BYTES,
    HOLD_SECONDS,
    MAX_FEED_PORTION_BYTES,
    MAX_HOLD_SECONDS,
)
from heliograph.model.portions import FED
from heliograph.nodes.log_history import Known, LogHistory

if TYPE_CHECKING:
    from heliograph.nodes.message_manager import MessageManager
    from heliograph.nodes.pipelines import Pipelines

EVENTS: Final = (
    RecordKind.PUBLISHED,
    RecordKind.ADOPTED,
    RecordKind.JOINED,
    RecordKind.DONE,
    RecordKind.DISPATCHED,
    RecordKind.RETURNED,
    RecordKind.UNSEEN,
    RecordKind.COMMITTED,
    RecordKind.STARTED,
    RecordKind.DESTINATION,
    RecordKind.SUBSCRIPTION,
    RecordKind.MERGED,
    RecordKind.TIME,
)
"""What an audit looks at."""
TIMES: Final = (RecordKind.MERGED, RecordKind.TIME)
"""What it looks at ahead of that, to know when it was."""
Result = TypeVar("Result")
History = FeedReader | LogHistory
"""By LSN, where a server is alone; or by the index of the log that several have."""
_decode_commit = msgspec.msgpack.Decoder(CommitRecord).decode
_MOST: Final = 1 << 62
_NEVER: Final = 0


class Feeding:
    """The feed of one message manager, and its holds."""

    def __init__(self, manager: MessageManager, pipelines: Pipelines) -> None:
        self._manager = manager
        self._pipelines = pipelines
        self._floors: dict[str, int] = {}  # by the name of the hold: the first segment that it needs
        self._log = LogHistory() if manager.catalogue.is_replicated else None
        self._is_following = False
        self._follows_again = False
        self._is_over = False
        self.on_lack: Callable[[], None] = lambda: None  # what readers hold is not all here

    def stop(self) -> None:
        """Whoever leads next answers what this one is still looking for."""
        self._is_over = True

    def look(
        self, job: Callable[[History, list[int]], Result], then: Callable[[Result | Exception], None]
    ) -> None:
        """Read the history on its thread."""
        journal, log, place = self._manager.journal, self._log, self._manager.place

        def found(result: Result | Exception) -> None:
            if not self._is_over:
                then(result)

        if log is None:
            journal.feed(job, found)
            return
        known = Known(journal.write_now(), place.index, place.history)
        journal.feed(lambda feed, numbers: job(log.on(feed, numbers, known), numbers), found)

    def look_at_log(
        self, job: Callable[[LogHistory], Result], then: Callable[[Result | Exception], None]
    ) -> None:
        """The same for who wants to know what this journal has of the log."""

        def at_log(history: History, _numbers: list[int]) -> Result:
            assert isinstance(history, LogHistory), "several have this log"
            return job(history)

        self.look(at_log, then)

    # ---- reading

    def positions(self, question: Asked) -> None:
        """The first position that can be read from, and the last."""
        stable = self._manager.stable_position

        def found(first: int | Exception) -> None:
            if isinstance(first, Exception):
                self._pipelines.refuse(question.request, _error(first))
            else:
                self._pipelines.tell(question.request, {"first": first, "last": stable})

        self.look(lambda reader, numbers: reader.first(numbers), found)

    def read(self, question: Asked) -> None:
        """A portion of the history of a destination, of what happened to messages, or of when that was."""
        arguments = question.arguments
        after = number_in(arguments, "after", 0, _MOST)
        until = min(number_in(arguments, "until", 0, _MOST, _MOST), self._manager.stable_position)
        limit = number_in(arguments, "bytes", 1, MAX_FEED_PORTION_BYTES, FEED_PORTION_BYTES)
        kinds: tuple[RecordKind, ...] = EVENTS if argument(arguments, "events", bool, False) else ()
        wants = self._wants(arguments)
        if argument(arguments, "times", bool, False):
            kinds, wants = TIMES, _nothing

        def job(reader: History, numbers: list[int]) -> Portion:
            return reader.read(numbers, after, max(after, until), limit, wants, kinds)

        def done(portion: Portion | Exception) -> None:
            if isinstance(portion, Exception):
                self._pipelines.refuse(question.request, _error(portion))
            else:
                self._pipelines.tell(question.request, self._body(portion))

        self.look(job, done)

    def measure(self, question: Asked) -> None:
        """How far `messages` messages reach behind a position, and how many there are."""
        arguments = question.arguments
        after = number_in(arguments, "after", 0, _MOST)
        until = min(number_in(arguments, "until", 0, _MOST, _MOST), self._manager.stable_position)
        most = number_in(arguments, "messages", 1, _MOST, _MOST)
        numbers = self._numbers(argument(arguments, "destination", str))
        counted = 0

        def counts(destination: int, _kind: int, payload: memoryview | bytes) -> bool:
            nonlocal counted
            if destination in numbers:
                counted += parse_trusted(payload, keep=False).count
            return False

        def job(reader: History, segments: list[int]) -> Portion:
            return reader.read(
                segments, after, max(after, until), 0, counts, is_enough=lambda: counted >= most
            )

        def done(portion: Portion | Exception) -> None:
            if isinstance(portion, Exception):
                self._pipelines.refuse(question.request, _error(portion))
            else:
                is_all = portion.upto >= until
                body = {"upto": portion.upto, "messages": counted, "is_all": is_all}
                self._pipelines.tell(question.request, body)

        self.look(job, done)

    def _wants(self, arguments: dict[str, Any]) -> Callable[[int, int, memoryview | bytes], bool]:
        numbers = self._numbers(argument(arguments, "destination", str))
        low = number_in(arguments, "low", 0, VALUES, 0)
        high = number_in(arguments, "high", 0, VALUES, VALUES)
        if high - low == VALUES:
            return lambda destination, _kind, _block: destination in numbers

        def wants(destination: int, _kind: int, payload: memoryview | bytes) -> bool:
            if destination not in numbers:
                return False
            block = parse_trusted(payload, keep=False)
            # What has units is sorted out by who reads it, who has the means to do that quickly.
            return bool(block.flags & UNITS) or stretches_in(block.lane, block.first, block.last, low, high)

        return wants

    def _numbers(self, pattern: str) -> dict[int, None]:
        means = AddressPattern(pattern).matches if "*" in pattern else pattern.__eq__
        return {
            number: None
            for number, destination in self._manager.catalogue.by_number.items()
            if means(destination.address)
        }

    def _body(self, portion: Portion) -> dict[str, Any]:
        pieces: list[bytes] = []
        for fed in portion.records:
            pieces += (FED.pack(len(fed.payload), fed.kind, fed.destination, fed.list, fed.lsn), fed.payload)
        named = dict.fromkeys(number for fed in portion.records for number in _destinations_of(fed))
        by_number = self._manager.catalogue.by_number
        names = {number: str(by_number[number].address) for number in named if number in by_number}
        return {"records": b"".join(pieces), "upto": portion.upto, "destinations": names}

    # ---- holds

    def hold(self, question: Asked) -> None:
        """Keep the journal behind `after` for a reader. Asked again, it goes on from there, or is only renewed."""
        arguments, manager = question.arguments, self._manager
        name = name_in(arguments)
        after = number_in(arguments, "after", 0, manager.last_position)
        seconds = seconds_in(arguments, HOLD_SECONDS, MAX_HOLD_SECONDS)
        self._pipelines.marks.check_room(Kind.HOLD, name)
        destination = argument(arguments, "destination", str)
        mark = Mark(
            Kind.HOLD,
            name,
            after,
            manager.now() + seconds,
            "" if "*" in destination else destination,
            seconds,
        )
        manager.journal.pin()  # nothing goes until it is known what may not

        def found(floor: int | Exception) -> None:
            if isinstance(floor, Exception):
                manager.journal.unpin()
                self._pipelines.refuse(question.request, _error(floor))
                return
            self._floors[name] = floor
            self._pipelines.write(mark, wait=True)
            self._apply()
            manager.journal.unpin()
            self._pipelines.tell_when_stored(question.request, {"after": after})

        self.look(lambda reader, numbers: reader.floor(numbers, after), found)

    def release(self, question: Asked) -> None:
        """A reader needs it no more."""
        name = name_in(question.arguments)
        held = self._pipelines.marks.hold(name)
        if held is None:
            raise ClientFault(f"nothing is held for {name[:60]!r}", code="hold-unknown")
        self._pipelines.write(Mark(Kind.HOLD, name, held.number, 0.0, ended=True), wait=True)
        self.ended(held, "released")
        self._pipelines.tell_when_stored(question.request, {})

    def ended(self, held: Mark, why: str) -> None:
        self._floors.pop(held.name, None)
        self._apply()
        self._manager.record("hold-ended", name=held.name, why=why, position=held.number)

    def make_room(self) -> None:
        """Messages come before history: on a disk that is full, the hold that keeps most ends, and its reader is
        told."""
        journal = self._manager.journal
        if journal.is_tight and self._floors and journal.held_bytes:
            name = min(self._floors, key=lambda each: self._floors[each])
            held = self._pipelines.marks.hold(name)
            assert held is not None, "each floor is of a hold"
            self._pipelines.write(Mark(Kind.HOLD, name, held.number, 0.0, ended=True))
            self.ended(held, "disk-full")

    def recovered(self) -> None:
        """What was held before a start is held again. Until it is known from where on, nothing goes."""
        manager = self._manager
        self._floors.clear()
        for held in self._pipelines.marks.holds():
            manager.journal.pin()
            self.look(
                lambda reader, numbers, after=held.number: _floor_here(reader, numbers, after),  # type: ignore[misc]
                lambda floor, held=held: self._held_again(held, floor),  # type: ignore[misc]
            )

    def _held_again(self, held: Mark, floor: int | Exception) -> None:
        if isinstance(floor, int):
            self._floors[held.name] = floor
        elif self._log is None:  # it ended a moment before the server did
            self._pipelines.write(Mark(Kind.HOLD, held.name, held.number, 0.0, ended=True))
        self._apply()
        self._manager.journal.unpin()

    def follow(self) -> None:
        """What whoever leads holds for its readers is held here too, so far as it is here."""
        if self._is_following:
            self._follows_again = True
            return
        holds = self._pipelines.marks.holds()
        if not holds:
            self._manager.journal.hold_from(_NEVER)
            return
        after = min(held.number for held in holds)
        self._is_following, self._follows_again = True, False
        self._manager.journal.pin()
        self.look_at_log(lambda log: (log.floor_of_rest([], after), log.lacks(after)), self._follow_from)

    def _follow_from(self, found: tuple[int, bool] | Exception) -> None:
        manager = self._manager
        self._is_following = False
        if manager.recovery is not None and not isinstance(found, Exception):
            floor, is_lacking = found
            if manager.journal.is_tight:  # messages come before history, here too
                manager.record("history-let-go", disk_bytes=manager.journal.disk_bytes)
                floor = _NEVER
            elif is_lacking:
                self.on_lack()
            manager.journal.hold_from(floor)
        manager.journal.unpin()
        if manager.recovery is not None and self._follows_again:
            self.follow()

    def _apply(self) -> None:
        self._manager.journal.hold_from(min(self._floors.values(), default=_NEVER))

    def shown(self) -> list[dict[str, Any]]:
        now, last = self._manager.now(), self._manager.last_position
        return [
            {
                "name": held.name,
                "destination": held.destination or "*",
                "after": held.number,
                "behind": last - held.number,
                "seconds_left": round(held.until - now, 1),
                "segment": self._floors.get(held.name, 0),
                "held_bytes": self._manager.journal.held_bytes,
            }
            for held in self._pipelines.marks.holds()
        ]


def _destinations_of(fed: Fed) -> list[int]:
    """Whose names a reader needs: what a transaction consumed stands inside its outcome."""
    if fed.kind == RecordKind.COMMITTED:
        return [number for number, _, _ in _decode_commit(fed.payload).done]
    return [fed.destination]


def _nothing(_destination: int, _kind: int, _block: memoryview | bytes) -> bool:
    return False


def _floor_here(reader: History, numbers: list[int], after: int) -> int:
    """In a cluster others may have what is missing here: the hold stands."""
    return (
        reader.floor_of_rest(numbers, after)
        if isinstance(reader, LogHistory)
        else reader.floor(numbers, after)
    )


def _error(error: Exception) -> HeliographError:
    if isinstance(error, HeliographError):
        return error
    return Unavailable(f"the history could not be read: {error}", code="feed-failed")
