"""`helio cluster hand-over`, as a person or a script gives the order (M9)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import heliograph
from tests.servers import until
from tests.suites.cluster_in_process import Cluster, told, url
from tests.suites.test_partition_commands import helio
from tests.suites.test_replication import has_all_of

pytestmark = [pytest.mark.req("M9", "M13"), pytest.mark.slow]


def test_whoever_leads_lets_another_lead_and_stays_as_a_backup(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        for node in (2, 3):
            await cluster.add(node)
        async with heliograph.connect(url(cluster)) as connection:
            producer = await connection.producer("queue:orders")
            await producer.send_confirmed(b"before")
            assert cluster.leader() == 2
            code, out, err = await helio("hand-over", "1.2", "--url", url(cluster))
            assert (code, out) == (0, "1.3 leads main, 1.2 stays as a backup\n"), err
            assert cluster.leader() == 3
            await producer.send_confirmed(b"between")
            await until(lambda: has_all_of(cluster, 2, 3), "the one that led has caught up")
            assert await who_ordered(connection) == [("1.2", "main", "guest")]

            # And back, for a script.
            code, out, err = await helio("hand-over", "1.3", "--json", "--url", url(cluster))
            assert code == 0, err
            assert json.loads(out) == {"sub_cluster": "main", "node": "1.3", "leader": "1.2"}
            await producer.send_confirmed(b"after")
            consumer = await connection.consumer("queue:orders")
            for words in (b"before", b"between", b"after"):
                message = await consumer.receive(timeout=30)
                assert message is not None
                assert (message.body, message.redelivered) == (words, False)

    told(tmp_path, story)


async def who_ordered(connection: heliograph.Connection) -> list[tuple[str, str, str]]:
    """As those have it who watch the log of the cluster."""
    async with asyncio.timeout(60):
        while True:
            events = (await connection.ask("log", events=["hand-over-ordered"]))["events"]
            if events:
                return [(each["node"], each["sub_cluster"], each["by"]) for each in events]


def test_an_order_that_nobody_can_follow_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    async def refused(cluster: Cluster, node: str) -> str:
        code, out, err = await helio("hand-over", node, "--json", "--url", url(cluster))
        assert (code, bool(out)) == (2, True), err
        return str(json.loads(out)["error"]["code"])

    async def story(cluster: Cluster) -> None:
        await cluster.add(2)
        assert await refused(cluster, "1.2") == "no-backup"
        await cluster.add(3)
        assert await refused(cluster, "1.3") == "not-leading"
        assert await refused(cluster, "1.1") == "not-leading"
        assert await refused(cluster, "1.9") == "node-unknown"
        assert cluster.leader() == 2

    told(tmp_path, story)
