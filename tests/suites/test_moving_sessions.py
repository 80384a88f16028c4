"""Sessions that move (M8): a client whose connection breaks goes on with what it had, and shows nothing of it."""

from __future__ import annotations

import asyncio
import random
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import heliograph
from heliograph.model.errors import ConnectionLost, TransactionRolledBack
from heliograph.model.limits import CLOSE_RECONNECT_SECONDS
from heliograph.nodes.embedded import EmbeddedServer
from tests.servers import embedded, play, until, url_of
from tests.suites.cutting_proxy import CuttingProxy, cutting
from tests.suites.moving import (
    MODES,
    UNITS,
    Board,
    Copier,
    Worker,
    in_order,
    in_units,
    produce,
    subscribe,
    take_each,
)

pytestmark = pytest.mark.req("M8")

# So much of a connection that a server has answered, and not so much that a session is there again.
WELCOME_BYTES = 450
_CUTS_AT_LEAST = 200
PATIENT = {"sessions.reconnect_seconds": 60}


async def send(url: str, destination: str, *bodies: bytes, **options: Any) -> None:
    async with heliograph.connect(url) as connection:
        producer = await connection.producer(destination)
        for body in bodies:
            await producer.send(body, **options)


async def taken(consumer: heliograph.Consumer, count: int) -> list[heliograph.Message]:
    messages = [await consumer.receive(timeout=30) for _ in range(count)]
    assert all(message is not None for message in messages), messages
    return [message for message in messages if message is not None]


def shown(messages: list[heliograph.Message]) -> list[tuple[Any, bool]]:
    return [(message.body, message.redelivered) for message in messages]


async def cut_and_back(proxy: CuttingProxy, connection: heliograph.Connection) -> None:
    """The connection breaks, and the client has another."""
    former = connection._link.wire
    proxy.cut()
    await until(lambda: connection._link.wire not in (None, former), "the client is back")


async def cut_and_gone(proxy: CuttingProxy, connection: heliograph.Connection) -> tuple[str, int]:
    """The connection breaks, and there is no server until the proxy has its target again, which is returned: a client
    that found one at once would be back before anybody has seen it gone."""
    target, proxy.target = proxy.target, ("127.0.0.1", 9)
    proxy.cut()
    await until(lambda: connection._link.wire is None, "the connection is gone")
    return target


async def figures(server: EmbeddedServer, destination: str) -> dict[str, Any]:
    async with heliograph.connect(url_of(server)) as connection:
        listed = (await connection.ask("destinations"))["destinations"]
    [found] = [each for each in listed if each["address"] == destination]
    return dict(found)


# ---- under fire


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.req("J4", "J5", "J6", "U1", "J12")
@pytest.mark.parametrize(
    ("seed", "count"), [(1, 150), *(pytest.param(seed, 400, marks=pytest.mark.nightly) for seed in (1, 2))]
)
def test_connections_cut_at_any_byte_show_nothing(tmp_path: Path, seed: int, count: int) -> None:
    play(_under_fire(tmp_path, seed, count=count), seconds=240)


def _few_bytes(chance: random.Random) -> int:
    """Some connections end before the client has its sessions back, most a little later."""
    if chance.random() < 0.3:
        return chance.randrange(1, 800)
    return 700 + int(chance.lognormvariate(6.8, 1.0))


def _cut_more(proxy: CuttingProxy, count: int, sent: int) -> None:
    """Where the machine is busy, few and large packets are carried: then connections are cut without regard to
    how much they carried, so that the fire is as heavy everywhere."""
    if proxy.cuts < _CUTS_AT_LEAST * (sent + 1) / count:
        proxy.cut()


