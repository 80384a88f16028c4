"""`helio user`: who may log in. The users file is changed directly; a server reads it when it starts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heliograph.cli import options
from heliograph.cli.outcome import explained
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
    data: Data = _DATA,
    users_file: UsersFile = None,
) -> None:
    """Add a user. The password is asked for twice."""
    with explained():
        store = _store(data, users_file)
        is_first = not store.path.exists()
        store.add(name, _password(password_stdin), roles or [])
        told = f"user {name} added to {store.path}"
        typer.echo(f"{told} with role {', '.join(roles)}" if roles else told)
        if not roles:
            typer.echo(f"{name} may do nothing until an [[access]] rule in that file allows it", err=True)
        if is_first:
            typer.echo("from its next start the server asks everybody for name and password", err=True)
        else:
            typer.echo("a running server hears of it at its next start", err=True)


def _password(from_stdin: bool) -> str:
    if from_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    if not sys.stdin.isatty():
        raise ClientFault("there is no terminal to ask for a password: use --password-stdin", code="usage")
    password: str = typer.prompt("Password", hide_input=True, confirmation_prompt="Password again")
    return password


@app.command("list")
def list_users(data: Data = _DATA, users_file: UsersFile = None, as_json: options.Json = False) -> None:
    """List the users and their roles."""
    with explained(as_json=as_json):
        store = _store(data, users_file)
        if as_json:
            typer.echo(
                json.dumps(
                    {"users": [{"name": name, "roles": user.roles} for name, user in store.users.items()]}
                )
            )
        elif not store.users:
            typer.echo(f"there are no users in {store.path}; `helio user add NAME` makes one", err=True)
        for name, user in () if as_json else store.users.items():
            typer.echo(f"{name:<20} {', '.join(user.roles) or '–'}")


@app.command("remove")
def remove(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The user to remove.")],
    data: Data = _DATA,
    users_file: UsersFile = None,
) -> None:
    """Remove a user."""
    with explained():
        store = _store(data, users_file)
        store.remove(name)
        typer.echo(f"user {name} removed from {store.path}")
        typer.echo("a running server hears of it at its next start", err=True)
