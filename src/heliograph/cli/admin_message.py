"""`helio admin message`: move and delete messages of a queue whose consumption is paused."""

from __future__ import annotations

from typing import Annotated

import typer

from heliograph.cli.at_server import Server, at_server, confirm
from heliograph.cli.presentation import count_of

app = typer.Typer(help="Move and delete messages of a paused queue.", no_args_is_help=True)

Filter = Annotated[
    str,
    typer.Option(
        "--filter", metavar="SELECTOR", help="Only messages that this selects.", show_default="all messages"
    ),
]
Limit = Annotated[
    int, typer.Option("--limit", min=0, metavar="N", help="At most so many.", show_default="all")
]


@app.command("move")
@at_server
def move_messages(
    server: Server,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="queue:NAME, its consumption paused.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="queue:NAME.")],
    selector: Filter = "",
    limit: Limit = 0,
) -> None:
    """Move messages to the end of another queue; they keep their ids and their order."""
    body = server.ask("message.move", destination=source, target=target, filter=selector, limit=limit)
    server.tell(body, f"{count_of(body['messages'], 'message')} moved from {source} to {target}")


@app.command("delete")
@at_server
def delete_messages(
    server: Server,
    destination: Annotated[str, typer.Argument(metavar="DEST", help="queue:NAME, its consumption paused.")],
    selector: Filter = "",
    limit: Limit = 0,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask whether I am sure.")] = False,
) -> None:
    """Delete messages for good."""
    what = f"the messages of {destination} that {selector!r} selects" if selector else f"all of {destination}"
    confirm(f"Delete {what}?", yes)
    body = server.ask("message.delete", destination=destination, filter=selector, limit=limit)
    server.tell(body, f"{count_of(body['messages'], 'message')} deleted from {destination}")
