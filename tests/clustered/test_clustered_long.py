"""Five members, a hundred thousand messages, members that come, leave and are killed at random, everywhere (H2, H4).

`CLUSTERED_MESSAGES`, `CLUSTERED_RATE` and `CLUSTERED_SEED` choose another size, pace and course of events, and
`CLUSTERED_LEASE` another lease, for a machine that has much else to do: a lease that runs out is no orderly leave.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

from tests.clustered.kafka_broker import fetch
from tests.clustered.middleware import ALL, Middleware
from tests.clustered.play import Cluster, Verdict, judge
from tests.servers import play

MESSAGES = int(os.environ.get("CLUSTERED_MESSAGES", "100000"))
RATE = float(os.environ.get("CLUSTERED_RATE", "2000"))
SEED = int(os.environ.get("CLUSTERED_SEED", "1"))
NAMES = ("ada", "bob", "cyd", "dan", "eve")
MIDDLEWARE = list(ALL)
LEASE = float(os.environ.get("CLUSTERED_LEASE", "8"))
OPTIONS = {"fields": ["property:unit"], "lease": LEASE}
HARASSED_MESSAGES = int(os.environ.get("CLUSTERED_HARASSED", "6000"))
HARASSED_LEASE = 1.5


@pytest.fixture(params=MIDDLEWARE)
def middleware(request: pytest.FixtureRequest) -> Middleware:
    if request.param == "kafka":
        fetch()
    chosen = ALL[request.param]
    chosen.skip_unless_here()
    return chosen


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.req("H1", "H2", "H4")
def test_nobody_is_killed_and_each_message_is_processed_once(middleware: Middleware, tmp_path: Path) -> None:
    verdict = play(_story(middleware, tmp_path, kills=False), 1700)
    if middleware.redelivers:
        assert not verdict.lost
    assert not verdict.repeated
    assert not verdict.out_of_order


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.req("H1", "H2", "H4")
def test_members_are_killed_and_nothing_is_lost(middleware: Middleware, tmp_path: Path) -> None:
    verdict = play(_story(middleware, tmp_path, kills=True), 1700)
    if middleware.redelivers:
        assert not verdict.lost
    assert not verdict.repeated_of_the_living
    assert not verdict.unmarked
    if middleware.key == "heliograph-transacted":
        assert not verdict.repeated


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.req("H1", "H2", "H4")
@pytest.mark.parametrize("key", ["heliograph-transacted", "heliograph", "rabbitmq", "nats", "mqtt", "redis"])
def test_members_lose_their_leases_again_and_again_and_nothing_is_lost(key: str, tmp_path: Path) -> None:
    """They are stopped in the middle of anything, for longer than a lease, several at once, and killed besides."""
    middleware = ALL[key]
    middleware.skip_unless_here()
    verdict = play(_harassed(middleware, tmp_path), 580)
    assert not verdict.lost
    assert not verdict.unmarked
    if key == "heliograph-transacted":
        assert not verdict.repeated


async def _harassed(middleware: Middleware, folder: Path) -> Verdict:
    async with middleware.running(folder) as url:
        cluster = Cluster(middleware, url, folder, {"lease": HARASSED_LEASE, "pause": 0.005})
        collecting = asyncio.create_task(middleware.collect(url, folder / "queue.effects"))
        try:
            for name in NAMES:
                cluster.start(name)
            await cluster.is_whole(180)
            began = time.monotonic()
            rate = HARASSED_MESSAGES / 40
            publishing = asyncio.create_task(middleware.publish(url, 0, HARASSED_MESSAGES, rate=rate))
            changes = await _harass(cluster, publishing)
            await publishing
            await cluster.has_processed(range(HARASSED_MESSAGES), 240)
            await cluster.is_whole(120)
            await cluster.holds_nothing(120)
        finally:
            cluster.end()
            collecting.cancel()
        verdict = judge(cluster.effects(), range(HARASSED_MESSAGES), cluster.killed)
        seconds = time.monotonic() - began
        _report(middleware, kills=True, changes=changes, seconds=seconds, verdict=verdict, stops=True)
        return verdict


async def _harass(cluster: Cluster, publishing: asyncio.Task[None]) -> int:
    """Up to all of them at once stand still, some for longer than a lease; every fifth is killed and comes back."""
    chance = random.Random(SEED)
    loop = asyncio.get_running_loop()
    stopped: dict[str, float] = {}
    changes = 0
    while stopped or not publishing.done():
        await asyncio.sleep(chance.uniform(0.1, 0.6))
        for name in [name for name, until in stopped.items() if loop.time() >= until]:
            del stopped[name]
            cluster.go_on(name)
        name = chance.choice(NAMES)
        if name in stopped or publishing.done():
            continue
        changes += 1
        if chance.random() < 0.2:
            cluster.kill(name)
            cluster.start(name)
        else:
            cluster.stop(name)
            stopped[name] = loop.time() + HARASSED_LEASE * chance.uniform(0.5, 2.5)
    return changes


async def _story(middleware: Middleware, folder: Path, *, kills: bool) -> Verdict:
    options = {**OPTIONS, "fields": ["id"]} if middleware.key == "redis-channel" else OPTIONS
    async with middleware.running(folder) as url:
        cluster = Cluster(middleware, url, folder, dict(options))
        collecting = asyncio.create_task(middleware.collect(url, folder / "queue.effects"))
        try:
            for name in NAMES:
                cluster.start(name)
            await cluster.is_whole(180)
            began = time.monotonic()
            publishing = asyncio.create_task(middleware.publish(url, 0, MESSAGES, rate=RATE))
            changes = await _disturb(cluster, publishing, kills=kills)
            await publishing
            if middleware.redelivers:
                await cluster.has_processed(range(MESSAGES), 600)
            else:
                await cluster.is_idle(120)
            seconds = time.monotonic() - began
            await cluster.is_whole(120)
            await cluster.holds_nothing(120)
        finally:
            cluster.end()
            collecting.cancel()
        verdict = judge(cluster.effects(), range(MESSAGES), cluster.killed)
        _report(middleware, kills=kills, changes=changes, seconds=seconds, verdict=verdict)
        return verdict


async def _disturb(cluster: Cluster, publishing: asyncio.Task[None], *, kills: bool) -> int:
    """One after the other leaves or is killed, and comes back; nobody knows who is next."""
    chance = random.Random(SEED)
    changes = 0
    while not publishing.done():
        await asyncio.sleep(chance.uniform(0.5, 3))
        name = chance.choice(NAMES)
        if name not in cluster.processes:
            continue
        names = [name]
        if kills and chance.random() < 0.7:
            cluster.kill(name)
            other = chance.choice(NAMES)
            if other in cluster.processes and chance.random() < 0.3:
                cluster.kill(other)  # two at once
                names.append(other)
        else:
            await cluster.leave(name)
        await asyncio.sleep(chance.uniform(0.2, 2))
        for each in names:
            cluster.start(each)
        await cluster.is_whole(400)
        changes += len(names)
    return changes


def _report(
    middleware: Middleware,
    *,
    kills: bool,
    changes: int,
    seconds: float,
    verdict: Verdict,
    stops: bool = False,
) -> None:
    line: dict[str, Any] = {
        "middleware": middleware.key,
        "messages": HARASSED_MESSAGES if stops else MESSAGES,
        "kills": kills,
        "stops": stops,
        "changes": changes,
        "lease": HARASSED_LEASE if stops else LEASE,
        "seconds": round(seconds, 1),
        "lost": len(verdict.lost),
        "repeated": len(verdict.repeated),
        "unmarked": len(verdict.unmarked),
    }
    print(json.dumps(line))
    if path := os.environ.get("CLUSTERED_REPORT"):
        with Path(path).open("a", encoding="utf-8") as report:
            report.write(json.dumps(line) + "\n")
