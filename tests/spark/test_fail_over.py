"""Spark against a real cluster whose processes are killed (D2, D3, D4): whoever leads, and the client manager that
the query talks to. Each message goes through once, units in order, and an audit of all of it finds nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import heliograph
from heliograph.cli.dev_cluster import CLIENT_MANAGER, MESSAGE_MANAGER, PASSWORD, USER, DevCluster, Node
from heliograph.spark.pipelines import audit
from tests.cluster.hosts import require_corosync
from tests.cluster.test_killing import leader
from tests.spark import relay
from tests.spark.serving import wait_until
from tests.spark.test_exactly_once import UNITS, published, received, send

pytestmark = [pytest.mark.req("D2", "D3", "D4"), pytest.mark.root, pytest.mark.crash, pytest.mark.alone]
START_SECONDS = 60.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[DevCluster]:
    require_corosync()
    made = DevCluster(tmp_path / "cluster", client_managers=2, message_managers=3, namespaces=True, hosts=1)
    try:
        made.start()
        made.wait(START_SECONDS)
        yield made
    finally:
        made.stop()


def kill(victim: Node) -> None:
    """With -9, and it comes back."""
    victim.kill()
    victim.start()
    wait_until(lambda: victim.is_ready or victim.ended is not None, f"{victim.name} is back", START_SECONDS)
    assert victim.ended is None, victim.last_words


def until_published(query: Any, url: str, count: int) -> None:
    deadline = time.monotonic() + 300
    while published(url) < count:
        assert query.isActive, f"the query ended: {query.exception()}"
        assert time.monotonic() < deadline, "nothing more comes out of it"
        time.sleep(0.05)


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("mode", ["feed", "queue"])
def test_a_query_goes_on_whoever_of_the_cluster_is_killed(
    spark: Any, cluster: DevCluster, tmp_path: Path, mode: str
) -> None:
    portion, rows = 6000, 1000
    url = cluster.url.replace("//", f"//{USER}:{PASSWORD}@")
    with heliograph.connect_blocking(url) as connection:
        connection.ask("pipeline.hold", name="audit", destination="*", after=0)
    query = relay.start(spark, url, mode, tmp_path / "checkpoint", rows, once=False)
    count = 0
    try:
        for role in (MESSAGE_MANAGER, CLIENT_MANAGER, MESSAGE_MANAGER):
            send(url, portion, count)
            # A batch or two of these are through, and others under way.
            until_published(query, url, count + rows)
            count += portion
            kill(leader(cluster) if role == MESSAGE_MANAGER else cluster.client_managers[0])
        until_published(query, url, count)
    finally:
        query.stop()
    found = received(url, count)
    assert len(found) == len(set(found)), "doubled"
    assert sorted(found) == list(range(count)), "lost"
    for unit in range(1, UNITS, 2):
        own = [n for n in found if n % UNITS == unit]
        assert own == sorted(own), f"unit {unit} is out of order"
    findings = audit.run(spark, {"url": url, "partitions": 2}, None, lambda _: None)
    assert findings.violations == []
    totals = {(row.destination, row.kind): row.messages for row in findings.totals.itertuples()}
    assert totals["queue:in", "published"] == totals["queue:out", "published"] == count
    assert totals["queue:out", "done"] == count
