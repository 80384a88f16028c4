"""A whole cluster in one process, with real journals: nodes come, go, and die."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from heliograph.bus import wire
from heliograph.bus.commands import Command
from heliograph.bus.interface import ChannelBus, Listener, Origin, Reason
from heliograph.bus.local_channels import LocalChannels, LocalMembership
from heliograph.journal.disk import DISK, Disk
from heliograph.nodes import configuration as settings
from heliograph.nodes.cluster_server import ClusterServer
from tests.servers import play, until

CLIENTS, MESSAGES = "client-manager", "message-manager"


class Channels(LocalChannels):
    """Commands travel as bytes, as between processes: no two nodes share an object."""

    def enter(self, channel: str, listener: Listener) -> LocalMembership:
        return super().enter(channel, _Reader(listener))


class _Reader:
    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self.on_configuration = listener.on_configuration
        self.on_flow = listener.on_flow
        self.on_damage = listener.on_damage
        self.on_ended = listener.on_ended

    def on_frame(self, origin: Origin, commands: list[Command]) -> None:
        parts: list[wire.Bytes] = []
        for command in commands:
            wire.append(command, parts)
        self._listener.on_frame(origin, wire.read(b"".join(parts)))


class Cluster:
    """One client manager, and message managers as they are wanted."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._bus = Channels()
        self.bus_of: dict[int, ChannelBus] = {}  # for nodes that see it differently
        self.nodes: dict[int, ClusterServer] = {}

    def settings(self, node: int, role: str, **other: object) -> settings.Configuration:
        given = {name.replace("__", "."): value for name, value in other.items()}
        return settings.load(
            None,
            {
                "server.data": str(self._base / f"n{node}"),
                "server.port": 0,
                "identity.node": node,
                "cluster.name": "here",
                "cluster.role": role,
                "cluster.seniority": node,
                **given,
            },
        )

    async def add(self, node: int, role: str = MESSAGES, disk: Disk = DISK, **other: object) -> ClusterServer:
        bus = self.bus_of.get(node, self._bus)
        server = ClusterServer(self.settings(node, role, **other), bus, disk=disk)
        await server.start()
        self.nodes[node] = server
        if role == MESSAGES:
            await until(lambda: self._counts(server) or server.failed.done(), "it leads or follows")
        return server

    def _counts(self, server: ClusterServer) -> bool:
        return server.replica is not None and server.replica.state.is_synchronised

    def leader(self, sub_cluster: str = "main") -> int:
        return next(
            number
            for number, node in self.nodes.items()
            if node.replica and node.replica.is_leading and node.own.sub_cluster == sub_cluster
        )

    def crash(self, number: int) -> None:
        """As with kill -9: nothing more is said or heard."""
        server = self.nodes.pop(number)
        station = server.own
        stay = station.member._stay
        assert stay is not None
        assert server.replica is not None
        for part, name in (
            (station, "on_apply"),
            (station, "on_install"),
            (station, "on_left"),
            (server.replica, "_say"),
        ):
            setattr(part, name, lambda *_: None)
        if station.member._ticking is not None:
            station.member._ticking.cancel()
        membership = stay.membership
        assert isinstance(membership, LocalMembership)
        membership.leave(Reason.DIED)
        server.replica.manager.journal._directory.close()

    async def stop(self) -> None:
        for server in reversed(self.nodes.values()):
            await server.stop()


def told(base: Path, story: Callable[[Cluster], Awaitable[None]]) -> None:
    async def whole() -> None:
        cluster = Cluster(base)
        await cluster.add(1, CLIENTS)
        try:
            await story(cluster)
        finally:
            await cluster.stop()

    play(whole())


def url(cluster: Cluster, node: int = 1) -> str:
    address = cluster.nodes[node].address
    assert address is not None
    return "helio://{}:{}".format(*address)
