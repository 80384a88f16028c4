"""What a destination knows after it was stopped, killed or lost its power, told step by step.

The world carries out what the engines ask for and its model watches: order, marks, numbers and what is held
are checked at every step, and `drain` shows that everything is handed out once more, in order, and no more.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from heliograph.destinations import pages, waiting
from heliograph.model.block import parse
from tests.properties.destination_parties import Lane, Taker
from tests.properties.destination_world import QUEUE, World
from tests.properties.surroundings import put_managers_here
from tests.unit.destinations.stories import lone, several

pytestmark = pytest.mark.req("J3", "J4", "J11")
NO_MEMORY = 1
ENOUGH = 10**9


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    put_managers_here(monkeypatch, tmp_path)
    monkeypatch.setattr(pages, "PAGE_MESSAGES", 4)
    for module in (pages, waiting):
        monkeypatch.setattr(module, "PAGE_BYTES", 700)


class Story:
    """One client with a lane to a queue."""

    def __init__(self, resident_bytes: int) -> None:
        self.world = World(resident_bytes)
        self.client = self.world.open_session("ann")

    @property
    def lane(self) -> Lane:
        return next(lane for lane in self.world.lanes_of(self.client) if lane.address == QUEUE)

    def publish(self, *counts: int, persistent: bool = True) -> None:
        for count in counts:
            first = self.lane.next_sequence
            if count == 1:
                block = lone(first, lane=self.lane.identity, persistent=persistent)
            else:
                block = several(first, count, lane=self.lane.identity, persistent=persistent)
            assert block.buffer is not None
            self.world.publish(self.lane, block.buffer)
            self.world.check()

    def store(self) -> None:
        self.world.store(self.world.journal.boundaries[-1])
        self._read_pages()

    def attach(self, credit: int = 100) -> Taker:
        taker = self.world.attach(self.client, QUEUE, credit)
        self._read_pages()
        return taker

    def _read_pages(self) -> None:
        while self.world.journal.loads:
            self.world.page_arrives()
            self.world.check()
        self.world.check()

    def snapshot(self) -> None:
        self.world.take_snapshot()
        self.world.finish_snapshot()

    def settle(self, taker: Taker, first: int, last: int, *, returned: bool = False) -> None:
        self.world.settle(taker, [(first, last)], returned=returned, replenish=False, ask=False)
        self.world.check()

    def kill(self) -> None:
        self.world.crash(self.world.journal.boundaries[-1], machine=False)
        self.world.check()

    def stop(self) -> None:
        self.world.crash(self.world.journal.boundaries[-1], machine=True, clean=True)
        self.world.check()

    def cut_power(self) -> None:
        self.world.crash(self.world.journal.stored, machine=True)
        self.world.check()

    def deliveries(self, taker: Taker) -> list[int]:
        """How often each message that a consumer has was handed out before."""
        return [letter.copies[taker.list].deliveries for letter in taker.held.values()]

    def compact(self) -> None:
        self.world.compact()
        self._read_pages()
        self.store()
        self.store()


@pytest.mark.parametrize("resident_bytes", [NO_MEMORY, ENOUGH])
def test_a_snapshot_in_the_middle_of_everything_keeps_the_order(resident_bytes: int) -> None:
    story = Story(resident_bytes)
    story.publish(1, 3, 1, 1)
    story.store()
    story.publish(2, 1)  # still on their way to the disk
    story.snapshot()
    story.kill()
    assert len(story.attach().held) == 9
    story.world.drain()


def test_what_was_handed_out_before_a_snapshot_comes_back_marked() -> None:
    story = Story(ENOUGH)
    story.publish(4)
    story.store()
    story.settle(story.attach(3), 2, 2)
    story.snapshot()
    story.kill()
    assert story.deliveries(story.attach()) == [1, 1, 0]
    story.world.drain()


def test_what_was_done_never_comes_again() -> None:
    story = Story(ENOUGH)
    story.publish(4)
    story.store()
    taker = story.attach()
    story.settle(taker, 1, 2)
    story.settle(taker, 4, 4)
    story.kill()
    taker = story.attach()
    assert [letter.sequence for letter in taker.held.values()] == [3]
    story.world.drain()


def test_each_return_and_each_crash_counts() -> None:
    story = Story(ENOUGH)
    story.publish(1)
    story.store()
    for _ in range(2):
        taker = story.attach(2)
        story.settle(taker, 1, 1, returned=True)
        story.kill()
    assert story.deliveries(story.attach()) == [4]
    story.world.drain()


def test_a_power_cut_marks_all_and_is_not_forgotten_by_the_next_restart() -> None:
    story = Story(ENOUGH)
    story.publish(2)
    story.store()
    story.attach()  # and what is written about it is lost with the machine
    story.cut_power()
    story.kill()
    assert story.deliveries(story.attach()) == [1, 1]
    story.world.drain()


def test_messages_that_were_only_spilled_end_with_the_process() -> None:
    story = Story(NO_MEMORY)
    story.publish(1, 1)
    story.publish(1, 2, persistent=False)
    story.publish(1)
    story.store()
    story.snapshot()
    story.kill()
    assert [letter.sequence for letter in story.attach().held.values()] == [1, 2, 6]
    story.world.drain()


def test_a_message_does_not_overtake_one_that_is_being_spilled() -> None:
    story = Story(NO_MEMORY)
    story.publish(1, 1, persistent=False)  # the second finds no room in memory
    taker = story.attach()
    assert len(taker.held) == 1
    story.publish(1, persistent=False)
    story.store()
    assert [letter.sequence for letter in taker.held.values()] == [1, 2, 3]
    story.world.drain()


def test_a_message_that_found_no_room_anywhere_is_refused_and_not_confirmed() -> None:
    story = Story(NO_MEMORY)
    story.publish(1, persistent=False)
    story.world.journal.is_full = True
    story.publish(1, persistent=False)
    assert story.lane.refused
    assert story.lane.confirmed == 1
    story.world.drain()


def test_a_persistent_message_is_confirmed_when_it_is_stored_and_not_by_a_later_one() -> None:
    story = Story(ENOUGH)
    story.publish(1)
    story.publish(1, persistent=False)
    assert story.lane.confirmed == 0
    story.store()
    assert story.lane.confirmed == 2
    story.cut_power()
    story.world.drain()


@pytest.mark.parametrize("resident_bytes", [NO_MEMORY, ENOUGH])
def test_records_that_were_moved_are_found_after_a_crash(resident_bytes: int) -> None:
    story = Story(resident_bytes)
    story.publish(1, 1, 1, 2, 1, 1)
    story.store()
    for _ in range(12):
        story.world.close_session(story.world.open_session("eve"))
    story.snapshot()
    taker = story.attach(2)
    story.settle(taker, 1, 1)
    moved = -1
    while story.world.manager._compactor.moved != moved:
        moved = story.world.manager._compactor.moved
        story.compact()
    assert moved > 0
    story.kill()
    assert len(story.attach().held) == 6
    story.world.drain()


def test_a_session_goes_on_after_a_crash_where_the_journal_ends() -> None:
    story = Story(ENOUGH)
    story.publish(2, 1)
    story.store()
    story.publish(3)
    story.cut_power()
    story.world.resume_session(story.client)
    assert story.lane.mark == 6
    story.publish(1)
    assert parse(story.lane.sent[-1].buffer).first == 7
    story.world.drain()


def test_after_a_clean_stop_only_what_was_handed_out_is_marked() -> None:
    story = Story(ENOUGH)
    story.publish(3)
    story.store()
    story.attach(1)
    story.stop()
    assert story.deliveries(story.attach()) == [1, 0, 0]
    story.world.drain()
