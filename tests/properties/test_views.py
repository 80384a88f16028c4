"""Views under cuts, heals, one-way losses, flapping, crashes, stops and every oddity of the bus: what they promise
holds in every run, and a rule that is left out shows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation import view_checkers
from simulation.view_checkers import heirs, violations
from simulation.view_faults import weather
from simulation.view_plants import PLANTS
from simulation.view_runs import summarise

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


@pytest.mark.req("P1")
@pytest.mark.timeout(300)
def test_whatever_happens_members_agree_on_their_views() -> None:
    summary = summarise(range(200))
    assert summary.violations == {}
    assert summary.views > 20 * summary.seeds, "enough happened"
    assert summary.applied > summary.decisions > 0


@pytest.mark.timeout(300)
def test_on_a_bus_without_oddities_nobody_is_thrown_out_and_who_came_together_knows_it() -> None:
    summary = summarise(range(60), is_tame=True)
    assert summary.violations == {}
    assert "gap" not in summary.leaves
    assert "bus-gap" not in summary.leaves


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("thousand", range(10))
def test_ten_thousand_seeds(thousand: int) -> None:
    assert summarise(range(thousand * 1000, thousand * 1000 + 1000)).violations == {}


# These take the longest to show; the others are tried every day.
_AT_NIGHT = ("a hello from before the view", "every view takes what came before it")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.nightly] * (name in _AT_NIGHT)) for name in PLANTS]
)
def test_a_rule_that_is_left_out_shows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, attribute, replacement in PLANTS[name]:
        monkeypatch.setattr(owner, attribute, replacement)
    assert any(violations(weather(seed)) for seed in range(100, 560))


@pytest.mark.nightly
def test_companions_without_the_rule_of_equal_companions_are_no_equivalence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from heliograph.cluster import view

    def plainly(made: view.View) -> object:
        return {who: view._companions(made, who, hello) for who, hello in made.hellos}

    monkeypatch.setattr(view_checkers, "straight", plainly)
    assert any("straight is not symmetric and transitive" in violations(weather(seed)) for seed in range(90))


def test_a_hello_is_no_proof_of_having_installed_the_view() -> None:
    """Why the successor of a view must have heard from a majority of it: docs/decisions/0009."""
    ledger = weather(426).ledger
    assert any(len(each) > 1 for each in heirs(ledger, by_arrival=False).values())
    assert all(len(each) == 1 for each in heirs(ledger).values())


def test_a_seed_says_it_all() -> None:
    """The same trace in every run, whatever order Python gives to sets."""
    command = [sys.executable, "-m", "simulation.view_runs", "--seeds", "0:6", "--digests"]
    told = [
        subprocess.run(
            command,
            cwd=ROOT,
            check=True,
            capture_output=True,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PYTHONHASHSEED": hash_seed},
        ).stdout
        for hash_seed in ("1", "2", "2")
    ]
    assert told[0] == told[1] == told[2]
