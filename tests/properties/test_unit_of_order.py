"""Units of order, whatever happens: publishes, consumers with and without selectors, completions, failures,
priorities, expiries, delays, full disks and crashes in any order (U1, U2, U3)."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from heliograph.model.policy import Policy
from tests.properties.ordered_world import OrderedWorld, Taker

UNITS = st.integers(0, 4)
COLOURS = st.sampled_from(["red", "blue"])


class UnitsOfOrder(RuleBasedStateMachine):
    """Anything may happen at any time."""

    world: OrderedWorld

    @initialize(
        limit=st.sampled_from([0, 0, 3]),
        delay=st.sampled_from([0.0, 0.0, 2.0]),
        stops=st.booleans(),
        to_dead=st.booleans(),
        resident=st.sampled_from([0, 2000, 1_000_000]),
        has_priorities=st.booleans(),
        has_times=st.booleans(),
        has_selectors=st.booleans(),
        sort_keys=st.sampled_from(["", "", "", "JMSPriority", "colour desc, JMSPriority asc"]),
    )
    def begin(
        self,
        limit: int,
        delay: float,
        stops: bool,
        to_dead: bool,
        resident: int,
        has_priorities: bool,
        has_times: bool,
        has_selectors: bool,
        sort_keys: str,
    ) -> None:
        policy = Policy(
            redelivery_limit=limit,
            redelivery_delay=delay,
            unit_stops=stops,
            expired_to_dead=to_dead,
            sort_keys=sort_keys,
        )
        self.world = OrderedWorld(policy, resident_bytes=resident)
        self.has_priorities = has_priorities
        self.has_times = has_times
        self.has_selectors = has_selectors

    def _taker(self, choice: int) -> Taker | None:
        takers = list(self.world.takers.values())
        return takers[choice % len(takers)] if takers else None

    def _rest(self) -> None:
        self.world.settle_down()
        self.world.check()

    @rule(
        messages=st.lists(
            st.tuples(
                UNITS,
                st.sampled_from([4, 4, 9]),
                COLOURS,
                st.sampled_from([0, 0, 0, 3]),
                st.sampled_from([0, 0, 0, 2]),
            ),
            min_size=1,
            max_size=6,
        ),
        at_rest=st.booleans(),
    )
    def publish(self, messages: list[tuple[int, int, str, int, int]], at_rest: bool) -> None:
        told = [
            (
                unit,
                priority if self.has_priorities else 4,
                colour,
                live if self.has_times else 0,
                wait if self.has_times else 0,
            )
            for unit, priority, colour, live, wait in messages
        ]
        self.world.publish(told)
        if at_rest:
            self._rest()

    @rule(colour=st.sampled_from(["", "", "red", "blue"]), credit=st.integers(0, 12), prompt=st.booleans())
    def attach(self, colour: str, credit: int, prompt: bool) -> None:
        if len(self.world.takers) < 5:
            self.world.attach(colour if self.has_selectors else "", credit, prompt=prompt)
            self._rest()

    @rule(choice=st.integers(0, 9), count=st.integers(1, 10))
    def grant(self, choice: int, count: int) -> None:
        taker = self._taker(choice)
        if taker is not None:
            self.world.grant(taker, count)
            self._rest()

    @rule(choice=st.integers(0, 9), count=st.integers(1, 5), skip=st.sampled_from([0, 0, 0, 1, 2]))
    def finish(self, choice: int, count: int, skip: int) -> None:
        taker = self._taker(choice)
        if taker is not None:
            self.world.finish(taker, count, skip=skip)
            self._rest()

    @rule(choice=st.integers(0, 9), place=st.integers(0, 5), seen=st.integers(0, 8))
    def give_back(self, choice: int, place: int, seen: int) -> None:
        taker = self._taker(choice)
        if taker is not None and taker.tags:
            self.world.give_back(taker, place % len(taker.tags), seen)
            self._rest()

    @rule(choice=st.integers(0, 9), seen=st.integers(-1, 6))
    def roll_back(self, choice: int, seen: int) -> None:
        taker = self._taker(choice)
        if taker is not None:
            self.world.return_all(taker, seen)
            self._rest()

    @rule(choice=st.integers(0, 9), seen=st.integers(-1, 6))
    def leave(self, choice: int, seen: int) -> None:
        taker = self._taker(choice)
        if taker is not None:
            self.world.leave(taker, seen)
            self._rest()

    @rule(seconds=st.integers(1, 4))
    def pass_time(self, seconds: int) -> None:
        self.world.pass_time(seconds)
        self._rest()

    @rule(after_snapshot=st.booleans())
    def crash(self, after_snapshot: bool) -> None:
        self.world.settle_down()
        self.world.note_expired()
        self.world.crash(after_snapshot=after_snapshot)
        self._rest()

    @rule(sort_keys=st.sampled_from(["", "JMSPriority", "colour desc, JMSPriority asc"]))
    def sort(self, sort_keys: str) -> None:
        self.world.sort(sort_keys)
        self._rest()

    @rule()
    def fill_disk(self) -> None:
        self.world.bury_fails = not self.world.bury_fails

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self._drain()

    def _drain(self) -> None:
        """Somebody takes everything that is left, and all of it comes, in order."""
        world = self.world
        world.bury_fails = False
        world.pass_time(400)
        world.settle_down()
        world.check()
        for taker in list(world.takers.values()):
            world.leave(taker, -1)
        taker = world.takers[world.attach("", 100_000, prompt=False)]
        for _ in range(60):
            if all(letter.fate for letter in world.letters.values()):
                break
            world.pass_time(400)
            world.settle_down()
            world.finish(taker, len(taker.tags))
            for key, unit in list(world.queue.messages.units.items()):
                if unit.stopped:
                    world.queue.messages.units.resume(key)
            world.queue.messages.let_units_go_on()
            world._turns += 1
            world.settle_down()
            world.note_expired()
        left = [letter.number for letter in world.letters.values() if not letter.fate]
        assert not left, f"{left} never come"
        assert not len(world.queue.messages.units), "units that nothing is left of are remembered"


def _run(examples: int, steps: int) -> None:
    run_state_machine_as_test(
        UnitsOfOrder,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.req("U1", "J3")
def test_what_a_unit_holds_back_on_disk_has_its_place_after_a_restart() -> None:
    """Its pages lie among what waits: first one message, then those that are held back, then another of the unit."""
    world = OrderedWorld(Policy(), resident_bytes=0)
    for units in ((1, 1, 1), (2,), (1,)):
        world.publish([(unit, 4, "red", 0, 0) for unit in units])
    for _ in range(2):
        world.attach("", 1, prompt=False)
        world.settle_down()
    for taker in list(world.takers.values()):
        world.leave(taker, 0)
    world.crash(after_snapshot=True)
    heir = world.takers[world.attach("", 100, prompt=False)]
    world.settle_down()
    assert heir.held == [1, 2, 3, 4, 5]


@pytest.mark.req("U1", "U2", "U3")
def test_a_unit_is_processed_in_order_by_one_consumer_at_a_time() -> None:
    _run(300, 30)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.req("U1", "U2", "U3")
def test_a_unit_is_processed_in_order_by_one_consumer_at_a_time_ten_thousand_times() -> None:
    _run(10_000, 50)
