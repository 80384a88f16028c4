"""How an alert is said as a message, and a message as an alert, for clients whose protocol knows messages only
(docs/reference/protocols.md has the table).

What both have in common says what it always says: priority (one less, 0 to 9), lifetime, persistence, user, body. The
rest are properties. A message for a channel publishes an alert, unless `alert_action` says otherwise: `cancel` and
`acknowledge` are about the alert that the correlation id names.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from heliograph.frontends.prepared import Prepared, head_of
from heliograph.model import block
from heliograph.model.alert import (
    AcknowledgePolicy,
    AlertFault,
    AlertHeader,
    AlertId,
    AlertType,
    AlertView,
    CancelPolicy,
    Classification,
    alert_priority,
    message_priority,
    parse_alert_id,
    parse_classification,
    text_of_alert,
)
from heliograph.model.block import BodyKind, Contents
from heliograph.model.destination import Kind
from heliograph.model.ids import LaneId
from heliograph.model.message import Head, Property, decode_body, encode_head

ALERT_ID: Final = "alert_id"
ACTION: Final = "alert_action"
DESTINATION: Final = "alert_destination"
TYPE: Final = "alert_type"
CLASSIFICATION: Final = "alert_classification"
CANCEL: Final = "alert_cancel"
ACKNOWLEDGE: Final = "alert_acknowledge"
DURATION: Final = "alert_duration"
_SECOND: Final = 1_000_000
_NO_LANE: Final = LaneId(bytes(16))
E = TypeVar("E", bound=enum.IntEnum)


class Publishing(msgspec.Struct):
    """An alert that somebody publishes."""

    header: AlertHeader
    body: bytes


class Cancelling(msgspec.Struct):
    """An alert that somebody cancels."""

    alert: AlertId


class Acknowledging(msgspec.Struct):
    """An alert that somebody acknowledges."""

    alert: AlertId
    body: bytes


def is_channel(address: str) -> bool:
    """Whether what is sent there are alerts."""
    return address.startswith(f"{Kind.ALERTS}:")


def meant_by(message: Prepared, now: int) -> Publishing | Cancelling | Acknowledging:
    """What a message to a channel wants done. Raises ClientFault."""
    head = head_of(message)
    action = head.properties.get(ACTION, "publish")
    if action == "publish":
        return Publishing(_header(message, head.properties, now), _body(message))
    if action == "cancel":
        return Cancelling(parse_alert_id(head.correlation_id or ""))
    if action == "acknowledge":
        return Acknowledging(parse_alert_id(head.correlation_id or ""), _body(message))
    raise AlertFault(f"{ACTION} is publish, cancel or acknowledge, not {str(action)[:40]!r}")


def _header(message: Prepared, said: Mapping[str, Property], now: int) -> AlertHeader:
    destination, classification = said.get(DESTINATION), said.get(CLASSIFICATION, "unclassified")
    if not isinstance(destination, str):
        raise AlertFault(f"an alert says whom it is for: {DESTINATION}, as in TAG:disk")
    if message.delivery_time:
        raise AlertFault("alerts are not delayed: publish it when it is the case")
    try:
        level = parse_classification(str(classification))
    except ValueError as error:
        raise AlertFault(str(error)) from None
    return AlertHeader(
        destination,
        priority=alert_priority(message.priority),
        duration=_duration(message, said, now),
        persistent=message.persistent,
        classification=level,
        cancel_policy=_named(CancelPolicy, said.get(CANCEL, "originator"), CANCEL),
        acknowledge_policy=_named(AcknowledgePolicy, said.get(ACKNOWLEDGE, "none"), ACKNOWLEDGE),
    )


def _duration(message: Prepared, said: Mapping[str, Property], now: int) -> float:
    """In seconds: as it is said, or until the message would expire."""
    told = said.get(DURATION)
    if told is None:
        # What is over already lives for a moment, since 0 is for ever.
        return max(message.expiry - now, 1) / _SECOND if message.expiry else 0.0
    try:
        if isinstance(told, str | int | float) and not isinstance(told, bool):
            return float(told)
    except (ValueError, OverflowError):
        pass
    raise AlertFault(f"{DURATION} is a number of seconds, not {str(told)[:40]!r}")


def _named(kind: type[E], text: Property, name: str) -> E:
    for each in kind:
        if text == each.name.lower():
            return each
    known = ", ".join(each.name.lower() for each in kind)
    raise AlertFault(f"{name} is one of {known}, not {str(text)[:40]!r}")


def _body(message: Prepared) -> bytes:
    """A map or list is JSON."""
    if message.kind != BodyKind.DATA:
        return message.body
    try:
        return msgspec.json.encode(decode_body(message.kind, message.body))
    except (TypeError, ValueError, RecursionError):
        raise AlertFault("the body of an alert is bytes, text, or what JSON can say") from None


def as_message(view: AlertView, **properties: Property) -> Contents:
    """An alert as the one message of a block. `properties`: what the protocol adds."""
    header = view.header
    said: dict[str, Property] = {
        ALERT_ID: text_of_alert(view.id),
        DESTINATION: header.destination,
        TYPE: AlertType(header.type).name.lower(),
        CLASSIFICATION: Classification(header.classification).label,
        CANCEL: CancelPolicy(header.cancel_policy).name.lower(),
        ACKNOWLEDGE: AcknowledgePolicy(header.acknowledge_policy).name.lower(),
        **properties,
    }
    correlation = text_of_alert(header.correlation) if header.correlation else None
    return block.unpack(
        block.pack_lone(
            view.body,
            lane=_NO_LANE,
            sequence=1,
            timestamp=view.arrived,
            priority=message_priority(header.priority),
            persistent=header.persistent,
            kind=BodyKind.BYTES,
            head=encode_head(Head(correlation_id=correlation, properties=said)),
            expiry=view.arrived + int(header.duration * _SECOND) if header.duration else 0,
        )
    )
