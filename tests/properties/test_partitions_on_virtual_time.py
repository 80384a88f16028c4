"""A cluster of production whose network is cut into parts, with clients on every side, on virtual time: what is
promised holds in every run, and a promise that is broken on purpose shows."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from heliograph.cluster.partition_state import Enrolment
from heliograph.nodes.replica import Replica
from simulation.__main__ import went_well
from simulation.partition_plants import PARTITION_PLANTS
from simulation.partition_watch import ALL_STEPS
from simulation.partitions import TWO_SUB_CLUSTERS, Partitions
from simulation.runs import Job, Summary, caught, summarise
from simulation.weather import Plan

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow
# What can happen to machines and connections, and rings that form again, while nothing is cut.
_UNCUT = (
    *("kill", "kill_at_call", "power", "restart_all", "break", "client"),
    *("stop", "pause", "hang", "slow", "slow_disk", "regroup"),
)


# Bugs that show in the first seed.
_SOON = (
    "release in B what a restricted part brought",
    "take what is sent again for new",
    "a unit goes on in two parts",
    "what is done elsewhere is not done",
)


@pytest.mark.req("M8", "M9")
@pytest.mark.timeout(300)
def test_whatever_happens_to_machines_on_an_odd_bus_promises_are_kept() -> None:
    summary = summarise("partitions", range(4), plan=Plan(kinds=_UNCUT))
    assert summary.violations == {}
    assert summary.counts["confirmed"] > 100 * summary.seeds, "enough happened"
    assert summary.counts["marked"] > 0


def test_nothing_of_a_world_stays_behind_when_it_is_over() -> None:
    """A server that owns its process has the collector pass over all that is there: here, over the others."""
    try:
        Job("partitions").run(7)  # and with it whatever is made once
        frozen, objects = gc.get_freeze_count(), len(gc.get_objects())
        Job("partitions").run(7)
        assert gc.get_freeze_count() <= frozen
        assert len(gc.get_objects()) < objects + 1000, "a world has a hundred times as many"
    finally:
        logging.disable(logging.NOTSET)
        gc.unfreeze()
        gc.enable()


# Each has shown a mistake once (docs/decisions/0018): they are cheap to run again, whatever they show by now.
_SHOWN = {
    0: "a topic's subscriber got again in another part what it was through with",
    4: "a restricted part committed what began before it was cut off",
    5: "the sessions of a client manager that was elsewhere in between were thought to be with it",
    54: "what was lost while views changed was taken for another part's, and confirmed",
    59: "who came back before the union sent again what a branch brought",
    77: "a client manager published for a session that was with another",
    80: "an answer that was given while a client manager was elsewhere was not given again",
    110: "numbers that were given again seemed to be far ahead",
    121: "a session that began in one part was unknown in another, and its client began anew",
    124: "what an application had seen in one part came without a mark in another; a large message became two",
    140: "backups forgot with which client manager a session was",
    207: "who was told that a message is in doubt was thought to wait for it",
    275: "what a subscriber gave back in one part came without a mark in another",
    465: "what was stored where nobody followed was confirmed in the next view, whose backup did not have it",
    477: "what had the number of a message that was not persistent was older than it was, and done for nobody",
    699: "the same, in an unrestricted view",
    757: "the same, while somebody came to follow in the first of the views",
    476: "a claim that was asked again settled what its consumer was given since, and never got",
    1202: "what was committed long after it was staged was done in a part, and nobody was told",
    1781: "what was in doubt was free a lease after the cluster had been whole for a moment",
}


@pytest.mark.req("P5", "P6", "P7", "P8")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "seed", [seed if seed == 59 else pytest.param(seed, marks=pytest.mark.nightly) for seed in _SHOWN]
)
def test_seeds_that_have_shown_a_mistake_show_none(seed: int) -> None:
    assert summarise("partitions", range(seed, seed + 1)).violations == {}, _SHOWN[seed]


@pytest.mark.req("P10")
@pytest.mark.timeout(300)
def test_who_is_removed_while_the_network_is_cut_and_comes_back_belongs_to_the_others_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In every sixteenth seed an operator takes a node for lost that only has no power, if there is one just then."""
    settled: dict[int, int] = {}  # by epoch, how many message managers there are
    enrolled = Replica.enrolled

    def listen(self: Replica, enrolment: Enrolment, *, is_settled: bool, then: Callable[[], None]) -> None:
        if is_settled:
            settled[enrolment.epoch] = len(enrolment.message_managers)
        enrolled(self, enrolment, is_settled=is_settled, then=then)

    monkeypatch.setattr(Replica, "enrolled", listen)
    for seed in range(23, 215, 16):
        settled.clear()
        summary = summarise("partitions", range(seed, seed + 1))
        assert summary.violations == {}
        if summary.faults.get("removed") and list(settled.values()) == [3, 2, 3]:
            return
    pytest.fail("in a dozen seeds nobody was removed and came back")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", _SOON)
def test_a_promise_that_a_cut_cluster_breaks_shows(name: str) -> None:
    _shows(name, range(10))


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", [name for name in PARTITION_PLANTS if name not in _SOON])
def test_every_promise_that_a_cut_cluster_breaks_shows(name: str) -> None:
    _shows(name, range(2000), processes=os.cpu_count() or 1)


def _shows(name: str, seeds: range, *, processes: int = 1) -> None:
    """And nothing else does: the seed is clean without it."""
    found = caught("partitions", seeds, name, processes=processes)
    assert found is not None
    assert found.of_control == []


def test_a_long_run_that_leaves_a_transition_out_has_not_gone_well() -> None:
    visited = dict.fromkeys(ALL_STEPS, 1)
    assert went_well("partitions", Summary(seeds=200, covered=visited), has_all_faults=True)
    del visited[ALL_STEPS[-1]]
    assert not went_well("partitions", Summary(seeds=200, covered=visited), has_all_faults=True)
    assert went_well("partitions", Summary(seeds=20, covered=visited), has_all_faults=True), "too few to tell"
    assert went_well("partitions", Summary(seeds=200, covered=visited), has_all_faults=False)
    assert not went_well("cluster", Summary(seeds=1, violations={0: ["lost: it is"]}), has_all_faults=True)


@pytest.mark.timeout(300)
def test_a_seed_says_all_about_a_cut_cluster_whatever_the_hash_seed() -> None:
    told = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT / "src")}
        options = ["--workload", "partitions", "--seeds", "1:3", "--digests", "--json"]
        command = [sys.executable, "-m", "simulation", *options]
        run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False, text=True)
        told.append(run.stdout.partition('"digests"')[2].partition("}")[0])
    assert told[0] == told[1]
    assert len(told[0]) > 60


@pytest.mark.req("M10")
def test_what_a_rollback_returned_is_handed_out_again_though_other_sub_clusters_answer_later() -> None:
    run = next(play for play in map(_calm, range(60)) if play.layout == TWO_SUB_CLUSTERS)
    outcome = run.run()
    assert outcome.violations == []
    assert outcome.counts["rolled_back"] > 0


def _calm(seed: int) -> Partitions:
    return Partitions(seed, Plan(faults=0))
