"""`helio units`: which units of order wait in a destination, for what, and what to do about it."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from heliograph.cli import options
from heliograph.cli.admin import all_entries
from heliograph.cli.connecting import ServerAddress, connected
from heliograph.cli.outcome import explained
from heliograph.cli.presentation import count_of, duration_of, harmless


def units(
    destination: Annotated[str, typer.Argument(metavar="DEST", help="queue:NAME or topic:NAME.")],
    resume: Annotated[
        str | None,
        typer.Option("--resume", metavar="UNIT", help="Let a stopped unit go on, named as this shows it."),
    ] = None,
    give_up: Annotated[
        str | None,
        typer.Option(
            "--give-up",
            metavar="UNIT",
            help="Send the message for which a unit stopped to the dead, and let the unit go on.",
        ),
    ] = None,
    url: options.Url = options.DEFAULT_URL,
    user: options.User = None,
    password: options.Password = None,
    as_json: options.Json = False,
) -> None:
    """List the units of order that wait in a destination, those first that need somebody."""
    with explained(as_json=as_json):
        import uvloop

        address = ServerAddress(url=url, user=user, password=password)
        if resume is not None and give_up is not None:
            raise typer.BadParameter("a unit is resumed, or its message given up, not both")
        body = uvloop.run(_ask(address, destination, resume or give_up, gives_up=give_up is not None))
        if as_json:
            import json

            typer.echo(json.dumps(body))
        elif resume or give_up:
            typer.echo(f"unit {harmless(resume or give_up or '')} of {harmless(destination)} goes on")
        else:
            _show(destination, body["units"])


async def _ask(
    address: ServerAddress, destination: str, unit: str | None, *, gives_up: bool
) -> dict[str, Any]:
    async with connected(address, purpose="units") as connection:
        if unit is not None:
            return await connection.ask(
                "destination.resume_unit", destination=destination, unit=unit, give_up=gives_up
            )
        entries = await all_entries(connection, "destination.units", "units", destination=destination)
        return {"destination": destination, "units": entries}


def _show(destination: str, entries: list[dict[str, Any]]) -> None:
    if not entries:
        typer.echo(f"no unit of order waits in {harmless(destination)}")
        return
    for entry in entries:
        name = harmless(entry["name"]) if entry["name"] else f"(number {entry['unit']})"
        typer.secho(name, bold=True, fg="red" if entry["reason"] == "stopped" else None, nl=False)
        where = f"  subscription {entry['subscription']}" if entry["subscription"] else ""
        typer.echo(
            f"  {count_of(entry['waiting'], 'message')} waiting, {entry['handed_out']} handed out{where}"
        )
        typer.echo(f"    {entry['reason']}: {entry['sentence']}")
        if entry["until"]:
            typer.echo(f"    goes on in {duration_of(max(0.0, entry['until'] - time.time()))}")
        if entry["session"]:
            typer.echo(f"    with session {entry['session']}")
        if entry["reason"] == "stopped":
            typer.echo(
                f"    helio units {harmless(destination)} --resume {name if entry['name'] else entry['unit']}"
            )
