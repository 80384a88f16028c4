"""A clustered consumer behaves the same on every middleware (H1, H2, H4).

Members come, leave and are killed, and each message is processed by one of them. `make test` tries them all but two,
which cost the most and are left to the night: Kafka, for its JVM, and a Heliograph queue, which is the topic with one
step more in front (`test_clustered_more.py` has the step).
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.clustered.middleware import ALL, UNITS, Middleware, each_of
from tests.clustered.play import Cluster, judge
from tests.servers import play

AT_NIGHT = ("heliograph-queue", "kafka")


@pytest.fixture(params=each_of(ALL, at_night=AT_NIGHT))
def middleware(request: pytest.FixtureRequest) -> Middleware:
    return ALL[request.param]


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.req("H1", "H2", "H4")
def test_members_come_leave_and_die_and_each_message_is_processed(
    middleware: Middleware, tmp_path: Path
) -> None:
    """Two members, a third comes, one leaves, one is killed; without the kill nothing is done twice."""

    async def story() -> None:
        async with middleware.running(tmp_path) as url:
            cluster = Cluster(middleware, url, tmp_path, {"fields": middleware.fields, "lease": 1.5})
            collecting = asyncio.create_task(middleware.collect(url, tmp_path / "queue.effects"))
            try:
                await members_come_and_leave(cluster)
                await a_member_dies(cluster)
            finally:
                cluster.end()
                collecting.cancel()

    play(story(), 110)


async def members_come_and_leave(cluster: Cluster) -> None:
    middleware, url = cluster.middleware, cluster.url
    cluster.start("ada")
    cluster.start("bob")
    await cluster.is_whole()
    await middleware.publish(url, 0, 300)
    cluster.start("cyd")
    await middleware.publish(url, 300, 300, rate=300)
    await cluster.is_whole()
    await middleware.publish(url, 600, 200)
    await cluster.leave("ada")
    await middleware.publish(url, 800, 200)
    await cluster.is_whole()
    await cluster.has_processed(range(1000))
    verdict = judge(cluster.effects(), range(1000))
    assert not verdict.lost
    assert not verdict.repeated
    assert middleware.fields == ("id",) or not verdict.out_of_order
    assert {effect.member for effect in cluster.effects()} == {"ada", "bob", "cyd"}


async def a_member_dies(cluster: Cluster) -> None:
    middleware, url = cluster.middleware, cluster.url
    await middleware.publish(url, 1000, 500)
    cluster.kill("bob")
    await middleware.publish(url, 1500, 300)
    await cluster.has_processed(range(1800))
    verdict = judge(cluster.effects(), range(1800))
    assert not verdict.lost
    assert not verdict.repeated_without_need
    assert not verdict.unmarked
    if middleware.fields == ("id",):
        return  # a unit has no owner
    # The fencing token of whoever took a unit over is higher than any that bob was given for it.
    effects = cluster.effects()
    bobs = {effect.number % UNITS: effect.token for effect in effects if effect.member == "bob"}
    later = [e for e in effects if e.number >= 1500 and e.number % UNITS in bobs]
    assert later
    assert all(effect.token > bobs[effect.number % UNITS] for effect in later)
