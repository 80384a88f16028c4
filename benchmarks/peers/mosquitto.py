"""Mosquitto, MQTT 3.1.1 at quality of service 1, through paho-mqtt and, as a second candidate, aiomqtt.

Mosquitto keeps messages in memory and writes its whole database to a file at intervals; it never syncs before
it confirms. A queue is one subscriber with a persistent session. Fan-out publishes at quality 1 and delivers
at quality 0, which is cheaper; a lost message would show as a run that does not finish.
"""

from __future__ import annotations

import asyncio
import select
import subprocess
import time
from pathlib import Path
from typing import Any, ClassVar, Final

from benchmarks.peers.interface import Peer, StartingLine, age_ns, due, program, stamped
from benchmarks.processes import Server, port_answers
from benchmarks.workloads import Kind, Outcome, Plan, Synced, outcome

WINDOW: Final = 100
"""Unconfirmed messages: with 1,000 paho was slower, with 5,000 three times slower."""
KEEPALIVE_SECONDS: Final = 600
TICK_SECONDS: Final = 0.0005

CONFIGURATION: Final = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence true
persistence_location {folder}/
max_inflight_messages 0
max_queued_messages 0
"""


class Mosquitto(Peer):
    """Mosquitto through paho-mqtt."""

    key = "mosquitto"
    title = "Mosquitto (paho-mqtt)"
    client = "paho-mqtt"
    durability = "in memory; written to a file every half hour and at shutdown"
    packages: ClassVar[tuple[str, ...]] = ("mosquitto",)
    programs: ClassVar[tuple[str, ...]] = ("mosquitto",)
    modules: ClassVar[tuple[str, ...]] = ("paho",)

    def synced(self, kind: Kind) -> Synced:
        """Never: the file is written by a timer."""
        return "no"

    def server_version(self) -> str:
        """The version from the first line of its help."""
        said = subprocess.run([program("mosquitto"), "-h"], capture_output=True, text=True, check=False)
        return "Mosquitto " + said.stdout.split("version")[1].split()[0]

    def start(self, folder: Path, port: int) -> Server:
        """Start with persistence on and without limits on what waits."""
        settings = folder / "mosquitto.conf"
        settings.write_text(CONFIGURATION.format(port=port, folder=folder))
        # Started by root, Mosquitto becomes the user of its package, who must be able to write here.
        folder.chmod(0o777)
        command = [program("mosquitto"), "-c", str(settings)]
        return Server(command, folder=folder, name=self.key).wait_until(port_answers(port))

    def produce(self, plan: Plan, line: StartingLine) -> Outcome:
        """Publish at quality of service 1."""
        if plan.kind == "sync":
            _leave_a_subscription(plan)
        return _Producer(plan).run(line)

    def consume(self, plan: Plan, line: StartingLine) -> Outcome:
        """Subscribe at quality of service 1; the library acknowledges each message after the callback."""
        return _Consumer(plan).run(line)


def _client(name: str) -> Any:
    import paho.mqtt.client as mqtt

    return mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=name, clean_session=False)


def _leave_a_subscription(plan: Plan) -> None:
    """Make an absent subscriber, so that there is somebody to keep the messages for."""
    client = _client(f"{plan.destination}-absent")
    client.on_connect = lambda *_: client.subscribe(plan.destination, qos=1)
    client.on_subscribe = lambda *_: client.disconnect()
    client.connect("127.0.0.1", plan.port)
    client.loop_forever()


class _Driven:
    """A paho client whose loop is turned here, in one thread: with `loop_forever` it was half as fast."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.latencies: list[int] = []
        self.is_connected = self.is_subscribed = False
        self.client = _client(f"{plan.destination}-{plan.role}-{plan.index}")
        self.client.max_inflight_messages_set(WINDOW)
        self.client.on_connect = lambda *_: setattr(self, "is_connected", True)
        self.client.on_subscribe = lambda *_: setattr(self, "is_subscribed", True)
        self.client.connect("127.0.0.1", plan.port, keepalive=KEEPALIVE_SECONDS)
        while not self.is_connected:
            self.turn()

    def turn(self, seconds: float = 1.0) -> None:
        """Wait until the socket has something, and let the library handle it."""
        socket = self.client.socket()
        readable, writable, _ = select.select(
            [socket], [socket] if self.client.want_write() else [], [], seconds
        )
        if readable:
            self.client.loop_read()
        if writable:
            self.client.loop_write()


