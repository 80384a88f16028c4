"""What a consumer holds, and what it settled so lately that the server may not have heard of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.client.holding import Holding
from heliograph.client.incoming import merged, without_ranges
from heliograph.model.claim import first_tag
from heliograph.model.limits import MAX_CLAIM_PARTS

pytestmark = pytest.mark.req("M8")


def test_neighbours_grow_together_and_what_is_settled_leaves() -> None:
    holding = Holding(100)
    holding.received(1, 10)
    holding.received(11, 20)
    holding.received(31, 40)
    assert holding.held() == [(1, 20), (31, 40)]
    holding.settled([(1, 5), (15, 33)])
    assert holding.held() == [(6, 14), (34, 40)]
    assert holding.settled_lately(1000) == [(1, 5), (15, 33)]
    holding.gone([(6, 7), (40, 40)])
    assert holding.held() == [(8, 14), (34, 39)]
    holding.clear()
    assert (holding.held(), holding.settled_lately(1000)) == ([], [(1, 5), (15, 33)])
    holding.begin_anew()
    assert (holding.held(), holding.settled_lately(1000)) == ([], [])


def test_only_a_credits_worth_of_settlements_is_remembered() -> None:
    holding = Holding(10)
    holding.received(1, 1000)
    for tag in range(1, 1000):
        holding.settled([(tag, tag)])
    assert holding.held() == [(1000, 1000)]
    assert holding.settled_lately(1000) == [(990, 999)]


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(0, 8)), max_size=20),
    st.integers(1, 60),
    st.integers(1, 20),
)
def test_it_counts_as_sets_do(settled: list[tuple[int, int]], last: int, credit: int) -> None:
    holding = Holding(credit)
    holding.received(1, last)
    held = set(range(1, last + 1))
    told: list[int] = []
    for first, more in settled:
        tags = [tag for tag in range(first, first + more + 1) if tag in held]
        holding.settled(merged([(tag, tag) for tag in tags]))
        held -= set(tags)
        told += tags
    assert _tags(holding.held()) == sorted(held)
    assert _tags(holding.settled_lately(1000)) == sorted(told[-credit:])


@given(st.sets(st.integers(1, 30)), st.sets(st.integers(1, 30)))
def test_tags_less_others(some: set[int], less: set[int]) -> None:
    left = without_ranges([(tag, tag) for tag in some], merged([(tag, tag) for tag in less]))
    assert _tags(left) == sorted(some - less)


def _tags(ranges: list[tuple[int, int]]) -> list[int]:
    return [tag for first, last in ranges for tag in range(first, last + 1)]


def test_what_was_settled_of_an_earlier_part_is_still_said_in_another() -> None:
    holding = Holding(4)
    holding.received(1, 4)
    elsewhere = first_tag(7, 2)
    holding.received(elsewhere, elsewhere + 99)
    holding.settled([(1, 4)])
    holding.settled([(elsewhere, elsewhere + 99)])
    assert holding.settled_lately(1000) == [(1, 4), (elsewhere + 96, elsewhere + 99)]


def test_a_claim_that_is_too_long_names_the_earliest_so_that_what_comes_again_is_the_end_of_a_unit() -> None:
    holding = Holding(100)
    for tag in (*range(3, 100, 2), 1):
        holding.settled([(tag, tag)])
    assert holding.settled_lately(3) == [(1, 1), (3, 3), (5, 5)]


def test_parts_that_are_long_past_are_forgotten() -> None:
    holding = Holding(10)
    for view in range(1, 2 * MAX_CLAIM_PARTS):
        holding.settled([(first_tag(view, 0), first_tag(view, 0))])
    assert len(holding.settled_lately(1000)) == MAX_CLAIM_PARTS
