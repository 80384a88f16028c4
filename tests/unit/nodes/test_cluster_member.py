"""A process in a channel: it finds the others, hears with them what holds, and comes again when it was thrown out."""

from itertools import pairwise

import pytest

from heliograph.bus import local_channels
from heliograph.bus.commands import Command
from heliograph.bus.interface import Configuration, Damage, Origin
from heliograph.bus.local import LocalBus
from heliograph.bus.presence import CLIENT_MANAGER, MESSAGE_MANAGER, Beat, NodeState
from heliograph.model.errors import Unavailable
from heliograph.model.limits import BUS_FRAME_BYTES, BUS_HIGH_WATER_BYTES, RETURN_SECONDS, SILENCE_SECONDS
from heliograph.nodes import cluster_member
from simulation.bus import SimBus
from simulation.world import SimLoop, World
from tests.unit.nodes.cluster_stories import Node, decision, fact, in_one_view, until


class InOneProcess:
    """Nodes on the in-memory bus, each with a loop of its own that can be stopped."""

    def __init__(self) -> None:
        self.world = World(1)
        self.bus = LocalBus()

    def node(self, name: str, role: str = CLIENT_MANAGER) -> Node:
        node = Node(self.world, self.bus, SimLoop(self.world), name, role)
        node.member.start()
        return node

    def together(self, *nodes: Node) -> None:
        until(self.world, lambda: in_one_view(*nodes), "these are in one view")

    def pass_time(self, seconds: float) -> None:
        self.world.run(self.world.now + seconds)


@pytest.fixture
def place() -> InOneProcess:
    return InOneProcess()


def test_members_find_each_other_and_hear_the_same_in_one_view(place: InOneProcess) -> None:
    nodes = [place.node(name) for name in ("a", "b", "c")]
    place.together(*nodes)
    for number, node in enumerate(nodes):
        node.say(fact(number), decision(number))
    place.pass_time(1.0)
    for node in nodes:
        assert node.applied == ["fact 0", "decision 0", "fact 1", "decision 1", "fact 2", "decision 2"]
        assert sorted(node.arrived[-3:]) == sorted(node.views[-1].members)
    first, second, third = (node.since_the_view() for node in nodes)
    assert first == second == third, "with the same places in the order of deliveries"


def test_one_is_alone_until_another_comes(place: InOneProcess) -> None:
    alone = place.node("a")
    assert alone.member.incarnation is None
    assert alone.member.place is None
    place.together(alone)
    alone.say(fact(1))
    place.pass_time(0.1)
    other = place.node("b")
    place.together(alone, other)
    assert alone.views[-1].number > alone.views[0].number
    assert (alone.applied, other.applied) == (["fact 1"], [])
    assert alone.member.incarnation != other.member.incarnation


def test_a_view_waits_for_the_disk_of_a_message_manager(place: InOneProcess) -> None:
    keeper, other = place.node("keeper", MESSAGE_MANAGER), place.node("other")
    place.together(keeper, other)
    before = len(other.views)
    keeper.disk_waits = True
    other.member.nodes_changed()
    place.pass_time(SILENCE_SECONDS / 2)
    assert not keeper.member.is_installed
    assert len(other.views) == before
    keeper.sync()
    place.together(keeper, other)


def test_between_two_views_facts_hold_and_decisions_do_not(place: InOneProcess) -> None:
    keeper, other = place.node("keeper", MESSAGE_MANAGER), place.node("other")
    place.together(keeper, other)
    keeper.disk_waits = True
    other.member.nodes_changed()
    until(place.world, lambda: not other.member.is_installed, "the view is over")
    other.say(fact(1), decision(1))
    keeper.say(fact(2), decision(2))
    keeper.sync()
    place.together(keeper, other)
    place.pass_time(0.1)
    assert keeper.applied == other.applied == ["fact 1", "fact 2"]


