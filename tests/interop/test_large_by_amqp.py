"""Very large messages by AMQP: they go to the disk as they come and out as they are read, whoever sends and receives
them, and the server's memory does not grow with them."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from proton import Delivery, Message
from proton.reactor import Container

import heliograph
from tests.conformance.jms.qpid_bridge import Bridge, needs_java
from tests.interop.stage import Stage, wait_for
from tests.interop.test_proton import Transacting, bodies, connected, nothing_comes

pytestmark = [pytest.mark.req("X1", "M6"), pytest.mark.slow, pytest.mark.timeout(180)]
SECONDS = 60.0
MIB = 1 << 20
SIZE = 64 * MIB
_GROWTH_MIB = 24


def pattern(size: int) -> bytes:
    """Bytes of which none are where others belong."""
    return b"".join(number.to_bytes(8, "big") for number in range(size // 8))


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def contents(receiver: Any, count: int) -> list[bytes]:
    """Copies: Proton's views end with their messages."""
    found = []
    for _ in range(count):
        message = receiver.receive(SECONDS)
        found.append(bytes(message.body))
        receiver.accept()
    return found


class Reading:
    """Takes one message piece by piece, with a small window."""

    def __init__(self, host: str, port: int, address: str) -> None:
        self._url = f"{host}:{port}"
        self._address = address
        self._pieces: list[bytes] = []

    def run(self) -> list[bytes]:
        Container(self).run()
        return self._pieces

    def on_reactor_init(self, event: Any) -> None:
        connection = event.container.connect(self._url, allowed_mechs="ANONYMOUS", handler=self)
        session = connection.session()
        session.incoming_capacity = 256 * 1024
        session.open()
        receiver = session.receiver("streaming")
        receiver.source.address = self._address
        receiver.open()
        receiver.flow(1)

    def on_delivery(self, event: Any) -> None:
        delivery = event.delivery
        self._pieces.append(event.link.recv(delivery.pending) or b"")
        if not delivery.partial:
            event.link.advance()
            delivery.update(Delivery.ACCEPTED)
            delivery.settle()
            event.connection.close()


