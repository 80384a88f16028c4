"""A reader of a cluster's history while its network is cut, its nodes crash and its power fails (D2, PROTOCOL 5):
`simulation/feed.py`, on virtual time."""

from __future__ import annotations

import pytest

from simulation.feed_plants import FEED_PLANTS
from simulation.runs import summarise

pytestmark = [pytest.mark.req("D2"), pytest.mark.slow]


def test_what_a_reader_was_told_is_what_it_is_told_ever_after() -> None:
    summary = summarise("feed", range(4))
    assert summary.violations == {}
    assert summary.counts["positions_read"] > 1000, "enough was read"
    assert summary.errors["pipeline-restricted"] > 10, "and parts were asked that must not tell"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.nightly] * bool(n)) for n, name in enumerate(FEED_PLANTS)]
)
def test_what_is_planted_in_the_feed_is_shown(name: str) -> None:
    """Most seeds show each of them."""
    assert summarise("feed", range(6), plant=name).violations


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_a_reader_through_many_seeds() -> None:
    assert summarise("feed", range(100, 300)).violations == {}
