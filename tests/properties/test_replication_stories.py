"""What was found once, told as stories: message managers that replicate, between whose frames anything can happen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from heliograph.bus.commands import RollbackAsked
from tests.properties.replicated_desk import Desk, Sender
from tests.properties.replicated_judge import Violation
from tests.properties.replicated_managers import Node, knowledge
from tests.properties.replicated_plants import a_log_is_not_cut_at_the_fork
from tests.properties.replicated_world import WORK, Worker, World

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


@pytest.mark.req("M9")
def test_a_former_primary_has_other_messages_under_the_numbers_that_only_it_gave(tmp_path: Path) -> None:
    """What it wrote last nobody heard. The next primary numbered the same messages anew, as its first act."""

    async def story(world: World) -> None:
        first, second, _ = world.nodes
        await follows(world, second, first)
        light = await lane(world, "queue:shared", "volatile")
        for _ in range(3):
            world.desk.send(light, count=1)  # the numbers of these end with the primary
        await world.until(lambda: not light.waiting, lambda: "confirmed")
        sender = await lane(world, "queue:shared", "plain")
        await world.quiet()
        first.mute()
        index = first.manager.place.index
        for _ in range(4):
            world.desk.send(sender, count=1)
        await world.until(
            lambda: first.manager.place.index == index + 4, lambda: "written where nobody hears"
        )
        await world.quiet()
        await first.die(0)
        await world.until(lambda: not sender.waiting, lambda: "confirmed by the second")
        await follows(world, first, second)
        await world.quiet()
        await second.die(0)
        world.desk.taker("queue:shared", "auto", alone=True)
        letters = [each for each in world.judge.letters.values() if each.persistent]
        await world.until(lambda: all("queue:shared" in each.copies for each in letters), lambda: "all of it")

    play(story, tmp_path)


@pytest.mark.req("J5", "M9")
def test_a_rollback_that_is_asked_again_takes_nothing_back_that_was_given_since(tmp_path: Path) -> None:
    """As a client manager does that hears late who leads: its question is under way twice, and one may come to the
    next primary, which heard that it was answered, or was introduced to one that had."""

    async def story(world: World) -> None:
        first, second, third = world.nodes
        await follows(world, second, first)
        sender = await lane(world, WORK, "plain")
        worker = Worker(world.desk)
        await world.until(lambda: worker.sender.ready, lambda: "a lane")
        world.desk.send(sender, count=1)
        await world.until(lambda: bool(worker.taker.tags), lambda: "work")
        world.desk.begin(worker.sender, 1)
        world.desk.roll_back(worker.sender, [worker.taker])
        (asked,) = [
            each for each in world.desk.clients._unanswered.values() if isinstance(each, RollbackAsked)
        ]
        await world.until(lambda: bool(worker.taker.tags), lambda: "the same work, marked")
        given = list(worker.taker.tags)
        await follows(world, third, first)
        await second.die(0)
        await world.until(lambda: first.backups == [third.incarnation], lambda: "the third alone follows")
        await world.quiet()
        first.mute()
        world.desk.member.multicast(asked)
        await world.quiet()
        await first.die(0)
        await world.until(lambda: third.is_leading, lambda: "the third leads")
        await world.quiet()
        assert list(worker.taker.tags) == given, "it has what it was given"

    play(story, tmp_path)


@pytest.mark.req("J2", "M9")
def test_what_was_taken_behind_something_on_its_way_to_the_disk_is_confirmed_by_the_next_primary(
    tmp_path: Path,
) -> None:
    async def story(world: World) -> None:
        first, second, _ = world.nodes
        await follows(world, second, first)
        sender = await lane(world, "queue:shared", "plain")
        await world.quiet()
        second.mute()  # and so the first does not hear that it has stored anything
        world.desk.send(sender, count=1)
        sender.kind = "volatile"
        world.desk.send(sender, count=1)
        await world.quiet()
        assert len(sender.waiting) == 2, "nothing is confirmed yet"
        await first.die(0)
        second.mute(False)
        await world.until(lambda: not sender.waiting, lambda: "both are confirmed")

    play(story, tmp_path)


@pytest.mark.req("M8", "M9")
def test_what_clients_have_of_a_client_manager_that_the_others_went_on_without_goes_to_another_marked(
    tmp_path: Path,
) -> None:
    """It is slow, and there is a view without it. While it knows nothing of that, the lease of its clients passes:
    then somebody else has what they had, and that is no promise broken (PROTOCOL 4)."""

    async def story(world: World) -> None:
        _, second, _ = world.nodes
        sender = await lane(world, "queue:units", "unit")
        slow = world._add_desk()
        taker = slow.taker("queue:units", "client", alone=False, credit=1)
        await world.quiet()
        world.desk.send(sender, count=1)
        await world.until(lambda: bool(taker.tags), lambda: "one has it")
        await world.quiet()
        other = world.desk.taker("queue:units", "client", alone=False, credit=1)
        await world.quiet()
        assert not other.tags, "as long as one has it, nobody else is given it"
        freeze(world, slow)
        await second.start()
        await world.until(lambda: bool(other.tags), lambda: "another has it")
        (letter,) = world.judge.letters.values()
        assert letter.copies["queue:units"].times == 2
        assert slow not in world.desks, "its clients went elsewhere"

    play(story, tmp_path)


def freeze(world: World, desk: Desk) -> None:
    """It hears nothing any more."""
    for member in world.bus.members:
        member.is_frozen = member.incarnation == desk.member.incarnation


async def follows(world: World, node: Node, leading: Node) -> None:
    """Started, and counted on."""
    await node.start()
    await world.until(
        lambda: node.is_synchronised and node.incarnation in leading.backups, lambda: "it follows"
    )
    await world.quiet()


async def lane(world: World, address: str, kind: str) -> Sender:
    sender = world.desk.sender(address, kind)
    await world.until(lambda: sender.ready, lambda: "a lane")
    return sender


def test_a_log_that_is_not_cut_at_the_fork_shows(tmp_path: Path) -> None:
    """Chance rarely brings about what it takes."""
    with a_log_is_not_cut_at_the_fork(), pytest.raises(Violation):
        test_a_former_primary_has_other_messages_under_the_numbers_that_only_it_gave(tmp_path)
