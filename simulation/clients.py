"""Clients of a run: applications as people write them, on the real client library, who write down what they
did and saw.

Each is a process of its own that can die at any moment; the next life has another name. What does not work is
tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from heliograph.client.connection import Connection, connect
from heliograph.client.consumer import Consumer
from heliograph.client.message import Message
from heliograph.client.producer import Producer
from heliograph.client.session import Session
from heliograph.model.errors import HeliographError, StorageFull, TransactionRolledBack
from simulation.history import HandOut, History, Transaction
from simulation.machines import Machine, Process
from simulation.world import World

if TYPE_CHECKING:
    from simulation.sockets import SimTransport

Work = Callable[[Connection], Coroutine[Any, Any, None]]
_PATIENCE_SECONDS = 1000.0
_RECEIVE_SECONDS = 0.4


class Scene:
    """What clients share: where the server is, and whether there is still something to send."""

    def __init__(self, world: World, history: History, urls: tuple[str, ...], leisure: float) -> None:
        self.world = world
        self.history = history
        self.urls = urls  # any of them will do
        self.leisure = leisure  # how much longer senders pause than they might
        self.is_sending = True
        self.faults: dict[str, int] = {}  # errors that applications heard, by code
        self.subscribed: dict[str, None] = {}
        self.at_next_commit: list[Callable[[Client], None]] = []  # who waits for one to begin

    def commits(self, client: Client) -> None:
        """A commit is about to be asked."""
        waiting, self.at_next_commit = self.at_next_commit, []
        for begin in waiting:
            begin(client)

    def heard(self, error: HeliographError) -> None:
        self.faults[error.code] = self.faults.get(error.code, 0) + 1
        self.world.note("heard", error.code)


class Client:
    """One application, in all its lives."""

    client_id = ""

    def __init__(self, scene: Scene, machine: Machine, name: str) -> None:
        self.scene = scene
        self.world = scene.world
        self.history = scene.history
        self.dice = scene.world.dice
        self.name = name
        self.life = ""
        self.is_through = False  # with all that it had to send, and that is confirmed
        self.machine = machine
        self.urls = scene.urls  # where it connects
        self.gave_up_at = 0.0  # when it last left all it had, because of an error
        self._lives = 0
        self._connection: Connection | None = None
        self.process: Process | None = None

    def start(self) -> None:
        self._lives += 1
        self.life = f"{self.name}#{self._lives}"
        self.process = self.machine.start(self.life, self._main)

    def kill(self) -> None:
        """The next life begins a moment later."""
        if self.process is not None and self.process.is_alive:
            self.process.kill()
            self.world.after(self.world.between(0.05, 1.0), self.start)

    async def _main(self, process: Process) -> None:
        while True:
            try:
                async with connect(
                    self.dice.choice(self.urls),
                    client_name=self.name,
                    client_id=self.client_id,
                    reconnect_seconds=_PATIENCE_SECONDS,
                    heartbeat_seconds=1.0,
                    on_error=self.scene.heard,
                    clock=process.client_clock,
                ) as connection:
                    self._connection = connection
                    await self.work(connection)
                if self.is_content():
                    self.is_through = True
                    return
            except HeliographError as error:
                self.gave_up_at = self.world.now
                self.scene.heard(error)
                await asyncio.sleep(self.world.between(0.05, 0.3))

    async def work(self, connection: Connection) -> None:
        raise NotImplementedError

    def is_content(self) -> bool:
        """Whether it is through when its work ends; otherwise it connects again."""
        return True

    @property
    def is_cut_off(self) -> bool:
        """Whether its connection is broken, even if it has not noticed: what it finds in its inbox may be
        another's by now."""
        transport = self.transport
        return transport is None or self.machine.is_broken(transport)

    @property
    def transport(self) -> SimTransport | None:
        """Its end of the connection that it has, or takes for one."""
        wire = self._connection._link.wire if self._connection is not None else None
        return wire._transport if wire is not None else None  # type: ignore[return-value]

    def gets_from(self, place: str) -> bool:
        """Whether a message of this place may be for it."""
        return False

    async def pause(self, longest: float) -> None:
        if longest:
            await asyncio.sleep(self.world.between(0.0, longest))


def body_of(key: str, world: World) -> bytes:
    """Mostly small, now and then large enough to fill segments."""
    size = world.dice.choice((0, 20, 100, 300)) if world.chance(0.95) else world.dice.randint(2_000, 40_000)
    return f"{key}|".encode() + b"x" * size


def key_of(body: object) -> str:
    assert isinstance(body, bytes)
    key, bar, filling = body.partition(b"|")
    whole = bar and filling.count(b"x") == len(filling)
    return key.decode(errors="replace") if whole else f"damaged {key!r}:0"


def tag_of(message: Message) -> int:
    return message._delivery.first_tag + message._index


