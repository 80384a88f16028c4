"""Members that lose their leases, die and come back again and again, and a message in every copy of each (H2, H4).

Nothing is lost: what nobody else has is not thrown away, however often the last who had everything goes. What is
processed again is marked.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from heliograph.clustered.events import Terms
from tests.properties.clustered_world import SAMPLES, ClusteredWorld
from tests.properties.test_clustered_handover import everybody_comes_back_and_everything_is_processed

TERMS = Terms(lease_seconds=2.0, drift=0.05, skew_seconds=0.2)
ALL_NAMES = ("ada", "bob", "cyd")
WHAT = st.sampled_from(
    [
        *("loses its lease", "loses its lease", "is killed and comes back", "is killed and comes back later"),
        *("leaves", "comes", "gets its copies late", "works slowly", "says its words late", "is well"),
        "nothing",
    ]
)
PAUSES = st.sampled_from([0.1, 0.5, 1.0, 2.0, 3.0, 6.0])


class Losing(RuleBasedStateMachine):
    """Something happens to somebody, messages come, time passes; and again."""

    def __init__(self) -> None:
        super().__init__()
        self.world = ClusteredWorld(TERMS)

    @initialize(seconds=st.sampled_from([0.5, 6.0, 15.0]))
    def begin(self, seconds: float) -> None:
        for name in ALL_NAMES:
            self.world.start(name, 1.0, 0.0, 0.0)
        self.world.advance(seconds)

    @rule(name=st.sampled_from(ALL_NAMES), what=WHAT, messages=st.integers(0, 3), seconds=PAUSES)
    def something_happens(self, name: str, what: str, messages: int, seconds: float) -> None:
        for number in range(messages):
            self.world.publish(SAMPLES[(len(self.world.middleware.published) * 5 + number) % len(SAMPLES)])
        happens(self.world, name, what)
        self.world.advance(seconds)

    @invariant()
    def nobody_overlaps_and_repeats_are_marked(self) -> None:
        assert not self.world.problems, self.world.problems

    def teardown(self) -> None:
        everybody_comes_back_and_everything_is_processed(self.world)
        assert not self.world.problems, self.world.problems


def happens(world: ClusteredWorld, name: str, what: str) -> None:
    player = world.players[name]
    match what:
        case "loses its lease":
            player.is_deaf = True
            world.advance(1.1 * TERMS.lease_seconds)
            player.is_deaf = False
        case "is killed and comes back":
            world.kill(name)
            world.start(name, 1.0, 0.0, 0.0)
        case "is killed and comes back later":
            world.kill(name)
            world.advance(2 * TERMS.silence_seconds)
            world.start(name, 1.0, 0.0, 0.0)
        case "leaves":
            world.leave(name)
        case "comes":
            world.start(name, 1.0, 0.0, 0.0)
        case "gets its copies late":
            player.copies_are_late = True
        case "works slowly":
            player.works_slowly = True
        case "says its words late":
            player.delay = 3.0
        case "is well":
            player.copies_are_late = player.works_slowly = False
            player.delay = 0.0
        case _:
            pass


@pytest.mark.req("H2", "H4")
@pytest.mark.timeout(300)  # a quarter of a minute of work, on a machine that may have much else to do
def test_nothing_is_lost_however_often_leases_are() -> None:
    run_state_machine_as_test(
        Losing, settings=settings(max_examples=100, stateful_step_count=50, deadline=None)
    )


@pytest.mark.req("H2", "H4")
@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_the_same_much_longer() -> None:
    run_state_machine_as_test(
        Losing, settings=settings(max_examples=3000, stateful_step_count=80, deadline=None)
    )
