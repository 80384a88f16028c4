"""Clustered consumers on Heliograph: a durable subscription for each member, and a topic for control.

A queue is consumed as one: the member that leads moves its messages, transaction by transaction, to a topic
of the cluster, of which every member has its copies. With `transacted=True` what a handler sends in
`message.session` takes effect together with the word that its message is done, or not at all.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from heliograph.clustered.adapter import Delivery, made
from heliograph.clustered.kept_words import NAME as KEPT
from heliograph.clustered.kept_words import KeptWords
from heliograph.clustered.licence import Licence
from heliograph.clustered.words import MemberKey
from heliograph.model import limits
from heliograph.model.errors import ClientFault, HeliographError, NotAllowed
from heliograph.model.large import LargeReference, decode_reference, encode_reference

if TYPE_CHECKING:
    from heliograph.client import Connection, Consumer, Message, Producer, Session

_POLL_SECONDS = 0.1
_SILENCE_SECONDS = 5.0
_BATCH = 500
_IN_USE_SECONDS = 90.0
ORIGINAL = "heliograph_clustered_id"
"""The property under which a moved message keeps its id."""
ORIGIN = "heliograph_clustered_origin"
"""And what else the server says of it anew (`Origin`)."""


class Heliograph:
    """One member's connection to a Heliograph server or cluster."""

    redelivers = True

    def __init__(self, url: str, source: str, *, transacted: bool = False, **options: Any) -> None:
        """`source`: `topic:NAME` or `queue:NAME`. `options` are those of `heliograph.connect`."""
        if source.partition(":")[0] not in ("topic", "queue"):
            raise ClientFault(f"{source[:60]!r} is no topic and no queue", code="invalid-name")
        self.transacts = transacted
        self._url = url
        self._source = source
        self._options = options
        self._words: deque[bytes] = deque()
        self._received = 0
        self._acknowledged = 0
        self._unacknowledged: dict[str, None] = {}
        self._parts = AsyncExitStack()
        self._copies: Consumer | None = None
        self._moving: asyncio.Task[None] | None = None
        self._licence: Licence | None = None
        self._kept: KeptWords | None = None
        self._words_kept: list[list[Message]] = []

    async def connect(self, cluster: str, member: MemberKey) -> None:
        from heliograph.client import connect

        self._cluster, self._member = cluster, member[0]
        self._control = f"topic:clustered.{cluster}.control"
        self._topic = self._source
        if self._source.startswith("queue:"):
            self._topic = f"topic:clustered.{cluster}.copies"
        lease = limits.CLUSTERED_LEASE_SECONDS
        # The server lets go of a member that stands still not much later than the others do.
        options = {"reconnect_seconds": lease, "heartbeat_seconds": lease / 2, **self._options}
        self._connection: Connection = await connect(
            self._url, client_id=self._client_id(member[0]), **options
        )
        self._parts.push_async_callback(self._connection.close)
        self._hearing: Consumer = await self._connection.consumer(self._control)
        self._saying: Producer = await self._connection.producer(self._control, persistent=False)
        if self.transacts:
            self._licence = Licence(self._connection, cluster, member, self._control)
            await self._licence.make()

    def _client_id(self, member: str) -> str:
        return f"clustered.{self._cluster}.{member}"

    # ---- control

    async def say(self, word: bytes) -> None:
        await self._saying.send(word)

    async def hear(self) -> bytes:
        while not self._words:
            if self._moving is not None and self._moving.done():
                self._moving.result()
            self._words.extend(_bytes_of(m.body) for m in await self._hearing.receive_batch(_BATCH))
        return self._words.popleft()

    # ---- copies

    async def subscribe(self, *, is_fresh: bool) -> None:
        self._session: Session = await self._connection.session(acknowledge="individual")
        async with asyncio.timeout(_IN_USE_SECONDS):
            if is_fresh:
                await _unsubscribed(self._session, "copies")
            if self.transacts:
                self._kept = KeptWords(self._session, self._control, self._words_waiting)
                await self._kept.subscribe()
            while self._copies is None:
                self._copies = await self._try_to_subscribe()

    async def _try_to_subscribe(self) -> Consumer | None:
        """None while the server still waits for an earlier life of this member to come back."""
        try:
            return await self._session.consumer(
                self._topic, durable="copies", credit=limits.CLUSTERED_HELD_MESSAGES
            )
        except ClientFault as error:
            if error.code != "subscription-in-use":
                raise
            await asyncio.sleep(_POLL_SECONDS)
            return None

    async def receive(self) -> list[Delivery]:
        assert self._copies is not None, "not subscribed"
        messages = await self._copies.receive_batch(_BATCH)
        # One that comes again after a connection was made anew is nothing that was waited for.
        self._received += sum(message.id not in self._unacknowledged for message in messages)
        self._unacknowledged.update((message.id, None) for message in messages)
        return [made(_delivery, message, body=b"", handle=message) for message in messages]

    async def acknowledge(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            if delivery.handle.id in self._unacknowledged:  # of several copies of one, it counts once
                del self._unacknowledged[delivery.handle.id]
                self._acknowledged += 1
            await delivery.handle.acknowledge()

    async def set_aside(self, deliveries: list[Delivery]) -> None:
        await self.acknowledge(deliveries)

    def opening(self, delivery: Delivery) -> Callable[[], Any]:
        reference = decode_reference(delivery.reference)
        return partial(self._session.open_large, delivery.destination, reference)

    async def caught_up(self) -> None:
        """By what the server says is waiting for this member; without the right to ask, when nothing comes."""
        wanted: int | None = None
        while wanted is None or self._received < wanted:
            before = self._acknowledged
            waiting = await self._waiting(self._topic, "copies", len(self._unacknowledged))
            waiting += (
                self._acknowledged - before
            )  # the server may have been told of these before it was asked
            if waiting == 0:
                return
            if wanted is None:
                wanted = self._received + waiting
            await asyncio.sleep(_POLL_SECONDS)

    async def _words_waiting(self, here: int) -> int:
        return await self._waiting(self._control, KEPT, here)

    async def _waiting(self, topic: str, name: str, here: int) -> int:
        """What the server still has for a subscription of mine, of which so much is here."""
        try:
            shown = await self._show(topic)
        except NotAllowed:
            return await self._coming()
        for each in shown["subscribers"]:
            if each["client"] == self._client_id(self._member) and each["name"] == name:
                return max(0, int(each["depth"]) + int(each["in_flight"]) - here)
        return await self._coming()  # only the first hundred subscribers are shown

    async def _show(self, topic: str) -> Any:
        """Asked again as long as nobody answers: while another server takes over, silence would mean nothing."""
        async with asyncio.timeout(_IN_USE_SECONDS):
            while True:
                try:
                    return await self._connection.ask("destination.show", destination=topic)
                except ClientFault:
                    raise
                except HeliographError:
                    await asyncio.sleep(_POLL_SECONDS)

    async def _coming(self) -> int:
        """How many came in so long a time. Silence is a guess: a server that hands out nothing for longer is not
        noticed, so a member should have the right to look at its destination."""
        before = self._received
        await asyncio.sleep(_SILENCE_SECONDS)
        return self._received - before

    async def discard(self, member: str) -> None:
        from heliograph.client import connect

        async with asyncio.timeout(_IN_USE_SECONDS):
            async with connect(self._url, client_id=self._client_id(member), **self._options) as connection:
                for name in ("copies", KEPT):
                    await _unsubscribed(connection, name)

    async def close(self, *, keeps_copies: bool) -> None:
        async with self._parts:  # whatever fails, the rest is closed, and the connection last
            if self._licence is not None:
                self._parts.push_async_callback(self._licence.close)
            if self._kept is not None:
                self._parts.push_async_callback(self._kept.close, keeps=keeps_copies)
            if self._copies is not None:
                if not keeps_copies:
                    self._parts.push_async_callback(self._session.unsubscribe, "copies")
                self._parts.push_async_callback(self._copies.close)
            await self.lead(False)

    # ---- a queue becomes copies

    async def lead(self, is_leader: bool) -> None:
        if is_leader and self._topic != self._source:
            self._moving = asyncio.create_task(self._move())
        elif self._moving is not None:
            self._moving.cancel()
            await asyncio.wait([self._moving])
            self._moving = None

    async def _move(self) -> None:
        async with await self._connection.session(acknowledge="transacted") as session:
            consumer = await session.consumer(self._source, credit=_BATCH)
            producer = await session.producer(self._topic)
            while True:
                for message in await consumer.receive_batch(_BATCH):
                    await _send_on(message, producer)
                with suppress(HeliographError):  # rolled back: it comes again
                    await session.commit()

    # ---- transactions

    async def begin(self) -> Session:
        assert self._licence is not None, "not transacted"
        return await self._licence.begin()

    async def commit(self, word: bytes) -> None:
        assert self._licence is not None, "not transacted"
        await self._licence.commit(word)

    async def roll_back(self) -> None:
        assert self._licence is not None, "not transacted"
        await self._licence.roll_back()

    async def kept_words(self) -> list[bytes]:
        assert self._kept is not None, "not subscribed"
        words = await self._kept.all_that_wait()
        self._words_kept.append(words)
        return [_bytes_of(word.body) for word in words]

    async def let_go(self) -> None:
        assert self._kept is not None, "not subscribed"
        for words in self._words_kept[:-1]:
            await self._kept.let_go(words)
        del self._words_kept[:-1]

    async def fence(self, key: MemberKey) -> None:
        assert self._licence is not None, "not transacted"
        await self._licence.fence(key)

    async def fence_all(self, spares: Callable[[MemberKey], bool]) -> None:
        assert self._licence is not None, "not transacted"
        await self._licence.fence_all(spares)


async def _unsubscribed(connection: Connection | Session, name: str) -> None:
    """Waits while the server still expects that member to come back."""
    while True:
        try:
            await connection.unsubscribe(name)
            return
        except ClientFault as error:
            if error.code != "subscription-in-use":
                return
        await asyncio.sleep(5 * _POLL_SECONDS)


def _bytes_of(body: Any) -> bytes:
    if isinstance(body, bytes):
        return body
    return body.encode() if isinstance(body, str) else msgspec.json.encode(body)


class Origin(msgspec.Struct, frozen=True, array_like=True):
    """Of a message that was moved from a queue: what it was there."""

    destination: str
    timestamp: float
    expiration: float
    redelivered: bool


def _delivery(message: Message) -> Delivery:
    properties = dict(message.properties)
    identity, raw = properties.pop(ORIGINAL, None), properties.pop(ORIGIN, None)
    there = Origin(message.destination, message.timestamp, message.expiration, redelivered=False)
    if raw is not None:
        there = msgspec.json.decode(str(raw), type=Origin)
    reference = message.body if isinstance(message.body, LargeReference) else None
    return Delivery(
        id=str(identity or message.id),
        body=_bytes_of(message.body) if reference is None else b"",
        destination=there.destination,
        persistent=message.persistent,
        timestamp=there.timestamp,
        type=message.type,
        expiration=there.expiration,
        priority=message.priority,
        unit_of_order=message.unit_of_order,
        correlation_id=message.correlation_id,
        properties=properties,
        redelivered=message.redelivered or there.redelivered,
        handle=message,
        copy=message.id,
        reference=b"" if reference is None else encode_reference(reference),
        open=None if reference is None else message.open,
    )


async def _send_on(message: Message, producer: Producer) -> None:
    """With as much of what it was as there is room for: it may have been as large as a message may be."""
    options = _options_of(message, time.time())
    for left_out in (ORIGIN, ORIGINAL):
        try:
            await producer.send(message.body, **options)
            return
        except ClientFault as fault:
            if fault.code not in ("head-too-large", "message-too-large"):
                raise
            del options["properties"][left_out]
    await producer.send(message.body, **options)


def _options_of(message: Message, now: float) -> dict[str, Any]:
    """Everything that a message says of itself, for its copy; it expires when it would have."""
    there = Origin(message.destination, message.timestamp, message.expiration, message.redelivered)
    options: dict[str, Any] = {
        "properties": {
            **message.properties,
            ORIGINAL: message.id,
            ORIGIN: msgspec.json.encode(there).decode(),
        },
        "correlation_id": message.correlation_id,
        "reply_to": message.reply_to,
        "type": message.type,
        "priority": message.priority,
        "persistent": message.persistent,
        "unit_of_order": message.unit_of_order,
        "group_id": message.group_id,
        "group_sequence": message.group_sequence,
    }
    if message.expiration:
        options["time_to_live"] = max(0.001, message.expiration - now)
    return {name: value for name, value in options.items() if value is not None}
