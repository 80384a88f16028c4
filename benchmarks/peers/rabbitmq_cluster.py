"""RabbitMQ as a cluster of three nodes with a quorum queue, through pika.

Three nodes of Debian's package on this machine, each with its own data, found by each other through a list in their
configuration. The queue has a replica on each; its leader is on the node that the clients are connected to, which is
the cheapest place. A confirmation means that two of three have synced their write-ahead logs.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import ClassVar, Final

from benchmarks.peers.rabbitmq import (
    SCRIPTS,
    RabbitMQQuorum,
    name_server,
    node_environment,
    node_name,
)
from benchmarks.processes import BenchmarkError, Child, Server, free_port, port_answers

NODES: Final = 3
JOIN_SECONDS: Final = 60


class _Nodes(Server):
    """The first node, which clients are connected to, and the others."""

    def __init__(self, *args: object, names: Child, others: list[Server], **options: object) -> None:
        self.names, self.others = names, others
        super().__init__(*args, **options)  # type: ignore[arg-type]  # as they are

    def stop(self) -> None:
        """Stop all."""
        super().stop()
        for part in (*self.others, self.names):
            part.stop()

    def cpu_seconds(self) -> float:
        """Of all nodes."""
        return super().cpu_seconds() + sum(node.cpu_seconds() for node in self.others)

    def rss_mb(self) -> float:
        """Of all nodes."""
        return super().rss_mb() + sum(node.rss_mb() for node in self.others)


class RabbitMQCluster(RabbitMQQuorum):
    """Three nodes, a replica on each."""

    key = "rabbitmq-quorum-cluster"
    title = "RabbitMQ, quorum queue on 3 nodes (pika)"
    durability = "write-ahead logs of two of three nodes synced before the confirm (group commit)"
    workloads: ClassVar[tuple[str, ...]] = ("queue", "sync")

    def start(self, folder: Path, port: int) -> Server:
        """Start all three and wait until they are one cluster."""
        ports, names_port = [port, *(free_port() for _ in range(NODES - 1))], free_port()
        configuration = ["cluster_formation.peer_discovery_backend = classic_config"]
        configuration += [
            f"cluster_formation.classic_config.nodes.{number} = {node_name(each)}"
            for number, each in enumerate(ports, 1)
        ]
        (folder / "rabbitmq.conf").write_text("\n".join(configuration) + "\n")
        cookie = folder / ".erlang.cookie"
        cookie.write_text("benchmark")
        cookie.chmod(0o400)
        names = name_server(folder, names_port)
        command = [SCRIPTS / "rabbitmq-server"]
        environments = [node_environment(folder, each, names_port) for each in ports]
        others = [
            Server(command, folder=folder, name=f"{self.key}-{number}", environment=environment)
            for number, environment in enumerate(environments[1:], 2)
        ]
        server = _Nodes(
            command, folder=folder, name=self.key, environment=environments[0], names=names, others=others
        )
        for each in ports:
            server.wait_until(port_answers(each))
        _wait_for_all(server, environments[0])
        return server


def _wait_for_all(server: Server, environment: dict[str, str]) -> None:
    asked = subprocess.run(
        [SCRIPTS / "rabbitmqctl", "await_online_nodes", str(NODES)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=JOIN_SECONDS,
        check=False,
    )
    if asked.returncode:
        server.stop()
        raise BenchmarkError(f"RabbitMQ's nodes did not become a cluster: {asked.stderr.strip()[-300:]}")
