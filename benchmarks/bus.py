"""What the bus carries on this machine: `python -m benchmarks.bus`, as the superuser.

Two rings of real corosyncs, with the settings that `helio cluster init` writes: one host with three processes, and
three hosts in network namespaces, all on the cores of this machine. One process sends, all receive.

- *messages*: bare messages of a size through libcpg, as many as it takes.
- *commands*: chunks with a body of a size through the bus, packed and cut as always.
- *latency*: one command at a time, from `multicast` to its delivery at the sender.
- *round-trip*: the same, until the answer of one other member is delivered; the rest listen.
"""

from __future__ import annotations

import asyncio
import json
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvloop

from heliograph.bus.commands import ChunkSent, Command
from heliograph.bus.corosync import CorosyncBus, CorosyncMembership
from heliograph.bus.cpg import Address, CpgHandle
from heliograph.bus.interface import Configuration, Damage, Origin
from heliograph.cli.dev_hosts import Host, Network
from heliograph.model.errors import Unavailable
from heliograph.model.ids import SessionId
from heliograph.model.limits import KIB, MIB
from heliograph.nodes.allocation import keep_large_buffers
from tests.cluster.hosts import one_host, require_corosync

SECONDS = 2.0
MESSAGE_SIZES = (1 * KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, 1023 * KIB)
COMMAND_SIZES = (256, 1 * KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, 1 * MIB)
LATENCY_SIZES = (256, 4 * KIB, 64 * KIB, 256 * KIB, 1 * MIB)
LATENCY_ROUNDS = 500
MEMBERS = 3
PAUSE_SECONDS = 0.001
SENDS, ANSWERS, LISTENS = "sends", "answers", "listens"
_SESSION = SessionId(bytes(16))


# ---- in the processes


class Counter:
    """Counts bare messages."""

    def __init__(self) -> None:
        self.count = self.size = self.members = 0
        self.first = self.last = 0.0

    def delivered(self, node: int, process: int, message: memoryview) -> None:
        self.last = time.perf_counter()
        self.first = self.first or self.last
        self.count += 1
        self.size += len(message)

    def group_changed(self, members: list[Address], left: list[Address], joined: list[Address]) -> None:
        self.members = len(members)

    def ring_changed(self, node: int, sequence: int) -> None: ...


def _messages(size: int, sends: bool) -> dict[str, float]:
    counter = Counter()
    handle = CpgHandle(f"messages-{size}", counter)
    while not handle.join():
        time.sleep(0.01)
    descriptor = handle.descriptor

    def drain(patience: float) -> None:
        if select.select([descriptor], [], [], patience)[0]:
            while handle.dispatch_one():
                pass

    while counter.members < MEMBERS:
        drain(0.1)
    message, until = bytearray(size), time.perf_counter() + SECONDS
    while time.perf_counter() < until:
        sent = sends and all(handle.multicast(message) for _ in range(20))
        drain(0 if sent else 0.002 if sends else 0.1)
    until = time.perf_counter() + 1
    while time.perf_counter() < until:
        drain(0.1)
    return _rates(counter)


def _rates(counter: Counter) -> dict[str, float]:
    took = counter.last - counter.first
    return {"per_second": counter.count / took, "megabytes_per_second": counter.size / took / 1e6}


class Speaker(Counter):
    """A member of the bus."""

    def __init__(self) -> None:
        super().__init__()
        self.membership: CorosyncMembership | None = None
        self.size_to_say = 0
        self.until = 0.0
        self.heard = asyncio.Event()
        self.answered = asyncio.Event()
        self.answers = False
        self.asked = 0

    def on_frame(self, origin: Origin, commands: list[Command]) -> None:
        self.last = time.perf_counter()
        self.first = self.first or self.last
        for command in commands:
            assert isinstance(command, ChunkSent)
            self.count += 1
            self.size += len(command.data)
            if command.offset:
                self.answered.set()
            elif self.answers:
                assert self.membership is not None
                self.membership.multicast(ChunkSent(_SESSION, command.transfer, 1, command.data))
        self.heard.set()

    def on_configuration(self, configuration: Configuration) -> None:
        self.members = len(configuration.members)

    def on_flow(self, may_send: bool) -> None:
        if may_send:
            self.go_on()

    def on_damage(self, damage: Damage) -> None: ...

    def on_ended(self, error: Unavailable | None) -> None: ...

    def say(self, data: bytes) -> None:
        assert self.membership is not None
        self.asked += 1
        self.membership.multicast(ChunkSent(_SESSION, self.asked, 0, data))

    def go_on(self) -> None:
        assert self.membership is not None
        data = bytes(self.size_to_say)
        while self.membership.may_send and time.perf_counter() < self.until:
            self.say(data)


