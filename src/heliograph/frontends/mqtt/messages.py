"""How MQTT's PUBLISH and our messages say the same (docs/reference/protocols.md has the table).

Quality of service 0 is not persistent, 1 and 2 are. A persistent message of another protocol is as one of
quality 1. What MQTT has no word for, such as a priority, is a user property, both ways.
"""

from __future__ import annotations

from typing import Final

import msgspec

from heliograph.frontends.mqtt.packets import V5, Publish
from heliograph.frontends.mqtt.properties import Properties
from heliograph.frontends.mqtt.topics import address_of, topic_of
from heliograph.frontends.prepared import (
    AMQP_PREFIX,
    CONTENT_TYPE,
    Prepared,
    body_at,
    check_size,
    head_at,
    head_of,
    is_text,
    prepare,
    text_of_property,
)
from heliograph.model.block import BodyKind, Contents
from heliograph.model.errors import ClientFault, InvalidName
from heliograph.model.limits import RETAINED_GRAVE_SECONDS
from heliograph.model.message import DEFAULT_PRIORITY, Head, Property, encode_head

_SECOND: Final = 1_000_000
_MILLISECOND: Final = 1000
# What was said in MQTT that others have no word for.
QOS: Final = "JMS_mqtt_qos"
RETAIN: Final = "JMS_mqtt_retain"
_CORRELATION: Final = "JMS_mqtt_correlation"
_OURS: Final = (QOS, RETAIN, _CORRELATION, CONTENT_TYPE)
# User properties that are more than properties.
_SPECIAL: Final = ("unit-of-order", "delay", "priority", "type")


def prepared(packet: Publish, now: int) -> Prepared:
    """Raises ClientFault."""
    if not packet.properties and packet.qos < 2 and not packet.retain:
        check_size(len(packet.payload))
        return Prepared(packet.payload, persistent=packet.qos > 0)
    return _prepared(packet.payload, packet.qos, packet.retain, packet.properties, now)


def _prepared(payload: bytes, qos: int, retain: bool, said: Properties, now: int) -> Prepared:
    pairs: dict[str, str] = {}
    for name, value in said.get("user_property", ()):
        pairs.setdefault(name, value)
    properties: dict[str, Property] = {
        name: value for name, value in pairs.items() if name and name not in _SPECIAL
    }
    if qos == 2:
        properties[QOS] = 2
    if retain:
        properties[RETAIN] = True
    if "content_type" in said:
        properties[CONTENT_TYPE] = said["content_type"]
    expiry = said.get("message_expiry", -1)
    delay = _number(pairs, "delay", 0)
    is_said_text = said.get("payload_format") == 1 and is_text(payload)
    return prepare(
        payload,
        kind=BodyKind.TEXT if is_said_text else BodyKind.BYTES,
        priority=_number(pairs, "priority", DEFAULT_PRIORITY),
        persistent=qos > 0,
        expiry=now + max(expiry * _SECOND, 1) if expiry >= 0 else 0,
        delivery_time=now + delay * _MILLISECOND if delay else 0,
        properties=properties,
        correlation_id=_correlation(said, properties),
        reply_to=_reply_to(said),
        type=pairs.get("type"),
        unit_of_order=pairs.get("unit-of-order") or None,
    )


def prepared_retained(packet: Publish, now: int) -> Prepared:
    """The copy for those who come later. It is persistent, so it says by itself of which quality it is; one
    without a body only covers what was retained before, until that is gone."""
    if not packet.payload:
        return Prepared(b"", expiry=now + RETAINED_GRAVE_SECONDS * _SECOND)
    message = _prepared(packet.payload, packet.qos, True, packet.properties, now)
    if packet.qos:
        return message
    head = head_of(message)
    head.properties[QOS] = 0
    return msgspec.structs.replace(message, head=encode_head(head), persistent=True)


def prepared_will(payload: bytes, qos: int, retain: bool, said: Properties, now: int) -> Prepared:
    return _prepared(
        payload, qos, retain, {name: value for name, value in said.items() if name != "will_delay"}, now
    )


