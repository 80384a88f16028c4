"""What a message manager lacks is brought from others: content of large messages, and history that readers hold.

    who         | lacks                                           | asks
    ------------+-------------------------------------------------+----------------------
    follows     | content whose sending began before it was there | whoever leads
    leads       | content that its disk lost                      | everybody of the view
    catches up  | history that was written before it had the log  | its host
    follows     | the same                                        | whoever leads

Messages come before history: without content a backup has no place among those who count, without history it has one,
and rather lets others lead.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from heliograph.model.errors import HeliographError
from heliograph.nodes.catching_up import BRINGING_FAILED, bring_file, bring_history, bring_lost
from heliograph.nodes.following import LostPlace

if TYPE_CHECKING:
    from heliograph.nodes.replica import Replica

_FAILED: Final = (OSError, EOFError, TimeoutError, HeliographError, msgspec.DecodeError)
# How soon the others are asked again for content that none of them could give.
_TRY_AGAIN_SECONDS: Final = 0.2


class Bringing:
    """The part of a replica that asks others for what it lacks beside the log."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._content: asyncio.Task[None] | None = None
        self._history: asyncio.Task[None] | None = None
        self.lacks_history = False  # something that readers hold

    # ---- content of large messages

    def bring_content(self) -> None:
        """Who follows has heard of messages whose content it has not."""
        if not _is_busy(self._content):
            self._content = asyncio.get_running_loop().create_task(self._bring_content())

    def regain_content(self) -> None:
        """Who leads has the longest log, and may lack content all the same: others are asked for it."""
        large = self._replica.manager.large
        if not _is_busy(self._content) and large.lacks(large.references()):
            self._content = asyncio.get_running_loop().create_task(self._regain_content())

    def end_content(self) -> None:
        """Whoever was asked is not the one to ask any more."""
        if self._content is not None:
            self._content.cancel()
        self._content = None

    async def _bring_content(self) -> None:
        replica = self._replica
        following = replica.following
        while following is not None and following is replica.following and following.lacking:
            reference = next(iter(following.lacking.values()))
            try:
                await bring_file(replica.address_of_primary(), replica.manager, reference)
            except _FAILED as error:
                replica.lost_place(LostPlace(f"the content of a large message could not be had: {error}"))
                return

    async def _regain_content(self) -> None:
        """From those of the view; whoever comes later comes with a view."""
        replica, asked_in = self._replica, None
        while asked_in is not replica.view:
            asked_in = replica.view
            try:
                files = await bring_lost(replica.addresses_of_others(), replica.manager)
            except BRINGING_FAILED as error:
                replica.record("content-lacking", error=str(error) or repr(error))
                await asyncio.sleep(_TRY_AGAIN_SECONDS)
                asked_in = None
            else:
                if files:
                    replica.record("content-brought", files=files)

    # ---- history

    async def bring_history(self, address: str) -> None:
        """What readers hold of the history, before this one counts: from then on it may lead. Whatever goes wrong, it
        counts all the same."""
        replica, manager = self._replica, self._replica.manager
        self.lacks_history = True
        try:
            records = await bring_history(address, manager)
        except _FAILED as error:
            replica.record("history-lacking", error=str(error) or repr(error))
            return
        if manager is replica.manager:
            self.lacks_history = False
            manager.pipelines.follow_holds()
        if records:
            replica.record("history-brought", records=records, index=manager.place.index)

    def bring_more_history(self) -> None:
        """Somebody holds what was written before this manager had the log. Who is catching up looks for itself."""
        replica = self._replica
        if replica.is_following and not _is_busy(self._history):
            self._history = asyncio.get_running_loop().create_task(
                self.bring_history(replica.address_of_primary())
            )

    # ---- life

    def stop(self) -> None:
        self.end_content()
        if self._history is not None:
            self._history.cancel()
        self._history = None
        self.lacks_history = False


def _is_busy(task: asyncio.Task[None] | None) -> bool:
    return task is not None and not task.done()
