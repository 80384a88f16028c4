"""Clients that stay with their client manager while its part is cut off and meets the others again (P6, P7)."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import heliograph
from heliograph import Connection
from heliograph.frontends.native.frames import CONFIRM
from tests.suites.cluster_in_process import url
from tests.suites.cutting_proxy import cutting
from tests.suites.parted_cluster import PartedCluster, parted
from tests.suites.test_partition_administration import cut

PRODUCERS = 4
LEASE_SECONDS = 0.2


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
        async with asyncio.timeout(60):
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


@pytest.mark.req("P7", "P9")
def test_a_session_that_began_in_one_part_goes_on_in_another_and_stays_in_order(tmp_path: Path) -> None:
    """The other part has never heard of it, and cannot ask."""

    async def story(cluster: PartedCluster) -> None:
        one, other = cluster.nodes[1].address, cluster.nodes[3].address
        assert one is not None
        assert other is not None
        await cut(cluster)
        senders, heard = Senders(), list[str]()
        async with (
            cutting(other) as proxy,  # of several addresses a client begins with any
            heliograph.connect(proxy.url, on_error=lambda error: heard.append(error.code)) as connection,
            asyncio.TaskGroup() as group,
        ):
            group.create_task(senders.send(connection, "newcomer"))
            await senders.have_sent(20)
            proxy.target = one
            await cluster.nodes.pop(3).stop()
            await senders.have_sent(20)
            manager = (await cluster.facts(1))["1.11"]["message-manager"]
            assert "behind a missing message wait" in manager["held_back_why"]
            assert await waits_in_vain(cluster), "it does not overtake what the other part has"
            cluster.bus.heal()
            await cluster.until_state("A", 1, 11, 12)
            await senders.have_sent(20)
            senders.is_over = True
        assert "session-lost" not in heard
        check_once_and_in_order(await received(cluster, senders))

    parted(tmp_path, story)


async def waits_in_vain(cluster: PartedCluster) -> bool:
    async with heliograph.connect(url(cluster, 1)) as connection:
        consumer = await connection.consumer("queue:orders")
        return await consumer.receive(timeout=0.3) is None


_FILM = b"film" * 1000


async def seen(cluster: PartedCluster, at: int, count: int) -> list[bytes]:
    """What a consumer gets there and is through with: so many, unmarked, and no more."""
    async with heliograph.connect(url(cluster, at)) as connection:
        session = await connection.session(acknowledge="individual")
        consumer = await session.consumer("queue:films")
        found: list[bytes] = []
        while (message := await consumer.receive(timeout=20 if len(found) < count else 0.5)) is not None:
            async with message.open() as stream:
                found.append(await stream.read())
            assert not message.redelivered
            await message.acknowledge(confirm=True)
        return found


@pytest.mark.req("M6", "P6", "P7")
@pytest.mark.parametrize("is_seen", [False, True])
def test_a_large_message_that_is_sent_again_in_another_part_is_there_once(
    tmp_path: Path, is_seen: bool
) -> None:
    """One part has taken it, and the producer did not hear so. The other lacks its content. `is_seen`: a consumer of
    the first part is through with it before they meet."""

    async def story(cluster: PartedCluster) -> None:
        one, other = cluster.nodes[1].address, cluster.nodes[3].address
        assert one is not None
        assert other is not None
        async with cutting(one) as proxy, heliograph.connect(proxy.url) as connection:
            producer = await connection.producer("queue:films")
            await producer.send_confirmed(b"before")
            await cut(cluster)
            proxy.target, proxy.loses = other, CONFIRM
            await producer.send_stream(_FILM, threshold=1000)
            assert proxy.cuts == 1
            await producer.send_confirmed(b"behind")
            taken = await seen(cluster, 1, 2) if is_seen else []
            cluster.bus.heal()
            await cluster.until_state("A", 1, 3, 11, 12)
        taken += await seen(cluster, 2, 3 - len(taken))
        assert taken == [b"before", _FILM, b"behind"]

    parted(tmp_path, story)


@pytest.mark.req("P3", "P6")
def test_what_was_done_in_a_restricted_part_goes_to_nobody_when_its_client_manager_is_back_without_it(
    tmp_path: Path,
) -> None:
    """The client manager asks its clients to come again, and one does not come. For how long it is waited for is not
    for that client manager to say, which was elsewhere: what was with its clients is in doubt until all is whole."""

    async def story(cluster: PartedCluster) -> None:
        address = cluster.nodes[3].address
        assert address is not None
        async with cutting(address) as proxy, heliograph.connect(proxy.url) as away:
            session = await away.session(acknowledge="individual")
            consumer = await session.consumer("queue:orders", credit=1)
            async with heliograph.connect(url(cluster, 1)) as connection:
                await (await connection.producer("queue:orders")).send_confirmed(b"once")
                message = await consumer.receive(timeout=30)
                assert message is not None
                await cut(cluster)
                await message.acknowledge(confirm=True)
                proxy.target = ("127.0.0.1", 1)  # it does not find back
                cluster.cut([1, 2, 3, 11], [12])
                await cluster.until_state("B", 1, 3, 11)
                another = await connection.consumer("queue:orders")
                assert await another.receive(timeout=5 * LEASE_SECONDS) is None
                cluster.bus.heal()
                await cluster.until_state("A", 1, 3, 11, 12)
                assert await another.receive(timeout=5 * LEASE_SECONDS) is None
            await away.leave(complete=False)

    parted(tmp_path, story, sessions__reconnect_seconds=LEASE_SECONDS, sessions__lease_seconds=LEASE_SECONDS)
