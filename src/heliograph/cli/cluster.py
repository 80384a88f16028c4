"""`helio cluster`: prepare the bus that joins the nodes of a cluster, look at one, or try a whole cluster here."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heliograph.cli import cluster_dev, cluster_orders, cluster_status, options
from heliograph.cli.outcome import explained
from heliograph.model.errors import ClientFault, Unavailable

if TYPE_CHECKING:
    from heliograph.bus.corosync_settings import Host as RingHost

app = typer.Typer(
    help="Prepare the bus of a cluster, look at it, or try a whole cluster here.", no_args_is_help=True
)

CONFIGURATION = "corosync.conf"
KEY = "authkey"
_INSTALLED = "/etc/corosync"
_DATA = "/var/lib/heliograph"


app.command("dev")(cluster_dev.dev)
app.command("status")(cluster_status.status)
app.command("remove")(cluster_orders.remove)
app.command("override")(cluster_orders.override)
app.command("hand-over")(cluster_orders.hand_over)


@app.command("init")
def init(
    hosts: Annotated[
        list[str],
        typer.Argument(metavar="HOST…", help="Each NAME or NAME=ADDRESS[,ADDRESS], an address per network."),
    ],
    output: Annotated[Path, typer.Option("--output", help="The folder to write to.")] = Path(
        "heliograph-cluster"
    ),
    name: Annotated[str, typer.Option("--name", help="The name of the cluster.")] = "heliograph",
    token: Annotated[
        int,
        typer.Option(
            "--token", min=200, max=30_000, help="Milliseconds of silence after which a host is gone."
        ),
    ] = 1000,
    bus: Annotated[
        list[str] | None,
        typer.Option(
            "--bus",
            metavar="NAME",
            help="A bus, if there are several: the first address of a host is on the first, and so on.",
            show_default=False,
        ),
    ] = None,
    role: Annotated[
        list[str] | None,
        typer.Option(
            "--role",
            metavar="HOST=ROLE",
            help="A host that has not both kinds of nodes: client-manager or message-manager.",
            show_default=False,
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Write a tuned corosync.conf, a key and the settings of a server for each host, and say how to start them.

    It warns of layouts that do not bear the loss of a host, or a cut."""
    with explained(as_json=as_json):
        from heliograph.bus.corosync_settings import KEY_BYTES, parse_host, render
        from heliograph.cli import cluster_buses, cluster_layout

        parsed, key_file, buses = [parse_host(host) for host in hosts], f"{_INSTALLED}/{KEY}", bus or []
        if len(buses) > 1:
            cluster_buses.check(parsed, buses)
            files = cluster_buses.files(parsed, buses, cluster=name, key_file=key_file, token_ms=token)
        else:
            files = {CONFIGURATION: render(parsed, cluster=name, key_file=key_file, token_ms=token)}
        roles = cluster_layout.roles_of([host.name for host in parsed], role or ())
        managers = len(cluster_layout.keeping_messages(roles))
        for number, host in enumerate(parsed, 1):
            files[f"{host.name}.toml"] = _node(host, number, name, roles[host.name], managers, buses)
        _write(output, files, secrets.token_bytes(KEY_BYTES))
        entrances = [host for host in parsed if host.name in cluster_layout.serving_clients(roles)]
        url = "helio://" + ",".join(f"{host.addresses[0]}:7700" for host in entrances)
        warnings = cluster_layout.warnings(roles)
        if as_json:
            written = {"folder": str(output), "files": sorted([*files, KEY]), "url": url}
            typer.echo(json.dumps({**written, "warnings": warnings}))
        else:
            _say_how_to_go_on(parsed, output, buses, url)
            for warning in warnings:
                typer.secho(f"\nwarning: {warning}", err=True, fg="yellow")


def _node(host: RingHost, number: int, cluster: str, role: str, managers: int, buses: Sequence[str]) -> str:
    """The settings of a server on that host, for a cluster of so many message managers."""
    from heliograph.cli import cluster_buses
    from heliograph.nodes.configuration import toml_of

    return (
        f"# Heliograph on {host.name}: helio serve --config {host.name}.toml\n"
        "[server]\n"
        f"host = {toml_of(host.addresses[0])}\n"
        f"data = {toml_of(_DATA)}\n\n"
        "[identity]\n"
        f"node = {number}\n\n"
        "[cluster]\n"
        f"name = {toml_of(cluster)}\n"
        f"role = {toml_of(role)}\n"
        f"message_managers = {managers}\n"
        f"seniority = {number}\n"
    ) + "".join(
        f"{key} = {toml_of(value)}\n"
        for key, value in (cluster_buses.settings(buses) if len(buses) > 1 else {}).items()
    )


def _say_how_to_go_on(hosts: Sequence[RingHost], output: Path, buses: Sequence[str], url: str) -> None:
    from heliograph.cli import cluster_buses

    typer.echo(
        f"wrote to {output}: {CONFIGURATION} and {KEY}, the same for every host, and a NAME.toml for each"
    )
    typer.secho("\nThe bus, on each host:", bold=True)
    for host in hosts:
        typer.echo(f"  ssh root@{host.name} apt-get install -y corosync")
        typer.echo(f"  scp -p {output / CONFIGURATION} {output / KEY} root@{host.name}:{_INSTALLED}/")
        typer.echo(f"  ssh root@{host.name} systemctl restart corosync")
        for line in cluster_buses.steps(host, buses, str(output)) if len(buses) > 1 else ():
            typer.echo(f"  {line}")
    typer.echo("Then, on any of them, `corosync-cfgtool -s` shows every host as connected.")
    typer.secho("\nThe servers, once Heliograph is installed on each host:", bold=True)
    typer.echo(
        f"  helio user add NAME --role admin --data {output}   # then copy users.toml to {_DATA} of each host"
    )
    for host in hosts:
        typer.echo(f"  scp {output / host.name}.toml root@{host.name}:")
        typer.echo(f"  ssh root@{host.name} helio serve --config {host.name}.toml")
    typer.echo(f"Clients connect to {url}")
    typer.echo("\nwhoever has the key is a member of the cluster: copy it over safe ways only", err=True)


def _write(folder: Path, files: Mapping[str, str], key: bytes) -> None:
    """A key that is in use is not written over: a host with another one would be left outside."""
    if (folder / KEY).exists():
        raise ClientFault(
            f"{folder / KEY} is there already: remove it, or choose another --output", code="usage"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        descriptor = os.open(folder / KEY, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
        with os.fdopen(descriptor, "wb") as file:
            file.write(key)
    except OSError as error:
        raise Unavailable(
            f"cannot write to {folder}: {error.strerror or error}", code="unavailable"
        ) from None
