"""Messages cross from each protocol to each other, bodies and properties intact, as the reference says."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import aiomqtt
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from proton import Message

import heliograph
from heliograph.frontends.stomp.frames import encode
from tests.interop.amqp_client import AmqpClient
from tests.interop.stage import Stage

pytestmark = [pytest.mark.req("X1", "A8"), pytest.mark.slow]
CLIENTS = 50
BODIES = (b"\x00\xff bytes", "grüezi ✓".encode(), b"")

Send = Callable[[str, bytes], Awaitable[None]]
Heard = tuple[bytes, str, object]
"""A body; who sent it; and a property that is a number, as it comes."""
Hear = Callable[[], Awaitable[Heard]]


class StompClient:
    """A few frames by hand: hundreds of stomp.py's connections would be as many threads."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, stage: Stage) -> StompClient:
        client = cls(*await asyncio.open_connection(stage.host, stage.port))
        client._say("CONNECT", {"accept-version": "1.2"})
        assert (await client._frame())[0] == "CONNECTED"
        return client

    def _say(self, command: str, headers: dict[str, str], body: bytes = b"") -> None:
        self._writer.write(encode(command, headers, body))

    async def _frame(self) -> tuple[str, dict[str, str], bytes]:
        head = (await self._reader.readuntil(b"\n\n")).decode().lstrip("\n").split("\n")
        headers = dict(line.split(":", 1) for line in head[1:] if line)
        if "content-length" in headers:
            body = (await self._reader.readexactly(int(headers["content-length"]) + 1))[:-1]
        else:
            body = (await self._reader.readuntil(b"\0"))[:-1]
        return head[0], headers, body

    async def subscribe(self, topic: str) -> None:
        self._say("SUBSCRIBE", {"id": "s", "destination": f"/topic/{topic}", "receipt": "there"})
        assert (await self._frame())[:2] == ("RECEIPT", {"receipt-id": "there"})

    async def send(self, topic: str, body: bytes) -> None:
        headers = {"destination": f"/topic/{topic}", "mark": "from stomp", "count": "5"}
        headers["content-length"] = str(len(body))
        self._say("SEND", headers, body)

    async def hear(self) -> Heard:
        command, headers, body = await self._frame()
        assert command == "MESSAGE"
        return body, headers["mark"], headers.get("count")

    def close(self) -> None:
        self._writer.close()


async def of_stomp(stage: Stage, topic: str, stack: AsyncExitStack) -> tuple[Send, Hear]:
    client = await StompClient.connect(stage)
    stack.callback(client.close)
    await client.subscribe(topic)
    return client.send, client.hear


async def of_mqtt(stage: Stage, topic: str, stack: AsyncExitStack) -> tuple[Send, Hear]:
    options = {"protocol": aiomqtt.ProtocolVersion.V5, "max_inflight_messages": 100, "timeout": 120}
    client = await stack.enter_async_context(aiomqtt.Client(stage.host, stage.port, **options))
    await client.subscribe(topic, qos=1)

    async def send(to: str, body: bytes) -> None:
        properties = Properties(PacketTypes.PUBLISH)
        properties.UserProperty = [("mark", "from mqtt"), ("count", "5")]
        await client.publish(to, body, qos=1, properties=properties)

    async def hear() -> Heard:
        message = await anext(client.messages)
        assert isinstance(message.payload, bytes)
        assert message.properties is not None
        named = dict(message.properties.UserProperty)
        return message.payload, named["mark"], named.get("count")

    return send, hear


async def of_ours(stage: Stage, topic: str, stack: AsyncExitStack) -> tuple[Send, Hear]:
    connection = await stack.enter_async_context(heliograph.connect(stage.url))
    consumer = await connection.consumer(f"topic:{topic}")
    producers: dict[str, heliograph.Producer] = {}

    async def send(to: str, body: bytes) -> None:
        if to not in producers:
            producers[to] = await connection.producer(f"topic:{to}")
        await producers[to].send(body, properties={"mark": "from ours", "count": 5})

    async def hear() -> Heard:
        message = await consumer.receive(timeout=120)
        assert message is not None
        assert isinstance(message.body, bytes)
        return message.body, str(message.properties["mark"]), message.properties.get("count")

    return send, hear


