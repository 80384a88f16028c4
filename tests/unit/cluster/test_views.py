"""How members of a channel agree on a view, and what holds in it."""

import pytest

from heliograph.bus.interface import NO_VIEW, Incarnation, Place, Ring
from heliograph.bus.presence import CLIENT_MANAGER, MESSAGE_MANAGER, Company, Hello, NodeState
from heliograph.cluster.events import (
    Arrive,
    FellBehind,
    Force,
    Forced,
    Multicast,
    NodesChanged,
    Suspend,
    Ticked,
)
from heliograph.cluster.sequences import Sequences
from heliograph.cluster.view import formed, straight
from heliograph.model.limits import SILENCE_SECONDS
from tests.unit.cluster.table import DECISION, FACT, Seat, Table

LONG = SILENCE_SECONDS * 2


@pytest.fixture
def table() -> Table:
    return Table()


@pytest.fixture
def trio(table: Table) -> tuple[Seat, Seat, Seat]:
    seats = Seat(table, 1), Seat(table, 2), Seat(table, 3)
    table.together(*seats)
    return seats


@pytest.mark.req("P1")
def test_a_configuration_becomes_a_view_when_all_have_answered_and_is_the_same_for_all(table: Table) -> None:
    one, two = Seat(table, 1), Seat(table, 2)
    table.gather(one, two, joined=(one, two))
    table.deliver(one, two, of=[one])
    assert not one.is_installed
    table.deliver(one, two)
    assert one.installed == two.installed
    [view] = one.installed
    assert view.members == (one.incarnation, two.incarnation)
    assert view.number == 1


@pytest.mark.req("P1")
def test_the_parts_of_a_cut_reach_the_same_number_and_different_views(
    table: Table, trio: tuple[Seat, Seat, Seat]
) -> None:
    one, two, three = trio
    table.gather(one, two, left=[three])
    table.deliver(one, two)
    table.gather(three, left=[one, two])
    table.deliver(three)
    views = one.installed[-1], three.installed[-1]
    assert views[0].number == views[1].number == 2
    assert views[0].id != views[1].id
    table.meet((one, two), (three,))
    table.deliver(*trio)
    assert one.installed[-1].number == 3
    came = straight(one.installed[-1])
    assert came[one.incarnation] == (one.incarnation, two.incarnation)
    assert came[three.incarnation] == (three.incarnation,)


def test_facts_hold_anywhere_and_decisions_in_their_view_only(
    table: Table, trio: tuple[Seat, Seat, Seat]
) -> None:
    one, two, three = trio
    one.say(FACT)
    one.say(DECISION)
    table.deliver(*trio)
    assert [seat.applied for seat in trio] == [[FACT, DECISION]] * 3
    one.say(FACT)
    one.say(DECISION)  # said before the cut, delivered after it
    table.gather(one, two, left=[three])
    table.deliver(one, two)
    assert one.applied == two.applied == [FACT, DECISION, FACT]
    one.say(DECISION)
    table.deliver(one, two)
    assert one.applied == two.applied == [FACT, DECISION, FACT, DECISION]


def test_a_message_manager_has_everything_on_disk_before_it_says_hello(table: Table) -> None:
    one, two = Seat(table, 1, MESSAGE_MANAGER), Seat(table, 2)
    table.gather(one, two, joined=(one, two))
    table.deliver(one, two)
    [force] = [effect for effect in one.effects if isinstance(effect, Force)]
    assert not one.is_installed
    one.handle(Forced(table.now, force.mark - 1))
    table.deliver(one, two)
    assert not one.is_installed
    one.handle(Forced(table.now, force.mark))
    table.deliver(one, two)
    assert one.is_installed
    assert two.is_installed


def test_a_disk_that_answers_out_of_order_holds_up_nobody(table: Table) -> None:
    one, two = Seat(table, 1, MESSAGE_MANAGER), Seat(table, 2)
    table.gather(one, two, joined=(one, two))
    table.gather(one, two)
    first, second = (effect for effect in one.effects if isinstance(effect, Force))
    one.handle(Forced(table.now, second.mark))
    one.handle(Forced(table.now, first.mark))
    table.deliver(one, two)
    assert one.is_installed


