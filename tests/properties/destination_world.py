"""A message manager over its lives, with its clients, its disk and the model that watches.

The manager is the real one, with its committing, its gravedigger and its compactor. What a loop does happens
here in steps: the journal answers when it is told to, a crash may come between any two, and the model sees
everything that a client would see.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

from heliograph.bus.commands import (
    Answered,
    BrowseEnded,
    Command,
    CommitAsked,
    Confirmed,
    ConsumerAttached,
    ConsumerDetached,
    ConsumerRetired,
    CreditGranted,
    DestinationDeleted,
    DestinationWanted,
    Dispatched,
    Published,
    Refused,
    Rejected,
    RollbackAsked,
    SessionClosed,
    SessionLost,
    SessionOpened,
    SessionResumed,
    Settled,
    SubscriptionEnded,
)
from heliograph.bus.interface import Receiver
from heliograph.destinations.destination import Destination
from heliograph.destinations.effects import AnyEffect, Bury
from heliograph.destinations.pausing import Paused
from heliograph.destinations.snapshot import snapshot_of
from heliograph.destinations.topic import Topic
from heliograph.journal.files import JournalSettings
from heliograph.journal.records import RecordKind
from heliograph.model.block import Block, parse
from heliograph.model.destination import DEAD_MESSAGES, TEMPORARY_PREFIX, Address
from heliograph.model.ids import ConsumerId, IdIssuer, LaneId, SessionId, lane_of, text_of
from heliograph.model.policy import Policy
from heliograph.nodes.gravedigger import Gravedigger
from heliograph.nodes.message_manager import MessageManager
from heliograph.nodes.tick import Step, Tick
from tests.properties.destination_model import UNKNOWN, Model
from tests.properties.destination_parties import EVERYTHING, QUEUE_LIST, Lane, Letter, Sent, Subscriber, Taker
from tests.properties.engine_view import check_engine, note_expired
from tests.properties.memory_journal import Boundary, MemoryJournal
from tests.properties.surroundings import HERE, SECOND, START, ClockHere, Loop

QUEUE = Address("queue:orders")
TOPIC = Address("topic:prices")
ADDRESSES = (QUEUE, TOPIC)
Ranges = list[tuple[int, int]]


class Question(msgspec.Struct):
    """A request that awaits its one answer. `stored_tick`: what must be on disk before it may be granted."""

    must_fail: bool = False
    stored_tick: int = 0


class Transaction(msgspec.Struct):
    """A commit or rollback that a client asked for, which it may repeat."""

    number: int
    messages: int
    consumed: bool
    tick: int
    committed: bool


class Client(msgspec.Struct):
    """A session and what its client knows."""

    session: SessionId
    user: str
    identity: str
    opened: int
    transactions: int = 0
    staged: list[tuple[Lane, Sent]] = []
    last: Transaction | None = None
    temporaries: list[Address] = []

    def __repr__(self) -> str:
        return f"{self.user} {text_of(self.session)}, staged {self.staged}"


class WatchedGravedigger(Gravedigger):
    """Tells the model whom it buries."""

    world: World

    def bury(self, destination: Destination, order: Bury) -> None:
        self.world.burying(destination, order)
        super().bury(destination, order)
        self.world.has_buried(order)


class World:
    """One message manager after the other on one disk."""

    def __init__(self, resident_bytes: int) -> None:
        HERE.loop, HERE.journal = Loop(START), MemoryJournal()
        self.journal = HERE.journal
        self.model = self.make_model()
        self.model.now = START
        self.clients: dict[SessionId, Client] = {}
        self._resident_bytes = resident_bytes
        self._issuer = IdIssuer(site=1, node=1, started_ms=1)
        self._questions: dict[int, Question] = {}
        self._next_request = 1
        self._machine = 1
        self._grave: tuple[Address, int] | None = None
        self._copies = 0
        self._heard: list[Command] | None = None
        HERE.copied, HERE.added = self.copied, self.model.added
        self._start(b"machine 1")

    def make_model(self) -> Model:
        return Model()

    def _start(self, boot: bytes) -> None:
        HERE.boot, HERE.loop = boot, Loop(HERE.loop.now)
        self._steps: list[Step] = []
        self._questions.clear()
        self.manager = MessageManager(
            HERE.folder / "journal",
            bus=self,
            tick=cast("Tick", self),
            settings=JournalSettings(),
            resident_bytes=self._resident_bytes,
            in_memory=False,
            issuer=self._issuer,
            clock=ClockHere(),
        )
        digger = WatchedGravedigger(self.manager, self._issuer)
        digger.world = self
        self.manager._gravedigger = digger
        self.catalogue = self.manager.catalogue
        self.residence = self.catalogue.residence
        self.manager.start()
        # Nothing is handed out before the journal knows on which machine: a start that is lost would be
        # taken for a clean stop.
        self.end_of_tick()
        self.model.stored_lsn = self.journal.store_up_to(self.journal.boundaries[-1])

    # ---- the tick and the bus, as the manager sees them

    def add_write(self, step: Step) -> None:
        self._steps.append(step)

    def send_early(self) -> None:
        pass

    def ask(self) -> None:
        pass

    def join(self, _receiver: Receiver, _kinds: object = None) -> None:
        pass

    def multicast(self, command: Command) -> None:
        if self._heard is not None:
            self._heard.append(command)
        match command:
            case Confirmed():
                self.model.confirmed(command)
            case Refused(lane, first, code):
                self._refused(lane, first, code)
            case Dispatched():
                self.model.dispatched(command)
            case BrowseEnded(consumer):
                self.model.browsed(self.model.takers[consumer])
            case Answered(request) if request:
                asked = self._questions.pop(request)
                assert not asked.must_fail, "granted what cannot be"
                assert asked.stored_tick <= self.journal.stored.tick, "answered before it was stored"
            case Rejected(request):
                assert self._questions.pop(request).must_fail, f"refused for no reason: {command.sentence}"

    def _refused(self, identity: LaneId, first: int, code: str) -> None:
        lane = self.model.lanes[identity]
        if code == "storage-full":
            assert self.journal.is_full
            self.model.taken_back(lane, first)
            for client in self.clients.values():
                client.staged = [
                    (on, sent) for on, sent in client.staged if on is not lane or sent.first < first
                ]
        self.model.refused(identity, first)

    # ---- the dead, as they are buried

    def burying(self, destination: Destination, order: Bury) -> None:
        self._grave = (destination.address, self._list_of(destination, order.list_number))

    def copied(self, buffer: bytes) -> Block:
        """A copy for the dead message queue is there, and will be published at once."""
        assert self._grave is not None
        block = parse(buffer)
        self.model.buried(block, *self._grave, lsn=self.journal.next_lsn if block.persistent else 0)
        self._copies += 1
        return block

    def has_buried(self, order: Bury) -> None:
        assert self._grave is not None
        if not self._copies:
            assert self.journal.is_full, "there was room for the dead"
            names = [
                (span.block.lane, span.block.first + index)
                for span in order.spans
                for index in range(span.start, span.stop)
            ]
            self.model.not_buried(names, self._grave[1])
        self._copies, self._grave = 0, None

    def _list_of(self, destination: Destination, number: int) -> int:
        if not isinstance(destination, Topic):
            return QUEUE_LIST
        return next(
            each.identity
            for each in self.model.subscribers.values()
            if each.address == destination.address and each.number == number
        )

    # ---- sessions

    def destination(self, address: Address) -> Destination | None:
        return self.catalogue.by_address.get(address)

    def open_session(self, user: str, identity: str = "") -> Client:
        session = self._issuer.session()
        client = self.clients[session] = Client(session, user, identity, self.model.tick)
        self._tell(SessionOpened(self._ask(), session, user, b"t"))
        for number, address in enumerate(ADDRESSES, start=1):
            self._open_lane(client, number, address)
        self.end_of_tick()
        return client

    def _open_lane(self, client: Client, number: int, address: Address) -> Lane:
        lane = Lane(lane_of(client.session, number), address, client.user, self.model.tick)
        self.model.lanes[lane.identity] = lane
        self._tell(DestinationWanted(self._ask(), address, True, lane.identity))
        return lane

    def lanes_of(self, client: Client) -> list[Lane]:
        return [
            lane
            for identity, lane in self.model.lanes.items()
            if identity[:14] == client.session[:14] and not lane.closed
        ]

    def close_session(self, client: Client) -> None:
        self._leave(client)
        for lane in self.lanes_of(client):
            lane.closed = True
        del self.clients[client.session]
        self._tell(SessionClosed(client.session))
        self.end_of_tick()

    def lose_session(self, client: Client) -> None:
        """Its connection breaks, and comes back."""
        self._leave(client)
        self._tell(SessionLost(client.session))
        self.end_of_tick()
        self.resume_session(client)

    def _leave(self, client: Client) -> None:
        for taker in [each for each in self.model.takers.values() if each.session == client.session]:
            self.model.detached(taker.identity)
            self._tell(ConsumerDetached(taker.address, taker.identity))
        for address in list(client.temporaries):
            self.delete_temporary(client, address)
        client.staged.clear()

    def move_session(self, client: Client) -> None:
        """Its client comes back before anybody has noticed that it was gone: a resumption is a loss first."""
        for taker in [each for each in self.model.takers.values() if each.session == client.session]:
            self.model.detached(taker.identity)
        self.resume_session(client)

    def resume_session(self, client: Client) -> None:
        """The client learns how far each lane has come, and sends again what is missing."""
        heard: list[Command] = []
        self._tell(SessionResumed(self._ask(), client.session, client.user, b"t"), heard)
        told = {number: last for number, _, last in _answer(heard)["lanes"]}
        for lane in self.lanes_of(client):
            number = int.from_bytes(lane.identity[14:], "big")
            last = told.get(number)
            if last is None:
                last = self._want_again(lane)
            self.model.resumed(lane.identity, last)
            for sent in lane.unconfirmed:
                if sent.first > lane.mark + 1 and not lane.fresh:  # what lies between was of a transaction
                    self.model.resumed(lane.identity, self._want(lane))
                self.send(lane, sent.buffer)
        self.end_of_tick()

    def _want_again(self, lane: Lane) -> int:
        """A lane of which nothing was stored is not remembered with its session."""
        assert not any(letter.lane == lane.identity for letter in self.model.letters.values())
        return self._want(lane)

    def _want(self, lane: Lane) -> int:
        heard: list[Command] = []
        self._tell(DestinationWanted(self._ask(), lane.address, True, lane.identity), heard)
        last = _answer(heard)["last"]
        assert isinstance(last, int)
        return last

    # ---- temporary destinations

    def make_temporary(self, client: Client) -> Lane:
        number = 10 + len(self.lanes_of(client)) + self.model.tick
        address = Address(f"queue:{TEMPORARY_PREFIX}{client.session.hex()}.{number}")
        client.temporaries.append(address)
        lane = self._open_lane(client, number, address)
        self.end_of_tick()
        return lane

    def delete_temporary(self, client: Client, address: Address) -> None:
        client.temporaries.remove(address)
        self._tell(DestinationDeleted(address))
        self._temporary_is_gone(address)
        self.end_of_tick()

    def _temporary_is_gone(self, address: Address) -> None:
        self.model.deleted(address)
        for lane in self.model.lanes.values():
            lane.closed = lane.closed or lane.address == address

    # ---- sending

    def publish(self, lane: Lane, buffer: bytes, *, staged: bool = False) -> None:
        block = parse(buffer)
        lane.sent.append(Sent(block.first, block.last, buffer, staged))
        self.send(lane, buffer, staged=staged)
        self.end_of_tick()

    def send(self, lane: Lane, buffer: bytes, *, staged: bool = False) -> str:
        """Returns what the model says must become of it."""
        block = parse(buffer)
        verdict = self.model.judge(block)
        if verdict == "accepted":
            self.model.taken(block)
            if staged:
                client = self.clients[SessionId(lane.identity[:14] + b"\0\0")]
                client.staged.append((lane, lane.sent[-1]))
            else:
                lsn = self.journal.next_lsn if block.persistent else 0
                self.model.accepted(block, lane.address, lsn=lsn)
        self._tell(Published(lane.address, parse(buffer), staged=staged))
        assert not lane.expects_refusal_of, "the client was not told of a refusal"
        return verdict

    # ---- receiving

    def attach(
        self,
        client: Client,
        address: Address,
        credit: int,
        *,
        selector: str = EVERYTHING,
        browse: bool = False,
    ) -> Taker:
        """A consumer or a browser of a queue, or a subscriber of a topic for as long as it is there."""
        taker = Taker(
            self._issuer.consumer(), address, client.session, credit, selector=selector, browses=browse
        )
        self.model.takers[taker.identity] = taker
        if address == TOPIC:
            self._subscribe(client, taker, Subscriber(address, "", "", False, False, selector))
        else:
            self._attach(client, taker)
        self.end_of_tick()
        return taker

    def _attach(self, client: Client, taker: Taker, wish: Subscriber | None = None) -> None:
        if taker.browses:
            taker.may_see = self.model.present(taker.address)
            taker.on_its_way = [letter for letter in taker.may_see if not letter.added]
        elif taker.selector and taker.address != TOPIC:
            self.model.selective.add(taker.address)
        command = ConsumerAttached(
            self._ask(),
            taker.address,
            taker.identity,
            client.session,
            taker.credit,
            selector=taker.selector,
            browse=taker.browses,
            number=self.number_of(taker),
        )
        if wish is not None:
            command.subscription, command.client = wish.name, wish.client
            command.durable, command.shared = wish.durable, wish.shared
        self._tell(command)

    def number_of(self, _taker: Taker) -> int:
        """Under which its client could claim it; -1: under none."""
        return -1

    def _subscribe(self, client: Client, taker: Taker, wish: Subscriber) -> None:
        found = self.subscriber_like(wish) if wish.name else None
        if found is not None and found.selector != wish.selector:
            self.model.unsubscribed(found)  # other wishes make it another subscription
            found = None
        subscriber = found or self.model.subscribed(msgspec.structs.replace(wish))
        taker.list = subscriber.identity
        self._attach(client, taker, wish)
        topic = self.catalogue.by_address[taker.address]
        messages = topic.list_of(taker.identity)
        assert messages is not None
        subscriber.number = messages.number

    def subscriber_like(self, wish: Subscriber) -> Subscriber | None:
        for each in self.model.subscribers.values():
            key = (each.client, each.name, each.durable)
            if key == (wish.client, wish.name, wish.durable) and each.is_there_for(wish.address):
                return each
        return None

    def subscribe(self, client: Client, wish: Subscriber, credit: int) -> Taker | None:
        """A subscription with a name. None: it is refused."""
        taker = Taker(self._issuer.consumer(), TOPIC, client.session, credit, selector=wish.selector)
        found = self.subscriber_like(wish)
        used = found is not None and any(other.list == found.identity for other in self.model.takers.values())
        if (
            (wish.durable and not wish.shared and not wish.client)
            or (found is not None and found.shared != wish.shared)
            or (found is not None and used and (not wish.shared or found.selector != wish.selector))
        ):
            request = self._ask(must_fail=True)
            command = ConsumerAttached(request, TOPIC, taker.identity, client.session, credit)
            command.selector, command.subscription, command.client = wish.selector, wish.name, wish.client
            command.durable, command.shared = wish.durable, wish.shared
            self._tell(command)
            self.end_of_tick()
            return None
        self.model.takers[taker.identity] = taker
        self._subscribe(client, taker, wish)
        self.end_of_tick()
        return taker

    def unsubscribe(self, client: str, name: str) -> None:
        wish = Subscriber(TOPIC, client, name, True, False, "")
        found = self.subscriber_like(wish)
        used = found is not None and any(other.list == found.identity for other in self.model.takers.values())
        self._tell(SubscriptionEnded(self._ask(must_fail=found is None or used), client, name))
        if found is not None and not used:
            self.model.unsubscribed(found)
        self.end_of_tick()

    def grant(self, taker: Taker, count: int) -> None:
        taker.credit += count
        self._tell(CreditGranted(taker.address, taker.identity, count))
        self.end_of_tick()

    def settle(self, taker: Taker, ranges: Ranges, *, returned: bool, replenish: bool, ask: bool) -> None:
        request = self._ask() if ask else 0
        is_written = not returned and self._is_written_down(taker, ranges)
        count, unknown = self.model.settled(taker, ranges, returned=returned)
        if replenish:
            taker.credit += count
        if ask:
            stored_tick = self.model.tick if is_written and not unknown else 0
            self._questions[request] = Question(must_fail=unknown, stored_tick=stored_tick)
        self._tell(Settled(taker.address, taker.identity, returned, ranges, replenish, request, "because"))
        self.end_of_tick()

    def _is_written_down(self, taker: Taker, ranges: Ranges) -> bool:
        """Whether the answer has to wait for the disk."""
        subscriber = self.model.subscribers.get(taker.list)
        is_kept = subscriber is None or subscriber.durable
        named = [
            taker.held[tag] for first, last in ranges for tag in range(first, last + 1) if tag in taker.held
        ]
        return is_kept and any(letter.persistent for letter in named)

    def retire(self, taker: Taker, seen: int) -> None:
        """It takes nothing more, and keeps what its application saw until that is settled."""
        self.model.unseen(taker, seen)
        self._tell(ConsumerRetired(taker.address, taker.identity, self._ask(), seen))
        self.end_of_tick()

    def detach(self, taker: Taker, seen: int = UNKNOWN) -> None:
        self.model.detached(taker.identity, seen)
        self._tell(ConsumerDetached(taker.address, taker.identity, self._ask(), seen))
        self.end_of_tick()

    # ---- transactions

    def commit(self, client: Client, consumed: list[tuple[Taker, Ranges]], *, miscount: int = 0) -> None:
        """Everything staged, and these tags. `miscount`: the client is wrong about what it sent."""
        client.transactions += 1
        staged, client.staged = client.staged, []
        messages = sum(sent.last - sent.first + 1 for _, sent in staged) + miscount
        consumed = [(taker, ranges) for taker, ranges in consumed if ranges]
        fails = (
            miscount != 0
            or (self.journal.is_full and self._needs_room(staged))
            or self.is_refused(client, staged)
        )
        command = CommitAsked(
            self._ask(must_fail=fails),
            client.session,
            client.transactions,
            messages,
            [(taker.address, taker.identity, ranges) for taker, ranges in consumed],
        )
        client.last = Transaction(
            client.transactions, messages, bool(consumed), self.model.tick, committed=not fails
        )
        letters: list[Letter] = []
        if not fails:
            self._questions[command.request].stored_tick = self.model.tick
            letters = self._take_effect(staged, consumed)
        self._tell(command)
        lsns = [record.lsn for record in self.journal.records if record.kind == RecordKind.COMMITTED]
        for letter in letters:
            letter.lsn = lsns[-1]
        self.end_of_tick()

    def is_refused(self, _client: Client, _staged: list[tuple[Lane, Sent]]) -> bool:
        """Whether this server may not decide."""
        return False

    def _needs_room(self, staged: list[tuple[Lane, Sent]]) -> bool:
        """Whether something that may be lost has to go to the disk because memory is short."""
        blocks = [(self.destination(lane.address), parse(sent.buffer)) for lane, sent in staged]
        return any(
            destination is not None and not block.persistent and not destination.needs_no_disk(block)
            for destination, block in blocks
        )

    def _take_effect(
        self, staged: list[tuple[Lane, Sent]], consumed: list[tuple[Taker, Ranges]]
    ) -> list[Letter]:
        for taker, ranges in consumed:
            count, unknown = self.model.settled(taker, ranges, returned=False)
            assert not unknown
            taker.credit += count
        letters: list[Letter] = []
        for lane, sent in staged:
            if not lane.closed:  # else its destination was temporary, and is gone
                block = parse(sent.buffer)
                self.model.accepted(block, lane.address, lsn=self.journal.next_lsn)
                letters += self.model.letters_of(block)
        for letter in letters:
            letter.of_transaction = True
        return letters

    def roll_back(
        self, client: Client, seen: dict[ConsumerId, int], heard: list[Command] | None = None
    ) -> None:
        """`seen`: for each consumer the last tag that reached the application."""
        client.transactions += 1
        client.staged.clear()
        client.last = Transaction(client.transactions, 1, False, self.model.tick, committed=False)
        takers = [
            each for each in self.model.takers.values() if each.session == client.session and not each.browses
        ]
        for taker in takers:
            self.model.rolled_back(taker, seen.get(taker.identity, UNKNOWN))
        consumers = [(taker.address, taker.identity, seen.get(taker.identity, UNKNOWN)) for taker in takers]
        self._tell(RollbackAsked(self._ask(), client.session, client.transactions, consumers), heard)
        self.end_of_tick()

    def repeat_commit(self, client: Client) -> None:
        """The client did not hear the answer, and asks again."""
        last = client.last
        if last is None or not (last.messages or last.consumed):
            return
        gone = (QUEUE, self._issuer.consumer(), [(1, 1)])
        command = CommitAsked(
            self._ask(must_fail=not last.committed),
            client.session,
            last.number,
            last.messages,
            [gone] if last.consumed else [],
        )
        self._questions[command.request].stored_tick = last.tick if last.committed else 0
        self._tell(command)
        if not last.committed:
            client.staged.clear()
        self.end_of_tick()

    # ---- the node, its disk and its clock

    def store(self, boundary: Boundary) -> None:
        self._stored(self.journal.store_up_to(boundary))

    def _stored(self, lsn: int) -> None:
        self.model.stored_lsn = max(self.model.stored_lsn, lsn)
        self.manager.journal_stored(lsn)
        self.journal.delete_finished()
        self.end_of_tick()

    def take_snapshot(self) -> None:
        self.journal.begin_snapshot(snapshot_of(self.catalogue, HERE.boot))

    def finish_snapshot(self) -> None:
        self._stored(self.journal.finish_snapshot())

    def page_arrives(self) -> None:
        self.journal.page_arrives()
        self.end_of_tick()

    def next_turns(self) -> None:
        soon, HERE.loop.soon = HERE.loop.soon, []
        for call in soon:
            call()
        self.end_of_tick()

    @property
    def turns(self) -> bool:
        return bool(HERE.loop.soon)

    def compact(self) -> None:
        self.manager._compactor.step()
        self.end_of_tick()

    def pass_time(self, seconds: float) -> None:
        loop = HERE.loop
        until = loop.now + int(seconds * SECOND)
        while (timer := loop.next_due(until)) is not None:
            loop.now = self.model.now = max(loop.now, timer.due)
            timer.call()
            self.end_of_tick()
        loop.now = self.model.now = until

    def set_policy(self, address: Address, policy: Policy) -> None:
        effects: list[AnyEffect] = []
        self.catalogue.set_policy(address, policy, effects)
        self.model.policies.setdefault(address, []).append((self.model.tick, policy))
        self.manager.run(self.destination(address), effects)
        self.end_of_tick()

    def set_paused(self, address: Address, paused: bool) -> None:
        """Consumption only: whether a producer heeds what it is told is seen elsewhere."""
        effects: list[AnyEffect] = []
        destination = self.destination(address)
        if destination is None:
            return
        self.catalogue.set_paused(destination, Paused(consumption=paused), effects)
        self.model.pauses.setdefault(address, []).append((self.model.tick, paused))
        self.manager.run(destination, effects)
        self.end_of_tick()

    def crash(self, kept: Boundary, *, machine: bool, clean: bool = False) -> None:
        """`machine`: it is another run of the machine; only then may anything that was written be lost."""
        if clean:
            self.stop()
            kept = self.journal.boundaries[-1]
        assert machine or kept == self.journal.boundaries[-1]
        self._machine += machine
        self.journal.crash(kept)
        for client in self.clients.values():
            client.staged.clear()
            if client.last is not None and client.last.tick > kept.tick:
                client.last.committed = False
            for address in client.temporaries:
                self._temporary_is_gone(address)
            client.temporaries.clear()
        self.model.crashed(kept.tick, lost_machine=machine and not clean)
        self.model.stored_lsn = kept.next_lsn - 1
        self.clients = {
            session: client for session, client in self.clients.items() if client.opened <= kept.tick
        }
        self._start(b"machine %d" % self._machine)
        self._check_numbers()

    def stop(self) -> None:
        """The process ends as it should."""
        self.manager.stop()
        self.model.tick = self.journal.tick

    def _check_numbers(self) -> None:
        """Replay gave the numbers of before, and the next that is given is free."""
        for address in (*ADDRESSES, DEAD_MESSAGES):
            destination = self.destination(address)
            numbers = [each.number for each in self.model.letters.values() if each.address == address]
            assert destination is not None or not numbers
            next_number = destination.intake.next_number if destination is not None else 1
            assert next_number > max(numbers, default=0), "a number was given twice"
            self.model.next_number[address] = next_number - 1

    def end_of_tick(self) -> None:
        note_expired(self.model, self.catalogue)
        for step in self._steps:
            step()
        self.model.tick = self.journal.tick

    def _ask(self, *, must_fail: bool = False) -> int:
        request = self._next_request
        self._next_request += 1
        self._questions[request] = Question(must_fail)
        return request

    def _tell(self, command: Command, heard: list[Command] | None = None) -> None:
        self._heard = heard
        self.manager.on_command(command)
        self._heard = None

    # ---- what must hold

    def check(self) -> None:
        """Between any two steps."""
        to_nowhere = [
            what
            for _, destination, what in self.manager._persisting
            if isinstance(what, Block) and destination is not None and destination.has_ended
        ]
        check_engine(self.model, self.catalogue, self.journal, to_nowhere)
        self._check_consumers()

    def _check_consumers(self) -> None:
        busy = self.journal.loads or self.turns
        for destination in self.catalogue.all_destinations():
            for messages in destination.lists():
                takers = {taker.identity: taker for taker in self.model.all_takers()}
                for consumer in messages.consumers.values():
                    taker = takers[consumer.identity]
                    assert consumer.credit == taker.credit
                    is_free = consumer.outstanding_bytes == 0 or consumer.retired
                    assert taker.held or is_free, "its window shrinks for ever"
                    if consumer.room > 0 and not busy and not self.model.is_paused(taker.address):
                        assert not any(self.model.eligible(taker)), "nobody hands out"

    def drain(self) -> None:
        """Calm: the disk has room, clients come back, and consumers take and end everything."""
        self.journal.is_full = False
        for address in (QUEUE, TOPIC, DEAD_MESSAGES):
            self.set_policy(address, Policy(redelivery_limit=0))
            self.set_paused(address, False)
        for client in list(self.clients.values()):
            self.lose_session(client)
        client = self.open_session("last")
        for taker in list(self.model.takers.values()):
            self.detach(taker)
        self.pass_time(60)
        takers = [self.attach(client, address, 10**6) for address in (QUEUE, DEAD_MESSAGES)]
        for wish in [each for each in self.model.subscribers.values() if not each.ended]:
            last = self.subscribe(client, msgspec.structs.replace(wish), 10**6)
            assert last is not None
            takers.append(last)
        for _ in range(10_000):
            if not self._calm_step(takers):
                break
            self.check()
        self._check_nothing_left()

    def _calm_step(self, takers: list[Taker]) -> bool:
        if self.journal.unstored():
            self.store(self.journal.boundaries[-1])
        if self.journal.loads:
            self.page_arrives()
        elif self.turns:
            self.next_turns()
        elif any(taker.held for taker in takers):
            taker = next(taker for taker in takers if taker.held)
            ranges = [(tag, tag) for tag in taker.held]
            self.settle(taker, ranges, returned=False, replenish=False, ask=False)
        else:
            return bool(self.journal.unstored())
        return True

    def _check_nothing_left(self) -> None:
        for letter in self.model.letters.values():
            for of, copy in letter.copies.items():
                ended = of != QUEUE_LIST and self.model.subscribers[of].ended
                assert copy.done or ended, "accepted and never handed out"
        assert self.residence.used == 0, "nothing waits and yet takes room"
        assert self.journal.live() == {}, "nothing is needed and yet held"
        assert not self._questions, "a request without an answer"
        for lane in self.model.lanes.values():
            assert lane.closed or not lane.unconfirmed, "never confirmed"


def _answer(heard: list[Command]) -> dict[str, Any]:
    (answer,) = [each for each in heard if isinstance(each, Answered)]
    return answer.body