class Server:
    """A server in its own process, whose memory can be looked at."""

    def __init__(self, process: subprocess.Popen[bytes], address: str) -> None:
        self._process = process
        self.host, _, port = address.rpartition(":")
        self.port = int(port)
        self.url = f"helio://{address}"

    def _status(self, name: str) -> float:
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) / 1024
        raise AssertionError(name)

    @contextmanager
    def grows_little(self, what: str) -> Iterator[None]:
        """The peak of its memory meanwhile, beyond what it has now, in MiB."""
        Path(f"/proc/{self._process.pid}/clear_refs").write_text("5")
        before = self._status("VmRSS")
        yield
        grown = self._status("VmHWM") - before
        print(f"{what}: {before:.0f} MiB before, {grown:.1f} MiB more at most")
        assert grown < _GROWTH_MIB, f"{what} took {grown:.0f} MiB"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("large")
    ready = folder / "ready"
    command = [sys.executable, "-m", "heliograph.cli.main", "serve", "--port", "0"]
    command += ["--data", str(folder / "data"), "--ready-file", str(ready)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            wait_for(lambda: ready.exists() or process.poll() is not None, "the server is ready")
            yield Server(process, ready.read_text().strip())
        finally:
            process.terminate()


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc")
def test_the_server_s_memory_does_not_grow_with_a_message(server: Server) -> None:
    body = pattern(SIZE)
    with connected(server) as connection:  # type: ignore[arg-type]
        sender = connection.create_sender("queue:amqp-64")
        sender.send(Message(body=b"warm", inferred=True), timeout=SECONDS)
        with server.grows_little("64 MiB in by AMQP"):
            sender.send(Message(body=body, durable=True, inferred=True), timeout=SECONDS)
        sender.send(Message(body=b"behind", inferred=True), timeout=SECONDS)
    with connected(server) as connection:  # type: ignore[arg-type]
        assert contents(connection.create_receiver("queue:amqp-64", credit=1), 1) == [b"warm"]
    reading = Reading(server.host, server.port, "queue:amqp-64")
    with server.grows_little("64 MiB out by AMQP"):
        pieces = reading.run()
    assert max(map(len, pieces)) <= MIB, "it came in pieces"
    assert digest(b"".join(pieces)[-SIZE:]) == digest(body)
    with connected(server) as connection:  # type: ignore[arg-type]
        assert contents(connection.create_receiver("queue:amqp-64"), 1) == [b"behind"]


def test_what_proton_sends_our_client_reads_and_the_other_way_round(stage: Stage) -> None:
    body = pattern(20 * MIB)

    async def across() -> tuple[Any, ...]:
        async with heliograph.connect(stage.url) as own:
            consumer = await own.consumer("queue:amqp-across")
            message = await consumer.receive(SECONDS)
            assert message is not None
            async with message.open() as stream:
                content = await stream.read()
            producer = await own.producer("queue:amqp-back", priority=7)
            await producer.send_stream([content], properties={"n": 5})
            return message.is_large, content, message.correlation_id, message.properties["colour"]

    with connected(stage) as connection:
        sent = Message(
            body=body, durable=True, inferred=True, correlation_id="c", properties={"colour": "red"}
        )
        connection.create_sender("queue:amqp-across").send(sent, timeout=SECONDS)
        is_large, content, correlation, colour = stage.run(across())
        assert (is_large, digest(content), correlation, colour) == (True, digest(body), "c", "red")
        back = connection.create_receiver("queue:amqp-back").receive(SECONDS)
        assert (digest(bytes(back.body)), back.priority, back.properties) == (digest(body), 7, {"n": 5})


@pytest.mark.parametrize("body", ["ä" * (5 * MIB), pattern(9 * MIB)], ids=["text", "binary"])
def test_a_large_value_comes_out_as_it_went_in(stage: Stage, body: Any) -> None:
    with connected(stage) as connection:
        sender = connection.create_sender(None)
        address = f"queue:amqp-value-{type(body).__name__}"
        sent = Message(address=address, body=body, durable=True, annotations={"x-opt-colour": "red"})
        sender.send(sent, timeout=SECONDS)
        found = connection.create_receiver(address).receive(SECONDS)
        assert (found.body if isinstance(body, str) else bytes(found.body)) == body
        assert found.annotations["x-opt-colour"] == "red"


def test_messages_keep_their_order_and_what_is_released_comes_again(stage: Stage) -> None:
    bodies_sent = [b"first", pattern(9 * MIB), b"second", pattern(10 * MIB), b"third"]
    with connected(stage) as connection:
        sender = connection.create_sender("queue:amqp-order")
        for body in bodies_sent:
            sender.link.send(Message(body=body, inferred=True))
        receiver = connection.create_receiver("queue:amqp-order", credit=10)
        found = [receiver.receive(SECONDS) for _ in bodies_sent]
        assert [digest(bytes(each.body)) for each in found] == [digest(body) for body in bodies_sent]
        for _ in bodies_sent:
            receiver.release(delivered=False)
        again = [receiver.receive(SECONDS) for _ in bodies_sent]
        assert [len(each.body) for each in again] == [len(body) for body in bodies_sent]
        for _ in bodies_sent:
            receiver.accept()
        nothing_comes(receiver)


def test_a_large_map_is_refused_and_the_connection_stays(stage: Stage) -> None:
    with connected(stage) as connection:
        sender = connection.create_sender("queue:amqp-map")
        with pytest.raises(Exception, match="text or binary"):
            sender.send(Message(body={"a": "x" * (9 * MIB)}), timeout=SECONDS)
        connection.create_sender("queue:amqp-map", name="again").send(Message(body="small"))


def test_a_large_message_in_a_transaction_is_there_when_it_is_committed(stage: Stage) -> None:
    with connected(stage) as connection:
        sender = connection.create_sender("proton-in")
        for letter in (b"a", b"b"):
            sender.send(Message(body=letter * (9 * MIB), durable=True, inferred=True), timeout=SECONDS)
    handler = Transacting(stage, commits=lambda number: number % 2 == 0)
    Container(handler).run()
    assert handler.outcomes == ["aborted", "committed", "aborted", "committed"]
    with connected(stage) as connection:
        found = contents(connection.create_receiver("proton-out", credit=10), 2)
        assert [(each[:1], len(each)) for each in found] == [(b"a", 9 * MIB), (b"b", 9 * MIB)]


def test_a_client_that_leaves_in_the_middle_leaves_nothing(stage: Stage) -> None:
    with connected(stage) as connection:
        sender = connection.create_sender("queue:amqp-half")
        link = sender.link
        link.delivery("half")
        whole = Message(body=pattern(30 * MIB), inferred=True).encode()
        link.stream(bytes(whole[: 20 * MIB]))
        connection.create_sender("queue:amqp-half", name="other").send(Message(body=1))
        wait_for(lambda: any(file.suffix != ".message" for file in stage.files("large")), "it is on its way")

    with connected(stage) as connection:
        receiver = connection.create_receiver("queue:amqp-half")
        assert bodies(receiver, 1) == [1]
        nothing_comes(receiver)
    wait_for(lambda: all(file.suffix == ".message" for file in stage.files("large")), "its file is gone")


@needs_java
def test_a_java_client_sends_and_receives_a_large_message(stage: Stage) -> None:
    content = pattern(12 * MIB)
    bridge = Bridge()
    try:
        java = bridge.call("connect", url=f"amqp://{stage.host}:{stage.port}", client_id="", started=True)
        session = bridge.call("session", of=java, mode=1)
        queue = {"kind": "queue", "name": "java-large"}
        producer = bridge.call("producer", of=session, destination=queue, options={})
        body = ["bytes", base64.b64encode(content).decode()]
        identity = bridge.call("send", of=producer, body=body, options={})
        consumer = bridge.call("consumer", of=session, destination=queue, selector="", no_local=False)
        found = bridge.call("receive", of=consumer, timeout=SECONDS)
        assert found["message_id"] == identity
        assert digest(base64.b64decode(found["body"][1])) == digest(content)
        bridge.call("close", of=java)
    finally:
        bridge.close()
