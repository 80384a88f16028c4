"""Very large messages for clients of STOMP and MQTT (M6): the content is fetched, and they go out as ordinary ones.

A message whose content fits a frame of ours is put together here; one that is larger cannot be said in these
protocols in one piece, so it goes back with a word on why, and ends among the dead rather than nowhere. What comes
behind it on the connection waits: one content at a time is fetched.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

import msgspec
from crc32c import crc32c

from heliograph.frontends.proxy import Answer, Proxy
from heliograph.model import block
from heliograph.model.block import LARGE, BodyKind, Span, parse_trusted
from heliograph.model.errors import ClientFault
from heliograph.model.large import LargeReference, reference_of
from heliograph.model.limits import MAX_HEAD_BYTES, MAX_MESSAGE_BYTES, TRANSFER_WINDOW_BYTES
from heliograph.sessions import commands
from heliograph.sessions.commands import AnySessionEffect, Deliver, DeliverParcel, Fail

Delivery = Deliver | DeliverParcel
_TRANSFER = 1
"""The number of the one transfer that a connection has at a time."""


class _Content(msgspec.Struct):
    """What is being fetched."""

    delivery: Deliver
    reference: LargeReference
    pieces: list[bytes]
    size: int = 0


class Fetching:
    """For one connection."""

    def __init__(
        self, proxy: Proxy, address_of: Callable[[int], str], deliver: Callable[[Deliver], None]
    ) -> None:
        """`address_of`: what a consumer takes from. `deliver`: to the client, now."""
        self._proxy = proxy
        self._address_of = address_of
        self._deliver = deliver
        self._waiting: deque[Deliver] = deque()
        self._fetching: _Content | None = None

    def takes(self, effect: Delivery) -> bool:
        """Whether a delivery is of very large messages, or waits behind some; then it comes out here."""
        if self._fetching is None and not any(span.block.flags & LARGE for span in _spans(effect)):
            return False
        self._waiting.extend(_one_by_one(effect))
        self._go_on()
        return True

    def handle(self, effect: AnySessionEffect) -> bool:
        """Whether it was about a content."""
        if isinstance(effect, commands.HandChunk):
            self._chunk(effect)
        elif isinstance(effect, commands.EndTransfer):
            self._give_back(effect.sentence)
        else:
            return False
        return True

    def _go_on(self) -> None:
        while self._waiting and self._fetching is None:
            delivery = self._waiting.popleft()
            if delivery.span.block.flags & LARGE:
                self._fetch(delivery)
            else:
                self._deliver(delivery)

    def _fetch(self, delivery: Deliver) -> None:
        try:
            reference = reference_of(delivery.span.block)
        except ClientFault as fault:
            self._return(delivery, fault.sentence)
            return
        if reference.size > MAX_MESSAGE_BYTES - MAX_HEAD_BYTES:
            self._return(delivery, f"its {reference.size} bytes are too many for this protocol: use another")
            return
        self._fetching = _Content(delivery, reference, [])
        if not reference.size:
            self._done(self._fetching)
            return
        address = delivery.destination or self._address_of(delivery.consumer)
        request = self._proxy.ask(self._begun)
        self._proxy.command(
            commands.BeginFetch(request, _TRANSFER, address, reference.file, 0, TRANSFER_WINDOW_BYTES)
        )

    def _begun(self, answer: Answer) -> None:
        if isinstance(answer, Fail):
            self._give_back(answer.sentence)

    def _chunk(self, chunk: commands.HandChunk) -> None:
        content = self._fetching
        if content is None or chunk.offset != content.size:
            return
        content.pieces.append(bytes(chunk.data))
        content.size += len(chunk.data)
        if content.size < content.reference.size:
            self._proxy.command(commands.AllowFetch(_TRANSFER, content.size + TRANSFER_WINDOW_BYTES))
            return
        self._proxy.command(commands.EndFetch(_TRANSFER))
        self._done(content)

    def _done(self, content: _Content) -> None:
        body = b"".join(content.pieces)
        self._fetching = None
        if len(body) != content.reference.size or crc32c(body) != content.reference.checksum:
            self._return(content.delivery, "its content is damaged")
        else:
            self._deliver(_whole(content.delivery, body))
        self._go_on()

    def _give_back(self, why: str) -> None:
        content, self._fetching = self._fetching, None
        if content is not None:
            self._return(content.delivery, why)
        self._go_on()

    def _return(self, delivery: Deliver, why: str) -> None:
        tags = [(delivery.tag, delivery.tag)]
        self._proxy.command(commands.Settle(delivery.consumer, True, tags, True, False, why))


def _spans(effect: Delivery) -> list[Span]:
    return [effect.span] if isinstance(effect, Deliver) else effect.spans


def _one_by_one(effect: Delivery) -> Iterator[Deliver]:
    if isinstance(effect, Deliver):
        yield effect
        return
    tag = effect.tag
    for span in effect.spans:
        yield Deliver(effect.consumer, tag, span, effect.user)
        tag += span.stop - span.start


def _whole(delivery: Deliver, body: bytes) -> Deliver:
    """The message as if its content had been its body."""
    large = delivery.span.block
    buffer = block.pack_lone(
        body,
        lane=large.lane,
        sequence=large.first,
        timestamp=large.timestamp,
        priority=large.priority,
        persistent=large.persistent,
        kind=BodyKind.BYTES,
        head=block.head_at(large, 0),
        expiry=large.expiry,
        delivery_time=large.delivery_time,
    )
    span = Span(parse_trusted(buffer), 0, 1, delivery.span.deliveries)
    return Deliver(delivery.consumer, delivery.tag, span, delivery.user, delivery.destination)
