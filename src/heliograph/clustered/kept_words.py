"""Words `Done` that the server keeps for a member on Heliograph, whether it is there or not: the transacted mode.

    transaction: effects + Done ──▶ control topic ──▶ everybody who listens
                                         └──▶ durable subscription "done" of each member, until it lets go

A member that comes back with old copies would take what was done while it was away for new. What is kept here it
reads before it takes any copy. A word is let go when no copy that it speaks of can come any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from heliograph.model import limits
from heliograph.model.errors import ClientFault

if TYPE_CHECKING:
    from heliograph.client import Consumer, Message, Session

PROPERTY = "heliograph_clustered"
NAME = "done"
_BATCH = 500
_POLL_SECONDS = 0.1


class KeptWords:
    """One member's subscription to what is done. `waiting`: how much the server still has for it, by its name."""

    def __init__(self, session: Session, control: str, waiting: Callable[[int], Awaitable[int]]) -> None:
        self._session = session
        self._control = control
        self._waiting = waiting
        self._consumer: Consumer | None = None
        self._kept: list[Message] = []

    async def subscribe(self) -> None:
        """Before the copies. Waits while the server still expects an earlier life to come back."""
        while self._consumer is None:
            try:
                self._consumer = await self._session.consumer(
                    self._control,
                    durable=NAME,
                    selector=f"{PROPERTY} = 'done'",
                    credit=limits.CLUSTERED_HELD_MESSAGES,
                )
            except ClientFault as error:
                if error.code != "subscription-in-use":
                    raise
                await asyncio.sleep(_POLL_SECONDS)

    async def all_that_wait(self) -> list[Message]:
        """What the server has when it is asked. More may come without a pause, and is heard like any other word."""
        assert self._consumer is not None, "not subscribed"
        words: list[Message] = []
        wanted: int | None = None
        while wanted is None or len(words) < wanted:
            batch = await self._consumer.receive_batch(_BATCH, timeout=_POLL_SECONDS)
            words += batch
            self._kept += batch
            if wanted is None or not batch:
                waiting = await self._waiting(len(self._kept))
                if not waiting:
                    break
                wanted = wanted or len(words) + waiting
        return words

    async def let_go(self, words: list[Message]) -> None:
        for word in words:
            await word.acknowledge()
        gone = {id(word) for word in words}
        self._kept = [word for word in self._kept if id(word) not in gone]

    async def close(self, *, keeps: bool) -> None:
        if self._consumer is not None:
            await self._consumer.close()
            if not keeps:
                with suppress(ClientFault):
                    await self._session.unsubscribe(NAME)
