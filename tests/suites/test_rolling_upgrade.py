"""Nodes of two versions in one cluster (M9): nobody says what the others do not know, and who knows too little to go
on leaves with a sentence.

The later version is the one that is here; alerts are what came with it. The earlier one knows nothing of them, and
has fewer fields in its hellos.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import heliograph
from heliograph import HeliographError
from heliograph.bus import wire
from heliograph.nodes.cluster_server import ClusterServer
from tests.suites.cluster_in_process import CLIENTS, MESSAGES, Cluster, told, url
from tests.suites.earlier_version import EarlierVersion
from tests.suites.steady_load import ROLES, places, port_of, stop, under_load

pytestmark = [pytest.mark.req("M9"), pytest.mark.slow]

NEW = [kind for kind, code in wire.CODES.items() if 100 <= code < 128]


@pytest.fixture(autouse=True)
def _later_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "LEVEL", 2)
    for kind in NEW:
        monkeypatch.setitem(wire.LEVELS, kind, 2)


async def add_earlier(cluster: Cluster, node: int, role: str = MESSAGES) -> None:
    cluster.bus_of[node] = EarlierVersion(cluster._bus, NEW)
    await cluster.add(node, role)
    del cluster.bus_of[node]  # when it comes again it is upgraded


async def all_earlier(cluster: Cluster) -> None:
    await stop(cluster, 1)
    for node, role in ROLES.items():
        await add_earlier(cluster, node, role)


async def refused(cluster: Cluster, node: int) -> str:
    """What a client hears that asks for something new."""
    async with heliograph.connect(url(cluster, node)) as connection:
        with pytest.raises(HeliographError) as late:
            await connection.alerts("ops").publish("TAG:new", "not yet")
        assert "upgrade all of them" in late.value.sentence
        return late.value.code


def test_a_rolling_upgrade_under_load_loses_nothing_and_brings_the_new_when_all_have_it(
    tmp_path: Path,
) -> None:
    async def story(cluster: Cluster) -> None:
        await all_earlier(cluster)
        ports = {node: port_of(cluster, node) for node in ROLES}
        async with under_load(places(cluster)) as load:
            for node in (5, 3, 1, 4, 2):
                if node == 2:
                    assert await refused(cluster, 1) == "cluster-not-upgraded"
                await stop(cluster, node)
                await load.flows()
                server = await cluster.add(node, ROLES[node], server__port=ports[node])
                await asyncio.wait_for(server.wait_ready(), 60)
                await load.flows()
                assert not any(each.failed.done() for each in cluster.nodes.values())
            async with heliograph.connect(url(cluster)) as connection:
                consumer = await connection.alerts("ops").subscribe("TAG:.*")
                await connection.alerts("ops").publish("TAG:new", "now")
                alert = await consumer.receive(30)
                assert alert is not None
                assert alert.text == "now"
            await load.flows()

    told(tmp_path, story)


def test_who_comes_late_with_an_earlier_version_is_refused_also_after_all_were_down(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        for node in (3, 4):
            await cluster.add(node)
        async with heliograph.connect(url(cluster)) as connection:
            await connection.alerts("ops").publish("TAG:new", "here")
        await is_too_old(cluster)
        for node in (1, 4, 3):
            await stop(cluster, node)
        await cluster.add(3)
        await cluster.add(1, CLIENTS)
        await is_too_old(cluster)
        await cluster.add(4)
        async with heliograph.connect(url(cluster)) as connection:
            assert len(await connection.alerts("ops").list()) == 1
            await connection.alerts("ops").publish("TAG:new", "still")

    async def is_too_old(cluster: Cluster) -> None:
        bus = EarlierVersion(cluster._bus, NEW, knows_levels=True)
        late = ClusterServer(cluster.settings(5, MESSAGES), bus)
        await late.start()
        error = await asyncio.wait_for(late.wait_failed(), 60)
        assert error.code == "node-too-old"
        assert "Upgrade it to the version of the others" in error.sentence
        await late.stop()

    told(tmp_path, story)


def test_who_hears_what_it_does_not_know_leaves_and_has_lost_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later version that does not keep to it: what it says shares its frames with what everybody must hear."""

    async def story(cluster: Cluster) -> None:
        await cluster.add(3)
        await add_earlier(cluster, 4)
        monkeypatch.setattr(wire, "LEVELS", {})
        async with under_load(url(cluster)) as load:
            async with heliograph.connect(url(cluster)) as connection:
                await connection.alerts("ops").publish("TAG:new", "heard")
            late = cluster.nodes.pop(4)
            error = await asyncio.wait_for(late.wait_failed(), 60)
            assert error.code == "node-too-old"
            assert "which this version does not know" in error.sentence
            assert "Upgrade it to the version of the others" in error.sentence
            await late.stop()
            await load.flows()
            await cluster.add(4)
            await load.flows()
            cluster.crash(3)
            await load.flows()
        async with heliograph.connect(url(cluster)) as connection:
            assert len(await connection.alerts("ops").list()) == 1

    told(tmp_path, story)
