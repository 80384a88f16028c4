"""RabbitMQ with classic and with quorum queues, through pika and, as a second candidate, aio-pika.

pika's blocking adapter waits for every confirmation, so it serves only the synchronous workload; the
pipelined ones use its event-loop adapter with confirmations by callback. A classic queue, the default,
confirms a persistent message when it has been synced, or earlier when its consumer has already acknowledged
it; a quorum queue always syncs first, many messages at once. Fan-out uses what is cheapest there: transient
messages, exclusive queues, no acknowledgements.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Final

from benchmarks.peers.interface import Peer, StartingLine, age_ns, due, program, stamped
from benchmarks.processes import Child, Server, free_port, port_answers
from benchmarks.workloads import Kind, Outcome, Plan, Synced, outcome

WINDOW: Final = 2_000
"""Messages sent and not yet confirmed: quorum queues were slower with 500 and with 8,000."""
PREFETCH: Final = 2_000
ACK_EVERY: Final = 200
"""A pipelined consumer acknowledges this many at once."""
TICK_SECONDS: Final = 0.001


# The scripts in /usr/sbin would change to another user; those in the library folder run as we are.
SCRIPTS: Final = Path("/usr/lib/rabbitmq/bin")


def name_server(folder: Path, port: int) -> Child:
    """Where the nodes of one folder find each other."""
    return Child([program("epmd"), "-port", str(port), "-address", "127.0.0.1"], folder=folder, name="epmd")


def node_name(port: int) -> str:
    """Of the node that clients reach at that port."""
    return f"bench{port}@localhost"


def node_environment(folder: Path, port: int, names_port: int) -> dict[str, str]:
    """What makes a node share nothing with an installed one."""
    return {
        "HOME": str(folder),
        "ERL_EPMD_PORT": str(names_port),
        "RABBITMQ_NODENAME": node_name(port),
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_CONF_ENV_FILE": os.devnull,
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
    }


class RabbitServer(Server):
    """The broker together with a name server of its own, so that none is left running afterwards."""

    names: Child | None = None

    def stop(self) -> None:
        """Stop both."""
        super().stop()
        if self.names is not None:
            self.names.stop()


class RabbitMQ(Peer):
    """RabbitMQ through pika, the reference client."""

    key = "rabbitmq"
    title = "RabbitMQ, classic queue (pika)"
    client = "pika"
    durability = "synced before the confirm, unless the consumer has acknowledged it already"
    packages = ("rabbitmq-server",)
    programs = ("rabbitmq-server", "epmd")
    modules: ClassVar[tuple[str, ...]] = ("pika",)

    def synced(self, kind: Kind) -> Synced:
        """With a quick consumer, a classic queue often need not sync at all; fan-out is transient."""
        if kind == "fanout":
            return "no"
        return "yes" if kind == "sync" else "or acknowledged"

    def server_version(self) -> str:
        """The version of the installed package: asking the server itself would mean starting it."""
        said = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Version}", "rabbitmq-server"],
            capture_output=True,
            text=True,
            check=False,
        )
        return f"RabbitMQ {said.stdout.strip() or 'of unknown version'}"

    def start(self, folder: Path, port: int) -> Server:
        """Start a node that shares nothing with an installed one: own name server, cookie, data and ports."""
        names_port = free_port()
        server = RabbitServer(
            [SCRIPTS / "rabbitmq-server"],
            folder=folder,
            name=self.key,
            environment=node_environment(folder, port, names_port),
        )
        server.names = name_server(folder, names_port)
        return server.wait_until(port_answers(port))

    def produce(self, plan: Plan, line: StartingLine) -> Outcome:
        """Publish with confirmations."""
        return _send_blocking(plan, line) if plan.kind == "sync" else _Producer(plan, line).run()

    def consume(self, plan: Plan, line: StartingLine) -> Outcome:
        """Consume from the plan's queue, or (fan-out) from a queue of one's own."""
        return _Consumer(plan, line).run()


def _parameters(plan: Plan) -> Any:
    import pika

    return pika.ConnectionParameters("127.0.0.1", plan.port, heartbeat=0)


def _queue_kind(plan: Plan) -> dict[str, str]:
    return {"x-queue-type": "quorum" if plan.peer.startswith(RabbitMQQuorum.key) else "classic"}


def _properties(plan: Plan) -> Any:
    import pika

    return pika.BasicProperties(delivery_mode=1 if plan.kind == "fanout" else 2)


def _send_blocking(plan: Plan, line: StartingLine) -> Outcome:
    import pika

    connection = pika.BlockingConnection(_parameters(plan))
    channel = connection.channel()
    channel.queue_declare(plan.destination, durable=True, arguments=_queue_kind(plan))
    channel.confirm_delivery()
    body, properties, latencies = b"x" * plan.size, _properties(plan), []
    line.wait_for_go()
    started = time.monotonic_ns()
    for _ in range(plan.messages):
        before = time.monotonic_ns()
        channel.basic_publish("", plan.destination, body, properties)
        latencies.append(time.monotonic_ns() - before)
    return outcome(started, time.monotonic_ns(), latencies)


class _LoopClient:
    """One connection and one channel of pika's event-loop adapter: opens both, then calls `begin`."""

    def __init__(self, plan: Plan, line: StartingLine) -> None:
        import pika

        self.plan, self.line = plan, line
        self.started = self.finished = 0
        self.latencies: list[int] = []
        self.channel: Any = None
        self.connection = pika.SelectConnection(_parameters(plan), on_open_callback=self._on_open)
        self.loop: Any = self.connection.ioloop

    def run(self) -> Outcome:
        """Turn the loop until the work is done."""
        self.loop.start()
        return outcome(self.started, self.finished, self.latencies)

    def begin(self) -> None:
        """Start working: the channel is open."""
        raise NotImplementedError

    def finish(self) -> None:
        """Note the time and leave the loop."""
        self.finished = time.monotonic_ns()
        self.loop.stop()

    def _on_open(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._on_channel)

    def _on_channel(self, channel: Any) -> None:
        self.channel = channel
        self.begin()