class _Producer(_Driven):
    """Publishes up to the window and reads confirmations."""

    def run(self, line: StartingLine) -> Outcome:
        """Send everything and await the last confirmation."""
        self.confirmed, self.sent_ns = 0, 0
        self.client.on_publish = lambda *_: self._on_confirm()
        line.wait_for_go()
        started = time.monotonic_ns()
        if self.plan.kind == "latency":
            for count in due(self.plan.messages, started):
                for _ in range(count):
                    self.client.publish(self.plan.destination, stamped(self.plan.size), qos=1)
                self.turn(TICK_SECONDS)
        else:
            self._send_within_window()
        while self.confirmed < self.plan.messages:
            self.turn()
        return outcome(started, time.monotonic_ns(), self.latencies)

    def _send_within_window(self) -> None:
        window, body = 1 if self.plan.kind == "sync" else WINDOW, b"x" * self.plan.size
        for sent in range(self.plan.messages):
            while sent - self.confirmed >= window:
                self.turn()
            self.sent_ns = time.monotonic_ns()
            self.client.publish(self.plan.destination, body, qos=1)

    def _on_confirm(self) -> None:
        self.confirmed += 1
        if self.plan.kind == "sync":
            self.latencies.append(time.monotonic_ns() - self.sent_ns)


class _Consumer(_Driven):
    """Counts messages; paho acknowledges each."""

    def run(self, line: StartingLine) -> Outcome:
        """Subscribe and receive everything."""
        self.received = 0
        self.client.on_message = lambda _client, _data, message: self._on_message(message)
        self.client.subscribe(self.plan.destination, qos=0 if self.plan.kind == "fanout" else 1)
        while not self.is_subscribed:
            self.turn()
        line.ready()
        started = time.monotonic_ns()
        while self.received < self.plan.messages:
            self.turn()
        finished = time.monotonic_ns()
        self.client.disconnect()
        return outcome(started, finished, self.latencies)

    def _on_message(self, message: Any) -> None:
        self.received += 1
        if self.plan.kind == "latency":
            self.latencies.append(age_ns(message.payload))


class MosquittoAiomqtt(Mosquitto):
    """Mosquitto through aiomqtt: a candidate for the best client, measured on the queue alone."""

    key = "mosquitto-aiomqtt"
    title = "Mosquitto (aiomqtt)"
    client = "aiomqtt"
    modules = ("aiomqtt", "uvloop")
    workloads = ("queue",)

    def produce(self, plan: Plan, line: StartingLine) -> Outcome:
        """Publish from as many tasks as the window allows."""
        import uvloop

        return uvloop.run(_aio_produce(plan, line))

    def consume(self, plan: Plan, line: StartingLine) -> Outcome:
        """Consume through the client's iterator."""
        import uvloop

        return uvloop.run(_aio_consume(plan, line))


def _aio_client(plan: Plan) -> Any:
    import aiomqtt

    client = aiomqtt.Client(
        "127.0.0.1",
        plan.port,
        identifier=f"{plan.destination}-{plan.role}-{plan.index}",
        clean_session=False,
        max_inflight_messages=WINDOW,
        max_concurrent_outgoing_calls=WINDOW,
    )
    client.pending_calls_threshold = WINDOW
    return client


async def _aio_produce(plan: Plan, line: StartingLine) -> Outcome:
    body, shares = b"x" * plan.size, iter(range(plan.messages))
    async with _aio_client(plan) as client:

        async def publish() -> None:
            for _ in shares:
                await client.publish(plan.destination, body, qos=1, timeout=60)

        line.wait_for_go()
        started = time.monotonic_ns()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(WINDOW):
                tasks.create_task(publish())
        return outcome(started, time.monotonic_ns())


async def _aio_consume(plan: Plan, line: StartingLine) -> Outcome:
    received = 0
    async with _aio_client(plan) as client:
        await client.subscribe(plan.destination, qos=1)
        line.ready()
        started = time.monotonic_ns()
        async for _ in client.messages:
            received += 1
            if received == plan.messages:
                break
        return outcome(started, time.monotonic_ns())
