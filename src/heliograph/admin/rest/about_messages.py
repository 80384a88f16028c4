"""Answers about messages: looking, sending, moving, deleting, and sending the dead again."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, Final

import msgspec

from heliograph.admin.rest.forms import SendForm
from heliograph.destinations import dead_letters as names
from heliograph.frontends.http.replies import Reply
from heliograph.frontends.http.steps import Call, Deliver, Exchange, Look, Message, Question, Seen, Steps
from heliograph.frontends.prepared import Prepared, is_text, prepare
from heliograph.model.block import BodyKind
from heliograph.model.errors import ClientFault
from heliograph.model.limits import PREVIEW_BYTES
from heliograph.model.message import Head, decode_body, encode_body

_OURS: Final = (
    names.ORIGINAL_DESTINATION,
    names.ORIGINAL_ID,
    names.REASON,
    names.DELIVERIES,
    names.DIED_AT,
    names.LAST_ERROR,
)
_KINDS: Final = {
    BodyKind.BYTES: "bytes",
    BodyKind.TEXT: "text",
    BodyKind.DATA: "data",
    BodyKind.LARGE: "large",
}
_ID: Final = re.compile(r"[0-9A-Za-z.:_/-]{1,80}")
_MICROSECONDS: Final = 1_000_000
_CONTEXT: Final = ("traceparent", "tracestate")


def look(call: Call) -> Steps:
    query = call.query
    seen: Seen = yield Look(call.path["destination"], query.selector, query.skip, query.limit)
    following = query.skip + len(seen.messages)
    return Reply(
        200,
        {
            "messages": [{**_shown(each), **_preview(each)} for each in seen.messages],
            "next": following if seen.has_more and seen.messages else 0,
        },
    )


def peek(call: Call) -> Steps:
    message = yield from _find(call)
    form = call.query.body
    if form == "raw":
        return Reply(200, message.body, "application/octet-stream", [("Content-Disposition", "attachment")])
    return Reply(200, {**_shown(message), **_whole(message, form)})


def _find(call: Call) -> Any:
    selector = _by_ids([call.path["id"]])
    seen: Seen = yield Look(call.path["destination"], selector)
    if not seen.messages:
        raise ClientFault("no such message waits there; it may have been consumed", code="message-unknown")
    return seen.messages[0]


# ---- showing


def _shown(message: Message) -> dict[str, Any]:
    head: Head = message.head
    return {
        "id": message.id,
        "kind": _KINDS.get(BodyKind(message.kind), "bytes"),
        "size": len(message.body),
        "priority": message.priority,
        "persistent": message.persistent,
        "timestamp": message.timestamp / _MICROSECONDS,
        "expiry": message.expiry / _MICROSECONDS,
        "delivery_time": message.delivery_time / _MICROSECONDS,
        "deliveries": message.deliveries,
        "user": message.user,
        "correlation_id": head.correlation_id,
        "reply_to": head.reply_to,
        "type": head.type,
        "unit_of_order": head.unit,
        "group_id": head.group_id,
        "group_sequence": head.group_sequence,
        "properties": {
            name: value.hex() if isinstance(value, bytes) else value
            for name, value in head.properties.items()
        },
    }


def _preview(message: Message) -> dict[str, Any]:
    """The beginning of a body, as text if it is one."""
    if message.kind == BodyKind.LARGE:
        return {"preview": "", "preview_form": "none"}
    if message.kind == BodyKind.DATA:
        text = _json_text(message)
        if text is not None:
            return {"preview": text[:PREVIEW_BYTES], "preview_form": "json"}
    beginning = message.body[:PREVIEW_BYTES]
    if is_text(message.body[: PREVIEW_BYTES * 8]) or message.kind == BodyKind.TEXT:
        return {"preview": beginning.decode(errors="ignore"), "preview_form": "text"}
    return {"preview": beginning[: PREVIEW_BYTES // 2].hex(" "), "preview_form": "hex"}


def _whole(message: Message, form: str) -> dict[str, Any]:
    """Raises ClientFault where it is not what it is to be shown as."""
    if message.kind == BodyKind.LARGE:
        return {"body": None, "body_form": "none"}
    if form == "hex":
        return {"body": message.body.hex(), "body_form": "hex"}
    data = decode_body(message.kind, message.body)
    if isinstance(data, dict | list) and form in ("auto", "json"):
        text = _json_text(message)
        if text is not None:
            return {"body": msgspec.Raw(text.encode()), "body_form": "json"}
    if form in ("auto", "json") and is_text(message.body):
        try:
            return {"body": msgspec.json.decode(message.body), "body_form": "json"}
        except (msgspec.MsgspecError, RecursionError):
            if form == "json":
                raise ClientFault(
                    "the body is no JSON: ask for it as text or hex", code="body-form"
                ) from None
    if is_text(message.body):
        return {"body": message.body.decode(), "body_form": "text"}
    if form == "auto":
        return {"body": message.body.hex(), "body_form": "hex"}
    raise ClientFault("the body is no text: ask for it as hex or raw", code="body-form")


def _json_text(message: Message) -> str | None:
    data = decode_body(message.kind, message.body)
    try:
        return msgspec.json.encode(data).decode() if isinstance(data, dict | list) else None
    except (TypeError, ValueError, RecursionError, UnicodeEncodeError):
        return None


# ---- sending


def send(call: Call) -> Steps:
    form: SendForm = call.body
    for name in _CONTEXT:  # a trace that led here goes on with the message
        if name in call.headers:
            form.properties.setdefault(name, call.headers[name])
    identity = yield Deliver(call.path["destination"], _prepared(form, call.now))
    return Reply(201, {"id": identity, "destination": call.path["destination"]})


def _prepared(form: SendForm, now: float) -> Prepared:
    """Raises ClientFault."""
    kind, body = _body_of(form)
    moment = int(now * _MICROSECONDS)
    return prepare(
        body,
        kind=kind,
        priority=form.priority,
        persistent=form.persistent,
        expiry=moment + int(form.expires_seconds * _MICROSECONDS) if form.expires_seconds else 0,
        delivery_time=moment + int(form.delay_seconds * _MICROSECONDS) if form.delay_seconds else 0,
        properties=form.properties,
        correlation_id=form.correlation_id,
        reply_to=form.reply_to,
        type=form.type,
        unit_of_order=form.unit_of_order,
        group_id=form.group_id,
        group_sequence=form.group_sequence,
    )


def _body_of(form: SendForm) -> tuple[int, bytes]:
    if not form.encoding:
        plain = isinstance(form.body, str | dict | list)
        return encode_body(form.body if plain else msgspec.json.encode(form.body).decode())
    if not isinstance(form.body, str):
        raise ClientFault(f"with encoding {form.encoding} the body is a text", code="body-invalid")
    try:
        if form.encoding == "hex":
            return BodyKind.BYTES, bytes.fromhex(form.body)
        return BodyKind.BYTES, base64.b64decode(form.body, validate=True)
    except (ValueError, binascii.Error):
        raise ClientFault(f"the body is not {form.encoding}", code="body-invalid") from None


# ---- moving, deleting


def move(call: Call) -> Steps:
    arguments = {**_which(call), "target": call.body.target}
    return Reply(200, (yield Question("message.move", arguments)))


def delete(call: Call) -> Steps:
    return Reply(200, (yield Question("message.delete", _which(call))))


def _which(call: Call) -> dict[str, Any]:
    form = call.body
    return {
        "destination": call.path["destination"],
        "filter": _selected(form.ids, form.selector),
        "limit": form.limit,
    }


def _selected(ids: list[str], selector: str) -> str:
    chosen = _by_ids(ids) if ids else ""
    return f"({selector}) AND {chosen}" if selector and chosen else selector or chosen


def _by_ids(ids: list[str]) -> str:
    for each in ids:
        if not _ID.fullmatch(each):
            raise ClientFault("that is not the id of a message", code="argument-invalid")
    return "JMSMessageID IN (" + ", ".join(f"'{each}'" for each in ids) + ")"


# ---- the dead


def redrive(call: Call) -> Steps:
    """In one transaction they are sent to where they came from and done with where they are: none is lost, and none
    is in both places. What cannot go stays, and is counted."""
    form, source = call.body, call.path["destination"]
    selector = _selected(form.ids, form.selector)
    dead: Seen = yield Look(source, selector, 0, form.limit)
    if not dead.messages:
        return Reply(200, {"redriven": 0, "stayed": 0, "why": {}, "has_more": False})
    taken: Seen = yield Look(source, selector, 0, len(dead.messages), takes=True)
    going: list[tuple[str, Prepared]] = []
    tags: list[int] = []
    why: dict[str, int] = {}
    for message in taken.messages:
        try:
            going.append(_again(message, form.to))
            tags.append(message.tag)
        except ClientFault as fault:
            why[fault.sentence] = why.get(fault.sentence, 0) + 1
    if going:
        yield Exchange(going, taken.consumer, tags)
    stayed = len(dead.messages) - len(going)
    return Reply(200, {"redriven": len(going), "stayed": stayed, "why": why, "has_more": dead.has_more})


def _again(message: Message, to: str) -> tuple[str, Prepared]:
    """Where it goes, and it as it was. Raises ClientFault."""
    head: Head = message.head
    destination = to or head.properties.get(names.ORIGINAL_DESTINATION)
    if not isinstance(destination, str):
        raise ClientFault("it does not say where it came from: name a destination", code="redrive-failed")
    if message.kind == BodyKind.LARGE:
        raise ClientFault("very large messages go again with `helio dmq redrive`", code="redrive-failed")
    prepared = prepare(
        message.body,
        kind=message.kind,
        priority=message.priority,
        persistent=message.persistent,
        properties={name: value for name, value in head.properties.items() if name not in _OURS},
        correlation_id=head.correlation_id,
        reply_to=head.reply_to,
        type=head.type,
        group_id=head.group_id,
        group_sequence=head.group_sequence,
        unit_of_order=head.unit,
    )
    return destination, prepared
