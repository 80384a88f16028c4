"""Heliograph as a cluster on this machine: `helio cluster dev`, what its processes cost, and what its bus carries."""

from __future__ import annotations

import asyncio
import json
import select
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

import heliograph
from benchmarks.processes import BenchmarkError, Child

START_SECONDS: Final = 60
STOP_SECONDS: Final = 30
LONGEST_SECONDS: Final = 90
AT_A_TIME: Final = 50
BACKUP: Final = "backup"
PRIMARY: Final = "primary"
CLIENT_MANAGER: Final = "client manager"
COROSYNC: Final = "corosync"
MESSAGE_MANAGERS: Final = "message managers"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFigures:
    """One run of one workload."""

    messages: int
    messages_per_second: float
    p50_ms: float | None
    p99_ms: float | None
    bus_bytes_per_message: float
    cpu_us_per_message: dict[str, float]
    """By role. Of several backups, the mean."""
    rss_mb: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class TogetherFigures:
    """Several queues at once; clients' start and end included in the rate."""

    messages_per_second: float
    cpu_us_per_message: dict[str, float]
    """By role, of all processes that share it."""


class OwnCluster:
    """One client manager, a primary and some backups, each a process, on a ring of one host."""

    def __init__(self, folder: Path, *, backups: int, sub_clusters: int = 1) -> None:
        """Raises BenchmarkError."""
        folder.mkdir()
        command = [sys.executable, "-m", "heliograph.cli.main", "cluster", "dev", "--json", "--port", "0"]
        command += ["--client-managers", "1", "--message-managers", str(backups + 1)]
        command += ["--sub-clusters", str(sub_clusters), "--data", str(folder / "data")]
        self._folder = folder
        self._command = Child(command, folder=folder, name="cluster", piped=True)
        try:
            said = self._first_line()
            self.url: str = said["url"]
            self._managers = {node["name"]: psutil.Process(node["pid"]) for node in said["message_managers"]}
            self.client_manager = psutil.Process(said["client_managers"][0]["pid"])
            self._corosync = [psutil.Process(each["pid"]) for each in said["corosync"]]
        except BaseException:
            self.stop()
            raise

    def _first_line(self) -> Any:
        output = self._command.process.stdout
        assert output is not None
        readable, _, _ = select.select([output], [], [], START_SECONDS)
        line = output.readline() if readable else b""
        if not line:
            raise BenchmarkError(f"the cluster did not start: {self._command.complaint()}")
        return json.loads(line)

    def __enter__(self) -> OwnCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """In order, because a corosync that is killed leaves its shared memory behind."""
        with suppress(subprocess.TimeoutExpired):
            self._command.process.send_signal(signal.SIGTERM)
            self._command.process.wait(STOP_SECONDS)
        self._command.stop()

    # ---- measuring

    def measure(self, workload: str, messages: int, size: int) -> ClusterFigures:
        """Run one workload with `helio bench run`. Raises BenchmarkError."""
        roles = self._roles()
        before, heard_before = _cpu_seconds(roles), self._bus()["heard_bytes"]
        said = self._run_helio(
            *("bench", "run", "--json", "--url", self.url, "--workload", workload),
            *("--messages", str(messages), "--size", str(size)),
        )
        after, heard_after = _cpu_seconds(roles), self._bus()["heard_bytes"]
        return ClusterFigures(
            messages=messages,
            messages_per_second=said["messages_per_second"],
            p50_ms=said["p50_ms"],
            p99_ms=said["p99_ms"],
            bus_bytes_per_message=(heard_after - heard_before) / messages,
            cpu_us_per_message={role: (after[role] - before[role]) / messages * 1e6 for role in roles},
            rss_mb={
                role: sum(one.memory_info().rss for one in processes) / len(processes) / 1e6
                for role, processes in roles.items()
            },
        )

    def measure_together(self, workloads: int, messages: int, size: int) -> TogetherFigures:
        """So many queues at once, each with a producer and a consumer of its own. Raises BenchmarkError."""
        servers = {
            CLIENT_MANAGER: [self.client_manager],
            MESSAGE_MANAGERS: list(self._managers.values()),
            COROSYNC: self._corosync,
        }
        before = {role: _cpu_sum(processes) for role, processes in servers.items()}
        command = [sys.executable, "-m", "heliograph.cli.main", "bench", "run", "--json", "--url", self.url]
        command += ["--workload", "queue", "--messages", str(messages), "--size", str(size)]
        began = time.monotonic()
        with ExitStack() as stack:
            children = [
                stack.enter_context(Child(command, folder=self._folder, name=f"helio-{number}", piped=True))
                for number in range(workloads)
            ]
            for child in children:
                child.process.communicate(timeout=LONGEST_SECONDS)
                if child.process.returncode:
                    raise BenchmarkError(f"helio bench run failed: {child.complaint()}")
        seconds, all_messages = time.monotonic() - began, workloads * messages
        return TogetherFigures(
            messages_per_second=all_messages / seconds,
            cpu_us_per_message={
                role: (_cpu_sum(processes) - before[role]) / all_messages * 1e6
                for role, processes in servers.items()
            },
        )

    def _bus(self) -> dict[str, Any]:
        """What the primary says about the bus, and so who it is."""

        async def ask() -> dict[str, Any]:
            async with heliograph.connect(self.url) as connection:
                return await connection.ask("bus")

        return asyncio.run(ask())

    def _roles(self) -> dict[str, list[psutil.Process]]:
        number = int(self._bus()["node"].rpartition(".")[2]) % 100
        primary = f"message-manager-{number}"
        backups = [process for name, process in self._managers.items() if name != primary]
        roles = {CLIENT_MANAGER: [self.client_manager], PRIMARY: [self._managers[primary]]}
        roles |= {BACKUP: backups} if backups else {}
        return roles | ({COROSYNC: self._corosync} if self._corosync else {})

    def open_idle(self, connections: int) -> dict[str, float]:
        """The client manager's memory before and with so many connections that do nothing, each with a session."""
        before = self.client_manager.memory_info().rss / 1e6
        command = [sys.executable, "-m", "benchmarks.own_cluster", self.url, str(connections)]
        with Child(command, folder=self._folder, name="idle", piped=True) as child:
            assert child.process.stdout is not None
            line = child.process.stdout.readline()
            if not line:
                raise BenchmarkError(f"not all connections could be opened: {child.complaint()}")
            with_all = self.client_manager.memory_info().rss / 1e6
        return {
            "connections": connections,
            "before_mb": before,
            "with_all_mb": with_all,
            "seconds": float(line),
        }

    def _run_helio(self, *arguments: str) -> Any:
        command = [sys.executable, "-m", "heliograph.cli.main", *arguments]
        with Child(command, folder=self._folder, name="helio", piped=True) as child:
            output, _ = child.process.communicate(timeout=LONGEST_SECONDS)
            if child.process.returncode:
                raise BenchmarkError(f"helio {' '.join(arguments[:2])} failed: {child.complaint()}")
        return json.loads(output)


def _cpu_seconds(roles: dict[str, list[psutil.Process]]) -> dict[str, float]:
    """By role; the mean of those who share one."""
    return {
        role: sum(times.user + times.system for times in (one.cpu_times() for one in processes))
        / len(processes)
        for role, processes in roles.items()
    }


def _cpu_sum(processes: list[psutil.Process]) -> float:
    return float(sum(times.user + times.system for times in (one.cpu_times() for one in processes)))


# ---- a process with many connections


async def _open_and_wait(url: str, connections: int) -> None:
    """Open them, some at a time, say how long it took, and wait until somebody ends this process."""
    started, ahead = time.monotonic(), asyncio.Semaphore(AT_A_TIME)

    async def one() -> heliograph.Connection:
        async with ahead:
            connection = await heliograph.connect(url, reconnect_seconds=0)
            await connection.session()
            return connection

    kept = await asyncio.gather(*(one() for _ in range(connections)))
    print(time.monotonic() - started, flush=True)
    await asyncio.Event().wait()
    del kept


if __name__ == "__main__":
    asyncio.run(_open_and_wait(sys.argv[1], int(sys.argv[2])))
