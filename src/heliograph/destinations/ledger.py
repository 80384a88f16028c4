"""What must not be forgotten before the cluster is whole: where parts that meet differ (PROTOCOL 5,
docs/decisions/0018).

A function of the replicated log. It is written in chapters, and a chapter ends with a WHOLE record. Two are kept: one
that was cut off while WHOLE was on its way lacks the last of them, never the one before, so whatever is older than
both is the same in every log. Of that, done-marks are kept by number. Of what is younger the lanes are kept, and what
they have accepted and does not wait is done: nothing is kept for a single message.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import msgspec

from heliograph.cluster.partition_state import State
from heliograph.cluster.ranges import ALL_THAT_FOLLOWS, NONE, Ranges, minus, union
from heliograph.destinations.standing import EnteredRecord
from heliograph.destinations.subscriptions import SubscriptionRecord, Terms
from heliograph.destinations.transactions import CommitRecord, PreparedRecord
from heliograph.journal.records import RecordKind
from heliograph.model.block import lane_and_first, parse_trusted
from heliograph.model.ids import session_of

_PAIR = struct.Struct("<QQ")
# Ranges that are noted one by one before they are put together.
_LOOSE_RANGES = 256
# Of the transactions of a view, those that most client managers may not have seen when it ends are among these.
_LAST_DECIDED = 1_000
_ON_LANES = (RecordKind.PUBLISHED, RecordKind.STAGED, RecordKind.JOINED)


class _Destination(msgspec.Struct, array_like=True):
    """What matters here of the record of one."""

    number: int
    address: str
    policy: msgspec.Raw = msgspec.Raw(b"\xc0")
    deleted: bool = False


class _Path(msgspec.Struct, array_like=True):
    """What matters here of the record of one."""

    address: str
    unit: int


class _Session(msgspec.Struct, array_like=True):
    """What matters here of the record of one."""

    session: bytes
    user: str
    token: bytes
    closed: bool = False


class KnownRecord(msgspec.Struct, array_like=True):
    """Sequences of a lane that are done in another part, and of which this log has no message."""

    lane: bytes
    ranges: Ranges


class MissedRecord(msgspec.Struct, array_like=True):
    """Sequences of a lane that are not here, and may still come from another part (P7)."""

    lane: bytes
    first: int
    last: int


class Made(msgspec.Struct, array_like=True):
    """A durable subscription that was made."""

    begins: int  # the number that the next message would have got
    branch: bytes = b""  # where it was made; empty: here
    has_kept: bool = False  # whether it has what was kept here for subscriptions of other parts


class Book(msgspec.Struct, array_like=True):
    """One destination in one chapter."""

    address: str
    lanes: dict[bytes, int] = {}  # that were used: the lowest sequence
    moved: dict[bytes, list[tuple[int, int]]] = {}  # messages of other destinations' lanes that came here
    done: dict[
        int, list[tuple[int, int]]
    ] = {}  # by list: numbers of messages that are older than the chapter
    handed_out: dict[int, list[tuple[int, int]]] = {}  # the same numbers, of what was handed out
    unmade: dict[bytes, Ranges] = {}  # staged in transactions that were not committed, or not yet
    apart: dict[int, list[tuple[int, int]]] = {}  # by list: numbers, of what restricted views handed out
    made: dict[int, Made] = {}  # by list
    late: dict[
        bytes, Ranges
    ] = {}  # staged in an earlier chapter, of lower sequences, and committed in this one


class Deleted(msgspec.Struct, array_like=True):
    """A destination that ended, as it was when it did."""

    address: str
    base: int
    lanes: dict[bytes, int]


Stage = tuple[int, bytes, int, int]
"""Destination, lane, first and last sequence of a block."""


class Decided(msgspec.Struct, array_like=True):
    """A transaction: what it sent and what it consumed, by destination and list. Nothing, if it did not happen."""

    session: bytes
    number: int
    made: list[Stage]
    done: list[tuple[int, int, list[tuple[int, int]]]]


class Chapter(msgspec.Struct, array_like=True):
    """From one WHOLE to the next."""

    bases: dict[int, int] = {}  # of each destination: the number that its next message got when this began
    books: dict[int, Book] = {}
    deleted: list[Deleted] = []
    opened: dict[bytes, bytes] = {}  # sessions, as their records have them
    closed: dict[bytes, bool] = {}
    subscribed: list[tuple[str, Terms]] = []
    ended: list[tuple[str, Terms]] = []
    merged: dict[bytes, bool] = {}  # branches
    staged: dict[bytes, list[Stage]] = {}  # what each session has staged in its open transaction
    promised: dict[bytes, list[Stage]] = {}  # the same, of prepared transactions
    placed: dict[str, bytes] = {}  # destinations of other sub-clusters: records of where they were placed
    paths: dict[str, bytes] = {}  # units of distributed destinations: records of where they are
    is_restricted: bool = False  # the view that the log is in
    # Since the last view came into force, but for what restricted ones did.
    last_decided: list[Decided] = []


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Chapter]).decode
_decode_destination = msgspec.msgpack.Decoder(_Destination).decode
_decode_session = msgspec.msgpack.Decoder(_Session).decode
_decode_subscription = msgspec.msgpack.Decoder(SubscriptionRecord).decode
_decode_entered = msgspec.msgpack.Decoder(EnteredRecord).decode
_decode_commit = msgspec.msgpack.Decoder(CommitRecord).decode
_decode_prepared = msgspec.msgpack.Decoder(PreparedRecord).decode
_decode_path = msgspec.msgpack.Decoder(_Path).decode
_decode_known = msgspec.msgpack.Decoder(KnownRecord).decode
encode_record = _encode
decode_known = _decode_known
decode_missed = msgspec.msgpack.Decoder(MissedRecord).decode


class Ledger:
    """The last two chapters."""

    def __init__(self) -> None:
        self._before = Chapter()
        self._now = Chapter()
        self._addresses: dict[int, str] = {}

    # ---- the log

    def add(self, kind: int, destination: int, list_number: int, payload: bytes | memoryview) -> None:
        """One record more."""
        if kind in _ON_LANES:
            lane, first = lane_and_first(payload)
            book = self._book(destination)
            if first < book.lanes.setdefault(lane, first):
                book.lanes[lane] = first  # it fills a gap
            if kind == RecordKind.STAGED:
                self._staged(destination, book, payload)
            elif kind == RecordKind.JOINED:
                block = parse_trusted(payload, keep=False)
                self._made(destination, lane, ((first, block.last),))
        elif kind == RecordKind.DONE:
            self._done(destination, list_number, _PAIR.iter_unpack(payload))
        elif kind == RecordKind.DISPATCHED:
            self._dispatched(destination, list_number, list(_PAIR.iter_unpack(payload)))
        elif kind == RecordKind.ADOPTED:
            block = parse_trusted(payload, keep=False)
            _note(self._book(destination).moved.setdefault(block.lane, []), block.first, block.last)
        elif kind == RecordKind.KNOWN:
            known = _decode_known(payload)
            if known.ranges:
                lanes, first = self._book(destination).lanes, known.ranges[0][0]
                lanes[known.lane] = min(lanes.get(known.lane, first), first)
        else:
            self._rarer(kind, payload)

    def _rarer(self, kind: int, payload: bytes | memoryview) -> None:
        if kind == RecordKind.COMMITTED:
            self._committed(_decode_commit(payload))
        elif kind == RecordKind.PREPARED:
            session, number = _decode_prepared(payload).key
            self._now.promised[_key(session, number)] = self._now.staged.pop(session, [])
        elif kind == RecordKind.SESSION:
            self._session(_decode_session(payload), bytes(payload))
        elif kind == RecordKind.DESTINATION:
            self._destination(_decode_destination(payload), bytes(payload))
        elif kind == RecordKind.SUBSCRIPTION:
            record = _decode_subscription(payload)
            if record.terms.durable:
                self._subscription(record)
        elif kind == RecordKind.PATH:
            path = _decode_path(payload)
            self._now.paths[f"{path.unit} {path.address}"] = bytes(payload)
        elif kind == RecordKind.MERGED:
            self._now.merged[bytes(payload)] = True
        elif kind == RecordKind.ENTERED:
            entered = _decode_entered(payload)
            self._now.is_restricted = bool(entered.view) and entered.state is State.D
        elif kind == RecordKind.IN_FORCE:
            self._now.last_decided = []

    def _subscription(self, record: SubscriptionRecord) -> None:
        chapter, address = self._now, self._addresses.get(record.destination, "")
        (chapter.ended if record.ended else chapter.subscribed).append((address, record.terms))
        before = self.made_of(record.destination, record.number)
        for book in self._books(record.destination):
            book.made.pop(record.number, None)
        if not record.ended:
            made = Made(record.begins, record.branch, bool(record.branch))
            if before is not None and record.branch:  # it was here, and has now what it lacked
                made = Made(before.begins, before.branch, has_kept=True)
            self._book(record.destination).made[record.number] = made

    def _staged(self, destination: int, book: Book, payload: bytes | memoryview) -> None:
        """Nobody has it before its transaction is committed."""
        block = parse_trusted(payload, keep=False)
        session = session_of(block.lane)
        self._now.staged.setdefault(session, []).append((destination, block.lane, block.first, block.last))
        book.unmade[block.lane] = union(book.unmade.get(block.lane, NONE), ((block.first, block.last),))

    def _committed(self, record: CommitRecord) -> None:
        now = self._now
        promise = now.promised.pop(_key(record.session, record.number), None)
        staged = promise if promise is not None else now.staged.pop(record.session, [])
        if not now.is_restricted:
            made = staged if record.committed else []
            now.last_decided.append(Decided(record.session, record.number, made, record.done))
            del now.last_decided[:-_LAST_DECIDED]
        if record.committed:
            for destination, lane, first, last in staged:
                self._made(destination, lane, ((first, last),))
                book = self._book(destination)
                if first < book.lanes.get(lane, ALL_THAT_FOLLOWS):
                    book.late[lane] = union(book.late.get(lane, NONE), ((first, last),))
            for destination, list_number, ranges in record.done:
                self._done(destination, list_number, ranges)

    def _made(self, destination: int, lane: bytes, ranges: Ranges) -> None:
        for book in self._books(destination):
            if lane in book.unmade:
                book.unmade[lane] = minus(book.unmade[lane], ranges)
                if not book.unmade[lane]:
                    del book.unmade[lane]

    def _book(self, destination: int) -> Book:
        found = self._now.books.get(destination)
        if found is None:
            found = self._now.books[destination] = Book(self._addresses.get(destination, ""))
        return found

    def _done(self, destination: int, list_number: int, ranges: Iterable[tuple[int, ...]]) -> None:
        older = self._older(destination, ranges)
        if older:
            noted = self._book(destination).done.setdefault(list_number, [])
            for first, last in older:
                _note(noted, first, last)

    def _dispatched(self, destination: int, list_number: int, ranges: list[tuple[int, ...]]) -> None:
        older = self._older(destination, ranges)
        if older:
            noted = self._book(destination).handed_out.setdefault(list_number, [])
            for first, last in older:
                _note(noted, first, last)
        if self._now.is_restricted:
            noted = self._book(destination).apart.setdefault(list_number, [])
            for first, last in ranges:
                _note(noted, first, last)

    def _older(self, destination: int, ranges: Iterable[tuple[int, ...]]) -> list[tuple[int, int]]:
        """Numbers of messages that were there when the chapter began. (A range whose last is 0 is none, see
        `removals.py`.)"""
        base = self._now.bases.get(destination, 1)
        if base == 1:
            return []
        return [(first, min(last, base - 1)) for first, last in ranges if first < base and last]

    def _session(self, record: _Session, payload: bytes) -> None:
        if record.closed:
            self._now.opened.pop(record.session, None)
            self._before.opened.pop(record.session, None)
            self._now.closed[record.session] = True
        else:
            self._now.opened[record.session] = payload

    def _destination(self, record: _Destination, payload: bytes) -> None:
        if not record.number:  # it is another sub-cluster's
            self._now.placed[record.address] = payload
            return
        if record.deleted:
            self._delete(record.number)
        else:
            self._addresses[record.number] = record.address
            self._book(record.number)

    def _delete(self, number: int) -> None:
        address = self._addresses.pop(number, "")
        lanes = {lane: sequences[0][0] for lane, sequences in self.lanes_of(number).items()}
        ended = Deleted(address, self.base_of(number), lanes)
        for chapter in (self._before, self._now):
            chapter.bases.pop(number, None)
            chapter.books.pop(number, None)
        self._now.deleted.append(ended)

    def roll(self, bases: dict[int, int]) -> None:
        """The cluster is whole. `bases`: the number that the next message of each destination will have."""
        now = self._now
        self._before, self._now = now, Chapter(bases=bases, staged=now.staged, promised=now.promised)
        self._now.is_restricted, self._now.last_decided = now.is_restricted, now.last_decided

    def numbered(self, destination: int, number: int) -> None:
        """A block has got this number. Where numbers of messages that are not persistent are given again, as after a
        primary has read its log anew, it is lower than the next one was here when the cluster became whole."""
        for chapter in (self._before, self._now):
            if number < chapter.bases.get(destination, 1):
                chapter.bases[destination] = number

    # ---- what it says

    @property
    def destinations(self) -> list[int]:
        return list({**self._before.books, **self._now.books})

    def base_of(self, destination: int) -> int:
        """Below this number every log has the same messages."""
        return self._before.bases.get(destination, 1)

    def last_base_of(self, destination: int) -> int:
        """The same, where the cluster was whole last; 1 if the destination was not there yet."""
        return self._now.bases.get(destination, 1)

    def lanes_of(self, destination: int) -> dict[bytes, Ranges]:
        """Those that were used: all sequences from the first on, and what was staged long before it had a number."""
        found: dict[bytes, Ranges] = {}
        for book in self._books(destination):
            for lane, first in book.lanes.items():
                found[lane] = union(found.get(lane, NONE), ((first, ALL_THAT_FOLLOWS),))
            for lane, sequences in book.late.items():
                found[lane] = union(found.get(lane, NONE), sequences)
        return found

    def unmade_of(self, destination: int, lane: bytes) -> Ranges:
        """What was taken for transactions that did not come to be, or have not yet, however long ago."""
        now = self._now
        open_stages = (
            stage for stages in (now.staged, now.promised) for each in stages.values() for stage in each
        )
        waiting = [
            (first, last) for place, of, first, last in open_stages if place == destination and of == lane
        ]
        return union(waiting, *(book.unmade.get(lane, NONE) for book in self._books(destination)))

    def moved_to(self, destination: int) -> dict[bytes, Ranges]:
        found: dict[bytes, Ranges] = {}
        for book in self._books(destination):
            for lane, ranges in book.moved.items():
                found[lane] = union(found.get(lane, NONE), ranges)
        return found

    def done_of(self, destination: int) -> dict[int, Ranges]:
        """By list: numbers below the base."""
        return self._below(destination, [book.done for book in self._books(destination)])

    def made_of(self, destination: int, list_number: int) -> Made | None:
        """How a durable subscription came about; None if it is older than both chapters."""
        found = [book.made[list_number] for book in self._books(destination) if list_number in book.made]
        return found[-1] if found else None

    def handed_out_of(self, destination: int) -> dict[int, Ranges]:
        """The same, of what was handed out."""
        return self._below(destination, [book.handed_out for book in self._books(destination)])

    def apart_of(self, destination: int) -> dict[int, Ranges]:
        """By list: what restricted views handed out, whatever its age."""
        found: dict[int, Ranges] = {}
        for book in self._books(destination):
            for list_number, ranges in book.apart.items():
                found[list_number] = union(found.get(list_number, NONE), ranges)
        return found

    def _below(self, destination: int, noted: list[dict[int, list[tuple[int, int]]]]) -> dict[int, Ranges]:
        base, found = self.base_of(destination), dict[int, Ranges]()
        for lists in noted:
            for list_number, ranges in lists.items():
                older = [(first, min(last, base - 1)) for first, last in ranges if first < base]
                found[list_number] = union(found.get(list_number, NONE), older)
        return found

    def doubtful(self) -> list[Decided]:
        """What was decided in the last view that was in force, or on the way from it. If the log parts from that of
        those who went on from there, and they do not know of it, most client managers had not seen it: then it is
        for them to decide (PROTOCOL 7.5)."""
        return self._now.last_decided

    def deleted(self) -> list[Deleted]:
        return [*self._before.deleted, *self._now.deleted]

    def opened(self) -> dict[bytes, bytes]:
        return {**self._before.opened, **self._now.opened}

    def closed(self) -> list[bytes]:
        return list({**self._before.closed, **self._now.closed})

    def subscribed(self) -> list[tuple[str, Terms]]:
        return [*self._before.subscribed, *self._now.subscribed]

    def ended(self) -> list[tuple[str, Terms]]:
        return [*self._before.ended, *self._now.ended]

    def placed(self) -> list[bytes]:
        return list({**self._before.placed, **self._now.placed}.values())

    def paths(self) -> list[bytes]:
        return list({**self._before.paths, **self._now.paths}.values())

    def has_merged(self, branch: bytes) -> bool:
        return branch in self._now.merged or branch in self._before.merged

    def _books(self, destination: int) -> list[Book]:
        chapters = (self._before, self._now)
        return [chapter.books[destination] for chapter in chapters if destination in chapter.books]

    # ---- snapshots

    def state(self) -> bytes:
        return _encode([self._before, self._now])

    def restore(self, state: bytes, addresses: dict[int, str]) -> None:
        if state:
            self._before, self._now = _decode(state)
        self._addresses = addresses


def _key(session: bytes, number: int) -> bytes:
    return session + number.to_bytes(8, "big")


def _note(ranges: list[tuple[int, int]], first: int, last: int) -> None:
    """Most of it is done in order, so most of it is one range."""
    if ranges and ranges[-1][1] + 1 >= first >= ranges[-1][0]:
        ranges[-1] = (ranges[-1][0], max(last, ranges[-1][1]))
        return
    ranges.append((first, last))
    if len(ranges) % _LOOSE_RANGES == 0:
        ranges[:] = union(ranges)
