"""The obvious model of queues and topics: every message by name, who has it, and how often it was handed out.

It sees what clients see and the ends of ticks. Nothing here is quick and nothing is shared with the engines
but the packed bytes. Every rule that a destination must keep is an assertion in the place where it could
break.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from heliograph.bus.commands import Confirmed, Dispatched
from heliograph.journal.records import segment_of
from heliograph.model.block import Block, slice_span, unpack
from heliograph.model.destination import Address, Kind, kind_of
from heliograph.model.ids import ConsumerId, LaneId

QUEUE_LIST = ConsumerId(b"")  # a topic's lists go by the name of their consumer


class Copy(msgspec.Struct):
    """A message in one list. `history` holds (tick, what, deliveries after it)."""

    holder: ConsumerId | None = None
    done: bool = False
    deliveries: int = 0
    history: list[tuple[int, str, int]] = []

    @property
    def waits(self) -> bool:
        return self.holder is None and not self.done

    def note(self, tick: int, what: str) -> None:
        self.history.append((tick, what, self.deliveries))


class Letter(msgspec.Struct):
    """A message as its sender knows it. `places` holds (tick, position) of its record, the newest last."""

    address: Address
    lane: LaneId
    sequence: int
    priority: int
    persistent: bool
    body: bytes
    timestamp: int
    number: int
    tick: int
    stored: bool = False
    places: list[tuple[int, int]] = []
    copies: dict[ConsumerId, Copy] = {}


class Sent(msgspec.Struct, frozen=True):
    """A block that a client keeps until it is confirmed."""

    first: int
    last: int
    buffer: bytes


class Lane(msgspec.Struct):
    """A client's lane, and what the server must make of it."""

    identity: LaneId
    address: Address
    user: str
    opened: int  # the tick
    mark: int = 0
    confirmed: int = 0
    sent: list[Sent] = []
    refused: bool = False
    fresh: bool = True  # opened or resumed, and nothing new was accepted since
    cut_off: bool = False  # the server stopped: it has to be resumed first
    closed: bool = False
    expects_refusal_of: int = 0

    @property
    def unconfirmed(self) -> list[Sent]:
        return [sent for sent in self.sent if sent.last > self.confirmed]

    @property
    def next_sequence(self) -> int:
        return self.sent[-1].last + 1 if self.sent else 1


class Taker(msgspec.Struct):
    """A consumer, and what it has by tag."""

    identity: ConsumerId
    address: Address
    credit: int
    held: dict[int, Letter] = {}
    next_tag: int = 1

    @property
    def list(self) -> ConsumerId:
        return QUEUE_LIST if kind_of(self.address) is Kind.QUEUE else self.identity


