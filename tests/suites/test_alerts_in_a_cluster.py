"""Alerts in a cluster (A10): channels fail over like queues, are spread over sub-clusters, and every subscriber of
every part gets every alert once (P4)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import heliograph
from heliograph.client.alert_consumer import AlertConsumer
from tests.servers import until
from tests.suites.cluster_in_process import Cluster, told, url
from tests.suites.parted_cluster import PartedCluster, parted
from tests.suites.test_sub_clusters import kept_by, spread

pytestmark = [pytest.mark.req("A10"), pytest.mark.slow]


async def texts(consumer: AlertConsumer, count: int) -> list[str]:
    got = [await consumer.receive(20) for _ in range(count)]
    assert await consumer.receive(0.3) is None
    return [alert.text for alert in got if alert is not None]


@pytest.mark.req("A4", "A7")
def test_a_channel_goes_on_when_the_one_that_leads_dies(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        for node in (2, 3):
            await cluster.add(node)
        async with heliograph.connect(url(cluster)) as one, heliograph.connect(url(cluster)) as two:
            ops = one.alerts("ops")
            consumer = await two.alerts("ops").subscribe("TAG:.*", name="console")
            nameless = await two.alerts("ops").subscribe("TAG:.*")
            expected: list[str] = []
            for number in range(3):
                for more in range(10):
                    expected.append(f"{number}.{more}")
                    await ops.publish("TAG:load", expected[-1])
                for _ in range(5):
                    await nameless.receive(30)
                led = cluster.leader()
                cluster.crash(led)
                expected.append(f"after {number}")
                await ops.publish("TAG:load", expected[-1])
                await cluster.add(led)
            assert await texts(consumer, len(expected)) == expected
            assert await texts(nameless, len(expected) - 15) == expected[15:]
            assert len(await ops.list()) == len(expected)

    told(tmp_path, story)


@pytest.mark.req("A5")
def test_a_cancel_holds_though_another_leads_when_it_is_confirmed(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        for node in (2, 3):
            await cluster.add(node)
        async with heliograph.connect(url(cluster)) as one, heliograph.connect(url(cluster)) as two:
            ops = one.alerts("ops")
            consumer = await two.alerts("ops").subscribe("TAG:.*")
            for _ in range(3):
                identity = await ops.publish("TAG:raid", "no more")
                await until(lambda: consumer._inbox, "it is in the inbox")
                led = cluster.leader()
                cancelling = asyncio.create_task(ops.cancel(identity))
                cluster.crash(led)
                await cancelling
                assert await consumer.receive(0.2) is None
                await cluster.add(led)
            await ops.publish("TAG:raid", "the last")
            assert await texts(consumer, 1) == ["the last"]

    told(tmp_path, story)


def test_channels_are_spread_over_sub_clusters(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        async with heliograph.connect(url(cluster)) as one, heliograph.connect(url(cluster, 2)) as two:
            names = [f"ops-{number}" for number in range(8)]
            for name in names:
                await one.alerts(name).publish("TAG:a", name)
            kept = kept_by(cluster, "east"), kept_by(cluster, "west")
            assert sorted(kept[0] + kept[1]) == sorted(f"alerts:{name}" for name in names)
            assert all(len(part) >= 3 for part in kept)
            for name in names:
                consumer = await two.alerts(name).subscribe("TAG:a")
                assert await texts(consumer, 1) == [name]
                await consumer.close()

    spread(tmp_path, story, clients=2)


@pytest.mark.req("P4")
def test_every_subscriber_of_every_part_gets_every_alert_once(tmp_path: Path) -> None:
    async def story(cluster: PartedCluster) -> None:
        async with heliograph.connect(url(cluster, 1)) as here, heliograph.connect(url(cluster, 2)) as there:
            ops, theirs = here.alerts("ops"), there.alerts("ops")
            one = await ops.subscribe("TAG:.*", name="one")
            two = await theirs.subscribe("TAG:.*", name="two")
            before = await ops.publish("TAG:before", "before", cancel="any")
            doomed = await ops.publish("TAG:doomed", "doomed", cancel="any")
            assert await texts(one, 2) == ["before", "doomed"]
            assert await texts(two, 2) == ["before", "doomed"]
            cluster.cut([1, 3, 11], [2, 12])
            await cluster.until_state("B", 1)
            await cluster.until_state("D", 2)
            await ops.publish("TAG:here", "here")
            await theirs.publish("TAG:there", "there")
            assert await texts(one, 1) == ["here"]
            assert await texts(two, 1) == ["there"]
            await theirs.cancel(doomed)
            cluster.bus.heal()
            await cluster.until_state("A", 1, 2)
            assert await texts(one, 1) == ["there"]
            assert await texts(two, 1) == ["here"]
            shown = [each["destination"] for each in await ops.list()]
            assert sorted(shown) == ["TAG:before", "TAG:here", "TAG:there"]
            late = await theirs.subscribe("TAG:.*", name="late")
            assert sorted(await texts(late, 3)) == ["before", "here", "there"]
            await ops.cancel(before)

    parted(tmp_path, story)
