"""Alerts of a data pipeline (D5, A9): a group that is raised again is there once, whoever was killed meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import heliograph
from heliograph.client import Connection
from heliograph.model.alert import AlertHeader, Classification
from heliograph.model.errors import HeliographError
from heliograph.model.limits import MAX_RAISED_ALERTS
from heliograph.nodes.users import UserStore
from tests.servers import ServerProcess, embedded, play, url_of
from tests.suites.cluster_in_process import Cluster, told, url
from tests.suites.test_pipelines import fill
from tests.suites.test_pipelines_in_a_cluster import until_served

pytestmark = pytest.mark.req("D5", "A9")


async def raised(
    connection: Connection,
    number: int,
    texts: Sequence[str],
    *,
    channel: str = "alerts:fraud",
    name: str = "q",
    **more: Any,
) -> bool:
    header = AlertHeader("TAG:card.1", **{"duration": 3600.0, **more})
    answer = await connection.ask(
        "pipeline.raise",
        destination=channel,
        name=name,
        number=number,
        alerts=[(header, text.encode()) for text in texts],
    )
    took: bool = answer["took_effect"]
    return took


async def live(connection: Connection, channel: str = "fraud") -> list[str]:
    """Their texts, in the order in which they came."""
    consumer = await connection.alerts(channel).subscribe("TAG:card")
    listed = await connection.alerts(channel).list()
    found: list[str] = []
    while (alert := await consumer.receive(20 if len(found) < len(listed) else 0.2)) is not None:
        found.append(alert.text)
    await consumer.close()
    return found


async def refused(connection: Connection, *arguments: Any, **more: Any) -> str:
    with pytest.raises(HeliographError) as refusal:
        await raised(connection, *arguments, **more)
    return refusal.value.code


def test_a_group_of_alerts_is_raised_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            assert await raised(connection, 0, ["a", "b"])
            assert not await raised(connection, 0, ["a", "b"])
            assert await raised(connection, 5, ["c"])
            assert not await raised(connection, 4, ["what came before is over"])
            # Another pipeline, and another channel of the same, count for themselves.
            assert await raised(connection, 0, ["d"], name="other")
            assert await raised(connection, 0, ["e"], channel="alerts:more")
            assert await live(connection) == ["a", "b", "c", "d"]
            assert await live(connection, "more") == ["e"]
            (first, *_) = await connection.alerts("fraud").list()
            assert (first["user"], first["duration"]) == ("guest", 3600.0)

    play(story())


def test_what_is_no_alert_or_finds_no_room_raises_nothing_of_its_group(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            policy = {"endless_alerts": 2}
            await connection.ask("destination.create", destination="alerts:fraud", policy=policy)
            assert await refused(connection, 0, ["a", "b", "c"], duration=0.0) == "too-many-alerts"
            assert await refused(connection, 0, ["a"], priority=11) == "alert-invalid"
            secret = Classification.SECRET
            assert await refused(connection, 0, ["a"], classification=secret) == "alert-invalid"
            assert await refused(connection, 0, []) == "alert-invalid"
            assert await refused(connection, 0, ["a"] * (MAX_RAISED_ALERTS + 1)) == "alert-invalid"
            assert await refused(connection, 0, ["a"], channel="queue:fraud") == "invalid-destination"
            await connection.ask("destination.pause", destination="alerts:fraud", what="production")
            assert await refused(connection, 0, ["a"]) == "destination-paused"
            await connection.ask("destination.resume", destination="alerts:fraud")
            assert await live(connection) == []
            assert await raised(connection, 0, ["a", "b"], duration=0.0)
            assert await live(connection) == ["a", "b"]

    play(story())


def test_who_may_not_send_there_raises_nothing_and_nobody_says_who_they_are(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    store = UserStore.load(users)
    store.add("ann", "x", ["admin"], cost=(16, 8, 1))
    store.add("bob", "x", [], cost=(16, 8, 1))

    async def story() -> None:
        async with embedded(tmp_path, {"identity.users_file": str(users)}) as server:
            where = url_of(server)
            async with heliograph.connect(where, user="bob", password="x") as bob:
                assert await refused(bob, 0, ["a"]) == "not-allowed"
            async with heliograph.connect(where, user="ann", password="x") as ann:
                header = AlertHeader("TAG:card", duration=60.0)
                await ann.ask(
                    "pipeline.raise",
                    destination="alerts:fraud",
                    name="q",
                    number=0,
                    alerts=[(header, b"a")],
                    by="somebody else",
                )
                (alert,) = await ann.alerts("fraud").list()
                assert alert["user"] == "ann"

    play(story())


@pytest.mark.crash
def test_what_was_raised_and_that_it_was_outlives_a_crash(tmp_path: Path) -> None:
    async def story() -> None:
        server = ServerProcess(tmp_path)
        async with server:
            async with heliograph.connect(server.url) as connection:
                assert await raised(connection, 0, ["a", "b"])
            await server.restart()
            async with heliograph.connect(server.url) as connection:
                assert not await raised(connection, 0, ["a", "b"])
                assert await raised(connection, 1, ["c"])
                assert await live(connection) == ["a", "b", "c"]

    play(story())


def test_whoever_leads_next_knows_what_was_raised(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        for node in (2, 3, 4):
            await cluster.add(node)
        async with heliograph.connect(url(cluster)) as connection:
            await fill(connection, "queue:a", [b"by which it is seen that somebody leads"])
            await until_served(connection)
            assert await raised(connection, 0, ["a", "b"])
            cluster.crash(cluster.leader())
            await until_served(connection)
            assert not await raised(connection, 0, ["a", "b"])
            assert await raised(connection, 1, ["c"])
            assert await live(connection) == ["a", "b", "c"]

    told(tmp_path, story)
