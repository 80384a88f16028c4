"""Receiving from a distributed destination (U6): one consumer for the application, one at each member for the server.

The parts are consumers like any other, known to the session: it acknowledges, commits, rolls back and resumes them by
itself. Here is only the switch: the inbox that the application draws from is that of one part after the other, a
delivery at a time. What was drawn from one is complete when the application asks for more, as it is with a single
consumer.

A member that cannot be reached is left out, and joined when it can be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from heliograph.client.browser import Browser
from heliograph.client.consumer import Consumer
from heliograph.client.incoming import Mode
from heliograph.client.message import Received
from heliograph.client.routes import Route
from heliograph.client.subscribing import Terms
from heliograph.model.distribution import UNREACHABLE
from heliograph.model.errors import HeliographError
from heliograph.model.limits import HANDSHAKE_SECONDS

if TYPE_CHECKING:
    from heliograph.client.session import Session

MakePart = Callable[[str], Awaitable[Consumer]]
"""A consumer of one member. Raises OrderBroken if it cannot be reached."""


class FanIn(Consumer):
    """What the consumer and the browser of a distributed destination have in common."""

    def __init__(
        self, session: Session, route: Route, terms: Terms, mode: Mode, message_type: type[Received]
    ) -> None:
        # It is not known to the server, and its inbox is a part's, as soon as there is one with something in it.
        Consumer.__init__(self, session, 0, terms, mode=mode, message_type=message_type)
        self._route = route
        self._parts: dict[str, Consumer] = {}
        self._current: Consumer | None = None
        self._joining: asyncio.Task[None] | None = None
        self._is_joining = False
        self._is_wanted = True  # whether somebody wants members to be joined who is not served yet
        self._make: MakePart | None = None

    async def begin(self, make: MakePart) -> None:
        """Join all members that can be reached. Raises what any of them refuses."""
        self._make = make
        try:
            await self._join()
        except BaseException:
            await self.leave(complete=False)
            raise

    async def _join(self) -> None:
        """One at a time, so that no member is joined twice; and once more if somebody wanted to meanwhile."""
        self._is_joining = True
        try:
            while self._is_wanted:
                self._is_wanted = False
                for member in self._route.members:
                    await self._join_one(member)
        finally:
            self._is_joining = False

    async def _join_one(self, member: str) -> None:
        assert self._make is not None, "it has begun"
        part = self._parts.get(member)
        if self._is_closed or (part is not None and part.fault is None):
            return
        try:
            part = await self._make(member)
        except HeliographError as refusal:
            if refusal.code != UNREACHABLE:
                raise
            return
        part.share_signal(self._changed)
        self._parts[member] = part
        self._changed.wake()
        if self._is_closed:  # meanwhile
            await part.leave(complete=False)

    def join_again(self) -> None:
        """There is another connection: members may be there that were not."""
        self._is_wanted = True
        if not self._is_joining and not self._is_closed:
            self._is_joining = True
            self._joining = self._loop.create_task(self._join_missing())

    async def _join_missing(self) -> None:
        try:
            await self._join()
        except HeliographError as error:
            self._session.report(error)
        finally:
            self._joining = None

    # ---- the switch

    def take_next(self) -> bool:
        if self._current is not None:
            self._current.set_aside()
        for member, part in self._in_turn():
            if part.take_next():
                self._current, self.inbox = part, part.inbox
                # It goes behind the others, so that each gets its turn.
                self._parts[member] = self._parts.pop(member)
                return True
        return False

    def _in_turn(self) -> list[tuple[str, Consumer]]:
        return [(member, part) for member, part in self._parts.items() if part.fault is None]

    def acknowledge_soon(self) -> None:
        if self._current is not None:
            self._current.acknowledge_soon()

    @property
    def fault(self) -> HeliographError | None:
        """When all parts have come to an end."""
        faults = [part.fault for part in self._parts.values()]
        if self._is_joining or len(faults) < len(self._route.members) or None in faults:
            return None
        return faults[0]

    @property
    def is_over(self) -> bool:
        parts = self._parts.values()
        return self._is_closed or (
            len(parts) >= len(self._route.members) and all(part.is_over for part in parts)
        )

    # ---- the end

    async def leave(self, *, complete: bool, with_session: bool = False) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._session.forget_fan_in(self)
        self._changed.wake()
        if self._joining is not None:
            await self._stop_joining(self._joining)
        for part in list(self._parts.values()):
            await part.leave(complete=complete, with_session=with_session)

    async def _stop_joining(self, joining: asyncio.Task[None]) -> None:
        """What was asked of a server that is there is answered, so that nobody is left with a consumer that nobody
        knows of."""
        if not self._session.is_connected:
            joining.cancel()
        with suppress(asyncio.CancelledError, TimeoutError):
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                await joining


class DistributedConsumer(FanIn):
    """Receives from all members of a distributed destination. Made by `Session.consumer`."""


class DistributedBrowser(FanIn, Browser):
    """Shows what waits in all members, each in its order, and ends by itself. Made by `Session.browser`."""

    def __init__(self, session: Session, route: Route, terms: Terms, message_type: type[Received]) -> None:
        FanIn.__init__(self, session, route, terms, Mode.CLIENT, message_type)
        self._has_seen_all = False

    async def more(self, timeout: float | None = None) -> bool:
        if await Consumer.more(self, timeout):
            return True
        if self.is_over:
            self._has_seen_all = True
            await self.leave(complete=True)
        return False

    @property
    def is_over(self) -> bool:
        """Nobody waits for a member that cannot be looked into."""
        return self._is_closed or all(part.is_over for part in self._parts.values())
