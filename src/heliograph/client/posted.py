"""A very large message on its lane, until the server has it (M6).

A server may lack the content that another has: it was started anew, or is in another part of a cluster that was cut.
The message may have been accepted elsewhere all the same. So it stays the one that it is, by lane and sequence, under
which it is known everywhere; its lane waits until the content is there again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from heliograph.client.waiting import Signal
from heliograph.model.errors import HeliographError

if TYPE_CHECKING:
    from heliograph.client.sender import Sender

LARGE_UNKNOWN = "large-unknown"  # what a server says that lacks the content of a message


class Posted(asyncio.Future[str]):
    """The receipt of a message whose sender can bring its content again."""

    def __init__(self, sender: Sender) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self.sender = sender
        self.refusal: HeliographError | None = None  # of a server that lacks the content, until it is brought
        self._told = Signal()
        self.add_done_callback(lambda _: self._told.wake())

    def lacks(self, refusal: HeliographError) -> None:
        self.refusal = refusal
        self._told.wake()

    async def is_lacking(self) -> bool:
        """Wait for the server's word: whether it lacks the content. Otherwise the outcome is there."""
        while not self.done():
            if self.refusal is not None:
                return True
            await self._told.wait()
        return False
