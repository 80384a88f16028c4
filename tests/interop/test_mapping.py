"""The tables of `docs/reference/protocols.md`: a message of each form from each protocol, as each of them sees it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Literal

import aiomqtt
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from proton import Message, symbol

import heliograph
from heliograph.model.message import Property
from tests.interop.amqp_client import AmqpClient
from tests.interop.stage import Stage
from tests.interop.test_across import StompClient

pytestmark = [pytest.mark.req("X1"), pytest.mark.slow]
Form = Literal["bytes", "text", "map", "list", "nothing"]
BODIES: dict[Form, Any] = {
    "bytes": b"\x00\xff\n bytes",
    "text": "grüezi ✓",
    "map": {"name": "pump", "hot": True, "litres": [1, 2.5]},
    "list": [1, "two", None, {"three": 3}],
    "nothing": b"",
}
TYPED: dict[str, Property] = {
    "mark": "ä:b",
    "flag": True,
    "count": 5,
    "ratio": 1.5,
    "raw": b"\x00\xff\x10",
    "unknown": None,
}
TEXTS = {"mark": "ä:b", "flag": "true", "count": "5", "ratio": "1.5", "raw": "00ff10"}
LASTS = 600  # seconds
SLACK = 60  # seconds that a busy machine may take for a message
_JSON, _PLAIN = "application/json", "text/plain"
_CONTENT_TYPES: dict[Form, str] = {"text": _PLAIN, "map": _JSON, "list": _JSON}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a client sees of a message."""

    form: Form
    body: Any
    properties: dict[str, Any]
    priority: int = 7
    correlation: str = "c-1"
    reply_to: str  # as the protocol writes it
    unit: str = "u-1"
    expires: bool = True  # when it was to


Send = Callable[[str, Form], Awaitable[None]]
Hear = Callable[[], Awaitable[Seen]]


REPLY_TO = {
    "ours": "queue:answers",
    "stomp": "/queue/answers",
    "mqtt": "$queue/answers",
    "amqp": "queue:answers",
}


def is_due(moment: float) -> bool:
    """Whether this is when a message expires that was sent a moment ago."""
    return -SLACK < moment - time.time() - LASTS < 1


def expected(sender: str, receiver: str, form: Form) -> Seen:
    """As the reference has it: who knows texts only neither brings nor sees anything else."""
    knows_types = {"ours", "amqp"}
    properties: dict[str, Any] = dict(TYPED if {sender, receiver} <= knows_types else TEXTS)
    is_text_there = form in ("map", "list") and sender not in knows_types  # JSON: text to those who have maps
    body = BODIES[form]
    if is_text_there and receiver in knows_types:
        form, body = "text", json.dumps(body)
    elif form == "nothing" and {sender, receiver} != {"amqp"}:
        form = "bytes"  # none at all, which only AMQP tells from no bytes
    return Seen(form=form, body=body, properties=properties, reply_to=REPLY_TO[receiver])


async def by_ours(stage: Stage, topic: str, stack: AsyncExitStack) -> tuple[Send, Hear]:
    connection = await stack.enter_async_context(heliograph.connect(stage.url))
    consumer = await connection.consumer(f"topic:{topic}")
    producer = await connection.producer(f"topic:{topic}", time_to_live=LASTS)

    async def send(_: str, form: Form) -> None:
        await producer.send_confirmed(
            BODIES[form],
            properties=TYPED,
            priority=7,
            correlation_id="c-1",
            reply_to=REPLY_TO["ours"],
            unit_of_order="u-1",
        )

    async def hear() -> Seen:
        message = await consumer.receive(timeout=20)
        assert message is not None
        kinds: dict[type, Form] = {bytes: "bytes", str: "text", dict: "map", list: "list"}
        return Seen(
            form=kinds[type(message.body)],
            body=message.body,
            properties={name: message.properties[name] for name in TYPED if name in message.properties},
            priority=message.priority,
            correlation=str(message.correlation_id),
            reply_to=str(message.reply_to),
            unit=str(message.unit_of_order),
            expires=is_due(message.expiration),
        )

    return send, hear


