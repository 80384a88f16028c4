"""The tables of `docs/reference/protocols.md`: a message of each form from each protocol, as each of them sees it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Literal

import aiomqtt
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from proton import Message

import heliograph
from heliograph.model.message import Property
from tests.interop.amqp_client import AmqpClient
from tests.interop.stage import Stage
from tests.interop.test_across import StompClient

pytestmark = [pytest.mark.req("X1"), pytest.mark.slow]
Form = Literal["bytes", "text", "map"]
BODIES: dict[Form, Any] = {
    "bytes": b"\x00\xff\n bytes",
    "text": "grüezi ✓",
    "map": {"name": "pump", "hot": True, "litres": [1, 2.5]},
}
TYPED: dict[str, Property] = {"mark": "ä:b", "flag": True, "count": 5, "ratio": 1.5}
TEXTS = {"mark": "ä:b", "flag": "true", "count": "5", "ratio": "1.5"}
_JSON, _PLAIN = "application/json", "text/plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a client sees of a message."""

    form: Form
    body: Any
    properties: dict[str, Any]
    priority: int = 7
    correlation: str = "c-1"


Send = Callable[[str, Form], Awaitable[None]]
Hear = Callable[[], Awaitable[Seen]]


def expected(sender: str, receiver: str, form: Form) -> Seen:
    """As the reference has it: who knows texts only neither brings nor sees anything else."""
    knows_types = {"ours", "amqp"}
    properties = TYPED if {sender, receiver} <= knows_types else TEXTS
    is_text_there = form == "map" and sender not in knows_types  # JSON, which is text to those who have maps
    if is_text_there and receiver in knows_types:
        return Seen(form="text", body=json.dumps(BODIES["map"]), properties=properties)
    return Seen(form=form, body=BODIES[form], properties=properties)


async def by_ours(stage: Stage, topic: str, stack: AsyncExitStack) -> tuple[Send, Hear]:
    connection = await stack.enter_async_context(heliograph.connect(stage.url))
    consumer = await connection.consumer(f"topic:{topic}")
    producer = await connection.producer(f"topic:{topic}")

    async def send(_: str, form: Form) -> None:
        await producer.send_confirmed(BODIES[form], properties=TYPED, priority=7, correlation_id="c-1")

    async def hear() -> Seen:
        message = await consumer.receive(timeout=20)
        assert message is not None
        kinds: dict[type, Form] = {bytes: "bytes", str: "text", dict: "map"}
        return Seen(
            form=kinds[type(message.body)],
            body=message.body,
            properties={name: message.properties[name] for name in TYPED},
            priority=message.priority,
            correlation=str(message.correlation_id),
        )

    return send, hear


async def by_stomp(stage: Stage, topic: str, stack: AsyncExitStack) -> tuple[Send, Hear]:
    client = await StompClient.connect(stage)
    stack.callback(client.close)
    await client.subscribe(topic)

    async def send(to: str, form: Form) -> None:
        raw = _raw(form)
        headers = {"destination": f"/topic/{to}", "content-length": str(len(raw)), **TEXTS}
        headers |= {"priority": "7", "correlation-id": "c-1"}
        if form != "bytes":
            headers["content-type"] = _JSON if form == "map" else _PLAIN
        client._say("SEND", headers, raw)

    async def hear() -> Seen:
        command, headers, raw = await client._frame()
        assert command == "MESSAGE"
        assert int(headers["content-length"]) == len(raw)
        return Seen(
            **_read(raw, headers.get("content-type")),
            properties={name: headers[name].replace("\\c", ":") for name in TEXTS},
            priority=int(headers["priority"]),
            correlation=headers["correlation-id"],
        )

    return send, hear


async def by_mqtt(stage: Stage, topic: str, stack: AsyncExitStack) -> tuple[Send, Hear]:
    client = await stack.enter_async_context(
        aiomqtt.Client(stage.host, stage.port, protocol=aiomqtt.ProtocolVersion.V5)
    )
    await client.subscribe(topic, qos=1)

    async def send(to: str, form: Form) -> None:
        said = Properties(PacketTypes.PUBLISH)
        said.UserProperty = [*TEXTS.items(), ("priority", "7")]
        said.CorrelationData = b"c-1"
        if form != "bytes":
            said.PayloadFormatIndicator = 1
        if form == "map":
            said.ContentType = _JSON
        await client.publish(to, _raw(form), qos=1, properties=said)

    async def hear() -> Seen:
        message = await anext(client.messages)
        said = message.properties
        assert said is not None
        assert isinstance(message.payload, bytes)
        content_type = getattr(said, "ContentType", None)
        if content_type is None and getattr(said, "PayloadFormatIndicator", False):
            content_type = _PLAIN
        named = dict(said.UserProperty)
        return Seen(
            **_read(message.payload, content_type),
            properties={name: named[name] for name in TEXTS},
            priority=int(named["priority"]),
            correlation=said.CorrelationData.decode(),
        )

    return send, hear


async def by_amqp(stage: Stage, topic: str, stack: AsyncExitStack) -> tuple[Send, Hear]:
    client = await AmqpClient.connect(stage.host, stage.port)
    stack.callback(client.close)
    await client.subscribe(f"topic:{topic}")

    async def send(to: str, form: Form) -> None:
        message = Message(body=BODIES[form], inferred=form == "bytes", properties=TYPED)
        message.priority, message.correlation_id = 7, "c-1"
        await client.send(f"topic:{to}", message)

    async def hear() -> Seen:
        message = await client.hear()
        body, form = message.body, "map"
        if isinstance(body, str):
            form = "text"
        elif not isinstance(body, dict):
            body, form = bytes(body), "bytes"
        assert message.inferred == (form == "bytes"), "data or a value"
        return Seen(
            form=form,  # type: ignore[arg-type] # one of the three
            body=body,
            properties={name: message.properties[name] for name in TYPED},
            priority=message.priority,
            correlation=message.correlation_id,
        )

    return send, hear


def _raw(form: Form) -> bytes:
    body = BODIES[form]
    return body if isinstance(body, bytes) else (body if form == "text" else json.dumps(body)).encode()


def _read(raw: bytes, content_type: str | None) -> dict[str, Any]:
    if content_type == _JSON:
        return {"form": "map", "body": json.loads(raw)}
    if content_type == _PLAIN:
        return {"form": "text", "body": raw.decode()}
    assert content_type is None
    return {"form": "bytes", "body": raw}


KINDS = {"ours": by_ours, "stomp": by_stomp, "mqtt": by_mqtt, "amqp": by_amqp}


@pytest.mark.parametrize("sender", list(KINDS))
def test_each_protocol_sees_what_the_reference_says(stage: Stage, sender: str) -> None:
    topic = f"mapping/{sender}"

    async def story() -> None:
        async with AsyncExitStack() as stack:
            clients = {name: await kind(stage, topic, stack) for name, kind in KINDS.items()}
            for form in BODIES:
                await clients[sender][0](topic, form)
                for receiver, (_, hear) in clients.items():
                    assert await hear() == expected(sender, receiver, form), f"{form} to {receiver}"

    asyncio.run(asyncio.wait_for(story(), 50))
