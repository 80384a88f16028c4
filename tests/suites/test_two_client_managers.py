"""Clients that go from one client manager to another (M8): two of them in one process, with one message manager."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import heliograph
from heliograph.model.ids import IdIssuer
from heliograph.nodes.client_manager import ClientManager
from heliograph.nodes.connection import Connection
from tests.servers import embedded, play, until
from tests.suites.test_moving_sessions import send, shown, taken

pytestmark = pytest.mark.req("M8")

# Requests on the bus are numbered by client managers; these two must not use the same numbers.
_APART = 1 << 40


class Manager:
    """A client manager and where it listens."""

    def __init__(self, manager: ClientManager, address: tuple[str, int]) -> None:
        self.manager = manager
        self.address = address

    @property
    def place(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    def crash(self) -> None:
        """Its connections end, and nobody on the bus hears of it."""
        manager = self.manager
        manager.closed = lambda _connection: None  # type: ignore[method-assign, assignment]
        manager._is_draining = True  # nobody gets in any more
        for connection in list(manager.connections):
            assert connection._transport is not None
            connection._transport.abort()

    def stop(self) -> None:
        """In good order, and there is no other yet to which it could ask its clients to go."""
        self.manager._is_draining = True  # nobody gets in any more
        self.manager.stop()


@asynccontextmanager
async def two(folder: Path, **settings: object) -> AsyncIterator[tuple[Manager, Manager]]:
    named = {name.replace("__", "."): value for name, value in settings.items()}
    async with embedded(folder, named) as server:
        first = server._clients
        assert first is not None
        second = ClientManager(
            server.configuration,
            bus=first._bus,
            tick=first.tick,
            issuer=IdIssuer(site=1, node=2, started_ms=1),
            access=first._access,
            users=None,
        )
        second._last_request = _APART
        second.start()
        loop = asyncio.get_running_loop()
        listening = await loop.create_server(lambda: Connection(second), "127.0.0.1", 0)
        try:
            yield (
                Manager(first, server.address),
                Manager(second, listening.sockets[0].getsockname()[:2]),
            )
        finally:
            listening.close()
            second.stop()


async def where_is(
    connection: heliograph.Connection, one: Manager, other: Manager
) -> tuple[Manager, Manager]:
    """The manager that a client is connected to, and the other."""
    wire = await connection._link.ready()
    return (one, other) if wire.name == one.place else (other, one)


MODES: list[Any] = ["auto", "client", "individual", "dups-ok"]


@pytest.mark.parametrize("how", ["drained", "stopped", "crashed"])
@pytest.mark.parametrize("mode", MODES)
def test_a_client_goes_from_one_client_manager_to_the_other_with_all_it_has(
    tmp_path: Path, mode: Any, how: str
) -> None:
    async def story() -> None:
        async with two(tmp_path) as (one, other):
            url = f"helio://{one.place},{other.place}"
            await send(f"helio://{one.place}", "queue:a", *[b"%d" % n for n in range(10)])
            async with heliograph.connect(url, client_id="till") as connection:
                session = await connection.session(acknowledge=mode)
                queue = await session.consumer("queue:a")
                topic = await session.consumer("topic:t")
                durable = await session.consumer("topic:t", durable="d")
                messages = await taken(queue, 4)
                here, there = await where_is(connection, one, other)
                if how == "drained":
                    assert await here.manager.drain(10)
                elif how == "stopped":
                    here.stop()
                else:
                    here.crash()
                await send(f"helio://{there.place}", "topic:t", b"news")
                messages += await taken(queue, 6)
                assert shown(messages) == [(b"%d" % n, False) for n in range(10)]
                for subscriber in (topic, durable):
                    assert shown(await taken(subscriber, 1)) == [(b"news", False)]
                assert await where_is(connection, one, other) == (there, here)
                for message in messages if mode == "individual" else ():
                    await message.acknowledge(confirm=True)
                if mode == "client":
                    await session.acknowledge(confirm=True)
            async with heliograph.connect(f"helio://{there.place}") as connection:
                left = (await connection.ask("destination.show", destination="queue:a"))["in_flight"]
                assert left == 0

    play(story())


@pytest.mark.req("J5")
def test_a_client_that_is_asked_to_move_commits_first(tmp_path: Path) -> None:
    async def story() -> None:
        async with two(tmp_path) as (one, other):
            await send(f"helio://{one.place}", "queue:a", b"1", b"2")
            async with heliograph.connect(f"helio://{one.place},{other.place}") as connection:
                session = await connection.session(acknowledge="transacted")
                consumer = await session.consumer("queue:a")
                producer = await session.producer("queue:b")
                [message] = await taken(consumer, 1)
                here, there = await where_is(connection, one, other)
                draining = asyncio.create_task(here.manager.drain(10))
                await asyncio.sleep(0)
                await producer.send(message.body)
                await session.commit()
                assert await draining
                assert shown(await taken(consumer, 1)) == [(b"2", False)]
                assert await where_is(connection, one, other) == (there, here)
                await session.commit()

    play(story())


@pytest.mark.req("J5", "M9")
def test_a_transaction_that_begins_while_its_client_moves_is_not_lost(tmp_path: Path) -> None:
    """The connection is closed, and whoever sends in that moment does not know it yet."""

    async def story() -> None:
        async with (
            two(tmp_path) as (one, other),
            heliograph.connect(f"helio://{one.place},{other.place}") as connection,
        ):
            session = await connection.session(acknowledge="transacted")
            producer = await session.producer("queue:b")
            here, there = await where_is(connection, one, other)
            wire = connection._link.wire
            assert wire is not None
            assert wire._transport is not None
            draining = asyncio.create_task(here.manager.drain(10))
            while not wire._transport.is_closing():
                await asyncio.sleep(0)
            await producer.send(b"1")
            await session.commit()
            assert await draining
            assert await where_is(connection, one, other) == (there, here)

    play(story())


def test_a_late_word_of_the_former_client_manager_says_nothing(tmp_path: Path) -> None:
    """The client is at another manager before the first has seen that its connection is dead."""

    async def story() -> None:
        async with two(tmp_path) as (one, other):
            url = f"helio://{one.place},{other.place}"
            await send(f"helio://{one.place}", "queue:a", b"1", b"2")
            async with heliograph.connect(url) as connection:
                consumer = await connection.consumer("queue:a")
                await taken(consumer, 1)
                here, there = await where_is(connection, one, other)
                late: list[Connection] = []
                closed = here.manager.closed
                here.manager.closed = late.append  # type: ignore[method-assign, assignment]
                here.manager._is_draining = True
                wire = connection._link.wire
                for each in list(here.manager.connections):
                    assert each._transport is not None
                    each._transport.abort()
                await until(lambda: connection._link.wire not in (None, wire), "it is at the other")
                assert late
                for each in late:
                    closed(each)
                await send(f"helio://{there.place}", "queue:a", b"3")
                assert shown(await taken(consumer, 2)) == [(b"2", False), (b"3", False)]

    play(story())
