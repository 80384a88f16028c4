"""Parts that accepted and handed out what they liked meet again: every message once (P6, docs/decisions/0018)."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from heliograph.bus.commands import Command, ConsumerDetached, DestinationDeleted, Published, SessionResumed
from heliograph.cluster.partition_state import State
from heliograph.cluster.ranges import NONE, Ranges
from heliograph.destinations.branch import Branch
from heliograph.journal.feed import Portion
from heliograph.journal.records import RecordKind
from heliograph.model.block import parse_trusted
from heliograph.model.destination import Address
from heliograph.model.errors import Unavailable
from heliograph.nodes import merger, reunion
from heliograph.nodes.branches import Branches
from heliograph.nodes.clock import Clock
from heliograph.nodes.feeding import EVENTS
from heliograph.nodes.following import Following
from heliograph.nodes.leading import Leading
from heliograph.nodes.merger import Merger
from heliograph.nodes.message_manager import MessageManager
from heliograph.nodes.replica import Replica
from tests.properties import merging_plants as plants
from tests.properties.parted_world import PATIENCE_SECONDS, Parts
from tests.properties.replicated_desk import Desk, Sender
from tests.properties.replicated_managers import Node

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


@pytest.mark.req("P6", "D4")
def test_what_a_merge_writes_stands_between_two_marks_also_where_nobody_holds_the_history(
    tmp_path: Path,
) -> None:
    """An audit takes nothing for it that was before."""

    async def story(world: Parts) -> None:
        here, there = world.desks
        ours, theirs = await world.lane(here, "queue:x"), await world.lane(there, "queue:x")
        await world.cut([0, 1], [0, 1])
        await world.until(lambda: len(world.leaders()) == 2, "each part has a primary")
        await world.send(here, ours, 3)
        await world.send(there, theirs, 3)
        await meet(world)
        (leader,) = world.leaders()
        manager = leader.manager
        found: asyncio.Future[Portion | Exception] = asyncio.get_running_loop().create_future()
        last = manager.stable_position
        manager.pipelines.feeding.look(
            lambda log, segments: log.read(segments, 0, last, 0, lambda *_: False, EVENTS), found.set_result
        )
        portion = await found
        assert isinstance(portion, Portion)
        kinds = [record.kind for record in portion.records]
        end = kinds.index(RecordKind.MERGED)
        begin = end - 1 - kinds[:end][::-1].index(RecordKind.TIME)
        assert RecordKind.JOINED in kinds[begin:end]
        assert RecordKind.PUBLISHED in kinds[:begin]
        assert RecordKind.PUBLISHED not in kinds[begin:end]

    play(story, tmp_path)


@pytest.mark.req("P6")
def test_what_comes_damaged_from_the_disk_of_a_branch_is_not_taken_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flipped bit, once. It is asked for again; in the log it would be damaged for good."""
    body, reads = Branches.body, list[int]()
    monkeypatch.setattr(reunion, "_TRY_AGAIN_SECONDS", 0.1)

    def flips_a_bit(self: Branches, branch: bytes, offset: int, size: int) -> bytes:
        found = bytearray(body(self, branch, offset, size))
        reads.append(offset)
        if len(reads) == 1:
            found[-1] ^= 4
        return bytes(found)

    monkeypatch.setattr(Branches, "body", flips_a_bit)

    async def story(world: Parts) -> None:
        here, there = world.desks
        ours, theirs = await world.lane(here, "queue:x"), await world.lane(there, "queue:x")
        await world.cut([0, 1], [0, 1])
        await world.until(lambda: len(world.leaders()) == 2, "each part has a primary")
        await world.send(here, ours, 3)
        await world.send(there, theirs, 3)
        world.lose(there)
        await world.heal()
        await world.settled()
        world.compare()
        await world.take_all(here, {"queue:x": "queue:x"})
        assert len(reads) > 1

    play(story, tmp_path)


@pytest.mark.req("P6")
@pytest.mark.parametrize("in_transaction", [False, True])
def test_what_was_acknowledged_in_one_part_is_handed_out_in_none(
    tmp_path: Path, in_transaction: bool
) -> None:
    """Its consumer had it before the cut. The other part knows only that the consumer is gone."""

    async def story(world: Parts) -> None:
        here, there = world.desks
        ours = await world.lane(here, "queue:x")
        taker = there.taker("queue:x", "client", alone=False, credit=10)
        if in_transaction:
            here.begin(ours, 1)
        await world.send(here, ours, 10)
        if in_transaction:
            here.commit(ours, [])
        await world.until(lambda: len(taker.tags) == 10, "all of it is with the consumer")
        await world.cut([0, 1], [0, 1])
        await world.until(lambda: len(world.leaders()) == 2, "each part has a primary")
        tags = sorted(taker.tags)[:6]
        letters = [taker.tags[tag] for tag in tags]
        there._settle(taker, tags, request=True)
        await world.until(lambda: all(each.copies["queue:x"].is_done for each in letters), "that is stored")
        await meet(world)
        await world.take_all(here, {"queue:x": "queue:x"})

    play(story, tmp_path)


