"""Servers to look at: one with traffic and with trouble, a cluster to be cut, one with very many destinations."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import heliograph
from tests.interop.stage import SECONDS, Stage
from tests.suites.parted_cluster import PartedCluster

ORDERS, INVOICES, LEDGER = "queue:orders", "queue:invoices", "queue:ledger"
NEWS, OPS = "topic:news", "alerts:ops"


class Shop(Stage):
    """A shop whose invoices cannot reach the bank, and whose books do not balance."""

    def __init__(self, folder: Path, settings: dict[str, object] | None = None, login: str = "") -> None:
        super().__init__(folder, "single", settings)
        self._login = login
        self._traffic: asyncio.Task[None] | None = None

    @property
    def own_url(self) -> str:
        return f"helio://{self._login}{self.host}:{self.port}"

    def open(self) -> None:
        self.run(self._open())

    async def _open(self) -> None:
        self._traffic = asyncio.create_task(self._trade())

    async def _stop(self) -> None:
        if self._traffic is not None:
            self._traffic.cancel()
        await super()._stop()

    async def _trade(self) -> None:
        async with heliograph.connect(self.own_url) as connection:
            session = await connection.session(acknowledge="individual")
            producer, consumer = await session.producer(ORDERS), await session.consumer(ORDERS)
            number = 0
            while True:
                for _ in range(10):
                    number += 1
                    await producer.send({"order": number, "book": "Emma"}, properties={"region": "eu"})
                for message in await consumer.receive_batch(9, timeout=1):
                    await message.acknowledge()
                await asyncio.sleep(0.05)

    def fail(self) -> None:
        self.run(self._fail())

    async def _fail(self) -> None:
        async with heliograph.connect(self.own_url) as connection:
            for name, policy in ((INVOICES, {}), (LEDGER, {"unit_stops": True})):
                await connection.ask(
                    "destination.create", destination=name, policy={"redelivery_limit": 1, **policy}
                )
            session = await connection.session(acknowledge="individual")
            await self._reject(session, INVOICES, 5, "cannot reach the bank")
            await self._reject(session, LEDGER, 1, "the books do not balance", unit_of_order="account-17")
            await session.consumer(NEWS, durable="archive", shared=True)
            await (await session.producer(NEWS)).send_confirmed("a new shelf")
            alerts = connection.alerts("ops")
            await alerts.publish("TAG:disk", "disk of db-3 is 91 % full", priority=9)
            await alerts.publish("USER:ann", "call the warehouse", priority=4)

    async def _reject(self, session: Any, name: str, count: int, why: str, **options: Any) -> None:
        producer = await session.producer(name)
        for number in range(count + bool(options)):
            body = {"entry": number, "note": "<img src=x onerror=alert(1)>"}
            await producer.send_confirmed(body, properties={"n": number}, **options)
        consumer = await session.consumer(name)
        for _ in range(count):
            message = await consumer.receive(timeout=30)
            assert message is not None
            await message.reject(why)
        await consumer.close()


class Parted(Stage):
    """A cluster of three client managers and two message managers, on a bus that can be cut."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.cluster: PartedCluster | None = None

    async def _start(self) -> None:
        self.cluster = PartedCluster(self._folder)
        await self.cluster.start(3, 2)
        address = self.cluster.nodes[1].address
        assert address is not None
        self.port = address[1]

    async def _stop(self) -> None:
        assert self.cluster is not None
        await self.cluster.stop()

    def cut(self, *parts: list[int]) -> None:
        assert self.cluster is not None
        self._loop.call_soon_threadsafe(self.cluster.cut, *parts)

    def send(self, destination: str, count: int) -> None:
        self.run(self._send(destination, count))

    async def _send(self, destination: str, count: int) -> None:
        async with asyncio.timeout(SECONDS), heliograph.connect(self.url) as connection:
            producer = await connection.producer(destination)
            for number in range(count):
                await producer.send_confirmed(str(number))


class Crowd(Stage):
    """A server with very many destinations."""

    def fill(self, count: int) -> None:
        self.run(self._fill(count))

    async def _fill(self, count: int) -> None:
        """Made where they are: to ask for each would take minutes."""
        server = self._server
        assert server is not None
        messages = server._messages
        assert messages is not None
        for number in range(count):
            effects: list[Any] = []
            messages.catalogue.find_or_make(f"queue:crowd.{number:05}", effects, create=True)  # type: ignore[arg-type]
            messages.run(None, effects)
            if not number % 500:
                await asyncio.sleep(0)
