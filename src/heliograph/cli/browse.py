"""`helio browse`: look at what waits in a queue without taking it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from heliograph.cli import options
from heliograph.cli.at_server import Server, at_server
from heliograph.cli.connecting import ServerAddress, connected
from heliograph.cli.presentation import count_of
from heliograph.cli.receive import Format, as_json_line, for_people


@at_server
def browse(
    server: Server,
    destination: Annotated[str, typer.Argument(metavar="DEST", help="queue:NAME.")],
    selector: options.Selector = "",
    count: Annotated[
        int | None,
        typer.Option("--count", "-n", min=1, help="End after this many messages.", show_default=False),
    ] = None,
) -> None:
    """Print the messages that wait in a queue; they stay there."""
    import uvloop

    form = as_json_line if server.as_json else for_people()
    shown = uvloop.run(_browse(server.address, destination, selector, count, form))
    if not server.as_json:
        typer.echo(f"{count_of(shown, 'message')} in {destination}", err=True)


async def _browse(
    address: ServerAddress, destination: str, selector: str, limit: int | None, form: Format
) -> int:
    shown = 0
    async with connected(address, purpose="browse") as connection:
        browser = await connection.browse(destination, selector=selector)
        async for message in browser:
            sys.stdout.buffer.write(form(message))
            shown += 1
            if shown == limit:
                break
        sys.stdout.buffer.flush()
    return shown
