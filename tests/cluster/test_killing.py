"""A real cluster on a real corosync under load, while each of its processes in turn is killed with -9 and started
again: nothing confirmed is lost, nothing comes twice unmarked, order is kept; clients notice a pause and no error.

The seed of a run is printed; `HELIO_TEST_SEED` repeats its load and its moments. The machine adds its own.
"""

import asyncio
import json
import os
import random
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from heliograph.cli.dev_cluster import PASSWORD, USER, DevCluster, Node
from tests.cluster.cluster_load import ClusterLoad
from tests.cluster.hosts import require_corosync
from tests.servers import play, until

pytestmark = [pytest.mark.root, pytest.mark.crash, pytest.mark.slow]

PAUSE_SECONDS = 2.0
START_SECONDS = 40.0


@pytest.fixture
def seed() -> int:
    chosen = int(os.environ.get("HELIO_TEST_SEED", "0")) or secrets.randbelow(10**9) + 1
    print(f"HELIO_TEST_SEED={chosen}")
    return chosen


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[DevCluster]:
    require_corosync()
    yield from running(DevCluster(tmp_path, client_managers=2, message_managers=3, namespaces=True, hosts=1))


def running(cluster: DevCluster) -> Iterator[DevCluster]:
    try:
        cluster.start()
        cluster.wait(START_SECONDS)
        yield cluster
    finally:
        cluster.stop()


class Killing:
    """Rounds in which somebody is killed under load. How long nobody heard yes, in each."""

    def __init__(self, cluster: DevCluster, seed: int) -> None:
        self.cluster = cluster
        self.dice = random.Random(seed)
        self.load = ClusterLoad(cluster.url.replace("//", f"//{USER}:{PASSWORD}@"), seed)
        self.pauses: list[tuple[str, float]] = []

    async def kill(self, victim: Node) -> None:
        load = self.load
        await load.flows()
        await asyncio.sleep(self.dice.random() / 2)
        load.ledger.begin_round()
        victim.kill()
        confirmed = load.ledger.confirmed_total
        await until(
            lambda: load.ledger.confirmed_total > confirmed + 100, f"it goes on without {victim.name}"
        )
        victim.start()
        await until(
            lambda: victim.is_ready or victim.ended is not None, f"{victim.name} is back", START_SECONDS
        )
        assert victim.ended is None, victim.last_words
        await load.flows()
        self.pauses.append((victim.name, load.ledger.longest_pause))

    async def end(self) -> None:
        load = self.load
        await load.stop_sending(30)
        await load.drain(30)
        print(load.ledger.summary(), f"{load.committed:,} transactions")
        load.check()
        took_over = sum(_take_overs(node) for node in self.cluster.message_managers)
        assert took_over >= len(self.pauses) // 3, f"only {took_over} of the killed were the ones that led"
        for node in self.cluster.nodes:
            said = node.output.read_text(errors="replace")
            assert "Traceback" not in said, f"{node.name}: {said[-4000:]}"


def _take_overs(node: Node) -> int:
    events = map(json.loads, (node.data / "log" / "events.jsonl").read_text().splitlines())
    return sum(1 for event in events if event["event"] == "replica-leads" and event["took_over"])


async def kill_in_turn(cluster: DevCluster, seed: int, victims: list[Node]) -> None:
    killing = Killing(cluster, seed)
    await killing.load.start()
    try:
        for victim in victims:
            await killing.kill(victim)
        await killing.end()
    finally:
        await killing.load.close()
        for name, pause in killing.pauses:
            print(f"{name} killed: {pause:.2f} s")
    assert max(pause for _, pause in killing.pauses) < PAUSE_SECONDS


def in_turn(cluster: DevCluster, rounds: int) -> list[Node]:
    """Message managers only: sessions do not move between client managers yet."""
    managers = cluster.message_managers
    return [managers[number % len(managers)] for number in range(rounds)]


@pytest.mark.req("M9", "J3", "J4")
@pytest.mark.timeout(120)
def test_killed_nodes_are_not_missed(cluster: DevCluster, seed: int) -> None:
    play(kill_in_turn(cluster, seed, in_turn(cluster, 4)), 110)


@pytest.mark.nightly
@pytest.mark.req("M9", "J3", "J4")
@pytest.mark.timeout(900)
def test_killed_nodes_are_not_missed_for_long(cluster: DevCluster, seed: int) -> None:
    play(kill_in_turn(cluster, seed, in_turn(cluster, 20 * 3)), 880)
