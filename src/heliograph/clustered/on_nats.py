"""Clustered consumers on NATS, through nats-py: a durable JetStream consumer for each member, and a plain
subject for control.

A message's id is its place in the stream, which all copies share. A plain subject hands a word to everybody
who listens, once; whoever misses one knows by its number and begins again.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from heliograph.clustered.adapter import Delivery, made
from heliograph.clustered.arrivals import Arrivals
from heliograph.clustered.words import MemberKey
from heliograph.model import limits

_BATCH = 256
_WAIT_SECONDS = 5.0
_POLL_SECONDS = 0.1
# What a member that died had received comes again to its next life after so long. Repeated copies are passed over.
_ACK_WAIT_SECONDS = 30.0


class NatsJetStream:
    """One member's connection to a server or cluster with JetStream."""

    redelivers = True

    def __init__(self, url: str, stream: str, *, subject: str = ">", begins_with_all: bool = False) -> None:
        """`stream` exists; `subject` chooses among its subjects. `begins_with_all`: with what is there already."""
        self._url = url
        self._stream = stream
        self._subject = subject
        self._begins_with_all = begins_with_all
        self._words: Arrivals[bytes] = Arrivals()
        self._last = 0
        self._old: dict[int, None] = {}
        self._old_count = self._old_until = 0
        self._copies: Any = None
        self._discarding = 0

    async def connect(self, cluster: str, member: MemberKey) -> None:
        import nats

        self._member = member[0]
        self._cluster = cluster
        self._connection = await nats.connect(
            self._url, allow_reconnect=False, closed_cb=self._lost, error_cb=self._failed
        )
        self._streams = self._connection.jetstream()
        self._control = f"clustered.{cluster}.control"
        await self._connection.subscribe(self._control, cb=self._heard)
        await self._connection.flush()

    async def _lost(self) -> None:
        self._words.end(ConnectionError("the connection to NATS was lost"))

    async def _failed(self, error: Exception) -> None:
        """Told by the client, as when a user has not the right to publish: whoever went on would wait without end to
        hear itself. A slow consumer goes on until the gap in the words shows it; headers that cannot be read are the
        message's fault."""
        from nats import errors

        is_harmless = isinstance(error, errors.SlowConsumerError | errors.BadHeaderError)
        if isinstance(error, errors.Error | OSError) and not is_harmless and not self._discarding:
            self._words.end(ConnectionError(f"NATS refused what this member does: {error}"))

    def _name(self, member: str) -> str:
        return f"clustered-{self._cluster}-{member}"

    # ---- control

    async def say(self, word: bytes) -> None:
        await self._connection.publish(self._control, word)

    async def _heard(self, message: Any) -> None:
        self._words.add(message.data)

    async def hear(self) -> bytes:
        return await self._words.one()

    # ---- copies

    async def subscribe(self, *, is_fresh: bool) -> None:
        from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

        if is_fresh:
            await self.discard(self._member)
        begin = DeliverPolicy.ALL if self._begins_with_all and not is_fresh else DeliverPolicy.NEW
        name = self._name(self._member)
        terms = ConsumerConfig(
            durable_name=name,
            deliver_policy=begin,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=_ACK_WAIT_SECONDS,
            max_ack_pending=limits.CLUSTERED_HELD_MESSAGES,
            filter_subject=self._subject,
        )
        if not await self._is_there(name):
            await self._streams.add_consumer(self._stream, terms)
        info = await self._streams.consumer_info(self._stream, name)
        self._old_count = info.num_ack_pending or 0
        self._old_until = info.delivered.stream_seq if info.delivered else 0
        self._copies = await self._streams.pull_subscribe_bind(durable=name, stream=self._stream)

    async def _is_there(self, name: str) -> bool:
        from nats.js.errors import NotFoundError

        with suppress(NotFoundError):
            await self._streams.consumer_info(self._stream, name)
            return True
        return False

    async def receive(self) -> list[Delivery]:
        while True:
            with suppress(TimeoutError):
                messages = await self._copies.fetch(_BATCH, timeout=_WAIT_SECONDS)
                if messages:
                    deliveries = [
                        made(self._delivery, message, body=message.data, handle=message)
                        for message in messages
                    ]
                    places = [int(message.metadata.sequence.stream) for message in messages]
                    self._last = max(self._last, *places)
                    self._old.update((place, None) for place in places if place <= self._old_until)
                    return deliveries
            # Silence may mean that somebody deleted the consumer: then this raises.
            await self._streams.consumer_info(self._stream, self._name(self._member))

    async def acknowledge(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            await delivery.handle.ack()

    async def set_aside(self, deliveries: list[Delivery]) -> None:
        """They stay in the stream, and are not delivered again."""
        for delivery in deliveries:
            await delivery.handle.term()

    async def caught_up(self) -> None:
        """By what the server says: the last place of the stream, and how much an earlier life had in its hands.

        That comes again in any order, when the time to acknowledge it is over, behind what is new.
        """
        while len(self._old) < self._old_count:
            consumer = await self._streams.consumer_info(self._stream, self._name(self._member))
            if consumer.ack_floor and consumer.ack_floor.stream_seq >= self._old_until:
                break
            await asyncio.sleep(_POLL_SECONDS)
        info = await self._streams.stream_info(self._stream)
        target = info.state.last_seq
        while self._last < target:
            consumer = await self._streams.consumer_info(self._stream, self._name(self._member))
            delivered = consumer.delivered.stream_seq if consumer.delivered else 0
            if consumer.num_pending == 0 and self._last >= delivered:
                return  # the rest of the stream is of other subjects, or older than this consumer
            if consumer.num_pending == 0 and consumer.num_ack_pending == 0:
                return
            await asyncio.sleep(_POLL_SECONDS)

    async def lead(self, is_leader: bool) -> None: ...

    async def discard(self, member: str) -> None:
        from nats.js.errors import NotFoundError

        self._discarding += 1  # who may not do that fails here, and need not end
        try:
            with suppress(NotFoundError):
                await self._streams.delete_consumer(self._stream, self._name(member))
        finally:
            self._discarding -= 1

    async def close(self, *, keeps_copies: bool) -> None:
        if not keeps_copies:
            await self.discard(self._member)
        await self._connection.flush()
        await self._connection.close()

    def _delivery(self, message: Any) -> Delivery:
        headers = dict(message.headers or {})
        about = message.metadata
        return Delivery(
            id=f"{self._stream}:{about.sequence.stream}",
            body=message.data,
            destination=message.subject,
            timestamp=about.timestamp.timestamp(),
            type=headers.get("type"),
            unit_of_order=headers.get("unit_of_order"),
            correlation_id=headers.get("correlation_id"),
            properties=headers,
            redelivered=about.num_delivered > 1,
            handle=message,
        )
