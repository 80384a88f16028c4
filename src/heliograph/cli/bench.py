"""`helio bench`: how fast this server is on this machine, by the clocks of its clients."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from heliograph.cli import options
from heliograph.cli.outcome import explained
from heliograph.cli.workloads import Role, Workload
from heliograph.model.errors import ClientFault

if TYPE_CHECKING:
    from rich.table import Table

    from heliograph.cli.bench_plan import Figures
    from heliograph.cli.bench_run import Request, Watch

app = typer.Typer(help="Measure a server.", no_args_is_help=True)


# Enough for a second or more, so that starting does not count.
_MESSAGES = {"queue": 500_000, "paced": 200_000, "sync": 5_000, "fanout": 100_000, "latency": 10_000}


@app.callback()
def _group() -> None:
    """Measure a server."""


@app.command("run")
def run(
    workload: Annotated[Workload, typer.Option("--workload", "-w", help="What to measure.")] = Workload.QUEUE,
    messages: Annotated[
        int | None,
        typer.Option("--messages", "-n", min=1, help="How many messages.", show_default="by workload"),
    ] = None,
    size: Annotated[int, typer.Option("--size", min=0, help="Bytes per body.")] = 256,
    consumers: Annotated[int, typer.Option("--consumers", min=1, max=100, help="Subscribers of fanout.")] = 5,
    rate: Annotated[float, typer.Option("--rate", min=1, help="Messages per second of latency.")] = 2000,
    non_persistent: Annotated[
        bool, typer.Option("--non-persistent", help="Send non-persistent messages.")
    ] = False,
    durability: Annotated[
        options.Durability | None,
        typer.Option("--durability", help="Of the server that is started.", show_default="fsync"),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option("--data", help="Where the started server keeps its data, to measure a certain disk."),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option("--url", help="Measure this server instead of starting one.", rich_help_panel="Server"),
    ] = None,
    user: options.User = None,
    password: options.Password = None,
    as_json: options.Json = False,
) -> None:
    """Measure one workload, with every client in a process of its own."""
    with explained(as_json=as_json):
        if url is not None and (durability is not None or data is not None):
            raise ClientFault(
                "--durability and --data are for a server that is started here: leave out --url", code="usage"
            )
        if workload is Workload.LATENCY and size < 8:
            raise ClientFault("a latency message carries its time: --size must be 8 or more", code="usage")
        import uvloop

        from heliograph.cli import bench_run

        request = bench_run.Request(
            workload=workload,
            messages=messages or _MESSAGES[workload],
            size=size,
            consumers=consumers,
            rate=rate,
            persistent=not non_persistent,
            durability=durability and durability.value,
            url=url,
            user=user,
            password=password,
            data=data,
        )
        with _progress(request) as watch:
            figures = uvloop.run(bench_run.run(request, watch))
        if as_json:
            import msgspec

            typer.echo(msgspec.json.encode(figures).decode())
        else:
            from rich.console import Console

            Console(highlight=False).print(table_of(figures, deliveries=workload is Workload.FANOUT))


@contextmanager
def _progress(request: Request) -> Iterator[Watch]:
    """A bar for the producer and one for the slowest consumer, where a person is watching."""
    if not sys.stderr.isatty():
        yield lambda role, index, done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bars = {
            role: progress.add_task(title, total=request.messages) for role, title in _titles(request).items()
        }
        done_by: dict[Role, dict[int, int]] = {role: {} for role in bars}

        def watch(role: Role, index: int, done: int) -> None:
            done_by[role][index] = done
            progress.update(bars[role], completed=min(done_by[role].values()))

        yield watch


def _titles(request: Request) -> dict[Role, str]:
    titles = {Role.PRODUCE: "sending"}
    return titles if request.workload is Workload.SYNC else {**titles, Role.CONSUME: "receiving"}


def table_of(figures: Figures, *, deliveries: bool = False) -> Table:
    """The figures as a person sees them."""
    from rich import box
    from rich.table import Table

    unit = "delivery" if deliveries else "message"
    table = Table(
        box=box.SIMPLE, show_header=False, title=_title(figures), title_justify="left", title_style="bold"
    )
    table.add_column(style="dim")
    table.add_column(justify="right")
    for name, value, form in (
        (
            "deliveries per second" if deliveries else "messages per second",
            figures.messages_per_second,
            "{:,.0f}",
        ),
        ("median", figures.p50_ms, "{:,.3f} ms"),
        ("99th percentile", figures.p99_ms, "{:,.3f} ms"),
        (f"server CPU per {unit}", figures.server_cpu_us_per_message, "{:,.2f} µs"),
        ("server memory", figures.server_rss_mb, "{:,.0f} MB"),
    ):
        if value is not None:
            table.add_row(name, form.format(value))
    table.add_row("durability", figures.durability or "–")
    table.caption = f"on {os.cpu_count()} processors"
    return table


def _title(figures: Figures) -> str:
    return f"{figures.workload}: {figures.messages:,} messages of {figures.size:,} bytes"
