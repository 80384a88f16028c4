"""Units of order, selectors, priorities and sort keys in a cluster that comes apart, against the rules (P3, P11, U1).

Everything of `test_unit_of_order.py` goes on meanwhile. The judge is the gate of the rules, shown all that waits.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

from heliograph.cluster.dispatch_rules import Gate, Hold, Message, Situation, Where, own_hold
from heliograph.cluster.partition_state import State
from heliograph.destinations.effects import AnyEffect
from heliograph.destinations.moving import Gathering
from heliograph.destinations.pausing import Paused
from heliograph.destinations.queue import Queue
from heliograph.destinations.standing import Standing
from heliograph.model.ids import LaneId, lane_of
from heliograph.model.policy import Policy
from tests.properties.ordered_world import ISSUER, Letter, OrderedWorld, Taker
from tests.properties.test_unit_of_order import UnitsOfOrder

LANES = 3
NOWHERE = Situation(state=State.A, is_in_force=False)


class PartedOrderedWorld(OrderedWorld):
    """Several senders, and views."""

    def __init__(self, policy: Policy, *, resident_bytes: int = 4000) -> None:
        self._lanes: list[tuple[LaneId, int]] = []
        self._lane_of: dict[int, LaneId] = {}
        self._where: dict[int, Where] = {}
        self._set_aside_once: set[int] = set()
        self._standing: Standing | None = None
        self._situation: Situation | None = None
        self._strict: dict[int, Hold] = {}
        super().__init__(policy, resident_bytes=resident_bytes)
        self._new_lanes()

    def _new_lanes(self) -> None:
        self._lanes = [(lane_of(ISSUER.session(), 1), 1) for _ in range(LANES)]

    def publish_on(self, choice: int, messages: list[tuple[int, int, str, int, int]]) -> None:
        self._lane, self._sequence = self._lanes[choice]
        first = self.queue.intake.next_number
        for number in range(first, first + len(messages)):
            self._lane_of[number] = self._lane
            self._where[number] = Where.CURRENT if self._standing is not None else Where.UNRESTRICTED
        self.publish(messages)
        self._lanes[choice] = (self._lane, self._sequence)

    def enter(self, state: State, *, in_force: bool, whole: bool = False) -> None:
        before, self._standing = self._standing, Standing(ISSUER.session(), state, is_in_force=in_force)
        self.queue.stamps.enter(self.queue.intake.next_number, before)
        good = before is None or before.is_unrestricted
        for number, where in self._where.items():
            if where is Where.CURRENT:
                self._where[number] = Where.UNRESTRICTED if good else Where.RESTRICTED
        if whole:
            self.queue.stamps.whole()
            self._where = dict.fromkeys(self._where, Where.UNRESTRICTED)
        self._stand(Situation(state=state, is_in_force=in_force, is_whole=whole))

    def _stand(self, situation: Situation) -> None:
        self._situation = situation
        effects: list[AnyEffect] = []
        self.queue.regate(situation, self._standing, effects)
        self._carry_out(effects)

    def crash(self, *, after_snapshot: bool) -> None:
        before: Queue = self.queue
        super().crash(after_snapshot=after_snapshot)
        self.queue.stamps.restore(before.stamps.state)
        self.queue.intake.restore(dict(before.intake.marks()), before.intake.next_number)
        self._new_lanes()
        self._set_aside_once.clear()
        if self._standing is not None:
            self._stand(NOWHERE)

    # ---- the judge

    def _message(self, letter: Letter) -> Message:
        number = letter.number
        return Message(lane=self._lane_of[number], where=self._where[number], unit=letter.unit)

    def _holds(self, *, strict: bool) -> dict[int, Hold]:
        """Why each message that waits may not go. `strict`: what waits for its time makes others wait too."""
        if self._situation is None:
            return {}
        situation = Situation(
            state=self._situation.state,
            is_in_force=self._situation.is_in_force,
            is_whole=self._situation.is_whole,
            units_continue=self.policy.unit_continues,
        )
        gate = Gate(situation)
        found: dict[int, Hold] = {}
        for letter in self.letters.values():
            if letter.fate or letter.holder is not None:
                continue
            is_alone = not strict and self._is_late(letter)
            message = self._message(letter)
            hold = own_hold(situation, message) if is_alone else gate.look(message)
            if hold is not None:
                found[letter.number] = hold
        return found

    def _is_late(self, letter: Letter) -> bool:
        if letter.due or self.is_aside(letter.number):
            self._set_aside_once.add(letter.number)
        return letter.number in self._set_aside_once

    def _judge(self, letter: Letter, taker: Taker) -> None:
        hold = self._holds(strict=False).get(letter.number)
        assert hold is None, f"{letter.number} goes though it has to wait: {hold}"
        super()._judge(letter, taker)

    def _could_go(self, letter: Letter, taker: Taker) -> bool:
        return letter.number not in self._strict and super()._could_go(letter, taker)

    def check(self) -> None:
        self.note_expired()
        for letter in self.letters.values():
            self._is_late(letter)
        self._strict = self._holds(strict=True)
        super().check()
        held = sum(self.queue.messages.held_back.values())
        assert held <= self.queue.messages.depth


class PartedUnits(UnitsOfOrder):
    """The same, with views."""

    world: PartedOrderedWorld

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
    def begin(self, *, resident: int, has_selectors: bool, has_priorities: bool, **said: object) -> None:
        policy = Policy(
            redelivery_limit=said["limit"],  # type: ignore[arg-type]
            redelivery_delay=said["delay"],  # type: ignore[arg-type]
            unit_stops=bool(said["stops"]),
            expired_to_dead=bool(said["to_dead"]),
            sort_keys=str(said["sort_keys"]),
            unit_continues=has_selectors != has_priorities,
        )
        self.world = PartedOrderedWorld(policy, resident_bytes=resident)
        self.has_priorities = has_priorities
        self.has_times = bool(said["has_times"])
        self.has_selectors = has_selectors

    @rule(
        messages=st.lists(
            st.tuples(
                st.sampled_from([0, 0, 1, 2]),
                st.sampled_from([4, 4, 9]),
                st.sampled_from(["red", "blue"]),
                st.sampled_from([0, 0, 0, 3]),
                st.sampled_from([0, 0, 0, 2]),
            ),
            min_size=1,
            max_size=6,
        ),
        at_rest=st.booleans(),
        lane=st.integers(0, LANES - 1),
    )
    def publish(self, messages: list[tuple[int, int, str, int, int]], at_rest: bool, lane: int) -> None:
        self.world.publish_on(
            lane,
            [
                (
                    unit,
                    priority if self.has_priorities else 4,
                    colour,
                    live if self.has_times else 0,
                    wait if self.has_times else 0,
                )
                for unit, priority, colour, live, wait in messages
            ],
        )
        if at_rest:
            self._rest()

    @rule(state=st.sampled_from([State.D, State.D, State.B, State.C, State.A]), in_force=st.booleans())
    def enter(self, state: State, in_force: bool) -> None:
        self.world.enter(state, in_force=in_force and state is not State.D)
        self._rest()

    @rule(
        states=st.lists(st.sampled_from([State.D, State.B]), min_size=1, max_size=3),
        lanes=st.lists(st.integers(0, LANES - 1), min_size=4, max_size=4),
        unit=st.sampled_from([0, 1]),
        is_urgent=st.booleans(),
    )
    def send_through_views(self, states: list[State], lanes: list[int], unit: int, is_urgent: bool) -> None:
        """One message, a view, the next, and only then does anybody look."""
        world = self.world
        world.publish_on(lanes[0], [(unit, 4, "red", 0, 0)])
        for state, lane in zip(states, lanes[1:], strict=False):
            world.enter(state, in_force=state is not State.D)
            urgent = self.has_priorities and is_urgent
            world.publish_on(lane, [(unit, 9 if urgent else 4, "blue", 0, 0), (0, 4, "red", 0, 0)])
        self._rest()

    @rule()
    def become_whole(self) -> None:
        self.world.enter(State.A, in_force=True, whole=True)
        self._rest()

    def _drain(self) -> None:
        self.world.enter(State.A, in_force=True, whole=True)
        super()._drain()


def _run(examples: int, steps: int) -> None:
    run_machine(
        PartedUnits,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


PLAIN = (0, 4, "red", 0, 0)
URGENT = (0, 9, "red", 0, 0)


@pytest.mark.req("P3")
def test_what_comes_back_in_a_restricted_part_keeps_what_its_session_sent_since() -> None:
    """It returns to a lower priority, so that what its session sent later would come up first."""
    world = PartedOrderedWorld(Policy())
    world.publish_on(0, [PLAIN])
    first = world.takers[world.attach("", 1, prompt=False)]
    world.settle_down()
    assert first.held == [1]
    world.enter(State.D, in_force=False)
    world.publish_on(0, [URGENT])
    world.leave(first, 0)
    other = world.takers[world.attach("", 100, prompt=False)]
    world.settle_down()
    assert other.held == []
    world.enter(State.A, in_force=True, whole=True)
    world.settle_down()
    assert other.held == [2, 1]


@pytest.mark.req("P9")
def test_what_waits_behind_something_that_waits_makes_others_wait_whatever_their_priority() -> None:
    world = PartedOrderedWorld(Policy())
    world.enter(State.D, in_force=False)
    world.publish_on(0, [PLAIN])
    world.enter(State.B, in_force=True)
    world.publish_on(0, [(1, 4, "red", 0, 0)])
    world.publish_on(1, [(1, 9, "red", 0, 0)])
    world.publish_on(1, [URGENT])
    world.publish_on(2, [URGENT])
    world.enter(State.B, in_force=True)
    taker = world.takers[world.attach("", 100, prompt=False)]
    world.settle_down()
    assert taker.held == [5]
    world.enter(State.A, in_force=True, whole=True)
    world.settle_down()
    assert sorted(taker.held) == [1, 2, 3, 4, 5]


@pytest.mark.req("U8")
def test_an_administrator_takes_messages_out_from_behind_the_gate_and_the_others_stay_there() -> None:
    world = PartedOrderedWorld(Policy())
    world.publish_on(0, [PLAIN, PLAIN])
    world.publish_on(1, [(1, 4, "red", 0, 0)])
    world.enter(State.D, in_force=False)
    taker = world.takers[world.attach("", 100, prompt=False)]
    world.settle_down()
    world.queue.set_paused(Paused(consumption=True))
    gathering = Gathering(world.queue, ISSUER.consumer(), None)
    effects: list[AnyEffect] = []
    spans, has_more = gathering.take(1, effects)
    assert ([span.block.number + span.start for span in spans], has_more) == ([1], True)
    world.queue.messages.removed(spans, effects)
    world.letters[1].fate = "moved"
    gathering.end()
    world.queue.set_paused(Paused())
    world._turns += 1
    world.settle_down()
    world.check()
    assert (taker.held, world.queue.messages.held_back) == ([], {Hold.OLDER: 2})
    world.enter(State.A, in_force=True, whole=True)
    world.settle_down()
    assert taker.held == [2, 3]


@pytest.mark.req("P3", "P11", "U1")
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_units_of_order_agree_with_the_rules_in_parts() -> None:
    _run(150, 30)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.req("P3", "P11", "U1")
def test_units_of_order_agree_with_the_rules_in_parts_ten_thousand_times() -> None:
    _run(10_000, 50)
