"""What must hold of every run, judged by what the members went through."""

from __future__ import annotations

from itertools import combinations, pairwise

from heliograph.bus.interface import NO_VIEW, Incarnation, Stamp
from heliograph.cluster.view import View, straight
from simulation.view_faults import Run
from simulation.view_members import Ledger, Life, Said, Stage


def violations(run: Run, *, is_tame: bool = False) -> list[str]:
    """Sentences; none is good."""
    ledger = run.ledger
    views, found = _views(ledger)
    found += [fault for life in ledger.lives.values() for fault in life.faults]
    for view in views.values():
        found += _check_answers(ledger, view)
        found += _check_straight(ledger, view)
    found += _check_number_grows(ledger)
    found += _check_accepted(ledger, views)
    if any(len(each) > 1 for each in heirs(ledger).values()):
        found.append("two views take themselves for the successor of one")
    if is_tame:
        found += [fault for view in views.values() for fault in _check_nobody_is_left_behind(ledger, view)]
    if run.calm_after is None:
        found.append("a view waits for ever")
    elif not run.is_news_known:
        found.append("what a node had to say of itself is in no view")
    return sorted(dict.fromkeys(found))


def _views(ledger: Ledger) -> tuple[dict[Stamp, View], list[str]]:
    """No two members install different views with the same id, nor anybody one that it is not in."""
    views: dict[Stamp, View] = {}
    found: list[str] = []
    companies: dict[object, Stamp] = {}
    for life in ledger.lives.values():
        for stage in life.stages:
            if stage.view is None:
                continue
            if views.setdefault(stage.view.id, stage.view) != stage.view:
                found.append("two views with one id")
            if life.incarnation not in stage.view.members:
                found.append("a member installed a view that it is not in")
            made_of = (stage.view.company, tuple(hello.last for _, hello in stage.view.hellos))
            if companies.setdefault(made_of, stage.view.id) != stage.view.id:
                found.append("one company coming from the same views installed two")
    return views, found


def _check_answers(ledger: Ledger, view: View) -> list[str]:
    """Every installed view was answered by a matching hello of each member."""
    found: list[str] = []
    if tuple(who for who, _ in view.hellos) != view.members:
        found.append("a view without the hello of a member")
    for who, hello in view.hellos:
        if hello.company != view.company:
            found.append("a hello that answers another company")
        if not any(hello == said.hello for said in ledger.hellos.get(who, [])):
            found.append("a hello that nobody said")
    return found


def _check_number_grows(ledger: Ledger) -> list[str]:
    for life in ledger.lives.values():
        numbers = [stage.view.number for stage in life.stages if stage.view is not None]
        if numbers != sorted(set(numbers)):
            return ["a member's views do not grow"]
    return []


def _check_accepted(ledger: Ledger, views: dict[Stamp, View]) -> list[str]:
    """Views that accept the same fact have a member in common, who is not in both at once."""
    for accepted in ledger.accepted.values():
        for one, other in combinations(accepted, 2):
            if not set(views[one].members) & set(views[other].members):
                return ["a fact accepted in two views that have nobody in common"]
    return []


def _check_straight(ledger: Ledger, view: View) -> list[str]:
    """Straight from W is an equivalence, and who claims it has heard the same, view by view and in between."""
    classes = straight(view)
    found: list[str] = []
    for who, others in classes.items():
        if others and who not in others:
            found.append("straight is not reflexive")
        if any(classes[other] != others for other in others):
            found.append("straight is not symmetric and transitive")
    for one, other in combinations(view.members, 2):
        if other in classes[one]:
            found += _check_pair(ledger, view, one, other)
    return found


def _check_pair(ledger: Ledger, view: View, one: Incarnation, other: Incarnation) -> list[str]:
    found = []
    mine, theirs = _said(ledger, view, one), _said(ledger, view, other)
    if mine.frames != theirs.frames:
        found.append("straight from a view after which they heard different frames")
    if mine.counted != theirs.counted:
        found.append("straight from a view after which they counted differently")
    if ledger.lives[other].place in mine.parted or ledger.lives[one].place in theirs.parted:
        found.append("straight from a view after which they lost each other")
    before, other_before = (_stage_before(ledger.lives[who], mine.hello.last) for who in (one, other))
    if mine.hello.way == theirs.hello.way and before.frames != other_before.frames:
        found.append("straight from a view to which they came with different frames")
    return found


def _said(ledger: Ledger, view: View, who: Incarnation) -> Said:
    """What a member answered to the configuration that became this view."""
    hello = dict(view.hellos)[who]
    return next((said for said in ledger.hellos.get(who, []) if said.hello == hello), Said(hello, [], [], []))


def _stage_before(life: Life, view: Stamp) -> Stage:
    for stage, following in pairwise(life.stages):
        if following.view is not None and following.view.id == view:
            return stage
    raise AssertionError("its last view is none of its own")


def heirs(ledger: Ledger, *, by_arrival: bool = True) -> dict[Stamp, list[Stamp]]:
    """For each view W, the views that could take themselves for its successor: a strict majority of W came straight.

    It is not enough that they said hello, for they may not have installed the view, and go another way from W. By
    arrival, a view is an heir for those who have heard, in it, from a strict majority of W (docs/decisions/0009).
    """
    views, _ = _views(ledger)
    found: dict[Stamp, list[Stamp]] = {}
    arrived = {
        (stage.view.id, tuple(stage.arrived))
        for life in ledger.lives.values()
        for stage in life.stages
        if stage.view is not None
    }
    for view in views.values():
        for came in sorted(set(straight(view).values())):
            last = dict(view.hellos)[came[0]].last if came else NO_VIEW
            if last not in views:
                continue
            heard = max(len(set(who) & set(came)) for id, who in arrived if id == view.id)
            if 2 * (heard if by_arrival else len(came)) > len(views[last].members):
                found.setdefault(last, []).append(view.id)
    return found


def _check_nobody_is_left_behind(ledger: Ledger, view: View) -> list[str]:
    """On a bus without oddities: who heard the same since the same view and never lost each other, knows it."""
    classes = straight(view)
    for one, other in combinations(view.members, 2):
        mine, theirs = _said(ledger, view, one), _said(ledger, view, other)
        same_view = mine.hello.last == theirs.hello.last != NO_VIEW
        parted = ledger.lives[other].place in mine.parted or ledger.lives[one].place in theirs.parted
        if same_view and not parted and mine.frames == theirs.frames and other not in classes[one]:
            return ["members that came together do not know it"]
    return []
