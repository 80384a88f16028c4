"""A message manager's surroundings in memory: carries out what destinations ask for, and shows it to a model.

What the shell does on a loop happens here in steps: the journal answers when it is told to, a crash may come
between any two, and the model sees everything that a client would see.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import cast

import msgspec

from heliograph.bus.commands import (
    Answered,
    Confirmed,
    ConsumerAttached,
    ConsumerDetached,
    CreditGranted,
    DestinationWanted,
    Dispatched,
    Published,
    Refused,
    Rejected,
    SessionClosed,
    SessionOpened,
    SessionResumed,
    Settled,
)
from heliograph.destinations.catalogue import Catalogue
from heliograph.destinations.destination import Destination, Event
from heliograph.destinations.effects import (
    AnyEffect,
    Continue,
    Load,
    Multicast,
    Note,
    Persist,
    Release,
    Retain,
    Write,
)
from heliograph.destinations.events import BlockRefused, BlocksStored, PageLoaded, TurnCame
from heliograph.destinations.intake import number_mark
from heliograph.destinations.recovery import CatalogueRecovery, snapshot_of
from heliograph.destinations.waiting import Residence
from heliograph.journal.files import Journal
from heliograph.journal.records import RecordKind
from heliograph.model.block import Block, parse
from heliograph.model.destination import Address
from heliograph.model.errors import CorruptJournal
from heliograph.model.ids import ConsumerId, IdIssuer, LaneId, SessionId, lane_of
from heliograph.nodes.compactor import Compactor
from tests.properties.destination_model import Lane, Model, Sent, Taker
from tests.properties.memory_journal import Boundary, MemoryJournal

_PAIR = struct.Struct("<QQ")
QUEUE = Address("queue:orders")
TOPIC = Address("topic:prices")
ADDRESSES = (QUEUE, TOPIC)


class Asked(msgspec.Struct):
    """A request that awaits its one answer. `stored_tick`: what must be on disk before it may be granted."""

    must_fail: bool = False
    stored_tick: int = 0


class World:
    """One message manager over its lives, its clients, and the model that watches."""

    def __init__(self, resident_bytes: int) -> None:
        self.journal = MemoryJournal()
        self.model = Model()
        self.sessions: dict[SessionId, str] = {}
        self._resident_bytes = resident_bytes
        self._issuer = IdIssuer(site=1, node=1, started_ms=1)
        self._requests: dict[int, Asked] = {}
        self._next_request = 1
        self._machine = 1
        self._start(b"machine 1")

    def _start(self, boot: bytes) -> None:
        self._boot = boot
        self.residence = Residence(self._resident_bytes)
        self.catalogue = Catalogue(self.residence)
        self.compactor = Compactor(cast("Journal", self.journal), self.catalogue)
        self._persisting: deque[tuple[int, Destination, Block]] = deque()
        self._noting: deque[tuple[int, int]] = deque()
        self.turns: dict[int, Destination] = {}
        self._requests.clear()
        recovery = CatalogueRecovery(self.catalogue, 1.0)
        self.journal.replay(recovery.snapshot, recovery.record)
        waiting = recovery.finish(self.journal, boot=boot)
        self.journal.check_all_there()
        assert waiting == self.model.depth(QUEUE)
        # Nothing is handed out before the journal knows on which machine: a start that is lost would be
        # taken for a clean stop.
        self._append(RecordKind.STARTED, 0, 0, boot)
        self.end_of_tick()
        self.journal.store_up_to(self.journal.boundaries[-1])

    def destination(self, address: Address) -> Destination:
        effects: list[AnyEffect] = []
        destination = self.catalogue.find_or_make(address, effects, create=True)
        self._run(None, effects)
        return destination

    # ---- steps of the clients

    def open_session(self, user: str) -> SessionId:
        session = self._issuer.session()
        self.sessions[session] = user
        self._run(None, self.catalogue.session_opened(SessionOpened(self._ask(), session, user, b"t"), 1.0))
        for number, address in enumerate(ADDRESSES, start=1):
            lane = lane_of(session, number)
            self.model.lanes[lane] = Lane(lane, address, user, self.model.tick)
            self._run(None, self.catalogue.wanted(DestinationWanted(self._ask(), address, True, lane)))
        self.end_of_tick()
        return session

    def close_session(self, session: SessionId) -> None:
        del self.sessions[session]
        for number in range(1, len(ADDRESSES) + 1):
            self.model.lanes[lane_of(session, number)].closed = True
        self._run(None, self.catalogue.session_closed(SessionClosed(session)))
        self.end_of_tick()

    def resume_session(self, session: SessionId) -> None:
        """The client learns how far each lane has come, and sends again what is missing."""
        command = SessionResumed(self._ask(), session, self.sessions[session], b"t")
        (effect,) = self.catalogue.session_resumed(command)
        assert isinstance(effect, Multicast)
        assert isinstance(effect.command, Answered)
        self._run(None, [effect])
        told = {number: last for number, _, last in effect.command.body["lanes"]}
        for number, address in enumerate(ADDRESSES, start=1):
            lane = self.model.lanes[lane_of(session, number)]
            last = told.get(number)
            if last is None:
                last = self._want_again(lane.identity, address)
            self.model.resumed(lane.identity, last)
            for sent in lane.unconfirmed:
                self.send(lane, sent.buffer)
        self.end_of_tick()

    def _want_again(self, lane: LaneId, address: Address) -> int:
        """A lane of which nothing was stored is not remembered with its session."""
        assert not any(letter.lane == lane for letter in self.model.letters.values())
        effects = self.catalogue.wanted(DestinationWanted(self._ask(), address, True, lane))
        self._run(None, effects)
        answer = effects[-1]
        assert isinstance(answer, Multicast)
        assert isinstance(answer.command, Answered)
        last = answer.command.body["last"]
        assert isinstance(last, int)
        return last

    def publish(self, lane: Lane, buffer: bytes) -> None:
        block = parse(buffer)
        lane.sent.append(Sent(block.first, block.last, buffer))
        self.send(lane, buffer)
        self.end_of_tick()

    def send(self, lane: Lane, buffer: bytes) -> str:
        """Returns what the model says must become of it."""
        block = parse(buffer)
        destination = self.destination(lane.address)
        verdict = self.model.judge(block)
        effects = destination.handle(Published(lane.address, block))
        persists = any(isinstance(effect, Persist) for effect in effects)
        if verdict == "accepted":
            self.model.accepted(block, persists=persists)
        else:
            assert not persists, f"a block that is {verdict} is not stored"
        self._run(destination, effects)
        assert not lane.expects_refusal_of, "the client was not told of a refusal"
        return verdict

    def attach(self, address: Address, credit: int) -> ConsumerId:
        consumer = self._issuer.consumer()
        destination = self.destination(address)
        self.model.takers[consumer] = Taker(consumer, address, credit)
        session = SessionId(bytes(16))
        self._handle(destination, ConsumerAttached(self._ask(), address, consumer, session, credit))
        self.end_of_tick()
        return consumer

    def grant(self, taker: Taker, count: int) -> None:
        taker.credit += count
        self._handle(self.destination(taker.address), CreditGranted(taker.address, taker.identity, count))
        self.end_of_tick()

    def settle(
        self, taker: Taker, ranges: list[tuple[int, int]], *, returned: bool, replenish: bool, ask: bool
    ) -> None:
        request = self._ask() if ask else 0
        count, unknown = self.model.settled(taker, ranges, returned=returned)
        if replenish:
            taker.credit += count
        if ask:
            self._requests[request] = Asked(must_fail=unknown)
        command = Settled(taker.address, taker.identity, returned, ranges, replenish, request)
        self._handle(self.destination(taker.address), command)
        self.end_of_tick()

    def detach(self, taker: Taker) -> None:
        self.model.detached(taker.identity)
        command = ConsumerDetached(taker.address, taker.identity, self._ask())
        self._handle(self.destination(taker.address), command)
        self.end_of_tick()

    # ---- steps of the node and its disk

    def store(self, boundary: Boundary) -> None:
        self._stored(self.journal.store_up_to(boundary))

    def take_snapshot(self) -> None:
        self.journal.begin_snapshot(snapshot_of(self.catalogue, self._boot))

    def finish_snapshot(self) -> None:
        self._stored(self.journal.finish_snapshot())

    def page_arrives(self) -> None:
        self.journal.page_arrives()
        self.end_of_tick()

    def next_turns(self) -> None:
        turns, self.turns = self.turns, {}
        for destination in turns.values():
            self._handle(destination, TurnCame())
        self.end_of_tick()

    def compact(self) -> None:
        self.compactor.step()
        self.end_of_tick()

    def crash(self, kept: Boundary, *, machine: bool, clean: bool = False) -> None:
        """`machine`: it is another run of the machine; only then may anything that was written be lost."""
        if clean:
            self._append(RecordKind.STOPPED, 0, 0, b"")
            self.end_of_tick()
            kept = self.journal.boundaries[-1]
        assert machine or kept == self.journal.boundaries[-1]
        self._machine += machine
        self.journal.crash(kept)
        self.model.crashed(kept.tick, lost_machine=machine and not clean)
        self.sessions = {
            session: user
            for session, user in self.sessions.items()
            if not self.model.lanes[lane_of(session, 1)].closed
        }
        self._start(b"machine %d" % self._machine)
        for address in ADDRESSES:
            numbers = [each.number for each in self.model.letters.values() if each.address == address]
            next_number = self.destination(address).intake.next_number
            assert next_number > max(numbers, default=0), "a number was given twice"
            self.model.next_number[address] = next_number - 1

    def end_of_tick(self) -> None:
        if self.journal.refused:
            self.compactor.refused(dict.fromkeys(self.journal.refused))
            self.journal.refused.clear()
        self.journal.end_of_tick(self.model.tick)
        self.model.tick += 1

    # ---- carrying out, as the message manager does

    def _ask(self) -> int:
        request = self._next_request
        self._next_request += 1
        self._requests[request] = Asked()
        return request

    def _handle(self, destination: Destination, event: Event) -> None:
        self._run(destination, destination.handle(event))

    def _run(self, destination: Destination | None, effects: list[AnyEffect]) -> None:
        for effect in effects:
            match effect:
                case Multicast(command):
                    self._observe(command)
                case Release(position, count):
                    self.journal.release(position, count)
                case Retain(position, count):
                    self.journal.retain(position, count)
                case Write(kind, payload):
                    self._append(kind, 0, 0, payload)
                case _:
                    assert destination is not None
                    self._run_for(destination, effect)

    def _run_for(self, destination: Destination, effect: AnyEffect) -> None:
        match effect:
            case Persist(block):
                self._persist(destination, block)
            case Note(kind, list_number, ranges, request):
                if request:
                    self._requests[request].stored_tick = self.model.tick
                    self._noting.append((self.journal.next_lsn, request))
                payload = b"".join([_PAIR.pack(first, last) for first, last in ranges])
                self._append(kind, destination.number, list_number, payload)
            case Load(list_number, priority, page):
                self._load(destination, list_number, priority, list(page.positions))
            case Continue():
                self.turns[destination.number] = destination

    def _persist(self, destination: Destination, block: Block) -> None:
        kind = RecordKind.PUBLISHED if block.persistent else RecordKind.SPILLED
        assert block.buffer is not None
        lsn = self.journal.next_lsn
        block.position = self.journal.append(
            kind, destination.number, number_mark(block), (block.buffer,), block.size, bulky=True
        )
        if block.position:
            self.model.placed(block)
            self.journal.retain(block.position, block.count)
            self._persisting.append((lsn, destination, block))
        else:
            self.model.taken_back(block)
            self._handle(destination, BlockRefused(block, "storage-full", "the disk is full"))

    def _append(self, kind: int, destination: int, list_number: int, payload: bytes) -> None:
        self.journal.append(kind, destination, list_number, (payload,), len(payload))

    def _load(self, destination: Destination, list_number: int, priority: int, positions: list[int]) -> None:
        def then(found: list[bytes] | CorruptJournal) -> None:
            assert isinstance(found, list)
            self._handle(destination, PageLoaded(list_number, priority, found))

        self.journal.load(positions, then)

    def _stored(self, lsn: int) -> None:
        by_destination: dict[int, list[Block]] = {}
        while self._persisting and self._persisting[0][0] <= lsn:
            _, destination, block = self._persisting.popleft()
            by_destination.setdefault(destination.number, []).append(block)
        for number, blocks in by_destination.items():
            for block in blocks:
                self.model.available(block)
            self._handle(self.catalogue.by_number[number], BlocksStored(blocks))
        while self._noting and self._noting[0][0] <= lsn:
            self._observe(Answered(self._noting.popleft()[1], {}))
        self._compactor_stored(lsn)
        self.journal.delete_finished()
        self.end_of_tick()

    def _compactor_stored(self, lsn: int) -> None:
        before = len(self.journal.records)
        self.compactor.stored(lsn)
        for record in self.journal.records[before:]:
            if record.kind == RecordKind.RELOCATED:
                self.model.moved(dict(_PAIR.iter_unpack(record.payload)))

    def _observe(self, command: object) -> None:
        match command:
            case Confirmed():
                self.model.confirmed(command)
            case Refused(lane, first):
                self.model.refused(lane, first)
            case Dispatched():
                self.model.dispatched(command)
            case Answered(request):
                asked = self._requests.pop(request)
                assert not asked.must_fail, "granted what cannot be"
                assert asked.stored_tick <= self.journal.stored.tick, "answered before it was stored"
            case Rejected(request):
                assert self._requests.pop(request).must_fail, "refused for no reason"

    # ---- what must hold between any two steps

    def check(self) -> None:
        for address in ADDRESSES:
            figures = self.destination(address).figures()
            assert figures.depth == self.model.depth(address)
            assert figures.in_flight == self.model.in_flight(address)
        assert self.journal.live() == self.model.live(), "held and needed differ"
        depth = sum(self.model.depth(address) for address in ADDRESSES)
        assert self.residence.used >= 0
        assert depth or self.residence.used == 0, "nothing waits and yet takes room"
        for address in ADDRESSES:
            self._check_consumers(self.destination(address))

    def _check_consumers(self, destination: Destination) -> None:
        busy = self.journal.loads or self.turns
        for messages in destination.lists():
            for consumer in messages.consumers.values():
                taker = self.model.takers[consumer.identity]
                assert consumer.credit == taker.credit
                assert taker.held or consumer.outstanding_bytes == 0, "its window shrinks for ever"
                if consumer.wants and not busy:
                    assert not any(self.model.waiting(destination.address, taker.list)), "nobody hands out"

    def drain(self) -> None:
        """Calm: the disk has room, clients come back, and one consumer takes and ends everything."""
        self.journal.is_full = False
        for session in self.sessions:
            self.resume_session(session)
        for taker in list(self.model.takers.values()):
            self.detach(taker)
        taker = self.model.takers[self.attach(QUEUE, 10**6)]
        for _ in range(10_000):
            if self.journal.unstored():
                self.store(self.journal.boundaries[-1])
            if self.journal.loads:
                self.page_arrives()
            elif self.turns:
                self.next_turns()
            elif taker.held:
                ranges = [(tag, tag) for tag in taker.held]
                self.settle(taker, ranges, returned=False, replenish=False, ask=False)
            elif not self.journal.unstored():
                break
            self.check()
        self._check_nothing_left()

    def _check_nothing_left(self) -> None:
        for letter in self.model.letters.values():
            assert all(copy.done for copy in letter.copies.values()), "accepted and never handed out"
        assert self.residence.used == 0
        assert self.journal.live() == {}
        assert not self._requests, "a request without an answer"
        for lane in self.model.lanes.values():
            assert lane.closed or lane.confirmed == lane.next_sequence - 1, "never confirmed"
