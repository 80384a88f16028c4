"""Clients that stay with their client manager while its part is cut off and meets the others again (P6, P7)."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import heliograph
from heliograph import Connection
from tests.suites.cluster_in_process import url
from tests.suites.parted_cluster import PartedCluster, parted
from tests.suites.test_partition_administration import cut

PRODUCERS = 4


class Senders:
    """Each sends numbered messages, one after the other is confirmed."""

    def __init__(self) -> None:
        self.confirmed: Counter[str] = Counter()
        self.is_over = False

    async def send(self, connection: Connection, name: str) -> None:
        producer = await connection.producer("queue:orders")
        while not self.is_over:
            await producer.send_confirmed({"sender": name, "number": self.confirmed[name] + 1})
            self.confirmed[name] += 1

    async def have_sent(self, more: int) -> None:
        goal = sum(self.confirmed.values()) + more
        async with asyncio.timeout(20):
            while sum(self.confirmed.values()) < goal:
                await asyncio.sleep(0)


async def received(cluster: PartedCluster, senders: Senders) -> list[tuple[str, int, bool]]:
    async with heliograph.connect(url(cluster, 1)) as connection:
        consumer = await connection.consumer("queue:orders")
        found: list[tuple[str, int, bool]] = []
        missing = {
            (name, number) for name, last in senders.confirmed.items() for number in range(1, last + 1)
        }
        while missing:
            message = await consumer.receive(timeout=20)
            assert message is not None, f"{len(missing)} never came"
            assert isinstance(message.body, dict)
            sender, number = str(message.body["sender"]), int(message.body["number"])
            found.append((sender, number, message.redelivered))
            missing.discard((sender, number))
        while (message := await consumer.receive(timeout=0.5)) is not None:
            assert isinstance(message.body, dict)
            found.append((str(message.body["sender"]), int(message.body["number"]), message.redelivered))
        return found


async def over_a_cut(cluster: PartedCluster, *, newcomers: int = 0) -> list[tuple[str, int, bool]]:
    """Whoever is in the restricted part sends before the cut, in it, at the heal and behind it. `newcomers` begin in
    it."""
    senders = Senders()
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:

        async def begin(name: str) -> None:
            connection = await stack.enter_async_context(heliograph.connect(url(cluster, 3)))
            group.create_task(senders.send(connection, name))

        for number in range(PRODUCERS):
            await begin(f"producer {number}")
        await senders.have_sent(20)
        await cut(cluster)
        for number in range(newcomers):
            await begin(f"newcomer {number}")
        await senders.have_sent(60)
        cluster.bus.heal()
        await cluster.until_state("A", 1, 3, 11, 12)
        await senders.have_sent(60)
        senders.is_over = True
    return await received(cluster, senders)


@pytest.mark.req("P6")
def test_what_is_confirmed_to_clients_over_a_cut_is_not_lost(tmp_path: Path) -> None:
    async def story(cluster: PartedCluster) -> None:
        assert await over_a_cut(cluster, newcomers=4)

    parted(tmp_path, story)


def check_once_and_in_order(found: list[tuple[str, int, bool]]) -> None:
    times = Counter((sender, number) for sender, number, is_again in found if not is_again)
    assert not [each for each, count in times.items() if count > 1], "received twice"
    for name in sorted({sender for sender, _, _ in found}):
        numbers = [number for sender, number, is_again in found if sender == name and not is_again]
        assert numbers == sorted(numbers), "out of order"


@pytest.mark.req("P6", "P7")
def test_what_clients_send_while_parts_meet_comes_once_and_in_order(tmp_path: Path) -> None:
    async def story(cluster: PartedCluster) -> None:
        check_once_and_in_order(await over_a_cut(cluster))

    parted(tmp_path, story)


@pytest.mark.req("P6", "P7")
def test_what_clients_of_a_restricted_part_send_while_parts_meet_comes_once_and_in_order(
    tmp_path: Path,
) -> None:
    async def story(cluster: PartedCluster) -> None:
        check_once_and_in_order(await over_a_cut(cluster, newcomers=4))

    parted(tmp_path, story)