async def _under_fire(folder: Path, seed: int, count: int) -> None:
    chance = random.Random(seed)
    async with (
        embedded(folder, PATIENT) as server,
        cutting(server.address) as proxy,
        cutting(server.address) as wide,
    ):
        url = proxy.url
        boards = {mode: Board(count) for mode in (*MODES, "units")}
        workers = [Worker(f"{mode} {which}", count) for mode in MODES for which in (1, 2)]
        alone, boards["alone"] = Worker("alone", count), Board(count)
        hands: dict[str, str] = {}
        ordered = [Worker(f"units {which}", count) for which in (1, 2, 3)]
        subscribers = [Worker("durable", count), Worker("listening", count)]
        copier = Copier(count)
        there: list[None] = []
        async with asyncio.TaskGroup() as group:
            for worker in workers:
                mode = worker.name.split()[0]
                group.create_task(take_each(url, mode, worker, boards[mode], f"queue:{mode}"))
            group.create_task(take_each(url, "auto", alone, boards["alone"], "queue:alone"))
            for worker in ordered:
                group.create_task(in_units(url, worker, boards["units"], hands, "queue:units"))
            for worker, durable in zip(subscribers, ("d", None), strict=True):
                here = lambda: there.append(None)  # noqa: E731 - a name for a bell
                group.create_task(subscribe(url, worker, "topic:news", ready=here, durable=durable))
            group.create_task(copier.run(url, "queue:source", "queue:target"))
            await until(lambda: len(there) == 2, "the subscribers are there")
            proxy.carries = lambda: _few_bytes(chance)
            proxy.cut()
            # What a producer has not had confirmed must fit, or it would never get anywhere.
            wide.carries = lambda: int(chance.lognormvariate(9.5, 1.0))
            queues = [f"queue:{mode}" for mode in (*MODES, "alone")]
            everything = [*queues, "queue:units", "queue:source", "topic:news"]
            await produce(wide.url, everything, count, at_each=partial(_cut_more, proxy, count))
        proxy.carries = None
        proxy.cut()
        everybody = [*workers, alone, *ordered, *subscribers]
        print(f"{proxy.cuts} + {wide.cuts} cuts, {copier.rolled_back} transactions rolled back")
        assert [fault for worker in everybody for fault in worker.faults] + copier.faults == []
        expected = [f"{number:05d}" for number in range(count)]
        for mode, board in boards.items():
            assert sorted(board.seen) == expected, mode
        for worker in ordered:
            for unit in range(UNITS):
                assert in_order([body for body in worker.bodies if int(body) % UNITS == unit]), worker.name
        assert [worker.bodies for worker in (alone, *subscribers)] == [expected] * 3
        async with heliograph.connect(url_of(server)) as connection:
            copies = [message.text async for message in await connection.browse("queue:target")]
        assert sorted(copies) == expected, "each was copied once"
        for address in (*queues, "queue:units", "queue:source"):
            left = await figures(server, address)
            assert (left["depth"], left["in_flight"]) == (0, 0), address
        assert proxy.cuts > _CUTS_AT_LEAST
        assert wide.cuts > 0


# ---- what an application sees


@pytest.mark.parametrize("mode", ["auto", "client", "individual", "dups-ok"])
def test_a_consumer_goes_on_with_what_it_had(tmp_path: Path, mode: Any) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, cutting(server.address) as proxy:
            await send(url_of(server), "queue:a", *[b"%d" % n for n in range(10)])
            async with heliograph.connect(proxy.url) as connection:
                session = await connection.session(acknowledge=mode)
                consumer = await session.consumer("queue:a", credit=10)
                messages = await taken(consumer, 3)
                await cut_and_back(proxy, connection)
                if mode == "individual":
                    for message in messages:
                        await message.acknowledge()
                messages += await taken(consumer, 3)
                await cut_and_back(proxy, connection)
                messages += await taken(consumer, 4)
                assert shown(messages) == [(b"%d" % n, False) for n in range(10)]
                if mode == "individual":
                    for message in messages[3:]:
                        await message.acknowledge(confirm=True)
                elif mode == "client":
                    await session.acknowledge(confirm=True)
            left = await figures(server, "queue:a")
            assert (left["depth"], left["in_flight"], left["settled"]) == (0, 0, 10)

    play(story())


@pytest.mark.req("J4")
@pytest.mark.parametrize("mode", ["client", "individual"])
def test_an_acknowledgement_made_while_there_is_no_server_is_confirmed_by_the_next(
    tmp_path: Path, mode: Any
) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, cutting(server.address) as proxy:
            await send(url_of(server), "queue:a", b"1", b"2")
            async with heliograph.connect(proxy.url) as connection:
                session = await connection.session(acknowledge=mode)
                consumer = await session.consumer("queue:a")
                [message] = await taken(consumer, 1)
                target = await cut_and_gone(proxy, connection)
                acknowledging = asyncio.create_task(message.acknowledge(confirm=True))
                await asyncio.sleep(0)
                proxy.target = target
                await acknowledging
                assert shown(await taken(consumer, 1)) == [(b"2", False)]
            left = await figures(server, "queue:a")
            assert (left["settled"], left["depth"], left["in_flight"]) == (1, 1, 0)

    play(story())


def test_who_closes_while_connections_keep_breaking_still_says_what_is_done(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path, PATIENT) as server, cutting(server.address) as proxy:
            await send(url_of(server), "queue:a", b"1", b"2")
            async with heliograph.connect(proxy.url) as connection:
                session = await connection.session(acknowledge="individual")
                consumer = await session.consumer("queue:a")
                [message] = await taken(consumer, 1)
                proxy.carries = lambda: WELCOME_BYTES
                target = await cut_and_gone(proxy, connection)
                await message.acknowledge()
                proxy.target = target
                closing = asyncio.create_task(session.close())
                await asyncio.sleep(CLOSE_RECONNECT_SECONDS + 1)
                assert proxy.cuts > 2, "servers were reached, and no session was"
                assert not closing.done()
                proxy.carries = None
                await asyncio.wait_for(closing, 15)
            left = await figures(server, "queue:a")
            assert (left["settled"], left["depth"], left["in_flight"]) == (1, 1, 0)

    play(story())


