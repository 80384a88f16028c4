"""A message as the application holds it, and the delivered block that it came in.

A message is three words: its body, the delivery it shares with its neighbours, and its place there.
Everything else is looked up in the delivery when somebody asks, so that a message nobody looks into costs
nothing but its body.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from copy import copy
from itertools import groupby
from typing import Any, Protocol, TypeVar, Unpack

import msgspec

from heliograph.client.large_reading import BlockingStream, BodyStream, MessageStream
from heliograph.client.preparing import MessageOptions
from heliograph.model import block
from heliograph.model.block import BodyKind, Contents
from heliograph.model.ids import message_id
from heliograph.model.large import LargeReference
from heliograph.model.message import Body, Head, Property, decode_body, decode_head
from heliograph.model.units import NO_UNIT

MICROSECONDS = 1_000_000
_NO_HEAD = Head()
T = TypeVar("T")


class Settler(Protocol):
    """Who takes the acknowledgement of a delivered message: its consumer."""

    @property
    def destination(self) -> str: ...

    def acknowledge_message(
        self, delivery: Delivery, index: int, *, confirm: bool
    ) -> Coroutine[Any, Any, None]: ...

    def acknowledge_from_thread(self, delivery: Delivery, index: int, *, confirm: bool) -> None: ...

    def return_message(self, delivery: Delivery, index: int, error: str) -> Coroutine[Any, Any, None]: ...

    def reply(self, message: Received, body: Body, options: MessageOptions) -> Coroutine[Any, Any, None]: ...

    def run_from_thread(self, work: Coroutine[Any, Any, T]) -> T: ...

    def open_large(self, destination: str, reference: LargeReference) -> MessageStream: ...


class Delivery:
    """One delivered block, or what is left of it: the part that its messages share."""

    __slots__ = (
        "_head",
        "_head_index",
        "bodies",
        "contents",
        "destination",
        "earlier",
        "epoch",
        "first_tag",
        "owner",
        "start",
        "user_id",
    )

    def __init__(
        self,
        contents: Contents,
        owner: Settler,
        *,
        first_tag: int,
        earlier: int = 0,
        user_id: str | None = None,
        epoch: int = 0,
        destination: str = "",
    ) -> None:
        self.contents = contents
        self.destination = destination  # where it comes from, if not from its consumer's only destination
        self.owner = owner
        self.first_tag = first_tag
        self.earlier = earlier
        self.user_id = user_id
        self.epoch = epoch
        self.start = 0
        self._head_index = -1
        self._head = _NO_HEAD
        self.bodies: list[Any] = contents.bodies
        if contents.kind:
            self.bodies = [decode_body(self.kind(index), raw) for index, raw in enumerate(contents.bodies)]

    def kind(self, index: int) -> int:
        kind = self.contents.kind
        return self.head(index).kind if kind == BodyKind.MIXED else kind

    def head(self, index: int) -> Head:
        """The head of a message. The last is remembered, since its fields are asked for one by one."""
        if index != self._head_index:
            heads = self.contents.heads
            self._head = decode_head(heads[index]) if heads is not None and heads[index] else _NO_HEAD
            self._head_index = index
        return self._head

    def put_back(self, bodies: list[Any]) -> None:
        """Keep only these last bodies: the others are in the application's hands."""
        self.start += len(self.bodies) - len(bodies)
        self.bodies = bodies

    def without(self, is_dropped: Callable[[int], bool]) -> list[Delivery]:
        """What is left of it, in runs, when some messages, told by their place, are dropped."""
        kept = [index for index in range(self.start, self.start + len(self.bodies)) if not is_dropped(index)]
        if len(kept) == len(self.bodies):
            return [self]
        runs: list[Delivery] = []
        for _, group in groupby(enumerate(kept), lambda item: item[1] - item[0]):
            places = [index for _, index in group]
            run = copy(self)
            run.bodies = self.bodies[places[0] - self.start : places[-1] + 1 - self.start]
            run.start = places[0]
            runs.append(run)
        return runs

    def unit(self, index: int) -> int:
        units = self.contents.units
        return NO_UNIT if units is None else units[index]


def open_delivery(
    raw: bytes,
    owner: Settler,
    *,
    first_tag: int,
    earlier: int,
    user_id: str | None,
    epoch: int,
    destination: str = "",
) -> Delivery:
    """Take a delivered block apart. Raises ClientFault on bytes that are no block."""
    return Delivery(
        block.unpack(raw),
        owner,
        first_tag=first_tag,
        earlier=earlier,
        user_id=user_id,
        epoch=epoch,
        destination=destination,
    )


