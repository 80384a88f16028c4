"""Whoever subscribes while the cluster is in parts gets what was published in any of them since, each message once
(P4, PROTOCOL 6)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from heliograph.model.destination import PATTERNS
from heliograph.model.patterns import SEPARATOR, name_at
from tests.properties.parted_world import Parts
from tests.properties.replicated_desk import Desk, Sender, Taker
from tests.properties.replicated_judge import Letter
from tests.properties.test_merging_stories import dying_after, meet, move, play

NEWS = "topic:news"
URGENT = "JMSPriority > 4"

pytestmark = pytest.mark.req("P4", "P6")


async def subscribe(
    world: Parts, desk: Desk, name: str, selector: str = "", *, shared: bool = False, address: str = NEWS
) -> Taker:
    """It takes one message, and is not through with it."""
    taker = desk.taker(
        address, "client", alone=False, subscription=name, selector=selector, shared=shared, credit=1
    )
    await world.until(lambda: not desk.waiting, "subscribed")
    return taker


async def leave(world: Parts, desk: Desk, *takers: Taker) -> None:
    for taker in takers:
        desk.detach(taker)
    await world.until(lambda: not desk.waiting, "they left")


async def in_parts(world: Parts, parts: int = 2) -> None:
    for desk in world.desks:
        await world.lane(desk, "queue:x")  # it is there
    nodes = [*range(parts), *([0] * (len(world.nodes) - parts))]
    await world.cut(nodes, list(range(len(world.desks))))
    await world.until(lambda: len(world.leaders()) == parts, "each part has a primary")


async def gets(
    world: Parts,
    desk: Desk,
    name: str,
    wanted: Callable[[Letter], bool],
    selector: str = "",
    *,
    shared: bool = False,
    address: str = NEWS,
) -> None:
    """These messages and no others, each once, those of a sender in order."""
    desk.taker(address, "auto", alone=True, subscription=name, selector=selector, shared=shared, credit=40)
    letters = [each for each in world.judge.letters.values() if each.address == address]

    def missing() -> list[str]:
        return [each.name for each in letters if wanted(each) and name not in each.copies]

    await world.until(lambda: not missing(), f"{name} gets what it is to get", 8.0)
    await world.rest(0.1)
    assert [each.name for each in letters if not wanted(each) and name in each.copies] == []


def of(sender: Sender, *, behind: int = 0) -> Callable[[Letter], bool]:
    return lambda letter: letter.lane == sender.lane and letter.sequence > behind


def either(*conditions: Callable[[Letter], bool]) -> Callable[[Letter], bool]:
    return lambda letter: any(condition(letter) for condition in conditions)


async def start_again(world: Parts) -> Desk:
    """All managers end, and know what they have from their disks."""
    for desk in list(world.desks):
        world.lose(desk)
    for node in world.nodes:
        await node.die(1000)
    for node in world.nodes:
        await node.start()
    await world.settled()
    return world.add_desk(0)


@pytest.mark.parametrize("restarts", [False, True], ids=["at once", "after a restart"])
@pytest.mark.parametrize(
    ("selector", "shared", "others"),
    [
        ("", False, ()),
        ("", True, ("",)),
        (URGENT, False, ()),
        (URGENT, False, (URGENT,)),
        (URGENT, True, ("", URGENT)),
    ],
    ids=["alone", "shared", "choosy", "choosy as another", "choosy and shared"],
)
def test_whoever_subscribes_in_a_restricted_part_gets_what_the_other_published_meanwhile(
    tmp_path: Path, selector: str, shared: bool, others: tuple[str, ...], restarts: bool
) -> None:
    """`others`: what subscriptions of the other part want, which are through with all of it."""

    async def story(world: Parts) -> None:
        here, there = world.desks
        ours, theirs = await world.lane(here, NEWS, "priority"), await world.lane(there, NEWS, "priority")
        for number, wish in enumerate(others):
            here.taker(NEWS, "auto", alone=False, subscription=f"old{number}", selector=wish, credit=40)
        await world.until(lambda: not here.waiting, "subscribed")
        await world.send(here, ours, 20)
        await in_parts(world)
        await world.send(there, theirs, 4)
        young = await subscribe(world, there, "young", selector, shared=shared)
        await world.send(here, ours, 60)
        await world.send(there, theirs, 10)
        await leave(world, there, young)
        await world.send(here, ours, 10)
        await meet(world)
        await world.send(here, ours, 5)
        desk = await start_again(world) if restarts else here

        def wanted(letter: Letter) -> bool:
            is_young = either(of(ours, behind=20), of(theirs, behind=4))(letter)
            return is_young and (not selector or letter.priority > 4)

        await gets(world, desk, "young", wanted, selector, shared=shared)

    play(story, tmp_path)


def test_what_it_gets_of_one_sender_is_in_order_wherever_that_went(tmp_path: Path) -> None:
    async def story(world: Parts) -> None:
        here, there = world.desks
        roaming, theirs = await world.lane(there, NEWS), await world.lane(there, NEWS)
        await in_parts(world)
        young = await subscribe(world, there, "young")
        await world.send(there, theirs, 1)
        await world.until(lambda: bool(young.tags), "it has enough to do")
        await world.send(there, roaming, 5)
        await move(world, roaming, here)
        await world.send(here, roaming, 5)
        await move(world, roaming, there)
        await world.send(there, roaming, 5)
        await leave(world, there, young)
        await meet(world)
        await gets(world, here, "young", either(of(roaming), of(theirs)))

    play(story, tmp_path)


def test_a_subscription_that_was_made_in_both_parts_is_as_old_as_the_older_of_the_two(tmp_path: Path) -> None:
    async def story(world: Parts) -> None:
        here, there = world.desks
        ours, theirs = await world.lane(here, NEWS), await world.lane(there, NEWS)
        await world.send(here, ours, 3)
        await in_parts(world)
        first = await subscribe(world, there, "went here")
        second = await subscribe(world, here, "went there")
        await world.send(here, ours, 5)
        await world.send(there, theirs, 5)
        await leave(world, there, first)
        await leave(world, here, second)
        first = await subscribe(world, here, "went here")
        second = await subscribe(world, there, "went there")
        await world.send(here, ours, 5)
        await world.send(there, theirs, 5)
        await leave(world, here, first)
        await leave(world, there, second)
        await meet(world)
        for name in ("went here", "went there"):
            await gets(world, here, name, either(of(ours, behind=3), of(theirs)))

    play(story, tmp_path)


@pytest.mark.parametrize("subscriber", [1, 2])
def test_it_gets_what_a_third_part_published(tmp_path: Path, subscriber: int) -> None:
    async def story(world: Parts) -> None:
        lanes = [await world.lane(desk, NEWS) for desk in world.desks]
        await in_parts(world, 3)
        young = await subscribe(world, world.desks[subscriber], "young")
        for desk, lane in zip(world.desks, lanes, strict=True):
            await world.send(desk, lane, 6)
        await leave(world, world.desks[subscriber], young)
        await meet(world)
        await gets(world, world.desks[0], "young", either(*map(of, lanes)))

    play(story, tmp_path, nodes=3, desks=3)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_subscription_to_a_pattern_gets_what_came_to_a_topic_that_its_part_did_not_have(
    tmp_path: Path, is_there: bool
) -> None:
    async def story(world: Parts) -> None:
        here, there = world.desks
        subscribing, publishing = (there, here) if is_there else (here, there)
        await in_parts(world)
        pattern = f"all{SEPARATOR}topic:glob:new*"
        taker = await subscribe(world, subscribing, pattern, address=PATTERNS)
        sender = await world.lane(publishing, NEWS)
        await world.send(publishing, sender, 6)
        await leave(world, subscribing, taker)
        await meet(world)
        await gets(world, here, name_at(pattern, NEWS), of(sender))

    play(story, tmp_path)


@pytest.mark.req("P9")
@pytest.mark.parametrize("records", [1, 2, 3, 5, 9])
def test_whoever_goes_on_with_a_merge_neither_forgets_what_was_kept_nor_gives_it_twice(
    tmp_path: Path, records: int
) -> None:
    async def story(world: Parts) -> None:
        here, there = world.desks[:2]
        ours, theirs = await world.lane(here, NEWS), await world.lane(there, NEWS)
        await in_parts(world)
        young = await subscribe(world, there, "young")
        both = await subscribe(world, there, "both")
        await world.send(here, ours, 8)
        await world.send(there, theirs, 8)
        await leave(world, there, young, both)
        await leave(world, here, await subscribe(world, here, "both"))
        world.lose(there)
        first = world.nodes[0]
        with dying_after(records) as written:
            await world.heal()
            await world.until(lambda: written[0] >= records, "it has written some of it")
            await world.rest()
        await first.die(world.dice.choice((0, 1, 1000)))
        await world.until(lambda: bool(world.leaders()), "another leads")
        await world.settled()
        await first.start()
        await world.settled()
        world.lose(here)
        desk = world.add_desk(0)
        for name in ("young", "both"):
            await gets(world, desk, name, either(of(ours), of(theirs)))

    play(story, tmp_path, nodes=3)
