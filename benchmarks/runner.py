"""One measurement: clients started around a running server, and what it cost."""

from __future__ import annotations

import json
import os
import selectors
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks.peers.interface import Peer
from benchmarks.processes import BenchmarkError, Child, Server
from benchmarks.workloads import Figures, Outcome, Plan, Role, Workload

LONGEST_SECONDS: Final = 60
"""A measurement that takes longer than this is given up and reported as failed."""


class _Client(Child):
    """A client process that says `ready` and later its outcome, a line each."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        command = [sys.executable, "-m", "benchmarks.client", plan.to_json()]
        super().__init__(command, folder=folder, name=f"{plan.peer}-{plan.role}-{plan.index}", piped=True)
        assert self.process.stdout is not None
        self.output = self.process.stdout.fileno()
        self.lines: list[str] = []
        self._partial = b""

    def read(self) -> None:
        """Take what the process has written; one that ends without its outcome has failed."""
        data = os.read(self.output, 65536)
        if not data:
            raise BenchmarkError(f"{self.name} failed: {self.complaint()}")
        *whole, self._partial = (self._partial + data).split(b"\n")
        self.lines += [line.decode() for line in whole]

    def go(self) -> None:
        """Let a waiting producer start."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"go\n")
        self.process.stdin.flush()


def _await_lines(clients: list[_Client], count: int, deadline: float) -> None:
    """Wait until every client has written that many lines."""
    with selectors.DefaultSelector() as selector:
        for client in clients:
            if len(client.lines) < count:
                selector.register(client.output, selectors.EVENT_READ, client)
        while selector.get_map():
            ready = selector.select(deadline - time.monotonic())
            if not ready and time.monotonic() >= deadline:
                raise BenchmarkError(f"not finished after {LONGEST_SECONDS} s")
            for key, _ in ready:
                speaker: _Client = key.data
                speaker.read()
                if len(speaker.lines) >= count:
                    selector.unregister(speaker.output)


def measure(
    peer: Peer, server: Server, workload: Workload, port: int, folder: Path, messages: int
) -> Figures:
    """Run one workload in client processes, timed from the first send to the last confirm and receipt."""

    destination = f"bench-{time.monotonic_ns()}"  # never used before: nothing is left in it

    def plan(role: Role, index: int = 0) -> Plan:
        return Plan(
            peer=peer.key,
            role=role,
            kind=workload.kind,
            destination=destination,
            messages=messages,
            size=workload.size,
            port=port,
            index=index,
        )

    deadline = time.monotonic() + LONGEST_SECONDS
    with ExitStack() as running:
        consumers = [
            running.enter_context(_Client(plan("consume", index), folder))
            for index in range(workload.consumers)
        ]
        _await_lines(consumers, 1, deadline)
        producer = running.enter_context(_Client(plan("produce"), folder))
        _await_lines([producer], 1, deadline)
        cpu_before = server.cpu_seconds()
        producer.go()
        _await_lines([producer, *consumers], 2, deadline)
        cpu_seconds = server.cpu_seconds() - cpu_before
        sent, *received = (Outcome(**json.loads(client.lines[1])) for client in (producer, *consumers))
    seconds = (max(one.finished_ns for one in (sent, *received)) - sent.started_ns) / 1e9
    timed = received[0] if workload.kind == "latency" else sent
    return Figures(
        messages=messages,
        seconds=seconds,
        messages_per_second=messages * workload.deliveries / seconds,
        p50_ms=timed.p50_ms,
        p99_ms=timed.p99_ms,
        server_cpu_us_per_message=cpu_seconds / messages * 1e6,
        server_rss_mb=server.rss_mb(),
        durability=peer.durability,
    )
