"""What one consumer has: tags are taken from the front, the middle and the end, and never twice (J4)."""

import pytest

from heliograph.destinations.outstanding import Outstanding
from heliograph.model.errors import ClientFault
from tests.unit.destinations.stories import sequences, several, span_of

pytestmark = pytest.mark.req("J4")


def ten_in_three_spans() -> Outstanding:
    """Tags 1 to 10 are sequences 1 to 10."""
    outstanding = Outstanding()
    for first, count in ((1, 4), (5, 1), (6, 5)):
        outstanding.add(first, span_of(several(first, count), deliveries=first))
    return outstanding


def left(outstanding: Outstanding) -> list[int]:
    return sequences(outstanding.spans())


def test_the_usual_settlement_takes_the_oldest() -> None:
    outstanding = ten_in_three_spans()
    assert sequences(outstanding.take(1, 4)) == [1, 2, 3, 4]
    assert left(outstanding) == [5, 6, 7, 8, 9, 10]
    assert outstanding.messages == 6


def test_a_range_out_of_the_middle_leaves_both_sides() -> None:
    outstanding = ten_in_three_spans()
    assert sequences(outstanding.take(2, 3)) == [2, 3]
    assert sequences(outstanding.take(7, 8)) == [7, 8]
    assert left(outstanding) == [1, 4, 5, 6, 9, 10]
    assert sequences(outstanding.take(4, 6)) == [4, 5, 6]
    assert sequences(outstanding.take(1, 1)) == [1]
    assert sequences(outstanding.take(9, 10)) == [9, 10]
    assert outstanding.messages == 0
    assert outstanding.spans() == []


def test_a_range_may_cross_spans_and_keeps_how_often_each_was_handed_out() -> None:
    outstanding = ten_in_three_spans()
    taken = outstanding.take(3, 7)
    assert sequences(taken) == [3, 4, 5, 6, 7]
    assert [span.deliveries for span in taken] == [1, 5, 6]
    assert [span.deliveries for span in outstanding.spans()] == [1, 6]


def test_all_at_once_in_one_range() -> None:
    outstanding = ten_in_three_spans()
    assert sequences(outstanding.take(1, 10)) == list(range(1, 11))
    assert outstanding.messages == 0


@pytest.mark.parametrize(
    "tags", [(0, 1), (11, 11), (10, 11), (3, 2), (1, 10**15), (-5, -1)], ids=lambda tags: f"{tags}"
)
def test_tags_that_were_never_given_are_refused_and_change_nothing(tags: tuple[int, int]) -> None:
    outstanding = ten_in_three_spans()
    with pytest.raises(ClientFault) as refusal:
        outstanding.take(*tags)
    assert refusal.value.code == "settlement-unknown"
    assert left(outstanding) == list(range(1, 11))
    assert outstanding.messages == 10


@pytest.mark.parametrize("again", [(4, 6), (1, 10), (5, 5), (3, 4), (6, 7)], ids=lambda tags: f"{tags}")
def test_a_range_that_was_settled_in_part_is_refused_whole(again: tuple[int, int]) -> None:
    outstanding = ten_in_three_spans()
    outstanding.take(4, 6)
    with pytest.raises(ClientFault):
        outstanding.take(*again)
    assert left(outstanding) == [1, 2, 3, 7, 8, 9, 10]


def test_when_a_consumer_leaves_it_gives_everything_back() -> None:
    outstanding = ten_in_three_spans()
    outstanding.take(2, 2)
    assert sequences(outstanding.take_all()) == [1, 3, 4, 5, 6, 7, 8, 9, 10]
    assert outstanding.messages == 0
    assert outstanding.take_all() == []
