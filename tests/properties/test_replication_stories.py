"""What was found once, told as stories: message managers that replicate, between whose frames anything can happen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.properties.replicated_managers import knowledge
from tests.properties.replicated_world import World

Story = Callable[[World], Awaitable[None]]


def play(story: Story, base: Path) -> None:
    async def run() -> None:
        world = World(0, base)
        try:
            await world.open()
            await story(world)
        finally:
            await world.stop()

    asyncio.run(run())


@pytest.mark.req("M9")
def test_a_newcomer_keeps_what_it_was_given_while_it_caught_up(tmp_path: Path) -> None:
    """There is so much of it that the newcomer takes a snapshot before it is through."""

    async def story(world: World) -> None:
        first, second, _ = world.nodes
        sender = world.desk.sender("queue:plain", "plain")
        await world.until(lambda: sender.ready, lambda: "a lane")
        while sender.next < 400:
            world.desk.send(sender)
            await world.breathe(20)
        await world.until(lambda: not sender.waiting, lambda: "confirmed")
        await second.start()
        await world.until(lambda: second.is_synchronised, lambda: "caught up")
        while sender.next < 500:
            world.desk.send(sender)
            await world.breathe(20)
        await world.until(lambda: not sender.waiting, lambda: "confirmed")
        await world.quiet()
        assert knowledge(first.manager) == knowledge(second.manager)
        await first.die(0)
        world.desk.taker("queue:plain", "auto", alone=True)
        await world.until(
            lambda: all("queue:plain" in each.copies for each in world.judge.letters.values()),
            lambda: "all of it",
        )

    play(story, tmp_path)
