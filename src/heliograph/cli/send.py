"""`helio send`: send one message, the same message many times, every line of standard input, or a file as one
message, however large."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliograph.cli.at_server import Server, at_server
from heliograph.cli.connecting import ServerAddress, connected
from heliograph.cli.presentation import count_of, duration_of, rate_of
from heliograph.model.errors import ClientFault

if TYPE_CHECKING:
    from heliograph.client import Producer

# Below this a progress bar would flash by.
_WORTH_A_BAR = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be sent, and how."""

    destination: str
    body: str | bytes | None  # None: the lines of standard input, or a file
    file: str = ""
    count: int = 1
    priority: int = 4
    persistent: bool = True
    time_to_live: float | None = None
    delay: float | None = None
    unit: str | None = None
    properties: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What the server confirmed. `id` is the message's where there was exactly one."""

    destination: str
    confirmed: int
    bytes: int
    seconds: float
    id: str | None = None

    @property
    def messages_per_second(self) -> float:
        return self.confirmed / self.seconds if self.seconds > 0 else 0.0

    def sentence(self) -> str:
        told = f"{count_of(self.confirmed, 'message')} confirmed, sent to {self.destination}"
        if self.id is not None:
            return f"{told} ({self.id})"
        return f"{told} in {duration_of(self.seconds)} ({rate_of(self.messages_per_second)}/s)"

    def record(self) -> dict[str, object]:
        return {
            "destination": self.destination,
            "confirmed": self.confirmed,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 6),
            "messages_per_second": round(self.messages_per_second, 1),
            "id": self.id,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Deposit:
    """What was stored, and how much of the store still waits for the server."""

    destination: str
    folder: str
    stored: int
    waiting: int

    def sentence(self) -> str:
        told = f"{count_of(self.stored, 'message')} to {self.destination} stored in {self.folder}"
        if not self.waiting:
            return f"{told} and forwarded"
        return f"{told}; waiting there for the server: {self.waiting}"

    def record(self) -> dict[str, object]:
        return {
            "destination": self.destination,
            "folder": self.folder,
            "stored": self.stored,
            "waiting": self.waiting,
        }


