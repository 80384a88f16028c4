"""A message before it is sent: what an application may say about it, checked and turned into bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TypedDict

import msgspec

from heliograph.model.errors import ClientFault, HeliographError
from heliograph.model.limits import MAX_MESSAGE_BYTES, UNIT_NAMES_REMEMBERED
from heliograph.model.message import Body, Head, Property, encode_body, encode_head
from heliograph.model.units import NO_UNIT, unit_number

Said = tuple[int, bytes]
"""The number of a message's unit of order, and its head."""
OnCompletion = Callable[[HeliographError | None], None]


class Outgoing(msgspec.Struct, gc=False, frozen=True):
    """A message ready to be put in a block."""

    body: bytes
    kind: int
    head: bytes
    priority: int
    persistent: bool
    expiry: int
    delivery_time: int = 0
    is_timed: bool = False  # whether the server has to look at the clock for it
    unit: int = NO_UNIT

    @property
    def is_odd(self) -> bool:
        """Whether the server has to look at this message by itself."""
        return self.is_timed or self.unit != NO_UNIT

    @property
    def size(self) -> int:
        return len(self.body) + len(self.head)


class ProducerOptions(TypedDict, total=False):
    """A producer's defaults for its messages; `time_to_live` and `delay` are in seconds."""

    priority: int
    persistent: bool
    time_to_live: float | None
    delay: float | None
    unit_of_order: str | None


class Headers(TypedDict, total=False):
    """What a message may say besides its body."""

    properties: Mapping[str, Property] | None
    correlation_id: str | None
    reply_to: str | None
    type: str | None
    group_id: str | None
    group_sequence: int


class MessageOptions(Headers, total=False):
    """How a message is to be treated, where not by the producer's defaults.

    `time_to_live` and `delay` are in seconds from now, `deliver_at` in seconds since 1970. Messages with one
    `unit_of_order` are processed one after the other; an empty one takes the producer's off.
    """

    priority: int | None
    persistent: bool | None
    time_to_live: float | None
    delay: float | None
    deliver_at: float | None
    unit_of_order: str | None


class SendOptions(MessageOptions, total=False):
    """`on_completion` is called with None when the server has the message, or with the error.

    `timeout`: seconds to wait for room at most; None: as long as it takes.
    """

    on_completion: OnCompletion | None
    timeout: float | None


def prepare_plain(body: bytes, *, priority: int, persistent: bool) -> Outgoing:
    """`prepare` for what is sent most: bytes, and nothing said about them but the producer's defaults."""
    if len(body) > MAX_MESSAGE_BYTES:
        raise _too_large(len(body))
    return Outgoing(body, 0, b"", priority, persistent, 0)


def _too_large(size: int) -> ClientFault:
    sentence = f"the message has {size} bytes; at most {MAX_MESSAGE_BYTES} are allowed"
    return ClientFault(sentence, code="message-too-large")


@lru_cache(maxsize=UNIT_NAMES_REMEMBERED)
def unit_alone(name: str) -> Said:
    """What a message of bytes says whose unit of order is all it has to say. Raises ClientFault `unit-invalid`."""
    return unit_number(name), encode_head(Head(unit=name))


def prepare(
    body: Body,
    *,
    priority: int,
    persistent: bool,
    expiry: int = 0,
    delivery_time: int = 0,
    properties: Mapping[str, Property] | None = None,
    correlation_id: str | None = None,
    reply_to: str | None = None,
    type: str | None = None,
    group_id: str | None = None,
    group_sequence: int = 0,
    unit_of_order: str | None = None,
) -> Outgoing:
    """Check a message and turn it into bytes. Raises ClientFault where it cannot travel."""
    kind, raw = encode_body(body)
    head = b""
    if (
        properties
        or correlation_id is not None
        or reply_to is not None
        or type is not None
        or group_id is not None
        or group_sequence
        or unit_of_order
    ):
        # In the order of its fields: named, they would cost a tenth of this path.
        said = dict(properties) if properties else {}
        head = encode_head(
            Head(
                correlation_id,
                reply_to,
                type,
                int(kind),
                unit_of_order or None,
                group_id,
                group_sequence,
                said,
            )
        )
    if not 0 <= priority <= 9:
        raise ClientFault(f"a priority is 0 to 9, not {priority}", code="priority-invalid")
    if len(raw) + len(head) > MAX_MESSAGE_BYTES:
        raise _too_large(len(raw) + len(head))
    return Outgoing(
        raw,
        int(kind),
        head,
        priority,
        persistent,
        expiry,
        delivery_time,
        expiry > 0 or delivery_time > 0,
        unit_number(unit_of_order) if unit_of_order else NO_UNIT,
    )
