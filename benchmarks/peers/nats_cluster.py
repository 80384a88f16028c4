"""NATS JetStream as a cluster of three servers, streams with three replicas in files, through nats-py.

A confirmation means that two of three have the message in the page cache of their files: nobody syncs. Clients are
connected to one of the three, wherever the stream's leader is: NATS chooses that by itself.
"""

from __future__ import annotations

import json
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Final

from benchmarks.peers.interface import program
from benchmarks.peers.nats import CLUSTER_KEY, REPLICAS, NatsJetStream
from benchmarks.processes import Server, free_port, port_answers

ANSWER_SECONDS: Final = 1


class _Servers(Server):
    """The server that clients are connected to, and the others."""

    others: list[Server]

    def stop(self) -> None:
        """Stop all."""
        super().stop()
        for other in self.others:
            other.stop()

    def cpu_seconds(self) -> float:
        """Of all servers."""
        return super().cpu_seconds() + sum(other.cpu_seconds() for other in self.others)

    def rss_mb(self) -> float:
        """Of all servers."""
        return super().rss_mb() + sum(other.rss_mb() for other in self.others)


class NatsCluster(NatsJetStream):
    """Three servers, a replica on each."""

    key = CLUSTER_KEY
    title = "NATS JetStream, 3 replicas (nats-py)"
    durability = "in the page cache of two of three servers; synced every two minutes"
    workloads = ("queue", "sync")

    def start(self, folder: Path, port: int) -> Server:
        """Start all three and wait until they have a leader."""
        ports, monitor = [port, *(free_port() for _ in range(REPLICAS - 1))], free_port()
        routes = [free_port() for _ in ports]
        others: list[Server] = []
        for number in range(1, REPLICAS):
            command = _command(folder / f"store-{number}", ports[number], routes, number)
            others.append(Server(command, folder=folder, name=f"{self.key}-{number}"))
        command = [*_command(folder / "store-0", port, routes, 0), "-m", str(monitor)]
        server = _Servers(command, folder=folder, name=self.key)
        server.others = others
        for each in ports:
            server.wait_until(port_answers(each))
        return server.wait_until(lambda: _has_leader(monitor))


def _command(store: Path, port: int, routes: list[int], number: int) -> list[str]:
    store.mkdir()
    command = [program("nats-server"), "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(store)]
    command += ["-n", f"bench-{number}", "--cluster_name", "bench"]
    command += ["--cluster", f"nats://127.0.0.1:{routes[number]}"]
    return [*command, "--routes", ",".join(f"nats://127.0.0.1:{route}" for route in routes)]


def _has_leader(monitor: int) -> bool:
    with suppress(OSError, ValueError):
        url = f"http://127.0.0.1:{monitor}/jsz"
        with urllib.request.urlopen(url, timeout=ANSWER_SECONDS) as answer:
            cluster = json.load(answer).get("meta_cluster") or {}
        return bool(cluster.get("leader")) and cluster.get("cluster_size") == REPLICAS
    return False
