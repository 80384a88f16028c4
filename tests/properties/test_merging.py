"""Parts that went their own ways become one: whatever they accepted, handed out and settled, all managers have the
union in the end, what is done stays done, and no more travels than is missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from heliograph.cluster import merging, ranges
from heliograph.cluster.merging import (
    Done,
    LaneSummary,
    Place,
    Plan,
    Summary,
    Tombstone,
    done_of,
    plan_of,
    reached,
)
from heliograph.cluster.ranges import Ranges, common, count, minus, union
from heliograph.model.destination import Address
from heliograph.model.ids import ConsumerId, LaneId

PLACES: list[Place] = [(Address("queue:orders"), "", LaneId(bytes([number]) * 16)) for number in range(2)]
CONSUMERS = [ConsumerId(b"one"), ConsumerId(b"other")]
FORK = 4  # messages of each lane that everybody had before the cut


class Manager:
    """A message manager as sets, message by message: what the ranges stand for."""

    def __init__(self, store: bytes) -> None:
        self.store = store
        self.bodies: dict[Place, set[int]] = {place: set(range(1, FORK + 1)) for place in PLACES}
        self.accepted: dict[Place, set[int]] = {place: set() for place in PLACES}  # since the fork
        self.done: dict[Place, set[int]] = {place: set() for place in PLACES}
        self.held: dict[Place, set[tuple[ConsumerId, int]]] = {place: set() for place in PLACES}
        self.ended: set[Tombstone] = set()

    def accept(self, place: Place, sequence: int) -> None:
        self.bodies[place].add(sequence)
        self.accepted[place].add(sequence)

    def finish(self, place: Place, sequence: int) -> None:
        """Done: the body is gone, the mark stays."""
        self.done[place].add(sequence)
        self.bodies[place].discard(sequence)
        self.held[place] -= {(consumer, sequence) for consumer in CONSUMERS}

    def free(self, place: Place) -> set[int]:
        """What it would hand out."""
        return self.bodies[place] - {sequence for _, sequence in self.held[place]}

    def summary(self) -> Summary:
        lanes = {place: self._lane(place) for place in PLACES}
        told = {place: lane for place, lane in lanes.items() if lane != LaneSummary()}
        return Summary(self.store, told, tuple(sorted(self.ended)))

    def _lane(self, place: Place) -> LaneSummary:
        held = [
            (who, as_ranges({sequence for other, sequence in self.held[place] if other == who}))
            for who in CONSUMERS
        ]
        return LaneSummary(
            as_ranges(self.accepted[place]),
            done_of(as_ranges(self.done[place])),
            tuple(each for each in held if each[1]),
        )


def as_ranges(numbers: set[int]) -> Ranges:
    return union([(number, number) for number in sorted(numbers)])


def as_set(found: Ranges) -> set[int]:
    return {number for first, last in found for number in range(first, last + 1)}


@st.composite
def parts(draw: st.DrawFn) -> list[Manager]:
    """Managers that accepted, handed out and settled by themselves. A message is accepted by some of them, and
    handed out by one: two do not hand out the same (that is what states are for)."""
    managers = [Manager(bytes([number])) for number in range(draw(st.integers(2, 3)))]
    some = st.lists(st.sampled_from(managers), min_size=1, unique=True)
    for place in PLACES:
        for sequence in range(1, 11):
            if sequence > FORK:
                if draw(st.booleans()):
                    continue  # never sent, or nobody has it who is here
                for manager in draw(some):
                    manager.accept(place, sequence)
            owner = draw(st.sampled_from(managers))
            if sequence in owner.bodies[place]:
                what = draw(st.sampled_from(["waits", "done", "held"]))
                if what == "done":
                    owner.finish(place, sequence)
                elif what == "held":
                    owner.held[place].add((draw(st.sampled_from(CONSUMERS)), sequence))
    for manager in managers:
        names = draw(st.lists(st.sampled_from([b"a", b"b"]), unique=True))
        manager.ended |= {Tombstone("subscription", name) for name in names}
    return managers


def carry_out(managers: list[Manager], plan: Plan, steps: int | None = None) -> None:
    """All of a plan, or only its first steps: then somebody was interrupted."""
    by_store = {manager.store: manager for manager in managers}
    work: list[Callable[[], None]] = []
    for marking in plan.markings:
        for sequence in sorted(as_set(marking.sequences)):
            work.append(_finishing(by_store[marking.target], marking.place, sequence))
    for keeping in plan.keepings:
        for sequence in sorted(as_set(keeping.sequences)):
            held = by_store[keeping.target].held[keeping.place]
            work.append(_adding(held, (keeping.consumer, sequence)))
    for burial in plan.burials:
        work += [_adding(by_store[burial.target].ended, stone) for stone in burial.tombstones]
    for transfer in plan.transfers:
        source, target = by_store[transfer.source], by_store[transfer.target]
        for sequence in sorted(as_set(transfer.sequences)):
            assert sequence in source.bodies[transfer.place], "who is asked has it"
            work.append(_accepting(target, transfer.place, sequence))
    for each in work if steps is None else work[:steps]:
        each()


def _finishing(manager: Manager, place: Place, sequence: int) -> Callable[[], None]:
    return lambda: manager.finish(place, sequence)


def _accepting(manager: Manager, place: Place, sequence: int) -> Callable[[], None]:
    return lambda: manager.accept(place, sequence)


def _adding(kept: set[Any], what: object) -> Callable[[], None]:
    return lambda: kept.add(what)


def plan(managers: list[Manager]) -> Plan:
    return plan_of([manager.summary() for manager in managers])


def check_merge(managers: list[Manager], interruptions: list[int]) -> None:
    done = {place: set.union(*(each.done[place] for each in managers)) for place in PLACES}
    bodies = {place: set.union(*(each.bodies[place] for each in managers)) - done[place] for place in PLACES}
    held = {
        place: {each for manager in managers for each in manager.held[place] if each[1] not in done[place]}
        for place in PLACES
    }
    ended = set.union(*(each.ended for each in managers))
    missing = sum(len(bodies[place] - each.bodies[place]) for each in managers for place in PLACES)
    assert sum(count(each.sequences) for each in plan(managers).transfers) == missing, "the difference"
    for steps in interruptions:
        carry_out(managers, plan(managers), steps)
    carry_out(managers, plan(managers))
    for manager in managers:
        assert manager.done == done, "what was done anywhere is done"
        assert manager.bodies == bodies, "the union, and nothing that is done"
        assert manager.held == held, "what a consumer has stays with it"
        assert manager.ended == ended
        for place in PLACES:
            assert manager.free(place) == bodies[place] - {sequence for _, sequence in held[place]}
    assert plan(managers).is_empty, "once is enough"


@settings(max_examples=500, deadline=None)
@given(parts(), st.lists(st.integers(0, 12), max_size=3))
def test_any_histories_merge_to_the_union_however_often_it_is_interrupted(
    managers: list[Manager], interruptions: list[int]
) -> None:
    check_merge(managers, interruptions)


@settings(max_examples=200, deadline=None)
@given(parts())
def test_the_order_of_meetings_does_not_matter(managers: list[Manager]) -> None:
    """Two meet first, and the third comes when they have forgotten the bodies of what is done."""
    first, *others = managers
    for other in others:
        carry_out([first, other], plan([first, other]))
    carry_out(managers, plan(managers))
    assert plan(managers).is_empty
    for place in PLACES:
        assert all(not manager.bodies[place] & first.done[place] for manager in managers)
        assert all(manager.bodies[place] == first.bodies[place] for manager in managers)


def test_a_million_messages_that_one_part_accepted_are_planned_in_a_few_words() -> None:
    place = PLACES[0]
    here = Summary(b"1", {place: LaneSummary(((5, 1_000_004),), Done(600_000, ((77, 77),)))})
    there = Summary(b"2", {place: LaneSummary(((1_000_005, 1_000_006),))})
    made = plan_of([here, there])
    assert [(each.source, each.target, each.sequences) for each in made.transfers] == [
        (b"2", b"1", ((1_000_005, 1_000_006),)),
        (b"1", b"2", ((77, 77), (600_001, 1_000_004))),
    ]
    assert [(each.target, each.sequences) for each in made.markings] == [(b"2", ((1, 76), (78, 600_000)))]


def test_what_follows_a_gap_waits_until_it_is_filled() -> None:
    """A session sent 1 to 4, then 5 and 6 in one part, then 7 and 8 in another (P7)."""
    there = ((7, 8),)
    assert reached(4, there) == 4, "7 and 8 wait"
    assert reached(4, union(there, ((5, 5),))) == 5
    assert reached(4, union(there, ((5, 6),))) == 8
    assert reached(4, union(there, ((1, 6),))) == 8, "done-marks may begin before the fork"


def test_subscriptions_of_a_topic_have_marks_of_their_own_and_bodies_go_to_everybody() -> None:
    topic, lane = Address("topic:prices"), LaneId(bytes(16))
    here = Summary(
        b"1",
        {
            (topic, "", lane): LaneSummary(((1, 3),)),
            (topic, "audit", lane): LaneSummary((), Done(3)),
        },
    )
    made = plan_of([here, Summary(b"2", {})])
    assert [(each.target, each.place[1], each.sequences) for each in made.transfers] == [
        (b"2", "", ((1, 3),))
    ]
    assert [(each.target, each.place[1], each.sequences) for each in made.markings] == [
        (b"2", "audit", ((1, 3),))
    ]


# ---- planted


def _without_done(place: Place, lanes: merging.Lanes, _done: Ranges) -> list[merging.Transfer]:
    return list(_transfers(place, lanes, ()))


def _only_the_end(place: Place, lanes: merging.Lanes, done: Ranges) -> list[merging.Marking]:
    return list(_markings(place, lanes, done[-1:]))


def _free_again(_place: Place, _lanes: merging.Lanes, _done: Ranges) -> list[merging.Keeping]:
    return []


def _from_two(place: Place, lanes: merging.Lanes, done: Ranges) -> list[merging.Transfer]:
    return list(_transfers(place, lanes[:2], done))


_transfers, _markings = merging._transfers, merging._markings


@pytest.mark.parametrize(
    ("attribute", "planted"),
    [
        ("_transfers", _without_done),
        ("_markings", _only_the_end),
        ("_keepings", _free_again),
        ("_transfers", _from_two),
        ("_burials", lambda _summaries: ()),
        ("common", lambda one, _other: one),
    ],
    ids=[
        "done reappears",
        "holes in marks",
        "held is free",
        "the third is forgotten",
        "ended lives",
        "asks anybody",
    ],
)
def test_a_plan_that_is_wrong_shows(attribute: str, planted: Callable[..., object]) -> None:
    @settings(max_examples=500, deadline=None, database=None, phases=[Phase.generate])
    @given(parts(), st.lists(st.integers(0, 12), max_size=3))
    def search(managers: list[Manager], interruptions: list[int]) -> None:
        check_merge(managers, interruptions)

    with patch.object(merging, attribute, planted), pytest.raises(AssertionError):
        search()


# ---- ranges

numbers = st.sets(st.integers(1, 30))


@settings(max_examples=500, deadline=None)
@given(numbers, numbers)
def test_ranges_are_sets(one: set[int], other: set[int]) -> None:
    mine, theirs = as_ranges(one), as_ranges(other)
    assert as_set(mine) == one
    assert as_set(union(mine, theirs)) == one | other
    assert as_set(minus(mine, theirs)) == one - other
    assert as_set(common(mine, theirs)) == one & other
    assert ranges.count(mine) == len(one)
    assert done_of(mine).ranges == mine
    for found in (union(mine, theirs), minus(mine, theirs), common(mine, theirs)):
        assert found == as_ranges(as_set(found)), "one form for each set"
