"""What a queue does in a cluster that comes apart, one reason to wait after the other (P3, P7, P10, P11)."""

from __future__ import annotations

from pathlib import Path

import pytest

from heliograph.cluster.dispatch_rules import Hold
from heliograph.cluster.partition_state import State
from heliograph.destinations import pages, waiting
from heliograph.destinations.catalogue import Catalogue
from heliograph.destinations.effects import AnyEffect
from heliograph.destinations.recovery import CatalogueRecovery
from heliograph.destinations.stamps import Stamps
from heliograph.destinations.standing import Standing
from heliograph.destinations.waiting import Residence
from heliograph.model.block import pack
from heliograph.model.ids import LaneId
from heliograph.model.limits import MAX_STAMP_RANGES
from heliograph.model.message import Head, encode_head
from heliograph.model.policy import Policy
from heliograph.model.units import GENERATED_UNIT, unit_number
from tests.properties.destination_parties import Lane, Subscriber, Taker
from tests.properties.destination_world import QUEUE, TOPIC, Client
from tests.properties.gated_world import PartedWorld, held_back
from tests.properties.surroundings import HERE, put_managers_here
from tests.properties.test_engine_stories import publish, restart, snapshot, store

pytestmark = pytest.mark.req("P3")


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    put_managers_here(monkeypatch, tmp_path)
    monkeypatch.setattr(pages, "PAGE_MESSAGES", 4)
    for module in (pages, waiting):
        monkeypatch.setattr(module, "PAGE_BYTES", 700)


class Story:
    """A world with two clients that send."""

    def __init__(self, resident_bytes: int = 10**9) -> None:
        self.world = PartedWorld(resident_bytes)
        self.ann = self.world.open_session("ann", "one")
        self.bob = self.world.open_session("bob", "two")

    def lane(self, client: Client) -> Lane:
        return self.world.lanes_of(client)[0]

    def send(self, client: Client, count: int = 1) -> None:
        publish(self.world, self.lane(client), count=count)
        self.settle_down()

    def consumer(self) -> Taker:
        taker = self.world.attach(self.world.open_session("eve", "three"), QUEUE, 100)
        self.settle_down()
        return taker

    def settle_down(self) -> None:
        """Pages arrive, and everybody has a turn, until nothing more happens."""
        while self.world.journal.loads or self.world.turns:
            if self.world.journal.loads:
                self.world.page_arrives()
            else:
                self.world.next_turns()
        self.world.check()

    def meet(self) -> None:
        """All parts are together, and have everything."""
        self.world.enter(State.A)
        self.world.come_into_force()
        self.world.become_whole()
        self.settle_down()


def names(story: Story, taker: Taker) -> list[str]:
    """What a consumer has, in the order in which it got it: whose, and the how manyth."""
    return [f"{story.world.model.lanes[each.lane].user} {each.sequence}" for each in taker.held.values()]


def test_nothing_is_handed_out_in_a_view_that_is_not_in_force() -> None:
    story = Story()
    story.send(story.ann)
    story.world.enter(State.B)
    eve = story.consumer()
    assert names(story, eve) == []
    assert held_back(story.world) == {Hold.NOT_IN_FORCE: 1}
    story.world.come_into_force()
    story.settle_down()
    assert names(story, eve) == ["ann 1"]
    assert held_back(story.world) == {}


def test_in_a_restricted_part_only_what_came_in_its_view_goes_and_nothing_behind_something_older() -> None:
    story = Story()
    story.send(story.ann, 2)
    story.world.enter(State.D)
    eve = story.consumer()
    story.send(story.bob)
    story.send(story.ann)
    assert names(story, eve) == ["bob 1"]
    assert held_back(story.world) == {Hold.OLDER: 2, Hold.BEHIND: 1}
    figures = story.world.catalogue.by_address[QUEUE].figures()
    assert (figures.depth, figures.held_back) == (3, 3)
    assert figures.held_back_why == (
        "2 from before this view wait until this part meets the unrestricted one, or all message managers are"
        " together; 1 behind others wait until the one before it in its session or unit of order may go"
    )
    story.meet()
    assert names(story, eve) == ["bob 1", "ann 1", "ann 2", "ann 3"]


