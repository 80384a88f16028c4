"""Whole clusters on several buses (M3): clients notice nothing of them, whoever is on which."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import heliograph
from heliograph.bus.bridged import BridgedMembership
from heliograph.bus.interface import ChannelBus, Reason
from heliograph.bus.local_channels import LocalMembership
from heliograph.journal.disk import DISK, Disk
from heliograph.nodes.buses import bus_for
from heliograph.nodes.cluster_server import ClusterServer
from tests.servers import play, until
from tests.suites.cluster_in_process import CLIENTS, MESSAGES, Channels, Cluster, url

pytestmark = [pytest.mark.req("M3"), pytest.mark.slow]
BUSES: dict[str, Any] = {"cluster__buses": "one, two, three", "cluster__bus_namespaces": "two=b, three=c"}
EACH_ON_ONE: dict[str, Any] = {
    **BUSES,
    "cluster__sub_clusters": "east, west",
    "cluster__bus_of_sub_clusters": "east=two, west=three",
}
ON_ALL: dict[str, Any] = {**BUSES, "cluster__bus_layout": "message-managers-on-all"}


class BusesCluster(Cluster):
    """Three buses in this process. Nodes are on those that their settings say."""

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        self.buses = {name: Channels(node) for node, name in enumerate(("", "b", "c"), 1)}

    async def add(self, node: int, role: str = MESSAGES, disk: Disk = DISK, **other: object) -> ClusterServer:
        settings = self.settings(node, role, **other)
        connect: Callable[[str], ChannelBus] = self.buses.__getitem__
        self._bus = bus_for(settings.cluster, connect, asyncio.get_running_loop().call_later)  # type: ignore[assignment]
        return await super().add(node, role, disk, **other)

    def leave_without_goodbye(self, number: int) -> None:
        """Its process dies: on all buses at once."""
        server = self.nodes.pop(number)
        stay = server.own.member._stay
        assert stay is not None
        membership = stay.membership
        assert isinstance(membership, BridgedMembership)
        self._silence(server)
        for leg in membership._legs:
            leg.flush = lambda: None  # type: ignore[method-assign]
            assert isinstance(leg.membership, LocalMembership)
            leg.membership.leave(Reason.DIED)

    @staticmethod
    def _silence(server: ClusterServer) -> None:
        station = server.own
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
        server.replica.manager.journal._directory.close()


def told(base: Path, story: Callable[[BusesCluster], Awaitable[None]]) -> None:
    async def whole() -> None:
        cluster = BusesCluster(base)
        try:
            await story(cluster)
        finally:
            await cluster.stop()

    play(whole())


def test_sub_clusters_on_buses_of_their_own_are_reached_from_everywhere(tmp_path: Path) -> None:
    async def story(cluster: BusesCluster) -> None:
        for number in (1, 2):
            await cluster.add(number, CLIENTS, **EACH_ON_ONE)
        for number, name in ((10, "east"), (20, "west")):
            await cluster.add(number, cluster__sub_cluster=name, **EACH_ON_ONE)
        addresses = [f"queue:orders-{number}" for number in range(6)]
        async with heliograph.connect(url(cluster)) as connection:
            for address in addresses:
                producer = await connection.producer(address)
                await producer.send_confirmed(address.encode())
        for name in ("east", "west"):
            replica = cluster.nodes[cluster.leader(name)].replica
            assert replica is not None
            kept = [str(address) for address in replica.manager.catalogue.by_address]
            assert any("orders" in address for address in kept)
        async with heliograph.connect(url(cluster, 2)) as connection:
            for address in addresses:
                consumer = await connection.consumer(address)
                message = await consumer.receive(timeout=30)
                assert message is not None
                assert message.body == address.encode()

    told(tmp_path, story)


def test_client_managers_on_different_buses_share_queues_and_a_relay_may_die(tmp_path: Path) -> None:
    async def story(cluster: BusesCluster) -> None:
        several: dict[str, Any] = {**ON_ALL, "cluster__message_managers": 3}
        for number, bus in ((1, "two"), (2, "three"), (3, "one")):
            await cluster.add(number, CLIENTS, cluster__bus=bus, **several)
        await asyncio.gather(*(cluster.add(number, **several) for number in (10, 11, 12)))
        await until(lambda: all(not node.lacks for node in cluster.nodes.values()), "all are there")
        incarnations = [cluster.nodes[number].member.incarnation for number in (1, 2, 3)]
        received = []
        async with heliograph.connect(url(cluster)) as sending, heliograph.connect(url(cluster, 2)) as taking:
            producer = await sending.producer("queue:orders")
            consumer = await taking.consumer("queue:orders")
            for number in range(60):
                if number in (20, 40):
                    cluster.leave_without_goodbye(10 if number == 20 else 11)
                await producer.send_confirmed(b"%d" % number)
                message = await consumer.receive(timeout=30)
                assert message is not None
                received.append(message.body)
        assert received == [b"%d" % number for number in range(60)]
        assert [cluster.nodes[number].member.incarnation for number in (1, 2, 3)] == incarnations

    told(tmp_path, story)
