"""A queue with sort keys hands out by them, and by arrival where they are equal (U3)."""

from __future__ import annotations

import pytest

from heliograph.model.errors import ClientFault
from heliograph.model.policy import DEFAULT_POLICY, Policy, changed
from tests.properties.ordered_world import OrderedWorld

pytestmark = pytest.mark.req("U3")


def handed_out(world: OrderedWorld) -> list[int]:
    """The numbers of what a consumer that takes everything gets, one at a time."""
    world.settle_down()
    taker = world.takers[world.attach("", 1, prompt=False)]
    seen: list[int] = []
    while True:
        world.settle_down()
        if not taker.tags:
            return seen
        seen += taker.held
        world.finish(taker, len(taker.tags))


def test_messages_come_by_their_keys_and_then_by_arrival() -> None:
    world = OrderedWorld(Policy(sort_keys="colour desc, JMSPriority"))
    world.publish([(0, 9, "blue", 0, 0), (0, 4, "red", 0, 0), (0, 1, "blue", 0, 0)])
    world.publish([(0, 4, "red", 0, 0), (0, 0, "red", 0, 0)])
    assert handed_out(world) == [5, 2, 4, 3, 1]


def test_inside_a_unit_arrival_rules_whatever_the_keys_say() -> None:
    world = OrderedWorld(Policy(sort_keys="JMSPriority desc"))
    world.publish([(7, 1, "red", 0, 0), (7, 9, "red", 0, 0), (0, 5, "red", 0, 0), (8, 3, "red", 0, 0)])
    assert handed_out(world) == [3, 4, 1, 2]


def test_without_keys_a_waiting_message_of_a_unit_takes_its_place_by_its_own_priority() -> None:
    world = OrderedWorld(Policy())
    world.publish([(7, 4, "red", 0, 0), (0, 4, "red", 0, 0), (0, 4, "red", 0, 0), (7, 9, "red", 0, 0)])
    assert handed_out(world) == [1, 4, 2, 3]


def test_an_administrator_sorts_what_waits_and_changes_his_mind() -> None:
    world = OrderedWorld(Policy(), resident_bytes=0)
    world.publish([(0, 4, "red", 0, 0), (0, 4, "blue", 0, 0), (0, 9, "red", 0, 0)])
    world.sort("colour")
    world.settle_down()
    world.check()
    world.sort("")
    assert handed_out(world) == [3, 1, 2]


def test_keys_are_read_again_after_a_restart() -> None:
    world = OrderedWorld(Policy(sort_keys="colour"))
    world.publish([(0, 4, "red", 0, 0), (0, 4, "blue", 0, 0), (3, 4, "red", 0, 0), (3, 4, "blue", 0, 0)])
    world.settle_down()
    world.crash(after_snapshot=False)
    assert handed_out(world) == [2, 1, 3, 4]


@pytest.mark.parametrize("keys", ["price up", "1st", "a,,b", ", a", "a; b", "x" * 200])
def test_keys_that_cannot_be_are_refused(keys: str) -> None:
    with pytest.raises(ClientFault, match="sort_keys"):
        changed(DEFAULT_POLICY, {"sort_keys": keys})


def test_what_is_offered_already_is_taken_back_for_an_earlier_one_whose_time_came_out_of_turn() -> None:
    world = OrderedWorld(Policy(sort_keys="JMSPriority", redelivery_delay=2.0))
    world.publish([(7, 4, "blue", 0, 0), (7, 4, "blue", 0, 0)])
    blue = world.takers[world.attach("blue", 5, prompt=False)]
    world.publish([(7, 4, "red", 0, 0)])  # offered to nobody but blue, who does not want it
    world.give_back(blue, 1, seen=1)
    world.pass_time(1)
    world.give_back(blue, 0, seen=1)
    world.pass_time(1)  # the second of the unit may go again, but for the first
    world.settle_down()
    assert not blue.held
    world.pass_time(1)
    world.settle_down()
    world.check()
    assert blue.held == [1, 2]


def test_what_is_offered_already_is_taken_back_in_the_same_turn_too() -> None:
    world = OrderedWorld(Policy(sort_keys="JMSPriority", redelivery_delay=2.0))
    world.publish([(7, 9, "blue", 0, 0), (7, 4, "blue", 0, 0)], persistent=False)
    blue = world.takers[world.attach("blue", 5, prompt=False)]
    world.publish([(7, 4, "red", 0, 0)])
    world.give_back(blue, 1, seen=1)
    world.give_back(blue, 0, seen=1)
    world.pass_time(2)  # the second comes up before the first, by its key
    world.settle_down()
    world.check()
    assert blue.held == [1, 2]


def test_a_unit_that_stops_keeps_what_is_offered_of_it_from_being_in_the_way() -> None:
    world = OrderedWorld(Policy(sort_keys="JMSPriority", redelivery_limit=1, unit_stops=True))
    world.publish([(7, 4, "blue", 0, 0)])
    blue = world.takers[world.attach("blue", 5, prompt=False)]
    world.publish([(7, 4, "red", 0, 0)])
    world.give_back(blue, 0, seen=0)
    world.settle_down()
    assert not blue.held
    assert world.queue.messages.resume_unit(7, [])
    world.grant(blue, 1)
    world.settle_down()
    assert blue.held == [1]


def test_what_is_taken_back_makes_no_way_for_something_between() -> None:
    world = OrderedWorld(Policy(sort_keys="JMSPriority", redelivery_delay=2.0))
    any_colour = world.takers[world.attach("", 3, prompt=False)]
    world.publish([(7, 4, "blue", 0, 0), (7, 4, "red", 0, 0)])
    world.give_back(any_colour, 1, seen=1)  # the next time it has to wait for longer
    world.pass_time(2)
    world.settle_down()
    world.publish([(7, 4, "red", 0, 0), (7, 4, "blue", 0, 0)])
    world.publish([(0, 0, "red", 0, 0)] * 4)  # by their key before all of the unit
    assert any_colour.held == [1, 2, 3]
    world.grant(any_colour, 1)  # 4 may go, but 5 goes before it
    for place in (2, 1, 0):
        world.give_back(any_colour, place, seen=place)
    assert any_colour.held == [5, 6, 7, 8]
    red = world.takers[world.attach("red", 5, prompt=False)]
    world.pass_time(2)  # 1 and 3 may go again; nobody takes 1, and 3 has to wait for it
    world.settle_down()
    world.check()
    world.pass_time(2)  # so has 2
    world.settle_down()
    world.check()
    assert not red.held
    world.attach("blue", 5, prompt=False)
    world.settle_down()
    world.check()
