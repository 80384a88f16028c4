"""`helio`: the commands and how they are called. Each command is a module of its own.

Modules imported here must be quick to import, so that `helio --help` answers at once; everything heavy is
imported inside the commands.
"""

from __future__ import annotations

from typing import Annotated

import typer
from typer.core import TyperGroup

from heliograph.cli import (
    admin,
    alerts,
    bench,
    browse,
    cluster,
    completion,
    demo,
    dmq,
    explain,
    log,
    pipeline,
    receive,
    send,
    serve,
    top,
    transactions,
    units,
    user,
)

app = typer.Typer(
    name="helio",
    help="Heliograph, a message server: start one, send, receive, watch and measure.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("serve")(serve.serve)
app.command("send")(send.send)
app.command("receive")(receive.receive)
app.command("browse")(browse.browse)
app.command("top")(top.top)
app.command("log")(log.log)
app.command("units")(units.units)
app.command("transactions")(transactions.transactions)
app.command("explain")(explain.explain)
app.command("completion")(completion.completion)
app.add_typer(alerts.app, name="alerts")
app.add_typer(dmq.app, name="dmq")
app.add_typer(admin.app, name="admin")
app.add_typer(user.app, name="user")
app.add_typer(cluster.app, name="cluster")
app.add_typer(bench.app, name="bench")
app.add_typer(demo.app, name="demo")
app.add_typer(pipeline.app, name="pipeline")


def _print_version(wanted: bool) -> None:
    if wanted:
        from heliograph import __version__

        typer.echo(f"heliograph {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end."),
    ] = False,
) -> None:
    """Options that stand before a command."""


def main() -> None:
    """The entry point of the console script."""
    command()(prog_name="helio")


def command() -> TyperGroup:
    """All commands, with the options that each of them has."""
    from heliograph.cli.encrypted import add_options

    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    add_options(group)
    return group


if __name__ == "__main__":
    main()