@pytest.mark.req("P6")
def test_what_was_sent_to_both_parts_is_one_message(tmp_path: Path) -> None:
    """Its sender moved, and did not know what had arrived. One part is through with some of it."""

    async def story(world: Parts) -> None:
        here, there = world.desks
        await world.lane(here, "queue:x")
        heard: list[Command] = []
        say = there.clients.multicast
        there.clients.multicast = lambda fact: (heard.append(fact), say(fact))  # type: ignore[assignment, func-returns-value]
        await world.cut([0, 1], [0, 1])
        await world.until(lambda: len(world.leaders()) == 2, "each part has a primary")
        theirs = await world.lane(there, "queue:x")
        await world.send(there, theirs, 20)
        published = [fact for fact in heard if isinstance(fact, Published)]
        for fact in published[: len(published) // 2]:
            here.clients.multicast(
                Published(fact.address, parse_trusted(fact.block.buffer or b""), resent=True)
            )
        await world.rest()
        taker = there.taker("queue:x", "client", alone=False, credit=40)
        await world.until(lambda: len(taker.tags) == 20, "all of it")
        there._settle(taker, sorted(taker.tags)[3:6], request=True)
        await world.until(lambda: not there.waiting, "that is stored")
        there.detach(taker)
        await world.until(lambda: not there.waiting, "it left")
        await meet(world)
        await world.take_all(here, {"queue:x": "queue:x"})

    play(story, tmp_path)


@pytest.mark.req("P6", "P7")
def test_a_gap_that_another_part_has_is_filled(tmp_path: Path) -> None:
    """Its sender was told yes there, moved, and went on here."""

    async def story(world: Parts) -> None:
        here, there = world.desks
        theirs = await world.lane(there, "queue:x")
        await world.send(there, theirs, 3)
        await with_gap(world, theirs)
        await meet(world)
        manager = world.nodes[0].manager
        assert not manager.catalogue.by_address[theirs.address].intake.apart.missing
        await world.take_all(here, {"queue:x": "queue:x"})

    play(story, tmp_path)


@pytest.mark.req("P6", "P7")
def test_what_filled_a_gap_is_told_again_by_a_log_that_is_cut_off_in_its_turn(tmp_path: Path) -> None:
    async def story(world: Parts) -> None:
        here, there = world.desks
        theirs = await world.lane(there, "queue:x")
        await world.cut([0, 1, 0], [0, 1])
        await world.until(lambda: len(world.leaders()) == 2, "each part has a primary")
        await world.send(there, theirs, 4)
        await with_gap_filled_apart(world, theirs)
        await world.send(here, theirs, 2)
        await meet(world)
        await world.take_all(here, {"queue:x": "queue:x"})

    play(story, tmp_path, nodes=3)


@pytest.mark.req("P6", "P7")
def test_what_is_done_in_a_gap_is_told_again_by_a_log_that_is_cut_off_in_its_turn(tmp_path: Path) -> None:
    """One that was down meanwhile comes last, and has it waiting."""

    async def story(world: Parts) -> None:
        here, there = world.desks
        theirs = await world.lane(there, "queue:x")
        await world.cut([0, 1, 0, 1], [0, 1])
        await world.until(lambda: len(world.leaders()) == 2, "each part has a primary")
        await world.send(there, theirs, 4)
        second, last = world.nodes[1], world.nodes[3]
        await world.until(lambda: last.manager.place.index == second.manager.place.index, "both have it")
        taker = there.taker("queue:x", "client", alone=False, credit=4)
        await world.until(lambda: len(taker.tags) == 4, "all of it is with a consumer")
        await last.die(0)
        there._settle(taker, sorted(taker.tags), request=True)
        await world.until(lambda: not there.waiting, "it is done")
        await with_gap_filled_apart(world, theirs)
        await world.send(here, theirs, 2)
        await meet(world)
        await last.start()
        await world.settled()
        world.compare()
        await world.take_all(here, {"queue:x": "queue:x"})

    play(story, tmp_path, nodes=4)


async def with_gap_filled_apart(world: Parts, sender: Sender) -> None:
    """A sender whose first four messages were accepted there goes on here, with five. Then another cut: the third
    manager, which was here, meets the second and takes in what it had. Of the lane its log knew only the end."""
    here, there = world.desks
    first, second, third = world.nodes[:3]
    await move(world, sender, here)
    await world.send(here, sender, 5)
    await world.until(lambda: third.manager.place.index == first.manager.place.index, "both have it")
    world.lose(there)
    await world.cut([0, *([1] * (len(world.nodes) - 1))], [0])
    await world.until(lambda: first.is_leading and third.is_leading, "each part has a primary")
    await world.until(lambda: not missing_in(third, sender), "it takes in what the other had")
    await world.until(lambda: not world.branches(second), "that is not kept any more")
    assert missing_in(first, sender) == ((1, 4),)


def missing_in(node: Node, sender: Sender) -> Ranges:
    """Which sequences of a lane another part has."""
    intake = node.manager.catalogue.by_address[sender.address].intake
    return intake.apart.missing.get(sender.lane, NONE)


async def with_gap(world: Parts, sender: Sender) -> None:
    """The network is cut. Messages 4 to 7 of a sender were accepted there, and the five behind them here."""
    here, there = world.desks
    await world.cut([0, 1, *([0] * (len(world.nodes) - 2))], [0, 1])
    await world.until(lambda: len(world.leaders()) == 2, "each part has a primary")
    await world.send(there, sender, 4)
    await move(world, sender, here)
    await world.send(here, sender, 5)
    destination = world.nodes[0].manager.catalogue.by_address[sender.address]
    assert destination.intake.apart.missing == {sender.lane: ((4, 7),)}


async def move(world: Parts, sender: Sender, desk: Desk) -> None:
    """A client goes on elsewhere."""
    request = desk._request("session", desk._no_rejection)
    desk.clients.multicast(SessionResumed(request, sender.session, "somebody", b"token"))
    await world.until(lambda: not desk.waiting, "resumed")
    desk.senders[sender.lane] = sender


@pytest.mark.req("P6", "P7", "U1")
@pytest.mark.parametrize(("address", "of"), [("queue:x", "queue:x"), ("topic:x", "subscription")])
def test_a_gap_is_filled_before_what_a_lost_machine_may_have_handed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, of: str
) -> None:
    """Who lost its machine marks all that waits. What is behind the gap was held back, and cannot have gone: it makes
    way for what was missing, and comes marked."""

    async def story(world: Parts) -> None:
        here, there = world.desks
        theirs = await world.lane(there, address, "unit")
        if of != address:
            there.detach(there.taker(address, "client", alone=False, subscription=of, credit=1))
            await world.until(lambda: not there.waiting, "subscribed")
        await world.send(there, theirs, 3)
        await with_gap(world, theirs)
        first = world.nodes[0]
        await first.die(0)
        monkeypatch.setattr(Clock, "boot_id", lambda _: b"another")
        await first.start()
        await world.until(lambda: first.is_leading, "it leads again")
        await meet(world)
        world.lose(here)  # it heard what its primary does not know any more
        await world.take_all(world.add_desk(0), {of: address})
        behind = [each for each in world.judge.letters.values() if each.sequence > 7]
        assert len(behind) == 5
        assert all("marked" in each.copies[of].history[0] for each in behind)

    play(story, tmp_path)