def test_who_closes_while_there_is_no_server_does_not_wait_long(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path, PATIENT) as server, cutting(server.address) as proxy:
            await send(url_of(server), "queue:a", b"1")
            async with heliograph.connect(proxy.url, reconnect_seconds=300) as connection:
                session = await connection.session(acknowledge="individual")
                [message] = await taken(await session.consumer("queue:a"), 1)
                proxy.target = ("127.0.0.1", 9)
                proxy.cut()
                await until(lambda: connection._link.wire is None, "the connection is gone")
                await message.acknowledge()
                began = time.monotonic()
                await session.close()
                assert time.monotonic() - began < CLOSE_RECONNECT_SECONDS + 20, "and not for five minutes"

    play(story())


def test_nobody_else_gets_what_a_client_has_that_is_away(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path, PATIENT) as server, cutting(server.address) as proxy:
            url = url_of(server)
            await send(url, "queue:a", b"1", b"2")
            async with heliograph.connect(proxy.url) as away, heliograph.connect(url) as here:
                first = await away.consumer("queue:a")
                assert shown(await taken(first, 1)) == [(b"1", False)]
                second = await here.consumer("queue:a")
                target, proxy.target = proxy.target, ("127.0.0.1", 9)
                proxy.cut()
                await send(url, "queue:a", b"3")
                assert shown(await taken(second, 1)) == [(b"3", False)]
                assert await second.receive(timeout=0.3) is None
                assert (await figures(server, "queue:a"))["in_flight"] >= 2
                proxy.target = target
                assert shown(await taken(first, 1)) == [(b"2", False)]

    play(story())


def test_when_its_lease_has_passed_others_get_it_marked_and_a_late_acknowledgement_says_so(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        settings = {"sessions.reconnect_seconds": 0.1}
        async with embedded(tmp_path, settings) as server, cutting(server.address) as proxy:
            url = url_of(server)
            await send(url, "queue:a", b"1")
            async with heliograph.connect(proxy.url) as away, heliograph.connect(url) as here:
                session = await away.session(acknowledge="individual")
                first = await session.consumer("queue:a")
                [message] = await taken(first, 1)
                target, proxy.target = proxy.target, ("127.0.0.1", 9)
                proxy.cut()
                second = await here.consumer("queue:a")
                assert shown(await taken(second, 1)) == [(b"1", True)]
                proxy.target = target
                with pytest.raises(ConnectionLost) as late:
                    await message.acknowledge(confirm=True)
                assert late.value.code == "acknowledgement-unknown"
                await send(url, "queue:a", b"2")
                await second.close()
                assert [message.body for message in await taken(first, 1)] == [b"2"]

    play(story())


def test_a_client_that_leaves_on_purpose_has_no_lease(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path, PATIENT) as server:
            url = url_of(server)
            await send(url, "queue:a", b"1", b"2")
            leaving = await heliograph.connect(url, reconnect_seconds=0)
            session = await leaving.session(acknowledge="individual")
            await taken(await session.consumer("queue:a"), 1)
            wire = leaving._link.wire
            assert wire is not None
            await wire.close()  # goodbye, and not a word about its session
            async with heliograph.connect(url) as here:
                began = time.monotonic()
                assert shown(await taken(await here.consumer("queue:a"), 2)) == [(b"1", True), (b"2", True)]
                assert time.monotonic() - began < 30, "its lease is a minute"
            await leaving.close()

    play(story())


@pytest.mark.req("J5")
def test_what_the_consumers_of_a_session_had_goes_back_as_one(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path, {"sessions.reconnect_seconds": 0.0}) as server:
            lost = await heliograph.connect(url_of(server), reconnect_seconds=0)
            session = await lost.session(acknowledge="client")
            consumers = [await session.consumer("queue:orders", credit=credit) for credit in (2, 2, 100)]
            await send(url_of(server), "queue:orders", *[b"%d" % number for number in range(6)])
            for consumer in reversed(consumers):
                await taken(consumer, 2)
            async with heliograph.connect(url_of(server)) as connection:
                other = await connection.consumer("queue:orders")
                wire = lost._link.wire
                assert wire is not None
                assert wire._transport is not None
                wire._transport.abort()
                got = await taken(other, 6)
                assert shown(got) == [(b"%d" % number, True) for number in range(6)]
                assert [message.delivery_count for message in got] == [2] * 6, "nobody had it in between"

    play(story())


def test_an_open_transaction_is_rolled_back_and_only_what_was_seen_comes_marked(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, cutting(server.address) as proxy:
            await send(url_of(server), "queue:a", b"1", b"2", b"3")
            async with heliograph.connect(proxy.url) as connection:
                session = await connection.session(acknowledge="transacted")
                consumer = await session.consumer("queue:a")
                producer = await session.producer("queue:b")
                await taken(consumer, 2)
                await producer.send(b"lost")
                await cut_and_back(proxy, connection)
                with pytest.raises(TransactionRolledBack):
                    await session.commit()
                again = await taken(consumer, 3)
                assert shown(again) == [(b"1", True), (b"2", True), (b"3", False)]
                await session.commit()
            assert (await figures(server, "queue:a"))["settled"] == 3
            assert (await figures(server, "queue:b"))["depth"] == 0

    play(story())


@pytest.mark.req("J6")
def test_a_subscriber_that_is_away_misses_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path, PATIENT) as server, cutting(server.address) as proxy:
            url = url_of(server)
            async with heliograph.connect(proxy.url, client_id="till") as connection:
                durable = await connection.consumer("topic:t", durable="d")
                other = await connection.consumer("topic:t")
                await send(url, "topic:t", b"1", b"2")
                for consumer in (durable, other):
                    assert shown(await taken(consumer, 1)) == [(b"1", False)]
                target, proxy.target = proxy.target, ("127.0.0.1", 9)
                proxy.cut()
                await send(url, "topic:t", b"3")
                proxy.target = target
                for consumer in (durable, other):
                    assert shown(await taken(consumer, 2)) == [(b"2", False), (b"3", False)]

    play(story())


@pytest.mark.req("J6")
def test_a_durable_subscriber_that_was_killed_takes_its_subscription_over_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path, PATIENT) as server, cutting(server.address) as proxy:
            url = url_of(server)
            killed = await heliograph.connect(proxy.url, client_id="till", reconnect_seconds=0)
            consumer = await killed.consumer("topic:t", durable="d")
            await send(url, "topic:t", b"1", b"2")
            await taken(consumer, 1)
            proxy.cut()
            await until(lambda: not killed.is_alive(), "it is gone")
            began = time.monotonic()
            async with heliograph.connect(url, client_id="till") as again:
                consumer = await again.consumer("topic:t", durable="d")
                assert [message.body for message in await taken(consumer, 2)] == [b"1", b"2"]
            assert time.monotonic() - began < 30, "its lease is a minute"
            await killed.close()

    play(story())


