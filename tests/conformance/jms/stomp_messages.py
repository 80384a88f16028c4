"""Messages of JMS as STOMP's headers and bodies, and back.

What STOMP has no words for ends the test that needs it, here and with the reason.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.conformance.jms.adapter import Body, Destination, Message, MessageFormat, Property

_TEXT, _DATA = "text/plain", "application/json"
_NOT_PROPERTIES = frozenset(
    {
        *("destination", "subscription", "message-id", "ack", "content-length", "content-type", "persistent"),
        *("priority", "expires", "timestamp", "delivery-time", "redelivered", "JMSXDeliveryCount"),
        *("JMSXUserID", "JMSXGroupID", "JMSXGroupSeq", "reply-to", "correlation-id", "type", "unit-of-order"),
    }
)


def path_of(destination: Destination) -> str:
    return f"/{destination.kind}/{destination.name}"


def destination_at(path: str) -> Destination:
    _, kind, name = path.split("/", 2)
    return Destination("queue" if kind == "queue" else "topic", name)


def _text_of(name: str, value: Property) -> str:
    if isinstance(value, bool | int | float):
        pytest.skip("a header of STOMP is text: numbers and booleans do not keep their type")
    if not isinstance(value, str):
        raise MessageFormat(f"property {name} is a {type(value).__name__}")
    if "\0" in value:
        pytest.skip("a header of STOMP has no NUL")
    return value


def headers_of(options: Mapping[str, Any]) -> dict[str, str]:
    """What a client says about a message. Raises MessageFormat."""
    properties: Mapping[str, Property] = options.get("properties", {})
    headers = {name: _text_of(name, value) for name, value in properties.items() if value is not None}
    for option, header in (
        ("correlation_id", "correlation-id"),
        ("type", "type"),
        ("group_id", "JMSXGroupID"),
    ):
        if option in options:
            headers[header] = options[option]
    for option, header in (("group_sequence", "JMSXGroupSeq"), ("priority", "priority")):
        if option in options:
            headers[header] = str(options[option])
    if "reply_to" in options:
        headers["reply-to"] = path_of(options["reply_to"])
    if options.get("time_to_live"):
        headers["expires"] = str(int((time.time() + options["time_to_live"]) * 1000))
    if options.get("delay"):
        headers["delay"] = str(int(options["delay"] * 1000))
    headers["persistent"] = "true" if options.get("persistent", True) else "false"
    return headers


def body_of(body: Body, headers: dict[str, str]) -> bytes:
    """The bytes of a body, with what says how they are to be read. Raises MessageFormat."""
    if isinstance(body, bytes):
        raw = body
    elif isinstance(body, str):
        raw = body.encode()
        headers["content-type"] = _TEXT
    elif isinstance(body, dict | list):
        try:
            raw = json.dumps(body).encode()
        except TypeError as error:
            raise MessageFormat(str(error)) from None
        headers["content-type"] = _DATA
    else:
        raise MessageFormat(f"a body is no {type(body).__name__}")
    headers["content-length"] = str(len(raw))
    return raw


def _body_seen(frame: Any) -> Body:
    content_type = frame.headers.get("content-type", "")
    if content_type == _TEXT:
        text: str = frame.body.decode()
        return text
    if content_type == _DATA:
        data: dict[str, Any] | list[Any] = json.loads(frame.body)
        return data
    raw: bytes = frame.body
    return raw


def message_of(frame: Any, on_acknowledge: Callable[[], None]) -> Message:
    """A MESSAGE frame as its consumer sees it."""
    headers: dict[str, str] = frame.headers
    timestamp = int(headers.get("timestamp", 0)) / 1000
    return Message(
        body=_body_seen(frame),
        id=headers["message-id"],
        destination=destination_at(headers["destination"]),
        timestamp=timestamp,
        expiration=int(headers.get("expires", 0)) / 1000,
        delivery_time=int(headers["delivery-time"]) / 1000 if "delivery-time" in headers else timestamp,
        priority=int(headers.get("priority", 4)),
        persistent=headers.get("persistent") == "true",
        correlation_id=headers.get("correlation-id"),
        reply_to=destination_at(headers["reply-to"]) if "reply-to" in headers else None,
        type=headers.get("type"),
        redelivered=headers.get("redelivered") == "true",
        delivery_count=int(headers.get("JMSXDeliveryCount", 1)),
        user_id=headers.get("JMSXUserID"),
        group_id=headers.get("JMSXGroupID"),
        group_sequence=int(headers.get("JMSXGroupSeq", 0)),
        properties={name: value for name, value in headers.items() if name not in _NOT_PROPERTIES},
        on_acknowledge=on_acknowledge,
    )
