"""The ports that are usual for other protocols, when they are asked for: each speaks all of them, as the first does;
and one for TLS alone."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import paho.mqtt.client as mqtt
import pytest
import stomp
from proton import Message
from proton.utils import BlockingConnection

from heliograph.model.errors import Unavailable
from tests.authority import Authority, needs_openssl
from tests.interop.stage import SECONDS, Stage, wait_for
from tests.interop.test_stomp_py import Heard

pytestmark = [pytest.mark.req("X1", "X2"), needs_openssl]


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [probe.getsockname()[1] for probe in probes]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def ports(tmp_path: Path, authority: Authority) -> Iterator[tuple[int, int, int]]:
    """Two for everything, and one for TLS."""
    one, other, encrypted = free_ports(3)
    certificate = authority.issue("server")
    settings = {
        "server.more_ports": f"{one},{other},{encrypted}/tls",
        "tls.certificate": certificate.cert,
        "tls.key": certificate.key,
    }
    with Stage(tmp_path, settings=settings):
        yield one, other, encrypted


def test_each_further_port_speaks_every_protocol(ports: tuple[int, int, int]) -> None:
    one, other, _ = ports
    heard = Heard()
    reader = stomp.Connection12([("127.0.0.1", one)])
    reader.set_listener("heard", heard)
    reader.connect(wait=True)
    reader.subscribe("/topic/a/b", id="1", headers={"receipt": "there"})
    heard.await_receipt("there")
    device = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
    device.connect("127.0.0.1", other)
    device.loop_start()
    device.publish("a/b", b"by MQTT", qos=1).wait_for_publish(SECONDS)
    amqp = BlockingConnection(f"127.0.0.1:{other}", timeout=SECONDS, allowed_mechs="ANONYMOUS")
    amqp.create_sender("topic:a/b").send(Message(body="by AMQP"))
    assert [frame.body for frame in heard.await_messages(2)] == ["by MQTT", "by AMQP"]
    amqp.close()
    device.disconnect()
    device.loop_stop()
    reader.disconnect()


def test_the_port_for_tls_speaks_nothing_else(ports: tuple[int, int, int], authority: Authority) -> None:
    *_, encrypted = ports
    plain = stomp.Connection12([("127.0.0.1", encrypted)], reconnect_attempts_max=1)
    heard = Heard()
    plain.set_listener("heard", heard)
    with pytest.raises(stomp.exception.StompException):
        plain.connect(wait=True)
    wait_for(lambda: heard.errors, "the server says why")
    assert "TLS" in str(heard.errors[0].headers)
    device = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
    device.tls_set(authority.ca)
    device.connect("127.0.0.1", encrypted)
    device.loop_start()
    device.publish("a/b", b"by MQTT", qos=1).wait_for_publish(SECONDS)
    device.disconnect()
    device.loop_stop()
    context = ssl.create_default_context(cafile=authority.ca)
    with (
        socket.create_connection(("127.0.0.1", encrypted), SECONDS) as line,
        context.wrap_socket(line, server_hostname="127.0.0.1") as inside,
    ):
        inside.sendall(b"CONNECT\naccept-version:1.2\n\n\0")
        assert inside.recv(1000).startswith(b"CONNECTED")


def test_a_port_that_is_taken_is_named_and_no_other_is_kept(tmp_path: Path) -> None:
    (free,) = free_ports(1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        with pytest.raises(Unavailable) as refused:
            Stage(tmp_path, settings={"server.more_ports": f"{free},{number}"}).__enter__()
        assert (refused.value.code, f":{number}:" in refused.value.sentence) == ("address-unavailable", True)
        socket.create_server(("127.0.0.1", free)).close()
