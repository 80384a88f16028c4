"""A member's work: messages that are its own go through the handler, lane by lane, and everybody is told when
they are done.

Without transactions the word `Done` follows the handler, many messages in one. In the transacted mode it is sent in
the transaction of what the handler sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from heliograph.clustered.adapter import Delivery, Transacting
from heliograph.clustered.clock import lease_clock
from heliograph.clustered.holding import Held, Holding
from heliograph.clustered.membership import Membership
from heliograph.clustered.words import Done, encoded
from heliograph.model import limits
from heliograph.model.errors import ClientFault, TransactionRolledBack

log = logging.getLogger("heliograph.clustered")
_FAILURE_SECONDS = (0.1, 5.0)
_TURN_SECONDS = 0.005


@dataclass(slots=True)
class ClusteredMessage:
    """A message that is this member's to process."""

    delivery: Delivery
    token: int
    """The fencing token: the epoch in which it was begun. A resource that refuses a token lower than the highest it
    has seen is safe from a member that was stopped for longer than its lease."""
    session: Any = None
    """In the transacted mode: what is sent in this session takes effect together with the acknowledgement."""

    @property
    def id(self) -> str:
        return self.delivery.id

    @property
    def body(self) -> bytes:
        return self.delivery.body

    @property
    def redelivered(self) -> bool:
        return self.delivery.redelivered


Handler = Callable[[ClusteredMessage], Awaitable[bytes | None]]
Finished = list[tuple[Held, bytes | None]]


@dataclass(slots=True)
class Figures:
    """What a member has done, over all its incarnations."""

    received: int = 0
    processed: int = 0
    marked: int = 0
    failed: int = 0
    incarnations: int = 0
    asked: int = 0
    poisonous: int = 0
    """Messages of which nobody could say whose they are."""


class Working:
    """The lanes of one incarnation."""

    def __init__(
        self,
        handler: Handler,
        membership: Membership,
        holding: Holding,
        figures: Figures,
        *,
        lanes: int,
        shares_results: bool,
        transacting: Transacting | None,
        say: Callable[[Done], None],
        given_up: Callable[[], None],
    ) -> None:
        """`say`: a word for everybody. `given_up`: a message is not under way any more although it is not done."""
        if transacting is not None and lanes > 1:
            raise ClientFault("a transacted member has one lane: it has one session", code="member-lanes")
        self._handler = handler
        self._membership = membership
        self._holding = holding
        self._figures = figures
        self._shares_results = shares_results
        self._transacting = transacting
        self._say = say
        self._given_up = given_up
        self._clock = lease_clock
        self._events = [asyncio.Event() for _ in range(lanes)]
        self._finished: Finished = []
        self._has_finished = asyncio.Event()
        self._singly = 0

    def wake(self) -> None:
        """There may be something to do."""
        for event in self._events:
            event.set()

    async def run_lane(self, lane: int) -> None:
        event = self._events[lane]
        began = self._clock()
        while True:
            if self._clock() - began > _TURN_SECONDS:
                await asyncio.sleep(0)  # a handler that never waits would keep the lease from being renewed
                began = self._clock()
            held = self._next(lane)
            if held is None:
                event.clear()
                await event.wait()
            elif self._transacting is None:
                await self._process(held)
            else:
                await self._process_together(held, lane, self._transacting)

    def _next(self, lane: int) -> Held | None:
        return self._holding.take(lane) if self._membership.may_act(self._clock()) else None

    def _one_more(self, lane: int, batch: list[Held], began: float) -> Held | None:
        """If it fits the transaction: not too many, and not for long, because who drains waits for it."""
        most = limits.CLUSTERED_RESULTS if self._shares_results else limits.CLUSTERED_TRANSACTION_MESSAGES
        has_time = self._clock() - began < limits.CLUSTERED_TRANSACTION_SECONDS
        return self._next(lane) if len(batch) < most and has_time and not self._singly else None

    async def _process(self, held: Held) -> None:
        try:
            result = await self._handler(ClusteredMessage(held.delivery, self._membership.epoch))
        except Exception as error:
            await self._failed([held], error)
            return
        self._finish(held)
        self._finished.append((held, result))
        self._has_finished.set()

    async def _process_together(self, first: Held, lane: int, transacting: Transacting) -> None:
        """What the handler sends for some, and the word that they are done: all of it or nothing. One by one, if the
        last transaction failed.

        If nobody knows whether the commit took effect, this incarnation ends: the word, if it was said, is heard.
        """
        session = await transacting.begin()
        finished: Finished = []
        batch: list[Held] = []
        began = self._clock()
        held: Held | None = first
        try:
            while held is not None:
                batch.append(held)
                message = ClusteredMessage(held.delivery, self._membership.epoch, session)
                finished.append((held, await self._handler(message)))
                held = self._one_more(lane, batch, began)
        except Exception as error:
            await transacting.roll_back()
            await self._failed(batch, error)
            return
        number = self._membership.done_words + 1
        try:
            await transacting.commit(encoded(self._word(number, finished)))
        except TransactionRolledBack as error:
            await transacting.roll_back()
            await self._failed(batch, error)
            return
        self._membership.done_words = number
        self._singly = max(0, self._singly - 1)
        for each in batch:
            self._finish(each)

    def _finish(self, held: Held) -> None:
        self._figures.processed += 1
        self._figures.marked += held.delivery.redelivered
        self._holding.finish(held)

    async def _failed(self, batch: list[Held], error: Exception) -> None:
        """They are tried again, one by one, before anything behind them in their lane: order counts more."""
        self._figures.failed += 1
        if len(batch) > 1:
            self._singly = len(batch)
        elif not isinstance(error, TransactionRolledBack):
            held = batch[0]
            log.warning("message %s could not be processed", held.delivery.id, exc_info=error)
            first, most = _FAILURE_SECONDS
            await asyncio.sleep(min(first * 2**held.failures, most))
            held.failures += 1
        for held in reversed(batch):
            self._holding.give_up(held)
        self._given_up()

    async def tell_done(self) -> None:
        """What is finished within a moment is told in one word."""
        most = limits.CLUSTERED_RESULTS if self._shares_results else limits.CLUSTERED_DONE_IDS
        while True:
            await self._has_finished.wait()
            await asyncio.sleep(limits.CLUSTERED_DONE_SECONDS)
            self._has_finished.clear()
            finished, self._finished = self._finished, []
            for at in range(0, len(finished), most):
                self._membership.done_words += 1
                self._say(self._word(self._membership.done_words, finished[at : at + most]))

    def _word(self, number: int, finished: Finished) -> Done:
        results: list[bytes | None] = []
        if self._shares_results:
            results = [result for _, result in finished]
            for result in results:
                if not isinstance(result, bytes | None):
                    raise ClientFault(
                        f"a result that is shared is bytes or None, not {type(result).__name__}: let the handler"
                        " return one of these",
                        code="result-invalid",
                    )
            if any(result is not None and len(result) > limits.CLUSTERED_RESULT_BYTES for result in results):
                raise ClientFault(
                    "a result is too large to be shared: send it by a topic", code="result-too-large"
                )
        ids = [held.delivery.id for held, _ in finished]
        return Done(self._membership.name, self._membership.key[1], number, ids, results)
