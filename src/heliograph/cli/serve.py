"""`helio serve`: run a server in this process until it is told to stop."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heliograph.cli import options
from heliograph.cli.outcome import NODE_FAILED, explained, report

if TYPE_CHECKING:
    from heliograph.model.errors import HeliographError
    from heliograph.nodes.configuration import Configuration


_MEANINGS = {
    "fsync": "on disk before a producer hears yes",
    "write": "written before a producer hears yes; a power failure may lose the last moments",
    "memory": "nothing is stored; a restart begins empty",
}


def serve(
    config: Annotated[
        Path | None,
        typer.Option("--config", help="Configuration file (TOML). None is needed.", show_default=False),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option("--data", help="Folder for messages and users.", show_default="heliograph-data"),
    ] = None,
    host: Annotated[
        str | None, typer.Option("--host", help="Address to listen on.", show_default="127.0.0.1")
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", help="Port to listen on; 0 picks a free one.", show_default="7700")
    ] = None,
    durability: Annotated[
        options.Durability | None,
        typer.Option("--durability", help="When a message counts as safe.", show_default="fsync"),
    ] = None,
    print_config: Annotated[
        bool,
        typer.Option("--print-config", help="Print all settings with their defaults, as a file to edit."),
    ] = False,
    ready_file: Annotated[Path | None, typer.Option("--ready-file", hidden=True)] = None,
) -> None:
    """Start a server and run it until Ctrl-C."""
    from heliograph.nodes import configuration as settings

    if print_config:
        from heliograph.nodes.configuration_text import render_defaults

        typer.echo(render_defaults(), nl=False)
        return
    with explained():
        configuration = settings.load(
            config,
            {
                "server.data": data,
                "server.host": host,
                "server.port": port,
                "journal.durability": durability and durability.value,
            },
        )
        import uvloop

        failure = uvloop.run(_run(configuration, ready_file))
    if failure is not None:
        report(failure, as_json=False)
        raise typer.Exit(NODE_FAILED)


async def _run(configuration: Configuration, ready_file: Path | None) -> HeliographError | None:
    """Serve until a signal or a failure; the failure is the result."""
    import asyncio
    import signal

    from heliograph.nodes.embedded import EmbeddedServer

    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    server = EmbeddedServer(configuration)
    await server.start()
    try:
        announce(configuration, *server.address)
        if ready_file is not None:
            _write_ready(ready_file, *server.address)
        told = asyncio.create_task(stopping.wait())
        failed = asyncio.create_task(server.wait_failed())
        await asyncio.wait((told, failed), return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        if failed.done():
            return failed.result()
        failed.cancel()
        if sys.stdout.isatty():
            typer.echo("\nstopping…")
        return None
    finally:
        # A second Ctrl-C does not wait for anybody.
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        await server.stop()


def _write_ready(path: Path, host: str, port: int) -> None:
    """Appear whole or not at all: somebody is polling for it."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_text(f"{host}:{port}\n", encoding="utf-8")
    temporary.replace(path)


def announce(configuration: Configuration, host: str, port: int) -> None:
    """Say where the server is: with a few commands to try on a terminal, on one line elsewhere."""
    from heliograph import __version__

    shown = f"[{host}]" if ":" in host else host
    url = f"helio://{shown}:{port}"
    folder = Path(configuration.server.data).absolute()
    durability = configuration.journal.durability
    if not sys.stdout.isatty():
        typer.echo(f"heliograph {__version__} listens on {url}, data {folder}, durability {durability}")
        return
    from rich.console import Console

    protected = configuration.users_path.exists()
    who = (
        f"the users in {configuration.users_path}"
        if protected
        else "everybody on this machine, without a password"
    )
    elsewhere = "" if port == 7700 else f" --url {url}"
    print_ = Console(highlight=False, soft_wrap=True).print
    print_(f"\n[bold yellow]Heliograph[/] {__version__}\n")
    print_(f"  listens on  [bold]{url}[/]")
    print_(f"  open to     {who}")
    print_(f"  data        {folder}")
    print_(f"  durability  {durability}: {_MEANINGS[durability]}")
    print_("\n  Try in another terminal:\n")
    for command in ('send queue:hello "Hello, world"', "receive queue:hello", "top"):
        print_(f"    [cyan]helio {command}{elsewhere}[/]")
    print_("\n  [dim]Ctrl-C stops the server.[/]\n")