async def of_amqp(stage: Stage, topic: str, stack: AsyncExitStack) -> tuple[Send, Hear]:
    client = await AmqpClient.connect(stage.host, stage.port)
    stack.callback(client.close)
    await client.subscribe(f"topic:{topic}")

    async def send(to: str, body: bytes) -> None:
        message = Message(body=body, inferred=True, properties={"mark": "from amqp", "count": 5})
        await client.send(f"topic:{to}", message)

    async def hear() -> Heard:
        message = await client.hear()
        return bytes(message.body), message.properties["mark"], message.properties.get("count")

    return send, hear


KINDS = (of_stomp, of_mqtt, of_ours, of_amqp)
MARKS = ("from stomp", "from mqtt", "from ours", "from amqp")
KNOW_NUMBERS = (of_ours, of_amqp)


def expected(receiver: object, senders: int) -> list[Heard]:
    """Of so many clients, each of the next kind. A number stays one between those who have numbers."""
    return sorted(
        (
            (body, MARKS[index % 4], 5 if {receiver, KINDS[index % 4]} <= set(KNOW_NUMBERS) else "5")
            for index in range(senders)
            for body in BODIES
        ),
        key=lambda heard: heard[:2],
    )


async def exchange(stage: Stage, count: int, topic: str, senders: int | None = None) -> None:
    """Each client, or so many of them, sends each body to all, and everybody hears everything once."""
    senders = count if senders is None else senders
    async with AsyncExitStack() as stack:
        clients = [await KINDS[index % 4](stage, topic, stack) for index in range(count)]

        async def listen(hear: Hear) -> list[Heard]:
            return sorted([await hear() for _ in range(senders * len(BODIES))], key=lambda heard: heard[:2])

        listening = [asyncio.create_task(listen(hear)) for _, hear in clients]
        for send, _ in clients[:senders]:
            for body in BODIES:
                await send(topic, body)
        for index, heard in enumerate(await asyncio.gather(*listening)):
            assert heard == expected(KINDS[index % 4], senders), f"client {index}"


def test_clients_of_four_protocols_exchange_messages(stage: Stage) -> None:
    """A hundred, in two groups at the same time."""

    async def story() -> None:
        await asyncio.gather(*[exchange(stage, CLIENTS, f"across-{group}") for group in range(2)])

    asyncio.run(asyncio.wait_for(story(), 150))


@pytest.mark.nightly
@pytest.mark.timeout(330)
def test_a_thousand_clients_of_mixed_protocols_exchange_messages(stage: Stage) -> None:
    """In groups of fifty, all at the same time."""

    async def story() -> None:
        await asyncio.gather(*[exchange(stage, 50, f"across/{group}") for group in range(20)])

    asyncio.run(asyncio.wait_for(story(), 300))


def test_clients_of_four_protocols_share_one_topic(stage: Stage) -> None:
    asyncio.run(asyncio.wait_for(exchange(stage, 60, "shared-by-all", senders=4), 150))


@pytest.mark.nightly
@pytest.mark.timeout(330)
def test_a_thousand_clients_of_mixed_protocols_share_one_topic(stage: Stage) -> None:
    """One of each protocol sends, and all thousand hear it."""
    asyncio.run(asyncio.wait_for(exchange(stage, 1_000, "shared/by/all", senders=4), 300))


@pytest.mark.req("M6")
def test_very_large_messages_reach_other_protocols_if_they_can_be_said_there(stage: Stage) -> None:
    """What cannot goes back, and ends among the dead with a word on why; it is not taken for delivered."""
    content = bytes(range(256)) * 12_000

    async def story() -> None:
        async with AsyncExitStack() as stack:
            _, stomp_hears = await of_stomp(stage, "large", stack)
            _, mqtt_hears = await of_mqtt(stage, "large", stack)
            ours = await stack.enter_async_context(heliograph.connect(stage.url))
            producer = await ours.producer("topic:large")
            await producer.send(b"before", properties={"mark": "1"})
            await producer.send_stream(io.BytesIO(content), properties={"mark": "2"})
            await producer.send(b"after", properties={"mark": "3"})
            for hear in (stomp_hears, mqtt_hears):
                assert [await hear() for _ in range(3)] == [
                    (b"before", "1", None),
                    (content, "2", None),
                    (b"after", "3", None),
                ]
            queue = await ours.producer("queue:too-large")
            await queue.send_stream(io.BytesIO(content * 3), properties={"mark": "4"})
            client = await StompClient.connect(stage)
            stack.callback(client.close)
            client._say("SUBSCRIBE", {"id": "q", "destination": "/queue/too-large"})
            dead = await (await ours.consumer("queue:_DMQ")).receive(timeout=20)
            assert dead is not None
            assert dead.is_large

    asyncio.run(asyncio.wait_for(story(), 150))
