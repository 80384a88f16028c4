"""The load of a crash test, and what a cluster is asked for beside it: transactions that move messages from queue to
queue, units of order, and how long producers and consumers had to wait at most."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from heliograph.client import Consumer, Message, Producer, Session
from heliograph.client.connection import AcknowledgeMode
from heliograph.model.errors import ConnectionLost, TransactionRolledBack
from heliograph.model.message import Property
from tests.crash.ledger import LaneBook, Ledger, Receipt
from tests.crash.load import Load
from tests.servers import until

IN, OUT, UNITS = "queue:in", "queue:out", "queue:units"
CUSTOMERS = tuple(f"customer {number}" for number in range(8))
COMPETING = ("-red", "units")  # the lanes of queues that have two consumers
_PER_TRANSACTION = 5
MOVER = "mover"


class Waits:
    """How long each of several had to wait for something, at most, since a round began. A wait that goes on counts
    only when it ends: whoever wants to know waits until nobody is `silent`."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.slowest = ""  # who waited so long
        self.silent: set[str] = set()
        self._last: dict[str, float] = {}

    def begin(self, names: Iterable[str]) -> None:
        self._last = dict.fromkeys(names, time.monotonic())
        self.longest, self.slowest = 0.0, ""
        self.listen()

    def __str__(self) -> str:
        return f"{self.longest:.2f} s ({self.slowest})"

    def listen(self) -> None:
        """Whoever is not heard from here on is `silent`."""
        self.silent = set(self._last)

    def heard(self, name: str) -> None:
        moment = time.monotonic()
        waited = moment - self._last.get(name, moment)
        if waited > self.longest:
            self.longest, self.slowest = waited, name
        self._last[name] = moment
        self.silent.discard(name)


class TimedLedger(Ledger):
    """Knows how long lanes had to wait for a yes, and consumers for a message."""

    def __init__(self) -> None:
        super().__init__()
        self.consumers: set[str] = set()
        self.yes = Waits()  # by lane
        self.came = Waits()  # by consumer

    def begin_round(self) -> None:
        self.yes.begin(self.lanes)
        self.came.begin(self.consumers)

    def listen(self) -> None:
        self.yes.listen()
        self.came.listen()

    @property
    def silent(self) -> list[str]:
        """Who has not heard anything since `listen`."""
        return sorted(self.yes.silent | self.came.silent)

    def _check_order(self, book: LaneBook, receipt: Receipt, lane: str) -> None:
        """What a consumer had and its application did not see goes back unmarked when its client manager is lost, and
        may reach another consumer of the same queue behind later ones."""
        if not lane.endswith(COMPETING):
            super()._check_order(book, receipt, lane)

    def confirmed(self, lane: str, number: int) -> None:
        super().confirmed(lane, number)
        self.yes.heard(lane)

    def received(self, consumer: str, message: Message) -> Receipt:
        self.came.heard(consumer)
        return super().received(consumer, message)


class UnitBook:
    """In a unit nobody gets a message before the one in front of it is acknowledged."""

    def __init__(self) -> None:
        self.last: dict[str, int] = {}
        self.faults: list[str] = []

    def received(self, unit: str, number: int, *, redelivered: bool) -> None:
        expected = self.last.get(unit, 0) + 1
        if number != expected and not (redelivered and number < expected):
            self.faults.append(f"{unit}: {number} came, {expected} is next")

    def acknowledged(self, unit: str, number: int) -> None:
        self.last[unit] = max(self.last.get(unit, 0), number)


class ClusterLoad(Load):
    """Less than on a server alone: many processes share the machine."""

    rest_seconds = 0.2
    burst = 60
    ledger: TimedLedger

    def __init__(self, url: str, seed: int) -> None:
        super().__init__(url, seed)
        self.ledger = TimedLedger()
        self.units = UnitBook()
        self.committed = 0
        self.rolled_back = 0

    async def start(self) -> None:
        await super().start()
        connection = await self._connect("feeder")
        session = await connection.session()
        for queue, style in ((IN, self._send_one_by_one), (UNITS, self._send_in_units)):
            producer = await session.producer(queue)
            lane = queue.partition(":")[2]
            self._producers.append(asyncio.create_task(style(producer, lane, random.Random(lane))))
        await self._move()
        await self._consume("auto-out", OUT, "auto", self._take_auto)
        for name in ("clerk-one", "clerk-two"):
            await self._consume(name, UNITS, "individual", self._take_units)

    async def _consume(
        self,
        name: str,
        queue: str,
        mode: AcknowledgeMode,
        take: Callable[[str, Session, Consumer], Coroutine[Any, Any, None]],
    ) -> None:
        await super()._consume(name, queue, mode, take)
        self.ledger.consumers.add(name)

    async def all_go_on(self, what: str) -> None:
        """Until every lane has heard another yes and every consumer another message, so that whoever waits has
        waited to the end, and it is counted."""
        self.ledger.listen()
        try:
            await until(lambda: not self.ledger.silent, what)
        except AssertionError as late:
            raise AssertionError(f"{late}: {', '.join(self.ledger.silent)} heard nothing") from None

    # ---- transactions

    async def _move(self) -> None:
        connection = await self._connect(MOVER)
        session = await connection.session(acknowledge="transacted")
        consumer = await session.consumer(IN, credit=50)
        producer = await session.producer(OUT)
        self._consumers.append(asyncio.create_task(self._move_on(session, consumer, producer)))
        self.ledger.consumers.add(MOVER)

    async def _move_on(self, session: Session, consumer: Consumer, producer: Producer) -> None:
        """What is taken from one queue is in the other: both or neither. A client manager that is lost takes the
        open transaction with it (M8)."""
        while True:
            for message in await consumer.receive_batch(limit=_PER_TRANSACTION):
                await producer.send(message.body)
            self.ledger.came.heard(MOVER)
            try:
                await session.commit()
            except TransactionRolledBack:
                self.rolled_back += 1
                await session.rollback()
            else:
                self.committed += 1

    # ---- units of order

    async def _send_in_units(self, producer: Producer, lane: str, dice: random.Random) -> None:
        numbers = dict.fromkeys(CUSTOMERS, 0)
        while self._sending:
            customer = dice.choice(CUSTOMERS)
            numbers[customer] += 1
            properties: dict[str, Property] = {"customer": customer, "number": numbers[customer]}
            body = self.ledger.next_body(lane)
            await producer.send_confirmed(body, unit_of_order=customer, properties=properties)
            self.ledger.confirmed(lane, self.ledger.lanes[lane].sent)
            await asyncio.sleep(dice.random() * self.rest_seconds / 5)

    async def _take_units(self, name: str, _session: Session, consumer: Consumer) -> None:
        async for message in consumer:
            receipt = self.ledger.received(name, message)
            unit, number = str(message.properties["customer"]), int(str(message.properties["number"]))
            self.units.received(unit, number, redelivered=message.redelivered)
            self.units.acknowledged(unit, number)  # the next one may come before we hear that this is stored
            try:
                await message.acknowledge(confirm=True)
            except ConnectionLost as unknown:
                self.unconfirmed.append((name, unknown))
                continue
            receipt.acknowledged = True

    def check(self) -> None:
        self.ledger.check()
        assert not self.units.faults, "\n".join(self.units.faults[:20])
        assert not self.errors, self.errors[:5]
        assert self.ledger.confirmed_total == self.ledger.sent, "all nodes are there: all is confirmed"
        assert self.committed, "the mover moved nothing"
