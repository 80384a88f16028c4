"""`helio user`: who may log in. The users file is changed directly, and a server reads it when it starts; with
`--online` a running server is asked to change it, and in a cluster all nodes get the change."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliograph.cli import options
from heliograph.cli.at_server import Server
from heliograph.cli.connecting import ServerAddress
from heliograph.cli.outcome import explained
from heliograph.cli.presentation import harmless
from heliograph.model.errors import ClientFault

if TYPE_CHECKING:
    from heliograph.nodes.users import UserStore

app = typer.Typer(help="Add, list and remove the users of a server.", no_args_is_help=True)

Data = Annotated[str, typer.Option("--data", help="The server's data folder, where users.toml is kept.")]
UsersFile = Annotated[
    Path | None,
    typer.Option("--users-file", help="The users file itself, if it is elsewhere.", show_default=False),
]
_DATA = "heliograph-data"
Online = Annotated[
    bool, typer.Option("--online", help="Ask the running server; in a cluster it holds on all nodes at once.")
]


def _store(data: str, users_file: Path | None) -> UserStore:
    from heliograph.nodes.users import UserStore

    return UserStore.load(users_file or Path(data) / "users.toml")


@app.command("add")
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name to log in with.")],
    roles: Annotated[
        list[str] | None, typer.Option("--role", help="A role, repeatable; admin may do everything.")
    ] = None,
    password_stdin: Annotated[
        bool,
        typer.Option("--password-stdin", help="Read the password from the first line of standard input."),
    ] = False,
    no_password: Annotated[
        bool,
        typer.Option(
            "--no-password", help="The user is known by a certificate with this name, and by nothing else."
        ),
    ] = False,
    clearance: Annotated[
        str,
        typer.Option(
            "--clearance",
            help="The highest classification of alerts to see: confidential, secret or top-secret.",
            show_default="unclassified",
        ),
    ] = "",
    data: Data = _DATA,
    users_file: UsersFile = None,
    online: Online = False,
    url: options.Url = options.DEFAULT_URL,
    user: options.User = None,
    password: options.Password = None,
    as_json: options.Json = False,
) -> None:
    """Add a user. The password is asked for twice."""
    with explained(as_json=as_json):
        if online:
            server = _server(url, user, password, as_json)
            secret = None if no_password else _password(password_stdin)
            _add_online(server, name, secret, roles or [], clearance)
            return
        store = _store(data, users_file)
        is_first = not store.path.exists()
        secret = None if no_password else _password(password_stdin)
        store.add(name, secret, roles or [], clearance=clearance)
        if as_json:
            typer.echo(json.dumps({"added": name, "roles": roles or [], "file": str(store.path)}))
            return
        told = f"user {name} added to {store.path}"
        typer.echo(f"{told} with role {', '.join(roles)}" if roles else told)
        if not roles:
            typer.echo(f"{name} may do nothing until an [[access]] rule in that file allows it", err=True)
        if is_first:
            typer.echo("from its next start the server asks everybody for name and password", err=True)
        else:
            typer.echo("a running server hears of it at its next start", err=True)


def _server(url: str, user: str | None, password: str | None, as_json: bool = False) -> Server:
    return Server(ServerAddress(url=url, user=user, password=password), as_json)


def _add_online(server: Server, name: str, password: str | None, roles: list[str], clearance: str) -> None:
    from heliograph.nodes.passwords import kept_of

    kept = {}
    if password is not None:
        if not password:
            raise ClientFault("a password is not empty", code="user-invalid")
        kept = kept_of(password)
    answer = server.ask("user.add", name=name, roles=roles, clearance=clearance, **kept)
    server.tell(
        answer, lambda body: typer.echo(f"user {name} added, the users are now of version {body['version']}")
    )


def _password(from_stdin: bool) -> str:
    if from_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    if not sys.stdin.isatty():
        raise ClientFault("there is no terminal to ask for a password: use --password-stdin", code="usage")
    password: str = typer.prompt("Password", hide_input=True, confirmation_prompt="Password again")
    return password


@app.command("list")
def list_users(
    data: Data = _DATA,
    users_file: UsersFile = None,
    as_json: options.Json = False,
    online: Online = False,
    url: options.Url = options.DEFAULT_URL,
    user: options.User = None,
    password: options.Password = None,
) -> None:
    """List the users and their roles."""
    with explained(as_json=as_json):
        if online:
            server = _server(url, user, password, as_json)
            server.tell(server.ask("users"), _show_users)
            return
        store = _store(data, users_file)
        if as_json:
            typer.echo(
                json.dumps(
                    {"users": [{"name": name, "roles": known.roles} for name, known in store.users.items()]}
                )
            )
        elif not store.users:
            typer.echo(f"there are no users in {store.path}; `helio user add NAME` makes one", err=True)
        for name, known in () if as_json else store.users.items():
            typer.echo(f"{name:<20} {', '.join(known.roles) or '–'}")


def _show_users(body: dict[str, Any]) -> None:
    for entry in body["users"]:
        typer.echo(f"{harmless(entry['name']):<20} {harmless(', '.join(entry['roles'])) or '–'}")
    typer.echo(f"version {body['version']}", err=True)


@app.command("remove")
def remove(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The user to remove.")],
    data: Data = _DATA,
    users_file: UsersFile = None,
    online: Online = False,
    url: options.Url = options.DEFAULT_URL,
    user: options.User = None,
    password: options.Password = None,
    as_json: options.Json = False,
) -> None:
    """Remove a user."""
    with explained(as_json=as_json):
        if online:
            server = _server(url, user, password, as_json)
            told = f"user {name} removed, the users are now of version"
            server.tell(
                server.ask("user.remove", name=name), lambda body: typer.echo(f"{told} {body['version']}")
            )
            return
        store = _store(data, users_file)
        store.remove(name)
        if as_json:
            typer.echo(json.dumps({"removed": name, "file": str(store.path)}))
            return
        typer.echo(f"user {name} removed from {store.path}")
        typer.echo("a running server hears of it at its next start", err=True)
