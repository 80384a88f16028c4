"""The books of a store: which message has which sequence, what was sent, and what the server has.

A lane is the way to one destination. Its messages are numbered 1, 2, 3 … for ever; what the server hears are numbers
of a lane of its own session, `shift` less. The marks of a lane, which only grow:

    confirmed ≤ sent ≤ stored        the server has it · it may have left · it is on this disk

`doubtful`: up to here, what is not confirmed was sent in a session that the server has forgotten.

Nothing here does any input or output: the writer tells what is on the disk, the forwarder what the server said.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from heliograph.client.forwarding.records import Frame, RecordKind, offset_of, segment_of
from heliograph.frontends.native.frames import PAIR
from heliograph.model import block as blocks
from heliograph.model.errors import ClientFault, CorruptJournal
from heliograph.model.ids import SessionId
from heliograph.model.limits import MAX_FORWARD_DESTINATIONS

# What is done at the head of a lane's arrays is cut off when it is this much, and half of them.
_TRIM_ENTRIES = 1024


class LaneState(msgspec.Struct, array_like=True):
    """A lane as a store keeps it. Fields are appended, never reordered."""

    key: int
    destination: str
    wire: int
    shift: int = 0
    confirmed: int = 0
    sent: int = 0
    stored: int = 0
    doubtful: int = 0


class StoreState(msgspec.Struct, array_like=True):
    """All that a store knows besides its messages."""

    session: bytes = b""
    token: bytes = b""
    attached: bool = False
    lanes: list[LaneState] = []


_encode = msgspec.msgpack.Encoder().encode
_decode_state = msgspec.msgpack.Decoder(StoreState).decode
_decode_lane = msgspec.msgpack.Decoder(LaneState).decode


class Entry(NamedTuple):
    """Where a stored block is."""

    first: int
    messages: int
    position: int
    size: int

    @property
    def last(self) -> int:
        return self.first + self.messages - 1


class Lane:
    """The way to one destination. Twenty bytes per stored block, in arrays."""

    def __init__(self, state: LaneState) -> None:
        self.key = state.key
        self.destination = state.destination
        self.wire = state.wire  # the number of the server's lane
        self.shift = state.shift
        self.confirmed = state.confirmed
        self.sent = state.sent
        self.stored = state.stored
        self.doubtful = state.doubtful
        self.is_recorded = False  # whether the store knows that there is such a lane
        self.noted = state.confirmed  # what the store says is confirmed
        self._firsts = array("Q")
        self._positions = array("Q")
        self._sizes = array("I")
        self._head = 0

    @property
    def waiting(self) -> int:
        """Messages that the server has not confirmed."""
        return self.stored - self.confirmed

    def state(self) -> LaneState:
        return LaneState(
            self.key,
            self.destination,
            self.wire,
            self.shift,
            self.confirmed,
            self.sent,
            self.stored,
            self.doubtful,
        )

    def append(self, first: int, count: int, position: int, size: int) -> None:
        assert first == self.stored + 1, "sequences have no gap"
        self._firsts.append(first)
        self._positions.append(position)
        self._sizes.append(size)
        self.stored = first + count - 1

    def _entry(self, index: int) -> Entry:
        following = self._firsts[index + 1] if index + 1 < len(self._firsts) else self.stored + 1
        first = self._firsts[index]
        return Entry(first, following - first, self._positions[index], self._sizes[index])

    def entries_from(self, sequence: int) -> Iterator[Entry]:
        """Stored blocks from the one with a sequence on."""
        start = max(bisect_right(self._firsts, sequence) - 1, self._head)
        for index in range(start, len(self._firsts)):
            yield self._entry(index)

    def take_confirmed(self) -> list[Entry]:
        """Blocks of which everything is confirmed, once each."""
        taken = []
        while self._head < len(self._firsts) and (entry := self._entry(self._head)).last <= self.confirmed:
            taken.append(entry)
            self._head += 1
        if self._head >= _TRIM_ENTRIES and self._head * 2 >= len(self._firsts):
            for column in (self._firsts, self._positions, self._sizes):
                del column[: self._head]
            self._head = 0
        return taken

    def move_entry(self, first: int, position: int) -> bool:
        """A block stands elsewhere now. Whether it is still needed."""
        index = bisect_right(self._firsts, first) - 1
        if index < self._head or self._firsts[index] != first:
            return False
        self._positions[index] = position
        return True

    def restore(self, entries: list[Entry]) -> None:
        """What a replay found, in order."""
        self._firsts = array("Q", [entry.first for entry in entries])
        self._positions = array("Q", [entry.position for entry in entries])
        self._sizes = array("I", [entry.size for entry in entries])


class Ledger:
    """All lanes of a store, its session, and what each segment still holds."""

    def __init__(self) -> None:
        self.session = SessionId(b"")
        self.token = b""
        self.attached = False  # whether what is stored may be leaving
        self.lanes: dict[int, Lane] = {}
        self.by_destination: dict[str, Lane] = {}
        self.messages = 0  # not confirmed
        self.bytes = 0  # of their blocks
        self._needed: dict[int, int] = {}  # by segment: bytes of blocks that are not confirmed

    # ---- lanes

    def lane_to(self, destination: str) -> Lane:
        """The lane to a destination, new where there was none."""
        lane = self.by_destination.get(destination)
        if lane is None:
            key = max(self.lanes, default=0) + 1
            if key > MAX_FORWARD_DESTINATIONS:
                raise ClientFault(
                    f"a store has at most {MAX_FORWARD_DESTINATIONS} destinations", code="too-many-lanes"
                )
            lane = self.add_lane(LaneState(key, destination, wire=key))
        return lane

    def add_lane(self, state: LaneState) -> Lane:
        lane = self.lanes[state.key] = self.by_destination[state.destination] = Lane(state)
        return lane

    # ---- what is on the disk

    def added(self, lane: Lane, first: int, count: int, position: int, size: int) -> None:
        lane.append(first, count, position, size)
        self.hold(Entry(first, count, position, size), count)

    def hold(self, entry: Entry, messages: int) -> None:
        self.messages += messages
        self.bytes += entry.size
        segment = segment_of(entry.position)
        self._needed[segment] = self._needed.get(segment, 0) + entry.size

    def moved(self, lane: Lane, entry: Entry, position: int) -> None:
        """A block was written again, unless it was confirmed meanwhile."""
        if lane.move_entry(entry.first, position):
            self._let_go(entry.position, entry.size)
            segment = segment_of(position)
            self._needed[segment] = self._needed.get(segment, 0) + entry.size

    def _let_go(self, position: int, size: int) -> None:
        segment = segment_of(position)
        self._needed[segment] -= size
        if not self._needed[segment]:
            del self._needed[segment]

    def needed_bytes(self, segment: int) -> int:
        return self._needed.get(segment, 0)

    def entries_in(self, segment: int) -> list[tuple[Lane, Entry]]:
        """What is still needed of a segment."""
        return [
            (lane, entry)
            for lane in self.lanes.values()
            for entry in lane.entries_from(lane.confirmed + 1)
            if segment_of(entry.position) == segment
        ]

    # ---- what the server has

    def confirm(self, lane: Lane, upto: int) -> None:
        upto = min(upto, lane.stored)
        if upto <= lane.confirmed:
            return
        self.messages -= upto - lane.confirmed
        lane.confirmed = upto
        lane.sent = max(lane.sent, upto)
        for entry in lane.take_confirmed():
            self.bytes -= entry.size
            self._let_go(entry.position, entry.size)

    def begin_session(self, session: bytes, token: bytes) -> int:
        """The server does not know the session: lanes begin again at 1. Returns how many messages are in doubt."""
        self.session, self.token = SessionId(session), token
        return sum(self._restart(lane, lane.key, lane.sent) for lane in self.lanes.values())

    def _restart(self, lane: Lane, wire: int, doubtful: int) -> int:
        """Lane `wire` of the session begins with the first message that is not confirmed."""
        lane.wire = wire
        lane.shift = lane.sent = lane.confirmed
        lane.doubtful = max(lane.doubtful, doubtful)
        return max(lane.doubtful - lane.confirmed, 0)

    def resumed(self, lane: Lane, last: int) -> bool:
        """The server has `last` messages of its lane. False: the two disagree, and the lane leads on under another
        number.

        If the server knows less than it said, what was under way is in doubt; if it knows more than was sent from
        here, a copy of this store was used, and may have sent what is here too.
        """
        upto = last + lane.shift
        if upto < lane.confirmed:
            self._restart(lane, self._fresh_number(), lane.sent)
        elif upto > lane.sent:
            self.confirm(lane, lane.sent)
            self._restart(lane, self._fresh_number(), min(upto, lane.stored))
        else:
            self.confirm(lane, upto)
            return True
        return False

    def discard(self, lane: Lane) -> int:
        """Drop all that waits for a destination. What comes later is a lane of its own to the server."""
        count = lane.waiting
        self.confirm(lane, lane.stored)
        self._restart(lane, self._fresh_number(), lane.doubtful)
        return count

    def _fresh_number(self) -> int:
        """Never used in this session: the first numbers belong to the lanes' own keys."""
        return max(MAX_FORWARD_DESTINATIONS, *(lane.wire for lane in self.lanes.values())) + 1

    # ---- as bytes

    def state(self) -> bytes:
        lanes = [lane.state() for lane in self.lanes.values() if lane.is_recorded]
        return _encode(StoreState(self.session, self.token, self.attached, lanes))

    @staticmethod
    def lane_record(lane: Lane) -> bytes:
        """The lane as it is before anything of it is stored."""
        return _encode(LaneState(lane.key, lane.destination, lane.wire, lane.shift))

    @staticmethod
    def confirmed_record(marks: list[tuple[Lane, int]]) -> bytes:
        return b"".join([PAIR.pack(lane.key, upto) for lane, upto in marks])


