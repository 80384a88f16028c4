"""What waits at one priority: in memory, on disk beyond the budget, and in its old place when returned."""

import pytest

from heliograph.destinations import pages, waiting
from heliograph.destinations.pages import assemble
from heliograph.destinations.waiting import Residence, Waiting
from heliograph.model.block import Block, Span
from heliograph.model.ids import ConsumerId
from tests.unit.destinations.stories import lone, sequences, several, span_of

pytestmark = pytest.mark.req("J11")

ANYBODY = ConsumerId(b"")


def taken(level: Waiting, limit: int) -> Span | None:
    return level.take(limit, ANYBODY, [])


def filled(residence: Residence, blocks: list[Block], *, stored: bool = True) -> Waiting:
    """Blocks appended in order, numbered without a gap, each at position 8 × its number if stored."""
    level = Waiting(residence)
    number = 1
    for block in blocks:
        level.append(span_of(block, number=number, position=number * 8 if stored else 0))
        number += block.count
    return level


def drained(level: Waiting, blocks: list[Block], limit: int = 1000) -> list[Span]:
    """Take everything, reading pages whenever asked."""
    by_position = {block.position: block.buffer for block in blocks}
    spans: list[Span] = []
    while level.messages:
        span = taken(level, limit)
        if span is not None:
            spans.append(span)
            continue
        page = level.page_to_load()
        assert page is not None, "messages wait, and nothing is asked for"
        level.loaded(page, [by_position[position] or b"" for position in page.positions])
    return spans


@pytest.mark.parametrize("limit", [0, 700, 10**9])
@pytest.mark.parametrize("at_a_time", [1, 2, 1000])
def test_everything_comes_out_once_and_in_order(limit: int, at_a_time: int) -> None:
    residence = Residence(limit)
    blocks = [lone(1), several(2, 3), lone(5), lone(6), several(7, 2)]
    level = filled(residence, blocks)
    assert level.messages == 8
    assert sequences(drained(level, blocks, at_a_time)) == list(range(1, 9))
    assert residence.used == 0


def test_beyond_the_budget_only_the_journal_has_the_bytes() -> None:
    residence = Residence(1)
    blocks = [lone(sequence) for sequence in range(1, 6)]
    level = filled(residence, blocks)
    assert len(list(level.hot_spans())) == 1, "the head stays at hand, whatever the budget"
    assert sum(page.messages for page in level.cold_pages()) == 4
    assert not level.keeps_loaded


def test_a_message_that_is_nowhere_else_stays_in_memory() -> None:
    level = filled(Residence(1), [lone(sequence, persistent=False) for sequence in (1, 2, 3)], stored=False)
    assert len(list(level.hot_spans())) == 3


def test_a_page_is_read_once_and_takes_no_more_meanwhile() -> None:
    blocks = [lone(sequence) for sequence in range(1, 4)]
    level = filled(Residence(1), blocks)
    page = level.page_to_load()
    assert page is not None
    assert level.page_to_load() is None
    level.append(span_of(lone(4), number=4, position=32))
    assert len(page) == 2, "what is being read does not change"
    assert level.messages == 4


def test_what_was_read_together_does_not_overtake_what_is_still_on_disk() -> None:
    """Something behind a gate was read to see whose it is, and takes its place again."""
    blocks = [lone(sequence) for sequence in range(1, 6)]
    level = filled(Residence(1), blocks)
    _, behind = level.extract([(4, 5)])
    read = assemble(behind[0], [blocks[number - 1].buffer or b"" for number in (4, 5)])
    assert [span.block.positions is not None for span in read] == [True], "several records, one block"
    level.append(read[0])
    assert sequences(drained(level, blocks)) == [1, 2, 3, 4, 5]


def test_pages_are_not_read_far_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGE_MESSAGES", 1)
    monkeypatch.setattr(waiting, "PAGE_BYTES", 500)
    blocks = [lone(sequence) for sequence in range(1, 6)]
    level = filled(Residence(1), blocks)
    reads = 0
    while (page := level.page_to_load()) is not None:
        level.loaded(page, [blocks[page.entries()[0].number - 1].buffer or b""])
        reads += 1
    assert reads == 2
    assert taken(level, 1) is not None
    assert level.page_to_load() is not None


def test_what_returns_goes_before_what_came_later() -> None:
    residence = Residence(10**9)
    blocks = [several(1, 3), several(4, 3), lone(7)]
    level = filled(residence, blocks)
    first, second = taken(level, 3), taken(level, 3)
    assert first is not None
    assert second is not None
    level.put_back([second])
    level.put_back([first])
    assert sequences(drained(level, blocks)) == [1, 2, 3, 4, 5, 6, 7]
    assert residence.used == 0


def test_what_returns_in_part_and_in_disorder_still_lines_up() -> None:
    level = filled(Residence(10**9), [several(1, 8), lone(9)])
    span = taken(level, 8)
    assert span is not None
    block = span.block
    level.put_back([Span(block, 6, 8, 1), Span(block, 2, 3, 1)])
    level.put_back([Span(block, 0, 1, 1), Span(block, 4, 5, 1)])
    assert sequences(list(level.hot_spans())) == [1, 3, 5, 7, 8, 9]
    assert level.messages == 6


def test_a_split_span_is_paid_for_once() -> None:
    residence = Residence(10**9)
    level = filled(residence, [several(1, 5)])
    before = residence.used
    assert taken(level, 2) is not None
    assert residence.used == before
    assert taken(level, 3) is not None
    assert residence.used == 0


def test_a_list_that_goes_gives_its_room_back() -> None:
    residence = Residence(600)
    level = filled(residence, [lone(sequence) for sequence in range(1, 6)])
    level.clear()
    assert (residence.used, level.messages, list(level.hot_spans()), list(level.cold_pages())) == (
        0,
        0,
        [],
        [],
    )
    assert level.page_to_load() is None


def test_recovered_pages_wait_on_disk_until_somebody_wants_them() -> None:
    residence = Residence(10**9)
    blocks = [lone(sequence) for sequence in range(1, 4)]
    origin = filled(Residence(0), blocks)
    cold = list(origin.cold_pages())
    level = Waiting(residence)
    level.restore(cold)
    assert (level.messages, residence.used) == (2, 0)
    assert not level.keeps_loaded, "what arrives now must not overtake what was recovered"
    assert sequences(drained(level, blocks)) == [2, 3]
