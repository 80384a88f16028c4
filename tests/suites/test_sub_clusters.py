"""Two sub-clusters behind client managers (M2): destinations are spread over them, and clients notice nothing."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import heliograph
from heliograph.cli.dead_queues import dead_message_queues
from tests.servers import play, until
from tests.suites.cluster_in_process import CLIENTS, Cluster, url

pytestmark = pytest.mark.req("M2")
NAMES = ("east", "west")
BOTH: dict[str, Any] = {"cluster__sub_clusters": "west, east"}
ELEVEN = [f"queue:orders-{number}" for number in range(11)]


def spread(
    base: Path, story: Callable[[Cluster], Awaitable[None]], *, clients: int = 1, seconds: float = 150.0
) -> None:
    """Client managers 1.., message managers 10 and 11 in the east, 20 and 21 in the west."""

    async def whole() -> None:
        cluster = Cluster(base)
        for number in range(1, clients + 1):
            await cluster.add(number, CLIENTS, **BOTH)
        for first, name in zip((10, 20), NAMES, strict=True):
            for node in (first, first + 1):
                await cluster.add(node, cluster__sub_cluster=name, **BOTH)
        try:
            await story(cluster)
        finally:
            await cluster.stop()

    play(whole(), seconds)


def kept_by(cluster: Cluster, name: str) -> list[str]:
    replica = cluster.nodes[cluster.leader(name)].replica
    assert replica is not None
    found = [str(address) for address in replica.manager.catalogue.by_address]
    return [address for address in found if ":_" not in address]


def test_new_destinations_go_where_there_is_less_to_do_and_are_found_from_everywhere(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        async with heliograph.connect(url(cluster)) as connection:
            for address in ELEVEN:
                producer = await connection.producer(address)
                await producer.send_confirmed(address.encode())
        assert sorted(kept_by(cluster, "east") + kept_by(cluster, "west")) == sorted(ELEVEN)
        assert abs(len(kept_by(cluster, "east")) - len(kept_by(cluster, "west"))) <= 1
        async with heliograph.connect(url(cluster, 2)) as connection:
            for address in ELEVEN:
                consumer = await connection.consumer(address)
                message = await consumer.receive(timeout=30)
                assert message is not None
                assert message.body == address.encode()

    spread(tmp_path, story, clients=2)


def test_whoever_makes_a_destination_at_the_same_moment_makes_the_same_one(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        for name, loads in zip(NAMES, ((0.0, 50.0, 100.0), (100.0, 50.0, 0.0)), strict=True):
            replica = cluster.nodes[cluster.leader(name)].replica
            assert replica is not None
            # Whoever asks hears something else, as when much happens in between.
            replica.manager.load = itertools.cycle(loads).__next__  # type: ignore[method-assign]
        async with AsyncExitStack() as stack:
            connections = [
                await stack.enter_async_context(heliograph.connect(url(cluster, manager)))
                for manager in (1, 2, 3)
            ]
            sessions = [await connection.session() for connection in connections]
            for address in ELEVEN:
                await asyncio.gather(*[session.producer(address) for session in sessions])
        assert sorted(kept_by(cluster, "east") + kept_by(cluster, "west")) == sorted(ELEVEN)

    spread(tmp_path, story, clients=3)


def test_a_session_has_lanes_and_consumers_in_both_and_is_resumed_in_both(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        async with heliograph.connect(f"{url(cluster, 1)},{url(cluster, 2)[8:]}") as connection:
            session = await connection.session(acknowledge="individual")
            producers = [await session.producer(address) for address in ELEVEN]
            consumers = [await session.consumer(address) for address in ELEVEN]
            for turn in range(6):
                for producer in producers:
                    await producer.send(b"%d" % turn)
                if turn % 2:
                    _cut(connection)
                for consumer in consumers:
                    message = await consumer.receive(timeout=30)
                    assert message is not None
                    assert message.body == b"%d" % turn
                    assert not message.redelivered
                    await message.acknowledge()

    spread(tmp_path, story, clients=2)


def test_either_may_lose_the_one_that_leads(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        async with heliograph.connect(url(cluster)) as connection:
            session = await connection.session()
            producers = [await session.producer(address) for address in ELEVEN[:4]]
            consumers = [await session.consumer(address) for address in ELEVEN[:4]]
            for turn, name in enumerate((*NAMES, *NAMES)):
                led = cluster.leader(name)
                cluster.crash(led)
                for producer in producers:
                    await producer.send_confirmed(b"%d" % turn)
                await cluster.add(led, cluster__sub_cluster=name, **BOTH)
            for consumer in consumers:
                got = [await consumer.receive(timeout=30) for _ in range(4)]
                assert [message.body for message in got if message] == [b"0", b"1", b"2", b"3"]
                assert not any(message.redelivered for message in got if message)

    spread(tmp_path, story)


def test_one_that_is_away_holds_up_nobody_but_its_own(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        async with heliograph.connect(url(cluster)) as connection:
            for address in ELEVEN[:2]:
                await (await connection.producer(address)).send_confirmed(b"first")
        (eastern,), (western,) = kept_by(cluster, "east"), kept_by(cluster, "west")
        for node in (20, 21):
            await cluster.nodes.pop(node).stop()
        async with heliograph.connect(url(cluster)) as connection:
            producer = await connection.producer(eastern)
            await asyncio.wait_for(producer.send_confirmed(b"second"), 30)
            waiting = asyncio.ensure_future(connection.producer(western))
            await asyncio.sleep(0.2)
            assert not waiting.done()
            await asyncio.gather(
                *[cluster.add(node, cluster__sub_cluster="west", **BOTH) for node in (20, 21)]
            )
            await asyncio.wait_for((await waiting).send_confirmed(b"second"), 30)
            for address in (eastern, western):
                consumer = await connection.consumer(address)
                got = [await consumer.receive(timeout=30) for _ in range(2)]
                assert [message.body for message in got if message] == [b"first", b"second"]

    spread(tmp_path, story)


@pytest.mark.req("M12")
def test_a_pattern_means_topics_of_both(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        async with heliograph.connect(url(cluster)) as connection:
            session = await connection.session()
            topics = [f"topic:news.{number}" for number in range(6)]
            for topic in topics[:3]:
                await session.producer(topic)
            consumer = await session.consumer("topic:glob:news.*")
            for topic in topics:
                await (await session.producer(topic)).send_confirmed(topic.encode())
            got = {
                message.body for message in [await consumer.receive(timeout=30) for _ in topics] if message
            }
            assert got == {topic.encode() for topic in topics}
        assert kept_by(cluster, "east")
        assert kept_by(cluster, "west")

    spread(tmp_path, story)


def test_administration_sees_all_destinations(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        async with heliograph.connect(url(cluster)) as connection:
            for address in ELEVEN:
                await connection.producer(address)
            seen: list[str] = []
            after = 0
            while True:
                page = await connection.ask("destinations", after=after)
                seen += [entry["address"] for entry in page["destinations"]]
                after = page["next"]
                if not after:
                    break
            assert sorted(address for address in seen if ":_" not in address) == sorted(ELEVEN)
            for address in ELEVEN:
                assert (await connection.ask("destination.show", destination=address))["address"] == address
            await connection.ask("destination.delete", destination=ELEVEN[0])
            await until(
                lambda: ELEVEN[0] not in kept_by(cluster, "east") + kept_by(cluster, "west"), "it is gone"
            )
            with pytest.raises(heliograph.HeliographError) as refused:
                await connection.ask("destination.show", destination="queue:nowhere")
            assert refused.value.code == "destination-unknown"
            assert (await connection.ask("server"))["journal"]["segments"] >= 2

    spread(tmp_path, story)


@pytest.mark.req("M11")
def test_each_has_its_dead_and_all_can_be_reached(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        async with heliograph.connect(url(cluster)) as connection:
            queues = ELEVEN[:4]
            for address in queues:
                await connection.ask(
                    "destination.create", destination=address, policy={"undelivered_to_dead_after": 0.05}
                )
                await (await connection.producer(address)).send_confirmed(address.encode())
            assert connection.sub_clusters == list(NAMES)
            dead = dead_message_queues(connection)
            assert dead == ["queue:_DMQ@east", "queue:_DMQ@west"]

            async def all_died() -> bool:
                shown = [await connection.ask("destination.show", destination=queue) for queue in dead]
                return [each["depth"] for each in shown] == [2, 2]

            async with asyncio.timeout(60):
                while not await all_died():
                    await asyncio.sleep(0.02)
            session = await connection.session(acknowledge="transacted")
            found: list[object] = []
            for queue in dead:
                seen = [message.body async for message in await connection.browse(queue)]
                assert (await connection.ask("pipeline.depth", destination=queue))["messages"] == 2
                consumer = await session.consumer(queue)
                taken = [
                    message.body for message in [await consumer.receive(timeout=30) for _ in seen] if message
                ]
                assert taken == seen
                found += taken
            await session.commit()
            assert sorted(map(str, found)) == sorted(str(address.encode()) for address in queues)
            for queue in dead:
                assert (await connection.ask("destination.show", destination=queue))["depth"] == 0
            with pytest.raises(heliograph.HeliographError) as refused:
                await connection.consumer("queue:_DMQ@south")
            assert refused.value.code == "destination-unknown"

    spread(tmp_path, story)


def _cut(connection: heliograph.Connection) -> None:
    wire = connection._link.wire
    assert wire is not None
    assert wire._transport is not None
    wire._transport.abort()


@pytest.mark.req("M12", "J6")
def test_a_durable_pattern_keeps_what_new_topics_get_in_every_sub_cluster(tmp_path: Path) -> None:
    topics = [f"topic:prices-{number}" for number in range(6)]

    async def story(cluster: Cluster) -> None:
        async with heliograph.connect(url(cluster), client_id="c") as connection:
            await connection.consumer("topic:glob:prices-*", durable="d")
        async with heliograph.connect(url(cluster)) as other:
            for address in topics:
                producer = await other.producer(address)
                await producer.send_confirmed(address.encode())
        kept = [kept_by(cluster, name) for name in NAMES]
        assert all(any(address in topics for address in each) for each in kept), "both have some"
        async with heliograph.connect(url(cluster), client_id="c") as connection:
            consumer = await connection.consumer("topic:glob:prices-*", durable="d")
            messages = [await consumer.receive(timeout=30) for _ in topics]
            assert sorted(message.destination for message in messages if message is not None) == topics
            await consumer.close()
            await connection.unsubscribe("d")

    spread(tmp_path, story)
