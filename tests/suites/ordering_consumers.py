"""A process with some of the consumers of the ordering test; it may be killed at any moment.

    python -m tests.suites.ordering_consumers URL BOARD UNITS FIRST-LIFE CONSUMERS SEED RETURNED CUT

Each consumer has a connection to itself and a manner: it acknowledges one by one, all at once, by commit, or by
asking for more. Now and then it gives something back (RETURNED of the messages, where it acknowledges one by one),
or its connection breaks (before CUT of the batches are settled).
"""

from __future__ import annotations

import asyncio
import random
import struct
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop

import heliograph
from heliograph import ConnectionLost, HeliographError, Message, TransactionRolledBack
from tests.suites.ordering_board import Board, Hands

QUEUE = "queue:ordering"
PLACE = struct.Struct("<II")  # a message's body: its unit, and its number there
FAILED = 0.05  # of batches
BATCH = 64


class Competitor:
    """One consumer."""

    def __init__(self, url: str, board: Board, life: int, *, seed: int, returned: float, cut: float) -> None:
        self._url = url
        self._returned = returned
        self._cut_off = cut
        self._board = board
        self._hands = Hands(board, life)
        self._dice = random.Random(f"{seed}-{life}")
        self._mode, self._settle = self._manners()[life % 4]
        self._connection: heliograph.Connection
        self._session: heliograph.Session

    def _manners(self) -> list[tuple[str, Callable[[list[Message]], Awaitable[None]]]]:
        return [
            ("individual", self._one_by_one),
            ("client", self._all_at_once),
            ("transacted", self._by_commit),
            ("auto", self._by_asking),
        ]

    async def run(self) -> None:
        async with heliograph.connect(self._url, on_error=_expected) as self._connection:
            self._session = await self._connection.session(acknowledge=self._mode)  # type: ignore[arg-type]
            consumer = await self._session.consumer(QUEUE, credit=self._dice.choice((1, 10, 100, 10_000)))
            while not self._board.is_over:
                batch = await consumer.receive_batch(self._dice.randint(1, BATCH), timeout=0.2)
                self._look_at(batch)
                if batch and self._dice.random() < self._cut_off:
                    await self._cut(batch)
                elif batch:
                    await self._settle(batch)

    def _look_at(self, batch: list[Message]) -> None:
        for message in batch:
            wrong = self._hands.take(*_place(message), marked=message.redelivered)
            if wrong:
                print(f"{wrong} (mode {self._mode}, marked: {message.redelivered})", flush=True)

    async def _cut(self, batch: list[Message]) -> None:
        """The connection breaks. What it has stays with it, but for an open transaction."""
        link = self._connection._link
        wire = link.wire
        if wire is not None and wire._transport is not None:
            wire._transport.abort()
            while link.wire is wire:
                await asyncio.sleep(0)
        if self._mode == "transacted":
            self._hands.drop_all()
            await self._session.rollback()
        else:
            await self._settle(batch)

    # ---- manners

    async def _one_by_one(self, batch: list[Message]) -> None:
        returned: set[int] = set()
        for message in batch:
            unit, number = _place(message)
            if unit in returned:
                continue  # it went back together with the one before it
            if self._dice.random() < self._returned:
                self._hands.drop(unit)
                returned.add(unit)
                await message.return_()
            else:
                self._hands.done(unit, number)
                await message.acknowledge()

    async def _all_at_once(self, batch: list[Message]) -> None:
        if self._fails():
            await self._session.recover()
        else:
            self._process(batch)
            await self._session.acknowledge()

    async def _by_commit(self, batch: list[Message]) -> None:
        try:
            if self._fails():
                await self._session.rollback()
            else:
                self._process(batch)
                await self._session.commit()
        except (TransactionRolledBack, ConnectionLost):
            pass  # it all comes again

    async def _by_asking(self, batch: list[Message]) -> None:
        """Asking for more says that it is processed."""
        if self._fails():
            await self._session.recover()
        else:
            self._process(batch)

    def _fails(self) -> bool:
        if self._dice.random() < FAILED:
            self._hands.drop_all()
            return True
        return False

    def _process(self, batch: list[Message]) -> None:
        for message in batch:
            self._hands.done(*_place(message))


def _place(message: Message) -> tuple[int, int]:
    assert isinstance(message.body, bytes)
    unit, number = PLACE.unpack(message.body)
    return unit, number


def _expected(_error: HeliographError) -> None:
    """Connections are cut on purpose here."""


async def _main(arguments: list[str]) -> None:
    url, board = arguments[:2]
    units, first, consumers, seed = map(int, arguments[2:6])
    returned, cut = map(float, arguments[6:])
    shared = Board(Path(board), units)
    lives = range(first, first + consumers)
    await asyncio.gather(
        *[Competitor(url, shared, life, seed=seed, returned=returned, cut=cut).run() for life in lives]
    )


if __name__ == "__main__":
    uvloop.run(_main(sys.argv[1:]))
