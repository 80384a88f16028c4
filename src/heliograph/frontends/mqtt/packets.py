"""MQTT's packets: bytes to packets, however they are cut, and packets to bytes. Versions 3.1.1 (level 4) and 5.

    kind and flags u8 · length, one to four bytes of seven bits · body

What is inside a body is read with a `Cursor`, which refuses to read beyond it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import msgspec

from heliograph.frontends.mqtt.properties import Properties, encode_properties, read_properties
from heliograph.frontends.mqtt.reading import Cursor, malformed, pack_varint, protocol_error
from heliograph.model.errors import ProtocolFault
from heliograph.model.limits import MAX_MQTT_FILTERS

V3: Final = 4
V5: Final = 5

CONNECT: Final = 1
CONNACK: Final = 2
PUBLISH: Final = 3
PUBACK: Final = 4
PUBREC: Final = 5
PUBREL: Final = 6
PUBCOMP: Final = 7
SUBSCRIBE: Final = 8
SUBACK: Final = 9
UNSUBSCRIBE: Final = 10
UNSUBACK: Final = 11
PINGREQ: Final = 12
PINGRESP: Final = 13
DISCONNECT: Final = 14
AUTH: Final = 15
CONTINUE_AUTHENTICATION: Final = 0x18

_U16 = struct.Struct(">H")
_ACK = struct.Struct(">BBH")
_PUBLISH_1: Final = bytes((PUBLISH << 4 | 1 << 1,))
_PUBACK_WORD: Final = PUBACK << 12 | 2
PINGRESP_PACKET: Final = b"\xd0\x00"
# The flags that packets other than PUBLISH have to have.
_FLAGS: Final = {PUBREL: 2, SUBSCRIBE: 2, UNSUBSCRIBE: 2}
_FROM_CLIENT: Final = (
    CONNECT,
    PUBLISH,
    PUBACK,
    PUBREC,
    PUBREL,
    PUBCOMP,
    SUBSCRIBE,
    UNSUBSCRIBE,
    PINGREQ,
    DISCONNECT,
    AUTH,
)
# Which first bytes a packet of a client may have.
_ALLOWED: Final = bytes(
    first >> 4 in _FROM_CLIENT and (first >> 4 == PUBLISH or first & 0x0F == _FLAGS.get(first >> 4, 0))
    for first in range(256)
)

Packet = tuple[int, int, bytes]
"""kind, flags, body"""


class PacketReader:
    """Cuts a stream of bytes into packets. Holds at most one unfinished packet, made of what arrived."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._pieces: list[bytes] = []
        self._size = 0
        self._needed = 2

    @property
    def buffered(self) -> int:
        return self._size

    def feed(self, data: bytes) -> Iterator[Packet]:
        """The packets that are complete now; take them all. Raises ProtocolFault."""
        if self._pieces:
            self._pieces.append(data)
            self._size += len(data)
            if self._size < self._needed:
                return
            data = b"".join(self._pieces)
            self._pieces = []
        position, available = 0, len(data)
        needed = 2
        while available - position >= 2:
            first, length = data[position], data[position + 1]
            start = position + 2
            if length & 0x80:
                if start < available and data[start] < 0x80:  # two bytes, as most have that are not one
                    length = length & 0x7F | data[start] << 7
                    start += 1
                else:
                    found = self._long_length(data, position)
                    if found is None:
                        needed = available - position + 1
                        break
                    length, start = found
            if length > self.limit:
                raise ProtocolFault(
                    f"a packet of {length} bytes is beyond the limit of {self.limit}", code="frame-too-long"
                )
            stop = start + length
            if stop > available:
                needed = stop - position
                break
            if not _ALLOWED[first]:
                raise _not_allowed(first)
            yield first >> 4, first & 0x0F, data[start:stop]
            position = stop
        self._size = available - position
        if self._size:
            self._pieces = [data[position:] if position else data]
            self._needed = needed

    def _long_length(self, data: bytes, position: int) -> tuple[int, int] | None:
        """A length of several bytes and where the body begins; None if it is not all there."""
        length = shift = 0
        for index in range(position + 1, position + 5):
            if index >= len(data):
                return None
            length |= (data[index] & 0x7F) << shift
            shift += 7
            if not data[index] & 0x80:
                return length, index + 1
        raise malformed("a length has at most four bytes")


def _not_allowed(first: int) -> ProtocolFault:
    kind, flags = first >> 4, first & 0x0F
    if kind != PUBLISH and flags != _FLAGS.get(kind, 0):
        return malformed(f"a packet of kind {kind} has other flags than {flags}")
    return ProtocolFault(f"packets of kind {kind} are not for a server", code="frame-unknown")


# ---- from clients


