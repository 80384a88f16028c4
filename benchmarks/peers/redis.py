"""Redis Streams, with the append-only file synced at every write or every second.

A pipeline holds many XADD commands; Redis writes and syncs its file once per turn of its loop, so `always` is
a group commit too. The queue is a consumer group: read, then XACK. Entries stay in the stream (no XDEL),
which spares Redis work that the others do. Fan-out subscribers read the stream each on their own.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import ClassVar, Final

from benchmarks.peers.interface import Peer, StartingLine, age_ns, due, program, stamped
from benchmarks.processes import Server, port_answers
from benchmarks.workloads import Kind, Outcome, Plan, Synced, outcome

PIPELINE: Final = 1_000
"""XADD commands per round trip: 100 was a fifth slower, 5,000 no faster."""
READ_COUNT: Final = 1_000
FIELD: Final = b"b"
GROUP: Final = "bench"


class RedisAlways(Peer):
    """Redis that syncs its append-only file before it answers."""

    key = "redis-always"
    title = "Redis Streams (appendfsync always)"
    client = "redis"
    durability = "append-only file synced before the reply"
    packages = ("redis-server",)
    programs = ("redis-server",)
    modules = ("redis", "hiredis")
    append_fsync: ClassVar[str] = "always"

    def synced(self, kind: Kind) -> Synced:
        """As the append-only file is set."""
        return "yes" if self.append_fsync == "always" else "no"

    def server_version(self) -> str:
        """The version from `redis-server --version`."""
        said = subprocess.run(
            [program("redis-server"), "--version"], capture_output=True, text=True, check=True
        )
        return "Redis " + said.stdout.split("v=")[1].split()[0]

    def start(self, folder: Path, port: int) -> Server:
        """Start Redis with an append-only file and without snapshots."""
        options = {
            "port": str(port),
            "bind": "127.0.0.1",
            "dir": str(folder),
            "appendonly": "yes",
            "appendfsync": self.append_fsync,
            "save": "",
        }
        command = [program("redis-server")]
        for name, value in options.items():
            command += [f"--{name}", value]
        return Server(command, folder=folder, name=self.key).wait_until(port_answers(port))

    def produce(self, plan: Plan, line: StartingLine) -> Outcome:
        """Send with XADD, in pipelines or one by one."""
        import redis

        server = redis.Redis(port=plan.port)
        server.ping()
        body = b"x" * plan.size
        line.wait_for_go()
        started = time.monotonic_ns()
        if plan.kind == "sync":
            latencies = []
            for _ in range(plan.messages):
                before = time.monotonic_ns()
                server.xadd(plan.destination, {FIELD: body})
                latencies.append(time.monotonic_ns() - before)
            return outcome(started, time.monotonic_ns(), latencies)
        pipeline = server.pipeline(transaction=False)
        if plan.kind == "latency":
            for count in due(plan.messages, started):
                for _ in range(count):
                    pipeline.xadd(plan.destination, {FIELD: stamped(plan.size)})
                pipeline.execute()
                time.sleep(0.0005)
        else:
            for sent in range(0, plan.messages, PIPELINE):
                for _ in range(min(PIPELINE, plan.messages - sent)):
                    pipeline.xadd(plan.destination, {FIELD: body})
                pipeline.execute()
        return outcome(started, time.monotonic_ns())

    def consume(self, plan: Plan, line: StartingLine) -> Outcome:
        """Read as a group and acknowledge, or (fan-out) read on one's own."""
        import redis

        server = redis.Redis(port=plan.port)
        fanout = plan.kind == "fanout"
        if not fanout:
            server.xgroup_create(plan.destination, GROUP, id="0", mkstream=True)
        line.ready()
        started = time.monotonic_ns()
        received, last, latencies = 0, b"0", []
        while received < plan.messages:
            if fanout:
                answer = server.xread({plan.destination: last}, count=READ_COUNT, block=1_000)
            else:
                unread = {plan.destination: ">"}
                answer = server.xreadgroup(GROUP, "c", unread, count=READ_COUNT, block=1_000)
            if not answer:
                continue
            entries = answer[0][1]
            if plan.kind == "latency":
                latencies += [age_ns(fields[FIELD]) for _, fields in entries]
            received += len(entries)
            last = entries[-1][0]
            if not fanout:
                server.xack(plan.destination, GROUP, *[entry for entry, _ in entries])
        return outcome(started, time.monotonic_ns(), latencies)


class RedisEverySecond(RedisAlways):
    """Redis that syncs its file every second: a crash loses up to a second of confirmed messages."""

    key = "redis-everysec"
    title = "Redis Streams (appendfsync everysec)"
    durability = "append-only file written before the reply, synced every second"
    append_fsync = "everysec"
