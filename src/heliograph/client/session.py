"""A session: one order of sending, one way of acknowledging, and both carried over to another connection.

Lanes and consumers live here. When the connection is lost they are kept; on the next one the session is
resumed by its id and token (M8): the server says what it has of each lane and the rest is sent again; each
consumer says what it holds, and goes on with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Unpack

from heliograph.client.alerts import AlertDesk
from heliograph.client.browser import Browser
from heliograph.client.consumer import Consumer
from heliograph.client.distributed import DistributedProducer
from heliograph.client.fan_in import DistributedBrowser, DistributedConsumer, FanIn
from heliograph.client.forwarding.producer import StoringProducer
from heliograph.client.incoming import Mode
from heliograph.client.large_reading import LargeStream, MessageStream
from heliograph.client.large_sending import send_stream
from heliograph.client.large_source import StreamSource
from heliograph.client.message import Message, Received
from heliograph.client.outgoing import Lane
from heliograph.client.posted import LARGE_UNKNOWN, Posted
from heliograph.client.preparing import MessageOptions, ProducerOptions
from heliograph.client.producer import Producer
from heliograph.client.requesting import is_temporary
from heliograph.client.routes import Routes
from heliograph.client.sender import Sender, renewed
from heliograph.client.subscribing import ConsumerOptions, Terms, browsing, terms_of
from heliograph.client.transaction import Transaction, not_transacted
from heliograph.client.wire import IsDistributed
from heliograph.frontends.native.frames import (
    ADDRESS_LENGTH,
    DELIVERY,
    PAIR,
    Answer,
    CloseSession,
    Completed,
    ConsumerClosed,
    EndSubscription,
    LaneOpened,
    OpenLane,
    OpenSession,
    Recover,
    Refused,
    Rollback,
    SessionOpened,
)
from heliograph.model.distribution import UNREACHABLE, unreachable
from heliograph.model.errors import ClientFault, ConnectionLost, HeliographError, Unavailable, from_code
from heliograph.model.ids import SessionId, lane_of, text_of
from heliograph.model.large import LargeReference
from heliograph.model.limits import (
    CLOSE_RECONNECT_SECONDS,
    CONSUMER_CREDIT,
    HANDSHAKE_SECONDS,
    MAX_CONSUMERS_PER_SESSION,
    MAX_LANES_PER_SESSION,
)
from heliograph.model.message import Body

if TYPE_CHECKING:
    from heliograph.client.link import Link
    from heliograph.client.wire import Wire

log = logging.getLogger("heliograph.client")

SESSION_UNKNOWN = "session-unknown"


class Session:
    """Made by `Connection.session`."""

    def __init__(self, link: Link, number: int, mode: Mode, opened: SessionOpened) -> None:
        self.number = number
        self.clock = link.clock
        self._link = link
        self._mode = mode
        self._identity = SessionId(opened.session)
        self._token = opened.token
        self._wire: Wire | None = None
        self._senders: dict[str, Sender] = {}  # by destination: where new messages go
        self._lanes: dict[int, Sender] = {}  # by lane number, finished ones included
        self._opening: dict[str, asyncio.Task[Sender]] = {}
        self._last_lane = 0
        self._consumers: dict[int, Consumer] = {}
        self._last_consumer = 0
        self._routes = Routes(link, number, bytes(opened.session))  # to distributed destinations (U6)
        self._fan_ins: list[FanIn] = []
        self._leaving: list[Consumer] = []  # closed while there was no server to tell
        self._is_stopped = False
        self.unit_of_order = link.unit_for_session()
        self._was_lost = False  # and begun again under another id, which the application has yet to hear
        self._ended: HeliographError | None = None
        self.transaction = Transaction(self, link) if mode is Mode.TRANSACTED else None
        self.alerts = AlertDesk(self, link, number)

    @property
    def id(self) -> str:
        """Empty until the server has given it one, where it is not waited for."""
        return text_of(self._identity) if self._identity else ""

    @property
    def credentials(self) -> tuple[bytes, bytes]:
        """The id of the session, and the secret by which its client is known."""
        return bytes(self._identity), self._token

    def __repr__(self) -> str:
        return f"<Session {self.id}>"

    # ---- producers

    async def producer(self, destination: str, **options: Unpack[ProducerOptions]) -> Producer:
        """A producer to `queue:NAME` or `topic:NAME`; what it is given here are defaults for its messages."""
        options.setdefault("unit_of_order", self.unit_of_order)
        agent = self._link.agent
        if agent is None or is_temporary(destination):
            return await self.direct_producer(destination, **options)
        self._check_open()
        return StoringProducer(self, agent, await agent.lane_to(destination), **options)

    async def direct_producer(self, destination: str, **options: Unpack[ProducerOptions]) -> Producer:
        """A producer that stores nothing here."""
        route = self._routes.get(destination)
        if route is None:
            try:
                return Producer(self, await self.sender_for(destination), **options)
            except IsDistributed as found:
                route = self._routes.found(destination, found)
        producer = DistributedProducer(self, route, **options)
        await producer.open_members()
        return producer

    async def reply(self, destination: str, body: Body, options: MessageOptions) -> None:
        """What `Message.reply` does. Temporary queues come and go, and get lanes of sessions that do too."""
        if self.transaction is None and self._link.replier is not None and is_temporary(destination):
            await self._link.replier.reply(destination, body, options)
        else:
            producer = await self.producer(destination)
            await producer.send(body, **options)

    def open_large(self, destination: str, reference: LargeReference) -> MessageStream:
        """The content of a large message that was received from a destination."""
        return LargeStream(self._link, self.number, destination, reference)

    async def send_stream(
        self, producer: Producer, source: StreamSource, threshold: int, options: MessageOptions
    ) -> str:
        """What `Producer.send_stream` does."""
        self._check_open()
        return await send_stream(producer, self._link, self.number, source, threshold, **options)

    def senders(self) -> Iterable[Sender]:
        return self._lanes.values()

    async def sender_for(self, destination: str) -> Sender:
        """The lane to a destination, shared by all producers to it (J11). Opened when there is none."""
        self._check_open()
        sender = self._senders.get(destination)
        if sender is not None and not sender.is_finished:
            return sender
        opening = self._opening.get(destination)
        if opening is None:
            opening = asyncio.create_task(self._open_lane(destination))
            self._opening[destination] = opening
            opening.add_done_callback(lambda _: self._opening.pop(destination, None))
        return await asyncio.shield(opening)

    async def _open_lane(self, destination: str) -> Sender:
        number = self._next_lane()
        await self._link.request(
            lambda: OpenLane(request=0, number=self.number, lane=number, destination=destination), LaneOpened
        )
        self._check_open()
        lane = Lane(number, lane_of(self._identity, number), block_messages=self._link.block_messages)
        sender = Sender(lane, destination, self.number, self.clock, is_staged=self.transaction is not None)
        self._hold_back(sender, self._link.blocks.reason(destination, self.number))
        self._senders[destination] = self._lanes[number] = sender
        if self._wire is not None:
            sender.attach(self._wire)
        return sender

    def new_lane(self) -> int:
        """A lane of its own, for who sends on it otherwise."""
        return self._next_lane()

    def new_consumer_number(self) -> int:
        self._last_consumer += 1
        return self._last_consumer

    def _next_lane(self) -> int:
        for number, sender in list(self._lanes.items()):
            if sender.is_spent and not sender.has_unheard_fault:
                del self._lanes[number]
        if self._last_lane >= MAX_LANES_PER_SESSION:
            raise ClientFault(
                f"a session has at most {MAX_LANES_PER_SESSION} lanes: open another", code="too-many-lanes"
            )
        self._last_lane += 1
        return self._last_lane

    # ---- consumers

    async def consumer(self, destination: str, **options: Unpack[ConsumerOptions]) -> Consumer:
        """A consumer of `queue:NAME` or `topic:NAME`; the server sends at most `credit` messages ahead.

        It gets what its `selector` selects, and with `no_local` nothing that this connection sent. A
        subscription to a topic may be `durable` (a name), `shared` (a name), or both (a name and True).
        """
        return await self.subscribe(terms_of(destination, **options), Message)

    async def browser(self, destination: str, *, selector: str = "") -> Browser:
        """Look at what waits in `queue:NAME` without taking it."""
        return await self.browse(destination, selector, Message)

    async def browse(self, destination: str, selector: str, message_type: type[Received]) -> Browser:
        terms = browsing(destination, selector, CONSUMER_CREDIT)
        route = self._routes.get(destination)
        if route is None:
            try:
                return await self._browse(terms, message_type)
            except IsDistributed as found:
                route = self._routes.found(destination, found)
        browser = DistributedBrowser(self, route, terms, message_type)
        await browser.begin(lambda member: self._browse(terms.at(member, len(route.members)), message_type))
        return browser

    async def _browse(self, terms: Terms, message_type: type[Received]) -> Browser:
        self._last_consumer += 1
        browser = Browser(self, self._last_consumer, terms, message_type=message_type)
        await self._make(browser)
        return browser

    async def subscribe(self, terms: Terms, message_type: type[Received]) -> Consumer:
        route = self._routes.get(terms.destination)
        if route is None:
            try:
                return await self._consume(terms, message_type)
            except IsDistributed as found:
                route = self._routes.found(terms.destination, found)
        consumer = DistributedConsumer(self, route, terms, self._mode, message_type)
        self._fan_ins.append(consumer)
        await consumer.begin(lambda member: self._consume(terms.at(member, len(route.members)), message_type))
        return consumer

    async def _consume(self, terms: Terms, message_type: type[Received]) -> Consumer:
        self._last_consumer += 1
        consumer = Consumer(self, self._last_consumer, terms, mode=self._mode, message_type=message_type)
        await self._make(consumer)
        return consumer

    def forget_fan_in(self, consumer: FanIn) -> None:
        if consumer in self._fan_ins:
            self._fan_ins.remove(consumer)

    @property
    def is_connected(self) -> bool:
        return self._wire is not None

    def report(self, error: HeliographError) -> None:
        """Something happened that nobody waits for."""
        self._link.report(error)

    async def unsubscribe(self, name: str) -> None:
        """Give up a durable subscription, which has no consumer, with all that waits in it."""
        self._check_open()
        await self._link.request(
            lambda: EndSubscription(request=0, number=self.number, subscription=name), Completed
        )

    async def _make(self, consumer: Consumer) -> None:
        self._check_open()
        if len(self._consumers) >= MAX_CONSUMERS_PER_SESSION:
            raise ClientFault(
                f"a session has at most {MAX_CONSUMERS_PER_SESSION} consumers", code="too-many-consumers"
            )
        if self._is_stopped:
            consumer.stop()
        # Known before the server answers: messages may arrive together with the answer.
        self._consumers[consumer.number] = consumer
        try:
            await self._subscribe(consumer)
        except BaseException:
            self.forget_consumer(consumer)
            raise
        consumer.is_subscribed = True

    async def _subscribe(self, consumer: Consumer) -> None:
        """Have the server make a consumer, and go on with it if the answer was lost with its connection."""
        while True:
            wire = await self._link.ready()
            try:
                if consumer.was_asked_for and not isinstance(consumer, Browser):
                    await self._claim(wire, consumer)
                else:
                    consumer.was_asked_for = True
                    consumer.attach(wire)
                    await wire.request(consumer.subscription(), Completed)
            except ConnectionLost:
                if self._link.wire is wire:  # the server itself answered so
                    raise
            else:
                return

    async def _claim(self, wire: Wire, consumer: Consumer) -> bool:
        """Whether the server goes on with a consumer where it was; otherwise it is a new one."""

        def claimed(answer: Answer) -> None:
            consumer.claimed(wire, answer.body)

        answer = await wire.request(consumer.claim(), Answer, claimed)
        return bool(answer.body["resumed"])

    def consumers(self) -> Iterable[Consumer]:
        return self._consumers.values()

    def forget_consumer(self, consumer: Consumer) -> None:
        self._consumers.pop(consumer.number, None)

    def let_go_later(self, consumer: Consumer) -> None:
        """A consumer was closed, and there is no server to tell."""
        if self._ended is None and not isinstance(consumer, Browser):
            self._leaving.append(consumer)

    async def acknowledge(self, *, confirm: bool = False) -> None:
        """Mode "client": everything handed over so far, by all consumers of the session, is processed."""
        if self._mode is Mode.INDIVIDUAL:
            raise ClientFault(
                "the session acknowledges individually: use message.acknowledge()", code="acknowledge-mode"
            )
        self.check_not_closed()
        if self._mode is Mode.CLIENT:
            await asyncio.gather(
                *[consumer.acknowledge(confirm=confirm) for consumer in self._consumers.values()]
            )

    async def recover(self) -> None:
        """Have everything again that was handed over and not acknowledged, in order, marked redelivered."""
        if self.transaction is not None:
            raise ClientFault("a transacted session has rollback() instead", code="transacted")
        self._check_open()
        wire = await self._link.ready()
        await self.end_closed_consumers()
        await self.have_all_again(wire, lambda seen: Recover(request=0, number=self.number, seen=seen))

    async def have_all_again(
        self, wire: Wire, make: Callable[[list[tuple[int, int]]], Recover | Rollback]
    ) -> None:
        """The server's answer comes before anything it delivers again; what arrives until then is stale.

        `make` is given how far the application has come with each consumer.
        """
        consumers = list(self._consumers.values())
        request = make([(consumer.number, consumer.suspend()) for consumer in consumers])

        def go_on(_: Completed) -> None:
            for consumer in consumers:
                consumer.go_on()

        try:
            with suppress(ConnectionLost):  # then the same is said when the consumers are claimed
                await wire.request(request, Completed, go_on)
        finally:
            for consumer in consumers:
                consumer.suspension_over()

    # ---- transactions

    async def commit(self) -> None:
        """All that was sent and received since the last commit takes effect together.

        Raises TransactionRolledBack when none of it did: it has to be done again.
        """
        if self.transaction is None:
            raise not_transacted()
        self._check_open()
        await self.transaction.commit()

    async def rollback(self) -> None:
        """Drop what was sent since the last commit, and have everything again that was received."""
        if self.transaction is None:
            raise not_transacted()
        self._check_open()
        await self.transaction.roll_back()

    def committed(self, number: int, ranges: list[tuple[int, int]]) -> None:
        """What a consumer had consumed is done."""
        consumer = self._consumers.get(number)
        if consumer is not None:
            consumer.committed(ranges)

    async def end_closed_consumers(self) -> None:
        """Consumers that were closed had to stay until it was decided what becomes of their messages."""
        for consumer in list(self._consumers.values()):
            if consumer.is_closed:
                await consumer.unsubscribe()

    def start(self) -> None:
        self._is_stopped = False
        for consumer in self._consumers.values():
            consumer.start()

    def stop(self) -> None:
        self._is_stopped = True
        for consumer in self._consumers.values():
            consumer.stop()

    # ---- what the server said

    def confirm(self, payload: bytes) -> None:
        for lane, upto in PAIR.iter_unpack(payload):
            sender = self._lanes.get(lane)
            if sender is not None:
                sender.confirm(upto)

    def deliver_from(self, payload: bytes) -> None:
        """A delivery to a consumer of many topics says which one it comes from."""
        (length,) = ADDRESS_LENGTH.unpack_from(payload)
        start = ADDRESS_LENGTH.size + length
        self.deliver(payload[start:], payload[ADDRESS_LENGTH.size : start].decode(errors="replace"))

    def blocked(self, destination: str, reason: str) -> None:
        self._link.blocks.told(self.number, destination, reason)
        sender = self._senders.get(destination)
        if sender is not None:
            self._hold_back(sender, reason)

    def _hold_back(self, sender: Sender, reason: str) -> None:
        """A member of a distributed destination that cannot be reached is not waited for (U6)."""
        is_away = reason == UNREACHABLE
        sender.block(reason != "" and not is_away)
        if is_away or sender.away is not None:
            sender.miss(unreachable(sender.destination) if is_away else None)

    def deliver(self, payload: bytes, destination: str = "") -> None:
        number, earlier, first_tag, user_bytes = DELIVERY.unpack_from(payload)
        consumer = self._consumers.get(number)
        if consumer is not None:  # otherwise it is closing, and what it does not settle returns
            consumer.deliver(payload, earlier, first_tag, user_bytes, destination)

    def refused(self, news: Refused) -> None:
        sender = self._lanes.get(news.lane)
        if sender is None:
            return
        refusal = from_code(news.code, news.sentence)
        if news.code != LARGE_UNKNOWN or not sender.lacks(news.first, refusal):
            self._refuse(sender, news.first, refusal)

    async def go_on_behind(self, posted: Posted) -> None:
        """A large message lacks its content no more: its lane goes on. It may turn out that the message was known."""
        sender = posted.sender
        while True:
            wire = await self._link.ready()
            if not sender.is_shut:  # it was resumed with the session
                break
            try:
                await self._resume_lane(wire, sender.lane.number, sender, None)
                break
            except ConnectionLost:
                if self._link.wire is wire:  # the server itself answered so
                    raise
        posted.refusal = None
        sender.lacks_no_more()

    def end_lane(self, posted: Posted, error: HeliographError) -> None:
        """A large message cannot be sent: nothing that follows it may overtake it."""
        self._refuse(posted.sender, posted.sender.lane.sequence_of(posted), error)

    def _refuse(self, sender: Sender, first: int, error: HeliographError) -> None:
        if sender.is_finished:
            return
        if self.transaction is not None:
            self.transaction.refused(error)
        if self._senders.get(sender.destination) is sender:
            del self._senders[sender.destination]
        if sender.refuse(first, error):
            self._link.report(error)

    def consumer_closed(self, news: ConsumerClosed) -> None:
        consumer = self._consumers.get(news.consumer)
        if self.alerts.closed(news):
            return
        if consumer is not None:
            if self.transaction is not None and consumer.has_consumed:
                self.transaction.refused(from_code(news.code, news.sentence))
            self._end_consumer(consumer, from_code(news.code, news.sentence))

    def recalled(self, number: int, tags: list[tuple[int, int]]) -> None:
        consumer = self._consumers.get(number)
        if consumer is not None:
            consumer.recalled(tags)

    def browse_ended(self, number: int) -> None:
        browser = self._consumers.get(number)
        if isinstance(browser, Browser):
            browser.browse_ended()

    def settled(self, number: int) -> None:
        consumer = self._consumers.get(number)
        if consumer is not None:
            consumer.settled()

    def resume_writing(self) -> None:
        for sender in self._lanes.values():
            sender.wake()

    # ---- another connection

    def attach(self, wire: Wire) -> None:
        """A new session on a wire that is ready."""
        self._wire = wire

    def detach(self) -> None:
        self._wire = None
        if self.transaction is not None:
            self.transaction.lost()
        self._routes.lose()
        for sender in self._lanes.values():
            sender.detach()
        for consumer in self._consumers.values():
            consumer.detach()
        self.alerts.detach()

    async def resume(self, wire: Wire) -> None:
        """Carry the session over to a new connection."""
        opened, is_new = await self._reopen(wire)
        known = {
            number: last
            for number, destination, last in opened.lanes
            # A destination that is distributed by now has another name there (U6).
            if number in self._lanes and self._lanes[number].destination == destination
        }
        if is_new:
            self._identity = SessionId(opened.session)
            self._was_lost = True
        self._token = opened.token
        self._last_lane = await self._routes.learn(wire, self._last_lane + 1, is_new=self._was_lost) - 1
        for number, sender in sorted(self._lanes.items()):
            await self._resume_lane(wire, number, sender, known.get(number))
        if self.transaction is not None:
            await self.transaction.resume(wire, is_new=self._was_lost)
        self._wire = wire
        for consumer in list(self._consumers.values()):
            await self._resume_consumer(wire, consumer)
        await self._let_go(wire)
        await self.alerts.resume(wire)
        for sender in list(self._lanes.values()):
            if sender.away is None:
                sender.attach(wire)
        for fan_in in self._fan_ins:
            fan_in.join_again()
        if self._was_lost:
            self._was_lost = False
            self._link.report(
                Unavailable(
                    "the server forgot the session: what was not confirmed was sent again, perhaps twice",
                    code="session-lost",
                )
            )

    async def _reopen(self, wire: Wire) -> tuple[SessionOpened, bool]:
        if not self._identity:  # it was made while there was no server
            opened = await wire.request(OpenSession(request=0, number=self.number), SessionOpened)
            self._identity = SessionId(opened.session)
            return opened, False
        again = OpenSession(request=0, number=self.number, resume=self._identity, token=self._token)
        try:
            return await wire.request(again, SessionOpened), False
        except HeliographError as refusal:
            if refusal.code != SESSION_UNKNOWN:
                raise
        return await wire.request(OpenSession(request=0, number=self.number), SessionOpened), True

    async def _resume_lane(self, wire: Wire, number: int, sender: Sender, last: int | None) -> None:
        if sender.is_spent:
            return
        if last is None:
            opening = OpenLane(request=0, number=self.number, lane=number, destination=sender.destination)
            try:
                last = (await wire.request(opening, LaneOpened)).last
            except ConnectionLost:
                raise
            except HeliographError as refusal:
                if (
                    refusal.code == UNREACHABLE
                ):  # what is under way waits; when it is back, we are asked to come again
                    sender.miss(refusal)
                else:
                    self._refuse(sender, sender.lane.confirmed + 1, refusal)
                return
        identity = lane_of(self._identity, number)
        if sender.lane.identity != identity:
            sender.lane.move(number, identity)
        elif last < sender.lane.confirmed:
            if last >= sender.lane.last_persistent or sender.is_staged:
                await self._move_lane(wire, number, sender)
                return
            last = (
                sender.lane.confirmed
            )  # what is between is in another part of the cluster, and comes from there (P7)
        sender.resume(last)

    async def _move_lane(self, wire: Wire, number: int, sender: Sender) -> None:
        """Of what the server confirmed it has lost messages that may be lost: begin again on a fresh lane, without a
        gap for which it would wait."""
        fresh = self._next_lane()
        await wire.request(
            OpenLane(request=0, number=self.number, lane=fresh, destination=sender.destination), LaneOpened
        )
        sender.lane.move(fresh, lane_of(self._identity, fresh))
        self._lanes.pop(number, None)
        self._lanes[fresh] = sender

    async def _resume_consumer(self, wire: Wire, consumer: Consumer) -> None:
        if not consumer.is_resumable:
            if not consumer.is_missed:
                self.forget_consumer(consumer)
            return
        if not consumer.is_subscribed:
            return  # whoever is making it asks again
        if consumer.destination in self._link.temporaries:
            gone = f"{consumer.destination} ended with the connection that made it"
            self._end_consumer(consumer, ConnectionLost(gone, code="temporary-gone"))
            return
        try:
            is_resumed = await self._claim(wire, consumer)
            if consumer.is_retired and is_resumed:
                await consumer.tell_retired(wire)
            elif consumer.is_retired:  # what it had is gone, and that is all it was there for
                await consumer.tell_left(wire)
                if not consumer.is_missed:
                    self.forget_consumer(consumer)
        except ConnectionLost:
            raise
        except HeliographError as refusal:
            if refusal.code != UNREACHABLE:  # otherwise it keeps what it has until its member is back
                self._end_consumer(consumer, refusal)

    async def _let_go(self, wire: Wire) -> None:
        """Consumers were closed while there was no server: what they settled is said first."""
        while self._leaving:
            consumer = self._leaving[0]
            for saying in (self._claim, self._say_left):
                try:
                    await saying(wire, consumer)
                except ConnectionLost:
                    raise
                except HeliographError as refusal:
                    log.debug("%r was closed: %s", consumer, refusal)
            self._leaving.remove(consumer)

    @staticmethod
    async def _say_left(wire: Wire, consumer: Consumer) -> None:
        await consumer.tell_left(wire)

    def _end_consumer(self, consumer: Consumer, error: HeliographError) -> None:
        self.forget_consumer(consumer)
        consumer.end(error)
        self._link.report(error)

    # ---- the end

    def _check_open(self) -> None:
        if self._ended is not None:
            raise ClientFault(f"the session is over: {self._ended.sentence}", code=self._ended.code)

    def check_not_closed(self) -> None:
        """Unlike what was lost, what was closed is the application's own doing: it has to know."""
        if self._ended is not None and self._ended.code == "closed":
            raise renewed(self._ended)

    def end(self, error: HeliographError) -> None:
        """The connection is over: tell everybody who waits."""
        if self._ended is None:
            self._ended = error
            self._wire = None
            self._link.transfers.session_ended(self.number, error)
            for sender in self._lanes.values():
                sender.end(error)
            for consumer in [*self._consumers.values(), *self._leaving]:
                consumer.end(error)
            self.alerts.end(error)
            if self.transaction is not None:
                self.transaction.end(error)

    def is_under_way(self) -> bool:
        """Whether something was sent that is not confirmed, or a transaction is open."""
        for sender in self._lanes.values():
            sender.push()
        if self.transaction is not None and self.transaction.is_open:
            return True
        return any(sender.lane.unconfirmed for sender in self._lanes.values())

    async def drain(self) -> HeliographError | None:
        """Wait until everything sent is confirmed. Returns what was refused and nobody has heard of here."""
        fault: HeliographError | None = None
        for sender in list(self._lanes.values()):
            try:
                await sender.drained()
            except HeliographError as error:
                fault = fault or error
            if sender.has_unheard_fault:
                fault = fault or sender.hear_fault()
        return fault

    async def close(self) -> None:
        """Wait until what was sent is confirmed, then end the session for good, its consumers too.

        An open transaction is rolled back.
        """
        await self.leave(complete=True)

    async def leave(self, *, complete: bool) -> None:
        """Close; `complete`: in good order, rather than because something went wrong."""
        if self._ended is not None:
            return
        fault: HeliographError | None = None
        if self.transaction is not None:
            await self.transaction.leave()
        else:
            fault = await self.drain() if complete else None
            for sender in self._lanes.values():
                sender.push()  # without waiting, where something went wrong
        for consumer in [*self._fan_ins, *self._consumers.values()]:
            if consumer.is_closed:
                await consumer.unsubscribe()
            else:
                await consumer.leave(complete=complete, with_session=True)
        if complete:
            await self._let_all_go()
            await self.alerts.leave()
        wire = self._wire
        self._link.sessions.pop(self.number, None)
        self.end(ClientFault("the session is closed", code="closed"))
        if wire is not None:
            # If it cannot be told, the server forgets the session in time.
            with suppress(ConnectionLost, TimeoutError):
                async with asyncio.timeout(HANDSHAKE_SECONDS):
                    await wire.request(CloseSession(request=0, number=self.number), Completed)
        if fault is not None:
            raise fault

    async def _let_all_go(self) -> None:
        """If the connection was lost meanwhile, the next server has to hear what became of messages."""
        with suppress(HeliographError):
            while self._leaving:
                wire = await self._link.ready_within(CLOSE_RECONNECT_SECONDS)
                if wire is None:
                    return
                with suppress(ConnectionLost):
                    await self._let_go(wire)

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        await self.leave(complete=kind is None)
