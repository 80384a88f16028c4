"""The load of a crash test: producers and consumers of every kind that go on whatever happens."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from heliograph.client import Connection, Consumer, Message, Producer, Session, connect
from heliograph.client.connection import AcknowledgeMode
from heliograph.model.errors import ConnectionLost, HeliographError
from tests.crash.ledger import Ledger, Receipt
from tests.servers import until

QUEUES = ("queue:red", "queue:green", "queue:blue")
# Longer than any test: a client never gives up here.
FOR_EVER_SECONDS = 3600.0
# What a pipelined producer has under way at most: enough to be interrupted in the middle of many blocks.
UNDER_WAY = 1500
# A rest after each burst keeps the whole test on two cores.
REST_SECONDS = 0.03


class Load:
    """Producers, consumers and their books. `stop_sending`, then `drain`, then look at the ledger."""

    rest_seconds = REST_SECONDS
    burst = 200

    def __init__(self, url: str, seed: int) -> None:
        self.ledger = Ledger()
        self.errors: list[HeliographError] = []
        # What was said of an acknowledgement instead of that it is stored.
        self.unconfirmed: list[tuple[str, ConnectionLost]] = []
        self._url = url
        self._seed = seed
        self._sending = True
        self._connections: list[Connection] = []
        self._producers: list[asyncio.Task[None]] = []
        self._consumers: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Four sessions of producers on two connections; four consumers, each on its own connection."""
        for number in range(2):
            connection = await self._connect(f"producer {number}")
            for letter in "ab":
                await self._add_producers(connection, f"{number}{letter}")
        await self._consume("auto-one", "queue:red", "auto", self._take_auto)
        await self._consume("auto-two", "queue:red", "auto", self._take_auto)
        await self._consume("client", "queue:green", "client", self._take_client)
        await self._consume("individual", "queue:blue", "individual", self._take_individual)

    async def _connect(self, name: str) -> Connection:
        connection = await connect(
            self._url, client_name=name, reconnect_seconds=FOR_EVER_SECONDS, on_error=self.errors.append
        )
        self._connections.append(connection)
        return connection

    # ---- producers

    async def _add_producers(self, connection: Connection, name: str) -> None:
        """One session with a producer for each queue, each of them in another style."""
        session = await connection.session()
        for index, queue in enumerate(QUEUES):
            producer = await session.producer(queue)
            lane = f"{name}-{queue.partition(':')[2]}"
            style = self._send_one_by_one if (index + len(self._producers)) % 4 == 3 else self._send_pipelined
            dice = random.Random(f"{self._seed} {lane}")
            self._producers.append(asyncio.create_task(style(producer, lane, dice)))

    async def _send_pipelined(self, producer: Producer, lane: str, dice: random.Random) -> None:
        ledger = self.ledger
        while self._sending:
            for _ in range(dice.randrange(1, self.burst)):
                body = ledger.next_body(lane, dice.choice((0, 50, 300, 2000)))
                number = ledger.lanes[lane].sent
                await producer.send(body, on_completion=self._note(lane, number))
            while producer.unconfirmed > UNDER_WAY:
                await asyncio.sleep(self.rest_seconds)
            await asyncio.sleep(dice.random() * 2 * self.rest_seconds)
        await producer.flush()

    def _note(self, lane: str, number: int) -> Callable[[HeliographError | None], None]:
        def heard(error: HeliographError | None) -> None:
            if error is None:
                self.ledger.confirmed(lane, number)
            else:
                self.errors.append(error)

        return heard

    async def _send_one_by_one(self, producer: Producer, lane: str, dice: random.Random) -> None:
        while self._sending:
            await producer.send_confirmed(self.ledger.next_body(lane, dice.randrange(1000)))
            self.ledger.confirmed(lane, self.ledger.lanes[lane].sent)
            await asyncio.sleep(dice.random() * self.rest_seconds / 10)

    # ---- consumers

    async def _consume(
        self,
        name: str,
        queue: str,
        mode: AcknowledgeMode,
        take: Callable[[str, Session, Consumer], Coroutine[Any, Any, None]],
    ) -> None:
        connection = await self._connect(name)
        session = await connection.session(acknowledge=mode)
        consumer = await session.consumer(queue, credit=500)
        self._consumers.append(asyncio.create_task(take(name, session, consumer)))

    async def _take_auto(self, name: str, _session: Session, consumer: Consumer) -> None:
        async for message in consumer:
            self.ledger.received(name, message)

    async def _take_client(self, name: str, session: Session, consumer: Consumer) -> None:
        """Acknowledge in steps; what belongs to a step that was stored never comes again."""
        steps = 0
        while True:
            batch = await consumer.receive_batch(limit=50)
            receipts = [self.ledger.received(name, message) for message in batch]
            steps += 1
            confirm = steps % 5 == 0
            try:
                await session.acknowledge(confirm=confirm)
            except ConnectionLost as unknown:
                self.unconfirmed.append((name, unknown))
                continue
            if confirm:
                _acknowledged(receipts)

    async def _take_individual(self, name: str, _session: Session, consumer: Consumer) -> None:
        """Acknowledge out of order, every tenth time waiting until that is stored."""
        kept: list[tuple[Message, Receipt]] = []
        count = 0
        async for message in consumer:
            kept.append((message, self.ledger.received(name, message)))
            count += 1
            if len(kept) < 5:
                continue
            for message_kept, receipt in reversed(kept):
                confirm = count % 50 == 0
                try:
                    await message_kept.acknowledge(confirm=confirm)
                except ConnectionLost as unknown:
                    self.unconfirmed.append((name, unknown))
                    continue
                if confirm:
                    receipt.acknowledged = True
            kept.clear()

    async def flows(self) -> None:
        """Until another message is received."""
        before = self.ledger.receipts
        await until(lambda: self.ledger.receipts > before, "messages flow again")

    # ---- the end

    async def stop_sending(self, seconds: float) -> None:
        """The server is up for good: everything sent gets confirmed."""
        self._sending = False
        async with asyncio.timeout(seconds):
            await asyncio.gather(*self._producers)

    async def drain(self, seconds: float) -> None:
        """Until everything confirmed was received, or nothing came for so long; what is missing then is found by the
        ledger."""
        ledger = self.ledger
        received = -1
        while not self._is_over() and received != ledger.distinct:
            received = ledger.distinct
            with suppress(AssertionError):  # `check` says exactly what is missing
                await until(self._is_over, "all is received", seconds)
        for task in self._consumers:
            if task.done():
                task.result()

    def _is_over(self) -> bool:
        return self.ledger.distinct >= self.ledger.confirmed_total or self._has_failed()

    def _has_failed(self) -> bool:
        return any(task.done() for task in self._consumers)

    async def close(self) -> None:
        for task in (*self._producers, *self._consumers):
            task.cancel()
        await asyncio.gather(*self._producers, *self._consumers, return_exceptions=True)
        for connection in self._connections:
            await connection.leave(complete=False)  # the server may be gone


def _acknowledged(receipts: list[Receipt]) -> None:
    for receipt in receipts:
        receipt.acknowledged = True
