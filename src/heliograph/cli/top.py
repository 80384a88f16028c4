"""`helio top`: what the server is doing, as a table that keeps itself fresh."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliograph.cli.at_server import Server, all_entries, at_server
from heliograph.cli.connecting import ServerAddress, connected
from heliograph.cli.presentation import bytes_of, count_of, duration_of, harmless, rate_of

if TYPE_CHECKING:
    from rich.console import RenderableType

    from heliograph.client import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What the server answered at one time."""

    seconds: float
    server: Mapping[str, Any]
    destinations: list[Mapping[str, Any]]


@at_server
def top(
    server: Server,
    once: Annotated[bool, typer.Option("--once", help="Print one table and end.")] = False,
    interval: Annotated[
        float, typer.Option("--interval", min=0.1, metavar="SECONDS", help="Time between two looks.")
    ] = 1.0,
) -> None:
    """Watch the destinations of a server and the server itself."""
    import uvloop

    try:
        uvloop.run(_watch(server.address, interval, once=once, as_json=server.as_json))
    except KeyboardInterrupt:
        if once:
            raise


async def _watch(address: ServerAddress, interval: float, *, once: bool, as_json: bool) -> None:
    async with connected(address, purpose="top") as connection:
        reports = _reports(connection, interval)
        if as_json:
            import json

            async for report in reports:
                typer.echo(json.dumps(report))
                if once:
                    return
        else:
            await _show(reports, address.shown, once=once)


async def _show(reports: AsyncIterator[dict[str, Any]], where: str, *, once: bool) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    if once or not sys.stdout.isatty():
        async for report in reports:
            console.print(render(report, where))
            if once:
                return
    with Live(console=console, screen=True, auto_refresh=False) as live:
        async for report in reports:
            live.update(render(report, where, rows=console.height - 9), refresh=True)


async def _reports(connection: Connection, interval: float) -> AsyncIterator[dict[str, Any]]:
    """One report per interval; the first after one, because rates need two looks."""
    import asyncio

    before = await _look(connection)
    while True:
        await asyncio.sleep(interval)
        now = await _look(connection)
        yield compare(before, now)
        before = now


async def _look(connection: Connection) -> Sample:
    from time import monotonic

    destinations = await all_entries(connection, "destinations", "destinations")
    server = await connection.ask("server")
    return Sample(seconds=monotonic(), server=server, destinations=[*destinations])


def compare(before: Sample, now: Sample) -> dict[str, Any]:
    """The later look, with rates from the difference. Busy destinations come first, then full ones."""
    elapsed = max(now.seconds - before.seconds, 1e-9)
    known = {entry["address"]: entry for entry in before.destinations}
    destinations = [_with_rates(entry, known.get(entry["address"]), elapsed) for entry in now.destinations]
    destinations.sort(key=_busy_first)
    cpu = (now.server["cpu_seconds"] - before.server["cpu_seconds"]) / elapsed
    return {
        "server": {**now.server, "cpu_percent": round(max(0.0, cpu) * 100, 1)},
        "destinations": destinations,
    }


def _with_rates(
    entry: Mapping[str, Any], earlier: Mapping[str, Any] | None, elapsed: float
) -> dict[str, Any]:
    """A destination that has just come into being began at nothing."""
    began = earlier or {"published": 0, "delivered": 0}
    return {
        **entry,
        # Counters fall when the server was started again in between.
        "in_per_second": round(max(0, entry["published"] - began["published"]) / elapsed, 1),
        "out_per_second": round(max(0, entry["delivered"] - began["delivered"]) / elapsed, 1),
    }


def _busy_first(entry: Mapping[str, Any]) -> tuple[float, int, str]:
    return (-entry["in_per_second"] - entry["out_per_second"], -entry["depth"], entry["address"])


def render(report: Mapping[str, Any], where: str, *, rows: int | None = None) -> RenderableType:
    """The report as a person sees it; `rows` is how many destinations have room."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    table.add_column("destination", overflow="ellipsis", no_wrap=True)
    for title in ("waiting", "in flight", "consumers", "in/s", "out/s", "size"):
        table.add_column(title, justify="right", no_wrap=True)
    destinations = [entry for entry in report["destinations"] if not _is_idle_and_ours(entry)]
    shown = destinations if rows is None else destinations[: max(rows, 1)]
    for entry in shown:
        table.add_row(*_cells(entry))
    parts: list[RenderableType] = [Text(server_lines(report["server"], where), style="bold"), table]
    if not destinations:
        parts.append(
            Text("no destinations yet: the first `helio send queue:NAME TEXT` makes one", style="dim")
        )
    elif len(shown) < len(destinations):
        parts.append(Text(f"and {len(destinations) - len(shown):,} more", style="dim"))
    return Group(*parts)


def _is_idle_and_ours(entry: Mapping[str, Any]) -> bool:
    """The server's own destinations are worth a line when there is something in them."""
    figures = ("depth", "in_flight", "consumers", "in_per_second", "out_per_second")
    return ":_" in entry["address"] and not any(entry[name] for name in figures)


def _cells(entry: Mapping[str, Any]) -> list[RenderableType]:
    from rich.text import Text

    is_busy = entry["in_per_second"] or entry["out_per_second"]
    is_alone = entry["depth"] and not entry["consumers"]
    return [
        Text(harmless(entry["address"]), style="cyan" if is_busy else ""),
        # Producers are told to wait while there is so much, or while they are paused.
        _with_state(_depth_state(entry), entry["depth"]),
        f"{entry['in_flight']:,}",
        # Messages that wait where nobody listens deserve a look.
        _with_state("paused", entry["consumers"])
        if entry["consumption_paused"]
        else Text(f"{entry['consumers']:,}", style="yellow" if is_alone else ""),
        rate_of(entry["in_per_second"]),
        rate_of(entry["out_per_second"]),
        bytes_of(entry["held_bytes"]),
    ]


def _depth_state(entry: Mapping[str, Any]) -> str:
    """Why somebody should look at what waits, if somebody should."""
    if entry.get("stopped_units"):
        return f"{count_of(entry['stopped_units'], 'unit')} stopped"
    if entry.get("held_back"):
        return f"{entry['held_back']:,} held back of"
    if entry["production_paused"]:
        return "paused"
    return "blocked" if entry["blocked"] else ""


def _with_state(state: str, number: int) -> RenderableType:
    from rich.text import Text

    return Text(f"{state} {number:,}", style="red") if state else f"{number:,}"


def server_lines(server: Mapping[str, Any], where: str) -> str:
    """The server itself, in two lines that fit a narrow terminal."""
    first = (
        where,
        f"up {duration_of(round(server['uptime_seconds']))}",
        count_of(server["connections"], "connection"),
    )
    second = (
        f"cpu {server['cpu_percent']:.0f} %",
        f"memory {bytes_of(server['rss_bytes'])}",
        f"journal {bytes_of(server['journal_bytes'])} ({server['durability']})",
    )
    lines = [" · ".join(first), " · ".join(second)]
    if server.get("disk_full"):
        lines.append("the disk is full: what is sent is refused")
    return "\n".join(lines)