def test_one_that_is_listed_and_never_speaks_is_left_out_and_its_later_hello_starts_a_new_view(
    table: Table,
) -> None:
    one, two, mute = Seat(table, 1), Seat(table, 2), Seat(table, 3)
    everybody = (one, two, mute)
    mute.stop()
    table.gather(*everybody, joined=everybody)
    table.pass_time(LONG, *everybody)
    [view] = one.installed
    assert view.members == (one.incarnation, two.incarnation)
    mute.resume()
    table.deliver(*everybody)
    assert [effect for effect in one.effects if isinstance(effect, Suspend)] != []
    assert one.installed[-1].members == tuple(seat.incarnation for seat in everybody)
    assert one.installed[-1] == two.installed[-1] == mute.installed[-1]


def test_one_that_falls_silent_is_expelled_by_the_others_and_goes_when_it_hears_of_it(
    table: Table, trio: tuple[Seat, Seat, Seat]
) -> None:
    one, two, three = trio
    three.stop()
    table.pass_time(LONG, *trio)
    assert one.installed[-1] == two.installed[-1]
    assert one.installed[-1].members == (one.incarnation, two.incarnation)
    three.resume()
    assert three.left == ["expelled"]
    assert three.handle(Ticked(table.now)) == []


def test_one_that_was_stopped_itself_accuses_nobody(table: Table, trio: tuple[Seat, Seat, Seat]) -> None:
    one, two, three = trio
    table.now += 10 * SILENCE_SECONDS
    said = one.handle(Ticked(table.now))
    assert [type(effect.command).__name__ for effect in said if isinstance(effect, Multicast)] == ["Beat"]


def test_a_node_that_comes_to_a_process_makes_a_new_view_with_it(
    table: Table, trio: tuple[Seat, Seat, Seat]
) -> None:
    one, two, three = trio
    nodes = (NodeState("n1", CLIENT_MANAGER), NodeState("n1b", CLIENT_MANAGER))
    one.handle(NodesChanged(table.now, nodes))
    table.deliver(*trio)
    assert one.installed[-1] == three.installed[-1]
    assert one.installed[-1].number == 2
    assert dict(two.installed[-1].hellos)[one.incarnation].nodes == nodes
    assert straight(one.installed[-1])[one.incarnation] == one.installed[-1].members


def _is_told(one: Seat, *others: Seat) -> tuple[NodeState, ...]:
    """What is known of one in the view that all of them are in."""
    assert all(each.is_installed and each.installed[-1] == one.installed[-1] for each in others)
    return dict(one.installed[-1].hellos)[one.incarnation].nodes


def test_what_a_node_says_between_its_hello_and_the_view_is_known_in_the_next_one(
    table: Table, trio: tuple[Seat, Seat, Seat]
) -> None:
    one, two, three = trio
    news = (NodeState("n1", CLIENT_MANAGER, is_leaving=True),)
    table.gather(*trio)
    one.handle(NodesChanged(table.now, news))  # it has said hello, and the others answer that
    table.deliver(*trio)
    assert dict(one.installed[1].hellos)[one.incarnation].nodes != news
    assert _is_told(one, two, three) == news
    assert [len(seat.installed) for seat in trio] == [3, 3, 3]
    assert straight(one.installed[-1])[one.incarnation] == one.installed[-1].members


def test_what_a_node_says_in_time_for_the_view_takes_no_other(
    table: Table, trio: tuple[Seat, Seat, Seat]
) -> None:
    one, two, three = trio
    news = (NodeState("n1", CLIENT_MANAGER, is_leaving=True),)
    table.gather(*trio)
    one.handle(NodesChanged(table.now, news))
    table.deliver(*trio, of=[one])
    table.deliver(*trio)
    assert _is_told(one, two, three) == news
    assert [len(seat.installed) for seat in trio] == [2, 2, 2]


def test_what_a_node_says_before_a_view_that_comes_to_nothing_takes_no_other(
    table: Table, trio: tuple[Seat, Seat, Seat]
) -> None:
    one, two, three = trio
    news = (NodeState("n1", CLIENT_MANAGER, is_leaving=True),)
    table.gather(*trio)
    one.handle(NodesChanged(table.now, news))
    table.gather(*trio)
    table.deliver(*trio)
    assert _is_told(one, two, three) == news
    assert [len(seat.installed) for seat in trio] == [2, 2, 2]


def test_members_arrive_in_a_view_when_they_are_heard_in_it(
    table: Table, trio: tuple[Seat, Seat, Seat]
) -> None:
    one, two, three = trio
    table.gather(one, two, three)
    table.deliver(one, two, three)
    arrivals = [effect for effect in one.effects if isinstance(effect, Arrive)][-3:]
    assert arrivals == [Arrive(seat.incarnation, agrees=True) for seat in trio]


