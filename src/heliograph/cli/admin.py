"""`helio admin`: look at a server's destinations, sessions and policies, and change them while it runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliograph.cli import options
from heliograph.cli.connecting import ServerAddress, connected
from heliograph.cli.outcome import explained
from heliograph.cli.presentation import bytes_of, count_of, harmless

if TYPE_CHECKING:
    from heliograph.client import Connection

app = typer.Typer(help="Look at a running server and change it.", no_args_is_help=True)
destination_app = typer.Typer(help="Queues and topics: policies, purging, deleting.", no_args_is_help=True)
app.add_typer(destination_app, name="destination")

Destination = Annotated[str, typer.Argument(metavar="DEST", help="queue:NAME or topic:NAME.")]
Settings = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Policy, for example redelivery_limit=5."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask whether I am sure.")]


async def all_entries(
    connection: Connection, subject: str, key: str, **arguments: Any
) -> list[dict[str, Any]]:
    """Every page of an answer that comes in pages."""
    entries: list[dict[str, Any]] = []
    after = 0
    while True:
        body = await connection.ask(subject, after=after, **arguments)
        entries += body[key]
        after = body.get("next", 0)
        if not after:
            return entries


def _answer(address: ServerAddress, subject: str, key: str = "", **arguments: Any) -> dict[str, Any]:
    import uvloop

    async def ask() -> dict[str, Any]:
        async with connected(address, purpose="admin") as connection:
            if key:
                return {key: await all_entries(connection, subject, key)}
            return await connection.ask(subject, **arguments)

    return uvloop.run(ask())


def _print(body: dict[str, Any], as_json: bool, for_people: Callable[[dict[str, Any]], None]) -> None:
    if as_json:
        import json

        typer.echo(json.dumps(body))
    else:
        for_people(body)


def _confirm(question: str, yes: bool) -> None:
    """A person is asked; a script knows what it does."""
    if not yes and sys.stdin.isatty():
        typer.confirm(question, abort=True)


# ---- destinations


@destination_app.command("list")
def list_destinations(
    url: options.Url = options.DEFAULT_URL,
    user: options.User = None,
    password: options.Password = None,
    as_json: options.Json = False,
) -> None:
    """List all queues and topics."""
    with explained(as_json=as_json):
        address = ServerAddress(url=url, user=user, password=password)
        _print(_answer(address, "destinations", "destinations"), as_json, _show_list)


def _show_list(body: dict[str, Any]) -> None:
    entries = sorted(body["destinations"], key=lambda entry: str(entry["address"]))
    width = max((len(entry["address"]) for entry in entries), default=0)
    for entry in entries:
        told = [count_of(entry["depth"], "message"), count_of(entry["consumers"], "consumer")]
        if entry["kind"] == "topic":
            told.append(count_of(entry["subscriptions"], "subscription"))
        if entry["blocked"]:
            told.append(typer.style(f"blocked ({entry['blocked']})", fg="red"))
        typer.echo(f"{harmless(entry['address']):<{width}}  {', '.join(told)}")


@destination_app.command("show")
def show_destination(
    destination: Destination,
    url: options.Url = options.DEFAULT_URL,
    user: options.User = None,
    password: options.Password = None,
    as_json: options.Json = False,
) -> None:
    """Show a destination and its policy."""
    with explained(as_json=as_json):
        address = ServerAddress(url=url, user=user, password=password)
        _print(_answer(address, "destination.show", destination=destination), as_json, _show)


def _show(body: dict[str, Any]) -> None:
    blocked = f", producers wait ({body['blocked']})" if body["blocked"] else ""
    typer.secho(harmless(body["address"]), bold=True)
    typer.echo(
        f"  waiting      {count_of(body['depth'], 'message')}, {bytes_of(body['held_bytes'])}{blocked}"
    )
    typer.echo(f"  in flight    {body['in_flight']:,} with {count_of(body['consumers'], 'consumer')}")
    typer.echo(
        f"  since start  {body['published']:,} published, {body['delivered']:,} delivered,"
        f" {body['settled']:,} done"
    )
    for each in body.get("subscribers", []):
        name = f"{each['client']}/{each['name']}" if each["client"] else each["name"]
        kinds = [kind for kind in ("durable", "shared") if each[kind]] or ["for as long as its consumer"]
        typer.echo(f"  subscription {harmless(name) or '–'}: {', '.join(kinds)}, {each['depth']:,} waiting")
    typer.echo("  policy")
    for key, value in body["policy"].items():
        typer.echo(f"    {key:<26} {str(value).lower() if isinstance(value, bool) else value}")


@destination_app.command("set")
def set_policy(
    destination: Destination,
    settings: Annotated[
        list[str], typer.Argument(metavar="KEY=VALUE...", help="Policy, for example redelivery_limit=5.")
    ],
    url: options.Url = options.DEFAULT_URL,
    user: options.User = None,
    password: options.Password = None,
    as_json: options.Json = False,
) -> None:
    """Change the policy of a destination; the change holds at once and lasts."""
    with explained(as_json=as_json):
        from heliograph.model.policy import parse_changes

        changes = parse_changes(settings)
        address = ServerAddress(url=url, user=user, password=password)
        body = _answer(address, "destination.set", destination=destination, policy=changes)
        told = ", ".join(f"{key} is {body['policy'][key]}" for key in changes)
        _print(body, as_json, lambda _: typer.echo(f"{destination}: {told}"))


@destination_app.command("create")
def create_destination(
    destination: Destination,
    settings: Settings = None,
    url: options.Url = options.DEFAULT_URL,
    user: options.User = None,
    password: options.Password = None,
    as_json: options.Json = False,
) -> None:
    """Make a queue or topic."""
    with explained(as_json=as_json):
        from heliograph.model.policy import parse_changes

        changes = parse_changes(settings or [])
        address = ServerAddress(url=url, user=user, password=password)
        body = _answer(address, "destination.create", destination=destination, policy=changes)
        _print(body, as_json, lambda _: typer.echo(f"{destination} made"))


@destination_app.command("delete")
def delete_destination(
    destination: Destination,
    force: Annotated[
        bool, typer.Option("--force", help="Even if it has consumers, subscriptions or messages.")
    ] = False,
    yes: Yes = False,
    url: options.Url = options.DEFAULT_URL,
    user: options.User = None,
    password: options.Password = None,
    as_json: options.Json = False,
) -> None:
    """Delete a queue or topic that nobody uses."""
    with explained(as_json=as_json):
        if force:
            _confirm(f"Delete {destination} with all that is in it?", yes)
        address = ServerAddress(url=url, user=user, password=password)
        body = _answer(address, "destination.delete", destination=destination, force=force)
        lost = f", and {count_of(body['messages'], 'message')} with it" if body["messages"] else ""
        _print(body, as_json, lambda _: typer.echo(f"{destination} deleted{lost}"))


@destination_app.command("purge")
def purge_destination(
    destination: Destination,
    yes: Yes = False,
    url: options.Url = options.DEFAULT_URL,
    user: options.User = None,
    password: options.Password = None,
    as_json: options.Json = False,
) -> None:
    """Remove everything that waits; what consumers have stays with them."""
    with explained(as_json=as_json):
        _confirm(f"Remove all messages that wait in {destination}?", yes)
        address = ServerAddress(url=url, user=user, password=password)
        body = _answer(address, "destination.purge", destination=destination)
        told = f"{count_of(body['messages'], 'message')} removed from {destination}"
        _print(body, as_json, lambda _: typer.echo(told))


# ---- the server


@app.command("server")
def server(
    url: options.Url = options.DEFAULT_URL,
    user: options.User = None,
    password: options.Password = None,
    as_json: options.Json = False,
) -> None:
    """Show figures of the server itself."""
    with explained(as_json=as_json):
        address = ServerAddress(url=url, user=user, password=password)
        _print(_answer(address, "server"), as_json, _show_facts)


def _show_facts(body: dict[str, Any]) -> None:
    for key, value in body.items():
        if isinstance(value, dict):
            for inner, figure in value.items():
                typer.echo(f"{key + '.' + inner:<32} {figure}")
        else:
            typer.echo(f"{key:<32} {value}")


@app.command("sessions")
def sessions(
    url: options.Url = options.DEFAULT_URL,
    user: options.User = None,
    password: options.Password = None,
    as_json: options.Json = False,
) -> None:
    """List the sessions that the server knows, those whose client is away included."""
    with explained(as_json=as_json):
        address = ServerAddress(url=url, user=user, password=password)
        _print(_answer(address, "sessions", "sessions"), as_json, _show_sessions)


def _show_sessions(body: dict[str, Any]) -> None:
    for entry in body["sessions"]:
        state = "connected" if entry["connected"] else "away"
        sends = f"sends to {count_of(entry['lanes'], 'destination')}"
        typer.echo(f"{entry['session']:<28} {harmless(entry['user']):<16} {state}, {sends}")


@app.command("policies")
def policies(
    url: options.Url = options.DEFAULT_URL,
    user: options.User = None,
    password: options.Password = None,
    as_json: options.Json = False,
) -> None:
    """Show by which rules new destinations get their policies."""
    with explained(as_json=as_json):
        address = ServerAddress(url=url, user=user, password=password)
        _print(_answer(address, "policies"), as_json, _show_policies)


def _show_policies(body: dict[str, Any]) -> None:
    defaults = body["defaults"]
    for rule in body["rules"]:
        differs = [f"{key}={value}" for key, value in rule["policy"].items() if value != defaults[key]]
        typer.echo(f"{harmless(rule['destinations'])}: {', '.join(differs) or 'as below'}")
    typer.echo("all others:")
    for key, value in defaults.items():
        typer.echo(f"  {key:<26} {str(value).lower() if isinstance(value, bool) else value}")
