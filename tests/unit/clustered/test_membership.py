"""Stories of a membership: founding, coming, leaving, dying, being stopped, coming back (H2)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from heliograph.clustered.agreement import Agreement
from heliograph.clustered.events import (
    AllFencedOff,
    CopiesSubscribed,
    Doubt,
    Drained,
    FencedOff,
    FenceOff,
    FenceOffAll,
    Heard,
    Say,
    Stop,
    SubscribeCopies,
    Terms,
    Ticked,
)
from heliograph.clustered.hashing import VALUES
from heliograph.clustered.membership import Membership
from heliograph.clustered.ranges import EVERYTHING
from heliograph.clustered.words import Beat, Member, View
from tests.properties.clustered_world import SAMPLES, ClusteredWorld

TERMS = Terms(lease_seconds=4.0, drift=0.05, skew_seconds=0.5)


def _world(*names: str) -> ClusteredWorld:
    """Members that have become one."""
    world = ClusteredWorld(TERMS)
    for name in names:
        world.start(name, 1.0, 0.0, 0.1)
    world.advance(4 * TERMS.silence_seconds)
    return world


def _owners(world: ClusteredWorld) -> set[str]:
    owners = [world.owners(value) for value in SAMPLES]
    assert all(len(each) == 1 for each in owners), owners
    return {name for each in owners for name in each}


@pytest.mark.req("H2")
def test_the_first_waits_in_silence_and_then_owns_everything() -> None:
    world = ClusteredWorld(TERMS)
    world.start("ada", 1.0, 0.0, 0.1)
    world.advance(TERMS.lease_seconds)
    assert world.owners(SAMPLES[0]) == []
    world.advance(2 * TERMS.silence_seconds)
    assert _owners(world) == {"ada"}


@pytest.mark.req("H2")
def test_three_that_start_at_once_become_one_cluster() -> None:
    assert _owners(_world("ada", "bob", "cyd")) == {"ada", "bob", "cyd"}


@pytest.mark.req("H2")
def test_who_dies_is_missed_after_the_silence_and_its_values_are_owned_again() -> None:
    world = _world("ada", "bob", "cyd")
    world.kill("ada")  # the one that leads
    world.advance(TERMS.lease_seconds / 2)
    assert any(world.owners(value) == [] for value in SAMPLES)
    world.advance(1.5 * TERMS.silence_seconds)
    assert _owners(world) == {"bob", "cyd"}


@pytest.mark.req("H2")
def test_who_leaves_is_not_waited_for() -> None:
    world = _world("ada", "bob")
    world.leave("ada")
    world.advance(TERMS.lease_seconds / 2)
    assert _owners(world) == {"bob"}


@pytest.mark.req("H2")
def test_values_move_only_when_what_is_under_way_has_ended() -> None:
    world = _world("ada", "bob")
    value = next(value for value in SAMPLES if world.owners(value) == ["ada"])
    world.begin("ada", value)
    world.leave("ada")
    world.advance(3 * TERMS.lease_seconds)
    assert world.owners(value) == []  # ada begins nothing more, and bob waits
    world.finish("ada")
    world.advance(TERMS.lease_seconds / 2)
    assert world.owners(value) == ["bob"]


@pytest.mark.req("H2")
def test_who_was_stopped_for_longer_than_its_lease_acts_no_more_and_comes_back_as_somebody_else() -> None:
    world = _world("ada", "bob")
    before = world.players["ada"].membership
    world.players["ada"].is_paused = True
    world.advance(2 * TERMS.silence_seconds)
    assert not before.may_act(world.players["ada"].clock(world.now))
    assert _owners(world) == {"bob"}
    world.players["ada"].is_paused = False
    world.advance(4 * TERMS.silence_seconds)
    assert before.is_over
    assert _owners(world) == {"ada", "bob"}


def _member_of_two(terms: Terms, agreement: Agreement | None = None) -> Membership:
    """Ada, who leads; bob has just been heard."""
    ada = Membership(name="ada", incarnation=1, now=0.0, terms=terms, agreement=agreement)
    ada.handle(CopiesSubscribed())
    ada.handle(Heard(Beat("ada", 1, sent=0.0), 0.0))
    members = (Member("ada", 1, is_complete=True), Member("bob", 2, is_complete=True))
    half = VALUES // 2
    slices = ((0, half, "ada"), (half, VALUES, "bob"))
    ada.handle(Heard(View(100, ("ada", 1), members, slices), 0.0))
    ada.handle(Drained(100))
    ada.handle(Heard(Beat("bob", 2, sent=0.0, epoch=100, leader=("ada", 1), has_released=True), 0.0))
    return ada


def _time_passes_without_bob(ada: Membership, until: float) -> list[object]:
    effects: list[object] = []
    now = 0.0
    while now < until:
        now += 0.5
        effects += ada.handle(Heard(Beat("ada", 1, sent=now), now))
        effects += ada.handle(Ticked(now, 0))
    return effects


@pytest.mark.req("H2")
def test_where_the_middleware_can_fence_nobody_takes_over_before_it_has() -> None:
    ada = _member_of_two(Terms(lease_seconds=4.0, fences=True))
    effects = _time_passes_without_bob(ada, 20.0)
    assert FenceOff(("bob", 2)) in effects
    assert not any(isinstance(effect, Say) and isinstance(effect.word, View) for effect in effects)
    ada.handle(FencedOff(("bob", 2)))
    said = [effect.word for effect in ada.handle(Ticked(20.1, 0)) if isinstance(effect, Say)]
    views = [word for word in said if isinstance(word, View)]
    assert [member.name for member in views[0].members] == ["ada"]
    assert views[0].departed == ("bob",)


@pytest.mark.req("H2")
def test_where_the_middleware_can_fence_nobody_founds_before_all_who_were_there_are_shut_out() -> None:
    ada = Membership(name="ada", incarnation=1, now=0.0, terms=Terms(lease_seconds=4.0, fences=True))
    ada.handle(CopiesSubscribed())
    ada.handle(Heard(Beat("bob", 2, sent=0.0), 20.0))
    effects = _time_passes_without_bob(ada, 20.0)
    assert effects.count(FenceOffAll()) == 1
    assert not any(isinstance(effect, Say) and isinstance(effect.word, View) for effect in effects)
    assert ada.waits(("bob", 2))  # he came just now: his licence is left to him
    assert not ada.waits(("cyd", 3))
    ada.handle(AllFencedOff())
    said = [effect.word for effect in ada.handle(Ticked(20.1, 0)) if isinstance(effect, Say)]
    assert any(isinstance(word, View) and word.is_founding for word in said)


@pytest.mark.req("H2")
@pytest.mark.parametrize(("departed", "is_fresh"), [((), False), (("bob",), True)])
def test_who_comes_back_begins_afresh_only_if_the_others_have_all_that_it_had(
    departed: tuple[str, ...], is_fresh: bool
) -> None:
    bob = Membership(name="bob", incarnation=7, now=0.0)
    members = (Member("ada", 1, is_complete=True),)
    view = View(100, ("ada", 1), members, ((0, VALUES, "ada"),), departed)
    assert not bob.handle(Heard(view, 0.1))  # it may be older than bob's last life
    assert SubscribeCopies(is_fresh) in bob.handle(Heard(replace(view, greeted=(bob.key,)), 0.1))


def test_a_beat_that_comes_back_after_the_lease_ran_out_renews_nothing() -> None:
    ada = _member_of_two(Terms(lease_seconds=4.0))
    ada.handle(Heard(Beat("ada", 1, sent=3.9), 4.1))
    assert ada.is_over


def test_a_second_process_of_the_same_name_ends_the_first() -> None:
    ada = _member_of_two(Terms())
    ada.handle(Heard(Beat("ada", 9, sent=0.0), 0.5))
    assert ada.is_over


# ---- a middleware that was in parts


@pytest.mark.req("H2")
def test_two_clusters_become_one_when_the_middleware_is_one_again() -> None:
    world = _world("ada", "bob", "cyd", "dan")
    world.cut(("ada", "bob"))
    world.advance(4 * TERMS.silence_seconds)
    assert world.owners(SAMPLES[0]) != []
    assert all(len(world.owners(value)) == 2 for value in SAMPLES)
    assert len(world.views) == 2
    assert len({epoch for epoch, _ in world.views}) == 2, "tokens of two clusters are never the same"
    world.heal()
    world.advance(2 * TERMS.lease_seconds)
    assert len(world.views) == 1
    world.advance(2 * TERMS.silence_seconds)
    assert _owners(world) == {"ada", "bob", "cyd", "dan"}
    before = len(world.middleware.processed)
    for value in SAMPLES:
        world.publish(value)
    world.advance(2 * TERMS.silence_seconds)
    assert len(world.middleware.processed) == before + len(SAMPLES)
    assert all(len(who) == 1 for who in world.middleware.processed.values())
    assert not world.problems


def _beat_of_another_cluster(sent: float, epoch: int) -> Beat:
    return Beat("cyd", 3, sent=sent, epoch=epoch, leader=("cyd", 3), has_released=True, is_ready=True)


@pytest.mark.req("H2")
def test_of_two_clusters_the_one_with_the_lower_epoch_is_given_up() -> None:
    ada = _member_of_two(Terms(lease_seconds=4.0))
    ada.handle(Heard(_beat_of_another_cluster(0.0, 101), 0.5))
    assert not ada.is_over  # it may be about to be told of a view that explains it
    effects = ada.handle(Heard(_beat_of_another_cluster(1.0, 101), 2.0))
    assert [effect.apart for effect in effects if isinstance(effect, Stop)] == [100]


@pytest.mark.req("H2")
def test_who_stays_when_there_were_two_clusters_marks_what_waits_and_takes_nobody_for_departed() -> None:
    ada = _member_of_two(Terms(lease_seconds=4.0))
    _time_passes_without_bob(ada, 20.0)
    alone = (Member("ada", 1, is_complete=True),)
    ada.handle(Heard(View(10**8, ("ada", 1), alone, ((0, VALUES, "ada"),), ("bob",)), 20.0))
    knock = Beat("cyd", 5, sent=0.0, apart=77)
    assert Doubt(EVERYTHING) in ada.handle(Heard(knock, 20.1))
    ada.handle(Heard(Beat("ada", 1, sent=20.1), 20.1))
    said = [effect.word for effect in ada.handle(Ticked(20.2, 0)) if isinstance(effect, Say)]
    assert [word.departed for word in said if isinstance(word, View)] == [()]


@pytest.mark.req("H2")
def test_who_acted_apart_from_the_others_comes_back_with_its_copies() -> None:
    bob = Membership(name="bob", incarnation=7, now=0.0, apart=77)
    members = (Member("ada", 1, is_complete=True),)
    view = View(100, ("ada", 1), members, ((0, VALUES, "ada"),), ("bob",), greeted=(bob.key,))
    assert SubscribeCopies(is_fresh=False) in bob.handle(Heard(view, 0.1))


# ---- told otherwise


@pytest.mark.req("H1", "H2")
@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"terms": "lease 30"}, "the terms of ada: lease 30; of this member: lease 5"),
        ({"fields": "id, type"}, "the fields of ada: id, type; of this member: id"),
        ({"mode": "transacted"}, "the mode of ada: transacted; of this member: acknowledge owner"),
        ({"hash_version": 2}, "ada computes values by version 2, this member by 1"),
    ],
)
def test_a_newcomer_that_was_told_otherwise_is_refused(said: dict[str, Any], sentence: str) -> None:
    mine = Agreement(terms="lease 5", fields="id", mode="acknowledge owner")
    bob = Membership(name="bob", incarnation=7, now=0.0, agreement=mine)
    assert not bob.handle(Heard(Beat("cyd", 3, sent=0.0, **said), 0.1)), "who only waits may be wrong itself"
    effects = bob.handle(Heard(Beat("ada", 1, sent=0.0, epoch=100, leader=("ada", 1), **said), 0.1))
    assert effects == [Stop(sentence, is_refused=True)]


@pytest.mark.req("H1", "H2")
@pytest.mark.parametrize("said", [{"terms": "lease 30"}, {"hash_version": 2}])
def test_those_who_are_in_go_on_without_a_newcomer_that_was_told_otherwise(said: dict[str, Any]) -> None:
    ada = _member_of_two(Terms(lease_seconds=4.0), Agreement(terms="lease 4"))
    ada.handle(Heard(Beat("cyd", 3, sent=0.0, is_ready=True, **said), 0.5))
    said_now = [effect.word for effect in ada.handle(Ticked(1.0, 0)) if isinstance(effect, Say)]
    assert not ada.is_over
    assert not any(isinstance(word, View) for word in said_now)


def test_a_member_of_an_earlier_version_says_nothing_of_it_and_is_taken_in() -> None:
    ada = _member_of_two(Terms(lease_seconds=4.0), Agreement(terms="lease 4"))
    ada.handle(Heard(Beat("cyd", 3, sent=0.0, is_ready=True), 0.5))
    views = [e.word for e in ada.handle(Ticked(1.0, 0)) if isinstance(e, Say) and isinstance(e.word, View)]
    assert [member.name for member in views[0].members] == ["ada", "bob", "cyd"]
