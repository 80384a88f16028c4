"""What a destination keeps at most, on a real server (M11)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import heliograph
from heliograph.client import Connection
from heliograph.model.limits import MIB
from tests.servers import embedded, play, url_of
from tests.suites.exchange import receive_all, send_all

pytestmark = pytest.mark.req("M11")


def bodies(first: int, last: int) -> list[bytes]:
    return [b"%d" % n for n in range(first, last)]


async def keep(connection: Connection, destination: str, **policy: Any) -> None:
    await connection.ask("destination.create", destination=destination, policy=policy)


async def depth_of(connection: Connection, destination: str) -> int:
    shown = await connection.ask("destination.show", destination=destination)
    return int(shown["depth"])


async def settles_at(connection: Connection, destination: str, most: int) -> int:
    """Wait until no more than that waits. Returns how much does."""
    async with asyncio.timeout(30):
        while (depth := await depth_of(connection, destination)) > most:
            await asyncio.sleep(0.05)
    return depth


def test_the_oldest_go_and_the_newest_stay_over_a_restart(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            await keep(connection, "queue:a", retention_messages=10)
            await send_all(await connection.producer("queue:a"), bodies(0, 500))
            assert await settles_at(connection, "queue:a", 10) == 10
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            messages = await receive_all(await connection.consumer("queue:a"), 10)
            assert [message.body for message in messages] == bodies(490, 500)

    play(story())


def test_what_is_handed_out_is_not_touched(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            await keep(connection, "queue:a", retention_messages=1)
            session = await connection.session(acknowledge="client")
            consumer = await session.consumer("queue:a", credit=5)
            await send_all(await connection.producer("queue:a"), bodies(0, 20))
            held = await receive_all(consumer, 5)
            assert await settles_at(connection, "queue:a", 1) == 1
            assert [message.body for message in held] == bodies(0, 5)
            await session.acknowledge(confirm=True)
            last = await consumer.receive(timeout=30)
            assert last is not None
            assert last.body == b"19"

    play(story())


def test_a_deep_backlog_that_is_on_disk_goes_too(tmp_path: Path) -> None:
    async def story() -> None:
        settings = {"memory.resident_bytes": 1 * MIB}
        async with embedded(tmp_path, settings) as server, heliograph.connect(url_of(server)) as connection:
            producer = await connection.producer("queue:a")
            await send_all(producer, [b"%05d" % n + bytes(2000) for n in range(5000)])
            await connection.ask(
                "destination.set", destination="queue:a", policy={"retention_bytes": 100 * 2010}
            )
            depth = await settles_at(connection, "queue:a", 101)
            assert depth >= 80, "about so many bytes"
            messages = await receive_all(await connection.consumer("queue:a"), depth)
            assert [bytes(message.body)[:5] for message in messages] == [  # type: ignore[arg-type]
                b"%05d" % n for n in range(5000 - depth, 5000)
            ]

    play(story())


def test_each_subscription_keeps_for_itself_and_the_dead_say_why(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            embedded(tmp_path) as server,
            heliograph.connect(url_of(server), client_id="one") as connection,
        ):
            await keep(connection, "topic:t", retention_messages=3, retention_to_dead=True)
            idle = await connection.consumer("topic:t", durable="idle")
            await idle.close()
            busy = await connection.consumer("topic:t", durable="busy")
            producer = await connection.producer("topic:t")
            await send_all(producer, bodies(0, 10))
            assert [message.body for message in await receive_all(busy, 10)] == bodies(0, 10)
            dead = await receive_all(await connection.consumer("queue:_DMQ"), 7)
            assert [message.body for message in dead] == bodies(0, 7)
            assert {message.properties["JMS_helio_reason"] for message in dead} == {"retention"}
            again = await connection.consumer("topic:t", durable="idle")
            assert [message.body for message in await receive_all(again, 3)] == bodies(7, 10)

    play(story())


@pytest.mark.parametrize("selective", [False, True])
def test_what_waits_too_long_goes_whatever_its_priority(tmp_path: Path, selective: bool) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            await keep(connection, "queue:a", retention_seconds=3.0)
            if selective:
                await connection.consumer("queue:a", selector="colour = 'red'")
            for priority in (9, 4, 0):
                producer = await connection.producer("queue:a", priority=priority)
                await producer.send_confirmed(b"%d" % priority)
            assert await depth_of(connection, "queue:a") == 3
            await settles_at(connection, "queue:a", 0)
            assert await depth_of(connection, "queue:_DMQ") == 0

    play(story())


def test_the_dead_can_be_kept_for_a_time(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            await connection.ask(
                "destination.set",
                destination="queue:_DMQ",
                policy={"retention_messages": 2, "retention_to_dead": True},
            )
            shown = await connection.ask("destination.show", destination="queue:_DMQ")
            assert not shown["policy"]["retention_to_dead"], "the dead do not die again"
            await keep(connection, "queue:a", retention_messages=1, retention_to_dead=True)
            await send_all(await connection.producer("queue:a"), bodies(0, 10))
            assert await settles_at(connection, "queue:a", 1) == 1
            assert await settles_at(connection, "queue:_DMQ", 2) <= 2

    play(story())
