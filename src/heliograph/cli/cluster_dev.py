"""`helio cluster dev`: a whole cluster on this machine with one command, and nothing of it left afterwards.

What is killed is started again after a moment, so that one can watch a cluster lose a node and get it back.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliograph.cli import options
from heliograph.cli.outcome import explained

if TYPE_CHECKING:
    from types import FrameType

    from heliograph.cli.dev_cluster import DevCluster, Node

_START_SECONDS = 60.0
# How soon a node that was killed comes back: long enough to see what happens without it.
_AWAY_SECONDS = 2.0
_LOOK_SECONDS = 0.1
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def dev(
    client_managers: Annotated[
        int, typer.Option("--client-managers", min=1, max=20, help="Nodes that clients connect to.")
    ] = 2,
    message_managers: Annotated[
        int,
        typer.Option(
            "--message-managers", min=1, max=20, help="Nodes that keep the messages, in each sub-cluster."
        ),
    ] = 3,
    sub_clusters: Annotated[
        int,
        typer.Option(
            "--sub-clusters", min=1, max=5, help="Destinations are spread over so many sub-clusters."
        ),
    ] = 1,
    distribute: Annotated[
        list[str] | None,
        typer.Option(
            "--distribute",
            metavar="PATTERN",
            help="Destinations that have a member in each sub-cluster, such as queue:orders.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            help="Keep messages and logs here, to go on with them later.",
            show_default="a temporary folder",
        ),
    ] = None,
    namespaces: Annotated[
        bool,
        typer.Option(
            "--namespaces", help="Give each node a host of its own, in network namespaces. Needs root."
        ),
    ] = False,
    port: Annotated[
        int,
        typer.Option(
            "--port", min=0, max=65000, help="Of the first client manager; others follow. 0: free ones."
        ),
    ] = 7700,
    as_json: options.Json = False,
) -> None:
    """Start a whole cluster on this machine, and stop it on Ctrl-C."""
    with explained(as_json=as_json), _folder(data) as folder:
        from heliograph.cli.dev_cluster import DevCluster

        cluster = DevCluster(
            folder,
            client_managers=client_managers,
            message_managers=message_managers,
            sub_clusters=sub_clusters,
            namespaces=namespaces,
            port=port,
            distributed=distribute or (),
        )
        _Show(cluster, keeps=data is not None, as_json=as_json).run()


@contextmanager
def _folder(data: Path | None) -> Iterator[Path]:
    if data is not None:
        yield data
        return
    folder = Path(tempfile.mkdtemp(prefix="helio-dev-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


class _Show:
    """Runs a cluster until somebody has seen enough, and says what happens."""

    def __init__(self, cluster: DevCluster, *, keeps: bool, as_json: bool) -> None:
        self._cluster = cluster
        self._keeps = keeps
        self._as_json = as_json

    def run(self) -> None:
        for number in _STOPS:
            signal.signal(number, _interrupt)
        try:
            self._start()
            self._introduce()
            while True:
                self._look_after_nodes()
                time.sleep(_LOOK_SECONDS)
        except KeyboardInterrupt:
            self._say("\nstopping…")
        finally:
            # A second Ctrl-C does not wait for anybody; all processes end with this one.
            for number in _STOPS:
                signal.signal(number, signal.SIG_DFL)
            self._cluster.stop()

    def _say(self, words: str) -> None:
        if not self._as_json:
            typer.echo(words)

    # ---- starting

    def _start(self) -> None:
        from heliograph import __version__

        cluster = self._cluster
        if not self._as_json:
            typer.secho("\nHeliograph", fg="yellow", bold=True, nl=False)
            typer.echo(f" {__version__}, a whole cluster on this machine\n")
        cluster.start()
        if cluster.namespaces:
            self._line("corosync", "one per node, each on a host of its own in a network namespace")
        elif cluster.ring is not None:
            self._line("corosync", "one for all nodes, its ring has one host")
        else:
            self._line("corosync", "the one that runs on this machine")
        deadline = time.monotonic() + _START_SECONDS
        shown: set[str] = set()
        while len(shown) < len(cluster.nodes):
            self._show_new(shown, deadline)
            time.sleep(_LOOK_SECONDS)

    def _show_new(self, shown: set[str], deadline: float) -> None:
        from heliograph.cli.dev_cluster import failed

        for node in self._cluster.nodes:
            if node.ended is not None or time.monotonic() > deadline:
                raise failed(node)
            if node.is_ready and node.name not in shown:
                shown.add(node.name)
                self._line(node.name, self._what_it_does(node))

    def _what_it_does(self, node: Node) -> str:
        if node.role == "client-manager":
            return f"pid {node.pid:<8} helio://{node.address}"
        where = f", in sub-cluster {node.sub_cluster}" if len(self._cluster.sub_clusters) > 1 else ""
        return f"pid {node.pid:<8} synchronised{where}"

    def _line(self, name: str, words: str) -> None:
        if not self._as_json:
            typer.secho("  ✓ ", fg="green", nl=False)
            typer.echo(f"{name:<18} {words}")
            sys.stdout.flush()

    def _introduce(self) -> None:
        cluster = self._cluster
        if self._as_json:
            self._tell(cluster.describe())
            return
        kept = "" if self._keeps else ", removed at the end"
        typer.echo(f"\n  data: {cluster.folder}{kept}")
        typer.echo("  All nodes are there, and every message manager has the whole log.\n")
        typer.echo("  Try in another terminal:\n")
        commands = [f"export HELIO_URL={cluster.url}"]
        if cluster.namespaces:
            described = cluster.describe()
            commands.append(f"export HELIO_USER={described['user']} HELIO_PASSWORD={described['password']}")
        commands += ['helio send queue:hello "Hello, world"', "helio receive queue:hello"]
        victim = cluster.message_managers[0]
        alone = len(cluster.message_managers) == 1
        then = "it comes back" if alone else "if it leads, another takes over"
        commands.append(f"kill -9 {victim.pid}    # {victim.name}: {then}")
        for command in commands:
            typer.secho(f"    {command}", fg="cyan")
        typer.echo("\n  Ctrl-C stops all of it.\n")
        sys.stdout.flush()

    # ---- running

    def _tell(self, what: dict[str, Any]) -> None:
        typer.echo(json.dumps(what))
        sys.stdout.flush()

    def _look_after_nodes(self) -> None:
        for node in self._cluster.nodes:
            if node.ended is not None:
                self._bring_back(node)

    def _bring_back(self, node: Node) -> None:
        """Killed by somebody who wants to see what happens. One that ended by itself has said why."""
        from heliograph.cli.dev_cluster import failed

        code = node.ended
        if code is None or code >= 0:
            raise failed(node)
        if self._as_json:
            self._tell({"event": "ended", "node": node.name, "signal": -code})
        self._say(f"  ✗ {node.name} was ended by signal {-code}; it is started again")
        time.sleep(_AWAY_SECONDS)
        node.start()
        began = time.monotonic()
        while not node.is_ready and node.ended is None and time.monotonic() < began + _START_SECONDS:
            time.sleep(_LOOK_SECONDS)
        if not node.is_ready:
            raise failed(node)
        self._line(node.name, self._what_it_does(node))
        if self._as_json:
            self._tell({"event": "ready", **node.describe()})
