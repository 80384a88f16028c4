"""`helio transactions`: which transactions over several sub-clusters wait for their outcome, and for whom."""

from __future__ import annotations

import time
from typing import Any

import typer

from heliograph.cli.at_server import Server, at_server
from heliograph.cli.presentation import count_of, duration_of, harmless


@at_server
def transactions(server: Server) -> None:
    """List the transactions over several sub-clusters that are not through: whom they wait for, and since when."""
    body = server.ask_all("transactions", "transactions")
    server.tell(body, lambda body: _show(body["transactions"]))


def _show(entries: list[dict[str, Any]]) -> None:
    if not entries:
        typer.echo("no transaction is in doubt")
        return
    for entry in entries:
        typer.secho(f"session {entry['session']} transaction {entry['number']}", bold=True, nl=False)
        user = f"  of {harmless(entry['user'])}" if entry["user"] else "  of a session that is gone"
        age = duration_of(max(0.0, time.time() - entry["since"]))
        typer.echo(f"{user}  {entry['state']} in {harmless(entry['here'])} for {age}")
        typer.echo(f"    {harmless(entry['sentence'])}")
        locked = f"{count_of(entry['sent'], 'message')} sent, {entry['consumed']} consumed"
        participants = ", ".join(map(harmless, entry["participants"]))
        typer.echo(f"    {locked}; {harmless(entry['decider'])} decides for {participants}")
