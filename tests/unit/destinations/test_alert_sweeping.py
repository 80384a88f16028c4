"""Who gets an alert when consumers come and go: the five cases of the source's table 4.1, priorities, names, and
races (A3, A4, A5)."""

from __future__ import annotations

import pytest

from heliograph.model.alert import AlertHeader, AlertType, CancelPolicy
from tests.properties.alert_world import DOUBT, SECOND, AlertWorld, Desk, Wish

pytestmark = pytest.mark.req("A4")
TAG: Wish = (AlertType.ALERT, "TAG", "disk")
DISK = AlertHeader("TAG:disk.full", cancel_policy=CancelPolicy.ANY)


class Table:
    """An alert that C1 and C2 have got, and a list of consumers that changes."""

    def __init__(self) -> None:
        self.world = AlertWorld()
        self.alert = self.world.publish(DISK, "ann")
        self.consumers: dict[str, Desk] = {}
        self.add("C1", "C2")
        self.sweep()
        assert self.got() == {"C1": 1, "C2": 1}

    def add(self, *names: str) -> None:
        for name in names:
            self.consumers[name] = self.world.open("ann", name, 0, 8, [TAG])

    def delete(self, *names: str) -> None:
        for name in names:
            self.world.close(self.consumers[name], unsubscribe=True)

    def sweep(self) -> None:
        self.world.settle()

    def got(self) -> dict[str, int]:
        return {name: len(desk.received) for name, desk in self.consumers.items()}


def test_scenario_1_addition_of_new_consumers() -> None:
    table = Table()
    table.add("C3")
    table.sweep()
    assert table.got() == {"C1": 1, "C2": 1, "C3": 1}


def test_scenario_2_deletion_of_consumers_with_no_additions() -> None:
    table = Table()
    table.delete("C1")
    table.sweep()
    assert table.got() == {"C1": 1, "C2": 1}


def test_scenario_3_addition_and_deletion_of_new_consumers() -> None:
    table = Table()
    table.add("C3", "C4")
    table.world.receive(table.consumers["C4"])
    table.world.die(table.consumers["C4"])  # before it had anything
    table.sweep()
    assert table.got() == {"C1": 1, "C2": 1, "C3": 1, "C4": 0}
    table.delete("C3")
    table.add("C5", "C6")
    table.world.die(table.consumers["C5"])
    table.world.die(table.consumers["C6"])
    table.sweep()
    assert table.got() == {"C1": 1, "C2": 1, "C3": 1, "C4": 0, "C5": 0, "C6": 0}


def test_scenario_4_addition_of_consumers_and_deletion_of_old_consumers() -> None:
    table = Table()
    table.add("C3")
    table.delete("C2")
    table.sweep()
    assert table.got() == {"C1": 1, "C2": 1, "C3": 1}


def test_scenario_5_addition_of_consumers_deletion_of_old_and_new_consumers() -> None:
    table = Table()
    table.add("C3", "C4")
    table.world.die(table.consumers["C4"])
    table.delete("C2")
    table.sweep()
    assert table.got() == {"C1": 1, "C2": 1, "C3": 1, "C4": 0}


def test_who_subscribes_again_under_its_name_gets_nothing_twice() -> None:
    table = Table()
    table.delete("C1")
    table.sweep()
    again = table.world.open("ann", "C1", 0, 8, [TAG])
    table.sweep()
    assert again.received == [table.alert.id]  # in its former life


def test_two_topics_that_mean_the_same_alert_bring_it_once() -> None:
    world = AlertWorld()
    desk = world.open("ann", "", 0, 8, [TAG, (AlertType.ALERT, "TAG", "full$")])
    world.publish(DISK, "ann")
    world.settle()
    assert len(desk.received) == 1


def test_what_is_more_urgent_goes_first_though_it_came_last() -> None:
    world = AlertWorld()
    for priority in (1, 5, 10, 5):
        world.publish(AlertHeader("TAG:disk", priority), "ann")
    world.sync()
    desk = world.open("ann", "", 0, 1, [TAG])
    world.deliver(desk)
    world.deliver(desk)
    world.publish(AlertHeader("TAG:disk", 9), "ann")
    world.settle()
    assert [world.by_id[identity].header.priority for identity in desk.received] == [10, 9, 5, 5, 1]


def test_a_sweep_that_is_interrupted_lets_what_is_more_urgent_pass() -> None:
    world = AlertWorld()
    for _ in range(5):
        world.publish(AlertHeader("TAG:disk", 3), "ann")
    world.sync()
    desk = world.open("ann", "", 0, 2, [TAG])
    world.sync()
    for _ in range(3):
        world.deliver(desk)
    assert world.receive(desk)
    urgent = world.publish(AlertHeader("TAG:disk", 10), "ann")
    world.sync()
    world.say(desk)  # the first is taken: there is room for one more
    world.sync()
    while desk.wire_in:
        world.deliver(desk)
    assert world.receive(desk) == urgent.id


# ---- races


@pytest.mark.req("A5")
def test_a_cancel_waits_for_who_has_the_alert_on_the_wire() -> None:
    world = AlertWorld()
    desk = world.open("bob", "", 0, 8, [TAG])
    alert = world.publish(DISK, "ann")
    world.sync()
    world.cancel(alert, "ann")
    world.sync()
    assert not alert.cancel_confirmed
    while desk.wire_in:
        world.deliver(desk)
    assert world.receive(desk) is None
    while desk.wire_out:
        world.say(desk)
    world.sync()
    assert alert.cancel_confirmed


