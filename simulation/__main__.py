"""Many seeds of a workload: `python -m simulation --workload single --seeds 0:50 --json`.

With `--plant NAME` a bug is planted first, and the seed that shows it ends the run; `--plants` tries each of
them. A failing seed is shrunk: run again with fewer and fewer faults, as long as it fails.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time

import msgspec

from simulation import cluster, single
from simulation.cluster_plants import CLUSTER_PLANTS
from simulation.plants import PLANTS, Plant, planted
from simulation.play import Outcome
from simulation.weather import KINDS, STORM, Plan

_WORKLOADS = {"single": single.run, "cluster": cluster.run}
_PLANTS: dict[str, dict[str, Plant]] = {"single": PLANTS, "cluster": CLUSTER_PLANTS}


class Summary(msgspec.Struct):
    """Of all seeds."""

    seeds: int = 0
    simulated_seconds: float = 0.0
    real_seconds: float = 0.0
    events: int = 0
    counts: dict[str, int] = {}
    faults: dict[str, int] = {}
    errors: dict[str, int] = {}
    violations: dict[int, list[str]] = {}
    shrunk: dict[int, int] = {}  # of a failing seed, the number of faults that it takes
    digests: dict[int, str] = {}

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.simulated_seconds += outcome.simulated_seconds
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


def summarise(
    workload: str, seeds: range, *, plant: str = "", shrinks: bool = False, plan: Plan = STORM
) -> Summary:
    """With a planted bug, up to the first seed that shows it."""
    summary = Summary()
    simulate = _WORKLOADS[workload]
    began = time.perf_counter()
    with planted(_PLANTS[workload][plant] if plant else ()):
        for seed in seeds:
            outcome = simulate(seed, plan)
            summary.add(outcome)
            if outcome.violations and shrinks:
                summary.shrunk[seed] = _shrunk(workload, seed, plan)
            if outcome.violations and plant:
                break
    summary.real_seconds = time.perf_counter() - began
    return summary


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


def _try_plants(workload: str, seeds: range) -> int:
    missed = 0
    for name in _PLANTS[workload]:
        summary = summarise(workload, seeds, plant=name)
        found = [sentence for sentences in summary.violations.values() for sentence in sentences]
        print(f"{name}: {f'after {summary.seeds} seeds: {found[0]}' if found else 'NOT CAUGHT'}", flush=True)
        missed += not found
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", choices=sorted(_WORKLOADS), default="single")
    parser.add_argument("--seeds", default="0:20", help="FROM:TO")
    parser.add_argument("--plant", choices=sorted(PLANTS | CLUSTER_PLANTS), default="", metavar="NAME")
    parser.add_argument("--plants", action="store_true", help="try every planted bug")
    parser.add_argument("--shrink", action="store_true", help="find the least faults with which a seed fails")
    parser.add_argument("--faults", default=",".join(KINDS), help="only these, with commas between")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines for a person")
    parser.add_argument("--digests", action="store_true", help="say the digest of each seed")
    options = parser.parse_args()
    seeds = range(*(int(each) for each in options.seeds.split(":")))
    plan = Plan(kinds=tuple(options.faults.split(",")))
    # Coroutines of the dead wait for the end of their world: nothing is gained by looking at them before.
    gc.set_threshold(200_000, 50, 100)
    if options.plants:
        return _try_plants(options.workload, seeds)
    summary = summarise(options.workload, seeds, plant=options.plant, shrinks=options.shrink, plan=plan)
    told = msgspec.to_builtins(summary, str_keys=True)
    if not options.digests:
        del told["digests"]
    told["simulated_per_second"] = round(summary.simulated_seconds / summary.real_seconds, 1)
    print(json.dumps(told) if options.json else json.dumps(told, indent=2))
    return 1 if summary.violations else 0


if __name__ == "__main__":
    sys.exit(main())
