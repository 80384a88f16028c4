"""What the server keeps for a member is read as far as it was there when it was asked, and no further."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from heliograph.clustered.kept_words import KeptWords


class Word:
    def __init__(self, number: int) -> None:
        self.number = number


class Server:
    """It hands out what it has, as much at a time as it likes, and gets more with each time."""

    def __init__(self, words: int, at_a_time: int, more: int) -> None:
        self.has = [Word(number) for number in range(words)]
        self.given = 0
        self._at_a_time = at_a_time
        self._more = more

    async def consumer(self, *_: object, **__: object) -> Server:
        return self

    async def receive_batch(self, limit: int, timeout: float) -> list[Word]:
        batch = self.has[self.given : self.given + min(limit, self._at_a_time)]
        self.given += len(batch)
        self.has += [Word(len(self.has) + index) for index in range(self._more)]
        return batch

    async def waiting(self, here: int) -> int:
        return len(self.has) - here


async def read(server: Server) -> list[int]:
    kept = KeptWords(cast("Any", server), "topic:control", server.waiting)
    await kept.subscribe()
    return [cast("Word", word).number for word in await kept.all_that_wait()]


@pytest.mark.req("H2")
@pytest.mark.timeout(20)
@pytest.mark.parametrize("more", [1, 7, 500])
def test_words_that_come_without_a_pause_hold_up_nobody_who_comes_back(more: int) -> None:
    server = Server(words=1000, at_a_time=7, more=more)
    found = asyncio.run(read(server))
    assert found == list(range(len(found)))
    assert 1000 <= len(found) <= 1000 + more + 7


@pytest.mark.req("H2")
def test_nobody_takes_a_slow_server_for_one_that_has_no_more() -> None:
    class Slow(Server):
        async def receive_batch(self, limit: int, timeout: float) -> list[Word]:
            self.calls = getattr(self, "calls", 0) + 1
            return await super().receive_batch(limit, timeout) if self.calls % 3 == 0 else []

    assert asyncio.run(read(Slow(words=100, at_a_time=7, more=0))) == list(range(100))


@pytest.mark.req("H2")
def test_where_nothing_waits_nothing_is_waited_for() -> None:
    assert asyncio.run(read(Server(words=0, at_a_time=7, more=0))) == []