@pytest.mark.req("U1", "U2")
def test_the_units_of_a_client_that_is_away_wait_for_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path, PATIENT) as server, cutting(server.address) as proxy:
            url = url_of(server)
            await send(url, "queue:a", b"1", b"2", unit_of_order="x")
            async with heliograph.connect(proxy.url) as away, heliograph.connect(url) as here:
                session = await away.session(acknowledge="individual")
                first = await session.consumer("queue:a", credit=1)
                [message] = await taken(first, 1)
                target, proxy.target = proxy.target, ("127.0.0.1", 9)
                proxy.cut()
                await until(lambda: away._link.wire is None, "it is away")
                second = await here.consumer("queue:a")
                await send(url, "queue:a", b"other", unit_of_order="y")
                assert shown(await taken(second, 1)) == [(b"other", False)]
                assert await second.receive(timeout=0.3) is None
                proxy.target = target
                await message.acknowledge(confirm=True)
                await session.close()
                assert shown(await taken(second, 1)) == [(b"2", False)]

    play(story())


def test_a_message_given_back_while_there_is_no_server_goes_back(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, cutting(server.address) as proxy:
            await send(url_of(server), "queue:a", b"1", b"2", unit_of_order="x")
            async with heliograph.connect(proxy.url) as connection:
                session = await connection.session(acknowledge="individual")
                consumer = await session.consumer("queue:a")
                [message] = await taken(consumer, 1)
                target = await cut_and_gone(proxy, connection)
                await message.reject("not now")
                proxy.target = target
                assert shown(await taken(consumer, 2)) == [(b"1", True), (b"2", False)]

    play(story())


def test_a_consumer_closed_while_there_is_no_server_gives_back_what_it_never_showed(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path, PATIENT) as server, cutting(server.address) as proxy:
            url = url_of(server)
            await send(url, "queue:a", b"1", b"2", b"3")
            async with heliograph.connect(proxy.url) as connection, heliograph.connect(url) as here:
                consumer = await connection.consumer("queue:a")
                await taken(consumer, 1)
                target = await cut_and_gone(proxy, connection)
                closing = asyncio.create_task(consumer.close())
                await asyncio.sleep(0)
                proxy.target = target
                await closing
                second = await here.consumer("queue:a")
                assert shown(await taken(second, 2)) == [(b"2", False), (b"3", False)]

    play(story())
