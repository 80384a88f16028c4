"""Two sub-clusters, asked by HTTP as if they were one server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import heliograph
from heliograph.admin.finding import merged
from tests.api.visitor import Visitor, at
from tests.interop.stage import wait_for
from tests.suites.cluster_in_process import Cluster, url
from tests.suites.test_sub_clusters import ELEVEN, spread

pytestmark = [pytest.mark.req("X3"), pytest.mark.req("M2")]


def test_pages_and_totals_are_those_of_all(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        address = cluster.nodes[1].address
        assert address is not None
        await asyncio.to_thread(look, address[1])
        await kill(cluster)
        await asyncio.to_thread(raise_up, address[1])

    spread(tmp_path, story)


def look(port: int) -> None:
    visitor = Visitor(port)
    for number, name in enumerate(ELEVEN):
        for _ in range(number + 1):
            visitor.post(at(name, "/messages"), {"body": name})
    assert pages(visitor, "name") == sorted(ELEVEN)
    assert pages(visitor, "depth") == list(reversed(ELEVEN))
    totals = visitor.get("overview")["totals"]
    assert (totals["destinations"], totals["published"]) == (11, 66)
    drawn = visitor.get("cluster")
    assert {name: view["state"] for name, view in drawn["sub_clusters"].items()} == {"east": "A", "west": "A"}
    lines = visitor.get("/metrics?destinations=*").decode()
    assert lines.count("heliograph_destination_messages_waiting{") == 11
    assert 'heliograph_partition_state{sub_cluster="west",state="A"} 1' in lines
    assert visitor.get(at(ELEVEN[3], "/messages"))["messages"][0]["preview"] == ELEVEN[3]


def pages(visitor: Visitor, sort: str) -> list[str]:
    found: list[str] = []
    after = ""
    while True:
        page = visitor.get(f"destinations?limit=4&sort={sort}&after={after}")
        found += [each["address"] for each in page["destinations"]]
        after = page["next"]
        if not after:
            assert page["total"] == 11
            return found


async def kill(cluster: Cluster) -> None:
    """One message of each queue dies, wherever the queue is."""
    async with heliograph.connect(url(cluster)) as connection:
        session = await connection.session(acknowledge="individual")
        for name in ELEVEN:
            await connection.ask("destination.set", destination=name, policy={"redelivery_limit": 1})
            consumer = await session.consumer(name, credit=1)
            message = await consumer.receive(timeout=30)
            assert message is not None
            await message.reject("it is ill")
            await consumer.close()


def raise_up(port: int) -> None:
    visitor = Visitor(port)
    wait_for(lambda: visitor.get("overview")["totals"]["dead"] == 11, "all are dead")
    found = visitor.get("destinations?contains=_DMQ&own=true")["destinations"]
    dead = [each["address"] for each in found]
    assert dead == ["queue:_DMQ@east", "queue:_DMQ@west"]
    said = [visitor.post(at(name, "/messages/redrive"), {}) for name in dead]
    redriven = [each["redriven"] for each in said]
    assert sum(redriven) == 11, said
    assert all(redriven)
    assert [visitor.get(at(name))["depth"] for name in ELEVEN] == [number + 1 for number in range(11)]


def test_members_of_one_destination_are_on_one_page() -> None:
    def page(*rows: tuple[int, str]) -> dict[str, Any]:
        entries = [{"address": name} for _, name in rows]
        return {"places": [list(row) for row in rows], "destinations": entries, "total": len(rows)}

    both = merged([page((0, "a"), (0, "c")), page((0, "b"), (0, "c"), (0, "d"))], 3)
    assert [each["address"] for each in both["destinations"]] == ["a", "b", "c", "c"]
    assert both["places"][-1] == [0, "c"]
    assert both["total"] == 5