class _Producer(_LoopClient):
    """Publishes as long as the window allows; each confirmation lets more go."""

    def begin(self) -> None:
        self.sent = self.confirmed = self.below = 0
        self.alone: set[int] = set()
        self.body, self.properties = b"x" * self.plan.size, _properties(self.plan)
        self.exchange = f"{self.plan.destination}-x" if self.plan.kind == "fanout" else ""
        self.channel.confirm_delivery(self._on_confirm, callback=lambda _: self._go())

    def _go(self) -> None:
        self.line.wait_for_go()
        self.started = time.monotonic_ns()
        if self.plan.kind == "latency":
            self._tick(due(self.plan.messages, self.started))
        else:
            self._fill()

    def _on_confirm(self, frame: Any) -> None:
        # Single confirmations may overtake each other, so tags cannot just be compared: those confirmed alone
        # are kept until a range covers them.
        tag = frame.method.delivery_tag
        if frame.method.multiple:
            self.alone = {single for single in self.alone if single > tag}
            self.below = max(self.below, tag)
        else:
            self.alone.add(tag)
        while self.below + 1 in self.alone:
            self.below += 1
            self.alone.remove(self.below)
        self.confirmed = self.below + len(self.alone)
        if self.confirmed >= self.plan.messages:
            self.finish()
        elif self.plan.kind != "latency":
            self._fill()

    def _fill(self) -> None:
        limit = min(self.plan.messages, self.confirmed + WINDOW)
        # In bursts, so that several messages share a write to the socket.
        if limit - self.sent < WINDOW // 4 and limit < self.plan.messages:
            return
        while self.sent < limit:
            self.sent += 1
            self.channel.basic_publish(self.exchange, self.plan.destination, self.body, self.properties)

    def _tick(self, batches: Iterator[int]) -> None:
        count = next(batches, None)
        if count is None:
            return
        for _ in range(count):
            self.channel.basic_publish("", self.plan.destination, stamped(self.plan.size), self.properties)
        self.loop.call_later(TICK_SECONDS, lambda: self._tick(batches))


