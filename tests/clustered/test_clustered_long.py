"""Five members, a hundred thousand messages, members that come, leave and are killed at random, everywhere (H2, H4).

`CLUSTERED_MESSAGES`, `CLUSTERED_RATE` and `CLUSTERED_SEED` choose another size, pace and course of events, and
`CLUSTERED_LEASE` another lease, for a machine that has much else to do: a lease that runs out is no orderly leave.
Messages go on beyond that number until there were enough changes to speak of, at most for five minutes.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.clustered.middleware import ALL, Middleware, each_of
from tests.clustered.play import Cluster, Verdict, judge
from tests.servers import play

MESSAGES = int(os.environ.get("CLUSTERED_MESSAGES", "100000"))
RATE = float(os.environ.get("CLUSTERED_RATE", "700"))
SEED = int(os.environ.get("CLUSTERED_SEED", "1"))
NAMES = ("ada", "bob", "cyd", "dan", "eve")
PORTION = 5_000
CHANGES = 5
KILLS = 3
PUBLISHING_SECONDS = 300.0
LEASE = float(os.environ.get("CLUSTERED_LEASE", "8"))
HARASSED_MESSAGES = int(os.environ.get("CLUSTERED_HARASSED", "6000"))
HARASSED_LEASE = 1.5


@pytest.fixture(params=each_of(ALL))
def middleware(request: pytest.FixtureRequest) -> Middleware:
    return ALL[request.param]


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.req("H1", "H2", "H4")
def test_nobody_is_killed_and_each_message_is_processed_once(middleware: Middleware, tmp_path: Path) -> None:
    verdict = play(_story(middleware, tmp_path, kills=False), 880)
    assert not verdict.lost  # nor where it cannot deliver again: the broker is well, and others have copies
    assert not verdict.repeated
    assert middleware.fields == ("id",) or not verdict.out_of_order  # or a unit has no owner


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.req("H1", "H2", "H4")
def test_members_are_killed_and_nothing_is_lost(middleware: Middleware, tmp_path: Path) -> None:
    verdict = play(_story(middleware, tmp_path, kills=True), 880)
    if middleware.redelivers:
        assert not verdict.lost
    assert not verdict.repeated_without_need
    assert not verdict.unmarked
    if middleware.key == "heliograph-transacted":
        assert not verdict.repeated


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.req("H1", "H2", "H4")
@pytest.mark.parametrize(
    "key", each_of(["heliograph-transacted", "heliograph", "rabbitmq", "nats", "mqtt", "redis"])
)
def test_members_lose_their_leases_again_and_again_and_nothing_is_lost(key: str, tmp_path: Path) -> None:
    """They are stopped in the middle of anything, for longer than a lease, several at once, and killed besides."""
    middleware = ALL[key]
    verdict = play(_harassed(middleware, tmp_path), 580)
    assert not verdict.lost
    assert not verdict.unmarked
    if key == "heliograph-transacted":
        assert not verdict.repeated


@dataclass
class Changes:
    """Of members, as they were made."""

    kills: int = 0
    leaves: int = 0
    joins: int = 0
    stops: int = 0

    @property
    def all(self) -> int:
        return self.kills + self.leaves + self.stops


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
        verdict = judge(cluster.effects(), range(HARASSED_MESSAGES))
        seconds = time.monotonic() - began
        _report(middleware, HARASSED_MESSAGES, HARASSED_LEASE, changes, seconds, verdict)
        assert changes.kills >= KILLS
        assert changes.stops >= CHANGES
        return verdict


async def _harass(cluster: Cluster, publishing: asyncio.Task[None]) -> Changes:
    """Up to all of them at once stand still, some for longer than a lease; every fifth is killed and comes back."""
    chance = random.Random(SEED)
    loop = asyncio.get_running_loop()
    stopped: dict[str, float] = {}
    changes = Changes()
    while stopped or not publishing.done():
        await asyncio.sleep(chance.uniform(0.1, 0.6))
        for name in [name for name, until in stopped.items() if loop.time() >= until]:
            del stopped[name]
            cluster.go_on(name)
        name = chance.choice(NAMES)
        if name in stopped or publishing.done():
            continue
        if chance.random() < 0.2:
            changes.kills += 1
            changes.joins += 1
            cluster.kill(name)
            cluster.start(name)
        else:
            changes.stops += 1
            cluster.stop(name)
            stopped[name] = loop.time() + HARASSED_LEASE * chance.uniform(0.5, 2.5)
    return changes


async def _story(middleware: Middleware, folder: Path, *, kills: bool) -> Verdict:
    options = {"fields": middleware.fields, "lease": LEASE}
    async with middleware.running(folder) as url:
        cluster = Cluster(middleware, url, folder, options)
        collecting = asyncio.create_task(middleware.collect(url, folder / "queue.effects"))
        try:
            for name in NAMES:
                cluster.start(name)
            await cluster.is_whole(180)
            began = time.monotonic()
            changes = Changes()
            publishing = asyncio.create_task(_publish(middleware, url, changes, kills=kills))
            await _disturb(cluster, publishing, changes, kills=kills)
            numbers = range(await publishing)
            if middleware.redelivers or not kills:
                await cluster.has_processed(numbers, 180)
            else:
                await cluster.is_idle(120)
            seconds = time.monotonic() - began
            await cluster.is_whole(120)
            await cluster.holds_nothing(120)
        finally:
            cluster.end()
            collecting.cancel()
        verdict = judge(cluster.effects(), numbers)
        _report(middleware, len(numbers), LEASE, changes, seconds, verdict)
        assert _are_enough(changes, kills=kills), changes
        return verdict


async def _publish(middleware: Middleware, url: str, changes: Changes, *, kills: bool) -> int:
    """How many. They go on as long as changes are to be made: one that is made in silence shows nothing."""
    deadline = time.monotonic() + PUBLISHING_SECONDS
    count = 0
    while count < MESSAGES or (not _are_enough(changes, kills=kills) and time.monotonic() < deadline):
        await middleware.publish(url, count, PORTION, rate=RATE)
        count += PORTION
    return count


def _are_enough(changes: Changes, *, kills: bool) -> bool:
    enough = changes.kills >= KILLS if kills else changes.leaves >= CHANGES
    return enough and changes.leaves >= 1 and changes.joins >= CHANGES and changes.all >= CHANGES


async def _disturb(cluster: Cluster, publishing: asyncio.Task[int], changes: Changes, *, kills: bool) -> None:
    """One after the other leaves or is killed, and comes back; nobody knows who is next."""
    chance = random.Random(SEED)
    courses = _courses(chance, kills=kills)
    while not publishing.done():
        await asyncio.sleep(chance.uniform(0.5, 3))
        course = next(courses)
        names = chance.sample(NAMES, 2 if course == "kill two" else 1)
        for name in names:
            if course == "leave":
                await cluster.leave(name)
            else:
                cluster.kill(name)
        await asyncio.sleep(chance.uniform(0.2, 2))
        for name in names:
            cluster.start(name)
        await cluster.is_whole(400)
        changes.joins += len(names)
        if course == "leave":
            changes.leaves += 1
        else:
            changes.kills += len(names)


def _courses(chance: random.Random, *, kills: bool) -> Iterator[str]:
    """In any order, but of each as many as it takes: by chance alone there may be no kill, or nothing else."""
    while True:
        some = ["kill", "kill", "kill two", "leave"] if kills else ["leave"]
        chance.shuffle(some)
        yield from some


def _report(
    middleware: Middleware, messages: int, lease: float, changes: Changes, seconds: float, verdict: Verdict
) -> None:
    line: dict[str, Any] = {
        "middleware": middleware.key,
        "messages": messages,
        **asdict(changes),
        "lease": lease,
        "seconds": round(seconds, 1),
        "lost": len(verdict.lost),
        "repeated": len(verdict.repeated),
        "unmarked": len(verdict.unmarked),
    }
    print(json.dumps(line))
    if path := os.environ.get("CLUSTERED_REPORT"):
        with Path(path).open("a", encoding="utf-8") as report:
            report.write(json.dumps(line) + "\n")
