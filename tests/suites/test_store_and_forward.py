"""Store and forward (U7): a client that is cut off keeps what it sends, and passes it on, in order and once."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import shutil
import sys
from pathlib import Path

import pytest

import heliograph
from heliograph.client import Connection, Message, connect, link
from heliograph.client.forwarding import forwarder, writer
from heliograph.client.forwarding.files import Record, StoreFiles
from heliograph.client.forwarding.ledger import LedgerReplay
from heliograph.client.forwarding.producer import StoringProducer
from heliograph.client.forwarding.records import RecordKind
from heliograph.client.resending import POSSIBLY_DOUBLED
from heliograph.model.errors import (
    ClientFault,
    ConnectionLost,
    CorruptJournal,
    HeliographError,
    InvalidName,
    NotAuthenticated,
    StorageFull,
    Unavailable,
)
from heliograph.nodes.embedded import EmbeddedServer
from heliograph.nodes.users import UserStore
from tests.servers import CLEAN, ServerProcess, Settings, embedded, play, until, url_of
from tests.suites.cutting_proxy import CuttingProxy, cutting

pytestmark = pytest.mark.req("U7")

QUEUE = "queue:orders"
NOBODY = ("127.0.0.1", 1)
# Long enough for whatever is going to come to come.
NOTHING_SECONDS = 0.3
COMES_SECONDS = 20.0


@pytest.fixture(autouse=True)
def _quick_return(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers come back within the second here; growing pauses would only make the tests longer."""
    monkeypatch.setattr(link, "LONGEST_PAUSE_SECONDS", 0.1)


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%06d" % number for number in range(first, first + count)]


async def send(connection: Connection, bodies: list[bytes], destination: str = QUEUE) -> StoringProducer:
    """They are on the local disk when this returns."""
    producer = await connection.producer(destination)
    assert isinstance(producer, StoringProducer)
    await producer.send_all(bodies)
    return producer


async def left(url: str, destination: str = QUEUE) -> list[Message]:
    """All that is there. It is gone afterwards."""
    async with connect(url) as connection:
        consumer = await connection.consumer(destination)
        shown = await connection.ask("destination.show", destination=destination)
        found: list[Message] = []
        while True:
            # What the server says it has is waited for, and then for what it may have besides.
            has_more = len(found) < shown["depth"] + shown["in_flight"]
            batch = await consumer.receive_batch(
                10_000, timeout=COMES_SECONDS if has_more else NOTHING_SECONDS
            )
            if not batch:
                return found
            found += batch


async def bodies_left(url: str, destination: str = QUEUE) -> list[object]:
    return [message.body for message in await left(url, destination)]


# ---- the server is away


@pytest.mark.slow
def test_a_server_that_is_away_from_the_start_gets_everything_when_it_comes(tmp_path: Path) -> None:
    async def story() -> None:
        server = ServerProcess(tmp_path)
        async with server:
            assert await server.terminate() == 0
            async with connect(server.url, store_and_forward=tmp_path / "store") as connection:
                session = await connection.session(acknowledge="client")
                producer = await session.producer(QUEUE)
                for body in numbered(50):
                    await producer.send(body)
                assert connection.is_alive()
                assert (connection.stored.messages, producer.unconfirmed) == (50, 50)
                assert connection.stored.bytes > 50 * 6
                receiving = asyncio.create_task(session.consumer(QUEUE))  # waits for the server
                await server.start()
                await connection.forwarded()
                assert (connection.stored.messages, connection.stored.bytes) == (0, 0)
                consumer = await receiving
                got = [await consumer.receive(timeout=30) for _ in range(50)]
                assert [message.body for message in got if message] == numbered(50)
                await session.acknowledge()
                assert session.id

    play(story())


def test_what_one_process_stored_the_next_one_forwards(tmp_path: Path) -> None:
    async def story() -> None:
        store = tmp_path / "store"
        for first in (0, 100):
            async with connect("helio://127.0.0.1:1", store_and_forward=store) as connection:
                await send(connection, numbered(100, first))
                assert connection.stored.messages == first + 100
        async with embedded(tmp_path) as server:
            async with connect(url_of(server), store_and_forward=store) as connection:
                await send(connection, numbered(1, 200))
                await connection.forwarded()
            assert await bodies_left(url_of(server)) == numbered(201)
            async with connect(url_of(server), store_and_forward=store) as connection:
                assert connection.stored.messages == 0
            assert await bodies_left(url_of(server)) == []

    play(story())


