"""Nodes that are stopped in good order and stay away for a while (M9): the rest goes on at once with everything."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.suites.cluster_in_process import Cluster, told
from tests.suites.steady_load import ROLES, places, port_of, stop, under_load

pytestmark = [pytest.mark.req("M9"), pytest.mark.slow]


def test_messages_come_through_while_a_node_that_handed_over_is_away(tmp_path: Path) -> None:
    """What was accepted while it went is not held back until it is there again."""

    async def story(cluster: Cluster) -> None:
        for node, role in list(ROLES.items())[1:]:
            await cluster.add(node, role)
        ports = {node: port_of(cluster, node) for node in ROLES}
        async with under_load(places(cluster)) as load:
            for node in (3, 1, 4, 2, 5, 3):
                await stop(cluster, node)
                await load.flows()
                server = await cluster.add(node, ROLES[node], server__port=ports[node])
                await asyncio.wait_for(server.wait_ready(), 60)
                await load.flows()

    told(tmp_path, story)