class _Consumer(_LoopClient):
    """Receives everything; acknowledges in ranges, or each message when latency is measured."""

    def begin(self) -> None:
        self.received = 0
        self.fanout = self.plan.kind == "fanout"
        self.ack_every = 1 if self.plan.kind == "latency" else ACK_EVERY
        if not self.fanout:
            self.queue = self.plan.destination
            self.channel.queue_declare(
                self.queue, durable=True, arguments=_queue_kind(self.plan), callback=lambda _: self._limit()
            )
            return
        self.queue = f"{self.plan.destination}-{self.plan.index}"
        exchange = f"{self.plan.destination}-x"
        self.channel.exchange_declare(exchange, "fanout")
        self.channel.queue_declare(self.queue, exclusive=True)
        self.channel.queue_bind(self.queue, exchange, callback=lambda _: self._limit())

    def _limit(self) -> None:
        self.channel.basic_qos(prefetch_count=PREFETCH, callback=lambda _: self._listen())

    def _listen(self) -> None:
        self.started = time.monotonic_ns()
        self.channel.basic_consume(
            self.queue, self._on_message, auto_ack=self.fanout, callback=lambda _: self.line.ready()
        )

    def _on_message(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self.received += 1
        if self.plan.kind == "latency":
            self.latencies.append(age_ns(body))
        done = self.received == self.plan.messages
        if not self.fanout and (done or self.received % self.ack_every == 0):
            channel.basic_ack(method.delivery_tag, multiple=True)
        if done:
            # Closing politely sends the last acknowledgement before the loop stops.
            self.finished = time.monotonic_ns()
            self.connection.add_on_close_callback(lambda *_: self.loop.stop())
            self.connection.close()


class RabbitMQQuorum(RabbitMQ):
    """RabbitMQ's replicated kind of queue, here with a single replica, through pika."""

    key = "rabbitmq-quorum"
    title = "RabbitMQ, quorum queue (pika)"
    durability = "write-ahead log synced before the confirm (group commit)"
    workloads: ClassVar[tuple[str, ...]] = ("queue", "queue-1k", "sync", "latency")

    def synced(self, kind: Kind) -> Synced:
        """The write-ahead log comes first, whoever consumes."""
        return "yes"


class RabbitMQAioPika(RabbitMQ):
    """RabbitMQ through aio-pika: a candidate for the best client, measured on the queue alone."""

    key = "rabbitmq-aio-pika"
    title = "RabbitMQ, classic queue (aio-pika)"
    client = "aio-pika"
    modules = ("aio_pika", "uvloop")
    workloads = ("queue",)

    def produce(self, plan: Plan, line: StartingLine) -> Outcome:
        """Publish from as many tasks as the window allows."""
        import uvloop

        return uvloop.run(_aio_produce(plan, line))

    def consume(self, plan: Plan, line: StartingLine) -> Outcome:
        """Consume through the queue's iterator."""
        import uvloop

        return uvloop.run(_aio_consume(plan, line))


async def _aio_produce(plan: Plan, line: StartingLine) -> Outcome:
    import aio_pika

    connection = await aio_pika.connect(port=plan.port)
    channel = await connection.channel(publisher_confirms=True)
    message = aio_pika.Message(b"x" * plan.size, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
    shares = iter(range(plan.messages))

    async def publish() -> None:
        for _ in shares:
            await channel.default_exchange.publish(message, plan.destination)

    line.wait_for_go()
    started = time.monotonic_ns()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(WINDOW):
            tasks.create_task(publish())
    finished = time.monotonic_ns()
    await connection.close()
    return outcome(started, finished)


async def _aio_consume(plan: Plan, line: StartingLine) -> Outcome:
    import aio_pika

    connection = await aio_pika.connect(port=plan.port)
    channel = await connection.channel()
    await channel.set_qos(PREFETCH)
    queue = await channel.declare_queue(plan.destination, durable=True)
    received = asyncio.Event()
    count = 0

    async def on_message(message: Any) -> None:
        nonlocal count
        count += 1
        done = count == plan.messages
        if done or count % ACK_EVERY == 0:
            await message.ack(multiple=True)
        if done:
            received.set()

    await queue.consume(on_message)
    line.ready()
    started = time.monotonic_ns()
    await received.wait()
    finished = time.monotonic_ns()
    await connection.close()
    return outcome(started, finished)
