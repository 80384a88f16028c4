"""Very large messages for clients of STOMP and MQTT (M6): the content is fetched, and they go out as ordinary ones.

A message whose content fits a frame of ours is put together here; one that is larger cannot be said in these
protocols in one piece, so it goes back with a word on why, and ends among the dead rather than nowhere. What comes
behind it on the connection waits: one content at a time is fetched. A refusal that will pass is no reason to give
anything back, for then what is behind would come first: it is asked again about every second.

    takes ──▶ waiting ──▶ fetching ──all of it──▶ deliver ──▶ the next that waits
                             └── cannot be had ──▶ back ─────────┘
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

import msgspec
from crc32c import crc32c

from heliograph.frontends.held_tags import Ranges
from heliograph.frontends.proxy import Answer, Proxy
from heliograph.model import block
from heliograph.model.block import LARGE, BodyKind, Span, parse_trusted
from heliograph.model.errors import ClientFault
from heliograph.model.large import REFUSED_FOR_NOW, LargeReference, reference_of
from heliograph.model.limits import MAX_HEAD_BYTES, MAX_MESSAGE_BYTES, TRANSFER_WINDOW_BYTES
from heliograph.sessions import commands
from heliograph.sessions.commands import AnySessionEffect, Deliver, DeliverParcel, EndBrowse, Fail

Delivery = Deliver | DeliverParcel


class _Content(msgspec.Struct):
    """What is being fetched."""

    delivery: Deliver
    reference: LargeReference
    pieces: list[bytes]
    transfer: int
    size: int = 0
    is_refused: bool = False  # for now


class Fetching:
    """For one connection."""

    def __init__(
        self,
        proxy: Proxy,
        address_of: Callable[[int], str],
        deliver: Callable[[Deliver | EndBrowse], None],
    ) -> None:
        """`address_of`: what a consumer takes from. `deliver`: to the client, now."""
        self._proxy = proxy
        self._address_of = address_of
        self._deliver = deliver
        self._waiting: deque[Deliver | EndBrowse] = deque()
        self._fetching: _Content | None = None
        self._last_transfer = 0

    @property
    def is_refused(self) -> bool:
        """There was no room for it, or nobody to ask: `ask_again` by and by."""
        return self._fetching is not None and self._fetching.is_refused

    def takes(self, effect: Delivery | EndBrowse) -> bool:
        """Whether a delivery is of very large messages, or waits behind some; then it comes out here. So does the
        word that a browser has seen all there is."""
        if self._fetching is None and not any(span.block.flags & LARGE for span in _spans(effect)):
            return False
        if isinstance(effect, EndBrowse):
            self._waiting.append(effect)
        else:
            self._waiting.extend(_one_by_one(effect))
        self._go_on()
        return True

    def handle(self, effect: AnySessionEffect) -> bool:
        """Whether it was about a content."""
        if isinstance(effect, commands.HandChunk):
            self._chunk(effect)
        elif isinstance(effect, commands.EndTransfer):
            if self._fetching is not None and effect.transfer == self._fetching.transfer:
                self._refused(self._fetching, effect.code, effect.sentence)
        else:
            return False
        return True

    def ask_again(self) -> None:
        """What was refused for now may be possible by now."""
        if self._fetching is not None and self._fetching.is_refused:
            self._ask(self._fetching)

    def recalled(self, consumer: int, ranges: Ranges) -> None:
        """These went back and come again under other tags: they do not come out here."""
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            if isinstance(each, Deliver) and each.consumer == consumer:
                self._waiting.extend(_without(each, ranges))
            else:
                self._waiting.append(each)
        content = self._fetching
        if content is not None and content.delivery.consumer == consumer:
            tag = content.delivery.tag
            if any(low <= tag <= high for low, high in ranges):
                self._fetching = None
                self._proxy.command(commands.EndFetch(content.transfer))
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting and self._fetching is None:
            waiting = self._waiting.popleft()
            if isinstance(waiting, Deliver) and waiting.span.block.flags & LARGE:
                self._fetch(waiting)
            else:
                self._deliver(waiting)

    def _fetch(self, delivery: Deliver) -> None:
        try:
            reference = reference_of(delivery.span.block)
        except ClientFault as fault:
            self._return(delivery, fault.sentence)
            return
        if reference.size > MAX_MESSAGE_BYTES - MAX_HEAD_BYTES:
            self._return(delivery, f"its {reference.size} bytes are too many for this protocol: use another")
            return
        # A number of its own: what was read for another and is still under way is not taken for its beginning.
        self._last_transfer += 1
        content = _Content(delivery, reference, [], self._last_transfer)
        if not reference.size:
            self._finish(content)
            return
        self._fetching = content
        self._ask(content)

    def _ask(self, content: _Content) -> None:
        content.is_refused = False
        delivery = content.delivery
        address = delivery.destination or self._address_of(delivery.consumer)
        request = self._proxy.ask(lambda answer: self._begun(content, answer))
        allowed = content.size + TRANSFER_WINDOW_BYTES
        self._proxy.command(
            commands.BeginFetch(
                request, content.transfer, address, content.reference.file, content.size, allowed
            )
        )

    def _begun(self, content: _Content, answer: Answer) -> None:
        if isinstance(answer, Fail) and content is self._fetching:
            self._refused(content, answer.code, answer.sentence)

    def _chunk(self, chunk: commands.HandChunk) -> None:
        content = self._fetching
        if content is None or (chunk.transfer, chunk.offset) != (content.transfer, content.size):
            return
        content.pieces.append(bytes(chunk.data))
        content.size += len(chunk.data)
        if content.size < content.reference.size:
            allowed = content.size + TRANSFER_WINDOW_BYTES
            self._proxy.command(commands.AllowFetch(content.transfer, allowed))
            return
        self._proxy.command(commands.EndFetch(content.transfer))
        self._fetching = None
        self._finish(content)
        self._go_on()

    def _finish(self, content: _Content) -> None:
        body = b"".join(content.pieces)
        if len(body) != content.reference.size or crc32c(body) != content.reference.checksum:
            self._return(content.delivery, "its content is damaged")
        else:
            self._deliver(_whole(content.delivery, body))

    def _refused(self, content: _Content, code: str, why: str) -> None:
        if code in REFUSED_FOR_NOW:
            content.is_refused = True
            return
        self._fetching = None
        self._return(content.delivery, why)
        self._go_on()

    def _return(self, delivery: Deliver, why: str) -> None:
        self._proxy.settle(delivery.consumer, [(delivery.tag, delivery.tag)], returned=True, error=why)


def _spans(effect: Delivery | EndBrowse) -> list[Span]:
    if isinstance(effect, EndBrowse):
        return []
    return [effect.span] if isinstance(effect, Deliver) else effect.spans


def _one_by_one(effect: Delivery) -> Iterator[Deliver]:
    if isinstance(effect, Deliver):
        yield effect
        return
    tag = effect.tag
    for span in effect.spans:
        yield Deliver(effect.consumer, tag, span, effect.user)
        tag += span.stop - span.start


def _without(delivery: Deliver, ranges: Ranges) -> Iterator[Deliver]:
    """What is left of a delivery without these tags."""
    first, span = delivery.tag, delivery.span
    behind = first + span.stop - span.start
    tag = first
    for low, high in [*sorted(ranges), (behind, behind)]:
        stop = min(low, behind)
        if tag < stop:
            part = span.part(span.start + tag - first, span.start + stop - first)
            yield msgspec.structs.replace(delivery, tag=tag, span=part)
        tag = max(tag, high + 1)


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
