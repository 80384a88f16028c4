"""A producer whose messages are stored here first, and forwarded when the server is there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Unpack, cast

from heliograph.client.forwarding.agent import Agent, unsupported
from heliograph.client.forwarding.ledger import Lane
from heliograph.client.large_source import StreamSource
from heliograph.client.preparing import MessageOptions, OnCompletion, Outgoing, ProducerOptions, SendOptions
from heliograph.client.producer import Producer
from heliograph.model.block import BodyKind
from heliograph.model.errors import ClientFault
from heliograph.model.limits import FORWARD_READ_BYTES, LARGE_THRESHOLD_BYTES
from heliograph.model.message import Body

if TYPE_CHECKING:
    from heliograph.client.sender import Sender
    from heliograph.client.session import Session


class StoringProducer(Producer):
    """As `Producer`, but `send` returns when the message is on the local disk."""

    def __init__(
        self, session: Session, agent: Agent, lane: Lane, **options: Unpack[ProducerOptions]
    ) -> None:
        # It has no way of its own to the server: everything that would use one is replaced below.
        super().__init__(session, cast("Sender", None), **options)
        self._agent = agent
        self._lane = lane
        if not self._persistent:
            raise unsupported("what is stored and forwarded is persistent")

    def _shut_gate(self) -> None:
        """It has none."""

    @property
    def destination(self) -> str:
        return self._lane.destination

    @property
    def unconfirmed(self) -> int:
        """Messages to this destination that are stored, or about to be, and not confirmed by the server."""
        return self._agent.unconfirmed(self._lane)

    @property
    def is_blocked(self) -> bool:
        """Never: a server that wants us to wait is waited for by the store."""
        return False

    async def send(self, body: Body, **options: Unpack[SendOptions]) -> None:
        """Send: returns when the message is on the local disk. Raises StorageFull `store-full` if it cannot be.

        `on_completion` hears when the server has it; `timeout` is not needed, because nothing is waited for.
        """
        on_completion = options.pop("on_completion", None)
        options.pop("timeout", None)
        await self.post(self.prepare(body, **cast(MessageOptions, options)), on_completion)

    async def send_all(self, bodies: Iterable[Body], **options: Unpack[MessageOptions]) -> None:
        """Send many: returns when all are on the local disk, with few synchronisations.

        If it raises, those before the one that could not be stored may have been.
        """
        size = 0
        stored: asyncio.Future[None] | None = None
        for body in bodies:
            message = self.prepare(body, **options)
            stored = self._put(message)
            size += message.size
            if size >= FORWARD_READ_BYTES:
                await asyncio.shield(stored)
                size = 0
        if stored is not None:
            await asyncio.shield(stored)

    async def try_send(self, body: Body, **options: Unpack[SendOptions]) -> bool:
        """Send if the store has room. Whether it had."""
        on_completion = options.pop("on_completion", None)
        options.pop("timeout", None)
        message = self.prepare(body, **cast(MessageOptions, options))
        if not self._agent.has_room(message):
            return False
        await self.post(message, on_completion)
        return True

    async def send_confirmed(self, body: Body, **options: Unpack[MessageOptions]) -> str:
        """Send and wait until the server has the message, however long it is away. Returns its id."""
        return await self.post_confirmed(self.prepare(body, **options))

    async def send_stream(
        self,
        source: StreamSource,
        *,
        threshold: int = LARGE_THRESHOLD_BYTES,
        **options: Unpack[MessageOptions],
    ) -> str:
        """Refused: very large messages are not stored."""
        raise unsupported("very large messages are not stored and forwarded")

    async def post(
        self, message: Outgoing, on_completion: OnCompletion | None = None, timeout: float | None = None
    ) -> None:
        await asyncio.shield(self._put(message, on_completion))

    async def post_confirmed(self, message: Outgoing) -> str:
        receipt: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._put(message, receipt))
        return await receipt

    def _put(self, message: Outgoing, receipt: Any = None) -> asyncio.Future[None]:
        if self._is_closed:
            raise ClientFault(f"the producer to {self.destination} is closed", code="closed")
        if not message.persistent:
            raise unsupported("what is stored and forwarded is persistent")
        if message.kind == BodyKind.LARGE:
            raise unsupported("very large messages are not stored and forwarded")
        return self._agent.put(self._lane, message, receipt)

    async def flush(self) -> None:
        """Wait until the server has everything sent to this destination so far."""
        await self._agent.confirmed(self._lane)

    async def close(self) -> None:
        """Send no more. What was sent is stored, and is forwarded in time."""
        self._is_closed = True

    async def __aexit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        self._is_closed = True
