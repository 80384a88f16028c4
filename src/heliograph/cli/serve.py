"""`helio serve`: run a server in this process until it is told to stop."""

from __future__ import annotations

import errno
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from heliograph.cli import options
from heliograph.cli.outcome import NODE_FAILED, explained, report
from heliograph.model.errors import ClientFault, Unavailable

if TYPE_CHECKING:
    from heliograph.model.errors import HeliographError
    from heliograph.nodes.cluster_server import ClusterServer
    from heliograph.nodes.configuration import Configuration
    from heliograph.nodes.embedded import EmbeddedServer


_MEANINGS = {
    "fsync": "on disk before a producer hears yes",
    "write": "written before a producer hears yes; a power failure may lose the last moments",
    "memory": "nothing is stored; a restart begins empty",
}
_ROLES = {
    "client-manager": "client manager",
    "message-manager": "message manager",
    "both": "client and message manager",
}
# Nobody wants to read what a node waits for if it takes no longer than this.
_PATIENCE_SECONDS = 2.0


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
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster", metavar="NAME", help="Be a node of this cluster.", show_default="stand alone"
        ),
    ] = None,
    role: Annotated[
        options.Role | None,
        typer.Option("--role", help="What this node of a cluster is.", show_default="both"),
    ] = None,
    print_config: Annotated[
        bool,
        typer.Option("--print-config", help="Print all settings with their defaults, as a file to edit."),
    ] = False,
    ready_file: Annotated[Path | None, typer.Option("--ready-file", hidden=True)] = None,
    as_json: options.Json = False,
) -> None:
    """Start a server and run it until Ctrl-C."""
    from heliograph.nodes import configuration as settings

    if print_config:
        from heliograph.nodes.configuration_text import render_defaults

        typer.echo(render_defaults(), nl=False)
        return
    with explained(as_json=as_json):
        configuration = settings.load(
            config,
            {
                "server.data": data,
                "server.host": host,
                "server.port": port,
                "journal.durability": durability and durability.value,
                "cluster.name": cluster,
                "cluster.role": role and role.value,
            },
        )
        check_role(configuration, asked=role is not None)
        import uvloop

        failure = uvloop.run(_run(configuration, ready_file, as_json=as_json))
    if failure is not None:
        report(failure, as_json=as_json)
        raise typer.Exit(NODE_FAILED)


def check_role(configuration: Configuration, *, asked: bool) -> None:
    """A node that was to be part of a cluster must not come up alone."""
    cluster = configuration.cluster
    if not cluster.name and (asked or cluster.role != "both"):
        raise ClientFault(
            "only a node of a cluster has a role: name the cluster, with --cluster NAME or as name under"
            " [cluster] in the configuration",
            code="configuration-invalid",
        )