def test_closing_forwards_what_the_server_takes_and_says_goodbye(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server:
            async with connect(url_of(server), store_and_forward=tmp_path / "store") as connection:
                await send(connection, numbered(1000))
            assert await bodies_left(url_of(server)) == numbered(1000)
            assert not kept_sessions(server), "nothing is left to be recognised"

    play(story())


def test_each_producer_and_session_keeps_its_order(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, cutting(NOBODY) as proxy:
            async with connect(proxy.url, store_and_forward=tmp_path / "store") as connection:

                async def produce(name: int) -> None:
                    session = await connection.session()
                    producers = [await session.producer(queue) for queue in ("queue:a", "queue:b")]
                    for number in range(200):
                        await producers[number % 2].send({"from": name, "number": number})

                producing = [asyncio.create_task(produce(name)) for name in range(5)]
                await until(lambda: connection.stored.messages > 100, "some are stored")
                proxy.target = server.address
                await asyncio.gather(*producing)
                await connection.forwarded()
            for queue, remainder in (("queue:a", 0), ("queue:b", 1)):
                found = [message.body for message in await left(url_of(server), queue)]
                for name in range(5):
                    numbers = [body["number"] for body in found if body["from"] == name]  # type: ignore[index,call-overload]
                    assert numbers == list(range(remainder, 200, 2))

    play(story())


@pytest.mark.slow
def test_connections_cut_at_any_moment_lose_and_double_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        dice = random.Random(7)
        async with embedded(tmp_path) as server, cutting(server.address) as proxy:
            async with connect(proxy.url, store_and_forward=tmp_path / "store") as connection:
                names = ("queue:a", "queue:b", "topic:c")
                watching = await connect(url_of(server), client_id="test")
                topic = await watching.consumer("topic:c", durable="all", credit=100_000)

                async def produce(destination: str) -> None:
                    producer = await connection.producer(destination)
                    for number in range(0, 8000, 8):
                        await producer.send_all(numbered(8, number))  # type: ignore[attr-defined]

                producing = [asyncio.create_task(produce(name)) for name in names]
                while not all(task.done() for task in producing) or connection.stored.messages:
                    await asyncio.sleep(dice.uniform(0.0, 0.06))
                    proxy.cut()
                await asyncio.gather(*producing)
                assert proxy.cuts > 10
            for name in names[:2]:
                assert await bodies_left(url_of(server), name) == numbered(8000)
            got: list[object] = []
            while batch := await topic.receive_batch(
                10_000, timeout=COMES_SECONDS if len(got) < 8000 else NOTHING_SECONDS
            ):
                got += [message.body for message in batch]
            assert got == numbered(8000)
            await watching.close()

    play(story())


@pytest.mark.slow
@pytest.mark.crash
def test_a_server_that_is_killed_and_stopped_under_load_gets_everything_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with ServerProcess(tmp_path) as server:
            async with connect(server.url, store_and_forward=tmp_path / "store") as connection:
                producer = await connection.producer(QUEUE)

                async def produce() -> None:
                    for number in range(0, 20_000, 20):
                        await producer.send_all(numbered(20, number))  # type: ignore[attr-defined]

                producing = asyncio.create_task(produce())
                await until(lambda: producer.unconfirmed, "it began")
                for how in (server.kill, server.terminate, server.kill):
                    await how()
                    await server.start()
                await producing
                await connection.forwarded()
            assert await bodies_left(server.url) == numbered(20_000)

    play(story())


# ---- what the calls mean


def test_send_means_stored_and_the_rest_means_confirmed(tmp_path: Path) -> None:
    async def story() -> None:
        told: list[HeliographError | None] = []
        async with embedded(tmp_path) as server, cutting(NOBODY) as proxy:
            async with connect(proxy.url, store_and_forward=tmp_path / "store") as connection:
                producer = await connection.producer(QUEUE, time_to_live=3600)
                await producer.send("text", on_completion=told.append, properties={"n": 1}, priority=7)
                assert await producer.try_send(b"bytes")
                waiting = [
                    asyncio.create_task(producer.send_confirmed({"a": "map"})),
                    asyncio.create_task(producer.flush()),
                ]
                await until(lambda: connection.stored.messages == 3, "all are stored")
                assert told == []
                assert not any(task.done() for task in waiting)
                proxy.target = server.address
                identity = await waiting[0]
                await waiting[1]
                assert told == [None]
            messages = await left(url_of(server))
            assert [message.body for message in messages] == ["text", b"bytes", {"a": "map"}]
            assert (messages[0].properties, messages[0].priority) == ({"n": 1}, 7)
            assert messages[2].id == identity
            assert all(message.expiration - message.timestamp > 3590 for message in messages)

    play(story())


def test_a_full_store_refuses_with_a_code_and_takes_more_when_there_is_room(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, cutting(NOBODY) as proxy:
            settings = {"store_and_forward": tmp_path / "store", "store_bytes": 3_000_000}
            async with connect(proxy.url, **settings) as connection:  # type: ignore[arg-type]
                producer = await connection.producer(QUEUE)
                sent = 0
                with pytest.raises(StorageFull) as full:  # noqa: PT012 - which of them fails is the point
                    while True:
                        await producer.send(b"%06d" % sent + bytes(100_000))
                        sent += 1
                assert full.value.code == "store-full"
                assert not await producer.try_send(bytes(100_000))
                assert connection.stored.messages == sent > 25
                assert connection.stored.file_bytes <= 3_000_000
                proxy.target = server.address
                await connection.forwarded()
                await until(lambda: connection.stored.file_bytes < 10_000, "the room came back")
                await producer.send(b"%06d" % sent)
                await producer.flush()
            found = await bodies_left(url_of(server))
            assert [body[:6] for body in found] == numbered(sent + 1)  # type: ignore[index]

    play(story())


def test_who_stops_waiting_takes_nothing_from_the_others(tmp_path: Path) -> None:
    async def story() -> None:
        async with connect("helio://127.0.0.1:1", store_and_forward=tmp_path / "store") as connection:
            producer = await connection.producer(QUEUE)
            sending = [asyncio.create_task(producer.send(body)) for body in numbered(10)]
            waiting = asyncio.create_task(connection.forwarded())
            await asyncio.sleep(0)
            for task in (sending[3], waiting):
                task.cancel()
            ends = await asyncio.gather(*sending, return_exceptions=True)
            assert [type(end) for end in ends if end is not None] == [asyncio.CancelledError]
            await until(lambda: connection.stored.messages == 10, "even what was not waited for is stored")

    play(story())


def test_a_message_that_expired_in_the_store_is_not_delivered(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, cutting(NOBODY) as proxy:
            async with connect(proxy.url, store_and_forward=tmp_path / "store") as connection:
                producer = await connection.producer(QUEUE)
                await producer.send(b"milk", time_to_live=0.05)
                await producer.send(b"honey")
                await asyncio.sleep(0.1)  # its time passes
                proxy.target = server.address
                await connection.forwarded()
            assert await bodies_left(url_of(server)) == [b"honey"]

    play(story())


@pytest.mark.parametrize("is_there", [True, False])
def test_what_cannot_be_stored_is_refused_with_a_code(tmp_path: Path, is_there: bool) -> None:
    async def story() -> None:
        async with (
            embedded(tmp_path) as server,
            cutting(server.address if is_there else NOBODY) as proxy,
            connect(proxy.url, store_and_forward=tmp_path / "store") as connection,
        ):
            producer = await connection.producer(QUEUE)
            attempts = (
                lambda: connection.session(acknowledge="transacted"),
                lambda: connection.producer(QUEUE, persistent=False),
                lambda: producer.send(b"", persistent=False),
                lambda: producer.send_stream([b"x"]),
            )
            for attempt in attempts:
                with pytest.raises(ClientFault) as refusal:
                    await attempt()
                assert refusal.value.code == "store-and-forward-unsupported"
            with pytest.raises(InvalidName):
                await connection.producer("queue:")
            with pytest.raises(ClientFault):
                await connection.producer("topic:glob:*")
            assert connection.stored.messages == 0

    play(story())


def test_questions_are_asked_at_once_or_not_at_all(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            embedded(tmp_path) as server,
            connect(url_of(server), store_and_forward=tmp_path / "store") as connection,
        ):
            consumer = await connection.consumer("queue:prices")

            async def answer() -> None:
                question = await consumer.receive(timeout=30)
                assert question is not None
                await question.reply({"price": 12})

            answering = asyncio.create_task(answer())
            reply = await connection.request("queue:prices", "apples", timeout=30)
            assert reply.body == {"price": 12}
            await answering
            assert connection.stored.file_bytes < 1000, "neither was stored"

    play(story())


def test_the_blocking_face_does_the_same(tmp_path: Path) -> None:
    def work(url: str) -> None:
        with heliograph.connect_blocking(url, store_and_forward=tmp_path / "store") as connection:
            producer = connection.producer(QUEUE)
            for body in numbered(20):
                producer.send(body)
            producer.send_all(numbered(80, 20))  # type: ignore[attr-defined]
            assert connection.stored.messages <= 100
            assert producer.send_confirmed("last")
            producer.flush()
            connection.forwarded()
            assert connection.stored.messages == 0
            assert connection.discard(QUEUE) == 0

    async def story() -> None:
        async with embedded(tmp_path) as server:
            await asyncio.to_thread(work, url_of(server))
            assert await bodies_left(url_of(server)) == [*numbered(100), "last"]

    play(story())


def test_without_a_store_nothing_is_stored(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, connect(url_of(server)) as connection:
            producer = await connection.producer(QUEUE)
            await producer.send(b"x")
            await producer.flush()
            assert connection.stored == (0, 0, 0, 0, {})
            await connection.forwarded()
            assert await connection.discard(QUEUE) == 0
        with pytest.raises(ConnectionLost):
            await connect("helio://127.0.0.1:1")

    play(story())


# ---- opening a store


def test_a_store_belongs_to_one_connection_at_a_time(tmp_path: Path) -> None:
    async def story() -> None:
        async with connect("helio://127.0.0.1:1", store_and_forward=tmp_path / "store"):
            with pytest.raises(Unavailable) as refusal:
                await connect("helio://127.0.0.1:1", store_and_forward=tmp_path / "store")
            assert refusal.value.code == "store-in-use"
        async with connect("helio://127.0.0.1:1", store_and_forward=tmp_path / "store"):
            pass

    play(story())


def test_a_store_that_cannot_be_used_is_refused_with_a_code(tmp_path: Path) -> None:
    async def story() -> None:
        (tmp_path / "file").write_text("I am no folder")
        with pytest.raises(Unavailable) as refusal:
            await connect("helio://127.0.0.1:1", store_and_forward=tmp_path / "file")
        assert refusal.value.code == "store-unusable"

    play(story())


def test_a_damaged_store_is_refused_with_the_place(tmp_path: Path) -> None:
    async def story() -> None:
        store = tmp_path / "store"
        async with connect("helio://127.0.0.1:1", store_and_forward=store) as connection:
            producer = await send(connection, numbered(10))
            await producer.send_all(numbered(10, 10))
        [segment] = store.glob("*.store")
        content = bytearray(segment.read_bytes())
        place = content.index(b"000005")
        content[place] ^= 1
        segment.write_bytes(content)
        with pytest.raises(CorruptJournal) as refusal:
            await connect("helio://127.0.0.1:1", store_and_forward=store)
        assert refusal.value.path == str(segment)
        assert 0 < refusal.value.position < place
        content[place] ^= 1
        segment.write_bytes(content)
        async with connect("helio://127.0.0.1:1", store_and_forward=store) as connection:
            assert connection.stored.messages == 20

    play(story())


def test_a_server_that_refuses_the_user_is_an_error_and_the_store_is_free_again(tmp_path: Path) -> None:
    async def story() -> None:
        UserStore.load(tmp_path / "data" / "users.toml").add("ann", "secret", ["admin"])
        async with embedded(tmp_path) as server:
            for _ in range(2):
                with pytest.raises(NotAuthenticated):
                    await connect(
                        url_of(server), user="ann", password="wrong", store_and_forward=tmp_path / "s"
                    )
            known = {"user": "ann", "password": "secret", "store_and_forward": tmp_path / "s"}
            async with connect(url_of(server), **known) as connection:  # type: ignore[arg-type]
                await send(connection, [b"x"])
                await connection.forwarded()

    play(story())


def test_a_client_that_gives_up_keeps_what_it_stored(tmp_path: Path) -> None:
    async def story() -> None:
        heard: list[HeliographError] = []
        store = tmp_path / "store"
        async with connect(
            "helio://127.0.0.1:1", store_and_forward=store, reconnect_seconds=0.3, on_error=heard.append
        ) as connection:
            producer = await send(connection, numbered(10))
            with pytest.raises(ConnectionLost):
                await producer.flush()
            assert not connection.is_alive()
            with pytest.raises(ConnectionLost):
                await producer.send(b"nobody will forward it")
            assert [error.code for error in heard] == ["connection-lost"]
        async with connect("helio://127.0.0.1:1", store_and_forward=store) as connection:
            assert connection.stored.messages == 10

    play(story())


# ---- a server that forgot, and a folder that is older than it should be


def kept_sessions(server: EmbeddedServer) -> list[object]:
    messages = server._messages
    assert messages is not None
    return [session for session in messages.catalogue.sessions.values() if session.kept]


def test_a_client_that_was_cut_off_before_it_was_confirmed_is_recognised(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, cutting(server.address) as proxy:
            await lose_confirmations(proxy, tmp_path / "store")
            async with connect(proxy.url, store_and_forward=tmp_path / "store") as connection:
                await send(connection, numbered(5, 20))
                await connection.forwarded()
            messages = await left(url_of(server))
            assert [message.body for message in messages] == numbered(25)
            assert not any(POSSIBLY_DOUBLED in message.properties for message in messages)

    play(story())


async def lose_confirmations(proxy: CuttingProxy, store: Path) -> None:
    """10 messages are confirmed, 5 reach the server without the client's knowing, 5 are stored and never sent."""
    target = proxy.target
    async with connect(proxy.url, store_and_forward=store) as connection:
        producer = await send(connection, numbered(10))
        await producer.flush()
        proxy.is_deaf = True
        await send(connection, numbered(5, 10))
        await until(lambda: proxy.swallowed > 0, "the server has confirmed them")
        proxy.target = NOBODY
        proxy.cut()
        await until(lambda: connection._link.wire is None, "the client knows")
        await send(connection, numbered(5, 15))
        assert connection.stored.messages == 10
    proxy.is_deaf = False
    proxy.target = target


@pytest.mark.slow
@pytest.mark.parametrize("dies", [False, True])
def test_a_server_that_forgot_gets_what_is_in_doubt_marked_and_nothing_else_twice(
    tmp_path: Path, dies: bool
) -> None:
    """The session is remembered for a second. A client that dies cannot say what was under way."""

    async def story() -> None:
        heard: list[HeliographError] = []
        store = tmp_path / "store"
        settings: Settings = {"sessions.kept_seconds": 1.0}
        async with embedded(tmp_path, settings) as server, cutting(server.address) as proxy:
            await lose_confirmations(proxy, store)
            if dies:
                take_last_words_away(store)
            await until(lambda: not kept_sessions(server), "the server has forgotten")
            async with connect(proxy.url, store_and_forward=store, on_error=heard.append) as connection:
                await send(connection, numbered(5, 20))
                await connection.forwarded()
            messages = await left(url_of(server))
            marked = [message.body for message in messages if message.properties.get(POSSIBLY_DOUBLED)]
            plain = [message.body for message in messages if not message.properties.get(POSSIBLY_DOUBLED)]
            assert [error.code for error in heard] == ["session-lost"]
            if dies:
                assert marked == numbered(10, 10)
                assert plain == [*numbered(15), *numbered(5, 20)]
            else:
                assert marked == numbered(5, 10)
                assert plain == [*numbered(15), *numbered(10, 15)]

    play(story())


def take_last_words_away(store: Path) -> None:
    """As if the process had ended before it could say that it is detached, but with what it stored later."""
    replay = LedgerReplay()
    files = StoreFiles(store)
    files.recover(replay.frame, b"")
    ledger = replay.finish(str(store))
    ledger.attached = True
    files.append([Record(RecordKind.STATE, 0, ledger.state())])
    files.close()


def test_a_new_server_at_the_same_address_gets_what_is_left(tmp_path: Path) -> None:
    async def story() -> None:
        heard: list[HeliographError] = []
        store = tmp_path / "store"
        async with embedded(tmp_path / "one") as server, cutting(server.address) as proxy:
            await lose_confirmations(proxy, store)
            async with embedded(tmp_path / "two") as other:
                proxy.target = other.address
                async with connect(proxy.url, store_and_forward=store, on_error=heard.append) as connection:
                    await connection.forwarded()
                assert await bodies_left(url_of(other)) == numbered(10, 10)
                assert [error.code for error in heard] == ["session-lost"]

    play(story())


def test_a_folder_put_back_from_a_copy_loses_nothing_that_it_is_given(tmp_path: Path) -> None:
    async def story() -> None:
        heard: list[HeliographError] = []
        store, copy = tmp_path / "store", tmp_path / "copy"
        async with embedded(tmp_path) as server, cutting(server.address) as proxy:
            async with connect(proxy.url, store_and_forward=store) as connection:
                await (await send(connection, numbered(5))).flush()
                proxy.target = NOBODY
                proxy.cut()
                await until(lambda: connection._link.wire is None, "the client knows")
                await send(connection, numbered(1, 5))
            shutil.copytree(store, copy)
            proxy.target = server.address
            connection = await connect(proxy.url, store_and_forward=store)
            await (await send(connection, numbered(4, 6))).flush()
            proxy.target = NOBODY
            await connection._link.close()  # no goodbye: the session stays
            await connection.close()
            proxy.target = server.address
            async with connect(proxy.url, store_and_forward=copy, on_error=heard.append) as connection:
                await send(connection, [b"new"])
                await connection.forwarded()
            messages = await left(url_of(server))
            assert [message.body for message in messages] == [*numbered(10), *numbered(1, 5), b"new"]
            marked = [message.body for message in messages if message.properties.get(POSSIBLY_DOUBLED)]
            assert marked == numbered(1, 5), "the copy's own message may be that of the original"
            assert [error.code for error in heard] == ["store-behind"]

    play(story())


# ---- refusals


def test_a_destination_that_is_refused_is_held_and_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarder, "FORWARD_RETRY_SECONDS", (0.05, 0.1))

    async def story() -> None:
        heard: list[HeliographError] = []
        told: list[HeliographError | None] = []
        settings: Settings = {"destinations.create_on_first_use": False}
        async with embedded(tmp_path, settings) as server, cutting(NOBODY) as proxy:
            async with connect(url_of(server)) as administrator:
                await administrator.ask("destination.create", destination="queue:there")
            async with connect(
                proxy.url, store_and_forward=tmp_path / "store", on_error=heard.append
            ) as connection:
                await send(connection, numbered(3), "queue:there")
                await send(connection, numbered(3), "queue:later")
                never = await connection.producer("queue:never")
                await never.send(b"", on_completion=told.append)
                proxy.target = server.address
                await until(lambda: connection.stored.messages == 4, "what can go has gone")
                await until(lambda: len(connection.stored.held) == 2, "the others are held")
                assert connection.stored.held["queue:later"].code == "destination-unknown"
                with pytest.raises(HeliographError) as refusal:
                    await connection.producer("queue:elsewhere")  # it is there to say so
                assert refusal.value.code == "destination-unknown"
                async with connect(url_of(server)) as administrator:
                    await administrator.ask("destination.create", destination="queue:later")
                await until(lambda: connection.stored.messages == 1, "it was tried again")
                assert list(connection.stored.held) == ["queue:never"]
                assert await connection.discard("queue:never") == 1
                assert connection.stored.messages == 0
                assert [error.code for error in told if error] == ["discarded"]
                assert [error.code for error in heard] == ["destination-unknown"] * 2
                async with connect(url_of(server)) as administrator:
                    await administrator.ask("destination.create", destination="queue:never")
                await send(connection, [b"after all"], "queue:never")
                await connection.forwarded()
            assert await bodies_left(url_of(server), "queue:there") == numbered(3)
            assert await bodies_left(url_of(server), "queue:later") == numbered(3)
            assert await bodies_left(url_of(server), "queue:never") == [b"after all"]

    play(story())


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "STORE_SEGMENT_BYTES", 50_000)
    monkeypatch.setattr(writer, "STORE_IDLE_BYTES", 10_000)


@pytest.mark.slow
def test_what_is_held_does_not_keep_the_room_of_what_is_done(tmp_path: Path, small_segments: None) -> None:
    async def story() -> None:
        settings: Settings = {"destinations.create_on_first_use": False}
        store = tmp_path / "store"
        async with embedded(tmp_path, settings) as server, cutting(NOBODY) as proxy:
            async with connect(url_of(server)) as administrator:
                await administrator.ask("destination.create", destination="queue:there")
            async with connect(proxy.url, store_and_forward=store, store_bytes=400_000) as connection:
                held = await connection.producer("queue:held")
                going = await connection.producer("queue:there")
                proxy.target = server.address
                for number in range(200):
                    await held.send(b"%06d" % number)
                    await going.send(bytes(10_000))
                    if number % 10 == 9:
                        await going.flush()
                assert connection.stored.messages == 200
                await until(lambda: connection.stored.file_bytes < 300_000, "it was written again")
            async with connect(proxy.url, store_and_forward=store) as connection:
                assert connection.stored.messages == 200
                async with connect(url_of(server)) as administrator:
                    await administrator.ask("destination.create", destination="queue:held")
                await connection.forwarded()
            assert await bodies_left(url_of(server), "queue:held") == numbered(200)
            assert len(await left(url_of(server), "queue:there")) == 200

    play(story())


# ---- the guide, and the command line

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "store-and-forward.md"


async def run(*command: str, folder: Path) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        cwd=folder,
        env={**CLEAN, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return output.decode()


@pytest.mark.slow
@pytest.mark.req("X5")
def test_the_examples_of_the_guide_do_what_it_says(tmp_path: Path) -> None:
    asynchronous, blocking = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)

    async def story() -> None:
        async with ServerProcess(tmp_path) as server:
            await server.terminate()
            here = server.url.removeprefix("helio://")
            quick = asynchronous.replace("localhost:7700", here).replace("timeout(5)", "timeout(0.2)")
            patient = asynchronous.replace("localhost:7700", here)
            assert await run("-c", quick, folder=tmp_path) == (
                "1 waiting\nthe server is away; the next start goes on\n"
            )
            assert (await run("-c", quick, folder=tmp_path)).startswith("2 waiting\n")
            await server.start()
            assert (await run("-c", patient, folder=tmp_path)).endswith("all forwarded\n")
            await run("-c", blocking.replace("localhost:7700", here), folder=tmp_path)
            assert await bodies_left(server.url, "queue:sales") == [{"item": "lamp", "price": 40}] * 4

    play(story())


@pytest.mark.slow
@pytest.mark.req("X4")
def test_the_command_line_stores_while_the_server_is_away(tmp_path: Path) -> None:
    async def story() -> None:
        async with ServerProcess(tmp_path) as server:
            await server.terminate()
            command = (
                "-m",
                "heliograph.cli.main",
                "send",
                "--url",
                server.url,
                "--store-and-forward",
                "outbox",
            )
            told = await run(*command, QUEUE, "one", "--count", "2", folder=tmp_path)
            assert told == "2 messages to queue:orders stored in outbox; waiting there for the server: 2\n"
            await server.start()
            told = await run(*command, QUEUE, "two", "--json", folder=tmp_path)
            assert json.loads(told) == {"destination": QUEUE, "folder": "outbox", "stored": 1, "waiting": 0}
            assert await bodies_left(server.url) == ["one", "one", "two"]

    play(story())