class Model:
    """All messages, lanes and consumers of a world."""

    def __init__(self) -> None:
        self.tick = 1
        self.letters: dict[tuple[LaneId, int], Letter] = {}
        self.lanes: dict[LaneId, Lane] = {}
        self.takers: dict[ConsumerId, Taker] = {}
        self.next_number: Counter[Address] = Counter()

    def lists_of(self, address: Address) -> list[ConsumerId]:
        if kind_of(address) is Kind.QUEUE:
            return [QUEUE_LIST]
        return [taker.identity for taker in self.takers.values() if taker.address == address]

    def letters_of(self, block: Block) -> list[Letter]:
        return [self.letters[block.lane, block.first + index] for index in range(block.count)]

    # ---- publishing

    def judge(self, block: Block) -> str:
        """What must become of a block that arrives."""
        lane = self.lanes[block.lane]
        if block.last <= lane.mark:
            return "known"
        if lane.refused:
            return "ignored"
        if block.first == lane.mark + 1 or (lane.fresh and block.first > lane.mark):
            return "accepted"
        lane.expects_refusal_of = lane.mark + 1
        return "refused"

    def accepted(self, block: Block, *, persists: bool) -> None:
        assert block.buffer is not None
        lane = self.lanes[block.lane]
        contents = unpack(block.buffer)
        for index, body in enumerate(contents.bodies):
            priority = contents.priorities[index] if contents.priorities else contents.priority
            sequence = block.first + index
            self.letters[block.lane, sequence] = Letter(
                lane.address,
                lane.identity,
                sequence,
                priority,
                block.persistent,
                body,
                contents.timestamps[index] if contents.timestamps else contents.timestamp,
                self.next_number[lane.address] + index + 1,
                self.tick,
            )
        self.next_number[lane.address] += block.count
        lane.mark, lane.fresh = block.last, False
        if not persists:
            assert not block.persistent or not self.lists_of(lane.address), "it must survive a crash"
            self.available(block)

    def placed(self, block: Block) -> None:
        for letter in self.letters_of(block):
            letter.places.append((self.tick, block.position))

    def taken_back(self, block: Block) -> None:
        """The disk was full: as if the block had never been."""
        lane = self.lanes[block.lane]
        for letter in self.letters_of(block):
            del self.letters[letter.lane, letter.sequence]
        self.next_number[lane.address] -= block.count
        lane.mark = block.first - 1
        lane.expects_refusal_of = block.first

    def available(self, block: Block) -> None:
        for letter in self.letters_of(block):
            letter.stored = True
            letter.copies = {each: Copy() for each in self.lists_of(letter.address)}

    def confirmed(self, command: Confirmed) -> None:
        lane = self.lanes[command.lane]
        if lane.closed:
            return
        assert command.last <= lane.mark, "confirmed what never came"
        self._safe_up_to(lane, command.last)
        lane.confirmed = max(lane.confirmed, command.last)

    def _safe_up_to(self, lane: Lane, last: int) -> None:
        for letter in self.letters.values():
            if letter.lane == lane.identity and letter.sequence <= last:
                assert letter.stored, "confirmed before it was stored"

    def refused(self, identity: LaneId, first: int) -> None:
        lane = self.lanes[identity]
        assert lane.expects_refusal_of == first, "refused for no reason"
        lane.expects_refusal_of = 0
        lane.refused = True

    def resumed(self, identity: LaneId, last: int) -> None:
        """The server told how far the lane has come."""
        lane = self.lanes[identity]
        if lane.cut_off:
            survived = [each.sequence for each in self.letters.values() if each.lane == identity]
            assert max(survived, default=0) <= last <= lane.mark, "its mark did not survive"
            lane.mark = last
        assert last <= lane.mark
        self._safe_up_to(lane, last)
        lane.confirmed = max(lane.confirmed, last)
        lane.refused, lane.fresh, lane.cut_off = False, True, False

    # ---- consuming

    def dispatched(self, command: Dispatched) -> None:
        span = command.span
        taker = self.takers[command.consumer]
        contents = unpack(b"".join(slice_span(span)))
        assert contents.count == span.stop - span.start
        assert command.tag == taker.next_tag, "tags have no gap"
        sender = self.lanes[contents.lane]
        assert command.user == sender.user or (sender.closed and not command.user)
        for index, body in enumerate(contents.bodies):
            letter = self.letters[contents.lane, contents.first + index]
            assert body == letter.body
            assert contents.persistent == letter.persistent
            assert (contents.timestamps or [contents.timestamp] * contents.count)[index] == letter.timestamp
            assert span.block.number + span.start + index == letter.number
            self._hand_out(letter, taker, span.deliveries)

    def _hand_out(self, letter: Letter, taker: Taker, deliveries: int) -> None:
        copy = letter.copies.get(taker.list)
        assert copy is not None, "handed out before it was stored, or to somebody who came later"
        assert not copy.done, "handed out again after it was done"
        assert copy.holder is None, "two holders at a time"
        assert deliveries == copy.deliveries, "a redelivery is marked, and nothing else is"
        assert taker.credit > 0, "more than the consumer asked for"
        self._check_order(letter, taker.list)
        taker.credit -= 1
        taker.held[taker.next_tag] = letter
        taker.next_tag += 1
        copy.holder = taker.identity
        copy.note(self.tick, "dispatched")

    def _check_order(self, letter: Letter, of: ConsumerId) -> None:
        for other in self.waiting(letter.address, of):
            assert other.priority <= letter.priority, "higher priorities go first"
            if other.priority == letter.priority:
                if (other.lane, other.persistent) == (letter.lane, letter.persistent):
                    assert other.sequence >= letter.sequence, "out of order"
                if other.copies[of].deliveries:
                    assert other.number >= letter.number, "overtook one that had returned"

    def waiting(self, address: Address, of: ConsumerId) -> Iterator[Letter]:
        for letter in self.letters.values():
            if letter.address == address and of in letter.copies and letter.copies[of].waits:
                yield letter

    def settled(self, taker: Taker, ranges: list[tuple[int, int]], *, returned: bool) -> tuple[int, bool]:
        """Returns how many messages that concerned, and whether the client named tags it does not have."""
        count = 0
        for first, last in ranges:
            tags = range(first, last + 1)
            if not tags or any(tag not in taker.held for tag in tags):
                return count, True
            for tag in tags:
                self._settle(taker.held.pop(tag), taker, returned=returned)
            count += len(tags)
        return count, False

    def _settle(self, letter: Letter, taker: Taker, *, returned: bool) -> None:
        copy = letter.copies[taker.list]
        copy.holder = None
        if returned:
            copy.deliveries += 1
        else:
            copy.done = True
        copy.note(self.tick, "returned" if returned else "done")

    def detached(self, identity: ConsumerId) -> None:
        taker = self.takers.pop(identity)
        for letter in taker.held.values():
            self._settle(letter, taker, returned=True)
        if taker.list != QUEUE_LIST:
            for letter in self.letters.values():
                letter.copies.pop(identity, None)

    # ---- what is counted

    def depth(self, address: Address) -> int:
        return sum(1 for of in self.lists_of(address) for _ in self.waiting(address, of))

    def in_flight(self, address: Address) -> int:
        return sum(len(taker.held) for taker in self.takers.values() if taker.address == address)

    def live(self) -> dict[int, int]:
        """How many messages must be held, by segment."""
        held: Counter[int] = Counter()
        for letter in self.letters.values():
            if letter.places:
                copies = sum(not copy.done for copy in letter.copies.values()) if letter.stored else 1
                held[segment_of(letter.places[-1][1])] += copies
        return dict(+held)

    def moved(self, moves: dict[int, int]) -> None:
        for letter in self.letters.values():
            if letter.places and letter.places[-1][1] in moves:
                letter.places.append((self.tick, moves[letter.places[-1][1]]))

    # ---- crashes

    def crashed(self, kept: int, *, lost_machine: bool) -> None:
        """Only what had happened by the end of tick `kept` is known; consumers and connections are gone."""
        self.takers.clear()
        for lane in self.lanes.values():
            lane.cut_off = True
            lane.closed = lane.closed or lane.opened > kept  # nobody remembers it: its client opens another
        for key, letter in list(self.letters.items()):
            if self._survives(letter, kept):
                self._restore(letter, kept, lost_machine=lost_machine)
            else:
                del self.letters[key]

    def _survives(self, letter: Letter, kept: int) -> bool:
        if not letter.persistent or kind_of(letter.address) is not Kind.QUEUE:
            return False
        lane = self.lanes[letter.lane]
        if letter.tick > kept:
            assert letter.sequence > lane.confirmed, "confirmed, persistent and lost"
            return False
        return True

    def _restore(self, letter: Letter, kept: int, *, lost_machine: bool) -> None:
        letter.stored = True
        letter.places = [place for place in letter.places if place[0] <= kept]
        copy = letter.copies.setdefault(QUEUE_LIST, Copy())
        copy.history = [entry for entry in copy.history if entry[0] <= kept]
        _, what, copy.deliveries = copy.history[-1] if copy.history else (0, "", 0)
        copy.holder, copy.done = None, what == "done"
        if what == "dispatched":
            copy.deliveries += 1
        if lost_machine:
            copy.deliveries = max(copy.deliveries, 1)
        if not copy.done:
            copy.note(kept, "restarted")
