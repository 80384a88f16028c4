"""A journal is read by the index of the log that it has a part in: over places, cuts, and what was brought (D2)."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import pytest

from heliograph.cluster.history import Brought, Cut, HistoryMap
from heliograph.cluster.log import encode_place
from heliograph.journal.feed import Fed, Portion
from heliograph.journal.records import RecordKind
from heliograph.model.errors import ClientFault, CorruptJournal
from heliograph.nodes.log_history import Known, LogHistory, history_record
from tests.unit.journal.stories import DONE, PUBLISHED, Opened, block, run

pytestmark = pytest.mark.req("D2")
T = TypeVar("T")
NOTHING_MISSING = HistoryMap()


class Log:
    """A journal with some of a log in it."""

    def __init__(self, path: pathlib.Path) -> None:
        self._opened = Opened(path)
        self.journal = self._opened.journal
        self.history = LogHistory()
        self.map = NOTHING_MISSING

    def write(self, *numbers: int) -> int:
        """Messages, in a frame. Returns the last LSN."""
        for number in numbers:
            self._put(PUBLISHED, block(number))
        return self.journal.write_now()

    def brings(self, *numbers: int, others: int = 0) -> int:
        """Messages that have their number for index; or `others`, of a branch. Returns the last LSN."""
        first = self.journal.next_lsn
        for number in numbers:
            fed = Fed(PUBLISHED, 1, 2, number, block(number + others))
            self._put(RecordKind.HISTORY, history_record(fed))
        last = self.journal.write_now()
        self.map = self.map.with_brought(Brought(first, last))
        return last

    def place(self, index: int) -> None:
        self._put(RecordKind.PLACE, encode_place(index))
        self.journal.write_now()

    def of_this_journal_alone(self) -> None:
        self._put(RecordKind.MOVED, block(999))

    def _put(self, kind: int, payload: bytes) -> None:
        self.journal.append(kind, 1, 2, (payload,), len(payload))

    async def look(self, index: int, job: Callable[[LogHistory], T]) -> T:
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        known = Known(self.journal.write_now(), index, self.map)

        def found(result: T | Exception) -> None:
            if isinstance(result, Exception):
                answer.set_exception(result)
            else:
                answer.set_result(result)

        self.journal.feed(lambda feed, numbers: job(self.history.on(feed, numbers, known)), found)
        return await answer

    async def read(self, index: int, after: int = 0, limit: int = 1) -> list[tuple[int, bytes]]:
        """All of it, portion by portion, when the log is at an index."""
        found: list[tuple[int, bytes]] = []
        while after < index:
            portion = await self.look(index, partial(_portion, after=after, until=index, limit=limit))
            assert portion.upto > after
            found += [(fed.lsn, fed.payload) for fed in portion.records]
            after = portion.upto
        return found


def _portion(log: LogHistory, *, after: int, until: int, limit: int) -> Portion:
    return log.read([], after, until, limit, lambda *_: True)


def told(*numbers: int) -> list[tuple[int, bytes]]:
    return [(number, block(number)) for number in numbers]


def test_records_of_this_journal_alone_do_not_count(tmp_path: pathlib.Path) -> None:
    async def story() -> None:
        log = Log(tmp_path)
        log.write(1, 2)
        log.of_this_journal_alone()
        log.write(3)
        assert await log.read(3) == told(1, 2, 3)
        log.of_this_journal_alone()
        log.write(4, 5)
        assert await log.read(5, after=2, limit=10_000) == told(3, 4, 5)
        log.journal.close()

    run(story())


def test_where_a_journal_begins_in_the_middle_it_is_counted_back_from_a_place(tmp_path: pathlib.Path) -> None:
    async def story() -> None:
        log = Log(tmp_path)
        log.journal._writer.next_lsn = 500  # as if all before had been deleted
        log.write(101, 102)
        log.place(102)
        log.write(103)
        assert await log.look(103, lambda history: history.first()) == 100
        assert await log.read(103, after=100) == told(101, 102, 103)
        with pytest.raises(ClientFault) as gone:
            await log.read(103, after=99)
        assert gone.value.code == "feed-gone"
        log.journal.close()

    run(story())


def test_what_a_cut_disowned_is_in_no_history_and_nobody_reads_over_a_hole(tmp_path: pathlib.Path) -> None:
    async def story() -> None:
        log = Log(tmp_path)
        log.write(1, 2, 3)
        last = log.write(77, 78)  # a branch: in the log, 4 and 5 are others
        log.map = log.map.with_cut(Cut(last, 3, 6))
        log.write(7, 8)
        assert await log.look(8, lambda history: history.first()) == 6
        assert await log.look(8, lambda history: history.missing(0, 8)) == [(3, 6)]
        assert await log.read(8, after=6) == told(7, 8)
        with pytest.raises(ClientFault):
            await log.read(8, after=2)
        log.brings(4, 5, 6)
        log.write(9)
        assert await log.look(9, lambda history: history.missing(0, 9)) == []
        for limit in (1, 10_000):
            assert await log.read(9, limit=limit) == told(*range(1, 10))
        log.journal.close()

    run(story())


def test_what_was_brought_of_a_branch_is_disowned_though_what_is_brought_later_goes_on_by_index(
    tmp_path: pathlib.Path,
) -> None:
    async def story() -> None:
        log = Log(tmp_path)
        log.map = log.map.with_cut(Cut(log.write(1, 2), 2, 6))
        log.brings(3, 4)
        last = log.brings(5, 6, others=70)  # it caught up with a part that was restricted
        log.map = log.map.with_cut(Cut(last, 4, 7))
        log.brings(5, 6, 7)
        log.write(8)
        for limit in (1, 10_000):
            assert await log.read(8, limit=limit) == told(*range(1, 9))
        log.journal.close()

    run(story())


def test_what_was_not_brought_to_its_end_does_not_count(tmp_path: pathlib.Path) -> None:
    async def story() -> None:
        log = Log(tmp_path)
        log.map = log.map.with_cut(Cut(0, 0, 3))
        before = log.map
        log.brings(1, 2)
        log.map = before
        log.write(4)
        assert await log.look(4, lambda history: history.first()) == 3
        log.journal.close()

    run(story())


def test_a_log_that_does_not_come_to_what_it_says_is_refused(tmp_path: pathlib.Path) -> None:
    async def story() -> None:
        log = Log(tmp_path)
        log.write(1, 2)
        log.place(3)
        with pytest.raises(CorruptJournal):
            await log.read(3)
        log.journal.close()

    run(story())


def test_notes_are_read_with_their_index_and_copied_as_they_stand(tmp_path: pathlib.Path) -> None:
    async def story() -> None:
        log = Log(tmp_path)
        log.write(1)
        log._put(DONE, b"noted")
        log.write(3)
        portion = await log.look(3, lambda history: history.copy(0, 3, 10_000))
        assert [(fed.kind, fed.lsn) for fed in portion.records] == [(PUBLISHED, 1), (DONE, 2), (PUBLISHED, 3)]
        assert portion.upto == 3
        log.journal.close()

    run(story())
