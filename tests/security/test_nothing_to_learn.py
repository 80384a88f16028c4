"""A user without rights can neither do nor learn anything: not by our library, not by the protocols of others."""

from __future__ import annotations

import asyncio
import base64
import statistics
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import aiomqtt
import pytest
from aiomqtt import ProtocolVersion
from paho.mqtt.reasoncodes import ReasonCode
from proton.utils import BlockingConnection, LinkDetached

from heliograph import connect
from heliograph.admin.subjects import OF_PIPELINES, OVER_DESTINATION, OVER_SERVER
from heliograph.client.connection import Connection
from heliograph.model.errors import HeliographError, NotAllowed
from heliograph.nodes.embedded import EmbeddedServer
from heliograph.nodes.users import UserStore
from tests.servers import embedded, play, url_of

pytestmark = pytest.mark.req("X2")

_CHEAP = (16, 8, 1)
V5 = ProtocolVersion.V5
THERE, MISSING = "orders.of.today", "orders.of.never"


@asynccontextmanager
async def house(folder: Path) -> AsyncIterator[EmbeddedServer]:
    """Ann has a queue, a topic and a durable subscription; Mallory may log in."""
    users = UserStore(folder / "data" / "users.toml")
    users.add("ann", "a", ["admin"], cost=_CHEAP)
    users.add("mallory", "m", cost=_CHEAP)
    async with embedded(folder) as server:
        async with connect(url_of(server), user="ann", password="a", client_id="laptop") as ann:
            producer = await ann.producer(f"queue:{THERE}")
            for _ in range(3):
                await producer.send_confirmed(b"secret")
            consumer = await ann.consumer(f"topic:{THERE}", durable="evening")
            await consumer.close()
        yield server


def mallory(server: EmbeddedServer, **options: Any) -> Any:
    return connect(url_of(server), user="mallory", password="m", **options)


def _attempts(connection: Connection) -> dict[str, Any]:
    async def send(name: str) -> None:
        producer = await connection.producer(name)
        await producer.send_confirmed(b"x")

    async def receive(name: str) -> None:
        await connection.consumer(name)

    async def browse(name: str) -> None:
        async for _ in await connection.browse(name):
            pass

    return {"send": send, "receive": receive, "browse": browse}


def test_every_refusal_is_the_same_for_what_is_there_and_what_is_not(tmp_path: Path) -> None:
    async def told(attempt: Any, name: str) -> tuple[str, str]:
        with pytest.raises(HeliographError) as refused:
            await attempt(name)
        return refused.value.code, refused.value.sentence.replace(THERE, "N").replace(MISSING, "N")

    async def story() -> None:
        async with house(tmp_path) as server, mallory(server) as connection:
            for what, attempt in _attempts(connection).items():
                for kind in ("queue", "topic"):
                    there, missing = [await told(attempt, f"{kind}:{name}") for name in (THERE, MISSING)]
                    assert there == missing, what
                    assert there[0] == "not-allowed"
            for subject in (*OVER_DESTINATION, *OF_PIPELINES):

                async def ask(name: str, subject: str = subject) -> None:
                    await connection.ask(subject, destination=name, target=name)

                there, missing = [await told(ask, f"queue:{name}") for name in (THERE, MISSING)]
                assert there == missing, subject
                assert there[0] == "not-allowed"
            for subject in (*OVER_SERVER, "log", "nodes.ask"):
                with pytest.raises(NotAllowed):
                    await connection.ask(subject, command="server")

    play(story())


def test_names_and_counts_stay_hidden(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path) as server:
            # Under the name of Ann's client, whose subscriptions she would see and could end.
            async with mallory(server, client_id="laptop") as connection:
                assert await connection.ask("client.subscriptions") == {"subscriptions": []}
                session = await connection.session()
                for name in ("evening", "no-such-thing"):
                    with pytest.raises(NotAllowed):
                        await session.unsubscribe(name)
                # A pattern matches nothing that one may not receive from, now or later.
                consumer = await connection.consumer("topic:glob:*")
                async with connect(url_of(server), user="ann", password="a") as ann:
                    for name in (THERE, "new.topic"):
                        await (await ann.producer(f"topic:{name}")).send_confirmed(b"secret")
                assert await consumer.receive(timeout=0.3) is None
            async with connect(url_of(server), user="ann", password="a", client_id="laptop") as ann:
                assert await ann.ask("client.subscriptions") == {"subscriptions": ["evening"]}
                shown = await ann.ask("destination.show", destination=f"queue:{THERE}")
                assert shown["depth"] == 3, "nothing was done"

    play(story())


Refusal = Callable[[str], Awaitable[str]]
"""Tries something with a name, and returns what was said; the name itself may be in it."""


def _native(connection: Connection) -> dict[str, Refusal]:
    def refused(attempt: Any) -> Refusal:
        async def told(name: str) -> str:
            try:
                await attempt(f"queue:{name}")
            except NotAllowed as error:
                return f"{error.code}: {error.sentence}"
            raise AssertionError("it was allowed")

        return told

    async def show(name: str) -> None:
        await connection.ask("destination.show", destination=name)

    return {what: refused(attempt) for what, attempt in {**_attempts(connection), "show": show}.items()}


