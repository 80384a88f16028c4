"""Leases and batches in a cluster (D2, D3): whoever leads dies between any two steps, and parts are cut off."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import heliograph
from heliograph.client import Connection
from heliograph.model.errors import HeliographError
from tests.suites.cluster_in_process import Cluster, told, url
from tests.suites.exchange import receive_all
from tests.suites.parted_cluster import PartedCluster, parted
from tests.suites.test_pipelines import Task, bodies, depth, fill, lease, lent, publish

pytestmark = pytest.mark.req("D2", "D3")


async def out(connection: Connection, count: int) -> list[bytes]:
    """What was published, and nothing behind it."""
    consumer = await connection.consumer("queue:out")
    found = [message.body for message in await receive_all(consumer, count)]
    assert await consumer.receive(timeout=0.3) is None
    await consumer.close()
    assert all(isinstance(body, bytes) for body in found)
    return found  # type: ignore[return-value]


async def until_served(connection: Connection) -> None:
    """Somebody leads, in a view that holds, with all that was done elsewhere."""
    deadline = asyncio.get_running_loop().time() + 20
    while asyncio.get_running_loop().time() < deadline:
        with suppress(HeliographError):
            await connection.ask("pipeline.lease", name="-", epoch=1, messages=0, destination="queue:a")
            return
        await asyncio.sleep(0.02)
    pytest.fail("pipelines are not served")


async def acknowledge(connection: Connection, epoch: int) -> bool:
    answer = await connection.ask("pipeline.acknowledge", name="q", epoch=epoch, destination="queue:a")
    took: bool = answer["took_effect"]
    return took


@pytest.mark.parametrize("dies_before", range(7))
def test_whoever_leads_may_die_between_any_two_steps(dies_before: int, tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        for node in (2, 3, 4):
            await cluster.add(node)
        steps = itertools.count()

        async def step(connection: Connection) -> None:
            if next(steps) == dies_before:
                cluster.crash(cluster.leader())
                await until_served(connection)

        async with heliograph.connect(url(cluster)) as connection:
            await fill(connection, "queue:a", bodies(range(20)), unit_of_order="u")
            await step(connection)
            assert await lease(connection, "q", 1, 12) == 12
            await step(connection)
            assert await lent(connection, "q", 1) == bodies(range(12))
            assert await depth(connection) == (8, 12)
            task = Task(connection, "w", 1)
            part = await task.write(bodies(range(12)))
            await step(connection)
            assert await publish(connection, 1, [part])
            await step(connection)
            assert not await publish(connection, 1, [part])
            assert await lent(connection, "q", 1) == bodies(range(12))
            assert await acknowledge(connection, 1)
            await step(connection)
            assert not await acknowledge(connection, 1)
            assert await depth(connection) == (8, 0)
            again = await connection.ask(
                "pipeline.lease", name="q", epoch=2, messages=100, destination="queue:a"
            )
            assert again == {"messages": 8, "again": False}
            await step(connection)
            again = await connection.ask(
                "pipeline.lease", name="q", epoch=2, messages=0, destination="queue:a"
            )
            assert again == {"messages": 8, "again": True}
            await connection.ask("pipeline.return", name="q", epoch=2, destination="queue:a")
            await step(connection)
            consumer = await connection.consumer("queue:a")
            messages = await receive_all(consumer, 8)
            assert [message.body for message in messages] == bodies(range(12, 20))
            assert all(message.redelivered for message in messages)
            assert await out(connection, 12) == bodies(range(12))

    told(tmp_path, story)


def test_a_backup_that_was_away_knows_what_was_lent_staged_and_published(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        for node in (2, 3, 4):
            await cluster.add(node)
        async with heliograph.connect(url(cluster)) as connection:
            cluster.crash(4)
            await fill(connection, "queue:a", bodies(range(20)))
            await until_served(connection)
            assert await lease(connection, "q", 1, 5) == 5
            assert await lease(connection, "q", 2, 5) == 5
            first = await Task(connection, "w", 1).write([b"first"])
            second = await Task(connection, "w", 2).write([b"second"])
            assert await publish(connection, 1, [first])
            assert await acknowledge(connection, 1)
            await cluster.add(4)
            for node in (2, 3):
                cluster.crash(node)
                await until_served(connection)
            assert cluster.leader() == 4
            assert await lent(connection, "q", 2) == bodies(range(5, 10))
            assert not await publish(connection, 1, [first])
            assert await publish(connection, 2, [second])
            assert not await acknowledge(connection, 1)
            assert await depth(connection) == (10, 5)
            assert await out(connection, 2) == [b"first", b"second"]

    told(tmp_path, story)


async def is_refused(asking: Awaitable[Any]) -> bool:
    with pytest.raises(HeliographError) as refused:
        await asking
    return refused.value.code == "pipeline-restricted"


def connected(cluster: PartedCluster) -> Callable[[int], Any]:
    return lambda at: heliograph.connect(url(cluster, at))


@pytest.mark.req("P5")
def test_a_part_that_was_cut_off_lends_and_publishes_nothing_and_the_other_goes_on(tmp_path: Path) -> None:
    async def story(cluster: PartedCluster) -> None:
        at = connected(cluster)
        async with at(1) as here, at(2) as there:
            await fill(here, "queue:a", bodies(range(30)))
            assert await lease(here, "q", 1, 10) == 10
            part = await Task(there, "w", 1).write(bodies(range(10)))
            led = cluster.leader()
            (other,) = {11, 12} - {led}
            cluster.cut([1, led], [2, 3, other])
            await cluster.until_state("D", 1)
            await cluster.until_state("B", 2)
        async with at(1) as here, at(2) as there:
            for asking in (
                lent(here, "q", 1),
                acknowledge(here, 1),
                lease(here, "q", 2, 10),
                publish(here, 1, [part]),
                Task(here, "w", 2).write([b"cut off"]),
            ):
                assert await is_refused(asking)
            assert await lent(there, "q", 1) == bodies(range(10))
            assert await publish(there, 1, [part])
            assert await acknowledge(there, 1)
            assert await lease(there, "q", 2, 15) == 15
        cluster.cut([1, 2, 3, 11, 12])
        await cluster.until_state("A", 1)
        async with at(1) as here:
            await until_served(here)
            assert not await publish(here, 1, [part])
            assert not await acknowledge(here, 1)
            assert await lent(here, "q", 2) == bodies(range(10, 25))
            assert await acknowledge(here, 2)
            consumer = await here.consumer("queue:a")
            assert [message.body for message in await receive_all(consumer, 5)] == bodies(range(25, 30))
            assert await consumer.receive(timeout=0.3) is None
            assert await out(here, 10) == bodies(range(10))

    parted(tmp_path, story)