class Will(msgspec.Struct):
    """What is to be sent when a client is lost."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: Properties


class Connect(msgspec.Struct):
    """A client says who it is and how it wants to be treated."""

    version: int
    client_id: str
    clean_start: bool
    keep_alive: int
    properties: Properties
    will: Will | None = None
    user: str | None = None
    password: bytes = b""


def read_connect(body: bytes) -> Connect:
    cursor = Cursor(body)
    if cursor.text() != "MQTT":
        raise malformed("that is not MQTT")
    version = cursor.u8()
    if version not in (V3, V5):
        raise ProtocolFault("versions 3.1.1 and 5 of MQTT are spoken here", code="version-unknown")
    flags = cursor.u8()
    if flags & 1 or flags >> 3 & 3 == 3 or (not flags & 4 and flags & 0x38):
        raise malformed("the flags of CONNECT contradict each other")
    if version == V3 and flags & 0x40 and not flags & 0x80:
        raise malformed("a password without a user")
    keep_alive = cursor.u16()
    properties = read_properties(cursor, CONNECT) if version == V5 else {}
    connect = Connect(version, cursor.text(), flags & 2 != 0, keep_alive, properties)
    if flags & 4:
        connect.will = _read_will(cursor, flags, version)
    if flags & 0x80:
        connect.user = cursor.text()
    if flags & 0x40:
        connect.password = cursor.binary()
    cursor.end()
    return connect


WILL: Final = 0  # the kind under which the properties of a will stand in the table


def _read_will(cursor: Cursor, flags: int, version: int) -> Will:
    properties = read_properties(cursor, WILL) if version == V5 else {}
    topic = cursor.text()
    return Will(topic, cursor.binary(), flags >> 3 & 3, flags & 0x20 != 0, properties)


class Publish(msgspec.Struct, gc=False):
    """A message. `topic` is empty where a short name stands for it."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    duplicate: bool
    packet_id: int
    properties: Properties


_NO_PROPERTIES: Final[Properties] = {}


def read_publish(flags: int, body: bytes, version: int) -> Publish:
    qos = flags >> 1 & 3
    if qos == 3 or (not qos and flags & 8):
        raise malformed("there is no such quality of service")
    if len(body) < 2:
        raise malformed("a packet ends too early")
    end = 2 + (body[0] << 8 | body[1])
    if end > len(body):
        raise malformed("a packet ends too early")
    try:
        topic = body[2:end].decode()
    except UnicodeDecodeError:
        raise malformed("a text is not UTF-8") from None
    packet_id = 0
    if qos:
        if end + 2 > len(body):
            raise malformed("a packet ends too early")
        packet_id = body[end] << 8 | body[end + 1]
        end += 2
        if not packet_id:
            raise protocol_error("a packet has the number 0")
    properties = _NO_PROPERTIES
    if version == V5:
        if end < len(body) and not body[end]:
            end += 1
        else:
            cursor = Cursor(body, end)
            properties = read_properties(cursor, PUBLISH)
            end = cursor.position
    return Publish(topic, body[end:], qos, flags & 1 != 0, flags & 8 != 0, packet_id, properties)


def read_acknowledgement(kind: int, body: bytes, version: int) -> tuple[int, int]:
    """The number of a packet and the reason: PUBACK, PUBREC, PUBREL, PUBCOMP."""
    if len(body) == 2:
        return body[0] << 8 | body[1], 0
    cursor = Cursor(body)
    packet_id = cursor.u16()
    reason = 0
    if version == V5 and len(body) > 2:
        reason = cursor.u8()
        if len(body) > 3:
            read_properties(cursor, kind)
    cursor.end()
    return packet_id, reason


def read_pubacks(data: bytes) -> tuple[int, ...]:
    """The numbers in bytes that are nothing but whole PUBACKs without a reason, as a client's that only receives are;
    otherwise none."""
    if len(data) % _ACK.size:
        return ()
    words = struct.unpack(f">{len(data) // 2}H", data)
    return words[1::2] if words[::2].count(_PUBACK_WORD) == len(words) // 2 else ()


class Filter(msgspec.Struct):
    """What a client subscribes to, and how."""

    text: str
    qos: int
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


class Subscribe(msgspec.Struct):
    """One or more subscriptions."""

    packet_id: int
    filters: list[Filter]
    identifier: int
    said: dict[str, str]  # the user properties, of each name the first


def read_subscribe(body: bytes, version: int) -> Subscribe:
    cursor = Cursor(body)
    packet_id = cursor.u16()
    properties = read_properties(cursor, SUBSCRIBE) if version == V5 else {}
    filters: list[Filter] = []
    while not cursor.is_at_end:
        text, options = cursor.text(), cursor.u8()
        if options & (0xC0 if version == V5 else 0xFC) or options & 3 == 3 or options >> 4 & 3 == 3:
            raise malformed("there are no such options of a subscription")
        filters.append(Filter(text, options & 3, options & 4 != 0, options & 8 != 0, options >> 4 & 3))
    _check_filters(packet_id, filters)
    identifiers = properties.get("subscription_identifier") or [0]
    said = dict(reversed(properties.get("user_property", ())))
    return Subscribe(packet_id, filters, identifiers[0], said)


