"""A queue that is sent to and received from all the time, while the nodes of a cluster in one process come and go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import heliograph
from tests.servers import until
from tests.suites.cluster_in_process import CLIENTS, MESSAGES, Cluster, url

ROLES = {1: CLIENTS, 2: CLIENTS, 3: MESSAGES, 4: MESSAGES, 5: MESSAGES}


async def stop(cluster: Cluster, node: int) -> None:
    await cluster.nodes.pop(node).stop()


def places(cluster: Cluster) -> str:
    found = [url(cluster, node).removeprefix("helio://") for node in (1, 2) if node in cluster.nodes]
    return "helio://" + ",".join(found)


def port_of(cluster: Cluster, node: int) -> int:
    """Clients come back to where it was."""
    address = cluster.nodes[node].address
    return address[1] if address is not None else 0


class Load:
    """Messages go through a queue without end, and each is looked at."""

    def __init__(self) -> None:
        self.sent = 0
        self.received: list[int] = []
        self.redelivered = 0
        self._is_enough = False

    async def send(self, connection: heliograph.Connection) -> None:
        producer = await connection.producer("queue:load")
        while not self._is_enough:
            await producer.send_confirmed(b"%d" % self.sent)
            self.sent += 1
            await asyncio.sleep(0.001)

    async def receive(self, connection: heliograph.Connection) -> None:
        consumer = await connection.consumer("queue:load")
        while not self._is_enough or len(self.received) < self.sent:
            message = await consumer.receive(timeout=0.2)
            if message is not None:
                assert isinstance(message.body, bytes)
                self.received.append(int(message.body))
                self.redelivered += message.redelivered

    async def flows(self) -> None:
        """Messages of now come through."""
        goal = self.sent + 10
        await until(lambda: self.received and self.received[-1] > goal, "messages come through")

    def enough(self) -> None:
        self._is_enough = True


@asynccontextmanager
async def under_load(address: str) -> AsyncIterator[Load]:
    load = Load()
    async with (
        heliograph.connect(address) as one,
        heliograph.connect(address) as other,
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(load.send(one))
        tasks.create_task(load.receive(other))
        await load.flows()
        yield load
        load.enough()
    assert load.received == list(range(load.sent))
    assert not load.redelivered
