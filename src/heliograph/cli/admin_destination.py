"""`helio admin destination`: queues and topics of a running server, their policies, purging, deleting."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from heliograph.cli.at_server import Server, at_server, confirm
from heliograph.cli.presentation import bytes_of, count_of, harmless, paused_of, shown_value

app = typer.Typer(help="Queues and topics: policies, pausing, purging, deleting.", no_args_is_help=True)

Destination = Annotated[str, typer.Argument(metavar="DEST", help="queue:NAME or topic:NAME.")]
Production = Annotated[bool, typer.Option("--production", help="Only producers.")]
Consumption = Annotated[bool, typer.Option("--consumption", help="Only consumers.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask whether I am sure.")]


@app.command("list")
@at_server
def list_destinations(server: Server) -> None:
    """List all queues and topics."""
    server.tell(server.ask_all("destinations", "destinations"), _show_list)


def _show_list(body: dict[str, Any]) -> None:
    entries = sorted(body["destinations"], key=lambda entry: str(entry["address"]))
    width = max((len(entry["address"]) for entry in entries), default=0)
    for entry in entries:
        told = [count_of(entry["depth"], "message"), count_of(entry["consumers"], "consumer")]
        if entry["kind"] == "topic":
            told.append(count_of(entry["subscriptions"], "subscription"))
        if paused_of(entry):
            told.append(typer.style(paused_of(entry), fg="yellow"))
        elif entry["blocked"]:
            told.append(typer.style(f"blocked ({entry['blocked']})", fg="red"))
        typer.echo(f"{harmless(entry['address']):<{width}}  {', '.join(told)}")


@app.command("show")
@at_server
def show_destination(server: Server, destination: Destination) -> None:
    """Show a destination and its policy."""
    server.tell(server.ask("destination.show", destination=destination), _show)


def _show(body: dict[str, Any]) -> None:
    blocked = f", producers wait ({body['blocked']})" if body["blocked"] else ""
    paused = f" ({paused_of(body)})" if paused_of(body) else ""
    typer.secho(harmless(body["address"]) + paused, bold=True)
    typer.echo(
        f"  waiting      {count_of(body['depth'], 'message')}, {bytes_of(body['held_bytes'])}{blocked}"
    )
    typer.echo(f"  in flight    {body['in_flight']:,} with {count_of(body['consumers'], 'consumer')}")
    typer.echo(
        f"  since start  {body['published']:,} published, {body['delivered']:,} delivered,"
        f" {body['settled']:,} done"
    )
    for line in _members(body):
        typer.echo(line)
    for each in body.get("subscribers", []):
        name = f"{each['client']}/{each['name']}" if each["client"] else each["name"]
        kinds = [kind for kind in ("durable", "shared") if each[kind]] or ["for as long as its consumer"]
        typer.echo(f"  subscription {harmless(name) or '–'}: {', '.join(kinds)}, {each['depth']:,} waiting")
    typer.echo("  policy")
    for key, value in body["policy"].items():
        typer.echo(f"    {key:<26} {shown_value(value)}")


def _members(body: dict[str, Any]) -> list[str]:
    """A distributed destination is the sum of its members; here is what each of them has."""
    if "members" not in body:
        return []
    how = {"hash": "each unit where its name says", "path": "each unit where it was first"}
    lines = [f"  distributed  {how.get(body['routing'], body['routing'])}"]
    for member in body["members"]:
        if not member["reachable"]:
            told = typer.style("cannot be reached: its units are refused", fg="red")
        elif "depth" not in member:
            told = "not used yet"
        else:
            told = f"{count_of(member['depth'], 'message')}, {count_of(member['consumers'], 'consumer')}"
        leaving = ", leaving: no unit begins there" if member["leaving"] else ""
        lines.append(f"    {harmless(body['address'])}@{harmless(member['sub_cluster'])}: {told}{leaving}")
    return lines


@app.command("consumers")
@at_server
def list_consumers(server: Server, destination: Destination) -> None:
    """List who takes from a destination, and how much each of them has."""
    body = server.ask_all("destination.consumers", "consumers", destination=destination)
    server.tell(body, lambda body: _show_consumers(destination, body["consumers"]))


def _show_consumers(destination: str, entries: list[dict[str, Any]]) -> None:
    if not entries:
        typer.echo(f"nobody takes from {harmless(destination)}", err=True)
        return
    for entry in entries:
        client = f" as {harmless(entry['client'])}" if entry["client"] else ""
        told = [f"{entry['in_flight']:,} in flight", f"room for {entry['credit']:,}"]
        told += ["away"] if entry["away"] else []
        typer.echo(f"{entry['session']:<28} {harmless(entry['user'])}{client}  {', '.join(told)}")


@app.command("set")
@at_server
def set_policy(
    server: Server,
    destination: Destination,
    settings: Annotated[
        list[str], typer.Argument(metavar="KEY=VALUE...", help="Policy, for example redelivery_limit=5.")
    ],
) -> None:
    """Change the policy of a destination; the change holds at once and lasts."""
    from heliograph.model.policy import parse_changes

    changes = parse_changes(settings)
    body = server.ask("destination.set", destination=destination, policy=changes)
    told = ", ".join(f"{key} is {body['policy'][key]}" for key in changes)
    server.tell(body, f"{destination}: {told}")


@app.command("create")
@at_server
def create_destination(
    server: Server,
    destination: Destination,
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Policy, for example redelivery_limit=5."),
    ] = None,
) -> None:
    """Make a queue or topic."""
    from heliograph.model.policy import parse_changes

    changes = parse_changes(settings or [])
    server.tell(
        server.ask("destination.create", destination=destination, policy=changes), f"{destination} made"
    )


@app.command("delete")
@at_server
def delete_destination(
    server: Server,
    destination: Destination,
    force: Annotated[
        bool, typer.Option("--force", help="Even if it has consumers, subscriptions or messages.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Delete a queue or topic that nobody uses."""
    if force:
        confirm(f"Delete {destination} with all that is in it?", yes)
    body = server.ask("destination.delete", destination=destination, force=force)
    lost = f", and {count_of(body['messages'], 'message')} with it" if body["messages"] else ""
    server.tell(body, f"{destination} deleted{lost}")


@app.command("purge")
@at_server
def purge_destination(server: Server, destination: Destination, yes: Yes = False) -> None:
    """Remove everything that waits; what consumers have stays with them."""
    confirm(f"Remove all messages that wait in {destination}?", yes)
    body = server.ask("destination.purge", destination=destination)
    server.tell(body, f"{count_of(body['messages'], 'message')} removed from {destination}")


@app.command("pause")
@at_server
def pause_destination(
    server: Server,
    destination: Destination,
    production: Production = False,
    consumption: Consumption = False,
) -> None:
    """Let producers wait, hand nothing out, or both; until it is resumed, over restarts too."""
    _change(server, "destination.pause", destination, production, consumption)


@app.command("resume")
@at_server
def resume_destination(
    server: Server,
    destination: Destination,
    production: Production = False,
    consumption: Consumption = False,
) -> None:
    """Let producers, consumers or both go on."""
    _change(server, "destination.resume", destination, production, consumption)


def _change(server: Server, subject: str, destination: str, production: bool, consumption: bool) -> None:
    body = server.ask(subject, destination=destination, production=production, consumption=consumption)
    server.tell(body, f"{destination}: {paused_of(body) or 'nothing is paused'}")
