"""Cold messages: a page says the same whichever columns it could leave out, and after a snapshot too."""

import pytest

from heliograph.destinations.pages import SEGMENT_SHIFT, Entry, Page, assemble, entries_of, pages_of
from heliograph.model.block import Block, Span, merge_lone, pack_lone, parse, slice_span, unpack
from heliograph.model.limits import BLOCK_MESSAGES, PAGE_MESSAGES
from tests.unit.destinations.stories import LANE, OTHER_LANE, lone, several, span_of


def at(segment: int, offset: int) -> int:
    return segment << SEGMENT_SHIFT | offset


def page_of(*entries: tuple[int, int, int, int], deliveries: int = 0) -> Page:
    """From (number, position, start, messages)."""
    page = Page(deliveries)
    for number, position, start, messages in entries:
        page.append(number, position, start, messages, 100)
    return page


def dumped(page: Page) -> tuple[list[int], list[bytes]]:
    """As it is found again in a snapshot: views have become bytes."""
    facts, columns = page.dump()
    return facts, [bytes(column) for column in columns]


WHOLE_LONE = [(7, at(1, 8), 0, 1), (8, at(1, 16), 0, 1), (9, at(1, 24), 0, 1)]
BLOCKS_AFTER_LONE = [*WHOLE_LONE, (10, at(1, 32), 0, 5), (15, at(1, 40), 0, 1)]
GAP_AFTER_LONE = [*WHOLE_LONE, (20, at(1, 32), 0, 1), (21, at(1, 40), 0, 1)]
GAP_AFTER_BLOCKS = [*BLOCKS_AFTER_LONE, (30, at(2, 8), 0, 4), (34, at(2, 16), 0, 2)]
PARTS_OF_BLOCKS = [(7, at(1, 8), 0, 2), (11, at(1, 8), 4, 3), (14, at(1, 16), 0, 1), (20, at(2, 8), 6, 1)]
A_BLOCK_WITH_A_GAP_AT_ONCE = [(1, at(1, 8), 0, 1), (5, at(1, 16), 0, 3), (9, at(1, 24), 0, 1)]
SHAPES = [
    WHOLE_LONE,
    BLOCKS_AFTER_LONE,
    GAP_AFTER_LONE,
    GAP_AFTER_BLOCKS,
    PARTS_OF_BLOCKS,
    A_BLOCK_WITH_A_GAP_AT_ONCE,
]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_page_gives_back_what_was_put_in(shape: list[tuple[int, int, int, int]]) -> None:
    page = page_of(*shape, deliveries=3)
    assert page.entries() == [Entry(*each, 3) for each in shape]
    assert page.messages == sum(messages for *_, messages in shape)
    assert len(page) == len(shape)
    assert page.bytes == 100 * len(shape)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_page_survives_a_snapshot_and_goes_on(shape: list[tuple[int, int, int, int]]) -> None:
    page = page_of(*shape, deliveries=2)
    restored = Page.restore(*dumped(page))
    assert restored.entries() == page.entries()
    assert (restored.lowest, restored.highest) == (page.lowest, page.highest)
    for each in (page, restored):
        each.append(100, at(3, 8), 2, 4, 100)
    assert restored.entries() == page.entries()
    assert dumped(restored) == dumped(page)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_page_without_what_a_restart_may_lose(shape: list[tuple[int, int, int, int]]) -> None:
    page = Page(1)
    for index, (number, position, start, messages) in enumerate(shape):
        page.append(number, position, start, messages, 100, persistent=index % 2 == 0)
    persistent = page.persistent_part()
    assert persistent is not None
    assert persistent.entries() == [Entry(*each, 1) for each in shape[::2]]
    assert list(page.spilled()) == [index % 2 for index in range(len(shape))]


def test_a_page_of_spilled_messages_leaves_nothing_to_a_restart() -> None:
    page = Page()
    page.append(1, at(1, 8), 0, 1, 100, persistent=False)
    assert page.persistent_part() is None


def test_a_page_of_persistent_messages_is_dumped_as_it_stands() -> None:
    page = page_of(*GAP_AFTER_BLOCKS)
    assert page.persistent_part() is page


def test_lone_messages_in_sequence_cost_eight_bytes_each() -> None:
    _, columns = dumped(page_of(*WHOLE_LONE))
    assert [len(column) for column in columns] == [24, 0, 0, 0]


def test_a_page_knows_which_segments_it_touches() -> None:
    page = page_of((1, at(4, 8), 0, 1), (2, at(6, 8), 0, 3), (5, at(5, 8), 0, 1))
    assert [segment for segment in range(10) if page.touches(segment)] == [4, 5, 6]
    assert page.per_segment() == {at(4, 8): 1, at(6, 8): 3, at(5, 8): 1}
    assert page_of(*BLOCKS_AFTER_LONE).per_segment() == {at(1, 8): 9}


def test_a_page_follows_records_that_were_moved() -> None:
    page = page_of((1, at(1, 8), 0, 1), (2, at(1, 16), 0, 3), (5, at(3, 8), 0, 1))
    page.relocate({at(1, 8): at(9, 8), at(1, 16): at(9, 16), at(1, 99): at(9, 99)})
    assert [entry.position for entry in page.entries()] == [at(9, 8), at(9, 16), at(3, 8)]
    assert not page.touches(1)
    assert page.touches(3)
    assert page.touches(9)
    assert page.per_segment() == {at(9, 8): 4, at(3, 8): 1}