async def lose_the_machine(node: Node, disk: Path, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all that was written since `kept` was taken of its disk. It has started anew."""
    await node.die(0)
    shutil.rmtree(disk)
    kept.rename(disk)
    monkeypatch.setattr(Clock, "boot_id", lambda _: b"another")


@pytest.mark.req("M8", "P6")
@pytest.mark.parametrize(
    ("address", "of", "given"), [("queue:x", "queue:x", 4), ("topic:x", "subscription", 7)]
)
def test_what_a_part_handed_out_comes_marked_though_its_machine_was_lost_with_the_note_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, of: str, given: int
) -> None:
    """What it gave to nobody does not: of a queue, what was sent before the cut."""

    async def story(world: Parts) -> None:
        here, there = world.desks
        second, disk, kept = world.nodes[1], tmp_path / "n2", tmp_path / "kept"
        name = "" if of == address else of
        former, present = await world.lane(there, address), await world.lane(there, address)
        there.detach(there.taker(address, "client", alone=False, subscription=name))
        await world.until(lambda: not there.waiting, "a subscriber was there")
        await world.send(there, former, 3)
        await world.cut([0, 1], [0, 1])
        await world.until(lambda: len(world.leaders()) == 2, "each part has a primary")
        await world.send(there, present, 4)
        shutil.copytree(disk, kept)
        taker = there.taker(address, "client", alone=False, subscription=name, credit=40)
        await world.until(lambda: len(taker.tags) == given, "somebody has what may go")
        await lose_the_machine(second, disk, kept, monkeypatch)
        world.lose(there)
        await world.heal()
        await second.start()
        await world.settled()
        world.compare()
        await world.take_all(here, {of: address})
        letters = [each.copies[of] for each in world.judge.letters.values()]
        assert [copy.times for copy in letters] == [1] * (7 - given) + [2] * given
        marked = ["marked" in " ".join(copy.history) for copy in letters]
        assert marked == [False] * (7 - given) + [True] * given

    play(story, tmp_path)


@pytest.mark.req("M8", "P6")
def test_who_leads_a_part_has_that_on_its_disk_before_it_hands_anything_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine is lost with all that was written since: what it may have handed out comes marked all the same."""
    disk, kept, regate = tmp_path / "n2", tmp_path / "kept", Replica.regate

    def keeps_the_disk(self: Replica) -> None:
        roles = self.roles
        if (
            self.name == "1.2"
            and roles is not None
            and roles.partition.state is State.D
            and not kept.exists()
        ):
            shutil.copytree(disk, kept)
        regate(self)

    monkeypatch.setattr(Replica, "regate", keeps_the_disk)

    async def story(world: Parts) -> None:
        here, there = world.desks
        second = world.nodes[1]
        sender = await world.lane(there, "topic:x")
        there.detach(there.taker("topic:x", "client", alone=False, subscription="subscription"))
        await world.until(lambda: not there.waiting, "a subscriber was there")
        await world.send(there, sender, 3)
        await second.die(0)
        await world.cut([0, 1], [0, 1])
        await second.start()
        await world.until(lambda: len(world.leaders()) == 2, "each part has a primary")
        world.lose(there)
        other = world.add_desk(1)
        taker = other.taker("topic:x", "client", alone=False, subscription="subscription", credit=40)
        await world.until(lambda: len(taker.tags) == 3, "the subscriber of that part has all")
        await lose_the_machine(second, disk, kept, monkeypatch)
        world.lose(other)
        await world.heal()
        await second.start()
        await world.settled()
        await world.take_all(here, {"subscription": "topic:x"})
        copies = [each.copies["subscription"] for each in world.judge.letters.values()]
        assert len(copies) == 3
        assert all("marked" in " ".join(copy.history) for copy in copies)

    play(story, tmp_path)


@pytest.mark.req("P4", "P6")
def test_a_durable_subscription_gets_what_either_part_published_once(tmp_path: Path) -> None:
    async def story(world: Parts) -> None:
        here, there = world.desks
        ours, theirs = await world.lane(here, "topic:news"), await world.lane(there, "topic:news")
        both = there.taker("topic:news", "client", alone=False, subscription="both", credit=40)
        slow = there.taker("topic:news", "client", alone=False, subscription="slow", credit=1)
        await world.until(lambda: not there.waiting, "subscribed")
        await world.send(there, theirs, 4)
        await world.cut([0, 1], [0, 1])
        await world.until(lambda: len(world.leaders()) == 2, "each part has a primary")
        young = there.taker("topic:news", "client", alone=False, subscription="young", credit=1)
        await world.until(lambda: not there.waiting, "subscribed")
        await world.send(here, ours, 6)
        await world.send(there, theirs, 6)
        await world.until(lambda: len(both.tags) == 10, "it has all of its part")
        there._settle(both, sorted(both.tags)[:7], request=True)
        await world.until(lambda: not there.waiting, "that is stored")
        for taker in (both, slow, young):
            there.detach(taker)
        await world.until(lambda: not there.waiting, "they left")
        await meet(world)
        await world.take_all(here, {"both": "topic:news", "slow": "topic:news"})
        here.taker("topic:news", "auto", alone=False, subscription="young", credit=40)
        late = [
            each for each in world.judge.letters.values() if each.lane == theirs.lane and each.sequence > 4
        ]
        await world.until(lambda: all("young" in each.copies for each in late), "what followed its beginning")

    play(story, tmp_path)


@pytest.mark.req("P6")
@pytest.mark.parametrize("is_old", [False, True], ids=["younger than the account", "older than the account"])
def test_what_a_subscriber_saw_in_one_part_comes_marked_though_another_has_it_unseen(
    tmp_path: Path, is_old: bool
) -> None:
    """A topic's messages go out in every part. Whoever was given one here, and never saw it, gives it back without a
    mark; but in the other part somebody saw it."""

    async def story(world: Parts) -> None:
        here, there = world.desks
        theirs = await world.lane(there, "topic:news")
        first = there.taker("topic:news", "client", alone=False, subscription="both", credit=40)
        await world.until(lambda: not there.waiting, "subscribed")
        there.detach(first)
        await world.until(lambda: not there.waiting, "nobody consumes")
        await world.send(there, theirs, 4)
        for _ in range(2 * is_old):  # the cluster is whole twice
            await world.cut([0, 1], [0, 0])
            await world.until(lambda: len(world.leaders()) == 1, "it goes on alone")
            await world.send(there, theirs, 1)
            await world.heal()
            await world.settled()
            await world.until(
                lambda: has_begun_anew(world.leaders()[0], "topic:news"), "the cluster is whole"
            )
        await world.cut([0, 1], [0, 1])
        await world.until(lambda: len(world.leaders()) == 2, "each part has a primary")
        unseen = here.taker("topic:news", "client", alone=False, subscription="both", credit=40)
        del here.takers[unseen.consumer]  # what it is given lies in its library
        seeing = there.taker("topic:news", "client", alone=False, subscription="both", credit=40)
        await world.until(lambda: len(seeing.tags) == 4 + 2 * is_old, "it sees what its part has")
        await world.until(lambda: not here.waiting, "the other has as much")
        there.detach(seeing)
        await world.until(lambda: not there.waiting, "it left")
        await meet(world)
        leave = ConsumerDetached(
            unseen.address, unseen.consumer, here._request("leaving", here._no_rejection), 0
        )
        here.clients.multicast(leave)
        await world.until(lambda: not here.waiting, "what it never saw went back")
        await world.take_all(here, {"both": "topic:news"})

    play(story, tmp_path)


@pytest.mark.req("P6")
def test_destinations_of_one_part_are_there_for_all(tmp_path: Path) -> None:
    """Made in one part, in both, and deleted in one while the other went on with it."""

    async def story(world: Parts) -> None:
        here, there = world.desks
        dropped = await world.lane(here, "queue:dropped")
        kept = await world.lane(here, "queue:kept")
        await world.send(here, dropped, 4)
        await world.send(here, kept, 4)
        await world.cut([0, 1], [0, 1])
        await world.until(lambda: len(world.leaders()) == 2, "each part has a primary")
        there.clients.multicast(DestinationDeleted(dropped.address))
        there.clients.multicast(DestinationDeleted(kept.address))
        await world.send(here, kept, 3)
        for desk in (here, there):
            await world.send(desk, await world.lane(desk, "queue:both"), 5)
        await world.send(there, await world.lane(there, "queue:theirs"), 5)
        await world.rest()
        await meet(world)
        catalogue = world.nodes[0].manager.catalogue
        assert dropped.address not in catalogue.by_address
        for letter in world.judge.letters.values():
            if letter.address == dropped.address or (letter.address == kept.address and letter.sequence <= 4):
                letter.confirmed = False  # it was deleted
        lists = ("queue:kept", "queue:both", "queue:theirs")
        await world.take_all(here, {each: each for each in lists})
        assert all(
            each.sequence > 4
            for each in world.judge.letters.values()
            if each.lane == kept.lane and each.copies
        )

    play(story, tmp_path)


@pytest.mark.req("P6", "P9")
def test_three_parts_meet_one_after_the_other(tmp_path: Path) -> None:
    async def story(world: Parts) -> None:
        lanes = [await world.lane(desk, "queue:x") for desk in world.desks]
        for desk, lane in zip(world.desks, lanes, strict=True):
            await world.send(desk, lane, 3)
        await world.cut([0, 1, 2], [0, 1, 2])
        await world.until(lambda: len(world.leaders()) == 3, "each part has a primary")
        for desk, lane in zip(world.desks, lanes, strict=True):
            await world.send(desk, lane, 8)
        world.lose(world.desks[2])
        await world.cut([0, 1, 1], [0, 1])
        await world.until(lambda: len(world.leaders()) == 2, "two parts")
        await world.send(world.desks[0], lanes[0], 3)
        # Its primary may be another by now: its client manager is left behind then, and begins anew.
        world.lose(world.desks[1])
        other = world.add_desk(1)
        await world.send(other, await world.lane(other, "queue:x"), 3)
        await meet(world)
        await world.take_all(world.desks[0], {"queue:x": "queue:x"})

    play(story, tmp_path, nodes=3, desks=3)


def has_begun_anew(node: Node, address: str) -> bool:
    """Whether the ledger counts from the next message on: the cluster has been whole since the last one came."""
    catalogue = node.manager.catalogue
    found = catalogue.by_address[Address(address)]
    return catalogue.ledger.last_base_of(found.number) == found.intake.next_number


async def meet(world: Parts) -> None:
    """The client managers of other parts end, and the cut heals."""
    for desk in world.desks[1:]:
        world.lose(desk)
    await world.heal()
    await world.settled()
    world.compare()


# ---- whoever crashes when


async def with_branch(world: Parts) -> Desk:
    """Each part has accepted something, one message of the other is done and one is with a consumer. Its client
    manager is gone; the cut has not healed."""
    here, there = world.desks[:2]
    ours, theirs = await world.lane(here, "queue:x"), await world.lane(there, "queue:x")
    await world.send(here, ours, 5)
    await world.cut([0, 1, *([0] * (len(world.nodes) - 2))], [0, 1])
    await world.until(lambda: len(world.leaders()) == 2, "each part has a primary")
    await world.send(here, ours, 5)
    await world.send(there, theirs, 40)
    await world.send(there, await world.lane(there, "queue:there"), 10)
    taker = there.taker("queue:there", "client", alone=False, credit=2)
    await world.until(lambda: len(taker.tags) == 2, "two are with a consumer")
    there._settle(taker, [min(taker.tags)], request=True)
    await world.until(lambda: not there.waiting, "one is done")
    world.lose(there)
    return here


LISTS = {"queue:x": "queue:x", "queue:there": "queue:there"}


async def in_the_end(world: Parts, here: Desk) -> None:
    for node in world.nodes:
        if node.server is None:
            await node.start()
    await world.settled()
    world.compare()
    await world.take_all(here, LISTS)


@pytest.mark.req("P4", "P6", "P9")
@pytest.mark.parametrize("times", [1, 2])
def test_what_is_in_doubt_stays_so_though_all_who_knew_of_it_ended(tmp_path: Path, times: int) -> None:
    async def story(world: Parts) -> None:
        here, there = world.desks
        ours = await world.lane(here, "queue:x")
        taker = there.taker("queue:x", "client", alone=False, credit=3, number=1)
        await world.send(here, ours, 5)
        await world.until(lambda: len(taker.tags) == 3, "some are with a client")
        await world.cut([0, 1], [0, 1])
        await world.until(lambda: len(world.leaders()) == 2, "each part has a primary")
        await world.until(lambda: world.nodes[0].is_in_force, "one goes on with everything")
        there._settle(taker, sorted(taker.tags)[:2], request=True)
        await world.until(lambda: not there.waiting, "that is stored, in the other part")
        for _ in range(times):
            await world.nodes[0].die(1000)
            await world.nodes[0].start()
            await world.until(lambda: world.nodes[0].is_in_force, "it goes on from its journal")
        late = world.add_desk(0)  # clients come anew when all who led have ended
        others = late.taker("queue:x", "client", alone=False, credit=40)
        await world.until(lambda: len(others.tags) == 2, "it gets what waited")
        await world.rest(0.1)
        late.detach(others)
        await world.until(lambda: not late.waiting, "it left")
        world.lose(here)
        world.lose(there)
        await world.heal()
        await world.settled()
        world.compare()
        await world.take_all(late, {"queue:x": "queue:x"})

    play(story, tmp_path)


@pytest.mark.req("P6", "P9")
def test_a_manager_that_dies_with_its_branch_set_aside_and_its_log_not_cut_begins_again(
    tmp_path: Path,
) -> None:
    """It may go on alone, restricted: what it accepts now is handed out, what the file says is waiting stays so."""

    async def story(world: Parts) -> None:
        here = await with_branch(world)
        _, second = world.nodes
        cut = Replica._cut

        def dies(_self: Replica, _index: int) -> MessageManager:
            raise Unavailable("as if it died here", code="test")

        Replica._cut = dies  # type: ignore[method-assign, assignment]
        try:
            await world.heal()
            await world.until(lambda: bool(world.branches(second)), "it is set aside")
            await second.die(0)
        finally:
            Replica._cut = cut  # type: ignore[method-assign]
        await world.cut([0, 1], [0])
        await second.start()
        await world.until(lambda: second.is_leading, "it leads alone")
        await world.rest()
        there = world.add_desk(1)
        assert not world.branches(second), "what its log has need not be offered"
        await world.send(there, await world.lane(there, "queue:there"), 9)
        taker = there.taker("queue:there", "client", alone=False, credit=20)
        await world.until(lambda: len(taker.tags) == 9, "what came in this view")
        there._settle(taker, sorted(taker.tags)[:5], request=True)
        await world.until(lambda: not there.waiting, "that is stored")
        assert second.manager.catalogue.by_address[Address("queue:there")].figures().held_back == 9
        world.lose(there)
        await world.heal()
        await in_the_end(world, here)

    play(story, tmp_path)


@pytest.mark.req("P6", "P9")
@pytest.mark.parametrize("records", [1, 3, 10, 25])
def test_a_primary_that_dies_while_it_takes_in_a_branch_leaves_the_rest_to_the_next(
    tmp_path: Path, records: int
) -> None:
    async def story(world: Parts) -> None:
        here = await with_branch(world)
        first, _, third = world.nodes
        with dying_after(records) as written:
            await world.heal()
            await world.until(lambda: written[0] >= records, "it has written some of it")
        await first.die(world.dice.choice((0, 1, 1000)))
        await world.until(lambda: bool(world.leaders()), "another leads")
        await in_the_end(world, here)
        assert third.server is not None

    play(story, tmp_path, nodes=3)


@pytest.mark.req("P6", "P7", "P9")
@pytest.mark.parametrize("goes_back", [False, True])
def test_a_gap_is_not_filled_without_what_has_to_make_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, goes_back: bool
) -> None:
    """The primary dies when what was missing is written, and nothing of what waited behind it has a new place. To the
    next one a gap that is filled is no gap: it would let that be where it is."""
    publish_again = Merger._publish_again
    monkeypatch.setattr(merger, "_BATCH", 1)

    async def story(world: Parts) -> None:
        first = world.nodes[0]
        said: list[int] = []

        def falls_silent(self: Merger, *arguments: Any) -> None:
            if not said:
                assert first.server is not None
                assert first.server.member._stay is not None
                said.append(len(first.server.member._stay.membership.outbox))  # type: ignore[attr-defined]
                first.mute()
            publish_again(self, *arguments)

        monkeypatch.setattr(Merger, "_publish_again", falls_silent)
        here, there = world.desks
        theirs = await world.lane(there, "queue:x")
        await world.send(there, theirs, 3)
        await with_gap(world, theirs)
        if goes_back:  # what is behind the gap makes way, but not for this
            await move(world, theirs, there)
            await world.send(there, theirs, 3)
        world.lose(there)
        await world.heal()
        await world.until(lambda: bool(said), "it has written what was missing")
        await first.die(said[0])
        await world.settled()
        await first.start()
        await world.settled()
        world.lose(here)
        await world.take_all(world.add_desk(0), {"queue:x": "queue:x"})

    play(story, tmp_path, nodes=3)


