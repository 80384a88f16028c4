"""Request and reply (J9): a question is sent, and the message that answers it is waited for.

A connection's requests share one temporary queue; replies are told apart by their correlation ids. The queue
ends with the connection to the server: questions under way then fail, and the next one makes another queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Unpack

from heliograph.client.message import Received
from heliograph.client.preparing import MessageOptions
from heliograph.client.sender import renewed
from heliograph.client.subscribing import terms_of
from heliograph.model.destination import TEMPORARY_PREFIX, Address, name_of
from heliograph.model.errors import ClientFault, ConnectionLost, HeliographError, Unavailable
from heliograph.model.message import Body

if TYPE_CHECKING:
    from heliograph.client.connection import Connection
    from heliograph.client.consumer import Consumer
    from heliograph.client.session import Session

# Lanes to temporary queues that one session collects before another takes over: they are never given back,
# and few of the queues live long.
REPLY_LANES = 1000


def is_temporary(destination: str) -> bool:
    return name_of(Address(destination)).startswith(TEMPORARY_PREFIX)


class _Desk:
    """A session with a temporary queue, and the questions that wait there for their answers."""

    def __init__(self, session: Session, address: str, consumer: Consumer) -> None:
        self.session = session
        self.address = address
        self.waiting: dict[str, asyncio.Future[Any]] = {}
        self.is_open = True
        self._consumer = consumer
        self._sorting = asyncio.create_task(self._sort())

    async def _sort(self) -> None:
        fault: HeliographError = ClientFault("the connection is closed", code="closed")
        inbox = self._consumer.inbox
        try:
            while await self._consumer.more():
                for message in inbox.messages:
                    answer = self.waiting.get(message.correlation_id or "")
                    if answer is not None and not answer.done():
                        answer.set_result(message)
                    if inbox.quiet:
                        self._consumer.acknowledge_soon()
        except HeliographError as error:
            fault = error
        self.is_open = False
        lost = ConnectionLost(f"no reply can come: {fault.sentence}", code="reply-lost")
        for answer in self.waiting.values():
            if not answer.done():
                answer.set_exception(renewed(lost))
        if fault.code != "closed":
            with suppress(HeliographError):
                await self.session.close()


class Requester:
    """Asks the questions of a connection."""

    def __init__(self, connection: Connection, message_type: type[Received]) -> None:
        self._connection = connection
        self._message_type = message_type
        self._opening: asyncio.Task[_Desk] | None = None
        self._last = 0

    async def request(
        self, destination: str, body: Body, timeout: float | None, options: MessageOptions
    ) -> Any:
        """Raises Unavailable `no-reply` when none came in time, or what was wrong with the question."""
        try:
            async with asyncio.timeout(timeout):
                return await self._ask(destination, body, **options)
        except TimeoutError:
            raise Unavailable(f"nobody at {destination} replied in {timeout:g} s", code="no-reply") from None

    async def _ask(self, destination: str, body: Body, **options: Unpack[MessageOptions]) -> Any:
        desk = await self._desk()
        # Never stored: the queue for its reply ends with the connection.
        producer = await desk.session.direct_producer(destination)
        self._last += 1
        correlation_id = options.get("correlation_id") or f"{self._last}"
        if correlation_id in desk.waiting:
            raise ClientFault(f"another request is {correlation_id!r} already", code="correlation-id-in-use")
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        desk.waiting[correlation_id] = answer

        def sent(sending: asyncio.Task[str]) -> None:
            """A question that was refused gets no reply."""
            error = None if sending.cancelled() else sending.exception()
            if error is not None and not answer.done():
                answer.set_exception(error)

        options["correlation_id"] = correlation_id
        options["reply_to"] = desk.address
        sending = asyncio.create_task(producer.send_confirmed(body, **options))
        sending.add_done_callback(sent)
        try:
            return await answer
        finally:
            sending.cancel()
            del desk.waiting[correlation_id]

    async def _desk(self) -> _Desk:
        opening = self._opening
        if opening is None or (opening.done() and not _is_open(opening)):
            opening = self._opening = asyncio.create_task(self._open())
        return await asyncio.shield(opening)

    async def _open(self) -> _Desk:
        session = await self._connection.session()
        address = await self._connection.temporary_queue()
        return _Desk(session, address, await session.subscribe(terms_of(address), self._message_type))


def _is_open(opening: asyncio.Task[_Desk]) -> bool:
    return not opening.cancelled() and opening.exception() is None and opening.result().is_open


class _Lanes:
    """A session for replies, and who is using it."""

    def __init__(self, opening: asyncio.Task[Session]) -> None:
        self.opening = opening
        self.addresses: set[str] = set()
        self.users = 0


class Replier:
    """Sends replies to temporary queues, on sessions that are given up when they have met too many."""

    def __init__(
        self, open_session: Callable[[], Awaitable[Session]], lanes_per_session: int = REPLY_LANES
    ) -> None:
        self._open_session = open_session
        self._lanes_per_session = lanes_per_session
        self._lanes: _Lanes | None = None
        self._retiring: set[asyncio.Task[None]] = set()

    async def reply(self, destination: str, body: Body, options: MessageOptions) -> None:
        lanes = self._lanes_for(destination)
        lanes.users += 1
        try:
            session = await asyncio.shield(lanes.opening)
            producer = await session.producer(destination)
            await producer.send(body, **options)
        except HeliographError:
            if self._lanes is lanes and lanes.opening.done() and lanes.opening.exception() is not None:
                self._lanes = None  # the next reply tries again
            raise
        finally:
            lanes.users -= 1
            if lanes is not self._lanes and not lanes.users:
                self._retire(lanes)

    def _lanes_for(self, destination: str) -> _Lanes:
        lanes = self._lanes
        if lanes is None or (
            len(lanes.addresses) >= self._lanes_per_session and destination not in lanes.addresses
        ):
            former, lanes = lanes, _Lanes(asyncio.create_task(self._open()))
            self._lanes = lanes
            if former is not None and not former.users:
                self._retire(former)
        lanes.addresses.add(destination)
        return lanes

    async def _open(self) -> Session:
        return await self._open_session()

    def _retire(self, lanes: _Lanes) -> None:
        task = asyncio.create_task(self._close(lanes))
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    async def _close(self, lanes: _Lanes) -> None:
        """Replies to queues that are gone were reported as they were refused."""
        with suppress(HeliographError):
            session = await lanes.opening
            await session.close()
