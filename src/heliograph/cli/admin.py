"""`helio admin`: look at a running server, its nodes, sessions and policies, and change it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from heliograph.cli import admin_access, admin_destination, admin_message, admin_nodes
from heliograph.cli.at_server import Server, at_server
from heliograph.cli.presentation import bytes_of, count_of, duration_of, harmless, moment_of, shown_value

app = typer.Typer(help="Look at a running server and change it.", no_args_is_help=True)
app.add_typer(admin_access.app, name="access")
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
                typer.echo(f"{key + '.' + inner:<32} {_figure(inner, figure)}")
        else:
            typer.echo(f"{key:<32} {_figure(key, value)}")


def _figure(key: str, value: Any) -> str:
    """As a person reads it; `--json` has it as it is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return harmless(shown_value(value))
    if key == "time":
        return moment_of(value)
    if key.endswith("_bytes") or key == "bytes":
        return bytes_of(value)
    if key == "uptime_seconds":
        return duration_of(value)
    if key.endswith("seconds"):
        return f"{value:.6g} s"
    return f"{value:,}"


@app.command("configuration")
@at_server
def configuration(server: Server) -> None:
    """Show the settings with which the server runs."""
    server.tell(server.ask("configuration"), _show_settings)


def _show_settings(body: dict[str, Any]) -> None:
    for part, settings in body.items():
        if isinstance(settings, dict):
            for key, value in settings.items():
                typer.echo(f"{part + '.' + key:<36} {harmless(shown_value(value))}")
        else:
            typer.echo(f"{part:<36} {harmless(shown_value(settings))}")


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
    if not body["sessions"]:
        typer.echo("no client has a session", err=True)


@app.command("pipelines")
@at_server
def pipelines(server: Server) -> None:
    """Show what is held, leased and staged for data pipelines, and how far each has come."""
    server.tell(server.ask("pipelines"), _show_pipelines)


def _show_pipelines(body: dict[str, Any]) -> None:
    for hold in body["holds"]:
        left = duration_of(max(0.0, hold["seconds_left"]))
        typer.echo(
            f"hold   {harmless(hold['name'])}  {harmless(hold['destination'])} behind {hold['after']}",
            nl=False,
        )
        typer.echo(f", {hold['behind']} records, ends in {left}")
    for lease in body["leases"]:
        left = duration_of(max(0.0, lease["seconds_left"]))
        typer.echo(f"lease  {harmless(lease['name'])} epoch {lease['epoch']}", nl=False)
        typer.echo(f"  {count_of(lease['messages'], 'message')}, goes back in {left}")
    for stage in body["stages"]:
        left = duration_of(max(0.0, stage["seconds_left"]))
        typer.echo(f"stage  {harmless(stage['name'])} batch {stage['batch']}", nl=False)
        typer.echo(f"  {count_of(stage['messages'], 'message')}, dropped in {left}")
    for mark in body["marks"]:
        typer.echo(f"{mark['kind']:<6} {harmless(mark['name'])}  {mark['number']} took effect")
    if not any(body.values()):
        typer.echo("no pipeline is known here")


@app.command("release-hold")
@at_server
def release_hold(
    server: Server,
    name: Annotated[str, typer.Argument(help="The hold, as `helio admin pipelines` names it.")],
) -> None:
    """Keep the history no longer for a reader: it will be told that its place is gone."""
    server.tell(server.ask("pipeline.release", name=name), f"nothing is held for {harmless(name)} any more")


@app.command("reload-certificates")
@at_server
def reload_certificates(server: Server) -> None:
    """Read the server's certificate again from its files, as SIGHUP does; a new one is also noticed by itself."""
    server.tell(server.ask("certificate.reload"), _show_certificate)


def _show_certificate(body: dict[str, Any]) -> None:
    typer.echo(f"the certificate of {harmless(body['subject'])} is used, until {harmless(body['until'])}")


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
