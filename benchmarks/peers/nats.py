"""NATS JetStream, file storage, through nats-py.

JetStream confirms when the message is in the file's page cache; this version syncs every two minutes and
cannot be told to sync before confirming. The stream keeps its messages after they are acknowledged (limits
policy) and the consumer acknowledges cumulatively: the cheapest way to work there. Fan-out publishes to the
stream with confirmations, while the subscribers listen to the subject directly.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.peers.interface import Peer, StartingLine, age_ns, due, program, stamped
from benchmarks.processes import Server, port_answers
from benchmarks.workloads import Kind, Outcome, Plan, Synced, outcome

WINDOW: Final = 2_000
"""Unconfirmed messages: 8,000 was slower, 500 not clearly different."""
ACK_EVERY: Final = 200
TICK_SECONDS: Final = 0.001
CLUSTER_KEY: Final = "nats-cluster"
"""The peer whose streams have replicas; see `nats_cluster.py`."""
REPLICAS: Final = 3


class NatsJetStream(Peer):
    """NATS JetStream through nats-py on uvloop."""

    key = "nats"
    title = "NATS JetStream (nats-py)"
    client = "nats-py"
    durability = "written to the page cache; synced every two minutes"
    packages = ("nats-server",)
    programs = ("nats-server",)
    modules = ("nats", "uvloop")

    def synced(self, kind: Kind) -> Synced:
        """Never: the file is synced by a timer."""
        return "no"

    def server_version(self) -> str:
        """The version from `nats-server --version`."""
        said = subprocess.run(
            [program("nats-server"), "--version"], capture_output=True, text=True, check=True
        )
        return "NATS " + said.stdout.split("v")[-1].strip()

    def start(self, folder: Path, port: int) -> Server:
        """Start with JetStream's store in the folder."""
        command = [program("nats-server"), "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(folder)]
        return Server(command, folder=folder, name=self.key).wait_until(port_answers(port))

    def produce(self, plan: Plan, line: StartingLine) -> Outcome:
        """Publish to the stream."""
        import uvloop

        return uvloop.run(_produce(plan, line))

    def consume(self, plan: Plan, line: StartingLine) -> Outcome:
        """Consume from the stream, or (fan-out) from its subject."""
        import uvloop

        return uvloop.run(_consume(plan, line))


async def _connect(plan: Plan) -> Any:
    import nats

    return await nats.connect(f"nats://127.0.0.1:{plan.port}")


async def _add_stream(plan: Plan, stream: Any) -> None:
    replicas = REPLICAS if plan.peer == CLUSTER_KEY else 1
    await stream.add_stream(name=plan.destination, subjects=[plan.destination], num_replicas=replicas)


async def _produce(plan: Plan, line: StartingLine) -> Outcome:
    connection = await _connect(plan)
    stream = connection.jetstream(publish_async_max_pending=WINDOW)
    await _add_stream(plan, stream)
    line.wait_for_go()
    started, body, latencies = time.monotonic_ns(), b"x" * plan.size, []
    if plan.kind == "sync":
        for _ in range(plan.messages):
            before = time.monotonic_ns()
            await stream.publish(plan.destination, body)
            latencies.append(time.monotonic_ns() - before)
    elif plan.kind == "latency":
        for count in due(plan.messages, started):
            for _ in range(count):
                await stream.publish_async(plan.destination, stamped(plan.size))
            await asyncio.sleep(TICK_SECONDS)
    else:
        for _ in range(plan.messages):
            await stream.publish_async(plan.destination, body, wait_stall=30)
    await stream.publish_async_completed()
    finished = time.monotonic_ns()
    await connection.close()
    return outcome(started, finished, latencies)


async def _consume(plan: Plan, line: StartingLine) -> Outcome:
    connection = await _connect(plan)
    stream = connection.jetstream()
    await _add_stream(plan, stream)
    done = asyncio.Event()
    received, latencies = 0, []
    ack_every = {"fanout": 0, "latency": 1}.get(plan.kind, ACK_EVERY)

    async def on_message(message: Any) -> None:
        nonlocal received
        received += 1
        if plan.kind == "latency":
            latencies.append(age_ns(message.data))
        last = received == plan.messages
        if ack_every and (last or received % ack_every == 0):
            await message.ack()
        if last:
            done.set()

    if plan.kind == "fanout":
        await connection.subscribe(plan.destination, cb=on_message, pending_bytes_limit=1 << 30)
        await connection.flush()
    else:
        await _subscribe_to_stream(plan, stream, on_message)
    line.ready()
    started = time.monotonic_ns()
    await done.wait()
    finished = time.monotonic_ns()
    await connection.close()
    return outcome(started, finished, latencies)


async def _subscribe_to_stream(plan: Plan, stream: Any, on_message: Any) -> None:
    from nats.js.api import AckPolicy, ConsumerConfig

    await stream.subscribe(
        plan.destination,
        durable="bench",
        cb=on_message,
        manual_ack=True,
        config=ConsumerConfig(ack_policy=AckPolicy.ALL, max_ack_pending=20_000),
        pending_bytes_limit=1 << 30,
    )
