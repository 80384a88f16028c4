"""`helio demo`: what Heliograph does, shown in the terminal in a few seconds."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heliograph.cli import options
from heliograph.cli.connecting import ServerAddress, connected
from heliograph.cli.outcome import explained
from heliograph.cli.presentation import count_of

if TYPE_CHECKING:
    from heliograph.cli.bookstore import Deed, Shop

app = typer.Typer(help="See what Heliograph does.", no_args_is_help=True)
_WITHOUT = "Five clerks, one queue, no order"
_WITH = "The same, each customer a unit of order"


@app.callback()
def _group() -> None:
    """See what Heliograph does."""


@app.command("bookstore")
def bookstore(
    url: Annotated[
        str | None,
        typer.Option("--url", help="Play on this server instead of starting one.", rich_help_panel="Server"),
    ] = None,
    user: options.User = None,
    password: options.Password = None,
    as_json: options.Json = False,
) -> None:
    """Orders and cancellations of the same customers, handled by five clerks: without and with a unit of order."""
    with explained(as_json=as_json):
        import uvloop

        uvloop.run(_bookstore(url, user, password, as_json=as_json))


async def _bookstore(url: str | None, user: str | None, password: str | None, *, as_json: bool) -> None:
    from heliograph.cli.bookstore import play

    tell = _say_nothing if as_json else _tell
    async with _server(url) as found:
        address = ServerAddress(url=found, user=user, password=password)
        async with connected(address, purpose="demo") as connection:
            shops: dict[str, Shop] = {}
            for key, title in (("without", _WITHOUT), ("with", _WITH)):
                if not as_json:
                    typer.secho(f"\n{title}\n", bold=True)
                queue = await connection.temporary_queue()  # where nobody else's messages or clerks are
                shops[key] = await play(connection, queue, in_order=key == "with", tell=tell)
                if not as_json:
                    _sum_up(shops[key])
    if as_json:
        import json

        typer.echo(json.dumps({key: _figures(shop) for key, shop in shops.items()}))
    else:
        typer.echo('\nThe difference is one argument: producer.send(…, unit_of_order="Ada").')


@app.command("partition")
def partition(
    in_process: Annotated[
        bool,
        typer.Option(
            "--in-process", help="All nodes in this process, also where hosts of their own could be had."
        ),
    ] = False,
    as_json: options.Json = False,
) -> None:
    """A cluster with load whose network is cut and healed: what each part may hand out, and what it comes to."""
    with explained(as_json=as_json), tempfile.TemporaryDirectory(prefix="helio-demo-") as folder:
        import uvloop

        from heliograph.cli.partition_show import show

        uvloop.run(show(Path(folder), in_process=in_process, as_json=as_json))


@app.command("pipeline")
def pipeline(
    report: Annotated[Path, typer.Option("--report", help="Where the report of the audit goes.")] = Path(
        "audit.html"
    ),
    as_json: options.Json = False,
) -> None:
    """A server with traffic, and every data pipeline once: events, archive, dead letters, audit. Needs Spark and
    Java."""
    with explained(as_json=as_json), tempfile.TemporaryDirectory(prefix="helio-demo-") as folder:
        from heliograph.cli.pipeline import check_pipelines

        check_pipelines()
        from heliograph.cli.pipeline_show import show

        shown = show(Path(folder), report, as_json=as_json)
        if as_json:
            import json

            typer.echo(json.dumps(shown))
        else:
            typer.secho(f"\nThe report: {shown['report']}", bold=True)


@asynccontextmanager
async def _server(url: str | None) -> AsyncIterator[str]:
    """The server that was named, or one of our own for as long as this takes."""
    if url is not None:
        yield url
        return
    from heliograph.nodes.configuration import load
    from heliograph.nodes.embedded import EmbeddedServer

    with tempfile.TemporaryDirectory(prefix="helio-demo-") as folder:
        settings = {"server.host": "127.0.0.1", "server.port": 0, "server.data": str(Path(folder) / "data")}
        server = EmbeddedServer(load(None, settings))
        await server.start()
        try:
            host, port = server.address
            yield f"helio://{host}:{port}"
        finally:
            await server.stop()


def _say_nothing(_deed: Deed) -> None:
    """For programs, all is said at the end."""


def _tell(deed: Deed) -> None:
    typer.echo(f"  {deed.seconds:5.2f} s  {deed.clerk:<6} ", nl=False)
    words = (
        f"packs “{deed.book}” for {deed.customer}"
        if deed.kind == "order"
        else f"reads that {deed.customer} cancels “{deed.book}”"
    )
    typer.echo(f"{words:<42}", nl=False)
    if not deed.is_wrong:
        typer.secho(" ✓ packed" if deed.kind == "order" else " ✓ unpacked again", fg="green")
    elif deed.kind == "order":
        typer.secho(" ✗ sent, though it was cancelled", fg="red", bold=True)
    else:
        typer.secho(" ? finds nothing to cancel", fg="yellow")


def _sum_up(shop: Shop) -> None:
    unwanted = shop.unwanted
    took = f"in {shop.deeds[-1].seconds:.1f} s"
    if unwanted:
        all_of_them = f"{', '.join(unwanted[:-1])} and {unwanted[-1]}" if len(unwanted) > 1 else unwanted[0]
        typer.secho(f"\n  {count_of(len(unwanted), 'unwanted book')} on the way {took}: ", fg="red", nl=False)
        typer.echo(f"to {all_of_them}.")
    else:
        typer.secho(f"\n  No unwanted book, {took}: ", fg="green", nl=False)
        typer.echo("each cancellation waited for its order, and for nothing else.")


def _figures(shop: Shop) -> dict[str, object]:
    return {
        "seconds": round(shop.deeds[-1].seconds, 3),
        "unwanted_books": len(shop.unwanted),
        "deeds": [asdict(deed) for deed in shop.deeds],
    }