@pytest.mark.req("P6", "P9")
@pytest.mark.parametrize("records", [1, 5, 20])
def test_a_view_that_ends_during_a_merge_ends_the_merge(tmp_path: Path, records: int) -> None:
    async def story(world: Parts) -> None:
        here = await with_branch(world)
        with dying_after(records) as written:
            await world.heal()
            await world.until(lambda: written[0] >= records, "it has written some of it")
            await world.cut([0, 1, 0], [0])
            await world.until(lambda: len(world.leaders()) == 2, "each part has a primary")
        more = await world.lane(here, "queue:x")
        await world.send(here, more, 5)
        await world.heal()
        await in_the_end(world, here)

    play(story, tmp_path, nodes=3)


@pytest.mark.req("P6", "P9")
def test_a_manager_that_dies_before_it_hears_that_all_is_there_offers_it_again(tmp_path: Path) -> None:
    async def story(world: Parts) -> None:
        here = await with_branch(world)
        first, second = world.nodes
        remove = Branches.remove
        Branches.remove = lambda *_: None  # type: ignore[method-assign]
        try:
            await world.heal()
            await world.until(lambda: bool(world.branches(second)), "it is set aside")
            (branch,) = world.branches(second)
            ledger = first.manager.catalogue.ledger
            await world.until(
                lambda: ledger.has_merged(branch) or has_merged(first, branch), "it is taken in"
            )
            await second.die(0)
        finally:
            Branches.remove = remove  # type: ignore[method-assign]
        await in_the_end(world, here)

    play(story, tmp_path)


