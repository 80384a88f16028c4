"""A consumer that does not read what it is sent, within TLS: the server holds no more for it than it would
without."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from heliograph import connect
from heliograph.frontends.native import frames
from heliograph.frontends.native.frames import DELIVER, PREAMBLE, FrameReader, control_frame
from heliograph.model.limits import CONSUMER_WINDOW_BYTES, MIB
from tests.authority import Authority, needs_openssl
from tests.servers import embedded, play, until, url_of

pytestmark = [pytest.mark.req("X2", "M7"), needs_openssl]

_MESSAGES, _SIZE, _CONSUMERS = 400, 100_000, 6


class Reader(asyncio.Protocol):
    """Counts what is delivered, when it reads."""

    def __init__(self) -> None:
        self.frames = FrameReader()
        self.bytes = 0
        self.heard: list[frames.FromServer] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        for kind, _, _, payload in self.frames.feed(data):
            if kind == DELIVER:
                self.bytes += len(payload)
            elif kind == frames.CONTROL:
                self.heard.append(frames.decode_from_server(payload))


def test_what_is_not_read_waits_at_its_queue(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    certificate = authority.issue("server")
    context = ssl.create_default_context(cafile=authority.ca)

    async def story() -> None:
        settings = {"tls.certificate": certificate.cert, "tls.key": certificate.key}
        async with embedded(tmp_path, settings) as server:
            async with connect(url_of(server)) as connection:
                producer = await connection.producer("queue:deep")
                for _ in range(_MESSAGES):
                    await producer.send(bytes(_SIZE))
                await producer.flush()
            loop = asyncio.get_running_loop()
            _, reader = await loop.create_connection(Reader, *server.address, ssl=context)
            reader.transport.write(PREAMBLE + control_frame(frames.Hello(heartbeat_seconds=3600)))
            await until(lambda: reader.heard, "it is welcome")
            reader.transport.write(control_frame(frames.OpenSession(request=1, number=0)))
            await until(lambda: len(reader.heard) == 2, "its session is open")
            reader.transport.pause_reading()
            for consumer in range(_CONSUMERS):
                subscribe = frames.Subscribe(
                    request=2 + consumer, number=0, consumer=consumer, destination="queue:deep", credit=10_000
                )
                reader.transport.write(control_frame(subscribe))
            assert server._clients is not None
            (there,) = [each for each in server._clients.connections if each.links]
            transport = there._transport
            assert transport is not None
            assert transport.get_extra_info("ssl_object") is not None
            await until(lambda: there._clogged, "the server notices")
            held = transport.get_write_buffer_size()
            print(f"{held / MIB:.1f} of {_MESSAGES * _SIZE / MIB:.1f} MiB are held for it")
            assert held < _CONSUMERS * CONSUMER_WINDOW_BYTES + MIB
            reader.transport.resume_reading()
            await until(lambda: reader.bytes >= held - MIB, "it comes when it is read")
            reader.transport.abort()

    play(story())
