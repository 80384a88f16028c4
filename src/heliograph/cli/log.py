"""`helio log`: what happened on the server, and what happens."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliograph.cli.at_server import Server, at_server
from heliograph.cli.connecting import FOLLOW_SECONDS, ServerAddress, connected
from heliograph.cli.presentation import harmless

if TYPE_CHECKING:
    from heliograph.client import Connection

_LOG = "topic:_LOG"
_COLOURS = {"failed": "red", "refused": "red", "lost": "yellow", "dead": "yellow", "full": "red"}


@at_server
def log(
    server: Server,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show events as they happen.")] = False,
) -> None:
    """Show the last events, of all nodes if the server is one of a cluster."""
    import uvloop

    try:
        uvloop.run(_log(server.address, follow=follow, as_json=server.as_json))
    except KeyboardInterrupt:
        if not follow:
            raise


async def _log(address: ServerAddress, *, follow: bool, as_json: bool) -> None:
    reconnect_seconds = FOLLOW_SECONDS if follow else 0.0
    async with connected(address, purpose="log", reconnect_seconds=reconnect_seconds) as connection:
        # Listening comes before asking: what happens between the two is then shown, once.
        consumer = await connection.consumer(_LOG) if follow else None
        shown = await _show_last(connection, as_json)
        if consumer is not None:
            async for message in consumer:
                if isinstance(message.body, dict) and message.body not in shown:
                    _show(message.body, as_json)


async def _show_last(connection: Connection, as_json: bool) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = (await connection.ask("log"))["events"]
    for event in events:
        _show(event, as_json)
    return [{key: value for key, value in event.items() if key != "sub_cluster"} for event in events[-10:]]


def _show(event: dict[str, Any], as_json: bool) -> None:
    typer.echo(json.dumps(event) if as_json else as_text(event))


def as_text(event: dict[str, Any]) -> str:
    """The time, where and what happened, and the rest as KEY=VALUE."""
    from datetime import datetime

    time = datetime.fromtimestamp(event["time"]).astimezone()
    kind = str(event["event"])
    colour = next((colour for word, colour in _COLOURS.items() if word in kind), None)
    fields = [
        f"{harmless(str(key))}={harmless(str(value))}"
        for key, value in event.items()
        if key not in ("time", "event", "node", "sub_cluster") and value != ""
    ]
    node = harmless(str(event.get("node", "")))
    what = typer.style(f"{harmless(kind):<24}", fg=colour)
    return f"{time:%Y-%m-%d %H:%M:%S}  {node:<6} {what} {' '.join(fields)}"
