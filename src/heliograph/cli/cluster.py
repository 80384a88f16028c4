"""`helio cluster`: prepare the bus that joins the nodes of a cluster, or try a whole cluster on this machine."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Annotated

import typer

from heliograph.cli import cluster_dev
from heliograph.cli.outcome import explained
from heliograph.model.errors import ClientFault, Unavailable

app = typer.Typer(help="Prepare the bus of a cluster, or try a whole cluster here.", no_args_is_help=True)

CONFIGURATION = "corosync.conf"
KEY = "authkey"
_INSTALLED = "/etc/corosync"


app.command("dev")(cluster_dev.dev)


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
) -> None:
    """Write a tuned corosync.conf and a key for the given hosts, and say how to start it."""
    with explained():
        from heliograph.bus.corosync_settings import KEY_BYTES, parse_host, render

        parsed = [parse_host(host) for host in hosts]
        text = render(parsed, cluster=name, key_file=f"{_INSTALLED}/{KEY}", token_ms=token)
        _write(output, text, secrets.token_bytes(KEY_BYTES))
        typer.echo(
            f"wrote {output / CONFIGURATION} and {output / KEY}, the same for every host. For each of them:"
        )
        for host in parsed:
            typer.echo(f"  scp -p {output / CONFIGURATION} {output / KEY} root@{host.name}:{_INSTALLED}/")
            typer.echo(f"  ssh root@{host.name} 'apt install corosync && systemctl restart corosync'")
        typer.echo("then, on any of them, `corosync-cfgtool -s` shows every host as connected")
        typer.echo("whoever has the key is a member of the cluster: copy it over safe ways only", err=True)


def _write(folder: Path, text: str, key: bytes) -> None:
    """A key that is in use is not written over: a host with another one would be left outside."""
    if (folder / KEY).exists():
        raise ClientFault(
            f"{folder / KEY} is there already: remove it, or choose another --output", code="usage"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CONFIGURATION).write_text(text, encoding="utf-8")
        descriptor = os.open(folder / KEY, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
        with os.fdopen(descriptor, "wb") as file:
            file.write(key)
    except OSError as error:
        raise Unavailable(
            f"cannot write to {folder}: {error.strerror or error}", code="unavailable"
        ) from None
