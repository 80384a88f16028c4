"""A cluster of a test: nodes in one process, each on a host of its own, on a bus that can be cut.

The nodes are those that run in production, with real journals and real sockets. A cut falls between two deliveries,
and all notice it at once: what networks add to that is for Heliograph's own tests.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from heliograph.bus.cuttable import CuttableBus
from heliograph.model.errors import HeliographError
from heliograph.nodes.cluster_server import ClusterServer
from heliograph.nodes.configuration import Configuration
from heliograph.testing.clock import TestClock
from heliograph.testing.server import note_life, settings_for_tests
from heliograph.testing.stage import PATIENCE_SECONDS, Stage

MAX_NODES: Final = 9
_LOOK_SECONDS: Final = 0.005

ClusterFactory = Callable[..., "RunningCluster"]


class RunningCluster:
    """Nodes 1 to n, each for clients and for messages. Clients of `url(2)` are on the host of node 2, on whichever
    side of a cut that is."""

    def __init__(
        self, nodes: int, folder: Path, stage: Stage, settings: Mapping[str, object] | None = None
    ) -> None:
        if not 1 <= nodes <= MAX_NODES:
            raise ValueError(f"a cluster of a test has 1 to {MAX_NODES} nodes, not {nodes}")
        self.nodes = tuple(range(1, nodes + 1))
        self._folder = folder
        self._stage = stage
        self._settings = dict(settings or {})
        self._bus = CuttableBus()
        self._servers: dict[int, ClusterServer] = {}
        self._ports = dict.fromkeys(self.nodes, 0)
        self._parts: list[tuple[int, ...]] = [self.nodes]
        stage.clock.has_cluster = True
        stage.add(self)
        stage.run(self._start(self.nodes))

    @property
    def clock(self) -> TestClock:
        return self._stage.clock

    def url(self, *nodes: int) -> str:
        """Where clients of these nodes connect; without any, those of all, which go from one to another."""
        chosen = nodes or self.nodes
        self._check_known(chosen)
        return "helio://" + ",".join(f"127.0.0.1:{self._ports[each]}" for each in chosen)

    # ---- the network

    def cut(self, *parts: Iterable[int]) -> None:
        """Cut the network into these parts; nodes that are named in none are a part by themselves. Returns when each
        part knows what it is: see `states`. From asyncio: `await asyncio.to_thread(cluster.cut, [1], [2, 3])`."""
        named = [tuple(part) for part in parts if part]
        flat = [node for part in named for node in part]
        self._check_known(flat)
        if len(set(flat)) != len(flat):
            raise ValueError(f"a node is in one part only, but the parts are {named}")
        rest = tuple(node for node in self.nodes if node not in flat)
        self._stage.run(self._cut([*named, rest] if rest else named))

    def heal(self) -> None:
        """Join all parts. Returns when the cluster is whole, and what each part did is known to all."""
        self._stage.run(self._cut([self.nodes]))

    async def _cut(self, parts: list[tuple[int, ...]]) -> None:
        self._parts = parts
        if len(parts) == 1:
            self._bus.heal()
        else:
            self._bus.cut(*parts)
        await self._settle()

    def states(self) -> dict[int, str]:
        """Of each node that runs, what its part is: A whole, B and C unrestricted, D restricted."""
        return self._stage.run(self._states())

    async def _states(self) -> dict[int, str]:
        await self._settle()
        return {number: self._state(server) for number, server in sorted(self._servers.items())}

    @staticmethod
    def _state(server: ClusterServer) -> str:
        standing = server.own.standing
        return str(standing.partition.state) if standing is not None else ""

    # ---- nodes

    def stop(self, node: int) -> None:
        """As when it is updated: its clients are asked to go elsewhere."""
        self._check_known([node])
        self._stage.run(self._stop(node))

    def start(self, node: int) -> None:
        """A node that was stopped, at its old address and with what it had."""
        self._check_known([node])
        if node not in self._servers:
            self._stage.run(self._start([node]))

    async def _stop(self, node: int) -> None:
        server = self._servers.pop(node, None)
        if server is not None:
            await server.stop()
            await self._settle()

    async def _start(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            server = ClusterServer(self._configuration(number), self._bus.on(number), clock=self.clock)
            await server.start()
            self._servers[number] = server
            assert server.address is not None, "clients come to every node"
            self._ports[number] = server.address[1]
        await self._settle()

    def _configuration(self, number: int) -> Configuration:
        return settings_for_tests(
            self._folder / f"node{number}",
            self._settings,
            server__port=self._ports[number],
            identity__node=number,
            cluster__name="test",
            cluster__role="both",
            cluster__message_managers=len(self.nodes),
            cluster__seniority=number,
        )

    # ---- waiting

    async def _settle(self) -> None:
        """Until every node is in a view with all that run in its part, and no other view follows from that."""
        deadline = time.monotonic() + PATIENCE_SECONDS / 2
        while unsettled := self._unsettled():
            self._raise_failure()
            if time.monotonic() > deadline:
                raise TimeoutError(f"the cluster did not come to rest: {'; '.join(unsettled)}")
            await asyncio.sleep(_LOOK_SECONDS)

    def _unsettled(self) -> list[str]:
        return [
            f"node {number}: {server.lacks or 'is not through with what follows from the last change'}"
            for part in self._parts
            for number in part
            if (server := self._servers.get(number)) is not None and not self._is_settled(server, part)
        ]

    def _is_settled(self, server: ClusterServer, part: tuple[int, ...]) -> bool:
        expected = sum(number in self._servers for number in part)
        view = server.member.view
        return view is not None and len(view.members) == expected and server.own.is_settled

    def _raise_failure(self) -> None:
        for server in self._servers.values():
            if server.failed.done():
                raise server.failed.result()

    def _check_known(self, nodes: Iterable[int]) -> None:
        unknown = [node for node in nodes if node not in self.nodes]
        if unknown:
            raise ValueError(f"the cluster has nodes 1 to {len(self.nodes)}, and no {unknown[0]}")

    # ---- a player on the stage

    def time_passed(self) -> None:
        for server in self._servers.values():
            note_life(server.clients)

    async def end(self) -> None:
        servers, self._servers = self._servers, {}
        failure: HeliographError | None = None
        for server in reversed(servers.values()):
            if server.failed.done():
                failure = server.failed.result()
            await server.stop()
        if failure is not None:
            raise failure
