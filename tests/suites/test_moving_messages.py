"""An administrator moves and deletes messages of a queue whose consumption is paused (U8)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import heliograph
from heliograph import HeliographError
from heliograph.client import Connection, Message
from heliograph.model.limits import MIB
from tests.servers import ServerProcess, embedded, play, url_of
from tests.suites.exchange import receive_all, send_all
from tests.suites.test_command_line import serving

pytestmark = pytest.mark.req("U8")
RED = "colour = 'red'"


def bodies(numbers: range) -> list[bytes]:
    return [b"%d" % n for n in numbers]


async def fill(connection: Connection, destination: str, count: int, **options: Any) -> list[str]:
    """Every second one is red. Returns their ids."""
    producer = await connection.producer(destination, **options)
    return [
        await producer.send_confirmed(b"%d" % n, properties={"colour": "red" if n % 2 else "blue"})
        for n in range(count)
    ]


async def pause(connection: Connection, destination: str) -> None:
    await connection.ask("destination.pause", destination=destination, consumption=True)


async def all_of(connection: Connection, destination: str, count: int) -> list[Message]:
    """What is there, when it is resumed."""
    await connection.ask("destination.resume", destination=destination)
    consumer = await connection.consumer(destination)
    messages = await receive_all(consumer, count)
    assert await consumer.receive(timeout=0.1) is None
    return messages


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("restart", [True, False])
def test_moved_messages_keep_their_ids_and_their_order_behind_what_is_there(
    tmp_path: Path, restart: bool, persistent: bool
) -> None:
    async def story() -> None:
        if restart and not persistent:
            return  # nothing would be left of the story
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            ids = await fill(connection, "queue:a", 20, persistent=persistent)
            await fill(connection, "queue:b", 3, persistent=persistent)
            await pause(connection, "queue:a")
            moved = await connection.ask("message.move", destination="queue:a", target="queue:b", filter=RED)
            assert moved == {"destination": "queue:a", "target": "queue:b", "messages": 10}
            if not restart:
                await check(connection, ids)
        if restart:
            async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
                await check(connection, ids)

    async def check(connection: Connection, ids: list[str]) -> None:
        there = await all_of(connection, "queue:b", 13)
        assert [each.body for each in there] == bodies(range(3)) + bodies(range(1, 20, 2))
        assert [each.id for each in there[3:]] == ids[1::2]
        assert all(each.properties["colour"] == "red" for each in there[3:])
        assert [each.body for each in await all_of(connection, "queue:a", 10)] == bodies(range(0, 20, 2))

    play(story())


def test_messages_can_be_moved_back_and_a_lane_goes_on_where_it_was(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            ServerProcess(tmp_path) as server,
            heliograph.connect(server.url, reconnect_seconds=30) as connection,
        ):
            producer = await connection.producer("queue:a")
            await connection.producer("queue:b")
            await send_all(producer, bodies(range(10)))
            for destination, target in (("queue:a", "queue:b"), ("queue:b", "queue:a")):
                await pause(connection, destination)
                await connection.ask("message.move", destination=destination, target=target, limit=4)
            await connection.ask("message.move", destination="queue:a", target="queue:b", limit=2)
            await server.kill()
            await server.start()
            await producer.send_confirmed(b"behind the crash")
            assert [each.body for each in await all_of(connection, "queue:b", 2)] == bodies(range(4, 6))
            there = [each.body for each in await all_of(connection, "queue:a", 9)]
            assert there == [*bodies(range(6, 10)), *bodies(range(4)), b"behind the crash"]

    play(story())


def test_deleted_messages_are_gone_and_the_others_keep_their_places(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            await fill(connection, "queue:a", 10)
            await pause(connection, "queue:a")
            gone = await connection.ask("message.delete", destination="queue:a", filter=RED, limit=3)
            assert gone == {"destination": "queue:a", "messages": 3}
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            there = await all_of(connection, "queue:a", 7)
            assert [each.body for each in there] == [b"0", b"2", b"4", b"6", b"7", b"8", b"9"]

    play(story())


@pytest.mark.req("U1")
@pytest.mark.parametrize("sort_keys", ["", "JMSPriority desc"])
def test_what_is_behind_others_of_its_unit_is_moved_and_deleted_too_and_the_unit_goes_on(
    tmp_path: Path, sort_keys: str
) -> None:
    """A unit with one message in a consumer's hands; an administrator takes out one in the middle."""

    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            await connection.ask("destination.create", destination="queue:a", policy={"sort_keys": sort_keys})
            producer = await connection.producer("queue:a", unit_of_order="ann")
            for step in range(6):
                await producer.send_confirmed(b"%d" % step, properties={"step": step}, priority=step)
            session = await connection.session(acknowledge="individual")
            consumer = await session.consumer("queue:a", credit=1)
            [first] = await receive_all(consumer, 1)
            await connection.producer("queue:b")
            await pause(connection, "queue:a")
            ask = connection.ask
            assert (await ask("message.delete", destination="queue:a", filter="step = 2"))["messages"] == 1
            moved = await ask("message.move", destination="queue:a", target="queue:b", filter="step > 3")
            assert moved["messages"] == 2
            await ask("destination.resume", destination="queue:a")
            other = await connection.consumer("queue:a")
            assert await other.receive(timeout=0.1) is None, "the first is not completed"
            assert first.body == b"0"
            await first.acknowledge()
            await consumer.close()
            assert [each.body for each in await receive_all(other, 2)] == [b"1", b"3"]
            there = await all_of(connection, "queue:b", 2)
            assert [(each.body, each.unit_of_order) for each in there] == [(b"4", "ann"), (b"5", "ann")]

    play(story())


