"""A user without rights can neither do nor learn anything: not by our library, not by the protocols of others."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import statistics
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import aiomqtt
import pytest
from aiomqtt import ProtocolVersion
from paho.mqtt.reasoncodes import ReasonCode
from proton import Delivery, Message
from proton.reactor import Selector
from proton.utils import BlockingConnection, LinkDetached

from heliograph import connect
from heliograph.admin.rest.table import ROUTES, Route
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
ID = "0" * 24


@asynccontextmanager
async def house(folder: Path) -> AsyncIterator[EmbeddedServer]:
    """Ann has a queue, a topic, a durable subscription and an alert; Mallory may log in."""
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
            await ann.alerts(THERE).publish("TAG:secret", "fire")
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


def _attempts_at_alerts(connection: Connection) -> dict[str, Any]:
    async def subscribe(name: str) -> None:
        async with await connection.alerts(name).subscribe("TAG:secret"):
            pass

    return {
        "publish": lambda name: connection.alerts(name).publish("TAG:secret", "fire"),
        "subscribe": subscribe,
        "cancel": lambda name: connection.alerts(name).cancel(ID),
        "acknowledge": lambda name: connection.alerts(name).acknowledge(ID),
        "list": lambda name: connection.alerts(name).list(),
        "audit": lambda name: connection.alerts(name).audit(ID),
    }


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
            for what, attempt in _attempts_at_alerts(connection).items():
                there, missing = [await told(attempt, name) for name in (THERE, MISSING)]
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
    "STOMP's SEND of an alert": (
        "SEND\ndestination:/alerts/{}\nalert_destination:TAG\\csecret\nreceipt:1\n\nx"
    ),
    "STOMP's SEND that cancels an alert": (
        f"SEND\ndestination:/alerts/{{}}\nalert_action:cancel\ncorrelation-id:{ID}\nreceipt:1\n\nx"
    ),
    "STOMP's SEND that acknowledges an alert": (
        f"SEND\ndestination:/alerts/{{}}\nalert_action:acknowledge\ncorrelation-id:{ID}\nreceipt:1\n\nx"
    ),
    "STOMP's SUBSCRIBE to alerts": "SUBSCRIBE\nid:1\ndestination:/alerts/{}\ntopics:TAG\\csecret\n\n",
    "STOMP's SUBSCRIBE to alerts, durable": (
        "SUBSCRIBE\nid:1\ndestination:/alerts/{}\ntopics:TAG\\csecret\ndurable:true\n\n"
    ),
}


def _mqtt(client: aiomqtt.Client) -> dict[str, Refusal]:
    async def subscribe(name: str) -> str:
        (reason,) = await client.subscribe(name, qos=1)
        assert isinstance(reason, ReasonCode)
        assert reason.is_failure
        return str(reason)

    async def of_queue(name: str) -> str:
        return await subscribe(f"$queue/{name}")

    async def of_alerts(name: str) -> str:
        return await subscribe(f"$alerts/{name}/TAG:secret")

    async def of_acknowledgements(name: str) -> str:
        return await subscribe(f"$acknowledgements/{name}/TAG:secret")

    return {
        "MQTT's SUBSCRIBE": subscribe,
        "MQTT's SUBSCRIBE to a queue": of_queue,
        "MQTT's SUBSCRIBE to alerts": of_alerts,
        "MQTT's SUBSCRIBE to acknowledgements": of_acknowledgements,
    }


class Mqtt:
    """Mallory's connection, as bytes: what a library keeps to itself is seen, too."""

    def __init__(self, port: int, level: int) -> None:
        self._port = port
        self._level = level

    async def connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        none = b"\0" if self._level == 5 else b""  # properties
        login = b"\0\4MQTT" + bytes((self._level, 0xC2)) + b"\0\x3c" + none + b"\0\1x\0\7mallory\0\1m"
        self._writer.write(bytes((0x10, len(login))) + login)
        kind, size = await self._reader.readexactly(2)
        said = await self._reader.readexactly(size)
        assert (kind, said[1]) == (0x20, 0)

    async def publish(self, topic: str, flags: int) -> str:
        """What comes back, in hexadecimal; in version 3.1.1 nobody says no, and that is the end."""
        name = topic.encode()
        body = len(name).to_bytes(2, "big") + name + (b"\0\1" if flags & _QUALITY else b"")
        body += (b"\0" if self._level == 5 else b"") + b"x"
        self._writer.write(bytes((0x30 | flags, len(body))) + body)
        if self._level != 5 or not flags & _QUALITY:
            return await self._rest()
        kind, size = await self._reader.readexactly(2)
        return _readable(bytes((kind,)) + await self._reader.readexactly(size))

    async def _rest(self) -> str:
        """What comes until something else that was asked for is answered, or to the end."""
        subscribe = b"\0\2" + (b"\0" if self._level == 5 else b"") + b"\0\4none\0"
        self._writer.write(bytes((0x82, len(subscribe))) + subscribe)
        said = b""
        async with asyncio.timeout(60):
            while b"\x90" not in said:
                piece = await self._reader.read(1000)
                if not piece:
                    return _readable(said) + "(end)"
                said += piece
        return _readable(said)

    def close(self) -> None:
        self._writer.close()


