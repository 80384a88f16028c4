"""`helio admin`: look at a running server, its nodes, sessions and policies, and change it."""

from __future__ import annotations

from typing import Any

import typer

from heliograph.cli import admin_destination, admin_message, admin_nodes
from heliograph.cli.at_server import Server, at_server
from heliograph.cli.presentation import count_of, harmless, shown_value

app = typer.Typer(help="Look at a running server and change it.", no_args_is_help=True)
app.add_typer(admin_destination.app, name="destination")
app.add_typer(admin_message.app, name="message")
app.command("nodes")(admin_nodes.nodes)
app.command("ask")(admin_nodes.ask)


@app.command("server")
@at_server
def server_facts(server: Server) -> None:
    """Show figures of the server itself."""
    server.tell(server.ask("server"), _show_facts)


def _show_facts(body: dict[str, Any]) -> None:
    for key, value in body.items():
        if isinstance(value, dict):
            for inner, figure in value.items():
                typer.echo(f"{key + '.' + inner:<32} {figure}")
        else:
            typer.echo(f"{key:<32} {value}")


@app.command("sessions")
@at_server
def sessions(server: Server) -> None:
    """List the sessions that the server knows, those whose client is away included."""
    server.tell(server.ask_all("sessions", "sessions"), _show_sessions)


def _show_sessions(body: dict[str, Any]) -> None:
    for entry in body["sessions"]:
        state = "connected" if entry["connected"] else "away"
        sends = f"sends to {count_of(entry['lanes'], 'destination')}"
        typer.echo(f"{entry['session']:<28} {harmless(entry['user']):<16} {state}, {sends}")


@app.command("policies")
@at_server
def policies(server: Server) -> None:
    """Show by which rules new destinations get their policies."""
    server.tell(server.ask("policies"), _show_policies)


def _show_policies(body: dict[str, Any]) -> None:
    defaults = body["defaults"]
    for rule in body["rules"]:
        differs = [f"{key}={value}" for key, value in rule["policy"].items() if value != defaults[key]]
        typer.echo(f"{harmless(rule['destinations'])}: {', '.join(differs) or 'as below'}")
    typer.echo("all others:")
    for key, value in defaults.items():
        typer.echo(f"  {key:<26} {shown_value(value)}")
