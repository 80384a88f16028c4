"""Hand-over between members whose clocks drift, whose words are late and who stop, die, leave and come (H2).

Never two act on a value in the same epoch, nor at the same time; in calm, every value is owned again soon. Every
message is processed, and what is processed again is marked. While the middleware itself is in two parts, there may be
two clusters, with epochs of their own; when it is one again, there is one cluster soon.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from heliograph.clustered.events import Terms
from tests.properties.clustered_world import SAMPLES, ClusteredWorld

TERMS = Terms(lease_seconds=4.0, drift=0.05, skew_seconds=0.5)
ALL_NAMES = ("ada", "bob", "cyd", "dan", "eve")
NAMES = st.sampled_from(ALL_NAMES)
PAUSES = st.sampled_from([0.2, 1.0, 3.0, 5.0, 8.0, 15.0])
RATES = st.sampled_from([1 - TERMS.drift, 1.0, 1 + TERMS.drift])
SKEWS = st.sampled_from([0.0, 0.2, TERMS.skew_seconds])
VALUES = st.sampled_from(SAMPLES)
PARTS = st.sampled_from([("ada",), ("bob",), ("ada", "bob"), ("cyd", "dan"), ("ada", "dan", "eve")])
# From calm until everything is owned: silence twice (a dead leader, and somebody it would have taken in), founding,
# and a few words back and forth for each view. So it is for two clusters that become one: one is given up after a few
# words, and its members come to the other.
CALM_SECONDS = 6 * TERMS.silence_seconds
# After so many silences everything has been asked about, more than once.
PATIENCE = 20


class HandingOver(RuleBasedStateMachine):
    """Anything may happen at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.world = ClusteredWorld(TERMS)

    @initialize(rates=st.tuples(RATES, RATES, RATES), skews=st.tuples(SKEWS, SKEWS, SKEWS), seconds=PAUSES)
    def begin_with_three(self, rates: tuple[float, ...], skews: tuple[float, ...], seconds: float) -> None:
        """Mostly a cluster that stands; now and then one that has only begun."""
        for name, rate, skew in zip(ALL_NAMES, rates, skews, strict=False):
            self.world.start(name, rate, 0.0, skew)
        self.world.advance(2 * seconds)

    @rule(name=NAMES, rate=RATES, offset=st.sampled_from([0.0, 500.0]), skew=SKEWS)
    def start(self, name: str, rate: float, offset: float, skew: float) -> None:
        self.world.start(name, rate, offset, skew)

    @rule(seconds=PAUSES)
    def time_passes(self, seconds: float) -> None:
        self.everybody_acts()
        self.world.advance(seconds)
        self.everybody_acts()

    def everybody_acts(self) -> None:
        for value in SAMPLES:
            for name in ALL_NAMES:
                self.world.begin(name, value)

    @rule(name=NAMES, seconds=PAUSES)
    def a_process_stops_for_a_while(self, name: str, seconds: float) -> None:
        self.pause(name, True)
        self.time_passes(seconds)
        self.pause(name, False)
        self.everybody_acts()

    @rule(name=NAMES, seconds=PAUSES)
    def somebody_is_deaf_for_a_while(self, name: str, seconds: float) -> None:
        if name in self.world.players:
            self.world.players[name].is_deaf = True
            self.time_passes(seconds)
            self.world.players[name].is_deaf = False
            self.everybody_acts()

    @rule(name=NAMES, seconds=PAUSES)
    def a_connection_hangs_for_a_while(self, name: str, seconds: float) -> None:
        self.words_are_late(name, 20.0)
        self.time_passes(seconds)
        self.words_are_late(name, 0.0)

    @rule(name=NAMES)
    def everything_of_one_is_finished(self, name: str) -> None:
        while name in self.world.players and self.world.players[name].works:
            if self.world.players[name].is_paused:
                return
            self.world.finish(name)

    @rule(name=NAMES, value=VALUES)
    def begin(self, name: str, value: int) -> None:
        self.world.begin(name, value)

    @rule(name=NAMES)
    def finish(self, name: str) -> None:
        self.world.finish(name)

    @rule(values=st.lists(VALUES, min_size=1, max_size=8))
    def publish(self, values: list[int]) -> None:
        for value in values:
            self.world.publish(value)

    @rule(name=NAMES, seconds=PAUSES)
    def copies_are_late_for_a_while(self, name: str, seconds: float) -> None:
        if name in self.world.players:
            self.world.players[name].copies_are_late = True
            self.time_passes(seconds)
            self.world.players[name].copies_are_late = False

    @rule(name=NAMES, is_late=st.booleans())
    def copies_are_late(self, name: str, is_late: bool) -> None:
        if name in self.world.players:
            self.world.players[name].copies_are_late = is_late

    @rule(name=NAMES, is_slow=st.booleans())
    def work_is_slow(self, name: str, is_slow: bool) -> None:
        if name in self.world.players:
            self.world.players[name].works_slowly = is_slow

    @rule(name=NAMES)
    def a_process_is_killed_and_started_again(self, name: str) -> None:
        if name in self.world.players:
            player = self.world.players[name]
            self.world.kill(name)
            self.world.start(name, player.rate, player.offset, player.skew)

    @rule(name=NAMES)
    def kill(self, name: str) -> None:
        self.world.kill(name)

    @rule(name=NAMES)
    def leave(self, name: str) -> None:
        self.world.leave(name)

    @rule(name=NAMES, is_paused=st.booleans())
    def pause(self, name: str, is_paused: bool) -> None:
        if name in self.world.players:
            self.world.players[name].is_paused = is_paused

    @rule(name=NAMES, delay=st.sampled_from([0.0, 0.5, 2.0, 5.0, 20.0]))
    def words_are_late(self, name: str, delay: float) -> None:
        if name in self.world.players:
            self.world.players[name].delay = delay

    @rule(part=PARTS)
    def the_middleware_is_cut(self, part: tuple[str, ...]) -> None:
        self.world.cut(part)

    @rule()
    def the_middleware_is_one_again(self) -> None:
        self.world.heal()

    @rule(part=PARTS, seconds=PAUSES)
    def the_middleware_is_cut_for_a_while(self, part: tuple[str, ...], seconds: float) -> None:
        self.world.cut(part)
        self.time_passes(2 * seconds)
        self.world.heal()

    @invariant()
    def nobody_overlaps(self) -> None:
        assert not self.world.problems, self.world.problems

    def teardown(self) -> None:
        self.world.calm()
        self.world.advance(CALM_SECONDS)
        if any(not player.membership.is_over and player.comes_back for player in self.world.living()):
            for value in SAMPLES:
                assert len(self.world.owners(value)) == 1, f"{value} is owned by {self.world.owners(value)}"
        everybody_comes_back_and_everything_is_processed(self.world)
        assert not self.world.problems, self.world.problems


def everybody_comes_back_and_everything_is_processed(world: ClusteredWorld) -> None:
    """What waits in the copies of somebody who never comes back is processed by nobody."""
    for _ in range(PATIENCE):
        if world.middleware.lost:
            world.calm()
            for name in list(world.middleware.subscriptions):
                world.start(name, 1.0, 0.0, 0.0)  # unless it is there; it may have been about to leave
            world.advance(world.terms.silence_seconds)
    assert not world.middleware.lost, f"{world.middleware.lost} are lost"


@pytest.mark.req("H2")
@pytest.mark.timeout(300)  # a quarter of a minute of work, on a machine that may have much else to do
def test_two_members_never_act_on_one_value_in_one_epoch() -> None:
    run_state_machine_as_test(
        HandingOver,
        settings=settings(max_examples=60, stateful_step_count=40, deadline=None),
    )


@pytest.mark.req("H2")
@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_the_same_much_longer() -> None:
    run_state_machine_as_test(
        HandingOver,
        settings=settings(max_examples=1500, stateful_step_count=80, deadline=None),
    )
