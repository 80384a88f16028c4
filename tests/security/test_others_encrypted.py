"""Clients that nobody here wrote, with TLS and certificates, at the one port: whatever is served plain is
served so, too."""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
import stomp
from proton import ConnectionException, Message, SSLDomain
from proton.utils import BlockingConnection

from heliograph.nodes.users import UserStore
from tests.authority import Authority, Certificate, needs_openssl
from tests.interop.stage import SECONDS, Stage, wait_for

pytestmark = [pytest.mark.req("X1", "X2"), needs_openssl]

_CHEAP = (16, 8, 1)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def device(authority: Authority) -> Certificate:
    return authority.issue("device")


@pytest.fixture
def stage(tmp_path: Path, authority: Authority) -> Iterator[Stage]:
    users = UserStore(tmp_path / "data" / "users.toml")
    users.add("ann", "secret", ["admin"], cost=_CHEAP)
    users.add("device", None, ["admin"])
    certificate = authority.issue("server", host="127.0.0.1,localhost")
    settings = {
        "tls.certificate": certificate.cert,
        "tls.key": certificate.key,
        "tls.clients": "wanted",
        "tls.client_authority": authority.ca,
    }
    with Stage(tmp_path, settings=settings) as stage:
        yield stage


class Listener(stomp.ConnectionListener):  # type: ignore[misc]
    """Remembers what came."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.errors: list[Any] = []

    def on_message(self, frame: Any) -> None:
        self.messages.append(frame)

    def on_error(self, frame: Any) -> None:
        self.errors.append(frame)


def test_stomp_py_with_a_password(stage: Stage, authority: Authority) -> None:
    connection = stomp.Connection12([(stage.host, stage.port)])
    connection.set_ssl([(stage.host, stage.port)], ca_certs=authority.ca)
    listener = Listener()
    connection.set_listener("", listener)
    connection.connect("ann", "secret", wait=True)
    connection.subscribe("/queue/q", id="1", ack="auto")
    for size in (10, 100_000):
        connection.send("/queue/q", "x" * size)
    wait_for(lambda: len(listener.messages) == 2, "both came")
    assert [len(frame.body) for frame in listener.messages] == [10, 100_000]
    connection.disconnect()


@pytest.mark.parametrize("version", [mqtt.MQTTv311, mqtt.MQTTv5])
def test_paho_with_a_certificate(
    stage: Stage, authority: Authority, device: Certificate, version: int
) -> None:
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id="device-1", protocol=version)
    client.tls_set(authority.ca, device.cert, device.key)
    connected, came = threading.Event(), threading.Event()
    reasons: list[Any] = []

    def on_connect(_c: Any, _u: Any, _f: Any, reason: Any, _p: Any) -> None:
        reasons.append(reason)
        connected.set()

    client.on_connect = on_connect
    client.on_message = lambda _c, _u, _m: came.set()
    client.connect(stage.host, stage.port)
    client.loop_start()
    assert connected.wait(SECONDS)
    assert not reasons[0].is_failure
    client.subscribe("a/b", 1)
    client.publish("a/b", b"x" * 50_000, 1).wait_for_publish(SECONDS)
    assert came.wait(SECONDS)
    client.disconnect()
    client.loop_stop()


def test_paho_over_websocket_as_a_browser_has_it(stage: Stage, authority: Authority) -> None:
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, transport="websockets")
    client.username_pw_set("ann", "secret")
    client.tls_set(authority.ca)
    came = threading.Event()
    client.on_connect = lambda c, *_: c.subscribe("web/tls", 1)
    client.on_subscribe = lambda c, *_: c.publish("web/tls", b"x" * 50_000, 1)
    client.on_message = lambda *_: came.set()
    client.connect(stage.host, stage.port)
    client.loop_start()
    assert came.wait(SECONDS)
    client.disconnect()
    client.loop_stop()


@pytest.mark.parametrize("how", ["PLAIN", "EXTERNAL"])
def test_proton_with_a_password_and_with_a_certificate(
    stage: Stage, authority: Authority, device: Certificate, how: str
) -> None:
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(authority.ca)
    # By its name: Proton does not look for addresses in certificates.
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME, authority.ca)
    who = {"user": "ann", "password": "secret"}
    if how == "EXTERNAL":
        domain.set_credentials(device.cert, device.key, None)
        who = {}
    connection = BlockingConnection(
        f"amqps://localhost:{stage.port}", timeout=SECONDS, ssl_domain=domain, allowed_mechs=how, **who
    )
    connection.create_sender("queue:of-proton").send(Message(body="x" * 100_000))
    receiver = connection.create_receiver("queue:of-proton")
    found = receiver.receive(SECONDS)
    receiver.accept()
    assert (len(found.body), found.user_id) == (100_000, b"ann" if how == "PLAIN" else b"device")
    connection.close()


def test_proton_trusts_no_server_that_it_is_not_told_to(stage: Stage, tmp_path: Path) -> None:
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    others = Authority(tmp_path / "elsewhere", "Others").ca
    domain.set_trusted_ca_db(others)
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME, others)
    with pytest.raises(ConnectionException, match="certificate"):
        BlockingConnection(
            f"amqps://localhost:{stage.port}", timeout=SECONDS, ssl_domain=domain, allowed_mechs="EXTERNAL"
        )


def test_without_a_certificate_or_a_password_nobody_comes_in(stage: Stage, authority: Authority) -> None:
    connection = stomp.Connection12([(stage.host, stage.port)], reconnect_attempts_max=1)
    connection.set_ssl([(stage.host, stage.port)], ca_certs=authority.ca)
    listener = Listener()
    connection.set_listener("", listener)
    with pytest.raises(stomp.exception.StompException):
        connection.connect(wait=True)
    connection.transport.disconnect_socket()  # left alone, its thread takes a whole processor
    assert "wants a user" in str(listener.errors[0].headers) + str(listener.errors[0].body)


@pytest.mark.debian({"mosquitto_pub": "mosquitto-clients"})
def test_mosquitto_pub_trusts_whom_it_is_told_to(stage: Stage, authority: Authority, tmp_path: Path) -> None:
    def publish(ca: str) -> subprocess.CompletedProcess[str]:
        command = ["mosquitto_pub", "-h", stage.host, "-p", str(stage.port), "--cafile", ca]
        command += ["-u", "ann", "-P", "secret", "-t", "a/b", "-m", "x", "-q", "1"]
        return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)

    assert publish(authority.ca).returncode == 0
    assert publish(Authority(tmp_path / "elsewhere", "Others").ca).returncode != 0


@pytest.mark.debian({"curl": "curl"})
def test_curl_asks_by_https(stage: Stage, authority: Authority) -> None:
    command = ["curl", "-sS", "--cacert", authority.ca, "-u", "ann:secret"]
    command.append(f"https://{stage.host}:{stage.port}/api/v1/server")
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    assert isinstance(json.loads(done.stdout), dict), done.stdout


def test_an_old_version_of_tls_is_not_spoken(stage: Stage, authority: Authority) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(authority.ca)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1_1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        context.wrap_socket(stage.dial(), server_hostname=stage.host)