def test_who_has_nothing_older_waiting_goes_on_in_a_restricted_part() -> None:
    story = Story()
    eve = story.consumer()
    story.send(story.ann)
    assert names(story, eve) == ["ann 1"]
    story.send(story.bob)
    story.world.detach(eve)
    story.world.enter(State.D)
    story.send(story.ann)  # the first came back, and waits
    eve = story.consumer()
    assert names(story, eve) == []
    story.meet()
    assert names(story, eve) == ["ann 1", "bob 1", "ann 2"]


@pytest.mark.req("P9")
def test_what_a_restricted_part_accepted_waits_in_an_unrestricted_one_too() -> None:
    story = Story()
    story.send(story.bob)
    story.world.enter(State.D)
    story.send(story.ann)
    story.world.enter(State.B)
    story.world.come_into_force()
    story.send(story.ann)
    eve = story.consumer()
    assert names(story, eve) == ["bob 1"]
    assert held_back(story.world) == {Hold.FROM_RESTRICTED: 1, Hold.BEHIND: 1}
    story.meet()
    assert names(story, eve) == ["bob 1", "ann 1", "ann 2"]


def test_what_comes_between_a_configuration_and_its_view_counts_for_that_if_it_leaves_out_nobody() -> None:
    for takes_along, expected in ((True, ["ann 1"]), (False, [])):
        story = Story()
        story.world.enter(State.D, attempt=True)
        story.send(story.ann)
        story.world.enter(State.D, takes_along=takes_along)
        assert names(story, story.consumer()) == expected


@pytest.mark.req("P7")
def test_what_was_sent_again_and_is_not_known_here_waits_with_all_that_follows() -> None:
    story = Story()
    story.world.enter(State.B)
    story.world.come_into_force()
    lane = story.lane(story.ann)
    story.world._is_sent_again = True
    story.send(story.ann)
    story.world._is_sent_again = False
    story.send(story.ann)
    story.send(story.bob)
    eve = story.consumer()
    assert names(story, eve) == ["bob 1"]
    assert held_back(story.world) == {Hold.SENT_AGAIN: 1, Hold.BEHIND: 1}
    assert lane.confirmed == 2, "it is accepted all the same"
    story.meet()
    assert names(story, eve) == ["bob 1", "ann 1", "ann 2"]


@pytest.mark.req("P7")
def test_a_session_that_goes_on_further_than_is_known_here_waits_for_what_is_missing() -> None:
    story = Story()
    story.world.enter(State.D)
    lane = story.lane(story.ann)
    assert lane.fresh
    buffer = pack([b"x"], lane=lane.identity, first=7, timestamp=HERE.loop.now, persistent=True)
    story.world.publish(lane, buffer)
    store(story.world)
    eve = story.consumer()
    assert names(story, eve) == []
    assert held_back(story.world) == {Hold.GAP: 1}
    story.meet()
    assert names(story, eve) == ["ann 7"]


def send_in_unit(story: Story, client: Client, unit: str) -> None:
    lane = story.lane(client)
    head = encode_head(Head(unit=unit))
    buffer = pack(
        [b"x"],
        lane=lane.identity,
        first=lane.next_sequence,
        timestamp=HERE.loop.now,
        persistent=True,
        heads=[head],
        units=[unit_number(unit)],
    )
    story.world.publish(lane, buffer)
    store(story.world)
    story.settle_down()


@pytest.mark.req("P11")
def test_units_of_order_wait_in_a_restricted_part_unless_they_are_generated_and_new() -> None:
    story = Story()
    story.send(story.ann)
    story.world.enter(State.D)
    destination = story.world.catalogue.by_address[QUEUE]
    send_in_unit(story, story.bob, "invoices")
    carl = story.world.open_session("carl", "four")
    send_in_unit(story, carl, f"{GENERATED_UNIT}x")
    story.send(story.bob)
    assert destination.held_back() == {Hold.OLDER: 1, Hold.UNIT: 1, Hold.BEHIND: 1}
    figures = destination.figures()
    assert (figures.depth, figures.held_back) == (4, 3)