@pytest.mark.req("A5")
def test_who_took_it_just_before_has_it_and_the_cancel_is_confirmed_then() -> None:
    world = AlertWorld()
    desk = world.open("bob", "", 0, 8, [TAG])
    alert = world.publish(DISK, "ann")
    world.sync()
    while desk.wire_in:
        world.deliver(desk)
    assert world.receive(desk) == alert.id
    world.cancel(alert, "ann")  # it overtakes what the client says
    world.sync()
    assert not alert.cancel_confirmed
    world.settle()
    assert alert.cancel_confirmed
    assert desk.received == [alert.id]


@pytest.mark.req("A5")
def test_for_a_client_that_is_cut_off_a_cancel_waits_until_it_must_have_noticed() -> None:
    world = AlertWorld()
    desk = world.open("bob", "", 0, 8, [TAG])
    alert = world.publish(DISK, "ann")
    world.sync()
    while desk.wire_in:
        world.deliver(desk)
    world.cut(desk)
    world.tick(5 * SECOND)
    world.server_notices(desk)
    world.cancel(alert, "ann")
    world.sync()
    world.tick(DOUBT - SECOND)
    world.sync()
    assert not alert.cancel_confirmed
    world.tick(2 * SECOND)
    world.sync()
    assert alert.cancel_confirmed
    assert world.receive(desk) is None


@pytest.mark.req("A5")
def test_what_was_cancelled_while_its_client_was_cut_off_is_dropped_when_it_comes_back() -> None:
    world = AlertWorld()
    desk = world.open("bob", "", 0, 8, [TAG])
    alert = world.publish(DISK, "ann")
    world.sync()
    while desk.wire_in:
        world.deliver(desk)
    world.cut(desk)
    world.server_notices(desk)
    world.cancel(alert, "ann")
    world.tick(DOUBT + SECOND)
    world.sync()
    assert alert.cancel_confirmed
    world.connect(desk)
    assert world.receive(desk) is None, "nobody has said yet what became of it"
    world.settle()
    assert desk.received == []


@pytest.mark.req("A5", "A7")
def test_a_cancel_waits_also_when_the_server_was_started_again_meanwhile() -> None:
    world = AlertWorld()
    desk = world.open("bob", "", 0, 8, [TAG])
    alert = world.publish(DISK, "ann")
    world.sync()
    while desk.wire_in:
        world.deliver(desk)
    world.cut(desk)
    world.cancel(alert, "ann")
    world.crash(keep=100)
    world.sync()
    assert not alert.cancel_confirmed, "who was handed it is in the journal"
    world.notice(desk)
    world.connect(desk)
    world.settle()
    assert alert.cancel_confirmed
    assert desk.received == []


@pytest.mark.req("A3")
def test_what_was_taken_while_the_unsubscribe_was_on_its_way_is_not_repeated() -> None:
    world = AlertWorld()
    desk = world.open("bob", "", 0, 8, [TAG])
    alert = world.publish(DISK, "ann")
    world.sync()
    world.change(desk, [], [TAG])
    world.say(desk)
    world.deliver(desk)
    world.deliver(desk)
    assert world.receive(desk) in (alert.id, None)
    world.settle()
    world.change(desk, [TAG], [])
    world.settle()
    assert desk.received == [alert.id]


# ---- recovery


@pytest.mark.req("A7")
def test_nothing_is_looked_at_again_that_a_subscriber_is_through_with() -> None:
    world = AlertWorld()
    for _ in range(20):
        world.publish(DISK, "ann")
    desk = world.open("bob", "console", 0, 8, [TAG])
    world.settle()
    world.take_snapshot()
    world.publish(DISK, "ann")
    world.sync()
    world.crash(keep=0)
    (subscriber,) = world.channel.facts.subscribers
    assert [sweep.after[DISK.priority] for sweep in subscriber.sweeps] == [20]
    world.settle()
    assert len(desk.received) == 21


@pytest.mark.req("A6", "A7")
def test_a_crash_repeats_no_receipt_and_loses_no_word_of_the_trail() -> None:
    world = AlertWorld()
    alert = world.publish(AlertHeader("TAG:disk", acknowledge_policy=2), "ann")
    desk = world.open("bob", "console", 0, 8, [TAG])
    world.settle()
    assert world.receipts == [(alert.id, "bob", "console")]
    world.crash(keep=0)
    world.settle()
    assert world.receipts == [(alert.id, "bob", "console")]
    found = world.channel.facts.named(alert.id)
    assert found is not None
    assert (len(found.taken), len(found.receipts), len(desk.received)) == (1, 1, 1)


@pytest.mark.req("A5")
@pytest.mark.parametrize("is_cancelled_first", [True, False])
def test_a_cancel_waits_for_who_has_just_unsubscribed_and_does_not_know_yet(
    is_cancelled_first: bool,
) -> None:
    world = AlertWorld()
    desk = world.open("ann", "", 0, 8, [TAG])
    alert = world.publish(DISK, "ann")
    world.sync()
    while desk.wire_in:
        world.deliver(desk)  # its library has the alert, its application has not
    world.change(desk, [], [TAG])
    if is_cancelled_first:
        world.cancel(alert, "ann")
        world.say(desk)
    else:
        world.say(desk)
        world.cancel(alert, "ann")
    world.sync()
    assert not alert.cancel_confirmed
    world.settle()
    assert alert.cancel_confirmed
    assert desk.received == []
