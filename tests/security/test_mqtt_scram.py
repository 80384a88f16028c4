"""MQTT 5 with enhanced authentication: a client proves its password by SCRAM-SHA-256, without TLS and without
showing it.

The packets are made here by hand, since paho leaves AUTH to its users; SCRAM is somebody else's library.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import scramp

from heliograph.frontends.mqtt.packets import CONNACK, packet
from heliograph.frontends.mqtt.properties import encode_properties, read_properties
from heliograph.frontends.mqtt.reading import Cursor
from heliograph.nodes.users import UserStore
from tests.servers import embedded, play

pytestmark = pytest.mark.req("X1", "X2")

_CHEAP = (16, 8, 1)
_CONNECT, _AUTH = 1, 15


def _text(text: str) -> bytes:
    return len(text).to_bytes(2, "big") + text.encode()


def _connect(method: str, data: bytes) -> bytes:
    said = encode_properties({"authentication_method": method, "authentication_data": data})
    return packet(_CONNECT, 0, _text("MQTT"), b"\x05\x02\x00\x3c", said, _text("device"))


def _auth(method: str, data: bytes) -> bytes:
    said = encode_properties({"authentication_method": method, "authentication_data": data})
    return packet(_AUTH, 0, b"\x18", said)


class Line:
    """A connection that speaks packets."""

    async def open(self, port: int) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port)

    async def say(self, data: bytes) -> tuple[int, bytes]:
        """The kind and the body of what is answered."""
        self._writer.write(data)
        return await self.hear()

    async def hear(self) -> tuple[int, bytes]:
        first = await self._reader.readexactly(1)
        length = (await self._reader.readexactly(1))[0]
        if length & 0x80:
            length = length & 0x7F | (await self._reader.readexactly(1))[0] << 7
        return first[0] >> 4, await self._reader.readexactly(length)

    def close(self) -> None:
        self._writer.close()


def _data(kind: int, body: bytes, skip: int) -> bytes:
    cursor = Cursor(body[skip:])
    found: bytes = read_properties(cursor, kind)["authentication_data"]
    return found


async def _log_in(port: int, user: str, password: str) -> int:
    """The reason in the server's answer; if it is 0, the server has proved itself, too."""
    client = scramp.ScramClient(["SCRAM-SHA-256"], user, password)
    line = Line()
    await line.open(port)
    kind, body = await line.say(_connect("SCRAM-SHA-256", client.get_client_first().encode()))
    assert (kind, body[0]) == (_AUTH, 0x18)
    client.set_server_first(_data(_AUTH, body, 1).decode())
    kind, body = await line.say(_auth("SCRAM-SHA-256", client.get_client_final().encode()))
    assert kind == CONNACK
    if body[1] == 0:
        client.set_server_final(_data(CONNACK, body, 2).decode())
    line.close()
    return body[1]


def test_a_device_proves_its_password_without_showing_it(tmp_path: Path) -> None:
    UserStore(tmp_path / "data" / "users.toml").add("ann", "secret", ["admin"], cost=_CHEAP)

    async def story() -> None:
        async with embedded(tmp_path) as server:
            port = server.address[1]
            assert await _log_in(port, "ann", "secret") == 0
            assert await _log_in(port, "ann", "wrong") == 0x86
            assert await _log_in(port, "nobody", "secret") == 0x86
            for wrong in (_connect("KERBEROS", b""), _connect("SCRAM-SHA-256", b"n,,n=ann")):
                line = Line()
                await line.open(port)
                kind, body = await line.say(wrong)
                assert kind == CONNACK
                assert body[1] >= 0x80
                line.close()
            # A challenge is answered, and nothing else is said before.
            line = Line()
            await line.open(port)
            await line.say(_connect("SCRAM-SHA-256", b"n,,n=ann,r=abc"))
            kind, body = await line.say(b"\xc0\x00")
            assert kind == CONNACK
            assert body[1] == 0x82
            line.close()

    play(story())
