"""Who has everything, and whose copies may be thrown away (H2, H4)."""

from __future__ import annotations

import asyncio

import pytest

from heliograph.clustered.arrivals import Arrivals
from heliograph.clustered.completeness import Completeness
from heliograph.clustered.events import FindComplete
from heliograph.clustered.hashing import VALUES
from heliograph.clustered.leading import next_view
from heliograph.clustered.ranges import Even
from heliograph.clustered.settling import Settling
from heliograph.clustered.words import Beat, Lineage, Member, MemberKey, View

ADA, BOB, CYD = ("ada", 1), ("bob", 2), ("cyd", 3)
FIRST: Lineage = (100, "ada", 1)


def _view(*members: Member, lineage: Lineage = FIRST) -> View:
    return View(100, members[0].key, members, ((0, VALUES, members[0].name),), lineage=lineage)


def _next(view: View, me: MemberKey, out: list[MemberKey], *beats: Beat) -> View | None:
    heard = {beat.key: beat for beat in beats}
    return next_view(view, me, policy=Even(), out=out, beats=heard, highest=100)


def _beat(key: MemberKey, *, is_clean: bool = False, found: tuple[MemberKey, ...] = ()) -> Beat:
    return Beat(*key, 0.0, 100, ADA, is_ready=True, lineage=FIRST, is_clean=is_clean, found=found)


@pytest.mark.req("H2")
def test_who_comes_with_old_copies_is_clean_when_all_that_it_had_is_done() -> None:
    bob = Completeness(BOB)
    assert bob.adopt(_view(Member(*ADA, is_complete=True), Member(*BOB))) == [FindComplete(BOB, FIRST)]
    assert not bob.is_clean
    assert bob.find_out(BOB, FIRST)
    assert bob.is_clean


@pytest.mark.req("H2")
def test_what_was_found_out_in_one_lineage_counts_for_nothing_in_another() -> None:
    bob = Completeness(BOB)
    bob.begins_afresh(FIRST)
    assert bob.adopt(_view(Member(*ADA, is_complete=True), Member(*BOB))) == []
    assert bob.is_clean
    second = (101, "cyd", 3)
    view = _view(Member(*CYD, is_complete=True), Member(*BOB), lineage=second)
    assert bob.adopt(view) == [FindComplete(BOB, second)]
    assert not bob.find_out(BOB, FIRST)  # what was asked before comes too late
    assert not bob.is_clean


@pytest.mark.req("H2")
def test_who_comes_again_in_the_view_without_its_earlier_life_is_to_be_found_anew() -> None:
    ada, again = Completeness(ADA), ("bob", 9)
    assert ada.adopt(_view(Member(*ADA, is_complete=True), Member(*BOB))) == [FindComplete(BOB, FIRST)]
    assert ada.find_out(BOB, FIRST)
    assert list(ada.found) == [BOB]
    assert ada.adopt(_view(Member(*ADA, is_complete=True), Member(*again))) == [FindComplete(again, FIRST)]
    assert not ada.found


@pytest.mark.req("H2")
def test_a_member_is_complete_when_one_who_is_has_found_it_and_it_is_clean() -> None:
    view = _view(Member(*ADA, is_complete=True), Member(*BOB))
    assert _next(view, ADA, [], _beat(ADA, is_clean=True, found=(BOB,)), _beat(BOB)) is None
    later = _next(view, ADA, [], _beat(ADA, is_clean=True, found=(BOB,)), _beat(BOB, is_clean=True))
    assert later is not None
    assert [member.is_complete for member in later.members] == [True, True]
    an_earlier_life = _beat(ADA, is_clean=True, found=(("bob", 1),))
    assert _next(view, ADA, [], an_earlier_life, _beat(BOB, is_clean=True)) is None


@pytest.mark.req("H2", "H4")
def test_when_nobody_is_left_who_has_everything_one_must_do_and_nobody_s_copies_are_thrown_away() -> None:
    view = _view(Member(*ADA, is_complete=True), Member(*BOB), Member(*CYD))
    later = _next(view, BOB, [ADA], _beat(ADA, is_clean=True), _beat(BOB, is_clean=True), _beat(CYD))
    assert later is not None
    assert [(member.name, member.is_complete) for member in later.members] == [("bob", True), ("cyd", False)]
    assert later.departed == ()
    assert later.epoch > 100
    assert later.lineage == (later.epoch, "bob", 2)


@pytest.mark.req("H2", "H4")
@pytest.mark.parametrize(("is_clean", "departed"), [(False, ()), (True, ("bob",))])
def test_who_goes_with_copies_that_nobody_else_may_have_is_not_told_to_begin_afresh(
    is_clean: bool, departed: tuple[str, ...]
) -> None:
    view = _view(Member(*ADA, is_complete=True), Member(*BOB))
    later = _next(view, ADA, [BOB], _beat(ADA, is_clean=True), _beat(BOB, is_clean=is_clean))
    assert later is not None
    assert later.departed == departed


def test_messages_are_waited_for_until_the_last_is_done() -> None:
    settling: Settling[str] = Settling()
    assert settling.add("nothing", []) == ["nothing"]
    assert settling.add("two", ["a", "b"]) == []
    assert settling.add("one", ["b"]) == []
    assert settling.done(["b"]) == ["one"]
    assert settling.done(["a", "c"]) == ["two"]
    assert settling.done(["a"]) == []


def test_a_mark_is_reached_when_everything_before_it_is_taken() -> None:
    """Not when it comes in: what waits in between would be forgotten."""

    async def story() -> None:
        arrivals: Arrivals[int] = Arrivals()
        mark = asyncio.Event()
        arrivals.add(1)
        arrivals.add(2)
        arrivals.add_mark(mark)
        arrivals.add(3)
        assert await arrivals.one() == 1
        assert not mark.is_set()
        assert await arrivals.some() == [2, 3]
        assert mark.is_set()

    asyncio.run(story())
