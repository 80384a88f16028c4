"""`helio receive`: take messages from a destination and print them, or write their contents to files.

A message counts as received when it has been printed or is in its file: were the output to break off, the rest
goes back.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliograph.cli import options
from heliograph.cli.at_server import Server, at_server
from heliograph.cli.connecting import FOLLOW_SECONDS, ServerAddress, connected
from heliograph.cli.contents import Output, write_large
from heliograph.cli.presentation import bytes_of, count_of, harmless
from heliograph.model.errors import ClientFault

if TYPE_CHECKING:
    from heliograph.client import Message

# Without --follow, silence of this length means that there is no more.
A_MOMENT_SECONDS = 1.0
_BATCH = 500

Format = Callable[["Message"], bytes]


@at_server
def receive(
    server: Server,
    destination: Annotated[
        str,
        typer.Argument(
            metavar="DEST",
            help="queue:NAME, topic:NAME, or many topics: topic:glob:PATTERN, topic:regex:PATTERN.",
        ),
    ],
    count: Annotated[
        int | None,
        typer.Option("--count", "-n", min=1, help="End after this many messages.", show_default=False),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more until Ctrl-C.")] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            min=0,
            metavar="SECONDS",
            help="End when nothing came for so long.",
            show_default="1, with --follow never",
        ),
    ] = None,
    bodies_only: Annotated[
        bool, typer.Option("--bodies-only", help="Print bodies as they are, one per line.")
    ] = False,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR|FILE",
            help="Write the content of each message to a file in this folder, or of one message to this file.",
            show_default=False,
        ),
    ] = "",
    selector: options.Selector = "",
) -> None:
    """Receive messages and print them; what was printed is acknowledged."""
    if bodies_only and (server.as_json or output):
        raise ClientFault("give --bodies-only, or --json and --output, not both", code="usage")
    place = Output(output) if output else None
    if place is not None and not place.is_folder:
        if (count or 1) != 1 or follow:
            raise ClientFault("a file takes one message: name a folder for more, DIR/", code="usage")
        count = 1
    form: Format = as_json_line if server.as_json else as_body if bodies_only else for_people()
    patience = timeout if timeout is not None or follow else A_MOMENT_SECONDS
    tally = Tally()
    import uvloop

    try:
        uvloop.run(
            _receive(
                server.address,
                destination,
                selector=selector,
                limit=count,
                patience=patience,
                reconnect_seconds=FOLLOW_SECONDS if follow else 0,
                form=form,
                output=place,
                tally=tally,
            )
        )
    except KeyboardInterrupt:
        if not follow:
            raise
    if not server.as_json:
        typer.echo(summary(tally.received, destination, patience), err=True)


class Tally:
    """How many messages were printed and acknowledged, also when the end comes from the keyboard."""

    def __init__(self) -> None:
        self.received = 0


async def _receive(
    address: ServerAddress,
    destination: str,
    *,
    selector: str,
    limit: int | None,
    patience: float | None,
    reconnect_seconds: float,
    form: Format,
    output: Output | None,
    tally: Tally,
) -> None:
    from heliograph.model.limits import CONSUMER_CREDIT

    # Only what is printed should have been handed out: the rest would go back marked as redelivered. What goes
    # to files is taken one by one: each may be large.
    most = CONSUMER_CREDIT if output is None else 1
    batch = _BATCH if output is None else 1
    credit = most if limit is None else min(limit, most)
    write, flush = sys.stdout.buffer.write, sys.stdout.buffer.flush
    async with connected(address, purpose="receive", reconnect_seconds=reconnect_seconds) as connection:
        session = await connection.session(acknowledge="client")
        consumer = await session.consumer(destination, selector=selector, credit=credit)
        while limit is None or tally.received < limit:
            wanted = batch if limit is None else min(batch, limit - tally.received)
            messages = await consumer.receive_batch(wanted, timeout=patience)
            if not messages:
                return
            for message in messages:
                file = await output.save(message) if output is not None else None
                if message.is_large and form is as_body:
                    await write_large(message, write)
                write(form(message) if file is None else form_with_file(form, message, file))
            flush()
            tally.received += len(messages)
            # A full batch means that more is waiting: the server's "yes" to the last one covers them all.
            is_last = len(messages) < wanted or tally.received == limit or output is not None
            await session.acknowledge(confirm=is_last)


def summary(received: int, destination: str, patience: float | None) -> str:
    """The last line, on standard error: how many there were, and why it is over."""
    if received or patience is None:
        return f"{count_of(received, 'message')} received from {destination}"
    hint = (
        " (a topic delivers what is sent while you listen: try --follow)"
        if destination[:6] == "topic:"
        else ""
    )
    return f"no message came from {destination} within {patience:g} s{hint}"


# ---- how a message looks


def as_body(message: Message) -> bytes:
    """The body as it is, and a line end."""
    return _raw(message.body) + b"\n"


def _raw(body: Any) -> bytes:
    if isinstance(body, bytes):
        return body
    if _is_large(body):
        return b""  # its content was written before
    return body.encode() if isinstance(body, str) else _json(body)


def _json(value: Any) -> bytes:
    import msgspec

    try:
        return msgspec.json.encode(value)
    except TypeError:  # a map with keys that JSON does not have
        return msgspec.json.encode(repr(value))


def _is_large(body: Any) -> bool:
    from heliograph.model.large import LargeReference

    return isinstance(body, LargeReference)


def form_with_file(form: Format, message: Message, file: Path) -> bytes:
    """What is told of a message whose content is in a file."""
    if form is as_json_line:
        known = record_of(message) | {"body": None, "body_encoding": None, "file": str(file)}
        return _json(known) + b"\n"
    return f"{file}  {bytes_of(file.stat().st_size)}\n".encode(errors="replace")


def as_json_line(message: Message) -> bytes:
    """All headers and the body as a JSON object. `body_encoding` marks bytes that are no UTF-8 as base64."""
    return _json(record_of(message)) + b"\n"


def record_of(message: Message) -> dict[str, Any]:
    """The message as plain data for JSON."""
    body: Any
    body, encoding, kind, size = message.body, None, "data", None
    if _is_large(body):
        kind, size, body = "large", body.size, None
    elif isinstance(body, str):
        kind = "text"
    elif isinstance(body, bytes):
        kind = "bytes"
        body, encoding = _text_or_base64(body)
    return {
        "id": message.id,
        "destination": message.destination,
        "timestamp": message.timestamp,
        "expiration": message.expiration,
        "priority": message.priority,
        "persistent": message.persistent,
        "correlation_id": message.correlation_id,
        "reply_to": message.reply_to,
        "type": message.type,
        "redelivered": message.redelivered,
        "delivery_count": message.delivery_count,
        "user_id": message.user_id,
        "group_id": message.group_id,
        "group_sequence": message.group_sequence,
        "properties": {name: _property(value) for name, value in message.properties.items()},
        "body_kind": kind,
        "body_size": size,
        "body_encoding": encoding,
        "body": body,
    }


def _property(value: Any) -> Any:
    if not isinstance(value, bytes):
        return value
    text, encoding = _text_or_base64(value)
    return text if encoding is None else {"encoding": encoding, "value": text}


def _text_or_base64(raw: bytes) -> tuple[str, str | None]:
    import base64

    try:
        return raw.decode(), None
    except UnicodeDecodeError:
        return base64.b64encode(raw).decode(), "base64"


def for_people() -> Format:
    """As a person reads it, with colour on a terminal."""
    coloured = sys.stdout.isatty()
    return lambda message: (as_text(message, coloured=coloured) + "\n").encode(errors="replace")


def as_text(message: Message, *, coloured: bool) -> str:
    """The time and the body, and below it whatever is out of the ordinary."""
    from datetime import datetime

    dim = (lambda text: typer.style(text, dim=True)) if coloured else str
    time = datetime.fromtimestamp(message.timestamp).astimezone()
    first = f"{dim(f'{time:%H:%M:%S}.{time.microsecond // 1000:03}')}  {_readable(message.body)}"
    remarks = _remarks(message)
    return first + "\n" + dim("              " + " · ".join(remarks)) if remarks else first


def _readable(body: Any) -> str:
    if isinstance(body, bytes):
        try:
            return harmless(body.decode())
        except UnicodeDecodeError:
            return f"<{bytes_of(len(body))}: {body[:24].hex(' ')}{' …' if len(body) > 24 else ''}>"
    if _is_large(body):
        return f"<{bytes_of(body.size)}, large: --output writes it to a file>"
    return harmless(body if isinstance(body, str) else _json(body).decode())


def _remarks(message: Message) -> list[str]:
    remarks = [f"{harmless(name)}={harmless(str(value))}" for name, value in message.properties.items()]
    if message.type:
        remarks.append(f"type {harmless(message.type)}")
    if message.correlation_id:
        remarks.append(f"answers {harmless(message.correlation_id)}")
    if message.reply_to:
        remarks.append(f"reply to {harmless(message.reply_to)}")
    if message.priority != 4:
        remarks.append(f"priority {message.priority}")
    if message.redelivered:
        remarks.append(f"delivery {message.delivery_count}")
    return remarks
