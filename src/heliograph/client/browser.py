"""A browser: looks at what waits in a queue without taking it (J9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heliograph.client.consumer import Consumer
from heliograph.client.incoming import Mode
from heliograph.client.message import Delivery, Message, Received
from heliograph.client.subscribing import Terms
from heliograph.frontends.native.frames import credit_frame
from heliograph.model.errors import ClientFault, ConnectionLost

if TYPE_CHECKING:
    from heliograph.client.session import Session


class Browser(Consumer):
    """Shows what was there when it came, in order, and ends by itself. Made by `Session.browser`.

    What was handed over makes room for more; nothing is ever acknowledged. A lost connection interrupts it
    for good: on another one it would begin anew.
    """

    def __init__(
        self, session: Session, number: int, terms: Terms, *, message_type: type[Received] = Message
    ) -> None:
        super().__init__(session, number, terms, mode=Mode.CLIENT, message_type=message_type)
        self._has_seen_all = False

    async def more(self, timeout: float | None = None) -> bool:
        if await super().more(timeout):
            return True
        if self._has_seen_all:
            await self.leave(complete=True)
        return False

    def take_next(self) -> bool:
        found = super().take_next()
        inbox = self.inbox
        if inbox.done.count and self._wire is not None and (inbox.is_due or not found):
            if not self._has_seen_all:
                self._wire.write(credit_frame(self._session.number, self.number, inbox.done.count))
            inbox.done.clear()
        return found

    @property
    def is_over(self) -> bool:
        return self._is_closed or self._has_seen_all

    def check_open(self) -> None:
        if not self._has_seen_all:
            super().check_open()

    def browse_ended(self) -> None:
        self._has_seen_all = True
        self._changed.wake()

    # ---- what it does not do

    async def acknowledge_message(self, delivery: Delivery, index: int, *, confirm: bool) -> None:
        raise _only_looked_at()

    async def return_message(self, delivery: Delivery, index: int, error: str) -> None:
        raise _only_looked_at()

    async def acknowledge(self, *, confirm: bool) -> None:
        """The session acknowledges what was received; this was not."""

    def suspend(self) -> int:
        """What was only looked at does not come again."""
        return 0

    @property
    def has_consumed(self) -> bool:
        return False

    # ---- the connection

    @property
    def is_resumable(self) -> bool:
        return not self.is_subscribed

    def detach(self) -> None:
        if not self.is_subscribed:
            super().detach()
            return
        self._wire = None
        if not self._has_seen_all:
            self.end(ConnectionLost("the connection was lost: browse again", code="browse-interrupted"))


def _only_looked_at() -> ClientFault:
    return ClientFault("a message that was only looked at is not acknowledged or returned", code="browsing")
