"""Parts that accepted and handed out what they liked meet again: every message once (P6, docs/decisions/0018)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.properties.parted_world import Parts

Story = Callable[[Parts], Awaitable[None]]


def play(story: Story, base: Path, nodes: int = 2, desks: int = 2, seed: int = 0) -> None:
    async def run() -> None:
        world = Parts(seed, base, nodes)
        try:
            await world.open(desks)
            await story(world)
        finally:
            await world.stop()

    asyncio.run(run())


@pytest.mark.req("P6")
def test_what_each_part_accepted_is_there_once_when_they_meet(tmp_path: Path) -> None:
    async def story(world: Parts) -> None:
        here, there = world.desks
        ours, theirs = await world.lane(here, "queue:x"), await world.lane(there, "queue:x")
        await world.send(here, ours, 5)
        await world.send(there, theirs, 5)
        await world.cut([0, 1], [0, 1])
        await world.until(lambda: len(world.leaders()) == 2, "each part has a primary")
        await world.send(here, ours, 7)
        await world.send(there, theirs, 9)
        world.lose(there)
        await world.heal()
        await world.settled()
        world.compare()
        await world.take_all(here, {"queue:x": "queue:x"})

    play(story, tmp_path)
