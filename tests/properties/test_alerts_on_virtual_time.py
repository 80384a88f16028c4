"""Alerts of production, server and clients, on virtual time, under crashes, fail-over and broken connections: never
twice, none missed, none behind the confirmation of its cancel, the most urgent first; and a promise that is broken
on purpose shows."""

from __future__ import annotations

import pytest

from simulation.alert_plants import ALERT_PLANTS
from simulation.runs import summarise

pytestmark = [pytest.mark.slow, pytest.mark.req("A4", "A5", "A7", "A10")]
# Bugs that show with the first seeds.
_SOON = (
    "hand out by arrival",
    "forget who took an alert at recovery",
    "leave what is on the wire when it is cancelled",
    "what was on the wire is gone with it",
    "a sweep ends with the first level",
)


@pytest.mark.timeout(300)
def test_whatever_happens_promises_are_kept() -> None:
    summary = summarise("alerts", range(6))
    assert summary.violations == {}
    assert summary.counts["confirmed"] > 50 * summary.seeds, "enough happened"
    assert summary.counts["cancelled"] > 10 * summary.seeds


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", _SOON)
def test_a_promise_that_is_broken_shows(name: str) -> None:
    assert summarise("alerts", range(12), plant=name).violations


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", [name for name in ALERT_PLANTS if name not in _SOON])
def test_every_promise_that_is_broken_shows(name: str) -> None:
    assert summarise("alerts", range(300), plant=name).violations


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("hundred", range(5))
def test_five_hundred_seeds(hundred: int) -> None:
    assert summarise("alerts", range(hundred * 100, hundred * 100 + 100)).violations == {}