def test_entries_fill_pages_that_differ_in_deliveries() -> None:
    entries = [Entry(number, at(1, number), 0, 1, number // 3) for number in range(9)]
    pages = pages_of(entries)
    assert [page.deliveries for page in pages] == [0, 1, 2]
    assert [entry for page in pages for entry in page.entries()] == entries
    many = pages_of(Entry(number, at(1, number), 0, 1, 0) for number in range(PAGE_MESSAGES + 1))
    assert [page.messages for page in many] == [2048, 2048, 1]


# ---- read back


def lone_page(blocks: list[Block], *, segment: int = 1, deliveries: int = 0) -> tuple[Page, list[bytes]]:
    page = Page(deliveries)
    buffers = []
    for index, block in enumerate(blocks):
        assert block.buffer is not None
        page.append(50 + index, at(segment, 8 + index * 8), 0, 1, block.size, persistent=block.persistent)
        buffers.append(block.buffer)
    return page, buffers


def test_lone_messages_of_a_lane_become_one_block_again() -> None:
    page, buffers = lone_page([lone(sequence) for sequence in range(1, 6)], deliveries=2)
    (span,) = assemble(page, buffers)
    assert (span.start, span.stop, span.deliveries) == (0, 5, 2)
    assert span.block.number == 50
    contents = unpack(b"".join(slice_span(span)))
    assert contents.bodies == [b"body %d" % sequence for sequence in range(1, 6)]
    assert contents.timestamps == [1001, 1002, 1003, 1004, 1005]
    assert (contents.lane, contents.first, contents.priority, contents.persistent) == (LANE, 1, 4, True)
    assert entries_of(span) == page.entries()


def test_a_merged_block_can_be_cut_and_still_names_its_records() -> None:
    page, buffers = lone_page([lone(sequence) for sequence in range(1, 6)])
    (whole,) = assemble(page, buffers)
    part = Span(whole.block, 1, 3, 1)
    assert entries_of(part) == [Entry(51, at(1, 16), 0, 1, 1), Entry(52, at(1, 24), 0, 1, 1)]
    assert unpack(b"".join(slice_span(part))).bodies == [b"body 2", b"body 3"]


@pytest.mark.parametrize(
    "second",
    [
        lone(3),
        lone(2, lane=OTHER_LANE),
        lone(2, priority=5),
        lone(2, persistent=False),
        parse(pack_lone(b"", lane=LANE, sequence=2, head=b"properties")),
        parse(pack_lone(b"", lane=LANE, sequence=2, expiry=9)),
        parse(pack_lone(b"", lane=LANE, sequence=2, delivery_time=9)),
        parse(pack_lone(b"", lane=LANE, sequence=2, kind=1)),
        several(2, 2),
    ],
    ids=["gap", "lane", "priority", "mode", "head", "expiry", "delivery time", "kind", "block"],
)
def test_messages_that_differ_stay_apart(second: Block) -> None:
    page = Page()
    first = lone(1)
    assert first.buffer is not None
    assert second.buffer is not None
    page.append(1, at(1, 8), 0, 1, first.size)
    page.append(2, at(1, 16), 0, second.count, second.size, persistent=second.persistent)
    spans = assemble(page, [first.buffer, second.buffer])
    assert [span.block.buffer for span in spans] == [first.buffer, second.buffer]
    assert [span.block.number for span in spans] == [1, 2]


def test_messages_from_two_segments_stay_apart() -> None:
    page = page_of((1, at(1, 8), 0, 1), (2, at(2, 8), 0, 1))
    buffers = [lone(1).buffer, lone(2).buffer]
    assert len(assemble(page, [buffer for buffer in buffers if buffer is not None])) == 2


def test_messages_between_which_another_was_accepted_stay_apart() -> None:
    page = page_of((1, at(1, 8), 0, 1), (3, at(1, 16), 0, 1))
    buffers = [lone(1).buffer, lone(2).buffer]
    spans = assemble(page, [buffer for buffer in buffers if buffer is not None])
    assert [span.block.number for span in spans] == [1, 3]


def test_a_merged_block_has_a_bound() -> None:
    page, buffers = lone_page([lone(sequence) for sequence in range(1, BLOCK_MESSAGES + 3)])
    assert [span.stop for span in assemble(page, buffers)] == [BLOCK_MESSAGES, 2]


def test_a_part_of_a_block_is_read_back_as_that_part() -> None:
    block = several(1, 6)
    assert block.buffer is not None
    page = page_of((12, at(1, 8), 2, 3))
    (span,) = assemble(page, [block.buffer])
    assert (span.start, span.stop, span.block.number) == (2, 5, 10)
    assert unpack(b"".join(slice_span(span))).bodies == [b"body 3", b"body 4", b"body 5"]


def test_a_server_without_a_store_overrules_the_sender_after_a_spill_too() -> None:
    block = lone(1)
    assert block.buffer is not None
    page = Page()
    page.append(1, at(1, 8), 0, 1, block.size, persistent=False)
    (span,) = assemble(page, [block.buffer])
    assert not span.block.persistent


def test_merging_keeps_one_position_for_each() -> None:
    run = [
        span_of(lone(sequence), number=sequence + 9, position=at(1, sequence * 8)).block
        for sequence in (1, 2)
    ]
    merged = merge_lone(run)
    assert merged.number == 10
    assert merged.positions is not None
    assert list(merged.positions) == [at(1, 8), at(1, 16)]