def read_unsubscribe(body: bytes, version: int) -> tuple[int, list[str]]:
    cursor = Cursor(body)
    packet_id = cursor.u16()
    if version == V5:
        read_properties(cursor, UNSUBSCRIBE)
    filters: list[str] = []
    while not cursor.is_at_end:
        filters.append(cursor.text())
    _check_filters(packet_id, filters)
    return packet_id, filters


def _check_filters(packet_id: int, filters: list[Filter] | list[str]) -> None:
    if not packet_id:
        raise protocol_error("a packet has the number 0")
    if not 0 < len(filters) <= MAX_MQTT_FILTERS:
        raise protocol_error(f"a packet has 1 to {MAX_MQTT_FILTERS} filters")


def read_disconnect(body: bytes, version: int) -> tuple[int, Properties]:
    """The reason, and what else is said."""
    cursor = Cursor(body)
    if version != V5 or not body:
        cursor.end()
        return 0, {}
    reason = cursor.u8()
    properties = read_properties(cursor, DISCONNECT) if len(body) > 1 else {}
    cursor.end()
    return reason, properties


def read_authentication(body: bytes) -> bytes:
    """What a client answers to the server's challenge, in version 5."""
    cursor = Cursor(body)
    reason = cursor.u8() if body else 0
    properties = read_properties(cursor, AUTH) if len(body) > 1 else {}
    cursor.end()
    if reason != CONTINUE_AUTHENTICATION:
        raise ProtocolFault("an authentication is continued while a client connects", code="protocol-fault")
    data: bytes = properties.get("authentication_data", b"")
    return data


# ---- to clients


def packet(kind: int, flags: int, *parts: bytes) -> bytes:
    length = sum(map(len, parts))
    return b"".join((bytes((kind << 4 | flags,)), pack_varint(length), *parts))


def connack(
    version: int, reason: int, *, session_present: bool = False, properties: Properties | None = None
) -> bytes:
    body = bytes((1 if session_present else 0, reason))
    return packet(CONNACK, 0, body, encode_properties(properties or {}) if version == V5 else b"")


def acknowledgement(
    kind: int, packet_id: int, version: int, reason: int = 0, said: Properties | None = None
) -> bytes:
    """PUBACK, PUBREC, PUBREL, PUBCOMP."""
    flags = 2 if kind == PUBREL else 0
    if said and version == V5:
        return packet(kind, flags, _U16.pack(packet_id), bytes((reason,)), encode_properties(said))
    if reason and version == V5:
        return packet(kind, flags, _U16.pack(packet_id), bytes((reason,)))
    return _ACK.pack(kind << 4 | flags, 2, packet_id)


def suback(packet_id: int, version: int, reasons: list[int], said: Properties | None = None) -> bytes:
    properties = encode_properties(said or {}) if version == V5 else b""
    return packet(SUBACK, 0, _U16.pack(packet_id), properties, bytes(reasons))


def unsuback(packet_id: int, version: int, reasons: list[int]) -> bytes:
    if version != V5:
        return packet(UNSUBACK, 0, _U16.pack(packet_id))
    return packet(UNSUBACK, 0, _U16.pack(packet_id), b"\0", bytes(reasons))


def authentication(method: str, data: bytes) -> bytes:
    """A challenge."""
    said = {"authentication_method": method, "authentication_data": data}
    return packet(AUTH, 0, bytes((CONTINUE_AUTHENTICATION,)), encode_properties(said))


def disconnect(reason: int, sentence: str) -> bytes:
    """Only version 5 lets a server say goodbye."""
    return packet(DISCONNECT, 0, bytes((reason,)), encode_properties({"reason_string": sentence[:200]}))


def publish(
    topic: bytes,
    payload: bytes,
    *,
    qos: int,
    retain: bool,
    duplicate: bool,
    packet_id: int,
    properties: bytes,
) -> bytes:
    """`topic` has its length before it; `properties` are encoded, and nothing for version 3.1.1."""
    flags = PUBLISH << 4 | (8 if duplicate else 0) | qos << 1 | (1 if retain else 0)
    number = _U16.pack(packet_id) if qos else b""
    length = len(topic) + len(number) + len(properties) + len(payload)
    return b"".join((bytes((flags,)), pack_varint(length), topic, number, properties, payload))


def begin_publish(topic: bytes, rest: int) -> bytes:
    """A PUBLISH of quality 1 up to its number, behind which `rest` bytes follow."""
    return b"".join((_PUBLISH_1, pack_varint(len(topic) + 2 + rest), topic))
