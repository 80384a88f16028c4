"""The order of things: round by round, every system once per round, each with a fresh server.

In turns, so that a machine that gets slower or faster during the run does so for everybody. How many messages
a workload takes follows from the system's own speed: a short trial first, then as many as fill the wanted
time.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks import heliograph
from benchmarks.peers.interface import Peer
from benchmarks.processes import BenchmarkError, free_port
from benchmarks.runner import measure
from benchmarks.workloads import LATENCY_RATE, Figures, Workload

TRIAL_MESSAGES: Final = {"queue": 3_000, "paced": 3_000, "sync": 300, "fanout": 1_500, "latency": 0}
"""Enough for the slowest peer to show its speed within a second or two."""
BLOCK_TRIAL_FACTOR: Final = 30
"""Where messages travel in blocks, a trial as short as the others' would be over before it began."""
FEWEST: Final = 200
MOST: Final = 20_000_000

Results = dict[tuple[str, str], list[Figures]]
"""Figures of every round, by system and workload."""


@dataclass(slots=True)
class Rounds:
    """All measurements of one invocation."""

    workloads: Sequence[Workload]
    peers: Sequence[Peer]
    with_heliograph: bool
    seconds: float
    data: Path
    results: Results = field(default_factory=dict)
    _rates: dict[tuple[str, str], float] = field(default_factory=dict)

    def run(self, rounds: int) -> Results:
        """Go round; print a line per figure."""
        for number in range(1, rounds + 1):
            print(f"\nRound {number} of {rounds}", flush=True)
            if self.with_heliograph:
                self._run_heliograph()
            for peer in self.peers:
                self._run_peer(peer)
        return self.results

    def _run_heliograph(self) -> None:
        print(f"  {heliograph.TITLE}", flush=True)
        for workload in self.workloads:
            with self._folder() as folder:
                once = partial(heliograph.measure, workload, folder)
                self._measure(heliograph.KEY, workload, once, BLOCK_TRIAL_FACTOR)

    def _run_peer(self, peer: Peer) -> None:
        workloads = [workload for workload in self.workloads if workload.key in peer.workloads]
        if not workloads:
            return
        print(f"  {peer.title}", flush=True)
        with self._folder() as folder:
            port = free_port()
            try:
                with peer.start(folder, port) as server:
                    for workload in workloads:
                        # The first workload's trial also warms a fresh server up.
                        self._measure(
                            peer.key,
                            workload,
                            partial(measure, peer, server, workload, port, folder),
                            BLOCK_TRIAL_FACTOR if peer.is_limit else 1,
                            warm_up=workload is workloads[0],
                        )
            except BenchmarkError as error:
                print(f"    {error}", flush=True)
                for workload in workloads:
                    self._note(peer.key, workload, Figures(messages=0, error=str(error)))

    def _measure(
        self,
        key: str,
        workload: Workload,
        once: Callable[[int], Figures],
        trial_factor: int = 1,
        *,
        warm_up: bool = False,
    ) -> None:
        try:
            figures = once(self._count(key, workload, once, trial_factor, warm_up=warm_up))
        except (BenchmarkError, subprocess.TimeoutExpired) as error:
            figures = Figures(messages=0, error=str(error))
        self._note(key, workload, figures)
        print(f"    {workload.key:9} {describe(figures)}", flush=True)

    def _count(
        self,
        key: str,
        workload: Workload,
        once: Callable[[int], Figures],
        trial_factor: int,
        *,
        warm_up: bool,
    ) -> int:
        """How many messages fill the wanted time at the speed seen so far."""
        trial = TRIAL_MESSAGES[workload.kind] * trial_factor
        rate = self._rates.get((key, workload.key))
        if workload.kind == "latency":
            rate = LATENCY_RATE
        elif rate is None or warm_up:
            seen = once(trial).messages_per_second or 0.0
            rate = rate or seen / workload.deliveries
        return max(FEWEST, min(MOST, int(rate * self.seconds)))

    def _note(self, key: str, workload: Workload, figures: Figures) -> None:
        self.results.setdefault((key, workload.key), []).append(figures)
        if figures.messages_per_second:
            self._rates[key, workload.key] = figures.messages_per_second / workload.deliveries

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        folder = Path(tempfile.mkdtemp(dir=self.data))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def describe(figures: Figures) -> str:
    """One measurement in a line of the terminal."""
    if figures.error is not None:
        return f"failed: {figures.error}"
    parts = [f"{figures.messages_per_second or 0:>12,.0f} /s"]
    if figures.p50_ms is not None:
        parts.append(f"p50 {figures.p50_ms:.3f} ms")
    if figures.p99_ms is not None:
        parts.append(f"p99 {figures.p99_ms:.3f} ms")
    if figures.server_cpu_us_per_message is not None:
        parts.append(f"server {figures.server_cpu_us_per_message:.2f} µs/msg")
    return "   ".join([*parts, f"({figures.seconds:.1f} s)"])
