"""Every node of a cluster is stopped and started again, one after the other, under load: nobody sees an error, and
nothing comes marked as redelivered."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from heliograph.cli.dev_cluster import DevCluster, Node
from tests.cluster.hosts import require_corosync
from tests.cluster.test_killing import START_SECONDS, Killing, running, under_load
from tests.servers import play, until

pytestmark = [pytest.mark.root, pytest.mark.slow]
PAUSE_SECONDS = 2.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[DevCluster]:
    require_corosync()
    yield from running(DevCluster(tmp_path, client_managers=2, message_managers=3, namespaces=True, hosts=1))


async def restart_all(cluster: DevCluster) -> None:
    async with under_load(cluster, 1, PAUSE_SECONDS) as story:
        for node in cluster.nodes:
            await restart(story, node)
    assert not story.load.ledger.redelivered
    assert not story.load.rolled_back
    assert not story.load.unconfirmed


async def restart(story: Killing, node: Node) -> None:
    load = story.load
    await load.flows()
    load.ledger.begin_round()
    assert node.process is not None
    node.process.terminate()
    await until(lambda: node.ended is not None, f"{node.name} has stopped")
    assert node.ended == 0, node.last_words
    await load.all_go_on(f"all go on without {node.name}")
    node.start()
    await until(lambda: node.is_ready or node.ended is not None, f"{node.name} is back", START_SECONDS)
    await story.end_round(node.name)


@pytest.mark.req("M9")
def test_a_rolling_restart_is_not_noticed(cluster: DevCluster) -> None:
    play(restart_all(cluster), 110)
