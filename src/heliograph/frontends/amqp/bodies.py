"""The body of an AMQP message and ours.

    data                 bytes; several are one
    amqp-value, string   text
    amqp-value, map      a map; a list likewise, and amqp-sequence
    amqp-value, others   text (numbers and the like) or bytes, with a note of what it was

A note, in `JMS_AMQP_BODY`, is written only where the usual types would come out otherwise.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from heliograph.frontends.amqp import values
from heliograph.frontends.amqp.kept import BODY, JMS_TYPE
from heliograph.frontends.amqp.values import Described, malformed, variable, write
from heliograph.frontends.prepared import CONTENT_TYPE
from heliograph.model.block import BodyKind, Contents
from heliograph.model.errors import ClientFault
from heliograph.model.limits import MAX_AMQP_NOTES
from heliograph.model.message import Head, Property, decode_body, encode_body

_SEQUENCE: Final = 0x76
_VALUE: Final = 0x77
# How a JMS client calls what it got.
NOTHING, OBJECT, MAP, BYTES, STREAM, TEXT = range(6)
_OF_JAVA: Final = "application/x-java-serialized-object"


class Body(msgspec.Struct):
    """A body as it is kept here."""

    raw: bytes
    kind: int
    jms_type: int
    kept: dict[str, Property] = {}


def body_of(sections: list[tuple[int, Any, list[str]]]) -> Body:
    """Raises ClientFault."""
    if not sections:
        return Body(b"", BodyKind.BYTES, NOTHING, {BODY: "-"})
    codes = {code for code, _, _ in sections}
    if len(codes) > 1 or (codes == {_VALUE} and len(sections) > 1):
        raise malformed("a body is data, or sequences, or one value")
    code, value, notes = sections[0]
    if code == _VALUE:
        return _of_value(value, notes)
    if code == _SEQUENCE:
        return _of_sequences(sections)
    pieces = [piece for _, piece, _ in sections]
    if not all(isinstance(piece, bytes) for piece in pieces):
        raise malformed("data is binary")
    return Body(pieces[0] if len(pieces) == 1 else b"".join(pieces), BodyKind.BYTES, BYTES)


def _of_value(value: Any, notes: list[str]) -> Body:
    if isinstance(value, str) and notes == ["s"]:
        return Body(value.encode(), BodyKind.TEXT, TEXT)
    note = "V" + "".join(notes)
    if value is None:
        return Body(b"", BodyKind.BYTES, NOTHING, {BODY: note})
    if isinstance(value, bytes):
        return Body(value, BodyKind.BYTES, BYTES, {BODY: note})
    if isinstance(value, dict | list | Described):
        return _of_data(value, "V", notes)
    text = ("true" if value else "false") if isinstance(value, bool) else str(value)
    return Body(text.encode(), BodyKind.TEXT, OBJECT, {BODY: note})


def _of_sequences(sections: list[tuple[int, Any, list[str]]]) -> Body:
    joined: list[Any] = []
    notes = ["L"]
    for _, value, letters in sections:
        if not isinstance(value, list):
            raise malformed("a sequence is a list")
        joined += value
        notes += letters[1:]
    return _of_data(joined, "S", notes)


def _of_data(value: Any, section: str, notes: list[str]) -> Body:
    is_usual = section == "V" and notes == values.usual_notes(value, [])
    kept: dict[str, Property] = {}
    if not is_usual:
        kept[BODY] = section + ("".join(notes) if len(notes) <= MAX_AMQP_NOTES else "")
    kind, raw = encode_body(_plain(value))
    return Body(raw, kind, MAP if isinstance(value, dict) else STREAM, kept)


def _plain(value: Any) -> Any:
    """Without types that only AMQP has: a value with a descriptor is the pair of both."""
    if isinstance(value, Described):
        return [_plain(value.descriptor), _plain(value.value)]
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {_plain(key): _plain(each) for key, each in value.items()}
    return str(value) if isinstance(value, str) else value


def opening_of(head: Head, size: int) -> tuple[bytes, int]:
    """How the section of a content begins that is written as it is read, and what a JMS client calls it."""
    note = head.properties.get(BODY)
    code, letter, jms_type = (b"\x75", b"\xb0", BYTES)
    if note == "Vs":
        code, letter, jms_type = (b"\x77", b"\xb1", TEXT)
    elif note == "Vv":
        code = b"\x77"
    return b"\x00\x53" + code + letter + size.to_bytes(4, "big"), _said_type(head, jms_type)


def _said_type(head: Head, jms_type: int) -> int:
    said = head.properties.get(JMS_TYPE)
    if isinstance(said, int) and NOTHING <= said <= TEXT:
        return said
    return OBJECT if jms_type == BYTES and head.properties.get(CONTENT_TYPE) == _OF_JAVA else jms_type


def section_of(contents: Contents, index: int, head: Head, *, is_jms: bool) -> tuple[bytes, int]:
    """The section of a body, and what a JMS client calls it."""
    kind = head.kind if contents.kind == BodyKind.MIXED else contents.kind
    raw = contents.bodies[index]
    kept = head.properties
    note = kept.get(BODY) if kept else None
    section, jms_type = _noted(kind, raw, note) if isinstance(note, str) else _usual(kind, raw)
    return section, _said_type(head, jms_type) if kept else jms_type


def _usual(kind: int, raw: bytes) -> tuple[bytes, int]:
    if kind == BodyKind.TEXT:
        return b"\x00\x53\x77" + variable("s", raw), TEXT
    if kind == BodyKind.DATA:
        data = decode_body(kind, raw)
        if isinstance(data, dict | list):
            return b"\x00\x53\x77" + write(data), MAP if isinstance(data, dict) else STREAM
    return b"\x00\x53\x75" + variable("v", raw), BYTES


def _noted(kind: int, raw: bytes, note: str) -> tuple[bytes, int]:
    """As it was sent. A body that is not what its note says, since somebody sent it on, is written as usual."""
    section, letters = note[:1], note[1:]
    try:
        if kind == BodyKind.DATA:
            return _noted_data(decode_body(kind, raw), section, letters)
        if section == "-" and not raw:
            return b"\x00\x53\x77\x40", NOTHING
        if letters == "n" and not raw:
            return b"\x00\x53\x77\x40", NOTHING
        if kind == BodyKind.BYTES and section == "V":
            return b"\x00\x53\x77" + write(raw, iter(letters)), BYTES
        if kind == BodyKind.TEXT and section == "V":
            return b"\x00\x53\x77" + write(_scalar(letters, raw.decode()), iter(letters)), OBJECT
    except (ValueError, TypeError, ClientFault):
        pass
    return _usual(kind, raw)


def _noted_data(data: Any, section: str, letters: str) -> tuple[bytes, int]:
    notes = iter(letters) if letters else None
    code = b"\x00\x53\x76" if section == "S" and isinstance(data, list) else b"\x00\x53\x77"
    return code + write(data, notes), MAP if isinstance(data, dict) else STREAM


def _scalar(letters: str, text: str) -> Any:
    if letters == "?":
        return text == "true"
    if letters and letters in "BHIQbhiqt":
        return int(text)
    return float(text) if letters and letters in "fd" else text
