"""Blocks that have to be sent again, changed: cut where the server has a part already, or under another lane.

The rest of the library never touches a packed block. Here its layout is known as far as
docs/reference/block-format.md fixes it.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec
from crc32c import crc32c

from heliograph.model import block
from heliograph.model.block import BodyKind
from heliograph.model.ids import LaneId
from heliograph.model.message import Head, decode_head

# A message that stores and forwards may have brought before, in a session that the server has forgotten (U7).
POSSIBLY_DOUBLED = "JMS_helio_possibly_doubled"


class Sealed(msgspec.Struct, gc=False):
    """A packed block that is not confirmed."""

    first: int
    count: int
    buffer: bytes
    sent: bool = False

    @property
    def last(self) -> int:
        return self.first + self.count - 1


_encode = msgspec.msgpack.Encoder().encode

# Where a block's header holds its checksum, and its lane and first sequence (docs/reference/block-format.md).
_CHECKSUM = struct.Struct("<I")
_CHECKSUM_AT = 8
_LABEL = struct.Struct("<16sQ")
_LABEL_AT = 32


def relabelled(buffer: bytes, lane: LaneId, first: int) -> bytes:
    """The same messages under another lane and sequence."""
    changed = bytearray(buffer)
    _LABEL.pack_into(changed, _LABEL_AT, lane, first)
    _CHECKSUM.pack_into(changed, _CHECKSUM_AT, crc32c(memoryview(changed)[block.PREFIX_BYTES :]))
    return bytes(changed)


def before(sealed: Sealed, first: int) -> Sealed:
    """The part of a block that comes before a sequence."""
    return sealed if sealed.last < first else _part(sealed, 0, first - sealed.first)


def after(sealed: Sealed, last: int) -> Sealed:
    """The part of a block that comes after a sequence."""
    return sealed if sealed.first > last else _part(sealed, last + 1 - sealed.first, sealed.count)


def referring(sealed: Sealed, reference: bytes) -> Sealed:
    """The same large message, with its content elsewhere."""
    return _part(sealed, 0, 1, bodies=[reference])


def marked(sealed: Sealed, upto: int) -> Sealed:
    """The same messages, with a property that says of those up to a sequence that they may be there already."""
    contents = block.unpack(sealed.buffer)
    heads = contents.heads or [b""] * contents.count
    kind = BodyKind.BYTES if contents.kind == BodyKind.MIXED else contents.kind
    for index in range(min(upto - sealed.first + 1, contents.count)):
        head = decode_head(heads[index]) if heads[index] else Head(kind=kind)
        head.properties = {**head.properties, POSSIBLY_DOUBLED: True}
        heads[index] = _encode(head)
    return _part(sealed, 0, sealed.count, heads)


def _part(
    sealed: Sealed,
    start: int,
    stop: int,
    heads: list[bytes] | None = None,
    bodies: list[bytes] | None = None,
) -> Sealed:
    """Some messages of a block as a block of their own, with other heads or bodies where they are given."""
    contents = block.unpack(sealed.buffer)

    def cut(column: list[Any] | None) -> list[Any] | None:
        return None if column is None else column[start:stop]

    buffer = block.pack(
        (contents.bodies if bodies is None else bodies)[start:stop],
        lane=contents.lane,
        first=sealed.first + start,
        timestamp=contents.timestamp,
        priority=contents.priority,
        persistent=contents.persistent,
        kind=contents.kind,
        expiry=contents.expiry,
        delivery_time=contents.delivery_time,
        heads=cut(contents.heads if heads is None else heads),
        timestamps=cut(contents.timestamps),
        expiries=cut(contents.expiries),
        delivery_times=cut(contents.delivery_times),
        units=cut(contents.units),
        priorities=cut(contents.priorities),
    )
    return Sealed(sealed.first + start, stop - start, buffer, sealed.sent)
