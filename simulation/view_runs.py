"""Many seeds of the views: `python -m simulation.view_runs --seeds 0:1000`, one JSON object at the end."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable

import msgspec

from simulation.network import TAME
from simulation.view_checkers import violations
from simulation.view_faults import Run, weather


class Summary(msgspec.Struct):
    """Of all seeds."""

    seeds: int = 0
    simulated_seconds: float = 0.0
    events: int = 0
    rings: int = 0
    views: int = 0
    decisions: int = 0
    applied: int = 0
    slowest_calm: float = 0.0
    leaves: dict[str, int] = {}
    faults: dict[str, int] = {}
    violations: dict[int, list[str]] = {}
    digests: list[str] = []

    def add(self, run: Run, found: list[str]) -> None:
        self.seeds += 1
        self.simulated_seconds += run.seconds
        self.events += run.events
        self.rings += run.rings
        self.views += sum(len(life.stages) - 1 for life in run.ledger.lives.values())
        self.decisions += run.ledger.decisions
        self.applied += run.ledger.applied
        self.slowest_calm = max(self.slowest_calm, run.calm_after or 0.0)
        self.digests.append(run.digest)
        for counts, more in ((self.leaves, run.ledger.leaves), (self.faults, run.faults)):
            for name, count in more.items():
                counts[name] = counts.get(name, 0) + count
        if found:
            self.violations[run.seed] = found


def summarise(seeds: Iterable[int], *, is_tame: bool = False) -> Summary:
    summary = Summary()
    for seed in seeds:
        run = weather(seed, oddities=TAME if is_tame else None)
        summary.add(run, violations(run, is_tame=is_tame))
    return summary


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0:100", help="FROM:TO")
    parser.add_argument("--tame", action="store_true", help="a bus without oddities")
    parser.add_argument("--digests", action="store_true", help="say the digest of each seed")
    options = parser.parse_args()
    first, last = (int(each) for each in options.seeds.split(":"))
    began = time.perf_counter()
    summary = summarise(range(first, last), is_tame=options.tame)
    told = msgspec.to_builtins(summary)
    if not options.digests:
        del told["digests"]
        told["seeds_per_second"] = round(summary.seeds / (time.perf_counter() - began), 1)
    print(json.dumps(told))
    return 1 if summary.violations else 0


if __name__ == "__main__":
    sys.exit(main())
