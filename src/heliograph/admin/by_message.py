"""Administration as messages (M13): a command published to `topic:_ADMIN`, and the reply to its reply-to.

    {"command": "destination.show", "arguments": {"destination": "queue:orders"}, "nodes": ["1.1"]}
    {"expected": 1, "replies": [{"node": "1.1", "ok": true, "body": {…}}]}

A command is a map, or JSON as text or bytes. `nodes` says which nodes are meant; unless told, all of them where each
answers for itself, and otherwise the one that leads. A reply is composite and says how many nodes were expected to
answer (`survey.py`).
"""

from __future__ import annotations

from typing import Any

import msgspec

from heliograph.admin.subjects import Arguments
from heliograph.admin.survey import Answer, reply_of
from heliograph.model.block import BodyKind, Contents
from heliograph.model.errors import ClientFault
from heliograph.model.ids import message_id
from heliograph.model.message import Head, decode_body, decode_head


class ByMessage(msgspec.Struct):
    """A command and where its reply is wanted."""

    command: str
    arguments: Arguments
    reply_to: str
    correlation_id: str
    nodes: list[str] | None = None


class _Command(msgspec.Struct):
    command: str
    arguments: dict[str, Any] = {}
    nodes: list[str] | None = None


def commands_of(contents: Contents) -> list[ByMessage | tuple[str, str, ClientFault]]:
    """Some messages as commands. For one that cannot be understood: its reply-to, its correlation id, and the
    fault."""
    found: list[ByMessage | tuple[str, str, ClientFault]] = []
    for index, raw in enumerate(contents.bodies):
        head = _head_of(contents, index)
        kind = head.kind if contents.kind == BodyKind.MIXED else contents.kind
        reply_to = head.reply_to or ""
        correlation = head.correlation_id or message_id(contents.lane, contents.first + index)
        try:
            command = _understood(kind, raw)
        except ClientFault as fault:
            found.append((reply_to, correlation, fault))
            continue
        found.append(ByMessage(command.command, command.arguments, reply_to, correlation, command.nodes))
    return found


def _head_of(contents: Contents, index: int) -> Head:
    try:
        return decode_head(contents.heads[index]) if contents.heads and contents.heads[index] else Head()
    except ClientFault:
        return Head()


def _understood(kind: int, raw: bytes) -> _Command:
    try:
        if kind == BodyKind.DATA:
            return msgspec.convert(decode_body(kind, raw), _Command)
        return msgspec.json.decode(raw, type=_Command)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as fault:
        sentence = f'a command is {{"command": SUBJECT, "arguments": {{…}}}}: {fault}'
        raise ClientFault(sentence, code="command-malformed") from None


def reply(node: str, body: Answer) -> dict[str, Any]:
    """The composite reply of one node."""
    return {"expected": 1, "replies": [reply_of(node, body)]}
