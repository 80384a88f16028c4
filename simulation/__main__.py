"""Many seeds of a workload: `python -m simulation --workload cluster --seeds 0:50 --json`.

With `--plant NAME` a bug is planted first, and the seed that shows it ends the run; `--plants` tries each of
them and prints a table. A failing seed is shrunk: run again with fewer and fewer faults, as long as it fails.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from functools import partial
from typing import Any, Final

import msgspec

from simulation.checkers import checker_of
from simulation.partition_watch import ALL_STEPS
from simulation.runs import HIDDEN, PLANTS_OF, WORKLOADS, Summary, caught, plan_for, summarise
from simulation.weather import Plan

# Twelve seeds visit every transition of the partition table, mostly. With so many, one that is left is no bad luck:
# something does not happen any more, or the table has what cannot happen, and what follows it is not tried.
_SEEDS_FOR_ALL: Final = 200


def unvisited(summary: Summary) -> list[str]:
    """Transitions of the partition table that no seed went through."""
    return [step for step in ALL_STEPS if step not in summary.covered]


def went_well(workload: str, summary: Summary, *, has_all_faults: bool) -> bool:
    """Nothing is wrong, and what had to happen did: a run that visits too little shows nothing."""
    is_enough = workload == "partitions" and has_all_faults and summary.seeds >= _SEEDS_FOR_ALL
    return not summary.violations and not (is_enough and unvisited(summary))


def _try_plants(workload: str, seeds: range, processes: int) -> int:
    """A line of a table for each. How many were not caught, or where the same seed fails without them."""
    missed = 0
    for name in PLANTS_OF[workload]:
        found = caught(workload, seeds, name, processes=processes)
        if found is None:
            print(f"| {workload} | {name} | - | NOT CAUGHT | | |", flush=True)
            missed += 1
            continue
        checker, control = checker_of(found.violation), found.of_control
        without = "clean without it" if not control else f"FAILS WITHOUT IT: {control[0]}"
        print(
            f"| {workload} | {name} | {found.seed} | {checker} | {without} | {found.cpu_seconds:.0f} s |",
            flush=True,
        )
        missed += bool(control)
    return missed


def _tell_progress(summary: Summary, *, of: int) -> None:
    confirmed, failed = summary.operations["confirmed"], list(summary.violations)
    line = f"{summary.seeds} of {of} seeds, {confirmed} messages confirmed, seeds that failed: {failed or 'none'}"
    print(line, end="\n" if summary.seeds == of else "\r", file=sys.stderr, flush=True)


def _told(summary: Summary, *, with_digests: bool) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(summary, str_keys=True)
    del told["stories"]
    if not with_digests:
        del told["digests"]
    if summary.covered:
        told["transitions_not_visited"] = unvisited(summary)
    told["operations"] = summary.operations
    told["simulated_per_real_second"] = round(summary.simulated_seconds / summary.real_seconds, 1)
    told["simulated_per_cpu_second"] = round(summary.simulated_seconds / summary.cpu_seconds, 1)
    return told


def _plants() -> list[str]:
    return sorted({name for plants in (HIDDEN, *PLANTS_OF.values()) for name in plants})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", choices=sorted(WORKLOADS), default="single")
    parser.add_argument("--seeds", default="0:20", help="FROM:TO")
    parser.add_argument("--plant", choices=_plants(), default="", metavar="NAME")
    parser.add_argument("--plants", action="store_true", help="try every planted bug")
    parser.add_argument("--shrink", action="store_true", help="find the least faults with which a seed fails")
    parser.add_argument("--faults", default="", help="only these, with commas between")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines for a person")
    parser.add_argument("--story", action="store_true", help="tell in words what happened in a failing seed")
    parser.add_argument("--digests", action="store_true", help="say the digest of each seed")
    parser.add_argument(
        "--processes", type=int, default=1, help="how many to share the seeds among; 0: all cores"
    )
    options = parser.parse_args()
    seeds = range(*(int(each) for each in options.seeds.split(":")))
    processes = options.processes or os.cpu_count() or 1
    if options.plants:
        print(
            "| workload | bug | first seed that shows it | checker | processor time |\n|---|---|---|---|---|"
        )
        return 1 if _try_plants(options.workload, seeds, processes) else 0
    kinds = tuple(kind for kind in options.faults.split(",") if kind)
    summary = summarise(
        options.workload,
        seeds,
        plant=options.plant,
        shrinks=options.shrink,
        plan=Plan(kinds=kinds) if kinds else plan_for(options.workload, options.plant),
        processes=processes,
        on_progress=partial(_tell_progress, of=len(seeds)),
    )
    if options.story:
        for seed, story in summary.stories.items():
            print(f"seed {seed}", *story, "", sep="\n", file=sys.stderr)
    told = _told(summary, with_digests=options.digests)
    print(json.dumps(told) if options.json else json.dumps(told, indent=2))
    has_all_faults = not kinds and not options.plant
    return 0 if went_well(options.workload, summary, has_all_faults=has_all_faults) else 1


if __name__ == "__main__":
    sys.exit(main())
