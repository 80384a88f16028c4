"""Commands that talk to a server: the options by which they find it, and how they ask and tell.

    @app.command("show")
    @at_server
    def show(server: Server, name: Name) -> None:
        server.tell(server.ask("destination.show", destination=name), for_people)

`--url`, `--user`, `--password` and `--json` come by themselves; errors come out as words and exit codes.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import typer

from heliograph.cli import options
from heliograph.cli.connecting import ServerAddress, connected
from heliograph.cli.outcome import explained

if TYPE_CHECKING:
    from heliograph.client import Connection

Own = ParamSpec("Own")


@dataclass(frozen=True, slots=True)
class Server:
    """The server that a command was given, and how the user wants its answers."""

    address: ServerAddress
    as_json: bool

    def ask(self, subject: str, **arguments: Any) -> dict[str, Any]:
        import uvloop

        async def ask() -> dict[str, Any]:
            async with connected(self.address, purpose="admin") as connection:
                return await connection.ask(subject, **arguments)

        return uvloop.run(ask())

    def ask_all(self, subject: str, key: str, **arguments: Any) -> dict[str, Any]:
        import uvloop

        async def ask() -> dict[str, Any]:
            async with connected(self.address, purpose="admin") as connection:
                return {key: await all_entries(connection, subject, key, **arguments)}

        return uvloop.run(ask())

    def tell(self, body: dict[str, Any], for_people: Callable[[dict[str, Any]], None] | str) -> None:
        if self.as_json:
            import json

            typer.echo(json.dumps(body))
        elif isinstance(for_people, str):
            typer.echo(for_people)
        else:
            for_people(body)


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


def confirm(question: str, yes: bool) -> None:
    """A person is asked; a script knows what it does."""
    if not yes and sys.stdin.isatty():
        typer.confirm(question, abort=True)


def _options(
    url: options.Url = options.DEFAULT_URL,
    user: options.User = None,
    password: options.Password = None,
    as_json: options.Json = False,
) -> Server:
    return Server(ServerAddress(url=url, user=user, password=password), as_json)


_OPTIONS = inspect.signature(_options, eval_str=True).parameters


def at_server(command: Callable[Concatenate[Server, Own], None]) -> Callable[..., None]:
    """A command that gets its server first, and then whatever is its own."""
    signature = inspect.signature(command, eval_str=True)
    own = list(signature.parameters.values())[1:]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        server = _options(**{name: given.pop(name) for name in _OPTIONS})
        with explained(as_json=server.as_json):
            command(server, **given)  # type: ignore[call-arg]  # typer checked them by the signature below

    # What typer reads: without `__wrapped__`, this is all there is.
    del run.__wrapped__
    run.__signature__ = signature.replace(parameters=[*own, *_OPTIONS.values()])  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in (*own, *_OPTIONS.values())}
    return run
