"""What each backup costs the primary.

Clusters of ours on one ring, which differ in their backups alone. They are measured in turns, a few seconds each, so
that whatever else the machine does happens to all. What is sent at a time stays in the client manager's memory: a
primary that has to send bodies once more pays for a slow consumer, not for a backup.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import heliograph
from benchmarks.majority import bench
from benchmarks.processes import BenchmarkError
from benchmarks.report import number, table
from heliograph.cli.dev_cluster import DevCluster
from heliograph.model.errors import HeliographError

BACKUPS: Final = (0, 1, 2)
MESSAGES: Final = 100_000
"""26 MB: less than the 32 MiB that a consumer may be behind."""
TIMES: Final = 3
"""In a turn."""
TURNS: Final = 4
START_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupFigures:
    """One turn of all: by number of backups."""

    primary_us: dict[str, float]
    """Processor time of the primary, per message."""
    messages_per_second: dict[str, float]


def measure_backups(folder: Path, rounds: int) -> list[BackupFigures]:
    """`rounds` of several turns each. Raises BenchmarkError."""
    with _clusters(folder) as clusters:
        for cluster in clusters.values():
            for _ in range(3):  # by then everything is as it stays
                bench(folder, cluster.url, "queue", MESSAGES)
        return [_turn(folder, clusters) for _ in range(rounds * TURNS)]


@contextmanager
def _clusters(folder: Path) -> Iterator[dict[int, DevCluster]]:
    """The ring is the first one's."""
    clusters: dict[int, DevCluster] = {}
    for backups in BACKUPS:
        clusters[backups] = DevCluster(
            folder / f"with-{backups}",
            client_managers=1,
            message_managers=backups + 1,
            beside=clusters.get(BACKUPS[0]),
        )
    try:
        for cluster in clusters.values():
            cluster.start()
            cluster.wait(START_SECONDS)
        yield clusters
    except HeliographError as error:
        raise BenchmarkError(f"the cluster did not start: {error}") from None
    finally:
        for cluster in reversed(clusters.values()):
            cluster.stop()


def _turn(folder: Path, clusters: dict[int, DevCluster]) -> BackupFigures:
    costs: dict[str, float] = {}
    rates: dict[str, float] = {}
    for backups, cluster in clusters.items():
        primary = _primary(cluster)
        before = _cpu_ns(primary)
        said = [bench(folder, cluster.url, "queue", MESSAGES) for _ in range(TIMES)]
        spent = _cpu_ns(primary) - before
        costs[str(backups)] = spent / MESSAGES / TIMES / 1e3
        rates[str(backups)] = median(each["messages_per_second"] for each in said)
    print(
        "  primary " + "  ".join(f"{name} backups {cost:.2f} µs" for name, cost in costs.items()), flush=True
    )
    return BackupFigures(primary_us=costs, messages_per_second=rates)


def _cpu_ns(pid: int) -> int:
    """Of all threads, by the scheduler's own clock: that of the process's times ticks a hundred times a second."""
    return sum(int(each.read_text().split()[0]) for each in Path(f"/proc/{pid}/task").glob("*/schedstat"))


def _primary(cluster: DevCluster) -> int:
    async def ask() -> dict[str, Any]:
        async with heliograph.connect(cluster.url) as connection:
            return await connection.ask("bus")

    place = int(asyncio.run(ask())["node"].rpartition(".")[2]) % 100
    return cluster.message_managers[place - 1].pid


# ---- what it comes to


def dearer(runs: Sequence[BackupFigures], backups: int) -> float:
    """By how much one backup more makes a message dearer for the primary: the median of all turns."""
    return median(run.primary_us[str(backups)] / run.primary_us[str(backups - 1)] for run in runs) - 1


def section(runs: Sequence[BackupFigures]) -> str:
    rows = []
    for backups in BACKUPS:
        costs = sorted(run.primary_us[str(backups)] for run in runs)
        more = f"{dearer(runs, backups):+.1%}" if backups else "–"
        rows.append([str(backups), number(median(costs), 2), f"{costs[0]:.2f} to {costs[-1]:.2f}", more])
    head = ["backups", "primary µs/msg", "all turns", "than with one backup less"]
    return f"{table(head, rows)}\n{len(runs)} turns of {TIMES} times {MESSAGES:,} messages each.\n"
