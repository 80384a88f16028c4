"""Many seeds of a workload: `python -m simulation --workload cluster --seeds 0:50 --json`.

With `--plant NAME` a bug is planted first, and the seed that shows it ends the run; `--plants` tries each of
them. A failing seed is shrunk: run again with fewer and fewer faults, as long as it fails.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import logging
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec

from simulation import cluster, single
from simulation.cluster_plants import CLUSTER_PLANTS, HIDDEN_PLANTS
from simulation.plants import PLANTS, Plant, planted
from simulation.play import Outcome
from simulation.weather import KINDS, STORM, Plan

_WORKLOADS = {"single": single.run, "cluster": cluster.run}
_PLANTS: dict[str, dict[str, Plant]] = {"single": PLANTS, "cluster": CLUSTER_PLANTS}


class Result(msgspec.Struct):
    """Of a seed."""

    outcome: Outcome
    cpu_seconds: float
    shrunk: int = 0


class Summary(msgspec.Struct):
    """Of all seeds."""

    seeds: int = 0
    simulated_seconds: float = 0.0
    real_seconds: float = 0.0
    cpu_seconds: float = 0.0
    events: int = 0
    counts: dict[str, int] = {}
    faults: dict[str, int] = {}
    errors: dict[str, int] = {}
    violations: dict[int, list[str]] = {}
    shrunk: dict[int, int] = {}  # of a failing seed, the number of faults that it takes
    digests: dict[int, str] = {}

    def add(self, result: Result) -> None:
        outcome = result.outcome
        self.seeds += 1
        self.simulated_seconds += outcome.simulated_seconds
        self.cpu_seconds += result.cpu_seconds
        self.events += outcome.events
        self.digests[outcome.seed] = outcome.digest
        for sums, more in (
            (self.counts, outcome.counts),
            (self.faults, outcome.faults),
            (self.errors, outcome.errors),
        ):
            for name, count in more.items():
                sums[name] = sums.get(name, 0) + count
        if outcome.violations:
            self.violations[outcome.seed] = outcome.violations
        if result.shrunk:
            self.shrunk[outcome.seed] = result.shrunk

    @property
    def operations(self) -> dict[str, int]:
        counts = self.counts
        return {
            "attempted": counts.get("sent", 0),
            "confirmed": counts.get("confirmed", 0),
            "delivered": counts.get("handed_out", 0),
        }


class Job(msgspec.Struct, frozen=True):
    """What is to be run with each seed."""

    workload: str
    plant: str = ""
    shrinks: bool = False
    plan: Plan = STORM

    def run(self, seed: int) -> Result:
        # What the servers log of their troubles is no news here.
        logging.disable(logging.CRITICAL)
        # Coroutines of the dead wait for the end of their world: nothing is gained by looking at them before.
        gc.set_threshold(200_000, 50, 100)
        began = time.process_time()
        with planted((HIDDEN_PLANTS | _PLANTS[self.workload])[self.plant] if self.plant else ()):
            outcome = _WORKLOADS[self.workload](seed, self.plan)
            spent = time.process_time() - began
            shrinks = self.shrinks and outcome.violations
            return Result(outcome, spent, _shrunk(self.workload, seed, self.plan) if shrinks else 0)


def summarise(
    workload: str,
    seeds: range,
    *,
    plant: str = "",
    shrinks: bool = False,
    plan: Plan = STORM,
    processes: int = 1,
    on_progress: Callable[[Summary], None] = lambda _: None,
) -> Summary:
    """With a planted bug, up to the first seed that shows it."""
    summary = Summary()
    began = time.perf_counter()
    with _each(Job(workload, plant, shrinks, plan), seeds, processes) as results:
        for result in results:
            summary.add(result)
            on_progress(summary)
            if plant and summary.violations:
                break
    summary.real_seconds = time.perf_counter() - began
    return summary


@contextlib.contextmanager
def _each(job: Job, seeds: range, processes: int) -> Iterator[Iterator[Result]]:
    """In the order of the seeds, whoever runs them."""
    was_disabled, thresholds = logging.root.manager.disable, gc.get_threshold()
    try:
        if processes == 1:
            yield map(job.run, seeds)
        else:
            with multiprocessing.get_context("spawn").Pool(processes) as pool:
                yield pool.imap(job.run, seeds)
    finally:
        logging.disable(was_disabled)
        gc.set_threshold(*thresholds)


def _shrunk(workload: str, seed: int, plan: Plan) -> int:
    """The least number of faults, from the beginning, with which the seed still fails."""

    def fails(faults: int) -> bool:
        return bool(_WORKLOADS[workload](seed, Plan(faults, plan.kinds)).violations)

    enough = 1
    while enough < 1000 and not fails(enough):
        enough *= 2
    too_few = enough // 2
    while too_few + 1 < enough:
        middle = (too_few + enough) // 2
        if fails(middle):
            enough = middle
        else:
            too_few = middle
    return enough


def _try_plants(workload: str, seeds: range, processes: int) -> int:
    missed = 0
    for name in _PLANTS[workload]:
        summary = summarise(workload, seeds, plant=name, processes=processes)
        told = [f"seed {seed}: {found[0]}" for seed, found in summary.violations.items()]
        print(f"{name}: {told[0] if told else 'NOT CAUGHT'}", flush=True)
        missed += not told
    return missed


def _tell_progress(summary: Summary, *, of: int) -> None:
    confirmed, failed = summary.operations["confirmed"], list(summary.violations)
    line = f"{summary.seeds} of {of} seeds, {confirmed} messages confirmed, seeds that failed: {failed or 'none'}"
    print(line, end="\n" if summary.seeds == of else "\r", file=sys.stderr, flush=True)


def _told(summary: Summary, *, with_digests: bool) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(summary, str_keys=True)
    if not with_digests:
        del told["digests"]
    told["operations"] = summary.operations
    told["simulated_per_real_second"] = round(summary.simulated_seconds / summary.real_seconds, 1)
    told["simulated_per_cpu_second"] = round(summary.simulated_seconds / summary.cpu_seconds, 1)
    return told


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", choices=sorted(_WORKLOADS), default="single")
    parser.add_argument("--seeds", default="0:20", help="FROM:TO")
    parser.add_argument(
        "--plant", choices=sorted(PLANTS | CLUSTER_PLANTS | HIDDEN_PLANTS), default="", metavar="NAME"
    )
    parser.add_argument("--plants", action="store_true", help="try every planted bug")
    parser.add_argument("--shrink", action="store_true", help="find the least faults with which a seed fails")
    parser.add_argument("--faults", default=",".join(KINDS), help="only these, with commas between")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines for a person")
    parser.add_argument("--digests", action="store_true", help="say the digest of each seed")
    parser.add_argument(
        "--processes", type=int, default=1, help="how many to share the seeds among; 0: all cores"
    )
    options = parser.parse_args()
    seeds = range(*(int(each) for each in options.seeds.split(":")))
    processes = options.processes or os.cpu_count() or 1
    if options.plants:
        return 1 if _try_plants(options.workload, seeds, processes) else 0
    summary = summarise(
        options.workload,
        seeds,
        plant=options.plant,
        shrinks=options.shrink,
        plan=Plan(kinds=tuple(options.faults.split(","))),
        processes=processes,
        on_progress=partial(_tell_progress, of=len(seeds)),
    )
    told = _told(summary, with_digests=options.digests)
    print(json.dumps(told) if options.json else json.dumps(told, indent=2))
    return 1 if summary.violations else 0


if __name__ == "__main__":
    sys.exit(main())