def test_a_second_change_before_the_view_is_told(place: InOneProcess) -> None:
    """What came between counts as accepted in no view, so one must know."""
    keeper, other = place.node("keeper", MESSAGE_MANAGER), place.node("other")
    place.together(keeper, other)
    keeper.disk_waits = True
    third = place.node("third")
    until(place.world, lambda: not other.member.is_installed, "the view is over")
    other.say(fact(1))
    place.pass_time(0.01)
    third.member.leave()
    place.pass_time(0.01)
    other.say(fact(2))
    keeper.sync()
    place.together(keeper, other)
    for node in (keeper, other):
        told = [entry[:2] for entry in node.diary if entry[0] in {"suspended", "applied"}]
        assert told[-4:] == [("suspended",), ("applied", "fact 1"), ("suspended",), ("applied", "fact 2")]


def test_the_handler_is_never_called_from_inside_its_own_call(place: InOneProcess) -> None:
    """Not even on a bus that delivers at once; what it says in answer to something keeps its order."""
    one, other = place.node("a"), place.node("b")
    place.together(one, other)
    one.answers["fact 1"] = lambda: one.say(fact(3), fact(4))
    other.answers["fact 1"] = lambda: other.say(fact(5))
    one.say(fact(1), fact(2))
    assert one.applied == []
    place.pass_time(0.1)
    assert one.applied == other.applied
    assert sorted(one.applied) == ["fact 1", "fact 2", "fact 3", "fact 4", "fact 5"]


def test_places_in_the_order_count_from_the_view(place: InOneProcess) -> None:
    one = place.node("a")
    place.together(one)
    for number in range(5):
        one.say(fact(number))
    place.pass_time(0.1)
    other = place.node("b")
    place.together(one, other)
    other.say(fact(9))
    place.pass_time(0.01)
    mine, theirs = (node.since_the_view()[-1] for node in (one, other))
    assert mine == theirs
    assert mine[:2] == ("applied", "fact 9")
    assert 1 <= mine[2] <= 3, "behind the beats of the two, not behind what was there before"