def _is_held(consumer: Consumer, message: Message) -> bool:
    """Whether the server still knows it under the tag with which it came, as far as the library was told."""
    inbox = consumer.inbox
    return inbox.is_current(message._delivery) and inbox.is_held(tag_of(message))


class Sending(Client):
    """Sends, one by one and in bursts, with units of order or without."""

    def __init__(
        self,
        scene: Scene,
        machine: Machine,
        name: str,
        destination: str,
        *,
        units: tuple[str, ...] = (),
        fleeting: float = 0.0,
    ) -> None:
        """`fleeting`: how many of its messages are not persistent."""
        super().__init__(scene, machine, name)
        self._fleeting = fleeting
        self._destination = destination
        self._units = units
        self._sent = 0

    async def work(self, connection: Connection) -> None:
        producer = await connection.producer(self._destination)
        while self.scene.is_sending:
            if self.world.chance(0.6):
                await self._send_one(producer)
            else:
                await self._send_many(producer, self.dice.randint(2, 25))
            await self.pause(self.dice.choice((0.01, 0.05, 0.2)) * self.scene.leisure)
        await producer.flush()

    def _next(self) -> tuple[str, dict[str, Any]]:
        self._sent += 1
        key = f"{self.life}:{self._sent}"
        unit = self.dice.choice(self._units) if self._units else ""
        sent = self.history.send(key, self._destination, unit=unit)
        options: dict[str, Any] = {"unit_of_order": unit} if unit else {}
        if self._fleeting and self.world.chance(self._fleeting):
            sent.may_be_lost, options["persistent"] = True, False
        return key, options

    async def _send_one(self, producer: Producer) -> None:
        key, options = self._next()
        try:
            await producer.send_confirmed(body_of(key, self.world), **options)
        except StorageFull:
            self.history.refused(key)
            await asyncio.sleep(0.1)
        else:
            self.history.confirmed(key)

    async def _send_many(self, producer: Producer, count: int) -> None:
        for _ in range(count):
            key, options = self._next()
            try:
                await producer.send(
                    body_of(key, self.world), on_completion=partial(self._completed, key), **options
                )
            except StorageFull:  # of an earlier one; this was not sent
                self.history.refused(key)
                await asyncio.sleep(0.1)

    def _completed(self, key: str, error: HeliographError | None) -> None:
        if error is None:
            self.history.confirmed(key)
        elif isinstance(error, StorageFull):
            self.history.refused(key)


class Streaming(Client):
    """Sends messages that are too large for a frame, a piece at a time."""

    def __init__(self, scene: Scene, machine: Machine, name: str, destination: str) -> None:
        super().__init__(scene, machine, name)
        self._destination = destination
        self._sent = 0

    async def work(self, connection: Connection) -> None:
        producer = await connection.producer(self._destination)
        while self.scene.is_sending:
            self._sent += 1
            key = f"{self.life}:{self._sent}"
            self.history.send(key, self._destination).is_large = True
            size = self.dice.choice((10, 3_000, 50_000, 400_000))
            try:
                await producer.send_stream(self._pieces(key, size), threshold=1_000)
            except StorageFull:
                self.history.refused(key)
            else:
                self.history.confirmed(key)
            await self.pause(0.2 * self.scene.leisure)

    async def _pieces(self, key: str, size: int) -> AsyncIterator[bytes]:
        yield f"{key}|".encode()
        while size:
            piece = min(size, 20_000)
            size -= piece
            await self.pause(0.002)
            yield b"x" * piece


