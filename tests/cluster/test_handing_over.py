"""Under load, an administrator has one message manager after the other lead (M9): nothing is lost, nothing comes
twice unmarked, nobody sees an error, and whoever led before stays, takes part and leads again.

How long anybody waited is printed and not judged, nor is what came marked: unlike one that is killed or stopped, the
one that stays comes together with the new one at once, and what it did last is taken in while clients wait."""

import asyncio
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from heliograph.cli.dev_cluster import PASSWORD, USER, DevCluster
from tests.cluster.hosts import ROOT, require_corosync
from tests.cluster.test_killing import leader, running, under_load
from tests.servers import CLEAN, play

pytestmark = [pytest.mark.root, pytest.mark.slow]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[DevCluster]:
    require_corosync()
    yield from running(DevCluster(tmp_path, client_managers=2, message_managers=3, namespaces=True, hosts=1))


async def hand_over(cluster: DevCluster, node: str) -> str:
    """As an administrator orders it. Returns who leads then."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "heliograph.cli.main", "cluster", "hand-over", node, "--json"),
        *("--url", cluster.url, "--user", USER, "--password", PASSWORD),
        cwd=ROOT,
        env=CLEAN,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, (out + err).decode()
    return str(json.loads(out)["leader"])


async def lead_in_turns(cluster: DevCluster) -> None:
    names = {f"1.{100 + number}": node for number, node in enumerate(cluster.message_managers, 1)}
    async with under_load(cluster, 1, math.inf) as story:
        load = story.load
        for _ in range(3):
            await load.flows()
            led = leader(cluster)
            load.ledger.begin_round()
            [name] = [name for name, node in names.items() if node is led]
            successor = await hand_over(cluster, name)
            assert leader(cluster) is names[successor] is not led
            await story.end_round(f"{led.name}'s lead")
            assert led.ended is None, led.last_words
    assert not load.rolled_back
    assert not load.unconfirmed


@pytest.mark.req("M9", "M13")
def test_the_lead_is_handed_over_by_order_and_not_missed(cluster: DevCluster) -> None:
    play(lead_in_turns(cluster), 110)
