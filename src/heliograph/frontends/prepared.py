"""A message of a client of another protocol, turned into what our blocks are made of; and blocks taken apart
for such a client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from heliograph.model import block
from heliograph.model.block import BodyKind, Contents, Span, slice_span
from heliograph.model.errors import ClientFault
from heliograph.model.ids import message_id, text_of
from heliograph.model.limits import MAX_MESSAGE_BYTES
from heliograph.model.message import DEFAULT_PRIORITY, Head, Property, decode_body, decode_head, encode_head
from heliograph.model.units import NO_UNIT, unit_number
from heliograph.sessions.commands import Deliver, DeliverParcel

# What the body is, in the words of MIME, where a protocol says so.
CONTENT_TYPE = "JMS_content_type"
# What AMQP clients said that no other protocol has words for; others are not told.
AMQP_PREFIX = "JMS_AMQP_"
_NO_HEAD = Head()


class Prepared(msgspec.Struct, gc=False, frozen=True):
    """A message ready to be put in a block. Times are microseconds since 1970, 0: none."""

    body: bytes
    kind: int = BodyKind.BYTES
    head: bytes = b""
    priority: int = DEFAULT_PRIORITY
    persistent: bool = True
    expiry: int = 0
    delivery_time: int = 0
    unit: int = NO_UNIT
    timestamp: int = 0  # when it was sent, if that is not when it leaves

    @property
    def size(self) -> int:
        return len(self.body) + len(self.head)


def prepare(
    body: bytes,
    *,
    kind: int = BodyKind.BYTES,
    priority: int = DEFAULT_PRIORITY,
    persistent: bool = True,
    expiry: int = 0,
    delivery_time: int = 0,
    properties: Mapping[str, Property] | None = None,
    correlation_id: str | None = None,
    reply_to: str | None = None,
    type: str | None = None,
    group_id: str | None = None,
    group_sequence: int = 0,
    unit_of_order: str | None = None,
) -> Prepared:
    """Raises ClientFault where it cannot travel."""
    head = Head(
        correlation_id,
        reply_to,
        type,
        int(kind),
        unit_of_order,
        group_id,
        group_sequence,
        dict(properties) if properties else {},
    )
    plain = Head(kind=int(kind))
    raw = b"" if head == plain else encode_head(head)
    if not 0 <= priority <= 9:
        raise ClientFault(f"a priority is 0 to 9, not {priority}", code="priority-invalid")
    check_size(len(body) + len(raw))
    unit = unit_number(unit_of_order) if unit_of_order else NO_UNIT
    return Prepared(body, int(kind), raw, priority, persistent, expiry, delivery_time, unit)


def sent_at(message: Prepared, now: int) -> Prepared:
    """The same, for a transaction: it was sent now, and leaves later."""
    return msgspec.structs.replace(message, timestamp=now)


def check_size(size: int) -> None:
    if size > MAX_MESSAGE_BYTES:
        raise ClientFault(
            f"the message has {size} bytes; at most {MAX_MESSAGE_BYTES} are allowed", code="message-too-large"
        )


def opened(effect: Deliver | DeliverParcel) -> Iterator[tuple[int, int, Contents]]:
    """The messages of a delivery: for each run of them their first tag, how often they were handed out before, and
    what is in them."""
    spans = [effect.span] if type(effect) is Deliver else effect.spans  # type: ignore[union-attr]
    tag = effect.tag
    for span in spans:
        yield tag, span.deliveries, _contents(span)
        tag += span.stop - span.start


def _contents(span: Span) -> Contents:
    parts = slice_span(span)
    first = parts[0]
    return block.unpack(first if len(parts) == 1 and isinstance(first, bytes) else b"".join(parts))


def head_at(contents: Contents, index: int) -> Head:
    """What a message says besides its body. A head that cannot be read says nothing."""
    heads = contents.heads
    if heads is None or not heads[index]:
        return _NO_HEAD
    try:
        return decode_head(heads[index])
    except ClientFault:
        return _NO_HEAD


def head_of(message: Prepared) -> Head:
    return decode_head(message.head) if message.head else Head(kind=message.kind)


def body_at(contents: Contents, index: int, head: Head) -> tuple[int, bytes]:
    """The kind and the bytes of a body, for those who know bytes and text only: a map or list is JSON, and the
    content of a very large message is not here."""
    kind = head.kind if contents.kind == BodyKind.MIXED else contents.kind
    raw = contents.bodies[index]
    if kind == BodyKind.DATA:
        data = decode_body(kind, raw)
        try:
            return (kind, msgspec.json.encode(data)) if not isinstance(data, bytes) else (BodyKind.BYTES, raw)
        except (TypeError, ValueError, RecursionError):
            return BodyKind.BYTES, raw
    if kind == BodyKind.LARGE:
        return kind, b""
    return kind, raw


def is_text(body: bytes) -> bool:
    """Whether bytes are UTF-8."""
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def id_of(contents: Contents, index: int) -> str:
    if contents.lanes is None and contents.sequences is None:
        return f"{text_of(contents.lane)}-{contents.first + index}"
    lane = contents.lane if contents.lanes is None else contents.lanes[index]
    sequence = contents.first + index if contents.sequences is None else contents.sequences[index]
    return message_id(lane, sequence)


def text_of_property(value: Property) -> str:
    """A property for whom there is only text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.hex() if isinstance(value, bytes) else str(value)
