"""How AMQP's messages and ours say the same (docs/reference/protocols.md has the table).

What others have no word for is kept beside, in properties that begin with `JMS_AMQP_` and that only AMQP clients are
told, in their own words: so a message that goes in and out by AMQP comes out as it was.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from heliograph.frontends.amqp import values
from heliograph.frontends.amqp.addresses import address_of, kind_numbered, named
from heliograph.frontends.amqp.bodies import Body, body_of, opening_of, section_of
from heliograph.frontends.amqp.kept import (
    ANNOTATIONS,
    CONTENT_ENCODING,
    CORRELATION,
    CREATED,
    FOOTER,
    ID,
    JMS_TYPE,
    KEPT_PREFIX,
    PROPERTY_TYPES,
    REPLY_GROUP,
)
from heliograph.frontends.amqp.values import NULL, Symbol, malformed, read, variable, write
from heliograph.frontends.prepared import CONTENT_TYPE, Prepared, head_at, id_of, is_text, prepare
from heliograph.model.block import Contents
from heliograph.model.destination import Kind
from heliograph.model.errors import ClientFault
from heliograph.model.message import DEFAULT_PRIORITY, Head, Property

_MILLISECOND: Final = 1000
_NO_FIELDS: Final = (None,) * 13
_HEADER: Final = 0x70
_DELIVERY_ANNOTATIONS: Final = 0x71
_ANNOTATIONS: Final = 0x72
_PROPERTIES: Final = 0x73
_APPLICATION: Final = 0x74
_FOOTER: Final = 0x78
_BODIES: Final = (0x75, 0x76, 0x77)
_SECTIONS: Final = {
    "amqp:header:list": _HEADER,
    "amqp:delivery-annotations:map": _DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": _ANNOTATIONS,
    "amqp:properties:list": _PROPERTIES,
    "amqp:application-properties:map": _APPLICATION,
    "amqp:data:binary": 0x75,
    "amqp:amqp-sequence:list": 0x76,
    "amqp:amqp-value:*": 0x77,
    "amqp:footer:map": _FOOTER,
}
_MQTT_CORRELATION: Final = "JMS_mqtt_correlation"
_DEST: Final = "x-opt-jms-dest"
_REPLY: Final = "x-opt-jms-reply-to"
_TYPE: Final = "x-opt-jms-msg-type"
_AT: Final = "x-opt-delivery-time"
_DELAY: Final = "x-opt-delivery-delay"
_UNIT: Final = "x-opt-unit-of-order"
_UNDERSTOOD: Final = frozenset({_DEST, _REPLY, _TYPE, _AT, _DELAY, _UNIT})


class Arrived(msgspec.Struct):
    """A message that a client sent, and where it says that it goes, if it says so."""

    message: Prepared
    to: str
    kind: Kind | None


class Sections(msgspec.Struct):
    """The parts of a message, as they were sent."""

    header: Any = _NO_FIELDS
    annotations: dict[Any, Any] = {}
    properties: Any = _NO_FIELDS
    property_notes: list[str] = []
    application: dict[Any, Any] = {}
    application_notes: list[str] = []
    bodies: list[tuple[int, Any, list[str]]] = []
    footer: dict[Any, Any] = {}


def section_at(data: bytes, position: int) -> tuple[int, int]:
    """Which section begins here, and where its value begins. Raises ProtocolFault."""
    if data[position : position + 2] == b"\x00\x53" and position + 2 < len(data):
        return data[position + 2], position + 3
    if data[position : position + 1] != b"\x00":
        raise malformed("a message is made of sections")
    descriptor, position = read(data, position + 1)
    return _SECTIONS.get(descriptor, -1) if isinstance(descriptor, str) else int(descriptor), position


def parse(data: bytes) -> Sections:
    """Raises ProtocolFault."""
    found = Sections()
    position, end = 0, len(data)
    while position < end:
        try:
            code, position = section_at(data, position)
        except (TypeError, ValueError):
            raise malformed("a section is described by a number or a symbol") from None
        notes: list[str] | None = None if code in (_HEADER, 0x75) else []
        value, position = read(data, position, notes)
        if code in _BODIES:
            found.bodies = (
                [*found.bodies, (code, value, notes or [])] if found.bodies else [(code, value, notes or [])]
            )
        elif code == _HEADER:
            found.header = _fields(value, 5)
        elif code == _PROPERTIES:
            found.properties, found.property_notes = _fields(value, 13), (notes or [])[1:]
        elif code == _APPLICATION:
            found.application, found.application_notes = _mapping(value), (notes or [])[2::2]
        elif code == _ANNOTATIONS:
            found.annotations = _mapping(value)
        elif code == _FOOTER:
            found.footer = _mapping(value)
        elif code != _DELIVERY_ANNOTATIONS:
            raise malformed("a message has no such section")
    return found


def _fields(value: Any, count: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > count:
        raise malformed("a section has other fields")
    return value + [None] * (count - len(value))


def _mapping(value: Any) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise malformed("a section is a map")
    return value


# ---- in


def arrived(data: bytes, now: int, *, body: Body | None = None) -> Arrived:
    """What a client sent. `body`: it came by another way, and data has what was before it. Raises ClientFault."""
    sections = parse(data)
    said = sections.properties
    _check(sections)
    properties = _application(sections) if sections.application else {}
    annotations = sections.annotations
    found = body or body_of(sections.bodies)
    properties.update(_kept(sections, found))
    durable, priority, ttl = sections.header[0], sections.header[1], sections.header[2]
    message = prepare(
        found.raw,
        kind=found.kind,
        priority=DEFAULT_PRIORITY if priority is None else min(priority, 9),
        persistent=durable is True,
        expiry=_expiry(said[8], ttl, now),
        delivery_time=_delivery_time(annotations, now),
        properties=properties,
        correlation_id=_correlation(sections),
        reply_to=_reply_to(said[4], annotations),
        type=said[3],
        group_id=said[10],
        group_sequence=said[11] or 0,
        unit_of_order=_text(annotations.get(_UNIT)) or said[10] or None,
    )
    return Arrived(message, said[2] or "", kind_numbered(annotations.get(_DEST)))


_TEXT: Final = frozenset({str, Symbol, type(None)})
_NUMBER: Final = frozenset({int, type(None)})
_ID: Final = frozenset({str, int, bytes, type(None)})
_FIELDS: Final = (
    _ID,
    frozenset({bytes, type(None)}),
    *(_TEXT,) * 3,
    _ID,
    *(_TEXT,) * 2,
    *(_NUMBER,) * 2,
    _TEXT,
    _NUMBER,
    _TEXT,
)
_COMPOUND: Final = (list, dict, values.Described)


def _check(sections: Sections) -> None:
    for value, kinds in zip(sections.properties, _FIELDS, strict=True):
        if type(value) not in kinds:
            raise malformed("a field of the properties is of another type")
    _, priority, ttl, *_ = sections.header
    if type(priority) not in _NUMBER or type(ttl) not in _NUMBER:
        raise malformed("a field of the header is of another type")


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _expiry(absolute: int | None, ttl: int | None, now: int) -> int:
    if absolute:
        return max(absolute, 1) * _MILLISECOND
    return now + ttl * _MILLISECOND if ttl else 0


def _delivery_time(annotations: dict[Any, Any], now: int) -> int:
    at, delay = annotations.get(_AT), annotations.get(_DELAY)
    if type(at) is int and at > 0:
        return at * _MILLISECOND if at * _MILLISECOND > now else 0
    return now + delay * _MILLISECOND if type(delay) is int and 0 < delay < 1 << 53 else 0


def _reply_to(reply_to: str | None, annotations: dict[Any, Any]) -> str | None:
    return None if reply_to is None else address_of(reply_to, kind_numbered(annotations.get(_REPLY)))


def _correlation(sections: Sections) -> str | None:
    """Others have texts for it."""
    value = sections.properties[5]
    if value is None or isinstance(value, str):
        return None if value is None else str(value)
    if isinstance(value, bytes):
        return value.decode() if is_text(value) else value.hex()
    return str(value)


def _application(sections: Sections) -> dict[str, Property]:
    found: dict[str, Property] = {}
    for name, value in sections.application.items():
        if not isinstance(name, str) or isinstance(value, _COMPOUND):
            raise ClientFault("a property has a name and a simple value", code="property-invalid")
        if not name.startswith(KEPT_PREFIX):
            found[str(name)] = value if type(value) is not Symbol else str(value)
    return found


def _kept(sections: Sections, body: Body) -> dict[str, Property]:
    """What only AMQP has words for."""
    said, notes = sections.properties, sections.property_notes
    kept: dict[str, Property] = {}
    if said[0] is not None:
        kept[ID] = said[0] if notes[0] == "s" else write(said[0], iter(notes[0]))
    if said[5] is not None and notes[5] != "s":
        kept[CORRELATION] = write(said[5], iter(notes[5]))
    for at, name in ((6, CONTENT_TYPE), (7, CONTENT_ENCODING), (12, REPLY_GROUP)):
        if said[at] is not None:
            kept[name] = str(said[at])
    if said[9]:
        kept[CREATED] = said[9]
    if sections.application:
        usual = [values.letter_of(value) for value in sections.application.values()]
        if sections.application_notes != usual:
            kept[PROPERTY_TYPES] = "".join(sections.application_notes)
    if sections.annotations:
        kind = sections.annotations.get(_TYPE)
        if type(kind) is int and kind != body.jms_type:
            kept[JMS_TYPE] = kind
        others = {name: value for name, value in sections.annotations.items() if name not in _UNDERSTOOD}
        if others:
            kept[ANNOTATIONS] = write(others)
    if sections.footer:
        kept[FOOTER] = write(sections.footer)
    if body.kept:
        kept.update(body.kept)
    return kept


# ---- out


class Encoder:
    """Messages for one link. `jms`: to a JMS client, who has names and kinds for destinations."""

    def __init__(self, *, jms: bool) -> None:
        self._jms = jms
        self._headers: dict[tuple[bool, int, int], bytes] = {}
        self._destination = ""
        self._to = NULL
        self._dest_annotation: tuple[bytes, ...] = ()

    def encode(
        self, contents: Contents, index: int, *, destination: str, earlier: int, user: str, now: int
    ) -> bytes:
        head = head_at(contents, index)
        if destination != self._destination:
            self._address(destination)
        section, jms_type = section_of(contents, index, head, is_jms=self._jms)
        parts = self._before(contents, index, head, jms_type, earlier, user, now)
        parts += (section, _footer(head))
        return b"".join(parts)

    def enclose(
        self, contents: Contents, *, size: int, destination: str, earlier: int, user: str, now: int
    ) -> tuple[bytes, bytes]:
        """What comes before and behind the content of a lone message that is written as it is read."""
        head = head_at(contents, 0)
        if destination != self._destination:
            self._address(destination)
        opening, jms_type = opening_of(head, size)
        parts = self._before(contents, 0, head, jms_type, earlier, user, now)
        return b"".join((*parts, opening)), _footer(head)

    def _before(
        self, contents: Contents, index: int, head: Head, jms_type: int, earlier: int, user: str, now: int
    ) -> list[bytes]:
        annotations = self._annotations(contents, index, head, jms_type)
        said = self._properties(contents, index, head, user)
        parts = [self._header(contents, index, earlier, now), annotations, said]
        if head.properties:
            parts.append(_application_section(head))
        return parts

    def _address(self, destination: str) -> None:
        self._destination = destination
        name, number = named(destination)
        self._to = variable("s", name if self._jms else destination)
        self._dest_annotation = (_key(_DEST), b"\x51" + bytes((number,))) if self._jms and number >= 0 else ()

    def _header(self, contents: Contents, index: int, earlier: int, now: int) -> bytes:
        priority = contents.priority if contents.priorities is None else contents.priorities[index]
        expiry = contents.expiry if contents.expiries is None else contents.expiries[index]
        key = (contents.persistent, priority, earlier)
        if not expiry:
            made = self._headers.get(key)
            if made is not None:
                return made
        ttl = NULL
        if expiry:
            ttl = b"\x70" + min(max((expiry - now) // _MILLISECOND, 1), 0xFFFFFFFF).to_bytes(4, "big")
        header = values.fields(
            _HEADER,
            [
                b"\x41" if contents.persistent else b"\x42",
                bytes((0x50, priority)),
                ttl,
                b"\x42" if earlier else b"\x41",
                b"\x70" + min(earlier, 0xFFFFFFFF).to_bytes(4, "big") if earlier else b"\x43",
            ],
        )
        if not expiry and len(self._headers) < 64:
            self._headers[key] = header
        return header

    def _annotations(self, contents: Contents, index: int, head: Head, jms_type: int) -> bytes:
        parts = list(self._dest_annotation)
        kept = head.properties.get(ANNOTATIONS) if head.properties else None
        if isinstance(kept, bytes):
            for name, value in _kept_map(kept).items():
                parts += (_key(name) if isinstance(name, str) else write(name), write(value))
        if self._jms:
            parts += (_key(_TYPE), bytes((0x51, jms_type)))
            if head.reply_to is not None and (number := named(head.reply_to)[1]) >= 0:
                parts += (_key(_REPLY), bytes((0x51, number)))
        due = contents.delivery_time if contents.delivery_times is None else contents.delivery_times[index]
        if due:
            parts += (_key(_AT), b"\x81" + (due // _MILLISECOND).to_bytes(8, "big"))
        if head.unit is not None and head.unit != head.group_id:
            parts += (_key(_UNIT), variable("s", head.unit))
        if not parts:
            return b""
        return b"\x00\x53\x72" + values.compound(0xC1, len(parts), b"".join(parts))

    def _properties(self, contents: Contents, index: int, head: Head, user: str) -> bytes:
        timestamp = contents.timestamp if contents.timestamps is None else contents.timestamps[index]
        expiry = contents.expiry if contents.expiries is None else contents.expiries[index]
        kept = head.properties
        created = kept.get(CREATED)
        if not isinstance(created, int):
            created = timestamp // _MILLISECOND
        identity = kept.get(ID)
        if identity is None:
            identity = f"ID:{id_of(contents, index)}" if self._jms else id_of(contents, index)
        return values.fields(
            _PROPERTIES,
            [
                _typed(identity),
                variable("v", user) if user else NULL,
                self._to,
                _string(head.type),
                NULL if head.reply_to is None else self._reply(head.reply_to),
                _correlation_field(head),
                _symbol(kept.get(CONTENT_TYPE)),
                _symbol(kept.get(CONTENT_ENCODING)),
                b"\x83" + (expiry // _MILLISECOND).to_bytes(8, "big") if expiry else NULL,
                NULL if not created else b"\x83" + created.to_bytes(8, "big", signed=True),
                _string(head.group_id if head.group_id is not None else head.unit),
                b"\x70" + (head.group_sequence & 0xFFFFFFFF).to_bytes(4, "big")
                if head.group_sequence
                else NULL,
                _string(kept.get(REPLY_GROUP)),
            ],
        )

    def _reply(self, address: str) -> bytes:
        return variable("s", named(address)[0] if self._jms else address)


def _footer(head: Head) -> bytes:
    footer = head.properties.get(FOOTER)
    return b"\x00\x53\x78" + footer if isinstance(footer, bytes) else b""


def _key(name: str) -> bytes:
    return variable("k", name)


def _string(value: Any) -> bytes:
    return variable("s", value) if isinstance(value, str) else NULL


def _symbol(value: Any) -> bytes:
    return variable("k", value) if isinstance(value, str) and value.isascii() else NULL


def _typed(value: Any) -> bytes:
    """Bytes are a value that was encoded before."""
    return value if isinstance(value, bytes) and value else variable("s", str(value))


def _correlation_field(head: Head) -> bytes:
    kept = head.properties.get(CORRELATION)
    if isinstance(kept, bytes) and kept:
        return kept
    raw = head.properties.get(_MQTT_CORRELATION)
    if isinstance(raw, bytes):
        return variable("v", raw)
    return _string(head.correlation_id)


def _kept_map(raw: bytes) -> dict[Any, Any]:
    try:
        found = values.read_whole(raw)
    except ClientFault:
        return {}
    return found if isinstance(found, dict) else {}


def _application_section(head: Head) -> bytes:
    notes = head.properties.get(PROPERTY_TYPES)
    letters = iter(notes) if isinstance(notes, str) else None
    parts: list[bytes] = []
    for name, value in head.properties.items():
        if name.startswith(KEPT_PREFIX) or name == CONTENT_TYPE:
            continue
        letter = next(letters, None) if letters is not None else None
        parts += (variable("s", name), write(value, iter(letter) if letter else None))
    return b"\x00\x53\x74" + values.compound(0xC1, len(parts), b"".join(parts)) if parts else b""
