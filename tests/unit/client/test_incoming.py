"""An inbox, without a socket: which messages are handed over, and which may be acknowledged."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.client.incoming import Inbox, Mode, Ranges, frames_of, merged
from heliograph.client.message import Delivery
from heliograph.model import block
from heliograph.model.ids import IdIssuer, lane_of
from heliograph.model.limits import MAX_ACK_RANGES

LANE = lane_of(IdIssuer(site=1, node=1, started_ms=1).session(), 1)
OWNER: Any = None


def delivery(first_tag: int, count: int, *, epoch: int = 0) -> Delivery:
    bodies = [b"%d" % tag for tag in range(first_tag, first_tag + count)]
    contents = block.unpack(block.pack(bodies, lane=LANE, first=first_tag))
    return Delivery(contents, OWNER, first_tag=first_tag, epoch=epoch)


def inbox(*deliveries: Delivery, mode: Mode = Mode.AUTO, credit: int = 100) -> Inbox:
    box = Inbox(mode, credit)
    for one in deliveries:
        box.put(one)
    return box


def draw(box: Inbox, count: int) -> list[int]:
    """What an application sees that asks for so many messages one after the other."""
    seen: list[int] = []
    while len(seen) < count:
        message = next(box.messages, None)
        if message is not None:
            seen.append(int(message.body))
        elif not box.take_next():
            break
    return seen


def test_neighbouring_tags_become_one_range() -> None:
    ranges = Ranges()
    for first, last in ((1, 3), (4, 4), (5, 9), (20, 21)):
        ranges.add(first, last)
    assert ranges.count == 11
    assert ranges.take() == [(1, 9), (20, 21)]
    assert (ranges.take(), ranges.count) == ([], 0)


@pytest.mark.parametrize("mode", list(Mode))
def test_the_last_tag_the_application_saw_is_known_however_it_was_handed_over(mode: Mode) -> None:
    box = inbox(delivery(1, 3), delivery(4, 4), delivery(8, 2), mode=mode)
    assert box.last_seen == 0
    assert box.take_next()
    assert box.last_seen == 0, "it can be drawn, but nobody has"
    assert draw(box, 2) == [1, 2]
    assert box.last_seen == 2
    box.stop()
    assert box.last_seen == 2
    box.start()
    assert box.take_next()
    assert box.last_seen == 2
    assert draw(box, 1) == [3]
    assert box.take_next()
    assert box.last_seen == 3
    assert len(box.take_batch(2)) == 2
    assert box.last_seen == 5
    assert draw(box, 10) == [6, 7, 8, 9]
    assert not box.take_next()
    assert box.last_seen == 9
    box.put(delivery(10, 2))
    assert draw(box, 1) == [10]
    assert box.reset(wanted=True) == 10
    assert box.last_seen == 0, "the server gives other tags now"
    box.put(delivery(12, 2, epoch=1))
    box.stop()
    assert box.reset() == 0


@given(st.lists(st.integers(1, 60)))
def test_merged_ranges_hold_the_same_tags_in_order_and_apart(tags: list[int]) -> None:
    ranges = merged([(tag, tag) for tag in tags])
    assert [tag for first, last in ranges for tag in range(first, last + 1)] == sorted(set(tags))
    assert all(earlier[1] + 1 < later[0] for earlier, later in pairwise(ranges))


def test_more_ranges_than_the_server_reads_at_once_are_cut() -> None:
    pieces = list(frames_of([(tag, tag) for tag in range(0, 3 * MAX_ACK_RANGES, 2)]))
    assert [len(piece) for piece in pieces] == [MAX_ACK_RANGES, MAX_ACK_RANGES // 2]


@pytest.mark.req("J4")
def test_a_message_is_done_when_the_next_is_asked_for() -> None:
    box = inbox(delivery(1, 3), delivery(4, 3))
    assert draw(box, 2) == [1, 2]
    box.complete_but_last()
    assert box.done.take() == [(1, 1)]
    assert draw(box, 2) == [3, 4]
    box.complete_but_last()
    assert box.done.take() == [(2, 3)]
    assert draw(box, 9) == [5, 6]
    assert box.done.take() == [(4, 6)], "it asked once more, in vain"


@pytest.mark.req("J4")
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=5),
    st.lists(
        st.tuples(st.sampled_from(["draw", "batch", "look", "stop", "start"]), st.integers(1, 6)), max_size=20
    ),
)
def test_nothing_is_acknowledged_that_was_not_handed_over_and_nothing_is_handed_over_twice(
    counts: list[int], steps: list[tuple[str, int]]
) -> None:
    box, tag, handed, acknowledged = inbox(), 1, [], []
    for count in counts:
        box.put(delivery(tag, count))
        tag += count
    for step, number in steps:
        if step == "draw":
            handed += draw(box, number)
        elif step == "batch":
            handed += [int(message.body) for message in box.take_batch(number)]
        elif step == "look":
            box.complete_but_last()
        elif step == "stop":
            box.stop()
        else:
            box.start()
        acknowledged += [one for first, last in box.done.take() for one in range(first, last + 1)]
        assert set(acknowledged) <= set(handed)
    box.start()
    handed += draw(box, 1000)
    acknowledged += [one for first, last in box.done.take() for one in range(first, last + 1)]
    assert handed == acknowledged == list(range(1, tag))


def test_a_stopped_inbox_hands_over_nothing_and_forgets_nothing() -> None:
    box = inbox(delivery(1, 3))
    assert draw(box, 1) == [1]
    box.stop()
    assert draw(box, 5) == []
    assert box.take_batch(5) == []
    box.start()
    assert draw(box, 5) == [2, 3]


def test_a_batch_is_done_when_more_is_asked_for() -> None:
    box = inbox(delivery(1, 3), delivery(4, 3))
    assert [message.body for message in box.take_batch(5)] == [b"1", b"2", b"3", b"4", b"5"]
    box.complete_but_last()
    assert box.done.take() == []
    assert [message.body for message in box.take_batch(5)] == [b"6"]
    assert box.done.take() == [(1, 5)]


@pytest.mark.req("J4")
def test_in_client_mode_everything_handed_over_is_settled_together() -> None:
    box = inbox(delivery(1, 2), delivery(3, 4), mode=Mode.CLIENT)
    assert draw(box, 4) == [1, 2, 3, 4]
    box.complete()
    assert box.done.take() == [(1, 4)]


@pytest.mark.req("J4")
def test_in_individual_mode_only_the_application_settles() -> None:
    box = inbox(delivery(1, 2), delivery(3, 2), mode=Mode.INDIVIDUAL)
    draw(box, 3)
    box.take_batch(9)
    box.complete()
    assert box.done.take() == []


@pytest.mark.req("J12")
def test_another_connection_drops_what_was_not_handed_over() -> None:
    old = delivery(1, 3)
    box = inbox(old, delivery(4, 3), mode=Mode.CLIENT)
    assert draw(box, 2) == [1, 2]
    box.reset()
    assert draw(box, 5) == []
    assert box.done.take() == [], "the server delivers these again"
    assert not box.is_current(old)
    assert box.forgive(), "an acknowledgement that asks for a confirmation has to hear of it"
    assert not box.forgive()
    box.put(delivery(1, 2, epoch=1))
    assert draw(box, 5) == [1, 2]


def test_acknowledgements_are_due_at_a_quarter_of_the_credit() -> None:
    box = inbox(delivery(1, 24), delivery(25, 1), credit=100)
    draw(box, 24)
    box.take_next()
    assert not box.is_due
    draw(box, 1)
    box.take_next()
    assert box.is_due


def test_what_was_taken_out_with_its_unit_and_never_shown_does_not_come_marked() -> None:
    def of_units(first_tag: int, sequences: tuple[int, ...], units: tuple[int, ...]) -> Delivery:
        bodies = [b"%d" % sequence for sequence in sequences]
        contents = block.unpack(block.pack(bodies, lane=LANE, first=sequences[0], units=list(units)))
        return Delivery(contents, OWNER, first_tag=first_tag, epoch=0)

    box = inbox(of_units(1, (1, 2, 3), (7, 7, 8)), mode=Mode.INDIVIDUAL)
    assert draw(box, 1) == [1]
    box.bar(1, 7)
    assert draw(box, 1) == [3], "2 is of the unit of which the first was given back"
    box.lift([(1, 2)])
    box.memory.is_consulted = True  # another leads since
    box.put(of_units(11, (1, 2), (7, 7)))
    assert box.take_next()
    again = [next(box.messages)]
    assert box.take_next()
    again.append(next(box.messages))
    assert [(int(each.body), each.redelivered) for each in again] == [(1, True), (2, False)]


@pytest.mark.parametrize("how", ["given back", "wanted again"])
def test_what_went_back_after_it_was_shown_comes_marked_from_a_part_that_does_not_know(how: str) -> None:
    box = inbox(delivery(1, 3), mode=Mode.INDIVIDUAL)
    assert draw(box, 2) == [1, 2]
    if how == "given back":
        box.bar(1, 0)
        box.gone([(1, 1)])
        box.lift([(2, 3)])
    else:
        box.reset(wanted=True)
    box.memory.is_consulted = True
    box.put(delivery(1, 3, epoch=box.epoch))
    again: list[Any] = []
    while len(again) < 3 and box.take_next():
        again += list(box.messages)
    assert [(int(each.body), each.redelivered) for each in again] == [(1, True), (2, True), (3, False)]
