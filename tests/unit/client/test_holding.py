"""What a consumer holds, and what it settled so lately that the server may not have heard of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.client.holding import Holding
from heliograph.client.incoming import merged, without_ranges

pytestmark = pytest.mark.req("M8")


def test_neighbours_grow_together_and_what_is_settled_leaves() -> None:
    holding = Holding(100)
    holding.received(1, 10)
    holding.received(11, 20)
    holding.received(31, 40)
    assert holding.held() == [(1, 20), (31, 40)]
    holding.told([(1, 5), (15, 33)])
    assert holding.held() == [(6, 14), (34, 40)]
    assert holding.settled_lately() == [(1, 5), (15, 33)]
    holding.gone([(6, 7), (40, 40)])
    assert holding.held() == [(8, 14), (34, 39)]
    holding.clear()
    assert (holding.held(), holding.settled_lately()) == ([], [])


def test_only_a_credits_worth_of_settlements_is_remembered() -> None:
    holding = Holding(10)
    holding.received(1, 1000)
    for tag in range(1, 1000):
        holding.told([(tag, tag)])
    assert holding.held() == [(1000, 1000)]
    assert holding.settled_lately() == [(990, 999)]


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
        holding.told(merged([(tag, tag) for tag in tags]))
        held -= set(tags)
        told += tags
    assert _tags(holding.held()) == sorted(held)
    assert _tags(holding.settled_lately()) == sorted(told[-credit:])


@given(st.sets(st.integers(1, 30)), st.sets(st.integers(1, 30)))
def test_tags_less_others(some: set[int], less: set[int]) -> None:
    left = without_ranges([(tag, tag) for tag in some], merged([(tag, tag) for tag in less]))
    assert _tags(left) == sorted(some - less)


def _tags(ranges: list[tuple[int, int]]) -> list[int]:
    return [tag for first, last in ranges for tag in range(first, last + 1)]