@at_server
def send(
    server: Server,
    destination: Annotated[str, typer.Argument(metavar="DEST", help="queue:NAME or topic:NAME.")],
    body: Annotated[
        str | None,
        typer.Argument(metavar="BODY|-", help="The text to send; - sends each line of standard input."),
    ] = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Send the body this many times.")] = 1,
    size: Annotated[
        int | None,
        typer.Option("--size", min=0, help="Make up a body of this many bytes.", show_default=False),
    ] = None,
    file: Annotated[
        str,
        typer.Option(
            "--file",
            metavar="PATH|-",
            help="Send a file, or all of standard input, as one message, however large.",
            show_default=False,
        ),
    ] = "",
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            "-p",
            metavar="KEY=TEXT",
            help="Set a property; KEY:=VALUE sets a number, true, false or null.",
        ),
    ] = None,
    priority: Annotated[int, typer.Option("--priority", min=0, max=9, help="0 to 9; higher goes first.")] = 4,
    non_persistent: Annotated[
        bool, typer.Option("--non-persistent", help="The message need not survive a crash of the server.")
    ] = False,
    ttl: Annotated[
        float | None,
        typer.Option(
            "--ttl", min=0, metavar="SECONDS", help="Undelivered after this, it expires.", show_default=False
        ),
    ] = None,
    delay: Annotated[
        float | None,
        typer.Option(
            "--delay", min=0, metavar="SECONDS", help="It is delivered after this.", show_default=False
        ),
    ] = None,
    unit: Annotated[
        str,
        typer.Option(
            "--unit",
            metavar="NAME",
            help="The unit of order: messages of one name are processed one after the other.",
            show_default=False,
        ),
    ] = "",
    store_and_forward: Annotated[
        Path | None,
        typer.Option(
            "--store-and-forward",
            metavar="FOLDER",
            help="Store here first, and forward when the server is there: now, or with the next command.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Send messages and wait until the server has confirmed them, or until they are stored."""
    order = Order(
        destination=destination,
        body=chosen_body(body, size, count, file),
        file=file,
        count=count,
        priority=priority,
        persistent=not non_persistent,
        time_to_live=ttl,
        delay=delay,
        unit=unit or None,
        properties=parse_properties(properties or []),
    )
    import uvloop

    receipt: Receipt | Deposit
    if store_and_forward is None:
        receipt = uvloop.run(_send(order, server.address))
    else:
        receipt = uvloop.run(_deposit(order, server.address, store_and_forward))
    server.tell(receipt.record(), receipt.sentence())


def chosen_body(body: str | None, size: int | None, count: int, file: str = "") -> str | bytes | None:
    """What the arguments ask to send; None means standard input, or a file. Raises ClientFault on a contradiction."""
    if file:
        if body is not None or size is not None or count != 1:
            raise ClientFault("--file sends one message: leave out BODY, --size and --count", code="usage")
        return None
    if size is not None:
        if body is not None:
            raise ClientFault("give a BODY or --size, not both", code="usage")
        return b"x" * size
    if body is None:
        raise ClientFault(
            "there is nothing to send: give a BODY, - for standard input, --size or --file", code="usage"
        )
    if body != "-":
        return body
    if count != 1:
        raise ClientFault("--count repeats a BODY; with - each line is sent once", code="usage")
    return None


def parse_properties(given: list[str]) -> dict[str, Any]:
    """`colour=red` is a text, `amount:=3` is JSON. Raises ClientFault."""
    import json

    parsed: dict[str, Any] = {}
    for text in given:
        key, equals, value = text.partition("=")
        typed = key.endswith(":")
        name = key.removesuffix(":")
        if not equals or not name:
            raise ClientFault(f"a property is written KEY=TEXT or KEY:=VALUE, not {text!r}", code="usage")
        try:
            parsed[name] = json.loads(value) if typed else value
        except ValueError:
            raise ClientFault(
                f"the value of {name!r} is not a number, true, false, null or a quoted text: {value!r}",
                code="usage",
            ) from None
    return parsed


async def _send(order: Order, address: ServerAddress) -> Receipt:
    async with connected(address, purpose="send") as connection:
        session = await connection.session()
        producer = await session.producer(
            order.destination,
            priority=order.priority,
            persistent=order.persistent,
            time_to_live=order.time_to_live,
            delay=order.delay,
            unit_of_order=order.unit,
        )
        if order.file:
            return await _send_file(order, producer)
        if order.body is None:
            return await _send_lines(order, producer)
        if order.count == 1:
            return await _send_one(order, producer, order.body)
        return await _send_many(order, producer, order.body)


async def _deposit(order: Order, address: ServerAddress, folder: Path) -> Deposit:
    """Store, and forward what the server takes soon."""
    from heliograph.client import connect
    from heliograph.client.forwarding.producer import StoringProducer

    connection = await connect(
        address.url,
        user=address.user,
        password=address.password,
        client_name="helio send",
        store_and_forward=folder,
    )
    async with connection:
        producer = await connection.producer(
            order.destination,
            priority=order.priority,
            persistent=order.persistent,
            time_to_live=order.time_to_live,
            delay=order.delay,
            unit_of_order=order.unit,
        )
        assert isinstance(producer, StoringProducer)
        stored = 0
        async for bodies in _bodies(order):
            await producer.send_all(bodies, properties=order.properties or None)
            stored += len(bodies)
    return Deposit(
        destination=order.destination,
        folder=str(folder),
        stored=stored,
        waiting=connection.stored.messages,
    )


async def _bodies(order: Order) -> AsyncIterator[list[str | bytes]]:
    if order.body is not None:
        for portion in _portions(order.count):
            yield [order.body] * portion
        return
    async for lines in read_lines(sys.stdin.fileno()):
        yield [text_or_bytes(line) for line in lines]


async def _send_one(order: Order, producer: Producer, body: str | bytes) -> Receipt:
    from time import perf_counter

    began = perf_counter()
    identity = await producer.send_confirmed(body, properties=order.properties or None)
    return Receipt(
        destination=order.destination,
        confirmed=1,
        bytes=size_of(body),
        seconds=perf_counter() - began,
        id=identity,
    )


async def _send_file(order: Order, producer: Producer) -> Receipt:
    from time import perf_counter

    from heliograph.cli.contents import WatchedFile, opened_for_sending, progress

    began = perf_counter()
    with opened_for_sending(order.file) as (file, size), progress("sending", size) as advance:
        watched = WatchedFile(file, advance)
        identity = await producer.send_stream(watched, properties=order.properties or None)
    return Receipt(
        destination=order.destination,
        confirmed=1,
        bytes=watched.position,
        seconds=perf_counter() - began,
        id=identity,
    )


async def _send_many(order: Order, producer: Producer, body: str | bytes) -> Receipt:
    from time import perf_counter

    properties = order.properties or None
    began = perf_counter()
    for portion in _portions(order.count):
        for _ in range(portion):
            await producer.send(body, properties=properties)
    await producer.flush()
    return Receipt(
        destination=order.destination,
        confirmed=order.count,
        bytes=size_of(body) * order.count,
        seconds=perf_counter() - began,
    )


async def _send_lines(order: Order, producer: Producer) -> Receipt:
    from time import perf_counter

    properties = order.properties or None
    sent = total = 0
    began = perf_counter()
    async for lines in read_lines(sys.stdin.fileno()):
        for line in lines:
            await producer.send(text_or_bytes(line), properties=properties)
            total += len(line)
        sent += len(lines)
    await producer.flush()
    return Receipt(destination=order.destination, confirmed=sent, bytes=total, seconds=perf_counter() - began)


def _portions(count: int) -> Any:
    """The count in portions, with a bar that moves after each where a person is watching."""
    portions = [min(1000, count - start) for start in range(0, count, 1000)]
    if count < _WORTH_A_BAR or not sys.stderr.isatty():
        return portions
    from rich.console import Console
    from rich.progress import track

    return track(portions, description="sending", console=Console(stderr=True), transient=True)


def size_of(body: str | bytes) -> int:
    """Bytes that the body takes."""
    return len(body.encode()) if isinstance(body, str) else len(body)


def text_or_bytes(line: bytes) -> str | bytes:
    """A line as text if it is one."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        return line


async def read_lines(descriptor: int) -> AsyncIterator[list[bytes]]:
    """The lines of a file, a pipe or a terminal as they come, without a thread that could not be stopped."""
    import asyncio
    import os
    import stat

    mode = os.fstat(descriptor).st_mode
    can_wait = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)
    loop = asyncio.get_running_loop()
    rest = b""
    try:
        while True:
            if can_wait:
                readable = asyncio.Event()
                loop.add_reader(descriptor, readable.set)
                try:
                    await readable.wait()
                finally:
                    loop.remove_reader(descriptor)
            chunk = os.read(descriptor, 65536)
            if not chunk:
                break
            *lines, rest = (rest + chunk).split(b"\n")
            if lines:
                yield lines
        if rest:
            yield [rest]
    finally:
        # uvloop makes what it watches non-blocking, and a terminal is shared with the shell.
        os.set_blocking(descriptor, True)
