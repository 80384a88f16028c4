"""A distributed queue on a whole cluster with everything going wrong at once (U6): each unit stays in order.

Several producers send units; consumers give messages back, lose their connections, and come again; members vanish and
come back. What was accepted is processed, each unit's messages of one producer in the order in which it sent them.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

import heliograph
from tests.servers import play
from tests.suites.cluster_in_process import CLIENTS, Cluster, url

pytestmark = [pytest.mark.req("U6"), pytest.mark.slow]
QUEUE = "queue:orders"
NAMES = ("east", "west")
UNITS = [f"unit-{number}" for number in range(12)]
SECONDS = 5.0


class Trouble:
    """Who does what, and what came of it."""

    def __init__(self, cluster: Cluster, settings: dict[str, Any], seed: int) -> None:
        self._cluster = cluster
        self._settings = settings
        self._chance = random.Random(seed)
        self._is_over = asyncio.Event()
        self.accepted: dict[tuple[str, int], list[int]] = {}
        self.seen: dict[tuple[str, int], list[int]] = {}
        self.refused = 0
        self.places: dict[str, set[str]] = {}

    @property
    def missing(self) -> int:
        accepted = sum(map(len, self.accepted.values()))
        return accepted - sum(map(len, self.seen.values()))

    @property
    def _is_through(self) -> bool:
        return self._is_over.is_set() and not self.missing

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._send_until_over())
            for _ in range(3):
                tasks.create_task(self._consume())
            tasks.create_task(self._vex())

    async def _send_until_over(self) -> None:
        async with AsyncExitStack() as stack:
            connections = [
                await stack.enter_async_context(heliograph.connect(url(self._cluster, node)))
                for node in (1, 2)
            ]
            async with asyncio.TaskGroup() as tasks:
                for number in range(4):
                    tasks.create_task(self._produce(connections[number % 2], number))
            self._is_over.set()

    async def _produce(self, connection: heliograph.Connection, number: int) -> None:
        session = await connection.session()
        producer = await session.producer(QUEUE)
        end = asyncio.get_running_loop().time() + SECONDS
        turn = 0
        while asyncio.get_running_loop().time() < end:
            turn += 1
            unit = self._chance.choice(UNITS)
            try:
                await producer.send(f"{number} {turn}", unit_of_order=unit)
            except heliograph.OrderBroken:
                self.refused += 1
            else:
                self.accepted.setdefault((unit, number), []).append(turn)
            await asyncio.sleep(0.002)
        await producer.flush()

    async def _consume(self) -> None:
        while not self._is_through:
            with suppress(heliograph.HeliographError):
                async with heliograph.connect(url(self._cluster, self._chance.choice((1, 2)))) as connection:
                    session = await connection.session(acknowledge="individual")
                    consumer = await session.consumer(QUEUE, credit=8)
                    for _ in range(self._chance.randint(20, 200)):
                        if self._is_through:
                            return
                        message = await consumer.receive(timeout=0.3)
                        if message is not None:
                            await self._process(message, connection)

    async def _process(self, message: heliograph.Message, connection: heliograph.Connection) -> None:
        unit = message.unit_of_order or ""
        producer, turn = map(int, message.text.split())
        seen = self.seen.setdefault((unit, producer), [])
        if turn not in seen:  # otherwise it was processed, and that was not heard
            assert not seen or seen[-1] < turn, (
                f"{unit}: {turn} of producer {producer} came behind {seen[-1]}"
            )
            self.places.setdefault(unit, set()).add(message.destination)
            if self._chance.random() < 0.05:
                await message.return_()
                return
            seen.append(turn)
        if self._chance.random() < 0.02:
            _cut(connection)
        await message.acknowledge()

    async def _vex(self) -> None:
        """A sub-cluster is gone for a while, then another."""
        while not self._is_over.is_set():
            await asyncio.sleep(self._chance.uniform(0.3, 0.8))
            node, name = self._chance.choice(((10, "east"), (20, "west")))
            await self._cluster.nodes.pop(node).stop()
            await asyncio.sleep(self._chance.uniform(0.0, 0.5))
            await self._cluster.add(node, cluster__sub_cluster=name, **self._settings)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (1, 2))])
@pytest.mark.parametrize("routing", ["hash", "path"])
def test_units_stay_in_order_whatever_goes_wrong(tmp_path: Path, routing: str, seed: int) -> None:
    rule = {"destinations": QUEUE, "members": "all", "routing": routing, "redelivery_limit": 0}
    settings: dict[str, Any] = {"cluster__sub_clusters": "west, east", "policies": [rule]}

    async def story() -> None:
        cluster = Cluster(tmp_path)
        for node in (1, 2):
            await cluster.add(node, CLIENTS, **settings)
        for node, name in zip((10, 20), NAMES, strict=True):
            await cluster.add(node, cluster__sub_cluster=name, **settings)
        trouble = Trouble(cluster, settings, seed)
        try:
            await trouble.run()
        finally:
            await cluster.stop()
        assert trouble.seen == trouble.accepted
        assert trouble.refused
        assert {len(places) for places in trouble.places.values()} == {1}

    play(story())


def _cut(connection: heliograph.Connection) -> None:
    wire = connection._link.wire
    if wire is not None and wire._transport is not None:
        wire._transport.abort()