@pytest.mark.req("P11")
def test_units_of_order_go_on_in_a_restricted_part_where_the_policy_says_so_but_not_behind_older_ones() -> (
    None
):
    story = Story()
    send_in_unit(story, story.ann, "invoices")
    story.world.set_policy(QUEUE, Policy(unit_continues=True))
    story.world.enter(State.D)
    send_in_unit(story, story.bob, "invoices")
    carl = story.world.open_session("carl", "four")
    send_in_unit(story, carl, "letters")
    destination = story.world.catalogue.by_address[QUEUE]
    assert destination.held_back() == {Hold.OLDER: 1, Hold.BEHIND: 1}


def test_what_is_on_disk_is_set_aside_unread_and_read_only_if_somebody_may_have_to_wait_for_it() -> None:
    story = Story(resident_bytes=0)
    story.send(story.ann, 20)
    story.world.enter(State.D)
    eve = story.consumer()
    assert not story.world.journal.loads
    assert held_back(story.world) == {Hold.OLDER: 20}
    new = story.world.open_session("new", "five")
    publish(story.world, story.lane(new))
    assert names(story, eve) == ["new 1"], "its session began in this view"
    publish(story.world, story.lane(story.bob))
    assert names(story, eve) == ["new 1", "bob 1"], "nothing of its session was ever here"
    publish(story.world, story.lane(story.ann))
    story.settle_down()
    assert names(story, eve) == ["new 1", "bob 1"]
    assert held_back(story.world) == {Hold.OLDER: 20, Hold.BEHIND: 1}
    story.meet()
    assert names(story, eve) == ["new 1", "bob 1", *(f"ann {number}" for number in range(1, 22))]


def test_who_turns_out_to_have_nothing_on_disk_goes_on() -> None:
    story = Story(resident_bytes=0)
    eve = story.consumer()
    story.send(story.bob)
    story.world.settle(eve, [(1, 1)], returned=False, replenish=True, ask=False)
    story.world.detach(eve)
    story.send(story.ann, 20)
    story.world.enter(State.D)
    eve = story.consumer()
    publish(story.world, story.lane(story.bob))
    assert names(story, eve) == [], "something of bob's may be among what is on disk"
    story.settle_down()
    assert names(story, eve) == ["bob 2"]


@pytest.mark.parametrize("with_snapshot", [False, True])
def test_a_restart_hands_out_nothing_before_a_view_says_what_may_go(with_snapshot: bool) -> None:
    story = Story()
    story.send(story.ann)
    story.world.enter(State.D)
    story.send(story.bob)
    if with_snapshot:
        snapshot(story.world)
    restart(story.world)
    eve = story.consumer()
    assert names(story, eve) == []
    story.world.enter(State.B)
    story.world.come_into_force()
    story.settle_down()
    assert names(story, eve) == ["ann 1"], "what bob sent was accepted in a restricted view"
    story.meet()
    assert names(story, eve) == ["ann 1", "bob 1"]


def test_a_backup_that_has_the_log_knows_the_same_of_every_message() -> None:
    story = Story()
    story.send(story.ann, 3)
    story.world.enter(State.D)
    story.send(story.bob, 2)
    story.world.enter(State.B)
    story.world.come_into_force()
    story.world._is_sent_again = True
    story.send(story.ann)
    backup = Catalogue(Residence(10**9))
    recovery = CatalogueRecovery(backup, 0.0)
    for record in story.world.journal.records:
        recovery.record(record)
    ours, theirs = story.world.catalogue, backup
    assert ours.views.standing == theirs.views.standing
    for number, destination in ours.by_number.items():
        assert destination.stamps.state == theirs.by_number[number].stamps.state
    queue = ours.by_address[QUEUE]
    assert queue.stamps.restricted == [(4, 5)]
    assert queue.stamps.current == 6


def test_an_administrator_sees_and_removes_what_is_held_back() -> None:
    story = Story()
    story.send(story.ann, 3)
    story.world.enter(State.D)
    browser = story.world.attach(story.bob, QUEUE, 100, browse=True)
    story.settle_down()
    assert browser.next_tag == 4, "a browser sees all three"
    effects: list[AnyEffect] = []
    destination = story.world.catalogue.by_address[QUEUE]
    assert destination.purge(effects) == 3
    assert (destination.figures().depth, destination.held_back()) == (0, {})