def _number(pairs: dict[str, str], name: str, default: int) -> int:
    text = pairs.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise ClientFault(f"{name} is a whole number, not {text[:40]!r}", code="header-invalid")
    return int(text)


def _reply_to(said: Properties) -> str | None:
    topic = said.get("response_topic")
    if topic is None:
        return None
    try:
        return address_of(topic)
    except InvalidName:
        return str(topic)


def _correlation(said: Properties, properties: dict[str, Property]) -> str | None:
    """Others have texts for it; what is none is kept beside."""
    raw: bytes | None = said.get("correlation_data")
    if raw is None:
        return None
    if is_text(raw):
        return raw.decode()
    properties[_CORRELATION] = raw
    return raw.hex()


def correlated(head: Head) -> tuple[str | None, dict[str, Property]]:
    """What an answer says to be known as one: the correlation, and if that is no text, as it was."""
    raw = head.properties.get(_CORRELATION)
    return head.correlation_id, {} if raw is None else {_CORRELATION: raw}


# ---- to clients


def are_plain(contents: Contents, version: int) -> bool:
    """Whether there is nothing to say of any of these but what is in its body, at quality 1."""
    if contents.heads is not None or contents.kind != BodyKind.BYTES or not contents.persistent:
        return False
    if version != V5:
        return True
    is_usual = contents.priorities is None and contents.priority == DEFAULT_PRIORITY
    return is_usual and contents.expiries is None and not contents.expiry


class Outgoing:
    """A message as it goes to an MQTT client."""

    __slots__ = ("is_retained", "payload", "properties", "qos")

    def __init__(self, contents: Contents, index: int, *, version: int, now: int) -> None:
        head = head_at(contents, index)
        kind, self.payload = body_at(contents, index, head)
        said = head.properties
        self.is_retained = said.get(RETAIN) is True
        marked = said.get(QOS)
        self.qos = marked if marked in (0, 2) else 1 if contents.persistent else 0
        self.properties: Properties = {}
        if version == V5:
            self._say(contents, index, head, kind, now)

    def _say(self, contents: Contents, index: int, head: Head, kind: int, now: int) -> None:
        properties = self.properties
        expiry = contents.expiry if contents.expiries is None else contents.expiries[index]
        if expiry:
            properties["message_expiry"] = min(max((expiry - now) // _SECOND, 0), 0xFFFFFFFF)
        if kind in (BodyKind.TEXT, BodyKind.DATA):
            properties["payload_format"] = 1
        content_type = head.properties.get(CONTENT_TYPE)
        if isinstance(content_type, str):
            properties["content_type"] = content_type
        elif kind == BodyKind.DATA:
            properties["content_type"] = "application/json"
        if head.reply_to is not None:
            properties["response_topic"] = topic_of(head.reply_to)
        correlation = head.properties.get(_CORRELATION)
        if isinstance(correlation, bytes):
            properties["correlation_data"] = correlation
        elif head.correlation_id is not None:
            properties["correlation_data"] = head.correlation_id.encode(errors="replace")
        pairs = self._pairs(contents, index, head, kind)
        if pairs:
            properties["user_property"] = pairs

    def _pairs(self, contents: Contents, index: int, head: Head, kind: int) -> list[tuple[str, str]]:
        pairs = [
            (name, text_of_property(value))
            for name, value in head.properties.items()
            if name not in _OURS and value is not None and not name.startswith(AMQP_PREFIX)
        ]
        if head.type is not None:
            pairs.append(("type", head.type))
        if head.unit is not None:
            pairs.append(("unit-of-order", head.unit))
        priority = contents.priority if contents.priorities is None else contents.priorities[index]
        if priority != DEFAULT_PRIORITY:
            pairs.append(("priority", str(priority)))
        if kind == BodyKind.LARGE:
            pairs.append(("large", "true"))
        return pairs
