"""The last messages of an old segment move to the end of the log, whatever happens to them meanwhile."""

from __future__ import annotations

from typing import cast

import pytest

from heliograph.bus.commands import ConsumerAttached, Dispatched, Published, Settled
from heliograph.destinations.catalogue import Catalogue
from heliograph.destinations.destination import Destination
from heliograph.destinations.effects import AnyEffect, Load, Note, Persist, Release
from heliograph.destinations.events import BlocksReady, BlocksStored, PageLoaded
from heliograph.destinations.queue import Queue
from heliograph.destinations.waiting import Residence
from heliograph.journal.files import Journal
from heliograph.journal.records import RecordKind, segment_of
from heliograph.model.destination import Address
from heliograph.model.errors import CorruptJournal
from heliograph.model.ids import ConsumerId
from heliograph.nodes.compactor import Compactor, needed_in
from tests.properties.memory_journal import RECORDS_PER_SEGMENT, MemoryJournal
from tests.unit.destinations.stories import a_consumer, a_session, asked, lone, sequences, told

ORDERS = Address("queue:orders")
NOW = 1_000_000


class Story:
    """A queue with one old segment full of messages, beyond the memory that it has."""

    def __init__(self, *, resident_bytes: int) -> None:
        self.journal = MemoryJournal()
        self.catalogue = Catalogue(Residence(resident_bytes))
        self.compactor = Compactor(cast("Journal", self.journal), self.catalogue)
        self.orders = self.catalogue.find_or_make(ORDERS, [], create=True)
        for sequence in range(1, RECORDS_PER_SEGMENT + 1):
            self.run(self.orders.handle(Published(ORDERS, lone(sequence)), NOW))
        for _ in range(2 * RECORDS_PER_SEGMENT):
            self.journal.append(RecordKind.SESSION, 0, 0, (b"",), 0)
        self.end_tick()
        self.journal.begin_snapshot(b"")
        self.journal.finish_snapshot()

    def run(self, effects: list[AnyEffect]) -> list[AnyEffect]:
        """Carry out what concerns the journal, with a disk that answers at once."""
        for effect in effects:
            if isinstance(effect, Persist):
                block = effect.block
                block.position = self.journal.append(
                    RecordKind.PUBLISHED, 1, 0, (block.buffer or b"",), block.size, bulky=True
                )
                self.journal.retain(block.position, block.count)
                self.run(self.orders.handle(BlocksStored([block]), NOW))
                self.run(self.orders.handle(BlocksReady([block]), NOW))
            elif isinstance(effect, Release):
                self.journal.release(effect.position, effect.count)
            elif isinstance(effect, Load):
                self._load(self.orders, effect)
        return effects

    def _load(self, destination: Destination, effect: Load) -> None:
        def then(found: list[bytes] | CorruptJournal) -> None:
            assert isinstance(found, list)
            loaded = PageLoaded(effect.list_number, effect.priority, effect.page, found)
            self.loaded = self.run(destination.handle(loaded, NOW))

        self.journal.load(effect.page.positions, then)

    def end_tick(self) -> None:
        self.journal.end_of_tick()

    def store(self) -> None:
        self.end_tick()
        self.compactor.stored(self.journal.store_up_to(self.journal.boundaries[-1]))
        self.end_tick()
        self.journal.store_up_to(self.journal.boundaries[-1])
        self.journal.delete_finished()

    def attach(self, credit: int) -> tuple[ConsumerId, list[AnyEffect]]:
        consumer = a_consumer()
        return consumer, self.run(
            self.orders.handle(ConsumerAttached(1, ORDERS, consumer, a_session(), credit), NOW)
        )

    def done(self, consumer: ConsumerId, first: int, last: int) -> list[AnyEffect]:
        return self.run(self.orders.handle(Settled(ORDERS, consumer, False, [(first, last)]), NOW))

    def segments(self) -> dict[int, int]:
        return self.journal.live()


@pytest.fixture(params=[0, 10**9], ids=["on disk", "in memory"])
def story(request: pytest.FixtureRequest) -> Story:
    return Story(resident_bytes=request.param)


def test_what_waits_moves_and_the_old_segment_goes(story: Story) -> None:
    assert story.segments() == {1: RECORDS_PER_SEGMENT}
    story.compactor.step()
    story.journal.page_arrives()
    assert story.segments() == {1: RECORDS_PER_SEGMENT}, "nothing changes before the copies are stored"
    story.store()
    assert story.compactor.moved == RECORDS_PER_SEGMENT
    assert sum(story.segments().values()) == RECORDS_PER_SEGMENT
    assert 1 not in story.segments()
    assert needed_in(story.orders, 1) == {}
    consumer, effects = story.attach(100)
    while story.journal.loads:
        story.journal.page_arrives()
        effects += story.loaded
    got = sequences([each.span for each in told(effects, Dispatched)])
    assert got == list(range(1, RECORDS_PER_SEGMENT + 1))
    done = story.done(consumer, 1, RECORDS_PER_SEGMENT)
    assert [note.ranges for note in asked(done, Note)] == [[(1, RECORDS_PER_SEGMENT)]]
    assert story.segments() == {}


def test_what_is_done_while_the_copies_are_written_is_not_moved(story: Story) -> None:
    consumer, _ = story.attach(RECORDS_PER_SEGMENT)
    while story.journal.loads:
        story.journal.page_arrives()
    story.compactor.step()
    story.done(consumer, 1, 1)
    story.journal.page_arrives()
    story.done(consumer, 2, 2)
    story.store()
    assert story.compactor.moved == RECORDS_PER_SEGMENT - 2
    assert sum(story.segments().values()) == RECORDS_PER_SEGMENT - 2
    story.done(consumer, 3, RECORDS_PER_SEGMENT)
    assert story.segments() == {}, "each was released where it is now"


def test_on_a_full_disk_everything_stays_where_it_is(story: Story) -> None:
    story.compactor.step()
    story.journal.is_full = True
    story.journal.page_arrives()
    story.compactor.refused(dict.fromkeys(story.journal.refused))
    story.compactor.stored(story.journal.next_lsn)
    assert story.segments() == {1: RECORDS_PER_SEGMENT}
    story.compactor.step()
    assert not story.journal.loads, "and nothing is tried while it is full"
    story.journal.is_full = False
    story.compactor.step()
    story.journal.page_arrives()
    story.store()
    assert 1 not in story.segments()


def test_a_page_that_is_being_read_meanwhile_still_leads_to_its_messages() -> None:
    story = Story(resident_bytes=0)
    orders = story.orders
    assert isinstance(orders, Queue)
    consumer, _ = story.attach(100)
    assert story.journal.loads == 1
    story.compactor.step()
    waiting = [story.journal._loading.popleft()]  # the disk reads the page last
    story.journal.page_arrives()
    story.store()
    buffers, then = waiting.pop()
    then(buffers)
    assert all(segment_of(span.block.position) > 1 for span in orders.messages.all_spans())
    story.done(consumer, 1, RECORDS_PER_SEGMENT)
    assert story.segments() == {}