def test_what_expires_behind_the_gate_is_not_given_up_before_it_may_go() -> None:
    story = Story()
    lane = story.lane(story.ann)
    soon = HERE.loop.now + 1_000_000
    buffer = pack([b"x"], lane=lane.identity, first=1, timestamp=HERE.loop.now, persistent=True, expiry=soon)
    story.world.publish(lane, buffer)
    store(story.world)
    story.world.enter(State.D)
    story.world.pass_time(5)
    story.settle_down()
    assert held_back(story.world) == {Hold.OLDER: 1}
    story.meet()
    story.world.pass_time(5)
    assert story.world.catalogue.by_address[QUEUE].figures().depth == 0


def test_what_came_in_restricted_views_is_a_bounded_number_of_ranges() -> None:
    stamps = Stamps()
    restricted = Standing(b"d", State.D)
    unrestricted = Standing(b"b", State.B, is_in_force=True)
    number = 1
    for _ in range(MAX_STAMP_RANGES + 5):
        for before in (unrestricted, restricted):
            number += 2
            stamps.enter(number, before)
    assert len(stamps.restricted) == MAX_STAMP_RANGES
    assert stamps.restricted[0][0] == 3
    assert stamps.restricted[-1][1] == number - 1


def test_a_lane_that_was_sent_again_twice_is_one_range() -> None:
    stamps = Stamps()
    lane = LaneId(bytes(16))
    stamps.hold(lane, 5, 6, Hold.SENT_AGAIN, 10)
    stamps.hold(lane, 9, 9, Hold.SENT_AGAIN, 14)
    held = stamps.held[lane]
    assert (held.first, held.last, held.number) == (5, 9, 10)


@pytest.mark.req("P4")
@pytest.mark.parametrize("state", [State.B, State.C, State.D])
def test_what_all_subscriptions_of_a_part_are_done_with_is_kept_for_those_of_others(state: State) -> None:
    story = Story()
    reader = story.world.attach(story.bob, TOPIC, 100)
    topic = story.world.catalogue.by_address[TOPIC]
    story.world.enter(state)
    if state is not State.D:
        story.world.come_into_force()
    publish(story.world, story.world.lanes_of(story.ann)[1], count=3)
    story.settle_down()
    assert names(story, reader) == ["ann 1", "ann 2", "ann 3"]
    story.world.settle(reader, [(1, 3)], returned=False, replenish=True, ask=False)
    story.world.detach(reader)
    restart(story.world)
    topic = story.world.catalogue.by_address[TOPIC]
    figures = topic.figures()
    assert (figures.depth, figures.subscriptions, figures.kept_for_others) == (0, 0, 3)
    assert (figures.held_back, figures.held_back_why) == (0, "")
    story.world.enter(State.A)
    story.world.come_into_force()
    assert topic.figures().kept_for_others == 3, "the parts have met, and not all have everything"
    story.world.become_whole()
    assert topic.figures().kept_for_others == 0
    assert story.world.journal.live() == {}


@pytest.mark.req("P11")
def test_what_is_kept_for_others_counts_for_quotas() -> None:
    story = Story()
    story.world.set_policy(TOPIC, Policy(high_water_messages=3))
    story.world.enter(State.D)
    publish(story.world, story.world.lanes_of(story.ann)[1], count=3)
    assert story.world.catalogue.by_address[TOPIC].flow.blocked


def test_a_subscription_that_consumers_of_several_parts_share_is_gated_like_a_queue() -> None:
    story = Story()
    shared = Subscriber(TOPIC, "one", "work", True, True, "")
    first = story.world.subscribe(story.bob, shared, 0)
    assert first is not None
    publish(story.world, story.world.lanes_of(story.ann)[1], count=2)
    story.world.enter(State.D)
    story.world.grant(first, 100)
    publish(story.world, story.world.lanes_of(story.bob)[1])
    story.settle_down()
    assert names(story, first) == ["bob 1"]
    assert story.world.catalogue.by_address[TOPIC].held_back() == {Hold.OLDER: 2}
    story.meet()
    assert names(story, first) == ["bob 1", "ann 1", "ann 2"]
