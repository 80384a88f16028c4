"""How a message is dressed for the dead message queue (M11): its body untouched, and beside its own head why
it is there."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from heliograph.model import block as blocks
from heliograph.model.block import BodyKind, Span
from heliograph.model.errors import ClientFault
from heliograph.model.ids import LaneId, message_id
from heliograph.model.limits import MAX_BLOCK_BYTES, MAX_ERROR_LENGTH, MAX_HEAD_BYTES
from heliograph.model.message import Head, decode_head

ORIGINAL_DESTINATION = "JMS_helio_original_destination"
ORIGINAL_ID = "JMS_helio_original_id"
REASON = "JMS_helio_reason"
DELIVERIES = "JMS_helio_deliveries"
DIED_AT = "JMS_helio_died_at"
LAST_ERROR = "JMS_helio_last_error"

# What is dressed at a time: with six kilobytes beside each message it stays within a block.
_PORTION_MESSAGES = 256
_PORTION_BYTES = MAX_BLOCK_BYTES // 2
_encode = msgspec.msgpack.Encoder().encode


def portions(span: Span) -> Iterator[Span]:
    """Parts of a span that still fit a block when each message is dressed."""
    block = span.block
    count = max(1, min(_PORTION_MESSAGES, block.count * _PORTION_BYTES // block.size))
    for start in range(span.start, span.stop, count):
        yield span.part(start, min(start + count, span.stop))


def dress(span: Span, *, lane: LaneId, first: int, address: str, reason: str, now: int, error: str) -> bytes:
    """A block for the dead message queue with the messages of a span. `now` in microseconds.

    A message that fills its block has no room for a word beside it, and comes as it was.
    """
    contents = blocks.unpack(b"".join(blocks.slice_span(span)))
    heads = []
    for index in range(contents.count):
        head = _head_of(contents, index)
        head.properties = {
            **head.properties,
            ORIGINAL_DESTINATION: address,
            ORIGINAL_ID: message_id(contents.lane, contents.first + index),
            REASON: reason,
            DELIVERIES: span.deliveries + (1 if reason in ("redelivery-limit", "rejected") else 0),
            DIED_AT: now / 1_000_000,
            LAST_ERROR: error[:MAX_ERROR_LENGTH],
        }
        heads.append(_encode(head))
    dressed = _pack(contents, lane, first, heads)
    return dressed if len(dressed) <= MAX_BLOCK_BYTES else _pack(contents, lane, first, contents.heads)


def _pack(contents: blocks.Contents, lane: LaneId, first: int, heads: list[bytes] | None) -> bytes:
    if contents.count == 1:  # columns take room too
        return blocks.pack_lone(
            contents.bodies[0],
            lane=lane,
            sequence=first,
            timestamp=contents.timestamps[0] if contents.timestamps else contents.timestamp,
            priority=contents.priorities[0] if contents.priorities else contents.priority,
            persistent=contents.persistent,
            kind=contents.kind,
            head=heads[0] if heads else b"",
        )
    return blocks.pack(
        contents.bodies,
        lane=lane,
        first=first,
        timestamp=contents.timestamp,
        priority=contents.priority,
        persistent=contents.persistent,
        kind=contents.kind,
        heads=heads,
        timestamps=contents.timestamps,
        priorities=contents.priorities,
    )


def _head_of(contents: blocks.Contents, index: int) -> Head:
    """The message's own head, if it has one that can be read and leaves room for ours."""
    kind = contents.kind if contents.kind != BodyKind.MIXED else BodyKind.BYTES
    raw = contents.heads[index] if contents.heads is not None else b""
    if not raw or len(raw) > MAX_HEAD_BYTES // 2:
        return Head(kind=kind)
    try:
        return decode_head(raw)
    except ClientFault:
        return Head(kind=kind)
