"""A client that misbehaves in a process of its own: `python -m tests.suites.disturber KIND URL`.

It prints `ready` once its bad behaviour has begun, and goes on until it is killed.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

import uvloop

from heliograph.client import Consumer, Producer, connect
from heliograph.frontends.native import frames
from heliograph.model.limits import MIB

HUGE_BYTES = 7 * MIB
FEED = bytes(1024)
# Its own queue, which grows while the flood is faster than its consumer, is kept to this many messages.
FLOOD_BACKLOG = 50_000
# How clients of each protocol begin.
_GREETINGS = (
    frames.PREAMBLE + b"\x00\x0f\x00\x00" + bytes(100),
    b"CONNECT\naccept-version:1.2\nhost:" + b"x" * 100,
    b"\x10\xff\x1e\x00\x04MQTT\x05\x02\x00\x3c" + bytes(100),
    b"AMQP\x03\x01\x00\x00\x00\x00\x0f\x00\x02\x01" + bytes(100),
    b"GET / HTTP/1.1\r\nX-Header: " + b"x" * 100,
    b"\x16\x03\x01\x0f\x00\x01\x00\x0e\xfc\x03\x03" + bytes(100),
)


async def huge(url: str) -> None:
    """Sends bodies of 7 MiB as fast as they are taken, and consumes them, so that disks do not fill."""
    async with connect(url, client_name="huge") as connection:
        consumer = await connection.consumer("queue:huge", credit=4)
        producer = await connection.producer("queue:huge")
        body = bytes(HUGE_BYTES)
        await producer.send_confirmed(body)
        await _both(consumer, lambda: producer.send(body))


async def flood(url: str) -> None:
    """Sends small messages to a queue of its own at full speed, and consumes them."""
    async with connect(url, client_name="flood") as connection:
        consumer = await connection.consumer("queue:flood")
        producer = await connection.producer("queue:flood")
        received = 0
        sent = 0

        async def send_many() -> None:
            nonlocal sent
            while sent - received > FLOOD_BACKLOG:
                await asyncio.sleep(0)
            for _ in range(1000):
                await producer.send(FEED)
            sent += 1000
            await asyncio.sleep(0)

        async def receive_all() -> None:
            nonlocal received
            while True:
                received += len(await consumer.receive_batch())

        await send_many()
        await producer.flush()
        receiving = asyncio.create_task(receive_all())
        _ready()
        while True:
            await send_many()
            if receiving.done():
                receiving.result()


async def blocked(url: str) -> None:
    """Subscribes to a queue and a topic with as much credit as there is, never reads, and feeds both."""
    line = await asyncio.to_thread(_subscribe_and_never_read, url)
    async with connect(url, client_name="feeder") as connection:
        queue = await connection.producer("queue:blocked")
        topic = await connection.producer("topic:blocked", persistent=False)
        for _ in range(20_000):
            await queue.send(FEED)
            await topic.send(FEED)
        await queue.flush()
        await topic.flush()
        _ready()
        while True:
            await _send_some(queue, 200)
            await _send_some(topic, 200)
            await asyncio.sleep(0.02)
    line.close()


def _subscribe_and_never_read(url: str) -> socket.socket:
    host, _, port = url.removeprefix("helio://").partition(":")
    line = socket.create_connection((host, int(port)))
    # A small window, so that the server's bytes pile up at the server.
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    reader = frames.FrameReader()

    def ask(message: frames.Control) -> object:
        line.sendall(frames.control_frame(message))
        while True:
            for kind, _flags, _number, payload in reader.feed(line.recv(65536)):
                if kind == frames.CONTROL:
                    return frames.decode_from_server(payload)

    line.sendall(frames.PREAMBLE)
    # It shows its life now and then, or the server would rightly end it.
    welcome = ask(frames.Hello(client="blocked", heartbeat_seconds=3600))
    assert isinstance(welcome, frames.Welcome), welcome
    assert isinstance(ask(frames.OpenSession(request=1, number=1)), frames.SessionOpened)
    for number, destination in enumerate(("queue:blocked", "topic:blocked"), start=1):
        subscribe = frames.Subscribe(
            request=1 + number, number=1, consumer=number, destination=destination, credit=1_000_000
        )
        assert isinstance(ask(subscribe), frames.Completed)
    return line


async def _send_some(producer: Producer, count: int) -> None:
    for _ in range(count):
        await producer.send(FEED)
    await producer.flush()


async def _both(consumer: Consumer, send: Callable[[], Awaitable[None]]) -> None:
    async def receive_all() -> None:
        while True:
            await consumer.receive_batch()

    receiving = asyncio.create_task(receive_all())
    _ready()
    while True:
        await send()
        if receiving.done():
            receiving.result()


def _ready() -> None:
    print("ready", flush=True)


async def door(url: str, count: str) -> None:
    """Keeps so many connections open on which nobody ever says who it is. Most are silent; one in five says a
    letter of a greeting now and then, in one protocol or another. What is dropped is opened again.

    It is ready when each was opened once. Then it prints how things stand, again and again: how many are open, and
    how many were opened since it began.
    """
    host, _, port = url.removeprefix("helio://").partition(":")
    crowd = Crowd(host, int(port), int(count))
    while len(crowd.lines) < crowd.count:
        await crowd.open_missing()
    _ready()
    while True:
        print(f"{crowd.open} open, {crowd.opened} opened", flush=True)
        await asyncio.sleep(0.5)
        crowd.say_a_letter()
        await crowd.open_missing()


class Crowd:
    """Connections by number; of one that was dropped the next has the number."""

    def __init__(self, host: str, port: int, count: int) -> None:
        self._at = (host, port)
        self.count = count
        self.lines: dict[int, asyncio.Transport] = {}
        self._spoken: dict[int, int] = {}
        self.opened = 0

    @property
    def open(self) -> int:
        return sum(not line.is_closing() for line in self.lines.values())

    async def _open(self, number: int) -> None:
        with suppress(OSError):  # it is tried again
            loop = asyncio.get_running_loop()
            self.lines[number], _ = await loop.create_connection(asyncio.Protocol, *self._at)
            self._spoken[number] = 0
            self.opened += 1

    async def open_missing(self) -> None:
        missing = [
            number
            for number in range(self.count)
            if number not in self.lines or self.lines[number].is_closing()
        ]
        for start in range(0, len(missing), 50):
            await asyncio.gather(*map(self._open, missing[start : start + 50]))
            await asyncio.sleep(0.02)

    def say_a_letter(self) -> None:
        for number in range(0, self.count, 5):
            if number in self.lines and not self.lines[number].is_closing():
                greeting = _GREETINGS[number // 5 % len(_GREETINGS)]
                spoken = self._spoken[number]
                self.lines[number].write(greeting[spoken : spoken + 1])
                self._spoken[number] += 1


KINDS: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {
    "huge": huge,
    "flood": flood,
    "blocked": blocked,
    "door": door,
}

if __name__ == "__main__":
    uvloop.run(KINDS[sys.argv[1]](*sys.argv[2:]))
