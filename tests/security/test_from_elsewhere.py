"""A password that others could read on its way is not taken: from an address that is not this machine's own loopback,
in every protocol, without TLS."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from pathlib import Path

import aiomqtt
import pytest
from proton import ConnectionException
from proton.utils import BlockingConnection

from heliograph import connect
from heliograph.model.errors import NotAuthenticated
from heliograph.nodes.users import UserStore
from tests.authority import Authority, needs_openssl
from tests.servers import embedded, play, url_of

pytestmark = pytest.mark.req("X2")

_CHEAP = (16, 8, 1)
_STOMP = b"CONNECT\naccept-version:1.2\nlogin:ann\npasscode:secret\n\n\0"


@pytest.fixture(scope="module")
def elsewhere() -> str:
    """An address of this machine in a network: who connects to it comes from it, and the server sees no loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        try:
            line.connect(("192.0.2.1", 9))  # of UDP, so nothing is sent
            address = str(line.getsockname()[0])
        except OSError:
            address = "127.0.0.1"
    if address.startswith("127."):
        pytest.skip("this machine has no address but its loopback: give it one in a network")
    return address


def _users(folder: Path) -> None:
    UserStore(folder / "data" / "users.toml").add("ann", "secret", ["admin"], cost=_CHEAP)


async def _told(address: tuple[str, int], words: bytes, tls: ssl.SSLContext | None = None) -> bytes:
    """The first that is answered."""
    reader, writer = await asyncio.open_connection(*address, ssl=tls)
    writer.write(words)
    async with asyncio.timeout(60):
        said = await reader.read(4000)
    writer.close()
    return said


def _http() -> bytes:
    login = base64.b64encode(b"ann:secret")
    return b"GET /api/v1/me HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic " + login + b"\r\n\r\n"


def test_the_library_proves_the_password_and_does_not_show_it(tmp_path: Path, elsewhere: str) -> None:
    _users(tmp_path)

    async def story() -> None:
        async with embedded(tmp_path, {"server.host": elsewhere}) as server:
            with pytest.raises(NotAuthenticated) as refused:
                await connect(url_of(server), user="ann", password="secret", mechanism="plain")
            assert refused.value.code == "plain-refused"
            assert "connect with TLS" in refused.value.sentence
            for mechanism in (None, "scram-sha-256"):
                async with connect(
                    url_of(server), user="ann", password="secret", mechanism=mechanism
                ) as connection:
                    assert connection.user == "ann"

    play(story())


def test_others_are_refused_with_what_to_do(tmp_path: Path, elsewhere: str) -> None:
    _users(tmp_path)

    async def story() -> None:
        async with embedded(tmp_path, {"server.host": elsewhere}) as server:
            stomp = await _told(server.address, _STOMP)
            assert stomp.startswith(b"ERROR")
            assert b"plain-refused" in stomp
            http = await _told(server.address, _http())
            assert http.startswith(b"HTTP/1.1 401")
            assert b"plain-refused" in http
            with pytest.raises(aiomqtt.MqttError, match=r"(?i)not authori|bad user"):
                async with aiomqtt.Client(*server.address, username="ann", password="secret"):
                    pass
            with pytest.raises(ConnectionException):
                await asyncio.to_thread(_by_plain, *server.address)

    play(story())


def _by_plain(host: str, port: int) -> None:
    BlockingConnection(
        f"{host}:{port}", timeout=10, user="ann", password="secret", allowed_mechs="PLAIN"
    ).close()


def test_where_nobody_can_listen_the_operator_may_allow_it(tmp_path: Path, elsewhere: str) -> None:
    _users(tmp_path)
    settings = {"server.host": elsewhere, "identity.passwords_in_the_clear": True}

    async def story() -> None:
        async with embedded(tmp_path, settings) as server:
            async with connect(
                url_of(server), user="ann", password="secret", mechanism="plain"
            ) as connection:
                assert connection.user == "ann"
            assert (await _told(server.address, _STOMP)).startswith(b"CONNECTED")
            assert (await _told(server.address, _http())).startswith(b"HTTP/1.1 200")
            async with aiomqtt.Client(*server.address, username="ann", password="secret"):
                pass
            await asyncio.to_thread(_by_plain, *server.address)

    play(story())


@needs_openssl
def test_within_tls_it_is_taken(tmp_path: Path, elsewhere: str) -> None:
    _users(tmp_path)
    authority = Authority(tmp_path / "authority")
    certificate = authority.issue("server", host=elsewhere)
    settings = {
        "server.host": elsewhere,
        "tls.certificate": certificate.cert,
        "tls.key": certificate.key,
    }
    trusting = ssl.create_default_context(cafile=authority.ca)

    async def story() -> None:
        async with embedded(tmp_path, settings) as server:
            assert (await _told(server.address, _STOMP, trusting)).startswith(b"CONNECTED")
            assert (await _told(server.address, _http(), trusting)).startswith(b"HTTP/1.1 200")
            assert b"plain-refused" in await _told(server.address, _STOMP)

    play(story())
