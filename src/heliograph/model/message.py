"""What a message is made of besides its body: the head (J2), and how bodies of each kind become bytes.

The head holds what differs from message to message and what only the receiving application looks at. It is
one MessagePack map with one-letter names, absent when there is nothing to say; names are added and never
reused.
"""

from __future__ import annotations

from typing import Any

import msgspec

from heliograph.model.block import BodyKind
from heliograph.model.errors import ClientFault
from heliograph.model.large import LargeReference, decode_reference, encode_reference
from heliograph.model.limits import MAX_HEAD_BYTES

Property = bool | int | float | str | bytes | None
Body = bytes | str | dict[str, Any] | list[Any] | LargeReference

DEFAULT_PRIORITY = 4


class Head(
    msgspec.Struct,
    omit_defaults=True,
    rename={
        "correlation_id": "c",
        "reply_to": "r",
        "type": "t",
        "kind": "k",
        "unit": "u",
        "group_id": "g",
        "group_sequence": "s",
        "properties": "p",
    },
):
    """The part of a message that the plain path never opens."""

    correlation_id: str | None = None
    reply_to: str | None = None
    type: str | None = None
    kind: int = BodyKind.BYTES
    unit: str | None = None
    group_id: str | None = None
    group_sequence: int = 0
    properties: dict[str, Any] = {}  # of type Property; MessagePack itself tells text and bytes apart


_encode = msgspec.msgpack.Encoder().encode
_decode_head = msgspec.msgpack.Decoder(Head).decode
_decode_data = msgspec.msgpack.Decoder().decode


def encode_head(head: Head) -> bytes:
    """Raises ClientFault where a property cannot travel."""
    for name, value in head.properties.items():
        if not isinstance(name, str) or not name:
            raise ClientFault("a property's name is a text that is not empty", code="property-invalid")
        if not isinstance(value, bool | int | float | str | bytes | None):
            raise ClientFault(
                f"property {name!r} is a {type(value).__name__}; allowed are bool, int, float, str, bytes"
                " and None",
                code="property-invalid",
            )
    try:
        raw = _encode(head)
    except (OverflowError, TypeError, UnicodeEncodeError) as fault:
        raise ClientFault(f"a property cannot be encoded: {fault}", code="property-invalid") from None
    if len(raw) > MAX_HEAD_BYTES:
        raise ClientFault(
            f"properties and headers take {len(raw)} bytes; at most {MAX_HEAD_BYTES} are allowed",
            code="head-too-large",
        )
    return raw


def decode_head(raw: bytes) -> Head:
    try:
        return _decode_head(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as fault:
        raise ClientFault(f"the message's head cannot be read: {fault}", code="head-malformed") from None


def encode_body(body: Body) -> tuple[int, bytes]:
    """The kind and the bytes of a body."""
    if type(body) is bytes:
        return 0, body
    if isinstance(body, bytes | bytearray | memoryview):
        return 0, bytes(body)
    try:
        if isinstance(body, str):
            return BodyKind.TEXT, body.encode()
        if isinstance(body, dict | list):
            return BodyKind.DATA, _encode(body)
        if isinstance(body, LargeReference):
            return BodyKind.LARGE, encode_reference(body)
    except (OverflowError, TypeError, RecursionError, UnicodeEncodeError) as fault:
        raise ClientFault(f"the body cannot be encoded: {fault}", code="body-invalid") from None
    raise ClientFault(
        f"a body is bytes, text, a dict or a list, not a {type(body).__name__}", code="body-invalid"
    )


def decode_body(kind: int, raw: bytes) -> Body:
    """Bytes that are not what they claim to be are handed over as bytes: the application can still see
    them."""
    try:
        if kind == BodyKind.TEXT:
            return raw.decode()
        if kind == BodyKind.DATA:
            decoded = _decode_data(raw)
            return decoded if isinstance(decoded, dict | list) else raw
        if kind == BodyKind.LARGE:
            return decode_reference(raw)
    except (ClientFault, UnicodeDecodeError, msgspec.MsgspecError, RecursionError):
        return raw
    return raw