class Received(msgspec.Struct, frozen=True, eq=False, gc=False):
    """What both faces of a message have. Times are seconds since 1970."""

    body: Body
    _delivery: Delivery
    _index: int

    @property
    def id(self) -> str:
        contents, index = self._delivery.contents, self._index
        lane = contents.lane if contents.lanes is None else contents.lanes[index]
        sequence = contents.first + index if contents.sequences is None else contents.sequences[index]
        return message_id(lane, sequence)

    @property
    def destination(self) -> str:
        """Where it was sent to; for a consumer of many topics, which of them."""
        return self._delivery.destination or self._delivery.owner.destination

    @property
    def timestamp(self) -> float:
        """When the producer's library sent it."""
        contents = self._delivery.contents
        column = contents.timestamps
        return (contents.timestamp if column is None else column[self._index]) / MICROSECONDS

    @property
    def expiration(self) -> float:
        """After this moment it is not delivered any more; 0: it never expires."""
        contents = self._delivery.contents
        column = contents.expiries
        return (contents.expiry if column is None else column[self._index]) / MICROSECONDS

    @property
    def delivery_time(self) -> float:
        """Before this moment it was not to be delivered; 0: at once."""
        contents = self._delivery.contents
        column = contents.delivery_times
        return (contents.delivery_time if column is None else column[self._index]) / MICROSECONDS

    @property
    def priority(self) -> int:
        contents = self._delivery.contents
        column = contents.priorities
        return contents.priority if column is None else column[self._index]

    @property
    def persistent(self) -> bool:
        return self._delivery.contents.persistent

    @property
    def correlation_id(self) -> str | None:
        return self._delivery.head(self._index).correlation_id

    @property
    def reply_to(self) -> str | None:
        return self._delivery.head(self._index).reply_to

    @property
    def type(self) -> str | None:
        return self._delivery.head(self._index).type

    @property
    def unit_of_order(self) -> str | None:
        """The name of the unit of order that its producer gave it."""
        return self._delivery.head(self._index).unit

    @property
    def group_id(self) -> str | None:
        return self._delivery.head(self._index).group_id

    @property
    def group_sequence(self) -> int:
        return self._delivery.head(self._index).group_sequence

    @property
    def properties(self) -> Mapping[str, Property]:
        return self._delivery.head(self._index).properties

    @property
    def redelivered(self) -> bool:
        """Whether it may have been handed out before."""
        return self._delivery.earlier > 0

    @property
    def delivery_count(self) -> int:
        """1 for the first time it is handed out."""
        return self._delivery.earlier + 1

    @property
    def user_id(self) -> str | None:
        """The user who sent it, as the server knows."""
        return self._delivery.user_id

    @property
    def text(self) -> str:
        """The body as text: bytes read as UTF-8 (what is none, replaced), a dict or list as JSON."""
        body = self.body
        if isinstance(body, str):
            return body
        if isinstance(body, bytes):
            return body.decode(errors="replace")
        return msgspec.json.encode(body).decode()

    @property
    def is_large(self) -> bool:
        """Whether the content travels on its own: `body` only refers to it, and `open()` reads it."""
        return isinstance(self.body, LargeReference)

    def _stream(self) -> MessageStream:
        body = self.body
        if isinstance(body, LargeReference):
            return self._delivery.owner.open_large(self.destination, body)
        return BodyStream(self._delivery.contents.bodies[self._index])


class Message(Received, frozen=True, eq=False, gc=False):
    """A message received from an asyncio consumer."""

    def open(self) -> MessageStream:
        """The content as a stream, however large it is: `async with message.open() as stream`."""
        return self._stream()

    async def acknowledge(self, *, confirm: bool = False) -> None:
        """Mode "individual": this is processed. Mode "client": all that the session handed over is.

        Other modes need no acknowledgement and ignore it. With `confirm`, wait until the server has
        stored it.
        """
        await self._delivery.owner.acknowledge_message(self._delivery, self._index, confirm=confirm)

    async def return_(self) -> None:
        """Give it back, unprocessed, to be delivered again: to whoever is next, perhaps later."""
        await self._delivery.owner.return_message(self._delivery, self._index, "")

    async def reject(self, error: str = "") -> None:
        """The same, with a word on why, which stays with the message if it ends among the dead."""
        await self._delivery.owner.return_message(self._delivery, self._index, error)

    async def reply(self, body: Body, **options: Unpack[MessageOptions]) -> None:
        """Send an answer to `reply_to`, with the request's correlation id, or its id where it has none."""
        await self._delivery.owner.reply(self, body, options)


class BlockingMessage(Received, frozen=True, eq=False, gc=False):
    """A message received from a blocking consumer."""

    def open(self) -> BlockingStream:
        """As `Message.open`, without await: `with message.open() as stream`."""
        return BlockingStream(self._stream(), self._delivery.owner.run_from_thread)

    def acknowledge(self, *, confirm: bool = False) -> None:
        """As `Message.acknowledge`, without await."""
        self._delivery.owner.acknowledge_from_thread(self._delivery, self._index, confirm=confirm)

    def return_(self) -> None:
        """As `Message.return_`, without await."""
        owner = self._delivery.owner
        owner.run_from_thread(owner.return_message(self._delivery, self._index, ""))

    def reject(self, error: str = "") -> None:
        """As `Message.reject`, without await."""
        owner = self._delivery.owner
        owner.run_from_thread(owner.return_message(self._delivery, self._index, error))

    def reply(self, body: Body, **options: Unpack[MessageOptions]) -> None:
        """As `Message.reply`, without await."""
        owner = self._delivery.owner
        owner.run_from_thread(owner.reply(self, body, options))
