"""What it costs that most client managers have to see a dispatch before a client gets it (P5).

Two clusters of ours on one ring, with three client managers, a primary and a backup each, which differ in
`cluster.dispatch_majority` alone. They are measured in turns, a few seconds each, so that whatever else the machine
does happens to both.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import psutil

from benchmarks.bus import round_trip_us
from benchmarks.processes import BenchmarkError, Child
from benchmarks.report import number, table
from heliograph.cli.dev_cluster import DevCluster
from heliograph.model.errors import HeliographError

CLIENT_MANAGERS: Final = 3
MESSAGE_MANAGERS: Final = 2
SIZE: Final = 256
RATES: Final = (100, 1000)
"""Messages a second whose way is timed: few enough that nothing waits for anything else. They are not persistent:
disks scatter by more than is to be seen."""
LATENCY_SECONDS: Final = 2
LATENCY_TURNS: Final = 5
"""How often each of the two is timed in a round, one behind the other."""
START_SECONDS: Final = 60.0
LONGEST_SECONDS: Final = 90
WITH, WITHOUT = "with", "without"


@dataclass(frozen=True, slots=True, kw_only=True)
class MajorityFigures:
    """One round: each figure with the rule and without it."""

    messages_per_second: dict[str, float]
    cpu_us_per_message: dict[str, dict[str, float]]
    """By role, of all processes that share it."""
    p50_ms: dict[str, dict[str, float]]
    """By messages a second."""
    round_trip_ms: dict[str, float]
    """By messages a second: of the bus alone, with as many members and the same pace."""


def measure_majority(folder: Path, rounds: int, messages: int) -> list[MajorityFigures]:
    """Raises BenchmarkError."""
    with _two_clusters(folder) as (clusters, ring):
        for cluster in clusters.values():
            bench(folder, cluster.url, "queue", messages // 4)
        return [_round(folder, clusters, ring, messages) for _ in range(rounds)]


@contextmanager
def _two_clusters(folder: Path) -> Iterator[tuple[dict[str, DevCluster], DevCluster]]:
    """The ring is the first one's."""
    clusters: dict[str, DevCluster] = {}
    for name in (WITH, WITHOUT):
        clusters[name] = DevCluster(
            folder / name,
            client_managers=CLIENT_MANAGERS,
            message_managers=MESSAGE_MANAGERS,
            settings={"cluster": {"dispatch_majority": name == WITH}},
            beside=clusters.get(WITH),
        )
    try:
        for cluster in clusters.values():
            cluster.start()
            cluster.wait(START_SECONDS)
        yield clusters, clusters[WITH]
    except HeliographError as error:
        raise BenchmarkError(f"the cluster did not start: {error}") from None
    finally:
        for cluster in reversed(clusters.values()):
            cluster.stop()


def _round(folder: Path, clusters: dict[str, DevCluster], ring: DevCluster, messages: int) -> MajorityFigures:
    rates: dict[str, Any] = {}
    costs: dict[str, dict[str, float]] = {}
    for name, each in clusters.items():
        before = _cpu_seconds(each)
        rates[name] = bench(folder, each.url, "queue", messages)
        costs[name] = {
            role: (after - before[role]) / messages * 1e6 for role, after in _cpu_seconds(each).items()
        }
    latency: dict[str, dict[str, float]] = {}
    for rate in RATES:
        turns = [_latencies(folder, clusters, rate) for _ in range(LATENCY_TURNS)]
        latency[str(rate)] = {name: median(turn[name] for turn in turns) for name in clusters}
    assert ring.ring is not None, "the first cluster began it"
    figures = MajorityFigures(
        messages_per_second={name: said["messages_per_second"] for name, said in rates.items()},
        cpu_us_per_message=costs,
        p50_ms=latency,
        round_trip_ms={
            str(rate): round_trip_us(ring.ring, CLIENT_MANAGERS + MESSAGE_MANAGERS, 1 / rate) / 1000
            for rate in RATES
        },
    )
    print(f"  {_shown(figures)}", flush=True)
    return figures


def _latencies(folder: Path, clusters: dict[str, DevCluster], rate: int) -> dict[str, float]:
    timed = ("latency", rate * LATENCY_SECONDS, "--rate", str(rate), "--non-persistent")
    return {name: bench(folder, each.url, *timed)["p50_ms"] for name, each in clusters.items()}


def _cpu_seconds(cluster: DevCluster) -> dict[str, float]:
    """Of the nodes, by role."""
    used: dict[str, float] = {}
    for node in cluster.nodes:
        times = psutil.Process(node.pid).cpu_times()
        used[node.role] = used.get(node.role, 0.0) + times.user + times.system
    return used


def bench(folder: Path, url: str, workload: str, messages: int, *more: str) -> Any:
    command = [sys.executable, "-m", "heliograph.cli.main", "bench", "run", "--json", "--url", url]
    command += ["--workload", workload, "--messages", str(messages), "--size", str(SIZE), *more]
    with Child(command, folder=folder, name="helio", piped=True) as child:
        try:
            output, _ = child.process.communicate(timeout=LONGEST_SECONDS)
        except subprocess.TimeoutExpired:
            raise BenchmarkError(f"helio bench run --workload {workload} took too long") from None
        if child.process.returncode:
            raise BenchmarkError(f"helio bench run failed: {child.complaint()}")
    return json.loads(output)


def _shown(figures: MajorityFigures) -> str:
    parts = [f"{name} {rate:,.0f} /s" for name, rate in figures.messages_per_second.items()]
    for name, costs in figures.cpu_us_per_message.items():
        parts += [f"{role} {name} {cost:.2f} µs" for role, cost in costs.items()]
    for rate, latencies in figures.p50_ms.items():
        parts += [f"p50 at {rate}/s {name} {p50:.2f} ms" for name, p50 in latencies.items()]
    parts += [f"round trip at {rate}/s {trip:.2f} ms" for rate, trip in figures.round_trip_ms.items()]
    return "  ".join(parts)


# ---- what it comes to


def kept(runs: Sequence[MajorityFigures]) -> float:
    """The throughput with the rule as a share of that without: the median of all rounds."""
    return median(run.messages_per_second[WITH] / run.messages_per_second[WITHOUT] for run in runs)


def round_trips(runs: Sequence[MajorityFigures]) -> float:
    """By how many round trips of the bus a message takes longer, in the median round, at the worst rate."""
    return max(
        median((run.p50_ms[rate][WITH] - run.p50_ms[rate][WITHOUT]) / run.round_trip_ms[rate] for run in runs)
        for rate in runs[0].p50_ms
    )


def section(runs: Sequence[MajorityFigures]) -> str:
    rows = []
    roles = list(runs[0].cpu_us_per_message[WITH])
    for name in (WITH, WITHOUT):
        rates = [run.messages_per_second[name] for run in runs]
        latencies = [median(run.p50_ms[rate][name] for run in runs) for rate in runs[0].p50_ms]
        costs = [median(run.cpu_us_per_message[name][role] for run in runs) for role in roles]
        rows.append([name, number(median(rates)), *(number(each, 2) for each in (*costs, *latencies))])
    head = [
        "the rule",
        "messages/s",
        *(f"{role}s µs/msg" for role in roles),
        *(f"p50 ms at {rate}/s" for rate in runs[0].p50_ms),
    ]
    trips = " and ".join(
        f"{median(run.round_trip_ms[rate] for run in runs):.2f} ms at {rate}/s" for rate in runs[0].p50_ms
    )
    members = CLIENT_MANAGERS + MESSAGE_MANAGERS
    return f"{table(head, rows)}\nA round trip of the bus alone, with {members} members, takes {trips}.\n"