@pytest.mark.slow
def test_a_backlog_that_does_not_fit_memory_is_moved_beside_other_work(tmp_path: Path) -> None:
    async def story() -> None:
        settings = {"memory.resident_bytes": 1 * MIB}
        async with embedded(tmp_path, settings) as server, heliograph.connect(url_of(server)) as connection:
            producer = await connection.producer("queue:a")
            for n in range(20_000):
                await producer.send(b"%05d" % n + bytes(500), properties={"third": n % 3 == 0})
            await producer.flush()
            await connection.producer("queue:b")
            await pause(connection, "queue:a")
            moving = asyncio.create_task(
                connection.ask("message.move", destination="queue:a", target="queue:b", filter="third = TRUE")
            )
            await send_all(producer, [b"late"] * 10)
            assert (await moving)["messages"] == 6667
            there = await all_of(connection, "queue:b", 6667)
            assert [bytes(each.body)[:5] for each in there] == [  # type: ignore[arg-type]
                b"%05d" % n for n in range(0, 20_000, 3)
            ]
            shown = await connection.ask("destination.show", destination="queue:a")
            assert shown["depth"] == 20_000 - 6667 + 10

    play(story())


@pytest.mark.slow
def test_whoever_resumes_the_queue_ends_a_move_and_one_is_made_at_a_time(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            await send_all(await connection.producer("queue:a"), bodies(range(50_000)))
            await connection.producer("queue:b")
            await pause(connection, "queue:a")
            move = {"destination": "queue:a", "target": "queue:b"}
            moving = asyncio.create_task(connection.ask("message.move", **move))
            await asyncio.sleep(0)  # it is asked before the next
            with pytest.raises(HeliographError) as second:
                await connection.ask("message.delete", destination="queue:a")
            assert second.value.code == "destination-in-use"
            await connection.ask("destination.resume", destination="queue:a")
            with pytest.raises(HeliographError, match="messages were through by then") as ended:
                await moving
            assert ended.value.code == "destination-not-paused"
            depths = [
                (await connection.ask("destination.show", destination=each))["depth"]
                for each in ("queue:a", "queue:b")
            ]
            assert sum(depths) == 50_000
            assert all(depths)
            await pause(connection, "queue:a")
            assert (await connection.ask("message.move", **move))["messages"] == depths[0], "it goes on"

    play(story())


def test_what_consumers_have_and_what_waits_for_its_time_stays(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            session = await connection.session(acknowledge="client")
            consumer = await session.consumer("queue:a", credit=2)
            await fill(connection, "queue:a", 5)
            held = await receive_all(consumer, 2)
            await connection.producer("queue:b")
            await pause(connection, "queue:a")
            moved = await connection.ask("message.move", destination="queue:a", target="queue:b")
            assert moved["messages"] == 3
            await session.acknowledge(confirm=True)
            assert [each.body for each in held] == bodies(range(2))
            assert (await connection.ask("destination.show", destination="queue:a"))["depth"] == 0

    play(story())


def test_a_large_message_is_moved_with_its_content(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            producer = await connection.producer("queue:a")
            content = bytes(range(256)) * 8192
            await producer.send_stream(content)
            await connection.producer("queue:b")
            await pause(connection, "queue:a")
            await connection.ask("message.move", destination="queue:a", target="queue:b")
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            consumer = await connection.consumer("queue:b")
            message = await consumer.receive(timeout=30)
            assert message is not None
            async with message.open() as stream:
                assert await stream.read() == content

    play(story())


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"destination": "queue:a", "target": "queue:b"}, "destination-not-paused"),
        ({"destination": "queue:p", "target": "queue:p"}, "argument-invalid"),
        ({"destination": "queue:p", "target": "queue:none"}, "destination-unknown"),
        ({"destination": "queue:p", "target": "topic:t"}, "not-a-queue"),
        ({"destination": "topic:t", "target": "queue:b"}, "not-a-queue"),
        ({"destination": "queue:p", "target": "queue:_DMQ"}, "name-reserved"),
        ({"destination": "queue:p", "target": "queue:b", "filter": "colour ="}, "selector-invalid"),
        ({"destination": "queue:p", "target": "queue:b", "limit": -1}, "argument-invalid"),
    ],
)
def test_what_cannot_be_is_refused_with_a_code(tmp_path: Path, arguments: dict[str, Any], code: str) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            for destination in ("queue:a", "queue:b", "queue:p", "topic:t"):
                await connection.ask("destination.create", destination=destination)
            await pause(connection, "queue:p")
            with pytest.raises(HeliographError) as fault:
                await connection.ask("message.move", **arguments)
            assert fault.value.code == code

    play(story())


@pytest.mark.slow
@pytest.mark.req("X4")
def test_the_command_line_moves_and_deletes(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.run("send", "queue:a", "one", "-p", "colour=red")
        server.run("send", "queue:a", "two")
        server.run("send", "queue:b", "zero")
        refused = server.run("admin", "message", "move", "queue:a", "queue:b", "--filter", RED, code=2)
        assert b"[destination-not-paused]" in refused.stderr
        server.run("admin", "destination", "pause", "queue:a", "--consumption")
        moved = server.run("admin", "message", "move", "queue:a", "queue:b", "--filter", RED)
        assert moved.stdout == b"1 message moved from queue:a to queue:b\n"
        deleted = server.run("admin", "message", "delete", "queue:a", "--limit", "5")
        assert deleted.stdout == b"1 message deleted from queue:a\n"
        received = server.run("receive", "queue:b", "--bodies-only", "--timeout", "1.5")
        assert received.stdout == b"zero\none\n"
