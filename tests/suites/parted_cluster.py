"""A whole cluster in one process on a bus that can be cut: each node is on a host of its number."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import heliograph
from heliograph.bus.cuttable import CuttableBus
from heliograph.nodes.cluster_server import ClusterServer
from tests.servers import play, until
from tests.suites.cluster_in_process import CLIENTS, MESSAGES, Cluster, url


class PartedCluster(Cluster):
    """Client managers 1, 2 …, message managers 11, 12 …"""

    def __init__(self, base: Path, **settings: object) -> None:
        super().__init__(base)
        self.bus = CuttableBus()
        self._settings = settings

    async def start(self, client_managers: int, message_managers: int) -> None:
        numbers = [(number, CLIENTS) for number in range(1, client_managers + 1)]
        numbers += [(number, MESSAGES) for number in range(11, 11 + message_managers)]
        for number, role in numbers:
            await self.begin(number, role, cluster__message_managers=message_managers)
        await until(lambda: not any(server.lacks for server in self.nodes.values()), "everybody is there")
        await self.until_state("A", 1)

    async def begin(self, number: int, role: str = MESSAGES, **other: object) -> ClusterServer:
        """Start a node, which may have to wait for others."""
        settings = self.settings(number, role, **self._settings, **other)
        server = ClusterServer(settings, self.bus.on(number))
        await server.start()
        self.nodes[number] = server
        return server

    def cut(self, *parts: Sequence[int]) -> None:
        self.bus.cut(*parts)

    async def until_state(self, state: str, *at: int) -> None:
        """These nodes are in a view of this state, it holds, and somebody leads."""
        await until(lambda: all(self._is_in(state, each) for each in at), f"{at} are in {state}")

    def _is_in(self, state: str, at: int) -> bool:
        server = self.nodes[at]
        standing, roles = server.own.standing, server.own.roles
        return (
            standing is not None
            and roles is not None
            and server.own.member.is_installed
            and standing.partition.state == state
            and standing.may_act
            and roles.primary is not None
        )

    async def facts(self, at: int) -> dict[str, dict[str, Any]]:
        """What each node of the part says of itself that this client manager is in."""
        async with heliograph.connect(url(self, at)) as connection:
            composite = await connection.ask("nodes.ask", command="node")
        return {reply["node"]: reply["body"] for reply in composite["replies"] if reply["ok"]}

    async def order(self, at: int, command: str, **arguments: object) -> dict[str, str]:
        """What each node of a part did when it was told to, or the code with which it refused."""
        async with heliograph.connect(url(self, at)) as connection:
            composite = await connection.ask("nodes.ask", command=command, arguments=arguments)
        return {
            reply["node"]: reply["body"]["done"] if reply["ok"] else reply["error"]["code"]
            for reply in composite["replies"]
        }


def parted(
    base: Path,
    story: Callable[[PartedCluster], Awaitable[None]],
    *,
    client_managers: int = 3,
    message_managers: int = 2,
    **settings: object,
) -> None:
    """`settings` of each node, with two underscores for a dot."""

    async def whole() -> None:
        cluster = PartedCluster(base, **settings)
        try:
            await cluster.start(client_managers, message_managers)
            await story(cluster)
        finally:
            await cluster.stop()

    play(whole())
