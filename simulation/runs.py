"""Many seeds of a workload, in one process or several, and what came out of all of them."""

from __future__ import annotations

import contextlib
import gc
import logging
import multiprocessing
import time
from collections.abc import Callable, Iterator

import msgspec

from simulation import alerts, cluster, feed, partitions, several_buses, single, sub_clusters
from simulation.alert_plants import ALERT_PLANTS, HIDDEN_ALERT_PLANTS
from simulation.cluster_plants import CLUSTER_PLANTS, FAULTS_OF, UNSEEN_PLANTS
from simulation.feed_plants import FEED_PLANTS, HIDDEN_FEED_PLANTS
from simulation.partition_plants import PARTITION_FAULTS, PARTITION_PLANTS
from simulation.plants import PLANTS, Plant, planted
from simulation.play import Outcome
from simulation.sub_cluster_plants import HIDDEN_SUB_CLUSTER_PLANTS, SUB_CLUSTER_PLANTS
from simulation.weather import STORM, Plan

WORKLOADS = {
    "single": single.run,
    "cluster": cluster.run,
    "sub-clusters": sub_clusters.run,
    "partitions": partitions.run,
    "feed": feed.run,
    "alerts": alerts.run,
    "several-buses": several_buses.run,
}
PLANTS_OF: dict[str, dict[str, Plant]] = {
    "single": PLANTS,
    "cluster": CLUSTER_PLANTS,
    "sub-clusters": SUB_CLUSTER_PLANTS,
    "partitions": PARTITION_PLANTS,
    "feed": FEED_PLANTS,
    "alerts": ALERT_PLANTS,
    "several-buses": CLUSTER_PLANTS,
}
_FAULTS_OF: dict[str, dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("cluster", "sub-clusters", "several-buses"), FAULTS_OF),
    "partitions": PARTITION_FAULTS,
}
# Tried by name only.
HIDDEN: dict[str, Plant] = (
    UNSEEN_PLANTS | HIDDEN_SUB_CLUSTER_PLANTS | HIDDEN_ALERT_PLANTS | HIDDEN_FEED_PLANTS
)


def plan_for(workload: str, plant: str) -> Plan:
    """The weather in which a planted bug shows. Other workloads have other weather, and the same bugs."""
    return Plan(kinds=_FAULTS_OF.get(workload, {}).get(plant, ()))


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
    covered: dict[str, int] = {}
    violations: dict[int, list[str]] = {}
    stories: dict[int, list[str]] = {}
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
            (self.covered, outcome.covered),
        ):
            for name, count in more.items():
                sums[name] = sums.get(name, 0) + count
        if outcome.violations:
            self.violations[outcome.seed] = outcome.violations
            self.stories[outcome.seed] = outcome.story
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
        # Coroutines of the dead wait for the end of their world: nothing is gained by looking at them before, and
        # nothing of one world is left for the next.
        gc.disable()
        if not gc.get_freeze_count():  # what was there before any world is not looked at after each of them
            gc.collect()
            gc.freeze()
        began = time.process_time()
        with planted((HIDDEN | PLANTS_OF[self.workload])[self.plant] if self.plant else ()):
            outcome = WORKLOADS[self.workload](seed, self.plan)
            gc.collect()
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


class Catch(msgspec.Struct, frozen=True):
    """Which seed shows a planted bug, and what is wrong with the same seed in the same weather without it."""

    seed: int
    violation: str
    of_control: list[str]
    cpu_seconds: float


def caught(workload: str, seeds: range, plant: str, *, processes: int = 1) -> Catch | None:
    """The first seed that shows a bug. It counts only where the seed is clean without the bug (`of_control`): many
    plants have a weather of their own, in which nothing else is run."""
    plan = plan_for(workload, plant)
    summary = summarise(workload, seeds, plant=plant, processes=processes, plan=plan)
    for seed, violations in summary.violations.items():
        control = summarise(workload, range(seed, seed + 1), plan=plan).violations
        return Catch(seed, violations[0], control.get(seed, []), summary.cpu_seconds)
    return None


@contextlib.contextmanager
def _each(job: Job, seeds: range, processes: int) -> Iterator[Iterator[Result]]:
    """In the order of the seeds, whoever runs them."""
    was_disabled = logging.root.manager.disable
    try:
        if processes == 1:
            yield map(job.run, seeds)
        else:
            spawning = multiprocessing.get_context("spawn")
            with spawning.Pool(processes) as pool:
                yield pool.imap(job.run, seeds)
    finally:
        logging.disable(was_disabled)
        gc.unfreeze()
        gc.enable()


def _shrunk(workload: str, seed: int, plan: Plan) -> int:
    """The least number of faults, from the beginning, with which the seed still fails."""

    def fails(faults: int) -> bool:
        return bool(WORKLOADS[workload](seed, Plan(faults, plan.kinds)).violations)

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
