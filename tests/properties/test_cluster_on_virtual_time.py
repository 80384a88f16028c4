"""A cluster of production, two client managers and three message managers, with its clients on virtual time, under
everything that can happen to processes, machines, disks and connections: what it promised holds in every run, and a
promise that is broken on purpose shows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.__main__ import summarise
from simulation.cluster_plants import CLUSTER_PLANTS

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow
# Bugs that show within a few seeds.
_SOON = ("confirm before a backup has it", "wrong rank", "replay twice")


@pytest.mark.req("M8", "M9")
@pytest.mark.timeout(300)
def test_whatever_happens_a_cluster_keeps_its_promises() -> None:
    summary = summarise("cluster", range(2, 6))
    assert summary.violations == {}
    assert summary.counts["confirmed"] > 300 * summary.seeds, "enough happened"
    assert summary.counts["marked"] > 0
    assert summary.counts["committed"] > 0


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", _SOON)
def test_a_promise_that_a_cluster_breaks_shows(name: str) -> None:
    assert summarise("cluster", range(2, 22), plant=name).violations


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", [name for name in CLUSTER_PLANTS if name not in _SOON])
def test_every_promise_that_a_cluster_breaks_shows(name: str) -> None:
    assert summarise("cluster", range(500), plant=name, processes=os.cpu_count() or 1).violations


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("hundred", range(10))
def test_a_cluster_through_a_thousand_seeds(hundred: int) -> None:
    seeds = range(hundred * 100, hundred * 100 + 100)
    assert summarise("cluster", seeds, processes=os.cpu_count() or 1).violations == {}


@pytest.mark.timeout(300)
def test_a_seed_says_all_about_a_cluster_whatever_the_hash_seed() -> None:
    told = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT / "src")}
        options = ["--workload", "cluster", "--seeds", "2:4", "--digests", "--json"]
        command = [sys.executable, "-m", "simulation", *options]
        run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True, text=True)
        told.append(run.stdout.partition('"digests"')[2].partition("}")[0])
    assert told[0] == told[1]
    assert len(told[0]) > 60
