"""What an intake knows of other parts: gaps that they fill, and lanes of sessions that ended (P7)."""

from __future__ import annotations

import pytest

from heliograph.destinations.intake import Intake
from tests.unit.destinations.stories import LANE, SESSION, several

pytestmark = pytest.mark.req("P6", "P7")


def joined(intake: Intake, first: int, count: int) -> None:
    intake.replay_joined(several(first, count), intake.next_number)


def test_what_comes_before_its_predecessors_leaves_a_gap_that_they_fill() -> None:
    intake = Intake()
    joined(intake, 4, 3)
    assert intake.known_of(LANE) == ((4, 6),)
    assert intake.apart.missing == {LANE: ((1, 3),)}
    joined(intake, 1, 2)
    assert intake.known_of(LANE) == ((1, 2), (4, 6))
    intake.learn(LANE, ((3, 3),))
    assert intake.known_of(LANE) == ((1, 6),)
    assert not intake.apart.missing


def test_it_is_held_and_what_is_only_known_is_not() -> None:
    intake = Intake()
    joined(intake, 1, 2)
    intake.learn(LANE, ((3, 9),))
    intake.became_whole()
    assert intake.known_of(LANE) == ((1, 9),)


def test_the_lanes_of_a_session_that_ended_are_known_until_the_cluster_was_whole_twice() -> None:
    intake = Intake()
    joined(intake, 1, 5)
    intake.forget(SESSION, but_marks=True)
    assert intake.marks() == {}
    assert intake.known_of(LANE) == ((1, 5),)
    intake.became_whole()
    assert intake.known_of(LANE) == ((1, 5),), "one may not have heard of it yet"
    intake.became_whole()
    assert intake.known_of(LANE) == ()
