"""Clustered consumers on Redis, through redis-py: a consumer group for each member of a stream, and a channel
for control.

An entry's id is the message's; its field `body` is the body, all others are properties. `RedisChannel`
consumes a publish/subscribe channel instead, which keeps nothing: what a member did not hear it never will,
and only the others' copies help.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import uuid4

from heliograph.clustered.adapter import Delivery, made
from heliograph.clustered.words import MemberKey
from heliograph.model.errors import ClientFault

_BATCH = 256
_BLOCK_MILLISECONDS = 1_000
_POLL_SECONDS = 0.1


class _Redis:
    """What both have: a connection, and control by publish/subscribe."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def connect(self, cluster: str, member: MemberKey) -> None:
        from redis.asyncio import Redis

        self._cluster, self._member = cluster, member[0]
        self._redis: Any = Redis.from_url(self._url)
        self._control = f"clustered:{cluster}:control"
        self._hearing: Any = self._redis.pubsub()
        await self._hearing.subscribe(self._control)

    async def say(self, word: bytes) -> None:
        await _answered(self._redis.publish(self._control, word))

    async def hear(self) -> bytes:
        return (await _next_message(self._hearing))[1]

    async def lead(self, is_leader: bool) -> None: ...

    async def _close(self) -> None:
        try:
            await self._hearing.aclose()
        finally:
            await self._redis.aclose()


async def _answered(call: Awaitable[Any]) -> Any:
    """Its outcome. The library may swallow a cancellation that hits it while it reads; its caller must not go on."""
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()
    outcome = await call
    if task is not None and task.cancelling() > before:
        raise asyncio.CancelledError
    return outcome


async def _next_message(subscription: Any) -> tuple[str, bytes]:
    """The channel, and what was published to it."""
    while True:
        message = await _answered(subscription.get_message(ignore_subscribe_messages=True, timeout=None))
        if message is not None and message["type"] == "message":
            return message["channel"].decode(), bytes(message["data"])


class RedisStream(_Redis):
    """One member's connection to a server with the stream."""

    redelivers = True

    def __init__(self, url: str, stream: str, *, begins_with_all: bool = False) -> None:
        super().__init__(url)
        self._stream = stream
        self._begins_with_all = begins_with_all
        self._last = (0, 0)
        self._after = b"0"  # first what an earlier life had received, then what is new

    def _group(self, member: str) -> str:
        return f"clustered:{self._cluster}:{member}"

    async def subscribe(self, *, is_fresh: bool) -> None:
        from redis.exceptions import ResponseError

        if is_fresh:
            await self.discard(self._member)
        begin = "0" if self._begins_with_all and not is_fresh else "$"
        try:
            await _answered(
                self._redis.xgroup_create(self._stream, self._group(self._member), begin, mkstream=True)
            )
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise
        about = await _answered(self._redis.xinfo_groups(self._stream))
        mine = next(each for each in about if each["name"] == self._group(self._member).encode())
        self._last = _place(mine["last-delivered-id"])

    async def receive(self) -> list[Delivery]:
        while True:
            place = self._after if self._after != b">" else ">"
            group = self._group(self._member)
            wanted = {self._stream: place}
            reading = self._redis.xreadgroup(group, "member", wanted, _BATCH, _BLOCK_MILLISECONDS)
            found = await _answered(reading)
            read = _entries(found)
            is_again = self._after != b">"
            if is_again:
                self._after = read[-1][0] if read else b">"
            elif read:
                self._last = _place(read[-1][0])
            entries = [(identity, fields) for identity, fields in read if fields]
            if len(entries) < len(read):  # deleted, or trimmed away: nothing comes of them any more
                gone = [identity for identity, fields in read if not fields]
                await _answered(self._redis.xack(self._stream, group, *gone))
            if entries:
                make = partial(self._delivery, is_again=is_again)
                return [made(make, each, body=each[1].get(b"body", b""), handle=each[0]) for each in entries]

    async def acknowledge(self, deliveries: list[Delivery]) -> None:
        if deliveries:
            ids = [delivery.handle for delivery in deliveries]
            await _answered(self._redis.xack(self._stream, self._group(self._member), *ids))

    async def set_aside(self, deliveries: list[Delivery]) -> None:
        """They stay in the stream, and are not delivered again."""
        await self.acknowledge(deliveries)

    async def caught_up(self) -> None:
        about = await _answered(self._redis.xinfo_stream(self._stream))
        target = about["last-generated-id"]
        while self._after != b">" or await self._is_something_left(target):
            await asyncio.sleep(_POLL_SECONDS)

    async def _is_something_left(self, target: bytes) -> bool:
        """Up to that id. The newest entries may have been deleted, before or since: those never come."""
        if self._last >= _place(target):
            return False
        behind = "(" + "-".join(map(str, self._last))
        return bool(await _answered(self._redis.xrange(self._stream, behind, target, 1)))

    async def discard(self, member: str) -> None:
        from redis.exceptions import ResponseError

        with suppress(ResponseError):
            await _answered(self._redis.xgroup_destroy(self._stream, self._group(member)))

    async def close(self, *, keeps_copies: bool) -> None:
        if not keeps_copies:
            await self.discard(self._member)
        await self._close()

    def _delivery(self, entry: tuple[bytes, dict[bytes, bytes]], *, is_again: bool) -> Delivery:
        identity, fields = entry
        properties = {
            name.decode(errors="backslashreplace"): value.decode(errors="replace")
            for name, value in fields.items()
            if name != b"body"
        }
        return Delivery(
            id=identity.decode(),
            body=fields.get(b"body", b""),
            destination=self._stream,
            timestamp=_place(identity)[0] / 1000,
            type=properties.get("type"),
            unit_of_order=properties.get("unit_of_order"),
            correlation_id=properties.get("correlation_id"),
            properties=properties,
            redelivered=is_again,
            handle=identity,
        )