def has_merged(node: Node, branch: bytes) -> bool:
    return node.manager.catalogue.ledger.has_merged(branch)


@contextlib.contextmanager
def dying_after(records: int) -> Iterator[list[int]]:
    """A merge that gets no further than so many records."""
    written = [0]
    write, rest = Merger._write, asyncio.Event()

    def some(self: Merger, *arguments: Any, **named: Any) -> None:
        write(self, *arguments, **named)
        written[0] += 1

    async def waits(self: Merger, *arguments: Any) -> None:
        if written[0] >= records:
            self._end_of_tick()
            await rest.wait()
        await join(self, *arguments)

    join = Merger._join
    Merger._write, Merger._join = some, waits  # type: ignore[method-assign, assignment]
    try:
        yield written
    finally:
        Merger._write, Merger._join = write, join  # type: ignore[method-assign]
        rest.set()


@pytest.mark.req("P6")
def test_what_is_told_is_the_difference_whatever_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reunion, "WHOLE_EVERY_RECORDS", 20)
    aside: list[Branch] = []
    set_aside = Branches.set_aside

    async def notes(self: Branches, manager: MessageManager, fork: int) -> Branch:
        aside.append(await set_aside(self, manager, fork))
        return aside[-1]

    monkeypatch.setattr(Branches, "set_aside", notes)

    async def story(world: Parts) -> None:
        here, there = world.desks
        theirs = await world.lane(there, "queue:x")
        await world.send(there, theirs, 600)
        for _ in range(3):  # the cluster says that it is whole, and once more
            await world.send(there, await world.lane(there, "queue:other"), 60)
        await world.settled()
        await world.cut([0, 1], [0, 1])
        await world.until(lambda: len(world.leaders()) == 2, "each part has a primary")
        await world.send(there, theirs, 4)
        await meet(world)
        accounts = [
            account for branch in aside for account in branch.accounts if account.address == "queue:x"
        ]
        bodies = [body for account in accounts for each in account.bodies.values() for body in each]
        assert sum(body.last - body.first + 1 for body in bodies) == 4
        assert all(ranges == ((601, 604),) for account in accounts for ranges in account.known.values())
        await world.take_all(here, {"queue:x": "queue:x", "queue:other": "queue:other"})

    play(story, tmp_path)


