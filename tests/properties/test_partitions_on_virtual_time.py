"""A cluster of production whose network is cut into parts, with clients on every side, on virtual time: what is
promised holds in every run, and a promise that is broken on purpose shows."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.partitions import TWO_SUB_CLUSTERS, Partitions
from simulation.runs import Job, summarise
from simulation.weather import Plan

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow
# What can happen to machines and connections, and rings that form again, while nothing is cut.
_UNCUT = (
    *("kill", "kill_at_call", "power", "restart_all", "break", "client"),
    *("stop", "pause", "hang", "slow", "slow_disk", "regroup"),
)


@pytest.mark.req("M8", "M9")
@pytest.mark.timeout(300)
def test_whatever_happens_to_machines_on_an_odd_bus_promises_are_kept() -> None:
    summary = summarise("partitions", range(4), plan=Plan(kinds=_UNCUT))
    assert summary.violations == {}
    assert summary.counts["confirmed"] > 100 * summary.seeds, "enough happened"
    assert summary.counts["marked"] > 0


@pytest.mark.timeout(120)
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
    275: "what a subscriber gave back in one part came without a mark in another",
}


@pytest.mark.req("P5", "P6", "P7", "P8")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "seed", [seed if seed == 59 else pytest.param(seed, marks=pytest.mark.nightly) for seed in _SHOWN]
)
def test_seeds_that_have_shown_a_mistake_show_none(seed: int) -> None:
    assert summarise("partitions", range(seed, seed + 1)).violations == {}, _SHOWN[seed]


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
