"""Workers whose connections are cut at any byte, all the time, and what each of them saw.

Every client is resumed within its lease, so nothing but an open transaction may show that anything happened: each
message comes once, in order, unmarked. What a transaction saw comes again, marked, and what it did not see unmarked.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from heliograph.client import Consumer, Message, connect
from heliograph.model.errors import TransactionRolledBack

MODES = ("auto", "client", "individual", "dups-ok")
UNITS = 5
PATIENCE_SECONDS = 60.0
# What is sent in one go must have a chance to get through before the next cut.
CREDIT = 10
RECONNECT_SECONDS = 300.0


class Worker:
    """Consumes until it has had everything, and notes what is wrong."""

    def __init__(self, name: str, wanted: int) -> None:
        self.name = name
        self.wanted = wanted
        self.bodies: list[str] = []
        self.faults: list[str] = []

    def note(self, message: Message) -> None:
        body = message.text
        if message.redelivered:
            self.faults.append(f"{self.name}: {body} came marked")
        if body in self.bodies:
            self.faults.append(f"{self.name}: {body} came twice")
        self.bodies.append(body)

    @property
    def is_done(self) -> bool:
        return len(self.bodies) >= self.wanted


class Board:
    """What several workers of one destination must see together."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.seen: Counter[str] = Counter()

    @property
    def is_done(self) -> bool:
        return len(self.seen) >= self.wanted


async def take_each(url: str, mode: Any, worker: Worker, board: Board, destination: str) -> None:
    """One of several consumers of a queue, in a mode that settles as it goes or in steps."""
    async with connect(url, client_name=worker.name, reconnect_seconds=RECONNECT_SECONDS) as connection:
        session = await connection.session(acknowledge=mode)
        consumer = await session.consumer(destination, credit=CREDIT)
        while not board.is_done:
            message = await consumer.receive(timeout=0.2)
            if message is None:
                continue
            worker.note(message)
            board.seen[message.text] += 1
            if mode == "individual":
                await message.acknowledge(confirm=len(worker.bodies) % 7 == 0)
            elif mode == "client" and len(worker.bodies) % 5 == 0:
                await session.acknowledge(confirm=len(worker.bodies) % 10 == 0)
        if mode == "client":
            await session.acknowledge()
        await session.close()


async def subscribe(
    url: str,
    worker: Worker,
    destination: str,
    *,
    ready: Callable[[], object],
    durable: str | None = None,
) -> None:
    """A subscriber that gets everything."""
    async with connect(
        url, client_name=worker.name, client_id=worker.name, reconnect_seconds=RECONNECT_SECONDS
    ) as connection:
        consumer = await connection.consumer(destination, durable=durable, credit=CREDIT)
        ready()
        while not worker.is_done:
            message = await consumer.receive(timeout=PATIENCE_SECONDS)
            if message is None:
                worker.faults.append(f"{worker.name}: nothing came any more after {len(worker.bodies)}")
                return
            worker.note(message)


class Copier:
    """Moves messages from one queue to another in transactions, each as often as it takes."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.faults: list[str] = []
        self.done: list[str] = []
        self.rolled_back = 0
        self._seen: set[str] = set()

    async def run(self, url: str, source: str, target: str) -> None:
        async with connect(url, client_name="copier", reconnect_seconds=RECONNECT_SECONDS) as connection:
            session = await connection.session(acknowledge="transacted")
            consumer = await session.consumer(source, credit=CREDIT)
            producer = await session.producer(target)
            while len(self.done) < self.wanted:
                taken = await self._take(consumer, min(5, self.wanted - len(self.done)))
                try:
                    for body in taken:
                        await producer.send(body)
                    await session.commit()
                except TransactionRolledBack:
                    self.rolled_back += 1
                else:
                    self.done += taken

    async def _take(self, consumer: Consumer, count: int) -> list[str]:
        taken = []
        for _ in range(count):
            message = await consumer.receive(timeout=PATIENCE_SECONDS)
            assert message is not None, f"nothing came any more after {len(self.done)}"
            body = message.text
            if message.redelivered != (body in self._seen):
                self.faults.append(f"copier: {body} came with mark {message.redelivered}")
            self._seen.add(body)
            taken.append(body)
        return taken


async def in_units(url: str, worker: Worker, board: Board, hands: dict[str, str], destination: str) -> None:
    """One of several consumers of a queue with units of order: no two may have the same unit at a time."""
    async with connect(url, client_name=worker.name, reconnect_seconds=RECONNECT_SECONDS) as connection:
        session = await connection.session(acknowledge="individual")
        consumer = await session.consumer(destination, credit=CREDIT)
        while not board.is_done:
            message = await consumer.receive(timeout=0.2)
            if message is None:
                continue
            unit = message.unit_of_order or ""
            if hands.setdefault(unit, worker.name) != worker.name:
                worker.faults.append(f"{worker.name} has {message.text} while {hands[unit]} has its unit")
            worker.note(message)
            board.seen[message.text] += 1
            await asyncio.sleep(0)
            hands.pop(unit, None)
            await message.acknowledge()
        await session.close()


async def produce(
    url: str, destinations: list[str], count: int, *, at_each: Callable[[int], None] = lambda number: None
) -> None:
    async with connect(url, client_name="producer", reconnect_seconds=RECONNECT_SECONDS) as connection:
        producers = {address: await connection.producer(address) for address in destinations}
        for number in range(count):
            for address, producer in producers.items():
                unit = f"unit {number % UNITS}" if "units" in address else None
                await producer.send(f"{number:05d}", unit_of_order=unit)
            at_each(number)
            await asyncio.sleep(0.002)


def in_order(bodies: list[str]) -> bool:
    return bodies == sorted(bodies)
