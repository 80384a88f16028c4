"""The bus inside one process: everybody hears everything, the sender too, in one order (M2, M4)."""

import pytest

from heliograph.bus.commands import Answered, Command, Confirmed
from heliograph.bus.local import LocalBus
from heliograph.model.ids import LaneId
from tests.suites.bus_diary import Diary

LANE = LaneId(bytes(16))


class Member:
    """Writes down what it hears, and may say something in return."""

    def __init__(self, bus: LocalBus, replies: dict[int, list[int]] | None = None) -> None:
        self.heard: list[int] = []
        self._bus = bus
        self._replies = replies or {}
        self._inside = False
        bus.join(self.receive)

    def receive(self, command: Command) -> None:
        assert isinstance(command, Confirmed)
        assert not self._inside, "entered twice"
        self._inside = True
        self.heard.append(command.last)
        for reply in self._replies.get(command.last, []):
            self._bus.multicast(Confirmed(LANE, reply))
        self._inside = False


def test_everybody_hears_everything_in_order_the_sender_included() -> None:
    bus = LocalBus()
    members = [Member(bus), Member(bus, {1: [2], 3: [4]})]
    for number in (1, 3):
        bus.multicast(Confirmed(LANE, number))
    assert [member.heard for member in members] == [[1, 2, 3, 4]] * 2


@pytest.mark.req("M4")
def test_what_is_said_while_another_is_heard_waits_its_turn() -> None:
    bus = LocalBus()
    first = Member(bus, {1: [10, 11], 10: [20]})
    second = Member(bus, {1: [12]})
    bus.multicast(Confirmed(LANE, 1))
    assert first.heard == second.heard == [1, 10, 11, 12, 20]


def test_a_command_is_passed_as_the_object_it_is() -> None:
    bus = LocalBus()
    seen: list[Command] = []
    bus.join(seen.append)
    command = Confirmed(LANE, 7)
    bus.multicast(command)
    assert seen[0] is command


def test_a_member_hears_only_the_kinds_that_it_names_whenever_it_joins() -> None:
    bus = LocalBus()
    all_of_it: list[Command] = []
    some_of_it: list[Command] = []
    bus.join(all_of_it.append)
    bus.multicast(Confirmed(LANE, 1))
    bus.join(some_of_it.append, (Answered,))
    bus.multicast(Confirmed(LANE, 2))
    bus.multicast(Answered(3, {}))
    assert all_of_it == [Confirmed(LANE, 1), Confirmed(LANE, 2), Answered(3, {})]
    assert some_of_it == [Answered(3, {})]


def test_a_member_that_fails_does_not_leave_the_bus_shut() -> None:
    bus = LocalBus()
    heard: list[Command] = []

    def fail_once(command: Command) -> None:
        heard.append(command)
        if len(heard) == 1:
            raise RuntimeError("broken")

    bus.join(fail_once)
    with pytest.raises(RuntimeError):
        bus.multicast(Confirmed(LANE, 1))
    bus.multicast(Confirmed(LANE, 2))
    assert [each.last for each in heard if isinstance(each, Confirmed)] == [1, 2]


def test_channels_and_the_nodes_that_join_directly_do_not_hear_each_other() -> None:
    bus = LocalBus()
    heard: list[Command] = []
    bus.join(heard.append)
    first, second = Diary(1), Diary(2)
    first.membership = bus.enter("orders", first)
    second.membership = bus.enter("prices", second)
    first.say(1, 1)
    bus.multicast(Confirmed(LANE, 1))
    assert len(heard) == 1
    assert [event[0] for event in first.events] == ["configuration", "frame", "said"]
    assert [event[0] for event in second.events] == ["configuration"]
