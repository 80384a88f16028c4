"""The properties of MQTT 5: which there are, what they look like, and in which packets they may stand."""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

from heliograph.frontends.mqtt.reading import (
    Cursor,
    malformed,
    pack_binary,
    pack_text,
    pack_varint,
    protocol_error,
)

Properties = dict[str, Any]
"""By name. Those that may come several times are lists."""

_WILL: Final = 0
_CONNECT, _CONNACK, _PUBLISH, _PUBACK, _PUBREC, _PUBREL, _PUBCOMP = 1, 2, 3, 4, 5, 6, 7
_SUBSCRIBE, _SUBACK, _UNSUBSCRIBE, _UNSUBACK, _DISCONNECT, _AUTH = 8, 9, 10, 11, 14, 15
_ALL: Final = (*range(12), _DISCONNECT, _AUTH)


class _Property(NamedTuple):
    name: str
    form: str  # u8, u16, u32, varint, text, binary, pair
    packets: tuple[int, ...]
    repeats: bool = False


_TABLE: Final[dict[int, _Property]] = {
    0x01: _Property("payload_format", "u8", (_PUBLISH, _WILL)),
    0x02: _Property("message_expiry", "u32", (_PUBLISH, _WILL)),
    0x03: _Property("content_type", "text", (_PUBLISH, _WILL)),
    0x08: _Property("response_topic", "text", (_PUBLISH, _WILL)),
    0x09: _Property("correlation_data", "binary", (_PUBLISH, _WILL)),
    0x0B: _Property("subscription_identifier", "varint", (_PUBLISH, _SUBSCRIBE), True),
    0x11: _Property("session_expiry", "u32", (_CONNECT, _CONNACK, _DISCONNECT)),
    0x12: _Property("assigned_client_id", "text", (_CONNACK,)),
    0x13: _Property("server_keep_alive", "u16", (_CONNACK,)),
    0x15: _Property("authentication_method", "text", (_CONNECT, _CONNACK, _AUTH)),
    0x16: _Property("authentication_data", "binary", (_CONNECT, _CONNACK, _AUTH)),
    0x17: _Property("request_problem", "u8", (_CONNECT,)),
    0x18: _Property("will_delay", "u32", (_WILL,)),
    0x19: _Property("request_response", "u8", (_CONNECT,)),
    0x1A: _Property("response_information", "text", (_CONNACK,)),
    0x1C: _Property("server_reference", "text", (_CONNACK, _DISCONNECT)),
    0x1F: _Property(
        "reason_string", "text", tuple(kind for kind in _ALL if kind not in (_WILL, _CONNECT, _PUBLISH))
    ),
    0x21: _Property("receive_maximum", "u16", (_CONNECT, _CONNACK)),
    0x22: _Property("topic_alias_maximum", "u16", (_CONNECT, _CONNACK)),
    0x23: _Property("topic_alias", "u16", (_PUBLISH,)),
    0x24: _Property("maximum_qos", "u8", (_CONNACK,)),
    0x25: _Property("retain_available", "u8", (_CONNACK,)),
    0x26: _Property("user_property", "pair", _ALL, True),
    0x27: _Property("maximum_packet_size", "u32", (_CONNECT, _CONNACK)),
    0x28: _Property("wildcards_available", "u8", (_CONNACK,)),
    0x29: _Property("identifiers_available", "u8", (_CONNACK,)),
    0x2A: _Property("shared_available", "u8", (_CONNACK,)),
}
_CODES: Final = {entry.name: (code, entry.form) for code, entry in _TABLE.items()}
# Values that a property cannot have, besides what its form says.
_FLAGS: Final = ("payload_format", "request_problem", "request_response")
_NOT_ZERO: Final = ("receive_maximum", "maximum_packet_size", "topic_alias", "subscription_identifier")


def read_properties(cursor: Cursor, kind: int) -> Properties:
    """Those of a packet of this kind. Raises ProtocolFault."""
    length = cursor.varint()
    inner = Cursor(cursor.take(length))
    properties: Properties = {}
    while not inner.is_at_end:
        entry = _TABLE.get(inner.varint())
        if entry is None or kind not in entry.packets:
            raise malformed("a property is not known, or does not belong in this packet")
        value = _read(inner, entry.form)
        if (entry.name in _FLAGS and value > 1) or (entry.name in _NOT_ZERO and not value):
            raise protocol_error(f"{entry.name} cannot be {value}")
        if entry.repeats:
            properties.setdefault(entry.name, []).append(value)
        elif entry.name in properties:
            raise protocol_error(f"{entry.name} is said twice")
        else:
            properties[entry.name] = value
    return properties


def _read(cursor: Cursor, form: str) -> Any:
    if form == "pair":
        return cursor.text(), cursor.text()
    return getattr(cursor, form)()


def encode_properties(properties: Properties) -> bytes:
    """With their length before them."""
    if not properties:
        return b"\0"
    parts: list[bytes] = []
    for name, value in properties.items():
        code, form = _CODES[name]
        for each in value if isinstance(value, list) else (value,):
            parts += (bytes((code,)), _WRITE[form](each))
    raw = b"".join(parts)
    return pack_varint(len(raw)) + raw


_WRITE: Final[dict[str, Any]] = {
    "u8": lambda value: bytes((value,)),
    "u16": struct.Struct(">H").pack,
    "u32": struct.Struct(">I").pack,
    "varint": pack_varint,
    "text": pack_text,
    "binary": pack_binary,
    "pair": lambda pair: pack_text(pair[0]) + pack_text(pair[1]),
}
