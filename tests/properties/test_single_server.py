"""One server of production with its clients on virtual time, under crashes, power cuts, broken connections,
slow, full and rotten disks: what it promised holds in every run, and a promise that is broken on purpose
shows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.plants import PLANTS
from simulation.runs import summarise
from simulation.single import Single
from simulation.weather import Plan

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow
# Bugs that show within a few seeds.
_SOON = (
    "confirm before sync",
    "forget an acknowledgement at recovery",
    "forget what was handed out",
    "replay twice",
)


@pytest.mark.req("J3", "J5")
@pytest.mark.timeout(300)
def test_whatever_happens_promises_are_kept() -> None:
    summary = summarise("single", range(5))
    assert summary.violations == {}
    assert summary.counts["confirmed"] > 500 * summary.seeds, "enough happened"
    assert summary.counts["marked"] > 0
    assert summary.counts["committed"] > 0


def test_who_is_still_busy_with_what_the_storm_made_slow_is_waited_for_before_it_is_judged() -> None:
    """A few syncs that stall, in one turn of a process that is slow too, take longer than anybody waits in vain."""
    single = Single(0, Plan(faults=0))
    single.begin()
    single.world.run(single.world.now + 1.0)
    (server,) = single.supervisors
    assert server.process is not None
    stalls_until = single.world.now + 100.0
    server.process.loop.call_soon(server.process.loop.spend, 100.0)
    single.world.run(single.world.now + 1.0)
    assert list(single.history.waiting()), "something is not done yet"
    outcome = single.finish()
    assert outcome.simulated_seconds > stalls_until
    assert outcome.violations == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", _SOON)
def test_a_promise_that_is_broken_shows(name: str) -> None:
    assert summarise("single", range(20), plant=name).violations


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", [name for name in PLANTS if name not in _SOON])
def test_every_promise_that_is_broken_shows(name: str) -> None:
    assert summarise("single", range(500), plant=name).violations


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("hundred", range(10))
def test_a_thousand_seeds(hundred: int) -> None:
    assert summarise("single", range(hundred * 100, hundred * 100 + 100)).violations == {}


@pytest.mark.timeout(300)
def test_a_seed_says_it_all_whatever_the_hash_seed() -> None:
    told = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT / "src")}
        command = [sys.executable, "-m", "simulation", "--seeds", "3:4", "--digests", "--json"]
        run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True, text=True)
        told.append(run.stdout.partition('"digests"')[2].partition("}")[0])
    assert told[0] == told[1]
    assert len(told[0]) > 30
