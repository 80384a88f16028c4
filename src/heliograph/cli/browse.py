"""`helio browse`: look at what waits in a queue without taking it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from heliograph.cli import options
from heliograph.cli.connecting import ServerAddress, connected
from heliograph.cli.outcome import explained
from heliograph.cli.presentation import count_of
from heliograph.cli.receive import Format, as_json_line, for_people


def browse(
    destination: Annotated[str, typer.Argument(metavar="DEST", help="queue:NAME.")],
    selector: options.Selector = "",
    count: Annotated[
        int | None,
        typer.Option("--count", "-n", min=1, help="End after this many messages.", show_default=False),
    ] = None,
    url: options.Url = options.DEFAULT_URL,
    user: options.User = None,
    password: options.Password = None,
    as_json: options.Json = False,
) -> None:
    """Print the messages that wait in a queue; they stay there."""
    with explained(as_json=as_json):
        import uvloop

        form = as_json_line if as_json else for_people()
        address = ServerAddress(url=url, user=user, password=password)
        shown = uvloop.run(_browse(address, destination, selector, count, form))
        if not as_json:
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