class LedgerReplay:
    """Takes the frames of a store, in order; `finish` hands over the books."""

    def __init__(self) -> None:
        self._ledger = Ledger()
        self._entries: dict[int, list[Entry]] = {}
        self._moved: dict[int, dict[int, Entry]] = {}

    def frame(self, frame: Frame, path: str) -> None:
        """Raises CorruptJournal where good frames contradict each other."""
        try:
            match frame.kind:
                case RecordKind.STATE:
                    self._state(_decode_state(frame.payload))
                case RecordKind.LANE:
                    self._lane(_decode_lane(frame.payload))
                case RecordKind.BLOCK:
                    self._block(frame)
                case RecordKind.MOVED:
                    self._moved_block(frame)
                case RecordKind.CONFIRMED:
                    self._confirmed(frame.payload)
                case _:
                    raise ValueError(f"records of kind {frame.kind} are not known")
        except (ValueError, KeyError, msgspec.MsgspecError, ClientFault) as fault:
            sentence = f"a record cannot be: {fault}"
            raise CorruptJournal(sentence, path=path, position=offset_of(frame.position)) from None

    def _state(self, state: StoreState) -> None:
        ledger = self._ledger
        ledger.session, ledger.token = SessionId(state.session), state.token
        ledger.attached = state.attached
        for told in state.lanes:
            self._lane(told)

    def _lane(self, told: LaneState) -> None:
        ledger = self._ledger
        lane = ledger.lanes.get(told.key)
        if lane is None:
            lane = ledger.add_lane(told)
        elif told.stored < lane.stored or lane.destination != told.destination:
            raise ValueError(f"lane {told.key} has {lane.stored} messages, not {told.stored}")
        lane.is_recorded = True
        lane.stored = told.stored  # more than was read, where a finished segment is gone
        lane.wire, lane.shift = told.wire, told.shift
        lane.sent, lane.doubtful = told.sent, told.doubtful
        lane.confirmed = max(lane.confirmed, told.confirmed)

    def _block(self, frame: Frame) -> None:
        lane = self._ledger.lanes[frame.lane]
        entry = _entry_of(frame)
        if entry.first != lane.stored + 1:
            raise ValueError(f"message {entry.first} follows message {lane.stored}")
        lane.stored = entry.last
        self._entries.setdefault(lane.key, []).append(entry)

    def _moved_block(self, frame: Frame) -> None:
        entry = _entry_of(frame)
        self._moved.setdefault(self._ledger.lanes[frame.lane].key, {})[entry.first] = entry

    def _confirmed(self, payload: memoryview) -> None:
        for key, upto in PAIR.iter_unpack(payload):
            lane = self._ledger.lanes[key]
            lane.confirmed = max(lane.confirmed, upto)

    def finish(self, path: str) -> Ledger:
        """Raises CorruptJournal where messages are missing."""
        ledger = self._ledger
        for lane in ledger.lanes.values():
            entries = {entry.first: entry for entry in self._entries.get(lane.key, [])}
            entries |= self._moved.get(lane.key, {})
            kept = [entries[first] for first in sorted(entries) if entries[first].last > lane.confirmed]
            expected = kept[0].first if kept and kept[0].first <= lane.confirmed else lane.confirmed + 1
            for entry in kept:
                if entry.first != expected:
                    break
                expected = entry.last + 1
            if expected != lane.stored + 1:
                sentence = f"message {expected} to {lane.destination} is missing: was a segment deleted?"
                raise CorruptJournal(sentence, path=path, position=0)
            self._restore(lane, kept)
        return ledger

    def _restore(self, lane: Lane, kept: list[Entry]) -> None:
        lane.restore(kept)
        lane.noted = lane.confirmed
        if self._ledger.attached:
            lane.sent = lane.stored
        lane.sent = max(lane.sent, lane.confirmed)
        for entry in kept:
            self._ledger.hold(entry, entry.last - max(entry.first - 1, lane.confirmed))


def _entry_of(frame: Frame) -> Entry:
    block = blocks.parse(bytes(frame.payload))
    return Entry(block.first, block.count, frame.position, len(frame.payload))
