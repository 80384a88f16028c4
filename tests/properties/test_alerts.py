"""Alerts, whatever happens: publishing, subscribing and unsubscribing, cancelling, expiring, cut connections, clients
that die, and crashes, in any order, against a model that is obvious (A3, A4, A5, A7).

At every step: nobody gets an alert twice, what is handed out has nothing more urgent before it, nothing is received
behind the confirmation of its cancel or of an unsubscribe, nobody sees what they are not cleared for. At the end:
nothing was missed, and everybody who asked was answered.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from heliograph.destinations.alerts import live, sweeping
from heliograph.model.alert import AcknowledgePolicy, AlertHeader, AlertType, CancelPolicy
from tests.properties.alert_world import DOUBT, SECOND, AlertWorld, Desk, Wish

TOPICS: list[Wish] = [
    (kind, prefix, text)
    for kind in AlertType
    for prefix, text in (
        ("TAG", "a"),
        ("TAG", "^b"),
        ("TAG", ".*"),
        ("TAG", "b$"),
        ("TAG", "^ab$"),
        ("TAG", "[^a]b"),
        ("TAG", "\\Aba"),
        ("USER", "ann"),
        ("PROFILE", "night"),
    )
]
DESTINATIONS = ["TAG:a", "TAG:ab", "TAG:ba", "TAG:b", "TAG:cb", "USER:ann", "PROFILE:night", "USER:bob"]
USERS = ["ann", "bob"]


class Alerts(RuleBasedStateMachine):
    """Anything may happen at any time."""

    world: AlertWorld

    @initialize()
    def begin(self) -> None:
        self.world = AlertWorld()

    @rule(
        destination=st.sampled_from(DESTINATIONS),
        priority=st.integers(1, 3),
        duration=st.sampled_from([0.0, 0.0, 5.0, 60.0]),
        persistent=st.sampled_from([True, True, True, False]),
        classification=st.sampled_from([0, 0, 0, 2]),
        cancel_policy=st.sampled_from(list(CancelPolicy)),
        acknowledge_policy=st.sampled_from(list(AcknowledgePolicy)),
        user=st.sampled_from(USERS),
    )
    def publish(
        self,
        destination: str,
        priority: int,
        duration: float,
        persistent: bool,
        classification: int,
        cancel_policy: int,
        acknowledge_policy: int,
        user: str,
    ) -> None:
        header = AlertHeader(
            destination,
            priority,
            duration,
            persistent=persistent,
            classification=classification,
            cancel_policy=cancel_policy,
            acknowledge_policy=acknowledge_policy,
        )
        self.world.publish(header, user)

    @rule(count=st.integers(2, 8), priority=st.integers(1, 3))
    def publish_many(self, count: int, priority: int) -> None:
        for number in range(count):
            self.world.publish(AlertHeader(DESTINATIONS[number % 5], priority), "ann")
        self.world.sync()

    @rule(data=st.data(), user=st.sampled_from(USERS))
    def cancel(self, data: st.DataObject, user: str) -> None:
        if self.world.sent:
            self.world.cancel(data.draw(st.sampled_from(self.world.sent)), user)

    @rule(data=st.data(), user=st.sampled_from(USERS))
    def acknowledge(self, data: st.DataObject, user: str) -> None:
        alerts = [each for each in self.world.sent if each.order and each.header.type == AlertType.ALERT]
        if alerts:
            self.world.acknowledge(data.draw(st.sampled_from(alerts)), user)

    @rule(
        user=st.sampled_from(USERS),
        name=st.sampled_from(["", "", "console", "pager"]),
        clearance=st.sampled_from([0, 1, 3]),
        credit=st.integers(1, 4),
        topics=st.lists(st.sampled_from(TOPICS), max_size=3),
    )
    def open(self, user: str, name: str, clearance: int, credit: int, topics: list[Wish]) -> None:
        if len([desk for desk in self.world.desks if not desk.is_closed]) < 5:
            self.world.open(user, name, clearance, credit, topics)

    @rule(
        data=st.data(),
        added=st.lists(st.sampled_from(TOPICS), max_size=2),
        removed=st.lists(st.sampled_from(TOPICS), max_size=2),
    )
    def change(self, data: st.DataObject, added: list[Wish], removed: list[Wish]) -> None:
        desk = self._desk(data)
        if desk is not None:
            self.world.change(desk, added, removed)

    def _desk(self, data: st.DataObject) -> Desk | None:
        desks = [desk for desk in self.world.desks if not desk.is_closed]
        return data.draw(st.sampled_from(desks)) if desks else None

    @rule(data=st.data(), steps=st.integers(1, 6))
    def read(self, data: st.DataObject, steps: int) -> None:
        desk = self._desk(data)
        for _ in range(steps if desk is not None else 0):
            assert desk is not None
            self.world.deliver(desk)

    @rule(data=st.data(), steps=st.integers(1, 4))
    def receive(self, data: st.DataObject, steps: int) -> None:
        desk = self._desk(data)
        for _ in range(steps if desk is not None else 0):
            assert desk is not None
            self.world.receive(desk)

    @rule(data=st.data(), steps=st.integers(1, 6))
    def say(self, data: st.DataObject, steps: int) -> None:
        desk = self._desk(data)
        for _ in range(steps if desk is not None else 0):
            assert desk is not None
            self.world.say(desk)

    @rule(data=st.data())
    def cut(self, data: st.DataObject) -> None:
        desk = self._desk(data)
        if desk is not None:
            self.world.cut(desk)

    @rule(data=st.data(), who=st.sampled_from(["client", "server", "both"]))
    def notice(self, data: st.DataObject, who: str) -> None:
        desk = self._desk(data)
        if desk is not None and desk.is_cut:
            if who != "client":
                self.world.server_notices(desk)
            if who != "server":
                self.world.notice(desk)

    @rule(data=st.data())
    def connect(self, data: st.DataObject) -> None:
        desk = self._desk(data)
        if desk is not None:
            self.world.connect(desk)

    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        desk = self._desk(data)
        if desk is not None:
            self.world.die(desk)

    @rule(data=st.data(), unsubscribe=st.booleans())
    def close(self, data: st.DataObject, unsubscribe: bool) -> None:
        desk = self._desk(data)
        if desk is not None:
            self.world.close(desk, unsubscribe=unsubscribe)

    @rule(seconds=st.sampled_from([1, 6, 41]))
    def wait(self, seconds: int) -> None:
        self.world.tick(seconds * SECOND)

    @rule()
    def sync(self) -> None:
        self.world.sync()

    @rule()
    def turn(self) -> None:
        if self.world.turn_due:
            self.world.turn()

    @rule()
    def snapshot(self) -> None:
        self.world.sync()
        self.world.take_snapshot()

    @rule(full=st.sampled_from([True, False, False]))
    def disk(self, full: bool) -> None:
        self.world.disk_full = full

    @rule(keep=st.sampled_from([0, 0, 1, 3, 100]))
    def crash(self, keep: int) -> None:
        self.world.crash(keep)

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.settle()
        self.world.judge_misses()
        self.world.tick(DOUBT + SECOND)
        self.world.settle()
        self.world.judge_confirmations()


@pytest.fixture
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few alerts are many chunks, and a sweep many turns."""
    monkeypatch.setattr(live, "SWEEP_CHUNK_ALERTS", 2)
    monkeypatch.setattr(live, "_LEAST_FULL", 1)
    monkeypatch.setattr(sweeping, "SWEEP_CHUNKS_PER_TURN", 1)


def _run(examples: int, steps: int) -> None:
    run_state_machine_as_test(
        Alerts,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.req("A3", "A4", "A5", "A7")
@pytest.mark.usefixtures("_small_chunks")
def test_whatever_happens_nothing_is_missed_nothing_comes_twice_and_the_most_urgent_comes_first() -> None:
    _run(60, 60)


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("_small_chunks")
def test_the_same_for_long() -> None:
    _run(3000, 100)
