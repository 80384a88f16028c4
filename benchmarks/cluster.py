"""Replicated queues, side by side: `python -m benchmarks.cluster`.

Heliograph with one client manager, one primary and one backup, RabbitMQ's quorum queue on three nodes and NATS
JetStream with three replicas, in turns, in the same run; then what backups cost the primary, whether two
sub-clusters do twice the work, what connections that do nothing cost a client manager, and what it costs to ask
most client managers before a client gets a message. All processes share this
machine, so what each costs says more than how many messages pass: on hosts of their own they do not take each
other's time.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks import backups as backups_in_turns
from benchmarks.__main__ import _data_folder, _stop_on_signal
from benchmarks.backups import BackupFigures, dearer, measure_backups
from benchmarks.heliograph import own_version
from benchmarks.majority import MajorityFigures, kept, measure_majority, round_trips, section
from benchmarks.own_cluster import (
    BACKUP,
    CLIENT_MANAGER,
    COROSYNC,
    MESSAGE_MANAGERS,
    PRIMARY,
    ClusterFigures,
    OwnCluster,
    TogetherFigures,
)
from benchmarks.packages import install, what_is_missing
from benchmarks.peers import cluster_peers
from benchmarks.peers.interface import Peer
from benchmarks.processes import BenchmarkError, free_port
from benchmarks.report import machine, number, table
from benchmarks.rounds import FEWEST, TRIAL_MESSAGES
from benchmarks.runner import measure
from benchmarks.summary import Bar
from benchmarks.workloads import WORKLOADS, Workload

QUEUE, SYNC = (next(each for each in WORKLOADS if each.key == key) for key in ("queue", "sync"))
SECONDS_PER_MEASUREMENT: Final = 2.5
OWN_TRIAL_FACTOR: Final = 30
BACKUPS: Final = (0, 1, 2)
CONNECTIONS: Final = 10_000
SUB_CLUSTERS: Final = (1, 2)
TOGETHER: Final = 2
TOGETHER_MESSAGES: Final = 300_000
MAJORITY_MESSAGES: Final = 200_000
PARTS: Final = ("peers", "backups", "sub-clusters", "connections", "majority")

PREAMBLE = """\
`make bench-cluster`. Everything ran on this machine in the same run, in turns, one cluster at a time, with all of its
nodes, the producer and the consumer in processes of their own, and data on the same file system. One message of
256 B per call of the client's send function. Rounds: {rounds}; figures are their medians, and all are in
`cluster.json`. Heliograph: one client manager, one primary and as many backups as are named, on a Corosync ring of
one host; a confirmation means that the primary and a backup have synced.
"""
ON_COSTS = """\
Processor time, user and system, connecting included; of several backups, the mean. A consumer that is more than
32 MiB behind its producer makes the primary send bodies once more: where there are more bytes on the bus than a
message has, part of the primary's, the client manager's and Corosync's time is that, and no backup's.
"""


@dataclass(slots=True)
class Run:
    """All that was measured."""

    data: Path
    seconds: float
    own: dict[int, list[ClusterFigures]] = field(default_factory=dict)
    """The queue, by number of backups."""
    own_sync: list[ClusterFigures] = field(default_factory=list)
    theirs: dict[str, dict[str, list[dict[str, Any]]]] = field(default_factory=dict)
    connections: dict[str, float] | None = None
    together: dict[int, list[TogetherFigures]] = field(default_factory=dict)
    """Several queues at once, by number of sub-clusters."""
    majority: list[MajorityFigures] = field(default_factory=list)
    in_turns: list[BackupFigures] = field(default_factory=list)
    """What the primary costs, without a backup and with more and more."""
    _rates: dict[tuple[str, str], float] = field(default_factory=dict)

    def go_on_from(self, results: Path) -> None:
        """Add to the rounds of an earlier run, if there was one."""
        if not results.exists():
            return
        raw = json.loads(results.read_text())
        for backups, runs in raw["heliograph"]["queue"].items():
            self.own[int(backups)] = [ClusterFigures(**each) for each in runs]
        self.own_sync = [ClusterFigures(**each) for each in raw["heliograph"]["sync"]]
        for count, runs in raw["heliograph"].get("together", {}).items():
            self.together[int(count)] = [TogetherFigures(**each) for each in runs]
        self.majority = [MajorityFigures(**each) for each in raw["heliograph"].get("majority", [])]
        self.in_turns = [BackupFigures(**each) for each in raw["heliograph"].get("in_turns", [])]
        self.theirs, self.connections = raw["peers"], raw["connections"]

    @property
    def rounds(self) -> int:
        """How many there are of what is compared."""
        return len(self.own.get(1, []))

    def measure_own(self, backups: int, *, with_sync: bool) -> None:
        """A cluster of ours, fresh."""
        key = f"own-{backups}"
        with OwnCluster(self._folder(), backups=backups) as cluster:

            def queue(messages: int) -> float:
                return cluster.measure(QUEUE.kind, messages, QUEUE.size).messages_per_second

            count = self._count(key, QUEUE, queue, OWN_TRIAL_FACTOR)
            figures = cluster.measure(QUEUE.kind, count, QUEUE.size)
            self.own.setdefault(backups, []).append(figures)
            self._rates[key, QUEUE.key] = figures.messages_per_second
            _say(f"Heliograph, {backups} backups", QUEUE, asdict(figures))
            if with_sync:
                count = self._count(
                    key, SYNC, lambda n: cluster.measure("sync", n, SYNC.size).messages_per_second
                )
                self.own_sync.append(cluster.measure("sync", count, SYNC.size))
                _say(f"Heliograph, {backups} backups", SYNC, asdict(self.own_sync[-1]))

    def measure_peer(self, peer: Peer) -> None:
        """A cluster of theirs, fresh."""
        port, folder = free_port(), self._folder()
        folder.mkdir()
        with peer.start(folder, port) as server:
            for workload in (QUEUE, SYNC):

                def once(messages: int, workload: Workload = workload) -> float:
                    return measure(peer, server, workload, port, folder, messages).messages_per_second or 0.0

                figures = measure(peer, server, workload, port, folder, self._count(peer.key, workload, once))
                self.theirs.setdefault(peer.key, {}).setdefault(workload.key, []).append(asdict(figures))
                self._rates[peer.key, workload.key] = figures.messages_per_second or 0.0
                _say(peer.title, workload, asdict(figures))
        shutil.rmtree(folder, ignore_errors=True)

    def measure_together(self, sub_clusters: int) -> None:
        """Two queues at once, in one sub-cluster or each in its own, with a backup each."""
        with OwnCluster(self._folder(), backups=1, sub_clusters=sub_clusters) as cluster:
            cluster.measure_together(TOGETHER, FEWEST, QUEUE.size)
            figures = cluster.measure_together(TOGETHER, TOGETHER_MESSAGES, QUEUE.size)
        self.together.setdefault(sub_clusters, []).append(figures)
        costs = "  ".join(f"{role} {cost:.2f}" for role, cost in figures.cpu_us_per_message.items())
        print(
            f"  {TOGETHER} queues, {sub_clusters} sub-clusters  {figures.messages_per_second:,.0f} /s  {costs}"
        )

    def measure_majority(self, rounds: int) -> None:
        """With and without most client managers having to see what is handed out, in turns."""
        folder = self._folder()
        folder.mkdir()
        self.majority += measure_majority(folder, rounds, MAJORITY_MESSAGES)

    def measure_backups(self, rounds: int) -> None:
        """Without a backup, with one and with two, in turns."""
        folder = self._folder()
        folder.mkdir()
        self.in_turns += measure_backups(folder, rounds)

    def measure_connections(self) -> None:
        """Once: memory does not scatter."""
        with OwnCluster(self._folder(), backups=0) as cluster:
            self.connections = cluster.open_idle(CONNECTIONS)
        print(f"  {self.connections}", flush=True)

    def _count(
        self, key: str, workload: Workload, once: Callable[[int], float], trial_factor: int = 1
    ) -> int:
        """How many messages fill the time at the speed seen so far. The trial also warms a fresh cluster up."""
        seen = once(TRIAL_MESSAGES[workload.kind] * trial_factor)
        return max(FEWEST, int(self._rates.get((key, workload.key), seen) * self.seconds))

    def _folder(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self.data)) / "cluster"


def _say(title: str, workload: Workload, figures: dict[str, Any]) -> None:
    parts = [f"{figures['messages_per_second'] or 0:>10,.0f} /s"]
    if figures["p50_ms"] is not None:
        parts.append(f"p50 {figures['p50_ms']:.3f} ms")
    if "bus_bytes_per_message" in figures:
        parts.append(f"bus {figures['bus_bytes_per_message']:.0f} B")
        parts += [f"{role} {cost:.2f}" for role, cost in figures["cpu_us_per_message"].items()]
    else:
        parts.append(f"servers {figures['server_cpu_us_per_message']:.2f} µs")
    print(f"  {title:42} {workload.key:6} {'  '.join(parts)}", flush=True)


# ---- what it comes to


def _middle(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _own(runs: Sequence[ClusterFigures]) -> dict[str, Any]:
    roles = runs[0].cpu_us_per_message if runs else {}
    return {
        "messages_per_second": _middle([run.messages_per_second for run in runs]),
        "p50_ms": _middle([run.p50_ms for run in runs]),
        "bus_bytes_per_message": _middle([run.bus_bytes_per_message for run in runs]),
        "cpu_us_per_message": {
            role: _middle([run.cpu_us_per_message[role] for run in runs]) for role in roles
        },
    }


def _theirs(run: Run, key: str, workload: str, what: str) -> float | None:
    return _middle([each[what] for each in run.theirs.get(key, {}).get(workload, [])])


def _bar(promise: str, figure: float | None, shown: str, kept: Callable[[float], bool]) -> Bar:
    if figure is None:
        return Bar(promise=promise, figure="–", verdict="NOT MEASURED")
    return Bar(
        promise=promise, figure=shown.format(figure), verdict="PASS" if kept(figure) else "FALLS SHORT"
    )


def judge(run: Run) -> list[Bar]:
    """Every bar with its figure."""
    own = {backups: _own(runs) for backups, runs in run.own.items()}
    one = own.get(1, {}).get("messages_per_second")

    def times(key: str) -> float | None:
        theirs = _theirs(run, key, QUEUE.key, "messages_per_second")
        return one / theirs if one and theirs else None

    def more(backups: int) -> float | None:
        return dearer(run.in_turns, backups) if run.in_turns else None

    carried = own.get(1, {}).get("bus_bytes_per_message")
    idle = run.connections["with_all_mb"] if run.connections else None
    rabbit, nats = times("rabbitmq-quorum-cluster"), times("nats-cluster")
    dear = "backup costs the primary less than 10 % (processor time per message)"
    level = None
    if all(each in run.together for each in SUB_CLUSTERS):
        costs = [_together(run, each, MESSAGE_MANAGERS) for each in SUB_CLUSTERS]
        level = costs[1] / costs[0]
    many = f"{CONNECTIONS:,} idle connections: a client manager of at most 150 MB"
    return [
        _bar("10 times RabbitMQ's quorum queue on 3 nodes", rabbit, "{:.1f} times", lambda x: x >= 10),
        _bar("3 times NATS JetStream with 3 replicas", nats, "{:.1f} times", lambda x: x >= 3),
        _bar(
            "On the bus at most 1.3 times the message",
            carried and carried / QUEUE.size,
            "{:.2f} times",
            lambda x: x <= 1.3,
        ),
        _bar(f"The first {dear}", more(1), "{:+.1%}", lambda x: x < 0.1),
        _bar(f"The second {dear}", more(2), "{:+.1%}", lambda x: x < 0.1),
        _bar(
            "A message costs two sub-clusters at most 1.18 times what it costs one (1.7 times the messages)",
            level,
            "{:.2f} times",
            lambda x: x <= 2 / 1.7,
        ),
        _bar(many, idle, "{:.0f} MB", lambda x: x <= 150),
        _bar(
            "With most of 3 client managers asked, at least 85 % of the throughput without",
            kept(run.majority) if run.majority else None,
            "{:.0%}",
            lambda x: x >= 0.85,
        ),
        _bar(
            "And a message takes at most one round trip of the bus longer (p50)",
            round_trips(run.majority) if run.majority else None,
            "{:.2f}",
            lambda x: x <= 1,
        ),
    ]


def _together(run: Run, sub_clusters: int, role: str) -> float:
    return median(each.cpu_us_per_message[role] for each in run.together[sub_clusters])


def page(run: Run, bars: Sequence[Bar]) -> str:
    """The page, in Markdown."""
    lines = [[name, value] for name, value in machine(run.data).items()]
    sections = [
        "# Replicated queues, side by side\n",
        PREAMBLE.format(rounds=run.rounds),
        table(["", ""], lines),
        "## The bars\n",
        table(
            ["bar", "figure", "verdict"], [[bar.promise, bar.figure, f"**{bar.verdict}**"] for bar in bars]
        ),
    ]
    if run.own.get(1) or run.theirs:
        sections += ["## Pipelined queue, and one message at a time\n", _comparison(run)]
    sections += (
        ["## What each process costs, by number of backups\n", ON_COSTS, _costs(run)] if run.own else []
    )
    if run.in_turns:
        sections += ["## What a backup costs the primary\n", backups_in_turns.section(run.in_turns)]
    if run.together:
        sections += ["## Two queues at once, in one sub-cluster and in two\n", _sub_clusters(run)]
    if run.connections:
        figures = run.connections
        sections += [
            "## Connections that do nothing\n",
            f"{figures['connections']:,.0f} connections with a session each, opened in {figures['seconds']:.0f} s:"
            f" the client manager grew from {figures['before_mb']:.0f} MB to {figures['with_all_mb']:.0f} MB.\n",
        ]
    if run.majority:
        sections += ["## With and without the majority of client managers\n", section(run.majority)]
    sections += ["## How the peers were used\n"]
    for peer in cluster_peers().values():
        sections.append(f"{(sys.modules[type(peer).__module__].__doc__ or '').strip()}\n")
    return "\n".join(sections)


def _comparison(run: Run) -> str:
    own, sync = _own(run.own.get(1, [])), _own(run.own_sync)
    total = sum(cost or 0 for cost in own["cpu_us_per_message"].values())
    ours = own["messages_per_second"]
    rows = [
        [
            "**Heliograph**, primary and 1 backup",
            "both",
            number(ours),
            number(total, 1),
            number(sync["p50_ms"], 2),
            "1",
        ]
    ]
    for key, peer in cluster_peers().items():
        rate = _theirs(run, key, QUEUE.key, "messages_per_second")
        rows.append(
            [
                peer.title,
                "two of three" if peer.synced("queue") == "yes" else "nobody",
                number(rate),
                number(_theirs(run, key, QUEUE.key, "server_cpu_us_per_message"), 1),
                number(_theirs(run, key, SYNC.key, "p50_ms"), 2),
                number(ours / rate if ours and rate else None, 1),
            ]
        )
    head = [
        "system",
        "synced at confirm",
        "messages/s",
        "all servers µs/msg",
        "synchronous send p50 ms",
        "ratio",
    ]
    return table(head, rows)


def _costs(run: Run) -> str:
    roles = [PRIMARY, BACKUP, CLIENT_MANAGER, COROSYNC]
    rows = []
    for backups in sorted(run.own):
        figures = _own(run.own[backups])
        costs = figures["cpu_us_per_message"]
        rows.append(
            [
                str(backups),
                number(figures["messages_per_second"]),
                *(number(costs.get(role), 2) for role in roles),
                number(figures["bus_bytes_per_message"]),
            ]
        )
    return table(["backups", "messages/s", *(f"{role} µs/msg" for role in roles), "bytes on the bus"], rows)


def _sub_clusters(run: Run) -> str:
    roles = [MESSAGE_MANAGERS, CLIENT_MANAGER, COROSYNC]
    rows = [
        [
            str(count),
            number(median(each.messages_per_second for each in runs)),
            *(number(_together(run, count, role), 2) for role in roles),
        ]
        for count, runs in sorted(run.together.items())
    ]
    return table(
        ["sub-clusters", "messages/s, with start and end", *(f"{role} µs/msg" for role in roles)], rows
    )


# ---- the command


def _arguments(command_line: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cluster", description="Replicated queues, side by side."
    )
    parser.add_argument(
        "--parts",
        nargs="+",
        choices=PARTS,
        default=PARTS,
        metavar="PART",
        help=f"which of {', '.join(PARTS)} (default: all)",
    )
    parser.add_argument("--runs", type=int, default=3, help="rounds; medians are reported (default 3)")
    parser.add_argument(
        "--add",
        action="store_true",
        help="more rounds of the run whose results are there, on the same machine",
    )
    parser.add_argument("--seconds", type=float, default=SECONDS_PER_MEASUREMENT, help="of each measurement")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"), help="where the results go")
    parser.add_argument("--data", type=Path, default=None, help="where all servers keep their data")
    parser.add_argument("--no-install", action="store_true", help="install nothing, skip what is missing")
    return parser.parse_args(command_line)


def _usable(no_install: bool) -> list[Peer]:
    peers = list(cluster_peers().values())
    if not no_install:
        install(peers)
    for peer in peers:
        missing = what_is_missing(peer)
        print(f"{peer.title:42} {f'skipped: {missing}' if missing else peer.server_version()}", flush=True)
    return [peer for peer in peers if what_is_missing(peer) is None]


def _rounds(run: Run, parts: Sequence[str], rounds: int, peers: Sequence[Peer]) -> None:
    for round_number in range(1, rounds + 1):
        print(f"Round {round_number} of {rounds}", flush=True)
        if "peers" in parts or "backups" in parts:
            run.measure_own(1, with_sync="peers" in parts)
        for peer in peers if "peers" in parts else ():
            try:
                run.measure_peer(peer)
            except BenchmarkError as error:
                print(f"  {peer.title}: {error}", flush=True)
        for backups in BACKUPS if "backups" in parts else ():
            if backups != 1:
                run.measure_own(backups, with_sync=False)
        for count in SUB_CLUSTERS if "sub-clusters" in parts else ():
            run.measure_together(count)


def main(command_line: Sequence[str] | None = None) -> int:
    """Measure, then report. The exit code: 1 if what was measured falls short of a bar."""
    arguments = _arguments(command_line)
    signal.signal(signal.SIGTERM, _stop_on_signal)
    began = time.monotonic()
    peers = _usable(arguments.no_install) if "peers" in arguments.parts else []
    with _data_folder(arguments.data) as data:
        run = Run(data=data, seconds=arguments.seconds)
        if arguments.add:
            run.go_on_from(arguments.out / "cluster.json")
        _rounds(run, arguments.parts, arguments.runs, peers)
        if "backups" in arguments.parts:
            run.measure_backups(arguments.runs)
        if "majority" in arguments.parts:
            run.measure_majority(arguments.runs)
        if "connections" in arguments.parts:
            run.measure_connections()
        bars = judge(run)
        _write(run, bars, arguments.out)
    print()
    for bar in bars:
        print(f"{bar.verdict:12} {bar.promise}: {bar.figure}")
    print(f"\n{time.monotonic() - began:.0f} s. Written to {arguments.out}: cluster.md, cluster.json")
    return 1 if any(bar.verdict == "FALLS SHORT" for bar in bars) else 0


def _write(run: Run, bars: Sequence[Bar], out: Path) -> None:
    measured = [peer for key, peer in cluster_peers().items() if key in run.theirs]
    raw = {
        "machine": machine(run.data),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"heliograph": own_version(), **{peer.key: peer.server_version() for peer in measured}},
        "bars": [asdict(bar) for bar in bars],
        "heliograph": {
            "queue": {str(backups): [asdict(each) for each in runs] for backups, runs in run.own.items()},
            "sync": [asdict(each) for each in run.own_sync],
            "majority": [asdict(each) for each in run.majority],
            "in_turns": [asdict(each) for each in run.in_turns],
            "together": {str(count): [asdict(each) for each in runs] for count, runs in run.together.items()},
        },
        "peers": run.theirs,
        "connections": run.connections,
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "cluster.md").write_text(page(run, bars))
    (out / "cluster.json").write_text(json.dumps(raw, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("\nInterrupted: all servers are stopped, nothing was written.")
