"""Clients of other protocols that do not behave: they do not read, do not stop, or do not say who they are. Others
do not notice, and the server's memory stays as it is."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import suppress
from pathlib import Path

import pytest

import heliograph
from heliograph.frontends.native.frames import PREAMBLE
from tests.authority import Authority, needs_openssl
from tests.interop.stage import Stage, wait_for
from tests.servers import ServerProcess

pytestmark = [pytest.mark.req("X2", "M7"), pytest.mark.slow]
CONNECT = b"CONNECT\naccept-version:1.2\n\n\0"
MQTT_CONNECT = b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04deaf"


def dial(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=20)


@pytest.mark.parametrize(
    ("connect", "subscribe"),
    [
        (CONNECT, b"SUBSCRIBE\nid:1\ndestination:/topic/flood\n\n\0"),
        pytest.param(MQTT_CONNECT, b"\x82\x0a\x00\x01\x00\x05flood\x00", marks=pytest.mark.nightly),
    ],
    ids=["stomp", "mqtt"],
)
def test_a_subscriber_that_does_not_read_costs_no_memory_and_slows_nobody(
    tmp_path: Path, connect: bytes, subscribe: bytes
) -> None:
    async def story() -> None:
        settings = {"memory.resident_bytes": 16 * 1024 * 1024}
        async with ServerProcess(tmp_path, settings) as server:
            with dial(server.port) as deaf:
                deaf.sendall(connect)
                assert await asyncio.to_thread(deaf.recv, 1000)
                deaf.sendall(subscribe)
                async with heliograph.connect(server.url) as connection:
                    consumer = await connection.consumer("topic:flood")
                    producer = await connection.producer("topic:flood")
                    await producer.send(b"x" * 1024)
                    await consumer.receive(timeout=30)
                    before = server.rss_bytes()
                    for _ in range(60_000):
                        await producer.send(b"x" * 1024)
                    await producer.flush()
                    for _ in range(60_000):
                        assert await consumer.receive(timeout=30) is not None
                    assert server.rss_bytes() - before < 80 * 1024 * 1024

    asyncio.run(asyncio.wait_for(story(), 150))


def test_who_does_not_say_who_it_is_is_sent_away(tmp_path: Path) -> None:
    beginnings = [b"", b"C", CONNECT[:-1], MQTT_CONNECT[:5], b"GET / HTTP/1.1\r\n", b"\n"]
    with Stage(tmp_path, settings={"limits.handshake_seconds": 1.0}) as stage:
        began = time.monotonic()
        strangers = [stage.dial() for _ in beginnings]
        for stranger, beginning in zip(strangers, beginnings, strict=True):
            stranger.sendall(beginning)
        for stranger in strangers:
            stranger.settimeout(10)
            with suppress(ConnectionResetError):
                assert stranger.recv(1) == b""
            stranger.close()
        assert time.monotonic() - began < 8


# How each protocol begins, and what may then be said for ever without coming to the point.
DRIPPED = {
    "our own": (PREAMBLE, b"\x00\x0f\x00\x00\x01\x00\x00\x00" + bytes(4000)),
    "STOMP": (b"CONNECT\n", b"header:value\n" * 300),
    "MQTT": (b"\x10\xff\x1e\x00\x04MQTT\x04\x02\x00\x3c", b"\x0f\x00" + b"x" * 3900),
    "AMQP": (b"AMQP\x03\x01\x00\x00", b"\x00\x00\x0f\x00\x02\x01\x00\x00" + bytes(3800)),
    "AMQP's header": (b"AMQP", b"\x03\x01\x00\x00" + b"\x00\x00\x0f\x00\x02\x01" + bytes(3800)),
    "HTTP": (b"GET / HTTP/1.1\r\n", b"X-Header: value\r\n" * 230),
    "WebSocket": (
        b"GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Protocol: mqtt\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        b"\x82\xfe\x0f\x00\x00\x00\x00\x00\x10\xff\x1e" + bytes(3800),
    ),
    "TLS": (b"\x16\x03\x01\x0f\x00\x01\x00\x0e\xfc\x03\x03", bytes(3800)),
}


@needs_openssl
def test_who_says_it_a_letter_at_a_time_is_sent_away_as_soon(tmp_path: Path) -> None:
    """Whatever it begins to speak: the time runs from the first moment, and no letter wins any."""
    certificate = Authority(tmp_path / "authority").issue("server")
    settings = {
        "limits.handshake_seconds": 1.5,
        "tls.certificate": certificate.cert,
        "tls.key": certificate.key,
    }

    async def drip(stage: Stage, beginning: bytes, letters: bytes) -> float:
        """For how long it was listened to."""
        reader, writer = await asyncio.open_connection(stage.host, stage.port)
        began = time.monotonic()
        writer.write(beginning)
        gone = asyncio.create_task(reader.read(-1))
        with suppress(ConnectionError):
            for letter in letters:
                writer.write(bytes((letter,)))
                await asyncio.wait([gone], timeout=0.02)
                if gone.done():
                    break
        with suppress(ConnectionError):
            await gone
        writer.close()
        return time.monotonic() - began

    async def story(stage: Stage) -> dict[str, float]:
        async with asyncio.timeout(60):
            took = await asyncio.gather(*[drip(stage, *said) for said in DRIPPED.values()])
        return dict(zip(DRIPPED, took, strict=True))

    with Stage(tmp_path, settings=settings) as stage:
        took = asyncio.run(story(stage))
    assert {what: seconds for what, seconds in took.items() if not 1.2 < seconds < 8} == {}


FLOODS = {
    "STOMP": b"CONNECT\nx:" + b"y" * 100_000,
    "MQTT": b"\x10\xff\xff\x7f" + b"\x00\x04MQTT" + b"z" * 100_000,
    "AMQP": b"AMQP\x03\x01\x00\x00" + b"\x00\x01\x86\xa0\x02\x01\x00\x00" + bytes(100_000),
    "our own": PREAMBLE + b"\xa0\x86\x01\x00\x01\x00\x00\x00" + bytes(100_000),
    "HTTP": b"GET / HTTP/1.1\r\nX: " + b"y" * 100_000,
    "TLS": b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03" + bytes(100_000),
}


@pytest.mark.parametrize("flood", list(FLOODS.values()), ids=list(FLOODS))
def test_a_stranger_gets_little_room(tmp_path: Path, flood: bytes) -> None:
    """It is the room that ends, not the time."""
    settings = {"limits.handshake_seconds": 60.0}
    with Stage(tmp_path, settings=settings) as stage, stage.dial() as stranger:
        stranger.settimeout(10)

        def is_sent_away() -> bool:
            try:
                stranger.sendall(flood)
                return stranger.recv(100_000) == b""
            except ConnectionError:
                return True

        wait_for(is_sent_away, "the server ended it")


def test_a_producer_to_a_full_destination_waits_and_others_do_not(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:

        async def administer() -> None:
            async with heliograph.connect(stage.url) as ours:
                await ours.producer("queue:full")
                await ours.ask(
                    "destination.set", destination="queue:full", policy={"high_water_messages": 100}
                )

        stage.run(administer())
        frame = b"SEND\ndestination:/queue/full\ncontent-length:10000\n\n" + b"x" * 10_000 + b"\0"
        with stage.dial() as pushy:
            pushy.sendall(CONNECT)
            pushy.recv(1000)
            pushy.setblocking(False)
            sent, quiet_since = 0, time.monotonic()
            while time.monotonic() - quiet_since < 1.0:  # until nothing goes any more
                try:
                    sent += pushy.send(frame[sent % len(frame) :])
                    quiet_since = time.monotonic()
                except BlockingIOError:
                    time.sleep(0.01)
                assert sent < 100_000_000, "nobody stops it"

            async def drain(count: int) -> None:
                async with heliograph.connect(stage.url) as ours:
                    producer = await ours.producer("queue:other")
                    await asyncio.wait_for(producer.send(b"x"), 30)
                    consumer = await ours.consumer("queue:full")
                    for _ in range(count):
                        assert await consumer.receive(timeout=30) is not None

            stage.run(drain(sent // len(frame) - 1))