@pytest.mark.req("P6")
def test_what_came_from_another_part_is_held_until_the_cluster_is_whole(tmp_path: Path) -> None:
    """Who hands out decides by it; a WHOLE record ends it."""

    async def story(world: Parts) -> None:
        here, there = world.desks
        theirs = await world.lane(there, "queue:x")
        await world.cut([0, 1, 0], [0, 1])
        await world.until(lambda: len(world.leaders()) == 2, "each part has a primary")
        await world.send(there, theirs, 4)
        third = world.nodes[2]
        await third.die(0)
        world.lose(there)
        await world.heal()
        await world.until(lambda: world.is_one, "one log")
        queue = world.leaders()[0].manager.catalogue.by_address[theirs.address]
        held = queue.stamps.held[theirs.lane]
        assert (held.first, held.last) == (1, 4), "one is missing"
        await third.start()
        await world.settled()
        await world.until(lambda: not queue.stamps.held, "the cluster is whole")
        world.compare()
        await world.take_all(here, {"queue:x": "queue:x"})

    play(story, tmp_path, nodes=3)


# ---- bugs that could be


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("plant", "story"),
    [
        (
            plants.a_subscription_gets_what_it_is_done_with,
            test_a_durable_subscription_gets_what_either_part_published_once,
        ),
        (plants.what_waits_behind_a_gap_goes_first, test_a_gap_that_another_part_has_is_filled),
        (
            plants.numbers_are_compared_that_are_not_common,
            test_what_each_part_accepted_is_there_once_when_they_meet,
        ),
    ],
    ids=lambda each: each.__name__,
)
def test_a_planted_bug_breaks_its_story(
    plant: plants.Plant, story: Callable[[Path], None], tmp_path: Path
) -> None:
    with plant(), pytest.raises(AssertionError):
        story(tmp_path)