async def by_stomp(stage: Stage, topic: str, stack: AsyncExitStack) -> tuple[Send, Hear]:
    client = await StompClient.connect(stage)
    stack.callback(client.close)
    await client.subscribe(topic)

    async def send(to: str, form: Form) -> None:
        raw = _raw(form)
        headers = {"destination": f"/topic/{to}", "content-length": str(len(raw)), **TEXTS}
        headers |= {"priority": "7", "correlation-id": "c-1", "reply-to": REPLY_TO["stomp"]}
        headers |= {"unit-of-order": "u-1", "expires": str(int((time.time() + LASTS) * 1000))}
        if form in _CONTENT_TYPES:
            headers["content-type"] = _CONTENT_TYPES[form]
        client._say("SEND", headers, raw)

    async def hear() -> Seen:
        command, headers, raw = await client._frame()
        assert command == "MESSAGE"
        assert int(headers["content-length"]) == len(raw)
        return Seen(
            **_read(raw, headers.get("content-type")),
            properties={name: headers[name].replace("\\c", ":") for name in TYPED if name in headers},
            priority=int(headers["priority"]),
            correlation=headers["correlation-id"],
            reply_to=headers["reply-to"],
            unit=headers["unit-of-order"],
            expires=is_due(int(headers["expires"]) / 1000),
        )

    return send, hear


async def by_mqtt(stage: Stage, topic: str, stack: AsyncExitStack) -> tuple[Send, Hear]:
    client = await stack.enter_async_context(
        aiomqtt.Client(stage.host, stage.port, protocol=aiomqtt.ProtocolVersion.V5)
    )
    await client.subscribe(topic, qos=1)

    async def send(to: str, form: Form) -> None:
        said = Properties(PacketTypes.PUBLISH)
        said.UserProperty = [*TEXTS.items(), ("priority", "7"), ("unit-of-order", "u-1")]
        said.CorrelationData = b"c-1"
        said.ResponseTopic = REPLY_TO["mqtt"]
        said.MessageExpiryInterval = LASTS
        if form in _CONTENT_TYPES:
            said.PayloadFormatIndicator = 1
        if _CONTENT_TYPES.get(form) == _JSON:
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
            properties={name: named[name] for name in TYPED if name in named},
            priority=int(named["priority"]),
            correlation=said.CorrelationData.decode(),
            reply_to=said.ResponseTopic,
            unit=named["unit-of-order"],
            expires=is_due(time.time() + said.MessageExpiryInterval),
        )

    return send, hear


async def by_amqp(stage: Stage, topic: str, stack: AsyncExitStack) -> tuple[Send, Hear]:
    client = await AmqpClient.connect(stage.host, stage.port)
    stack.callback(client.close)
    await client.subscribe(f"topic:{topic}")

    async def send(to: str, form: Form) -> None:
        body = None if form == "nothing" else BODIES[form]
        message = Message(body=body, inferred=form == "bytes", properties=TYPED)
        message.priority, message.correlation_id = 7, "c-1"
        message.reply_to, message.expiry_time = REPLY_TO["amqp"], time.time() + LASTS
        message.annotations = {symbol("x-opt-unit-of-order"): "u-1"}
        await client.send(f"topic:{to}", message)

    async def hear() -> Seen:
        message = await client.hear()
        body = message.body
        form: Form = "bytes"
        kinds: dict[type, Form] = {str: "text", dict: "map", list: "list", type(None): "nothing"}
        if type(body) in kinds:
            form = kinds[type(body)]
        else:
            body = bytes(body)
        assert message.inferred == (form == "bytes"), "data or a value"
        return Seen(
            form=form,
            body=b"" if body is None else body,
            properties={name: message.properties[name] for name in TYPED if name in message.properties},
            priority=message.priority,
            correlation=message.correlation_id,
            reply_to=message.reply_to,
            unit=message.annotations["x-opt-unit-of-order"],
            expires=is_due(message.expiry_time),
        )

    return send, hear


def _raw(form: Form) -> bytes:
    body = BODIES[form]
    return body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()


def _read(raw: bytes, content_type: str | None) -> dict[str, Any]:
    if content_type == _JSON:
        body = json.loads(raw)
        return {"form": "map" if isinstance(body, dict) else "list", "body": body}
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

    asyncio.run(asyncio.wait_for(story(), 150))