def test_who_missed_a_frame_that_its_sender_heard_leaves(table: Table, trio: tuple[Seat, Seat, Seat]) -> None:
    one, two, three = trio
    one.say(FACT)
    frame = one.frame()
    one.handle(frame)
    two.handle(frame)
    table.pass_time(1.0, *trio)
    assert three.left == ["gap"]
    assert two.left == []


def test_who_missed_what_another_said_first_in_a_configuration_leaves(table: Table) -> None:
    one, two = Seat(table, 1), Seat(table, 2)
    table.gather(one, two, joined=(one, two))
    one.handle(one.frame())  # two does not hear it
    table.pass_time(1.0, one, two)
    assert two.left == ["gap"]
    assert one.left == []


def test_somebody_else_at_a_known_place_is_a_gap(table: Table, trio: tuple[Seat, Seat, Seat]) -> None:
    one, two, three = trio
    other = Seat(table, 3)
    other.incarnation = Incarnation(b"somebody else 16")
    other.say(FACT)
    one.handle(other.frame())
    assert one.left == ["gap"]


def test_who_falls_behind_leaves(table: Table, trio: tuple[Seat, Seat, Seat]) -> None:
    trio[0].handle(FellBehind(table.now))
    assert trio[0].left == ["behind"]


def test_different_tails_of_a_view_are_no_common_past(table: Table, trio: tuple[Seat, Seat, Seat]) -> None:
    """Even if nobody was told that somebody was away."""
    one, two, three = trio
    one.say(FACT)
    frame = one.frame()
    one.handle(frame)
    two.handle(frame)
    for each in trio:
        each.views._sequences = Sequences()  # nor noticed that something is missing
    table.gather(*trio)
    table.deliver(*trio)
    came = straight(one.installed[-1])
    assert came[one.incarnation] == came[two.incarnation] == (one.incarnation, two.incarnation)
    assert came[three.incarnation] == (three.incarnation,)


def test_coming_straight_is_an_equivalence_even_if_one_saw_what_another_did_not() -> None:
    who = [Incarnation(bytes([each]) * 16) for each in (1, 2, 3)]
    company = Company(Ring(1, 4), (Place(1, 1), Place(2, 1), Place(3, 1)), tuple(who))

    def hello(*together: Incarnation) -> Hello:
        last = one_view.id
        return Hello(company, last, 1, together, b"f" * 16, b"w" * 16, b"p" * 16, 1, ())

    newcomers = Hello(company, NO_VIEW, 0, (), b"", b"", b"", 1, ())
    one_view = formed(company, [(each, newcomers) for each in who])
    assert straight(one_view) == dict.fromkeys(who, ())
    seen_away = formed(
        company, [(who[0], hello(*who)), (who[1], hello(*who[:2])), (who[2], hello(who[0], who[2]))]
    )
    assert straight(seen_away) == {each: (each,) for each in who}
    nobody_away = formed(company, [(each, hello(*who)) for each in who])
    assert straight(nobody_away) == dict.fromkeys(who, tuple(who))


def test_a_view_without_somebody_listed_is_not_whole(table: Table, trio: tuple[Seat, Seat, Seat]) -> None:
    """Who was left out may be in a view of its own, made of the same configuration."""
    one, two, three = trio
    assert one.installed[-1].is_whole
    three.stop()
    table.gather(*trio)
    table.pass_time(LONG, *trio)
    assert one.installed[-1] == two.installed[-1]
    assert one.installed[-1].members == (one.incarnation, two.incarnation)
    assert not one.installed[-1].is_whole


def test_an_attempt_at_a_view_that_comes_to_nothing_is_over_for_all_to_see(
    table: Table, trio: tuple[Seat, Seat, Seat]
) -> None:
    """Facts that were applied before count as accepted in no view."""
    one, *others = trio
    before = len(one.effects)
    table.gather(*trio)
    table.gather(*trio)
    assert [type(effect) for effect in one.effects[before:]].count(Suspend) == 2
    table.deliver(*trio)
    assert one.is_installed
    newcomer = Seat(table, 4)
    table.gather(newcomer, joined=[newcomer])
    assert not any(isinstance(effect, Suspend) for effect in newcomer.effects)