def _entries(found: Any) -> list[tuple[bytes, dict[bytes, bytes] | None]]:
    """Of one stream, in the order read; both shapes of answer that the library gives. What is not there any more has
    no fields."""
    if not found:
        return []
    streams = found.values() if isinstance(found, dict) else [entries for _, entries in found]
    read: list[tuple[bytes, dict[bytes, bytes] | None]] = []
    for entries in streams:
        for entry in entries:
            read += entry if isinstance(entry, list) else [entry]
    return read


def _place(identity: bytes | str) -> tuple[int, int]:
    text = identity.decode() if isinstance(identity, bytes) else identity
    first, _, second = text.partition("-")
    return int(first), int(second or 0)


class RedisChannel(_Redis):
    """One member's subscription to a channel. Use it with `Acknowledge.NONE`."""

    redelivers = False

    def __init__(self, url: str, channel: str, *, identity: Callable[[bytes], str]) -> None:
        """`identity` finds the id in a payload: a channel gives its messages none."""
        super().__init__(url)
        self._channel = channel
        self._identity = identity
        self._copies: Any = None
        self._marks: dict[bytes, asyncio.Event] = {}

    async def subscribe(self, *, is_fresh: bool) -> None:
        self._mark = f"clustered:{self._cluster}:mark:{self._member}"
        self._copies = self._redis.pubsub()
        await self._copies.subscribe(self._channel, self._mark)

    async def receive(self) -> list[Delivery]:
        while True:
            channel, body = await _next_message(self._copies)
            if channel != self._mark:
                return [made(self._delivery, body, body=body, handle=None)]
            if body in self._marks:
                self._marks[body].set()

    def _delivery(self, body: bytes) -> Delivery:
        return Delivery(id=self._identity(body), body=body, destination=self._channel, persistent=False)

    async def acknowledge(self, deliveries: list[Delivery]) -> None:
        raise ClientFault(
            "a channel takes no acknowledgements: use Acknowledge.NONE", code="no-acknowledgements"
        )

    async def set_aside(self, deliveries: list[Delivery]) -> None: ...

    async def caught_up(self) -> None:
        """A mark by the same connection comes behind everything that was published before it."""
        mark = uuid4().bytes
        event = self._marks[mark] = asyncio.Event()
        await _answered(self._redis.publish(self._mark, mark))
        await event.wait()
        del self._marks[mark]

    async def discard(self, member: str) -> None: ...

    async def close(self, *, keeps_copies: bool) -> None:
        try:
            if self._copies is not None:
                await self._copies.aclose()
        finally:
            await self._close()
