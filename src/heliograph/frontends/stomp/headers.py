"""How STOMP's headers and our messages say the same (docs/reference/protocols.md has the table).

Whatever header is not known is a property of type text. Where both have a name for something, the body's type
among it, it is translated and not doubled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from heliograph.frontends.prepared import (
    AMQP_PREFIX,
    CONTENT_TYPE,
    Prepared,
    body_at,
    check_size,
    head_at,
    id_of,
    is_text,
    prepare,
    text_of_property,
)
from heliograph.frontends.stomp.addresses import destination_of
from heliograph.frontends.stomp.frames import escape
from heliograph.model.block import BodyKind, Contents
from heliograph.model.errors import ClientFault, InvalidName
from heliograph.model.message import DEFAULT_PRIORITY, Head, Property

_TEXTUAL: Final = ("text/", "application/json", "application/xml")
_MILLISECOND: Final = 1000
# Not properties: what they say is in the message elsewhere, or only concerns the frame.
_KNOWN: Final = frozenset(
    {
        "destination",
        "receipt",
        "transaction",
        "content-length",
        "content-type",
        "persistent",
        "priority",
        "expires",
        "delay",
        "reply-to",
        "correlation-id",
        "type",
        "unit-of-order",
        "JMSXGroupID",
        "JMSXGroupSeq",
        # Only a server says these.
        "message-id",
        "subscription",
        "ack",
        "timestamp",
        "delivery-time",
        "redelivered",
        "JMSXDeliveryCount",
        "JMSXUserID",
    }
)
# A message of bytes about which nothing else is said.
_PLAIN: Final = frozenset({"destination", "receipt", "content-length", "transaction", "persistent"})


def _number(headers: dict[str, str], name: str, default: int) -> int:
    text = headers.get(name)
    if text is None:
        return default
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not 0 <= number < 1 << 53:
        raise ClientFault(f"the header {name} is a whole number, not {text[:40]!r}", code="header-invalid")
    return number


def prepared(headers: dict[str, str], body: bytes, now: int, translate: Callable[[str], str]) -> Prepared:
    """The message of a SEND frame. `translate` turns a destination into an address. Raises ClientFault."""
    if "content-length" in headers and _PLAIN.issuperset(headers):
        check_size(len(body))
        return Prepared(body, persistent=headers.get("persistent") != "false")
    content_type = headers.get("content-type", "")
    properties: dict[str, Property] = {name: text for name, text in headers.items() if name not in _KNOWN}
    if content_type:
        properties[CONTENT_TYPE] = content_type
    reply_to = headers.get("reply-to")
    delay = _number(headers, "delay", 0)
    group = headers.get("JMSXGroupID")
    return prepare(
        body,
        kind=_kind(headers, content_type, body),
        priority=_number(headers, "priority", DEFAULT_PRIORITY),
        persistent=headers.get("persistent") != "false",
        expiry=_number(headers, "expires", 0) * _MILLISECOND,
        delivery_time=now + delay * _MILLISECOND if delay else 0,
        properties=properties,
        correlation_id=headers.get("correlation-id"),
        reply_to=None if reply_to is None else _reply_address(reply_to, translate),
        type=headers.get("type"),
        group_id=group,
        group_sequence=_number(headers, "JMSXGroupSeq", 0),
        unit_of_order=headers.get("unit-of-order") or group or None,
    )


def _reply_address(reply_to: str, translate: Callable[[str], str]) -> str:
    """Whoever answers may speak another protocol."""
    try:
        return translate(reply_to)
    except InvalidName:
        return reply_to


def _kind(headers: dict[str, str], content_type: str, body: bytes) -> int:
    """Text, if the client says so, or says nothing and gives no length, as those do that send text."""
    says_text = content_type.startswith(_TEXTUAL) if content_type else "content-length" not in headers
    return BodyKind.TEXT if says_text and is_text(body) else BodyKind.BYTES


class Encoder:
    """MESSAGE frames for one subscription."""

    def __init__(self, subscription: str, version: str, *, has_acks: bool) -> None:
        """`has_acks`: each message has a header to be acknowledged by (version 1.2)."""
        self._version = version
        self._has_acks = has_acks
        self._subscription = f"\nsubscription:{escape(subscription, version)}" if subscription else ""
        self._begin = ""
        self._destination = ""

    def encode(
        self,
        contents: Contents,
        index: int,
        *,
        destination: str,
        tag: str,
        earlier: int,
        user: str,
        identity: str = "",
    ) -> bytes:
        """`identity`: of what is called otherwise than a message."""
        if destination != self._destination:
            self._destination = destination
            named = escape(destination_of(destination), self._version)
            self._begin = f"MESSAGE{self._subscription}\ndestination:{named}"
        head = head_at(contents, index)
        kind, body = body_at(contents, index, head)
        lines = [
            f"{self._begin}\nmessage-id:{identity or id_of(contents, index)}\ncontent-length:{len(body)}"
        ]
        if self._has_acks:
            lines.append(f"ack:{tag}")
        for name, value in _said(contents, index, head, kind, earlier, user):
            lines.append(f"{name}:{escape(value, self._version)}")
        if head.properties:
            self._add_properties(head, lines)
        return b"".join(("\n".join(lines).encode(errors="replace"), b"\n\n", body, b"\0"))

    def _add_properties(self, head: Head, lines: list[str]) -> None:
        for name, value in head.properties.items():
            if name in _KNOWN or name == CONTENT_TYPE or name.startswith(AMQP_PREFIX):
                continue
            if value is not None:
                lines.append(
                    f"{escape(name, self._version)}:{escape(text_of_property(value), self._version)}"
                )


def _said(
    contents: Contents, index: int, head: Head, kind: int, earlier: int, user: str
) -> list[tuple[str, str]]:
    """What is to be said of a message because it is not as usual."""
    said: list[tuple[str, str]] = []
    timestamp = contents.timestamp if contents.timestamps is None else contents.timestamps[index]
    if timestamp:
        said.append(("timestamp", str(timestamp // _MILLISECOND)))
    if contents.persistent:
        said.append(("persistent", "true"))
    priority = contents.priority if contents.priorities is None else contents.priorities[index]
    if priority != DEFAULT_PRIORITY:
        said.append(("priority", str(priority)))
    expiry = contents.expiry if contents.expiries is None else contents.expiries[index]
    if expiry:
        said.append(("expires", str(expiry // _MILLISECOND)))
    at = contents.delivery_time if contents.delivery_times is None else contents.delivery_times[index]
    if at:
        said.append(("delivery-time", str(at // _MILLISECOND)))
    if earlier:
        said += (("redelivered", "true"), ("JMSXDeliveryCount", str(earlier + 1)))
    if user:
        said.append(("JMSXUserID", user))
    if contents.heads is not None or kind != BodyKind.BYTES:
        said += _said_in_head(head, kind)
    return said


def _said_in_head(head: Head, kind: int) -> list[tuple[str, str]]:
    said: list[tuple[str, str]] = []
    content_type = head.properties.get(CONTENT_TYPE)
    if isinstance(content_type, str):
        said.append(("content-type", content_type))
    elif kind in (BodyKind.TEXT, BodyKind.DATA):
        said.append(("content-type", "text/plain" if kind == BodyKind.TEXT else "application/json"))
    elif kind == BodyKind.LARGE:
        said.append(("large", "true"))
    if head.reply_to is not None:
        said.append(("reply-to", destination_of(head.reply_to)))
    for name, value in (
        ("correlation-id", head.correlation_id),
        ("type", head.type),
        ("unit-of-order", head.unit),
        ("JMSXGroupID", head.group_id),
    ):
        if value is not None:
            said.append((name, value))
    if head.group_sequence:
        said.append(("JMSXGroupSeq", str(head.group_sequence)))
    return said
