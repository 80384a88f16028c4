"""`helio units`: which units of order wait in a destination, for what, and what to do about it."""

from __future__ import annotations

import time
from itertools import groupby
from operator import itemgetter
from typing import Annotated, Any

import typer

from heliograph.cli.at_server import Server, at_server
from heliograph.cli.presentation import count_of, duration_of, harmless


@at_server
def units(
    server: Server,
    destination: Annotated[
        str,
        typer.Argument(metavar="DEST", help="queue:NAME or topic:NAME.", show_default="all that are stopped"),
    ] = "",
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
) -> None:
    """List the units of order that wait in a destination, those first that need somebody; without a destination,
    those that are stopped anywhere."""
    if resume is not None and give_up is not None:
        raise typer.BadParameter("a unit is resumed, or its message given up, not both")
    unit = resume if give_up is None else give_up
    if not destination and unit is not None:
        raise typer.BadParameter(f"name the destination too: helio units DEST --resume {unit}")
    if not destination:
        body = {"units": _stopped(server)}
        server.tell(body, lambda body: _show_stopped(body["units"]))
        return
    if unit is None:
        body = server.ask_all("destination.units", "units", destination=destination)
        server.tell(body, lambda body: _show(destination, body["units"]))
        return
    body = server.ask(
        "destination.resume_unit", destination=destination, unit=unit, give_up=give_up is not None
    )
    server.tell(body, f"unit {harmless(unit)} of {harmless(destination)} goes on")


def _stopped(server: Server) -> list[dict[str, Any]]:
    """Units that wait for an administrator, with their destinations."""
    found = server.ask_all("destinations", "destinations")["destinations"]
    return [
        {"destination": each["address"], **unit}
        for each in sorted(found, key=lambda each: str(each["address"]))
        if each["stopped_units"]
        for unit in server.ask_all("destination.units", "units", destination=each["address"])["units"]
        if unit["reason"] == "stopped"
    ]


def _show_stopped(entries: list[dict[str, Any]]) -> None:
    if not entries:
        typer.echo("no unit of order is stopped")
    for destination, units in groupby(entries, key=itemgetter("destination")):
        typer.echo(harmless(destination))
        _show(destination, list(units))


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