_QUALITY = 6  # of the flags of PUBLISH


def _readable(said: bytes) -> str:
    return said.decode("latin-1")


MQTT = {
    f"MQTT {version}'s PUBLISH of quality {quality}{retained}": (level, quality << 1 | (retained != ""))
    for version, level in (("3.1.1", 4), ("5", 5))
    for quality in (0, 1, 2)
    for retained in ("", ", retained")
}


class Http:
    """Mallory's requests, one after the other on one connection."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._mallory = base64.b64encode(b"mallory:m").decode()

    async def connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    async def ask(self, method: str, path: str, form: dict[str, Any] | None = None) -> str:
        body = b"" if form is None else json.dumps(form).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n"
        head += f"Authorization: Basic {self._mallory}\r\nX-Heliograph: test\r\n"
        if form is not None:
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        self._writer.write(f"{head}\r\n".encode() + body)
        said = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        size = int(said.lower().partition("content-length: ")[2].partition("\r\n")[0])
        return said + (await self._reader.readexactly(size)).decode()

    def close(self) -> None:
        self._writer.close()


# What requests must say, of those that must say something.
FORMS: dict[str, dict[str, Any]] = {
    "destinations.change": {"policy": {}},
    "messages.move": {"target": "queue:elsewhere"},
    "alerts.publish": {"destination": "TAG:x"},
}


def _paths(route: Route) -> list[str]:
    """Those of a request about a destination or a channel of alerts, but for its name."""
    if "{destination}" in route.path:
        return [route.path.format(destination=f"{kind}:{{}}", id=ID, unit="u") for kind in ("queue", "topic")]
    return [route.path.format(channel="{}", id=ID)] if "{channel}" in route.path else []


class Times:
    """Of a refusal, for what is there and for what is not."""

    def __init__(self) -> None:
        self._took: dict[str, list[int]] = {THERE: [], MISSING: []}

    def turns(self) -> Iterator[str]:
        """Names to try. Who is first changes each time."""
        for turn in range(PAIRS):
            yield from (THERE, MISSING) if turn % 2 else (MISSING, THERE)

    def add(self, name: str, nanoseconds: int) -> None:
        self._took[name].append(nanoseconds)

    def check(self, what: str) -> None:
        """The medians of all that was measured differ by less than a tenth."""
        there, missing = (statistics.median(self._took[name]) for name in (THERE, MISSING))
        print(f"{what}: {there / 1e6:.3f} ms there, {missing / 1e6:.3f} ms missing: {there / missing:.3f}")
        assert 0.9 < there / missing < 1.1, what


# So many pairs, whatever comes out. On two cores that eight others wanted, too, the quotient of medians of 400 was
# within seven hundredths of 1, and of 1,000 within three.
PAIRS = 1_000


async def check_times(
    what: str, refusal: Refusal, before: Callable[[], Awaitable[None]] | None = None
) -> None:
    """`before`: what each takes, and is not measured."""
    times = Times()
    for name in times.turns():
        if before is not None:
            await before()
        began = perf_counter_ns()
        await refusal(name)
        times.add(name, perf_counter_ns() - began)
    times.check(what)


@pytest.mark.alone
@pytest.mark.timeout(180)
def test_a_refusal_takes_the_same_time(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path) as server, mallory(server) as connection:
            for what, refusal in _native(connection).items():
                await check_times(what, refusal)

    play(story(), 170)


@pytest.mark.alone
@pytest.mark.timeout(180)
def test_a_refusal_takes_the_same_time_in_other_protocols(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path) as server:
            port = server.address[1]
            await _check_mqtt(port)
            stomp = Stomp(port)
            for what in ("STOMP's SEND", "STOMP's SUBSCRIBE"):

                async def refused(name: str, what: str = what) -> str:
                    return await stomp.tell(STOMP[what].format(name))

                await check_times(what, refused, stomp.connect)
            http = Http(port)
            await http.connect()
            for path in ("destinations/queue:{}", "destinations/queue:{}/messages"):

                async def asked(name: str, path: str = path) -> str:
                    return await http.ask("GET", f"/api/v1/{path.format(name)}")

                await check_times(f"GET {path}", asked)
            http.close()
            await asyncio.to_thread(_check_amqp, port)

    play(story(), 170)


async def _check_mqtt(port: int) -> None:
    async with aiomqtt.Client("127.0.0.1", port, username="mallory", password="m", protocol=V5) as client:
        for what, refusal in _mqtt(client).items():
            await check_times(what, refusal)
    line = Mqtt(port, 5)
    await line.connect()
    for what in ("MQTT 5's PUBLISH of quality 1", "MQTT 5's PUBLISH of quality 1, retained"):

        async def published(name: str, what: str = what) -> str:
            return await line.publish(name, MQTT[what][1])

        await check_times(what, published)
    line.close()


def _check_amqp(port: int) -> None:
    """On a thread, where Proton waits; what it takes to come back from there is not measured."""
    for what in ("to a queue", "from a queue", "from a topic"):
        connection = _proton(port)
        make = _links(connection)[what]
        times = Times()
        for name in times.turns():
            began = perf_counter_ns()
            _refused(make, name)
            times.add(name, perf_counter_ns() - began)
        times.check(f"AMQP's attach {what}")
        connection.close()


def _proton(port: int) -> BlockingConnection:
    return BlockingConnection(
        f"127.0.0.1:{port}", timeout=20, user="mallory", password="m", allowed_mechs="PLAIN"
    )


def _links(connection: BlockingConnection) -> dict[str, Callable[[str], object]]:
    """By what they are for. Each gets a name of its own: Proton keeps those that were refused."""
    numbers = itertools.count(1_000)

    def of(make: Callable[..., object], kind: str) -> Callable[[str], object]:
        options = (
            {"options": Selector("topics = 'TAG:secret'")}
            if kind == "alerts" and make == connection.create_receiver
            else {}
        )
        return lambda name: make(f"{kind}:{name}", name=f"link {next(numbers)}", **options)

    return {
        f"{what} a {kind}": of(make, kind)
        for what, make in (("to", connection.create_sender), ("from", connection.create_receiver))
        for kind in ("queue", "topic", "alerts")
        if (what, kind) != ("to", "alerts")  # what is sent there is refused, each message for itself
    }


def _refused(make: Callable[[str], object], name: str) -> str:
    with pytest.raises(LinkDetached) as refused:
        make(name)
    return f"{refused.value.condition}: {refused.value}"


def _amqp(port: int, name: str) -> dict[str, str]:
    """What Proton is told of each kind of link."""
    connection = _proton(port)
    said = {f"link {what} is": _refused(make, name) for what, make in _links(connection).items()}
    sender = connection.create_sender(f"alerts:{name}")
    for action in ("publish", "cancel", "acknowledge"):
        properties = {"alert_destination": "TAG:secret"}
        if action != "publish":
            properties = {"alert_action": action}
        alert = Message("fire", properties=properties, correlation_id=ID)
        delivery = sender.link.send(alert)
        connection.wait(lambda delivery=delivery: delivery.remote_state)
        assert delivery.remote_state == Delivery.REJECTED
        said[f"alert, {action},"] = f"{delivery.remote.condition.name}: {delivery.remote.condition}"
    connection.close()
    return said


def same(what: str, there: str, missing: str) -> str:
    """But for the name that was asked for."""
    assert there.replace(THERE, "N") == missing.replace(MISSING, "N"), what
    return there


def test_others_learn_nothing_either(tmp_path: Path) -> None:
    """By STOMP, MQTT and AMQP the answers are the same."""

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
                assert "not-allowed" in same(f"AMQP's {what} refused", there[what], missing[what])

    play(story())


@pytest.mark.parametrize("what", MQTT)
def test_who_publishes_by_mqtt_learns_nothing(tmp_path: Path, what: str) -> None:
    level, flags = MQTT[what]

    async def told(port: int, name: str) -> str:
        line = Mqtt(port, level)
        await line.connect()
        said = await line.publish(name, flags)
        line.close()
        return said

    async def story() -> None:
        async with house(tmp_path) as server:
            port = server.address[1]
            for form in ("{}", "$queue/{}", *([] if flags & 1 else ["$alerts/{}/TAG:secret"])):
                said = same(what, *[await told(port, form.format(name)) for name in (THERE, MISSING)])
                if form.startswith("$alerts") and not flags & _QUALITY:
                    assert said.endswith("(end)"), "it is told, if there is a way to, and has to go"
                    assert level != 5 or "\x87" in said, "not authorized"
                elif not flags & _QUALITY:
                    assert said.startswith("\x90"), "of the message nothing is said"
                elif level == 5:
                    assert said[3:4] == "\x87", "not authorized"
                else:
                    assert said == "(end)"

    play(story())


def test_who_asks_by_http_learns_nothing(tmp_path: Path) -> None:
    """Whatever can be asked about a destination or a channel of alerts."""

    async def story() -> None:
        async with house(tmp_path) as server:
            http = Http(server.address[1])
            await http.connect()
            for route in ROUTES:
                form = None if route.body is None else FORMS.get(route.name, {})
                for path in _paths(route):
                    told = [
                        await http.ask(route.method, path.format(name), form) for name in (THERE, MISSING)
                    ]
                    said = same(f"{route.method} {path}", *told)
                    assert said.startswith("HTTP/1.1 403"), said
                    assert '"not-allowed"' in said, said
            http.close()

    play(story())
