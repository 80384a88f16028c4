"""Where `helio demo partition` is played: a cluster of three client managers and three message managers whose
network can be cut. As root, with Corosync, each node is a process on a host of its own in network namespaces;
otherwise all of them are in this process, on a bus that can be cut."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from heliograph.cli.connecting import ServerAddress
from heliograph.model.errors import Unavailable

if TYPE_CHECKING:
    from heliograph.nodes.cluster_server import ClusterServer

CLIENT_MANAGERS: Final = 3
MESSAGE_MANAGERS: Final = 3
# Hosts by number, client managers first. The first part has the message manager that leads and most client managers,
# the second has most message managers.
PARTS: Final = ((1, 2, 4), (3, 5, 6))
_START_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.02


class Stage(Protocol):
    """A cluster, and scissors."""

    words: str  # what it is, for the audience

    @property
    def addresses(self) -> list[ServerAddress]:
        """Of the client managers."""

    async def start(self) -> None:
        """Raises HeliographError."""

    async def cut(self) -> None: ...

    async def heal(self) -> None: ...

    async def stop(self) -> None: ...


def stage_in(folder: Path, *, in_process: bool) -> Stage:
    """The most real one that this machine allows."""
    from heliograph.cli.dev_hosts import check_tools

    if in_process or os.geteuid() != 0:
        return OneProcess(folder)
    try:
        check_tools(networks=True)
    except Unavailable:
        return OneProcess(folder)
    return Hosts(folder)


class OneProcess:
    """All nodes here, with real journals."""

    words = (
        "six nodes in this process, on a bus that can be cut (as root with Corosync: on hosts of their own)"
    )

    def __init__(self, folder: Path) -> None:
        from heliograph.bus.cuttable import CuttableBus

        self._folder = folder
        self._bus = CuttableBus()
        self._servers: list[ClusterServer] = []

    @property
    def addresses(self) -> list[ServerAddress]:
        places = [server.address for server in self._servers if server.address is not None]
        return [ServerAddress(url=f"helio://{host}:{port}") for host, port in places]

    async def start(self) -> None:
        for host in range(1, CLIENT_MANAGERS + MESSAGE_MANAGERS + 1):
            await self._start_node(host)
        async with asyncio.timeout(_START_SECONDS):
            for server in self._servers:
                while server.lacks:
                    await asyncio.sleep(_LOOK_SECONDS)

    async def _start_node(self, host: int) -> None:
        from heliograph.nodes.cluster_server import ClusterServer
        from heliograph.nodes.configuration import load

        is_manager = host > CLIENT_MANAGERS
        settings = {
            "server.host": "127.0.0.1",
            "server.port": 0,
            "server.data": str(self._folder / f"node{host}"),
            "identity.node": host - CLIENT_MANAGERS + 100 if is_manager else host,
            "cluster.name": "demo",
            "cluster.role": "message-manager" if is_manager else "client-manager",
            "cluster.message_managers": MESSAGE_MANAGERS,
            "cluster.seniority": host,
        }
        server = ClusterServer(load(None, settings), self._bus.on(host))
        self._servers.append(server)
        await server.start()

    async def cut(self) -> None:
        self._bus.cut(*PARTS)

    async def heal(self) -> None:
        self._bus.heal()

    async def stop(self) -> None:
        for server in reversed(self._servers):
            await server.stop()


class Hosts:
    """A process for each node, on a host of its own with its own Corosync."""

    words = "six hosts in network namespaces, each with its own Corosync and a node"

    def __init__(self, folder: Path) -> None:
        from heliograph.cli.dev_cluster import DevCluster

        self._cluster = DevCluster(
            folder, client_managers=CLIENT_MANAGERS, message_managers=MESSAGE_MANAGERS, namespaces=True
        )

    @property
    def addresses(self) -> list[ServerAddress]:
        from heliograph.cli.dev_cluster import PASSWORD, USER

        nodes = self._cluster.client_managers
        return [ServerAddress(url=f"helio://{each.address}", user=USER, password=PASSWORD) for each in nodes]

    async def start(self) -> None:
        await asyncio.to_thread(self._cluster.start)
        await asyncio.to_thread(self._cluster.wait, _START_SECONDS)

    async def cut(self) -> None:
        await asyncio.to_thread(self._route, "add")

    async def heal(self) -> None:
        await asyncio.to_thread(self._route, "del")

    def _route(self, change: str) -> None:
        """Where a host sends nothing to another, that hears nothing: the network between them is as good as cut, and
        we still reach both."""
        network = self._cluster.network
        assert network is not None, "it is on hosts of its own"
        for here, there in _across(PARTS):
            address = f"{network.address(there)}/32"
            network.hosts[here - 1].run("ip", "route", change, "blackhole", address)

    async def stop(self) -> None:
        await asyncio.to_thread(self._cluster.stop)


def _across(parts: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Every way from a host of one part to a host of another."""
    pairs = product(enumerate(parts), enumerate(parts))
    return [way for (one, here), (other, there) in pairs if one != other for way in product(here, there)]
