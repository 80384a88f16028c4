"""An administrator pauses and resumes a destination (U8)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import heliograph
from heliograph import HeliographError
from tests.servers import embedded, play, until, url_of
from tests.suites.exchange import receive_all, send_all
from tests.suites.test_command_line import serving

pytestmark = pytest.mark.req("U8")


def bodies(first: int, last: int) -> list[bytes]:
    return [b"%d" % n for n in range(first, last)]


def test_producers_wait_while_production_is_paused_and_go_on_in_order(tmp_path: Path) -> None:
    async def story() -> None:
        told: list[tuple[str, str]] = []
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            connection.on_blocked = lambda destination, reason: told.append((destination, reason))
            producer = await connection.producer("queue:a")
            consumer = await connection.consumer("queue:a")
            await send_all(producer, bodies(0, 10))
            await connection.ask("destination.pause", destination="queue:a", production=True)
            await until(lambda: producer.is_blocked, "the producer is told")
            assert told == [("queue:a", "paused")]
            assert not await producer.try_send(b"no")
            waiting = asyncio.create_task(send_all(producer, bodies(10, 100)))
            assert [each.body for each in await receive_all(consumer, 10)] == bodies(0, 10)
            assert not waiting.done(), "consumers take what is there, and it does not become more"
            await connection.ask("destination.resume", destination="queue:a")
            await waiting
            assert [each.body for each in await receive_all(consumer, 90)] == bodies(10, 100)
            assert told[-1] == ("queue:a", "")

    play(story())


@pytest.mark.parametrize("destination", ["queue:a", "topic:t"])
def test_nothing_is_handed_out_while_consumption_is_paused(tmp_path: Path, destination: str) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            session = await connection.session(acknowledge="client")
            consumer = await session.consumer(destination, credit=2)
            producer = await connection.producer(destination)
            await send_all(producer, bodies(0, 10))
            assert [each.body for each in await receive_all(consumer, 2)] == bodies(0, 2)
            shown = await connection.ask("destination.pause", destination=destination, consumption=True)
            assert (shown["production_paused"], shown["consumption_paused"]) == (False, True)
            await session.acknowledge(confirm=True)
            assert not producer.is_blocked
            await send_all(producer, bodies(10, 12))
            late = await connection.consumer(destination)
            assert await consumer.receive(timeout=0.1) is None
            await connection.ask("destination.resume", destination=destination)
            takers = [consumer] if destination == "topic:t" else [consumer, late]
            got: list[object] = []

            async def take() -> None:
                for taker in takers:
                    got.extend(each.body for each in await taker.receive_batch(10, timeout=0.05))
                await session.acknowledge()

            while len(got) < 10:
                await take()
            assert set(got) == set(bodies(2, 12))

    play(story())


def test_a_pause_outlives_a_restart_with_and_without_a_snapshot(tmp_path: Path) -> None:
    async def story() -> None:
        for _ in range(2):
            async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
                producer = await connection.producer("queue:a")
                if not (await connection.ask("destination.show", destination="queue:a"))["depth"]:
                    await producer.send_confirmed(b"kept")
                    await connection.ask("destination.pause", destination="queue:a")
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            producer = await connection.producer("queue:a")
            consumer = await connection.consumer("queue:a")
            await until(lambda: producer.is_blocked, "the producer is told as it comes")
            assert await consumer.receive(timeout=0.1) is None
            await connection.ask("destination.resume", destination="queue:a", consumption=True)
            message = await consumer.receive(timeout=30)
            assert message is not None
            assert producer.is_blocked, "only consumers go on"

    play(story())


@pytest.mark.parametrize(
    "arguments",
    [
        {"destination": "topic:_LOG"},
        {"destination": "topic:_ADMIN", "consumption": True},
        {"destination": "queue:_DMQ"},
        {"destination": "queue:_DMQ", "production": True},
    ],
)
def test_the_server_itself_is_not_paused(tmp_path: Path, arguments: dict[str, object]) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            with pytest.raises(HeliographError) as fault:
                await connection.ask("destination.pause", **arguments)
            assert fault.value.code == "name-reserved"
            await connection.ask("destination.pause", destination="queue:_DMQ", consumption=True)

    play(story())


@pytest.mark.slow
@pytest.mark.req("X4")
def test_the_command_line_pauses_and_shows_it(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.run("send", "queue:a", "x")
        pause = ("admin", "destination", "pause", "queue:a", "--consumption")
        assert server.run(*pause).stdout == b"queue:a: consumption paused\n"
        assert b"queue:a (consumption paused)" in server.run("admin", "destination", "show", "queue:a").stdout
        assert b"paused 0" in server.run("top", "--once", "--interval", "0.1").stdout
        assert server.run("receive", "queue:a", "--timeout", "0.2", "--bodies-only").stdout == b""
        resumed = server.run("admin", "destination", "resume", "queue:a")
        assert resumed.stdout == b"queue:a: nothing is paused\n"
        assert server.run("receive", "queue:a", "--timeout", "1.5", "--bodies-only").stdout == b"x\n"