class Receiving(Client):
    """Receives and acknowledges, each message for itself or all that it has."""

    def __init__(
        self, scene: Scene, machine: Machine, name: str, destination: str, *, mode: str, durable: str = ""
    ) -> None:
        super().__init__(scene, machine, name)
        self._destination = destination
        self._mode = mode
        self._durable = durable
        self.client_id = name if durable else ""
        self.place = f"{destination}/{name}" if durable else destination

    def gets_from(self, place: str) -> bool:
        return place == self.place

    async def work(self, connection: Connection) -> None:
        session = await connection.session(acknowledge=self._mode)  # type: ignore[arg-type]
        options: dict[str, Any] = {"credit": self.dice.choice((1, 5, 50, 1000))}
        if self._durable:
            options["durable"] = self._durable
        self.history.asks(self.place, self.life)
        consumer = await session.consumer(self._destination, **options)
        self.scene.subscribed[self.place] = None
        while True:
            message = await consumer.receive(_RECEIVE_SECONDS)
            if message is not None:
                await self._process(consumer, message)

    def _take(self, message: Message, content: bytes | None = None, *, is_lost: bool = False) -> HandOut:
        """`is_lost`: it went back while its content was read, and its reader will hear so."""
        key = key_of(message.body if content is None else content)
        is_stale = is_lost or self.is_cut_off
        hand_out = self.history.handed(
            self.place, key, self.life, is_marked=message.redelivered, is_stale=is_stale
        )
        hand_out.tag = tag_of(message)
        return hand_out

    async def _process(self, consumer: Consumer, message: Message) -> None:
        content, is_lost = None, False
        if message.is_large:
            async with message.open() as stream:
                content = await stream.read()
            is_lost = not _is_held(consumer, message)
        hand_out = self._take(message, content, is_lost=is_lost)
        if self._mode == "auto":
            self.history.settled(hand_out)  # it is done when the next one is asked for
            return
        if self.world.chance(0.1):
            await self.pause(0.02)
        if self._mode == "client":
            await self._acknowledge_all(consumer, message, hand_out)
        elif self.world.chance(0.03):
            self.history.returned(hand_out)
            await message.return_()
        else:
            await self._acknowledge([hand_out], message)

    async def _acknowledge_all(self, consumer: Consumer, message: Message, hand_out: HandOut) -> None:
        taken = [hand_out]
        for _ in range(self.dice.randint(0, 5)):
            another = await consumer.receive(0.002)
            if another is not None:
                taken.append(self._take(another))
                message = another
        await self._acknowledge(taken, message)

    async def _acknowledge(self, taken: list[HandOut], message: Message) -> None:
        confirm = self.world.chance(0.7)
        for hand_out in taken:
            self.history.settled(hand_out)
        try:
            await message.acknowledge(confirm=confirm)
        except HeliographError as error:
            self.scene.heard(error)  # it comes again, or not: nobody knows
        else:
            if confirm:
                for hand_out in taken:
                    self.history.done(hand_out)


class Transacting(Client):
    """Takes from queues and sends to others, in transactions."""

    def __init__(
        self, scene: Scene, machine: Machine, name: str, sources: tuple[str, ...], targets: tuple[str, ...]
    ) -> None:
        super().__init__(scene, machine, name)
        self._sources = sources
        self._targets = targets
        self._count = 0

    def gets_from(self, place: str) -> bool:
        return place in self._sources

    async def work(self, connection: Connection) -> None:
        session = await connection.session(acknowledge="transacted")
        credit = self.dice.choice((1, 10, 100))
        for source in self._sources:
            self.history.asks(source, self.life)
        consumers = [await session.consumer(source, credit=credit) for source in self._sources]
        producers = [await session.producer(target) for target in self._targets]
        while True:
            consumer = self.dice.choice(consumers)
            first = await consumer.receive(_RECEIVE_SECONDS / len(consumers))
            if first is not None:
                transaction = self._begin()
                self._take(transaction, first)
                await self._transact(session, transaction, consumers, producers)

    async def _transact(
        self, session: Session, transaction: Transaction, consumers: list[Consumer], producers: list[Producer]
    ) -> None:
        transport, began_at = self.transport, self.world.now
        for _ in range(self.dice.randint(0, 4)):
            another = await self.dice.choice(consumers).receive(0.005)
            if another is not None:
                self._take(transaction, another)
        try:
            await self._send(transaction, producers)
            if self.world.chance(0.03):
                await self.pause(1.0)  # with everything staged and nothing decided
            if self.world.chance(0.1):
                self.history.asks_to_roll_back(transaction)
                await session.rollback()
                self.history.decided(transaction, "rolled back")
            else:
                self.scene.commits(self)
                self.history.asks_to_commit(transaction)
                await session.commit()
                self.history.decided(transaction, "committed")
        except TransactionRolledBack as refusal:
            self.history.decided(transaction, "rolled back")
            if self.transport is transport and not self.is_cut_off:
                self.history.commit_refused(transaction, began_at, refusal.sentence)
        except HeliographError as error:
            self.scene.heard(error)
            if error.code != "commit-unknown":
                raise

    def _begin(self) -> Transaction:
        self._count += 1
        name = f"{self.life}/{self._count}"
        transaction = self.history.transactions[name] = Transaction(name, [], [])
        return transaction

    def _take(self, transaction: Transaction, message: Message) -> None:
        hand_out = self.history.handed(
            message.destination,
            key_of(message.body),
            self.life,
            is_marked=message.redelivered,
            is_stale=self.is_cut_off,
        )
        hand_out.tag = tag_of(message)
        transaction.taken.append(hand_out)

    async def _send(self, transaction: Transaction, producers: list[Producer]) -> None:
        for number in range(1, self.dice.randint(1, 4) + 1):
            key = f"{transaction.name}:{number}"
            producer = self.dice.choice(producers)
            self.history.send(key, producer.destination, transaction=transaction.name)
            transaction.sent.append(key)
            await producer.send(body_of(key, self.world))


class Watching(Receiving):
    """Hears every topic of a pattern as long as it is there, and nothing of what was said when it was not."""

    async def _process(self, consumer: Consumer, message: Message) -> None:
        self.history.settled(self._take(message))
