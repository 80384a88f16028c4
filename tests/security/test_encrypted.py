"""TLS at the one port: our library, the clients of others and the command line; good certificates, and those
that are not."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from heliograph import connect
from heliograph.model.errors import ClientFault, HeliographError, NotAuthenticated, Unavailable
from heliograph.nodes.configuration import load
from heliograph.nodes.embedded import EmbeddedServer
from heliograph.nodes.users import UserStore
from tests.authority import Authority, Certificate, needs_openssl
from tests.servers import embedded, play, until

pytestmark = [pytest.mark.req("X2"), needs_openssl]

_CHEAP = (16, 8, 1)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def of_server(authority: Authority) -> Certificate:
    return authority.issue("server")


@asynccontextmanager
async def served(
    folder: Path, certificate: Certificate, users: tuple[str, ...] = (), **tls: Any
) -> AsyncIterator[EmbeddedServer]:
    if users:
        store = UserStore(folder / "data" / "users.toml")
        for name in users:
            password = None if name.startswith("device") else f"{name}'s password"
            store.add(name, password, ["admin"], cost=_CHEAP)
    settings = {"tls.certificate": certificate.cert, "tls.key": certificate.key}
    settings |= {f"tls.{key}": value for key, value in tls.items()}
    async with embedded(folder, settings) as server:
        yield server


def _url(server: EmbeddedServer, **files: str) -> str:
    query = "&".join(f"{name}={path}" for name, path in files.items())
    return f"helios://127.0.0.1:{server.address[1]}" + (f"?{query}" if query else "")


async def _exchange(url: str, **options: Any) -> None:
    """Small and large messages there and back."""
    async with connect(url, **options) as connection:
        producer = await connection.producer("queue:q")
        bodies = [b"x" * size for size in (0, 1, 100, 70_000, 3_000_000)]
        for body in bodies:
            await producer.send(body)
        consumer = await connection.consumer("queue:q")
        for body in bodies:
            message = await consumer.receive(timeout=30)
            assert message is not None
            assert message.body == body


def events_of(server: EmbeddedServer, name: str) -> list[dict[str, Any]]:
    assert server._events is not None
    waiting = [*server._events.remembered, *server._events._waiting]
    return [event for event in waiting if event["event"] == name]


def test_messages_travel_encrypted(tmp_path: Path, authority: Authority, of_server: Certificate) -> None:
    async def story() -> None:
        async with served(tmp_path, of_server) as server:
            await _exchange(_url(server, ca=authority.ca))
            await _exchange(f"helio://127.0.0.1:{server.address[1]}")  # the same port, without

    play(story())


def test_a_port_that_needs_it_says_so(tmp_path: Path, authority: Authority, of_server: Certificate) -> None:
    async def story() -> None:
        async with served(tmp_path, of_server, required=True) as server:
            await _exchange(_url(server, ca=authority.ca))
            with pytest.raises(HeliographError) as refused:
                await connect(f"helio://127.0.0.1:{server.address[1]}")
            assert refused.value.code == "tls-needed"
            assert "helios://" in refused.value.sentence

    play(story())


@pytest.mark.parametrize("wrong", ["expired", "another's", "unknown", "revoked"])
def test_a_server_that_cannot_be_trusted(tmp_path: Path, authority: Authority, wrong: str) -> None:
    files = {"ca": authority.ca}
    if wrong == "another's":
        certificate, sentence = (
            authority.issue("other", host="other.example"),
            "connect by a name that it has",
        )
    elif wrong == "unknown":
        certificate, sentence = Authority(tmp_path / "elsewhere", "Others").issue("server"), "--ca FILE"
    else:
        certificate = authority.issue("server-that-was")
        sentence = "was revoked"
        authority.revoke(certificate)
        authority.publish()
        files["crl"] = authority.crl

    async def story() -> None:
        async with served(tmp_path, certificate) as server:
            with pytest.raises(Unavailable) as refused:
                await connect(_url(server, **files))
            assert refused.value.code == "certificate-refused"
            assert sentence in refused.value.sentence
            await until(lambda: events_of(server, "tls-refused"), "the server knows of it")

    if wrong == "expired":  # the server itself does not start with it; so one that does is its stand-in
        _meet_expired(authority)
        return
    play(story())


def _meet_expired(authority: Authority) -> None:
    old = authority.issue("old-server", expired=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(old.cert, old.key)

    async def story() -> None:
        server = await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Unavailable) as refused:
            await connect(f"helios://127.0.0.1:{port}?ca={authority.ca}")
        server.close()
        assert refused.value.code == "certificate-refused"
        assert "has expired" in refused.value.sentence
        assert "operator has to renew it" in refused.value.sentence

    play(story())


@pytest.mark.parametrize("wrong", ["expired", "unknown", "revoked", "none"])
def test_a_client_that_cannot_be_trusted(
    tmp_path: Path, authority: Authority, of_server: Certificate, wrong: str
) -> None:
    files = {"ca": authority.ca}
    if wrong == "expired":
        ann, told, known = authority.issue("ann", expired=True), "has expired", "has expired"
    elif wrong == "unknown":
        ann = Authority(tmp_path / "elsewhere", "Others").issue("ann")
        told, known = "trusts nobody who has signed", "nobody who is trusted here has signed"
    elif wrong == "revoked":
        ann, told, known = authority.issue("ann"), "was revoked", "was revoked"
        authority.revoke(ann)
        authority.publish()
    if wrong == "none":
        told, known = "wants a certificate", "showed no certificate"
    else:
        files |= {"cert": ann.cert, "key": ann.key}

    async def story() -> None:
        mutual = {"clients": "needed", "client_authority": authority.ca, "revoked": authority.crl}
        async with served(tmp_path, of_server, ("ann",), **mutual) as server:
            with pytest.raises(Unavailable) as refused:
                await connect(_url(server, **files))
            assert refused.value.code == "own-certificate-refused", refused.value
            assert told in refused.value.sentence
            await until(lambda: events_of(server, "tls-refused"), "the server knows of it")
            assert known in events_of(server, "tls-refused")[0]["sentence"]

    play(story())


def test_a_certificate_is_enough(tmp_path: Path, authority: Authority, of_server: Certificate) -> None:
    device, stranger = authority.issue("device-7"), authority.issue("stranger")

    async def story() -> None:
        mutual = {"clients": "wanted", "client_authority": authority.ca}
        async with served(tmp_path, of_server, ("ann", "device-7"), **mutual) as server:
            own = {"ca": authority.ca, "cert": device.cert, "key": device.key}
            for mechanism in (None, "external"):
                async with connect(_url(server, **own), mechanism=mechanism) as connection:
                    assert connection.user == "device-7"
            # A password goes before the certificate.
            async with connect(_url(server, **own), user="ann", password="ann's password") as connection:
                assert connection.user == "ann"
            with pytest.raises(NotAuthenticated) as refused:
                await connect(_url(server, ca=authority.ca, cert=stranger.cert, key=stranger.key))
            assert refused.value.code == "certificate-user-unknown"
            with pytest.raises(NotAuthenticated):
                await connect(_url(server, ca=authority.ca))
            with pytest.raises(NotAuthenticated) as refused:
                await connect(_url(server, ca=authority.ca), mechanism="external")
            assert refused.value.code == "certificate-missing"
            with pytest.raises(NotAuthenticated):  # it has no password that anybody could know
                await connect(_url(server, ca=authority.ca), user="device-7", password="")

    play(story())


def test_a_new_certificate_without_a_restart(tmp_path: Path, authority: Authority) -> None:
    live = tmp_path / "live"
    live.mkdir()

    def install(certificate: Certificate) -> None:
        shutil.copy(certificate.key, live / "new.key")
        os.chmod(live / "new.key", 0o600)
        shutil.copy(certificate.cert, live / "new.pem")
        os.replace(live / "new.key", live / "server.key")
        os.replace(live / "new.pem", live / "server.pem")

    def serial(port: int) -> str:
        context = ssl.create_default_context(cafile=authority.ca)
        plain = socket.create_connection(("127.0.0.1", port))
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as encrypted:
            return str((encrypted.getpeercert() or {})["serialNumber"])

    install(authority.issue("first"))
    now = Certificate(str(live / "server.pem"), str(live / "server.key"))

    async def story() -> None:
        async with served(tmp_path, now) as server:
            assert server._clients is not None
            keeper = server._clients.certificates
            assert keeper is not None
            async with connect(_url(server, ca=authority.ca)) as connection:
                first = await asyncio.to_thread(serial, server.address[1])
                install(authority.issue("second"))
                keeper.look_again(time.time())
                second = await asyncio.to_thread(serial, server.address[1])
                assert second != first
                assert events_of(server, "certificate-taken")
                # One that has expired is not taken, and what was there stays.
                install(authority.issue("third", expired=True))
                keeper.look_again(time.time())
                assert "has expired" in events_of(server, "certificate-not-taken")[0]["sentence"]
                assert await asyncio.to_thread(serial, server.address[1]) == second
                with pytest.raises(ClientFault, match="has expired"):
                    await connection.ask("certificate.reload")
                install(authority.issue("fourth", days=3))
                answer = await connection.ask("certificate.reload")
                assert answer["subject"] == "fourth"
                keeper.look_again(time.time())
                assert events_of(server, "certificate-expires-soon")[-1]["days"] == 2
                producer = await connection.producer("queue:q")
                await producer.send(b"the connection from before goes on")

    play(story())


@pytest.mark.parametrize("what", ["expired", "another key", "not there", "no PEM", "exposed", "no authority"])
def test_a_server_does_not_start_with_files_that_it_cannot_use(
    tmp_path: Path, authority: Authority, of_server: Certificate, what: str
) -> None:
    more: dict[str, object] = {}
    certificate, sentence = of_server, ""
    match what:
        case "expired":
            certificate, sentence = authority.issue("late", expired=True), "has expired"
        case "another key":
            certificate = Certificate(of_server.cert, authority.issue("other").key)
            sentence = "do not go together"
        case "not there":
            certificate, sentence = Certificate(of_server.cert, "/nowhere/key"), "cannot be read"
        case "no PEM":
            (tmp_path / "text").write_text("hello")
            (tmp_path / "text").chmod(0o600)
            certificate, sentence = Certificate(str(tmp_path / "text"), ""), "no PEM"
        case "exposed":
            key = tmp_path / "key"
            shutil.copy(of_server.key, key)
            key.chmod(0o644)
            certificate, sentence = Certificate(of_server.cert, str(key)), "chmod 600"
        case "no authority":
            more, sentence = {"tls.clients": "needed"}, "tls.client_authority"

    async def story() -> None:
        settings = {"tls.certificate": certificate.cert, "tls.key": certificate.key, **more}
        server = EmbeddedServer(
            load(None, {"server.port": 0, "server.data": str(tmp_path / "data"), **settings})
        )
        with pytest.raises(ClientFault) as refused:
            await server.start()
        assert sentence in refused.value.sentence

    play(story())


def test_a_client_says_which_file_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    for files, sentence in (
        (f"ca={tmp_path}/text", "does not have certificates of authorities"),
        ("ca=/nowhere", "cannot be read"),
        (f"key={tmp_path}/text", "goes with a certificate"),
        ("certificate=x", "stand ca=FILE"),
        ("", "nothing follows"),
    ):
        with pytest.raises(ClientFault) as refused:
            connect(f"helios://localhost?{files}")
        assert sentence in refused.value.sentence
    with pytest.raises(ClientFault):
        connect(f"helio://localhost?ca={tmp_path}/text")


def test_tls_to_a_server_that_has_none(tmp_path: Path, authority: Authority) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server:
            with pytest.raises(Unavailable) as refused:
                await connect(_url(server, ca=authority.ca))
            assert refused.value.code == "tls-failed"
            assert "the server has no certificate" in refused.value.sentence

    play(story())