def _check_folder(path: Path) -> None:
    """Raises Unavailable if a server cannot keep its data there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as failure:
        raise Unavailable(
            f"the data folder {path.absolute()} cannot be used: {failure.strerror}",
            code="data-folder-unusable",
        ) from None


async def _run(
    configuration: Configuration, ready_file: Path | None, *, as_json: bool = False
) -> HeliographError | None:
    """Serve until a signal or a failure; the failure is the result."""
    import asyncio
    import signal

    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    server = _make(configuration)
    _check_folder(Path(configuration.server.data))  # a node that cannot come in leaves nothing behind
    await server.start()
    if configuration.tls.certificate:
        loop.add_signal_handler(signal.SIGHUP, partial(_reload_certificates, server))
    try:
        told = asyncio.create_task(stopping.wait())
        failed = asyncio.create_task(server.wait_failed())
        ready = asyncio.create_task(_get_ready(configuration, server, ready_file, as_json=as_json))
        await asyncio.wait((told, failed, ready), return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            ready.result()
            await asyncio.wait((told, failed), return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        ready.cancel()
        if failed.done():
            return failed.result()
        failed.cancel()
        if sys.stdout.isatty() and not as_json:
            typer.echo("\nstopping…")
        return None
    finally:
        # A second Ctrl-C does not wait for anybody.
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        await server.stop()


def _reload_certificates(server: EmbeddedServer | ClusterServer) -> None:
    try:
        server.reload_certificates()
    except ClientFault as fault:  # it goes on with what it has
        report(fault, as_json=False)


def _make(configuration: Configuration) -> EmbeddedServer | ClusterServer:
    """Raises Unavailable `bus-unavailable`."""
    import asyncio

    if not configuration.cluster.name:
        from heliograph.nodes.embedded import EmbeddedServer

        return EmbeddedServer(configuration, owns_process=True)
    from heliograph.bus.corosync import CorosyncBus
    from heliograph.nodes.buses import bus_for, namespaces_of
    from heliograph.nodes.cluster_server import ClusterServer

    loop, cluster = asyncio.get_running_loop(), configuration.cluster
    namespaces = namespaces_of(cluster)
    for namespace in namespaces:
        CorosyncBus.check(namespace)
    _warn_of_open_bus(namespaces)
    bus = bus_for(cluster, partial(CorosyncBus, loop), loop.call_later)
    server = ClusterServer(
        configuration, bus, owns_process=True, look_around=partial(_look_around, namespaces)
    )
    server.tell = typer.echo
    return server


def _warn_of_open_bus(namespaces: list[str]) -> None:
    """M16: nodes prove by the key of the bus that they belong."""
    from heliograph.bus.cmap import look_at_ring

    rings = [look_at_ring(namespace) for namespace in namespaces]
    if any(ring is not None and ring.hosts and not ring.key_file for ring in rings):
        typer.echo(
            "corosync has no key: whoever reaches this network can be a node of the cluster, and read and write"
            " everything; `helio cluster init` writes a configuration with one",
            err=True,
        )


def _look_around(namespaces: list[str]) -> str:
    from heliograph.bus.cmap import look_at_ring

    rings = [look_at_ring(namespace) for namespace in namespaces]
    return next((ring.lacks for ring in rings if ring is not None and ring.lacks), "")


async def _get_ready(
    configuration: Configuration,
    server: EmbeddedServer | ClusterServer,
    ready_file: Path | None,
    *,
    as_json: bool = False,
) -> None:
    if configuration.cluster.name:
        await _join(cast("ClusterServer", server), as_json=as_json)
    if as_json:
        _describe(configuration, server.address)
    else:
        announce(configuration, server.address)
    if ready_file is not None:
        _write_ready(ready_file, server.address)


def _describe(configuration: Configuration, address: tuple[str, int] | None) -> None:
    """One line for the program that started it."""
    import json

    from heliograph import __version__

    ready = {
        "ready": True,
        "version": __version__,
        "url": url_of(address) if address is not None else "",
        "data": str(Path(configuration.server.data).absolute()),
        "durability": configuration.journal.durability,
        "cluster": configuration.cluster.name,
    }
    typer.echo(json.dumps(ready))
    sys.stdout.flush()


async def _join(server: ClusterServer, *, as_json: bool = False) -> None:
    """Until the node counts. Whoever looks on is told what it waits for, whenever that changes."""
    import asyncio

    ready = asyncio.create_task(server.wait_ready())
    told = ""
    try:
        while not (await asyncio.wait((ready,), timeout=_PATIENCE_SECONDS))[0]:
            lacks = server.lacks
            if lacks != told:
                typer.echo(f"node {server.name} waits for {lacks}", err=as_json)
                server.note_waiting(lacks)
            told = lacks
    finally:
        ready.cancel()


def _write_ready(path: Path, address: tuple[str, int] | None) -> None:
    """Appear whole or not at all: somebody is polling for it. A node without clients has no address."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_text(f"{address[0]}:{address[1]}\n" if address else "-\n", encoding="utf-8")
    temporary.replace(path)


def url_of(address: tuple[str, int]) -> str:
    host, port = address
    return f"helio://[{host}]:{port}" if ":" in host else f"helio://{host}:{port}"


def announce(configuration: Configuration, address: tuple[str, int] | None) -> None:
    """Say where the server is: with a few commands to try on a terminal, on one line elsewhere."""
    from heliograph import __version__

    url = url_of(address) if address is not None else ""
    folder = Path(configuration.server.data).absolute()
    durability, cluster = configuration.journal.durability, configuration.cluster
    if not sys.stdout.isatty():
        where = f"listens on {url}" if url else "is ready"
        of_what = f", {_ROLES[cluster.role]} of cluster {cluster.name}" if cluster.name else ""
        typer.echo(f"heliograph {__version__} {where}, data {folder}, durability {durability}{of_what}")
        return
    from rich.console import Console

    print_ = Console(highlight=False, soft_wrap=True).print
    print_(f"\n[bold yellow]Heliograph[/] {__version__}\n")
    if cluster.name:
        node = f"{configuration.identity.site}.{configuration.identity.node}"
        print_(f"  node        {node}, {_ROLES[cluster.role]} of cluster [bold]{cluster.name}[/]")
    if url:
        print_(f"  listens on  [bold]{url}[/]")
        print_(f"  open to     {_open_to(configuration)}")
    print_(f"  data        {folder}")
    if cluster.role != "client-manager":
        print_(f"  durability  {durability}: {_MEANINGS[durability]}")
    if url:
        elsewhere = "" if url.endswith(":7700") else f" --url {url}"
        print_("\n  Try in another terminal:\n")
        for command in ('send queue:hello "Hello, world"', "receive queue:hello", "top"):
            print_(f"    [cyan]helio {command}{elsewhere}[/]")
    print_("\n  [dim]Ctrl-C stops the server.[/]\n")


def _open_to(configuration: Configuration) -> str:
    if configuration.users_path.exists():
        return f"the users in {configuration.users_path}"
    return "everybody on this machine, without a password"
