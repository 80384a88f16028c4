"""`helio dmq`: the dead message queue. Look at what is in it and why, and send it on its way again."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliograph.cli.at_server import Server, at_server
from heliograph.cli.connecting import ServerAddress, connected
from heliograph.cli.dead_queues import dead_message_queues
from heliograph.cli.presentation import count_of, harmless
from heliograph.model.errors import ClientFault

if TYPE_CHECKING:
    from heliograph.client import Message

app = typer.Typer(help="The dead message queue.", no_args_is_help=True)

Filter = Annotated[
    str,
    typer.Option(
        "--filter",
        metavar="SELECTOR",
        help="Only messages that this selector selects, by their properties and headers.",
        show_default=False,
    ),
]


@app.command("list")
@at_server
def list_dead(
    server: Server,
    selector: Filter = "",
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Show at most so many.")] = 100,
) -> None:
    """List dead messages: where each came from and why it died."""
    import uvloop

    dead = uvloop.run(_dead(server.address, selector, count))
    if server.as_json:
        import json

        for message in dead:
            typer.echo(json.dumps(certificate(message)))
    elif not dead:
        typer.echo("no message is dead", err=True)
    else:
        _show_list(dead)


async def _dead(address: ServerAddress, selector: str, limit: int) -> list[Message]:
    found: list[Message] = []
    async with connected(address, purpose="dmq") as connection:
        for queue in dead_message_queues(connection):
            async for message in await connection.browse(queue, selector=selector):
                found.append(message)
                if len(found) == limit:
                    return found
    return found


def certificate(message: Message) -> dict[str, Any]:
    """What is known about a death."""
    from heliograph.destinations import dead_letters as names

    said = message.properties
    return {
        "id": message.id,
        "original_destination": said.get(names.ORIGINAL_DESTINATION),
        "original_id": said.get(names.ORIGINAL_ID),
        "reason": said.get(names.REASON),
        "deliveries": said.get(names.DELIVERIES),
        "died_at": said.get(names.DIED_AT),
        "last_error": said.get(names.LAST_ERROR) or None,
    }


def _show_list(dead: list[Message]) -> None:
    """One line for each, and below it the last word of a consumer, if there was one."""
    from datetime import datetime

    for message in dead:
        known = certificate(message)
        died = known["died_at"]
        when = f"{datetime.fromtimestamp(died):%Y-%m-%d %H:%M:%S}" if isinstance(died, int | float) else "–"
        where, why = harmless(str(known["original_destination"])), harmless(str(known["reason"]))
        typer.echo(f"{when}  {known['id']}  {where}: {why}, delivered {known['deliveries']} times")
        if known["last_error"]:
            typer.secho(f"                     {harmless(known['last_error'])}", dim=True)


@app.command("show")
@at_server
def show_dead(
    server: Server,
    identity: Annotated[
        str, typer.Argument(metavar="ID", help="Its id in the dead message queue, or the one it had before.")
    ],
) -> None:
    """Show one dead message whole."""
    import uvloop

    from heliograph.cli.receive import as_json_line, as_text

    message = uvloop.run(_find(server.address, identity))
    if server.as_json:
        sys.stdout.buffer.write(as_json_line(message))
        return
    for key, value in certificate(message).items():
        typer.echo(f"{key.replace('_', ' '):<22} {harmless(str(value)) if value is not None else '–'}")
    typer.echo(as_text(message, coloured=sys.stdout.isatty()))


async def _find(address: ServerAddress, identity: str) -> Message:
    async with connected(address, purpose="dmq") as connection:
        for queue in dead_message_queues(connection):
            async for message in await connection.browse(queue):
                if identity in (message.id, certificate(message)["original_id"]):
                    return message
    raise ClientFault(f"no dead message has the id {identity[:80]!r}", code="message-unknown")


@app.command("redrive")
@at_server
def redrive(
    server: Server,
    selector: Filter = "",
    rate: Annotated[
        float | None,
        typer.Option("--rate", min=0.1, metavar="N", help="Messages a second at most.", show_default=False),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option("--count", "-n", min=1, help="End after so many messages.", show_default=False),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="DEST", help="Send there, not to where each came from.", show_default=False
        ),
    ] = None,
) -> None:
    """Send dead messages again to where they came from, and then take them out of the queue.

    Ctrl-C ends it after the messages under way; started again, it goes on with the rest.
    """
    import uvloop

    from heliograph.cli.redriving import Order, Redrive

    order = Order(selector=selector, rate=rate, count=count, to=to)
    work = Redrive(order)
    uvloop.run(work.run(server.address))
    if server.as_json:
        import json

        typer.echo(json.dumps(work.record()))
    else:
        typer.echo(work.sentence())
        for sentence, number in work.failures.items():
            typer.echo(f"{count_of(number, 'message')} stayed: {harmless(sentence)}", err=True)
    if work.failures:
        raise typer.Exit(2)
