"""Clustered consumers on MQTT 5, through paho: a session for each member that outlasts its connection, and a
topic for control.

Producers give each message an id in the user property `message-id`. With `qos=1` the broker keeps what a
member has not acknowledged; it must allow as many messages in flight and queued as a member may hold
(Mosquitto: `max_inflight_messages 0`, `max_queued_messages 0`). With `qos=0` it keeps nothing, and only the
others' copies help.

paho runs in a thread of its own; everything it says crosses to the loop in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from heliograph.clustered.adapter import Delivery, made
from heliograph.clustered.arrivals import Arrivals
from heliograph.clustered.words import MemberKey
from heliograph.model import limits
from heliograph.model.errors import ClientFault

_FOR_EVER = 0xFFFFFFFF
_RECEIVE_MAXIMUM = 65_535
_CONNECT_SECONDS = 10.0
_KEEPALIVE_SECONDS = 10


class Mqtt:
    """One member's two connections to a broker: one for its copies, to which it may come back, one for control."""

    def __init__(
        self,
        host: str,
        port: int,
        topic: str,
        *,
        qos: int = 1,
        identity: Callable[[Any], str] | None = None,
        configure: Callable[[Any], None] | None = None,
    ) -> None:
        """`configure` is given each client before it connects: a user's name, TLS."""
        self.redelivers = qos > 0
        self._address = (host, port)
        self._topic = topic
        self._qos = qos
        self._identity = identity or _message_id
        self._configure = configure
        self._words: Arrivals[bytes] = Arrivals()
        self._copies: Arrivals[Delivery] = Arrivals()
        self._marks: dict[bytes, asyncio.Event] = {}
        self._talking: Any = None
        self._receiving: Any = None
        self._is_closing = False

    async def connect(self, cluster: str, member: MemberKey) -> None:
        self._loop = asyncio.get_running_loop()
        self._cluster, self._member = cluster, member[0]
        self._control = f"clustered/{cluster}/control"
        self._talking = await self._connected(
            f"control-{cluster}-{member[0]}-{member[1]}", False, self._heard
        )
        await self._subscribed(self._talking, self._control, 1)

    async def _connected(self, name: str, keeps: bool, on_message: Callable[[Any], None]) -> Any:
        from paho.mqtt.client import CallbackAPIVersion, Client, MQTTv5
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        client = Client(CallbackAPIVersion.VERSION2, client_id=name, protocol=MQTTv5, manual_ack=True)
        client.max_inflight_messages_set(0)
        client.max_queued_messages_set(0)
        if self._configure is not None:
            self._configure(client)
        answered: asyncio.Future[Any] = self._loop.create_future()
        client.on_connect = lambda _c, _u, _f, reason, _p: self._threadsafe(_settle, answered, reason)
        client.on_message = lambda _c, _u, message: self._threadsafe(on_message, message)
        client.on_publish = lambda _c, _u, _m, reason, _p: self._threadsafe(self._published, reason)
        client.on_disconnect = lambda *_: self._threadsafe(self._lost)
        terms = Properties(PacketTypes.CONNECT)
        terms.ReceiveMaximum = _RECEIVE_MAXIMUM
        terms.SessionExpiryInterval = _FOR_EVER if keeps else 0
        host, port = self._address
        try:
            await self._loop.run_in_executor(
                None,
                lambda: client.connect(
                    host, port, _KEEPALIVE_SECONDS, clean_start=not keeps, properties=terms
                ),
            )
            client.loop_start()
            async with asyncio.timeout(_CONNECT_SECONDS):
                reason = await answered
            if reason.is_failure:
                raise ConnectionError(f"the broker refused the connection: {reason}")
        except BaseException:
            await self._end(client)  # in its thread it would try again and again
            raise
        return client

    async def _end(self, client: Any) -> None:
        client.on_disconnect = None
        client.disconnect()
        await self._loop.run_in_executor(None, client.loop_stop)

    def _threadsafe(self, call: Callable[..., None], *arguments: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *arguments)

    async def _subscribed(self, client: Any, topic: str, qos: int) -> None:
        answered: asyncio.Future[Any] = self._loop.create_future()
        client.on_subscribe = lambda _c, _u, _m, reasons, _p: self._threadsafe(_settle, answered, reasons)
        client.subscribe(topic, qos=qos)
        async with asyncio.timeout(_CONNECT_SECONDS):
            for reason in await answered:
                if reason.is_failure:
                    raise ConnectionError(f"the broker refused the subscription to {topic}: {reason}")

    def _published(self, reason: Any) -> None:
        """Whoever may not publish would wait without end to hear itself."""
        if reason.is_failure:
            self._end_all(f"the broker refused a word or a mark of this member: {reason}")

    def _lost(self) -> None:
        self._end_all("the connection to the broker was lost")

    def _end_all(self, sentence: str) -> None:
        if not self._is_closing:
            error = ConnectionError(sentence)
            self._words.end(error)
            self._copies.end(error)

    # ---- control

    async def say(self, word: bytes) -> None:
        self._talking.publish(self._control, word, qos=1)

    def _heard(self, message: Any) -> None:
        self._talking.ack(message.mid, message.qos)
        self._words.add(message.payload)

    async def hear(self) -> bytes:
        return await self._words.one()

    # ---- copies

    def _session(self, member: str) -> str:
        return f"clustered-{self._cluster}-{member}"

    async def subscribe(self, *, is_fresh: bool) -> None:
        if is_fresh:
            await self.discard(self._member)
        self._receiving = await self._connected(self._session(self._member), self.redelivers, self._arrived)
        self._mark_topic = f"clustered/{self._cluster}/mark/{self._member}"
        await self._subscribed(self._receiving, self._mark_topic, 1)
        await self._subscribed(self._receiving, self._topic, self._qos)

    def _arrived(self, message: Any) -> None:
        if message.topic.startswith(f"clustered/{self._cluster}/mark/"):
            self._receiving.ack(message.mid, message.qos)
            if message.payload in self._marks:
                self._copies.add_mark(self._marks[message.payload])
            return
        if not self.redelivers and len(self._copies) >= limits.CLUSTERED_HELD_MESSAGES:
            self._end_all(
                f"{limits.CLUSTERED_HELD_MESSAGES} copies wait for this member, and with quality of service 0 the"
                " broker waits for nobody"
            )
            return
        self._copies.add(made(self._delivery, message, body=message.payload, handle=message))

    async def receive(self) -> list[Delivery]:
        return await self._copies.some()

    async def acknowledge(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            if delivery.handle.qos:
                self._receiving.ack(delivery.handle.mid, delivery.handle.qos)

    async def set_aside(self, deliveries: list[Delivery]) -> None:
        await self.acknowledge(deliveries)

    async def caught_up(self) -> None:
        """A mark through my own session comes behind everything that waits in it."""
        mark = uuid4().bytes
        event = self._marks[mark] = asyncio.Event()
        self._receiving.publish(self._mark_topic, mark, qos=1)
        await event.wait()
        del self._marks[mark]

    async def lead(self, is_leader: bool) -> None: ...

    async def discard(self, member: str) -> None:
        """To begin a session anew and to end it is all there is."""
        client = await self._connected(self._session(member), False, lambda _message: None)
        await self._end(client)

    async def close(self, *, keeps_copies: bool) -> None:
        self._is_closing = True
        for client in (self._talking, self._receiving):
            if client is not None:
                await self._end(client)
        if not keeps_copies and self._receiving is not None and self.redelivers:
            await self.discard(self._member)

    def _delivery(self, message: Any) -> Delivery:
        properties = dict(getattr(message.properties, "UserProperty", None) or [])
        return Delivery(
            id=self._identity(message),
            body=message.payload,
            destination=message.topic,
            persistent=message.qos > 0,
            type=properties.get("type"),
            unit_of_order=properties.get("unit_of_order"),
            correlation_id=_correlation(message) or properties.get("correlation_id"),
            properties=properties,
            redelivered=bool(message.dup),
            handle=message,
            copy=message.mid if message.qos else None,
        )


def _settle(future: asyncio.Future[Any], outcome: Any) -> None:
    if not future.done():
        future.set_result(outcome)


def _correlation(message: Any) -> str | None:
    """MQTT's own, which is bytes."""
    data = getattr(message.properties, "CorrelationData", None)
    return None if data is None else data.decode(errors="replace")


def _message_id(message: Any) -> str:
    properties = dict(getattr(message.properties, "UserProperty", None) or [])
    identity = properties.get("message-id", "")
    if not identity or len(identity) > limits.CLUSTERED_ID_BYTES:
        raise ClientFault(
            "a message without the user property message-id cannot be told from another: set it, or give an identity",
            code="message-without-id",
        )
    return str(identity)