def test_more_than_fits_is_refused_and_what_was_taken_is_heard(
    place: InOneProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = place.node("a")
    place.together(one)
    monkeypatch.setattr(cluster_member, "LOCAL_BUS_COMMANDS", 50)
    with pytest.raises(Unavailable) as refused:
        one.say(*map(fact, range(100)))
    assert refused.value.code == "bus-full"
    place.pass_time(0.1)
    assert one.applied == [f"fact {number}" for number in range(50)]


def test_who_leaves_is_told_once_and_the_others_go_on(place: InOneProcess) -> None:
    one, other = place.node("a"), place.node("b")
    place.together(one, other)
    other.say(fact(1))
    other.member.leave()
    place.together(one)
    assert one.applied == ["fact 1"]
    place.pass_time(10.0)
    assert [why for _, why in other.left] == ["left"], "and re_enter changes nothing"
    assert other.member.incarnation is None
    with pytest.raises(Unavailable) as lost:
        other.say(fact(2))
    assert lost.value.code == "bus-lost"


def test_who_is_thrown_out_while_it_leaves_is_told_both(place: InOneProcess) -> None:
    one, other = place.node("a"), place.node("b")
    place.together(one, other)
    other.member.fell_behind()
    other.member.leave()
    place.together(one)
    place.pass_time(1.0)
    assert [why for _, why in other.left] == ["behind", "left"]


def test_a_handler_that_fails_is_out_and_stays_out(place: InOneProcess) -> None:
    """It was not told what the others were."""
    one, other = place.node("a"), place.node("b")
    place.together(one, other)

    def fail() -> None:
        raise ZeroDivisionError

    other.answers["fact 1"] = fail
    other.say(fact(1), fact(2))
    with pytest.raises(ZeroDivisionError):
        place.pass_time(0.1)
    place.together(one)
    place.pass_time(5.0)
    assert one.applied == ["fact 1", "fact 2"]
    assert other.applied == ["fact 1"]
    assert not other.member.is_installed
    assert other.member.incarnation is None


def test_who_leaves_before_it_came_is_told_too(place: InOneProcess) -> None:
    node = Node(place.world, place.bus, SimLoop(place.world), "a")
    node.member.start()
    node.member.leave()
    place.pass_time(1.0)
    assert [why for _, why in node.left] == ["left"]
    assert node.views == []


def test_one_that_stands_still_is_expelled_and_comes_again_as_somebody_new(place: InOneProcess) -> None:
    one, other, sleeper = (place.node(name) for name in ("a", "b", "sleeper"))
    place.together(one, other, sleeper)
    before = sleeper.member.incarnation
    sleeper.loop.stop()
    until(place.world, lambda: in_one_view(one, other), "a view without it", SILENCE_SECONDS + 1.0)
    assert [why for _, why in sleeper.left] == ["expelled"]
    one.say(fact(1))
    place.pass_time(1.0)
    sleeper.loop.resume()
    place.together(one, other, sleeper)
    assert sleeper.member.incarnation != before
    assert sleeper.applied == [], "it must learn elsewhere what it missed"
    assert sleeper.views[-1].number > sleeper.views[0].number


def test_one_that_cannot_keep_up_gives_up_its_place(place: InOneProcess) -> None:
    one, slow = place.node("a"), place.node("slow")
    place.together(one, slow)
    slow.member.fell_behind()
    until(place.world, lambda: bool(slow.left), "it is out")
    assert slow.left[0][1] == "behind"
    place.together(one, slow)


def test_the_numbers_of_views_go_on_with_the_next_incarnation(place: InOneProcess) -> None:
    one = place.node("a")
    place.together(one)
    one.member.fell_behind()
    until(place.world, lambda: len(one.views) == 2, "it is in a view again")
    assert one.views[1].number == one.views[0].number + 1


def test_what_a_node_says_of_itself_is_what_holds_when_it_says_so(place: InOneProcess) -> None:
    one, other = place.node("a"), place.node("b")
    place.together(one, other)
    one.state = NodeState("a", CLIENT_MANAGER, epoch=7)
    place.pass_time(1.0)
    assert {node.epoch for _, hello in other.views[-1].hellos for node in hello.nodes} == {0}
    other.member.nodes_changed()
    place.pass_time(1.0)
    assert {node.epoch for _, hello in other.views[-1].hellos for node in hello.nodes} == {0, 7}


def test_a_change_of_nodes_that_the_bus_had_no_room_for_is_said_later(
    place: InOneProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = place.node("a"), place.node("b")
    place.together(one, other)
    before = one.views[-1].number
    with monkeypatch.context() as full:
        full.setattr(local_channels, "LOCAL_BUS_COMMANDS", 0)
        one.member.nodes_changed()
        place.pass_time(0.5)
        assert one.views[-1].number == before
    place.pass_time(0.5)
    place.together(one, other)
    assert one.views[-1].number > before


class Eavesdropper:
    """A listener that is on the channel and says nothing."""

    def __init__(self) -> None:
        self.heard: list[Command] = []

    def on_frame(self, origin: Origin, commands: list[Command]) -> None:
        self.heard += commands

    def on_configuration(self, configuration: Configuration) -> None: ...

    def on_flow(self, may_send: bool) -> None: ...

    def on_damage(self, damage: Damage) -> None: ...

    def on_ended(self, error: Unavailable | None) -> None: ...


def test_a_beat_tells_for_how_long_the_disk_has_been_busy(place: InOneProcess) -> None:
    keeper = place.node("keeper", MESSAGE_MANAGER)
    keeper.sync_age = 1.5
    eavesdropper = Eavesdropper()
    place.bus.enter("stories", eavesdropper)
    place.pass_time(1.0)
    beats = [command for command in eavesdropper.heard if isinstance(command, Beat)]
    assert beats[-1].sync_micros == 1_500_000


# ---- on the bus between hosts


class OnHosts:
    """A node on each host of a simulated bus."""

    def __init__(self, hosts: int) -> None:
        self.world = World(1)
        self.bus = SimBus(self.world, hosts)
        self.nodes = [self._node(host) for host in range(1, hosts + 1)]

    def _node(self, host: int) -> Node:
        loop = SimLoop(self.world)
        return Node(self.world, self.bus.process(host, 1, loop), loop, f"n{host}")


def test_a_frame_that_begins_in_a_view_and_ends_after_it_has_two_places() -> None:
    hosts = OnHosts(2)
    for node in hosts.nodes:
        node.member.start()
    until(hosts.world, lambda: in_one_view(*hosts.nodes), "both are in one view")
    speaker = hosts.nodes[0]
    speaker.member.nodes_changed()
    speaker.loop.call_soon(lambda: speaker.say(fact(2), decision(2)))
    speaker.say(fact(1), decision(1))
    until(hosts.world, lambda: len(hosts.nodes[1].applied) == 3, "it was heard")
    until(hosts.world, lambda: in_one_view(*hosts.nodes), "both are in the next view")
    for node in hosts.nodes:
        start = node.diary.index(next(entry for entry in node.diary if entry[0] == "applied"))
        (_, _, where), *rest = node.diary[start : start + 4]
        assert rest == [("applied", "decision 1", where), ("suspended",), ("applied", "fact 2", where + 1)]


def test_one_without_a_bus_tries_again_less_and_less_often_until_there_is_one() -> None:
    hosts = OnHosts(2)
    hosts.bus.crash(1)
    for node in hosts.nodes:
        node.member.start()
    hosts.world.run(6.0)
    waiting, other = hosts.nodes
    assert {why for _, why in waiting.left} == {"bus-unavailable"}
    times = [when for when, _ in waiting.left]
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert all(later > 0.999 * earlier for earlier, later in pairwise(pauses))
    assert pauses[0] == pytest.approx(RETURN_SECONDS[0])
    assert pauses[-1] == pytest.approx(RETURN_SECONDS[1])
    hosts.bus.boot(1)
    until(hosts.world, lambda: in_one_view(waiting, other), "they are in one view")
    hosts.world.run(hosts.world.now + 2 * RETURN_SECONDS[1])
    waiting.member.fell_behind()
    until(hosts.world, lambda: waiting.left[-1][1] == "behind", "it is out")
    until(hosts.world, lambda: in_one_view(waiting, other), "after a good while it need not wait again", 0.5)


def test_who_comes_again_lets_the_bus_first_send_what_it_said_before() -> None:
    hosts = OnHosts(2)
    for node in hosts.nodes:
        node.member.start()
    until(hosts.world, lambda: in_one_view(*hosts.nodes), "both are in one view")
    speaker, other = hosts.nodes
    count = 4 * BUS_HIGH_WATER_BYTES // BUS_FRAME_BYTES
    speaker.say(*(fact(number, BUS_FRAME_BYTES) for number in range(count)))
    speaker.member.fell_behind()
    until(hosts.world, lambda: bool(speaker.left), "it is out")
    assert len(other.applied) < count
    until(hosts.world, lambda: in_one_view(*hosts.nodes), "both are in one view again")
    assert other.applied == [f"fact {number}" for number in range(count)]
    assert speaker.diary[speaker.diary.index(("left", "behind")) + 1][0] == "installed", "nothing of the old"


def test_one_whose_corosync_dies_while_it_leaves_has_left_all_the_same() -> None:
    hosts = OnHosts(2)
    for node in hosts.nodes:
        node.member.start()
    until(hosts.world, lambda: in_one_view(*hosts.nodes), "both are in one view")
    hosts.nodes[0].member.leave()
    hosts.bus.crash(1)
    hosts.world.run(hosts.world.now + 5.0)
    assert [why for _, why in hosts.nodes[0].left] == ["bus-lost", "left"]


def test_one_whose_corosync_dies_is_told_and_comes_again() -> None:
    hosts = OnHosts(2)
    for node in hosts.nodes:
        node.member.start()
    until(hosts.world, lambda: in_one_view(*hosts.nodes), "both are in one view")
    hosts.bus.crash(1)
    until(hosts.world, lambda: in_one_view(hosts.nodes[1]), "the other goes on alone")
    assert hosts.nodes[0].left[0][1] == "bus-lost"
    hosts.bus.boot(1)
    until(hosts.world, lambda: in_one_view(*hosts.nodes), "both are in one view again")