class Stomp:
    """Connections of Mallory's: each ends with its refusal."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writer.write(b"CONNECT\naccept-version:1.2\nlogin:mallory\npasscode:m\n\n\0")
        assert (await self._reader.readuntil(b"\0")).startswith(b"CONNECTED")

    async def tell(self, frame: str) -> str:
        self._writer.write(frame.encode() + b"\0")
        said = (await self._reader.readuntil(b"\0")).decode()
        self._writer.close()
        assert said.lstrip("\n").startswith("ERROR")
        return said


STOMP = {
    "STOMP's SEND": "SEND\ndestination:/queue/{}\nreceipt:1\n\nx",
    "STOMP's SEND to a topic": "SEND\ndestination:/topic/{}\nreceipt:1\n\nx",
    "STOMP's SUBSCRIBE": "SUBSCRIBE\nid:1\ndestination:/queue/{}\n\n",
    "STOMP's SUBSCRIBE, durable": "SUBSCRIBE\nid:1\ndestination:/topic/{}\ndurable:true\n\n",
    "STOMP's SUBSCRIBE, browsing": "SUBSCRIBE\nid:1\ndestination:/queue/{}\nbrowser:true\n\n",
}


def _mqtt(client: aiomqtt.Client) -> dict[str, Refusal]:
    async def subscribe(name: str) -> str:
        (reason,) = await client.subscribe(name, qos=1)
        assert isinstance(reason, ReasonCode)
        assert reason.is_failure
        return str(reason)

    async def of_queue(name: str) -> str:
        return await subscribe(f"$queue/{name}")

    return {"MQTT's SUBSCRIBE": subscribe, "MQTT's SUBSCRIBE to a queue": of_queue}


class Times:
    """Of a refusal, for what is there and for what is not."""

    def __init__(self, refusal: Refusal, before: Callable[[], Awaitable[None]] | None = None) -> None:
        """`before`: what each takes, and is not measured."""
        self._refusal = refusal
        self._before = before
        self._took: dict[str, list[int]] = {THERE: [], MISSING: []}

    async def measure(self, times: int) -> None:
        """Who is first changes each time."""
        for turn in range(times):
            for name in (THERE, MISSING) if turn % 2 else (MISSING, THERE):
                if self._before is not None:
                    await self._before()
                began = perf_counter_ns()
                await self._refusal(name)
                self._took[name].append(perf_counter_ns() - began)

    @property
    def ratio(self) -> float:
        """Of the medians of all that was measured."""
        return statistics.median(self._took[THERE]) / statistics.median(self._took[MISSING])


async def check_times(what: str, times: Times, count: int) -> None:
    """The medians differ by less than a tenth. On a busy machine it takes more to see that: nothing is left out."""
    for _ in range(10):
        await times.measure(count)
        if 0.9 < times.ratio < 1.1:
            break
    print(f"{what}: there / missing {times.ratio:.3f}")
    assert 0.9 < times.ratio < 1.1, what


@pytest.mark.alone
@pytest.mark.timeout(180)
def test_a_refusal_takes_the_same_time(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path) as server, mallory(server) as connection:
            for what, refusal in _native(connection).items():
                await check_times(what, Times(refusal), 500)
            port = server.address[1]
            async with aiomqtt.Client(
                "127.0.0.1", port, username="mallory", password="m", protocol=V5
            ) as client:
                for what, refusal in _mqtt(client).items():
                    await check_times(what, Times(refusal), 500)
            stomp = Stomp(port)
            for what in ("STOMP's SEND", "STOMP's SUBSCRIBE"):

                async def refused(name: str, what: str = what) -> str:
                    return await stomp.tell(STOMP[what].format(name))

                await check_times(what, Times(refused, stomp.connect), 200)

    play(story(), 170)


def _amqp(port: int, name: str) -> dict[str, str]:
    """What Proton is told of each kind of link."""
    connection = BlockingConnection(
        f"127.0.0.1:{port}", timeout=20, user="mallory", password="m", allowed_mechs="PLAIN"
    )
    said = {}
    for what, make in (("to", connection.create_sender), ("from", connection.create_receiver)):
        for kind in ("queue", "topic"):
            with pytest.raises(LinkDetached) as refused:
                make(f"{kind}:{name}", name=f"{what} a {kind}")
            said[f"{what} a {kind}"] = f"{refused.value.condition}: {refused.value}"
    connection.close()
    return said


async def _http(port: int, path: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    mallory = base64.b64encode(b"mallory:m").decode()
    writer.write(
        f"GET /api/v1/{path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Basic {mallory}\r\n"
        "Connection: close\r\n\r\n".encode()
    )
    said = (await reader.read()).decode()
    writer.close()
    return said


def test_others_learn_nothing_either(tmp_path: Path) -> None:
    """By STOMP, MQTT, AMQP and HTTP: but for the name that was asked for the answers are the same."""

    def same(what: str, there: str, missing: str) -> str:
        assert there.replace(THERE, "N") == missing.replace(MISSING, "N"), what
        return there

    async def story() -> None:
        async with house(tmp_path) as server:
            port = server.address[1]
            stomp = Stomp(port)
            for what, frame in STOMP.items():
                told = []
                for name in (THERE, MISSING):
                    await stomp.connect()
                    told.append(await stomp.tell(frame.format(name)))
                assert "not-allowed" in same(what, *told)
            async with aiomqtt.Client(
                "127.0.0.1", port, username="mallory", password="m", protocol=V5
            ) as client:
                for what, refusal in _mqtt(client).items():
                    assert same(what, await refusal(THERE), await refusal(MISSING)) == "Not authorized"
            there, missing = [await asyncio.to_thread(_amqp, port, name) for name in (THERE, MISSING)]
            for what in there:
                assert "not-allowed" in same(f"AMQP's link {what}", there[what], missing[what])
            for path in ("destinations/queue:{}", "destinations/queue:{}/messages", "destinations/topic:{}"):
                told = [await _http(port, path.format(name)) for name in (THERE, MISSING)]
                assert "403" in same(f"GET {path}", *told).splitlines()[0]

    play(story())
