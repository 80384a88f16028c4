"""Clustered consumers on RabbitMQ, through aio-pika: a durable queue for each member, bound to the exchange that
it consumes, and a fan-out exchange for control.

Producers give each message a `message_id`: the copies in the queues of several members have nothing else in
common. Queues exist from the moment that a member first enters; what was published before is not theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4

from heliograph.clustered.adapter import Delivery, made
from heliograph.clustered.arrivals import Arrivals
from heliograph.clustered.words import MemberKey
from heliograph.model import limits
from heliograph.model.errors import ClientFault

_MARK = "heliograph-clustered-mark"
# A message that was routed before a queue was bound may reach the other queues a moment after.
_ROUTING_SECONDS = 0.2
# How long an earlier life may still be connected, and how often to look.
_IN_USE_SECONDS = 90.0
_POLL_SECONDS = 0.2
# How long a broker that stands still may keep what was taken from being acknowledged when a member closes.
_CLOSING_SECONDS = 2.0
# A mark that does not come back in so long went to a queue that is not there any more.
_MARK_SECONDS = 300.0


class RabbitMQ:
    """One member's connection to a broker. `acknowledges=False`: the broker forgets a copy when the member
    has taken it. It is acknowledged even so, by the adapter: otherwise the broker would send without end."""

    def __init__(
        self,
        url: str,
        exchange: str,
        *,
        routing_key: str = "#",
        identity: Callable[[Any], str] | None = None,
        acknowledges: bool = True,
    ) -> None:
        """`exchange` exists, of whatever type; queues are bound to it with `routing_key`."""
        self.redelivers = acknowledges
        self._url = url
        self._exchange = exchange
        self._routing_key = routing_key
        self._identity = identity or _message_id
        self._words: Arrivals[bytes] = Arrivals()
        self._copies: Arrivals[Delivery] = Arrivals()
        self._marks: dict[str, asyncio.Event] = {}
        self._talking: Any = None
        self._connection: Any = None
        self._queue: Any = None
        self._acknowledging: asyncio.Task[None] | None = None

    async def connect(self, cluster: str, member: MemberKey) -> None:
        import aio_pika

        self._aio_pika = aio_pika
        self._cluster, self._member = cluster, member[0]
        # A connection of its own: words must not queue up behind thousands of copies, or the lease runs out.
        self._talking = await aio_pika.connect(self._url)
        self._connection = await aio_pika.connect(self._url)
        for connection in (self._talking, self._connection):
            connection.close_callbacks.add(self._lost)
        self._channel = await self._talking.channel(publisher_confirms=False)
        self._control = await self._channel.declare_exchange(f"clustered.{cluster}.control", "fanout")
        hearing = await self._channel.declare_queue(exclusive=True)
        await hearing.bind(self._control)
        await hearing.consume(self._heard, no_ack=True)

    def _lost(self, *_: Any) -> None:
        error = ConnectionError("the connection to RabbitMQ was lost")
        self._words.end(error)
        self._copies.end(error)

    def _name(self, member: str) -> str:
        return f"clustered.{self._cluster}.{member}"

    # ---- control

    async def say(self, word: bytes) -> None:
        await self._control.publish(self._aio_pika.Message(word), routing_key="")

    async def _heard(self, message: Any) -> None:
        self._words.add(message.body)

    async def hear(self) -> bytes:
        return await self._words.one()

    # ---- copies

    async def subscribe(self, *, is_fresh: bool) -> None:
        async with asyncio.timeout(_IN_USE_SECONDS):
            while not await self._try_to_subscribe(is_fresh):
                await asyncio.sleep(_POLL_SECONDS)

    async def _try_to_subscribe(self, is_fresh: bool) -> bool:
        """False while the broker still has a consumer of an earlier life: the two would share the copies."""
        self._receiving = await self._connection.channel(publisher_confirms=False)
        await self._receiving.set_qos(prefetch_count=limits.CLUSTERED_HELD_MESSAGES)
        if is_fresh:
            await self._receiving.queue_delete(self._name(self._member))
        self._queue = await self._receiving.declare_queue(self._name(self._member), durable=True)
        await self._queue.bind(self._exchange, routing_key=self._routing_key)
        await self._notice_deletion()
        try:
            self._tag = await self._queue.consume(self._arrived, exclusive=True)
        except self._aio_pika.exceptions.ChannelClosed as refusal:
            if "exclusive use" not in str(refusal):
                raise
            return False
        return True

    async def _notice_deletion(self) -> None:
        """Somebody may delete the queue, and a member without copies is of no use. Older clients say nothing."""
        channel = await self._receiving.get_underlay_channel()
        callbacks = getattr(channel, "on_consumer_cancel_callbacks", None)
        if callbacks is not None:
            callbacks.add(self._lost)

    async def _arrived(self, message: Any) -> None:
        mark = (message.headers or {}).get(_MARK)
        if mark is not None:
            await message.ack()
            if mark in self._marks:
                self._copies.add_mark(self._marks[mark])
            return
        self._copies.add(made(self._delivery, message, body=message.body, handle=message))

    async def receive(self) -> list[Delivery]:
        if self._acknowledging is not None:
            await asyncio.shield(self._acknowledging)
        deliveries = await self._copies.some()
        if not self.redelivers:
            # What was taken is handed over at once: whoever is told that it has caught up looks at what is held.
            self._acknowledging = asyncio.create_task(self._acknowledge(deliveries))
        return deliveries

    async def acknowledge(self, deliveries: list[Delivery]) -> None:
        if self.redelivers:
            await self._acknowledge(deliveries)

    async def _acknowledge(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            await delivery.handle.ack()

    async def set_aside(self, deliveries: list[Delivery]) -> None:
        """Rejected: where a policy gives the queue a dead-letter exchange, they go there."""
        if self.redelivers:
            for delivery in deliveries:
                await delivery.handle.reject(requeue=False)

    async def caught_up(self) -> None:
        """A mark through my own queue comes behind everything that is in it."""
        mark = uuid4().hex
        event = self._marks[mark] = asyncio.Event()
        await asyncio.sleep(_ROUTING_SECONDS)
        word = self._aio_pika.Message(b"", headers={_MARK: mark})
        await self._channel.default_exchange.publish(word, routing_key=self._name(self._member))
        async with asyncio.timeout(_MARK_SECONDS):
            await event.wait()
        del self._marks[mark]

    async def lead(self, is_leader: bool) -> None: ...

    async def discard(self, member: str) -> None:
        channel = await self._connection.channel()
        with suppress(
            self._aio_pika.exceptions.ChannelPreconditionFailed
        ):  # it is used: its member came back
            await channel.queue_delete(self._name(member), if_unused=True)
            await channel.close()

    async def close(self, *, keeps_copies: bool) -> None:
        if self._acknowledging is not None:
            with suppress(Exception):  # what is not acknowledged comes again, marked
                async with asyncio.timeout(_CLOSING_SECONDS):
                    await self._acknowledging
        if not keeps_copies and self._queue is not None:
            with suppress(Exception):
                await self._queue.cancel(self._tag)
                await self._queue.delete(if_unused=False, if_empty=False)
        for connection in (self._connection, self._talking):
            if connection is not None:
                await connection.close()

    def _delivery(self, message: Any) -> Delivery:
        headers = dict(message.headers or {})
        return Delivery(
            id=self._identity(message),
            body=message.body,
            destination=message.exchange or "",
            persistent=message.delivery_mode == 2,
            timestamp=message.timestamp.timestamp() if message.timestamp else 0.0,
            type=message.type,
            expiration=float(message.expiration or 0.0),
            priority=message.priority or 0,
            unit_of_order=_text(headers.get("unit_of_order")),
            correlation_id=message.correlation_id,
            properties=headers,
            redelivered=bool(message.redelivered),
            handle=message,
            copy=message.delivery_tag,
        )


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _message_id(message: Any) -> str:
    if not message.message_id:
        raise ClientFault(
            "a message without message_id cannot be told from another: set it, or say how to find an id",
            code="message-without-id",
        )
    return str(message.message_id)