@pytest.mark.req("J2", "J4", "M9", "P6")
def test_what_was_stored_in_a_view_without_a_backup_and_not_heard_there_is_confirmed_when_a_backup_of_the_next_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A "yes" counts by the marks of one view (PROTOCOL 5). It was decided where nobody had come straight along with
    the primary, and would be heard where somebody has."""

    async def story(world: Parts) -> None:
        (desk,), (first, second) = world.desks, world.nodes
        sender = await world.lane(desk, "queue:x")
        await world.send(desk, sender, 1)
        taker = desk.taker("queue:x", "client", alone=False, credit=1)
        await world.until(lambda: bool(taker.tags), "a message")
        leading, following = _sides(first, second)
        with monkeypatch.context() as silent:
            silent.setattr(following, "say_stored", lambda: None)
            desk.send(sender, count=1)
            desk._settle(taker, list(taker.tags), request=True)
            await world.rest()
            assert sender.waiting, "a backup has not said that it has it"
            await world.cut([0, 1], [0])
            await world.heal()
            await _frame_by_frame(world, lambda: not leading.backups, "a view without a backup")
            await _frame_by_frame(world, lambda: bool(leading._flying), "it says what it decided there")
            members = len(world.bus.members)
            world.add_desk(0)
            while len(world.bus.members) == members:  # before what is said in that view is heard
                await asyncio.sleep(0)
            await world.until(lambda: first.backups == [second.incarnation], "a view with one")
            await world.rest()
            assert first.manager.journal.is_all_stored, "the primary's disk has everything"
            assert sender.waiting, "the message is not confirmed"
            assert desk.waiting, "nor is the acknowledgement"
        following.say_stored()
        await world.until(lambda: not sender.waiting, "the message is confirmed")
        await world.until(lambda: not desk.waiting, "the acknowledgement too")

    play(story, tmp_path, desks=1)


async def _frame_by_frame(world: Parts, condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        await world.breathe(frames=1)


def _sides(first: Node, second: Node) -> tuple[Leading, Following]:
    """Of one that leads and one that follows."""
    assert first.server is not None
    assert second.server is not None
    assert first.server.replica is not None
    assert second.server.replica is not None
    leading, following = first.server.replica.leading, second.server.replica.following
    assert leading is not None
    assert following is not None
    return leading, following