async def _entered(channel: str, *, answers: bool = False, members: int = MEMBERS) -> Speaker:
    speaker = Speaker()
    speaker.answers = answers
    speaker.membership = CorosyncBus(asyncio.get_running_loop()).enter(channel, speaker)
    while speaker.members < members:
        await asyncio.sleep(0.01)
    return speaker


async def _commands(size: int, sends: bool) -> dict[str, float]:
    speaker = await _entered(f"commands-{size}")
    speaker.size_to_say, speaker.until = size, time.perf_counter() + SECONDS
    if sends:
        speaker.go_on()
    await asyncio.sleep(SECONDS + 1)
    return _rates(speaker)


async def _latency(
    size: int, role: str, *, answered: bool = False, members: int = MEMBERS, pause: float = PAUSE_SECONDS
) -> dict[str, float]:
    channel = f"{'round-trip' if answered else 'latency'}-{size}-{members}-{pause}"
    speaker = await _entered(channel, answers=role == ANSWERS, members=members)
    took = []
    awaited = speaker.answered if answered else speaker.heard
    for _ in range(LATENCY_ROUNDS if role == SENDS else 0):
        awaited.clear()
        began = time.perf_counter()
        speaker.say(bytes(size))
        await awaited.wait()
        took.append(time.perf_counter() - began)
        await asyncio.sleep(pause)
    if role != SENDS:
        await asyncio.sleep(LATENCY_ROUNDS * pause)
        while not speaker.count or time.perf_counter() - speaker.last < 0.3:
            await asyncio.sleep(0.1)
        return {}
    took.sort()
    return {"p50_us": took[len(took) // 2] * 1e6, "p99_us": took[len(took) * 99 // 100] * 1e6}


def _work(what: str, size: int, members: int, pause: float, role: str) -> None:
    keep_large_buffers()  # as a server does
    if what == "messages":
        figures = _messages(size, role == SENDS)
    elif what == "commands":
        figures = uvloop.run(_commands(size, role == SENDS))
    else:
        answered = what == "round-trip"
        figures = uvloop.run(_latency(size, role, answered=answered, members=members, pause=pause))
    print(json.dumps(figures), flush=True)


# ---- outside


@contextmanager
def _rings(folder: Path) -> Iterator[dict[str, list[Host]]]:
    with one_host(folder) as host:
        network = Network(folder / "network", 3)
        try:
            network.start(token_ms=1000)
            yield {"one host": [host] * 3, "three hosts": network.hosts}
        finally:
            network.stop()


def _measure(hosts: list[Host], what: str, size: int, pause: float = PAUSE_SECONDS) -> dict[str, Any]:
    """The sender's figures for latency, and otherwise those of the receiver that is slowest."""
    processes = []
    roles = [SENDS, ANSWERS if what == "round-trip" else LISTENS] + [LISTENS] * (len(hosts) - 2)
    for host, role in zip(hosts, roles, strict=True):
        said = (what, str(size), str(len(hosts)), str(pause), role)
        command = host.inside(sys.executable, "-m", "benchmarks.bus", *said)
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE))
    figures = [json.loads(process.communicate(timeout=60)[0]) for process in processes]
    return (
        figures[0]
        if what in {"latency", "round-trip"}
        else min(figures, key=lambda each: float(each["per_second"]))
    )


def round_trip_us(host: Host, members: int = MEMBERS, pause: float = PAUSE_SECONDS) -> float:
    """What a small command and the answer of one member take, with so many processes on a host that all hear both,
    `pause` seconds after the one before: processors that had nothing to do meanwhile are slower to begin."""
    return float(_measure([host] * members, "round-trip", LATENCY_SIZES[0], pause)["p50_us"])


def main() -> None:
    require_corosync()
    sizes = {
        "messages": MESSAGE_SIZES,
        "commands": COMMAND_SIZES,
        "latency": LATENCY_SIZES,
        "round-trip": LATENCY_SIZES,
    }
    wanted = sys.argv[1:] or list(sizes)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "network").mkdir()
        with _rings(Path(folder)) as rings:
            for what in wanted:
                for ring, hosts in rings.items():
                    for size in sizes[what]:
                        figures = _measure(hosts, what, size)
                        shown = "  ".join(f"{name} {value:,.0f}" for name, value in figures.items())
                        print(f"{what:9} {ring:12} {size:9,} B  {shown}", flush=True)


if __name__ == "__main__":
    if sys.argv[-1] in {SENDS, ANSWERS, LISTENS}:
        _work(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), sys.argv[5])
    else:
        main()
