"""What was found once, told as stories: message managers that replicate, between whose frames anything can happen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from heliograph.bus.commands import (
    Answered,
    CommitStateAsked,
    ConsumerAttached,
    Rejected,
    RollbackAsked,
    SessionLost,
)
from heliograph.destinations.transactions import Key
from heliograph.model.claim import Claim
from heliograph.model.destination import Address
from heliograph.nodes import message_manager, preparing
from tests.properties.replicated_bus import SlowMember
from tests.properties.replicated_desk import HERE, PHASES, THERE, Desk, Sender
from tests.properties.replicated_judge import Violation
from tests.properties.replicated_managers import Node, knowledge
from tests.properties.replicated_plants import a_log_is_not_cut_at_the_fork
from tests.properties.replicated_world import WORK, Worker, World

Story = Callable[[World], Awaitable[None]]


@pytest.fixture
def doubts_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_manager, "_SWEEP_SECONDS", 0.05)
    monkeypatch.setattr(preparing, "IN_DOUBT_SECONDS", 0.2)
    monkeypatch.setattr(preparing, "ASK_AGAIN_SECONDS", 0.1)


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


@pytest.mark.req("J2", "J4", "M9")
def test_whoever_takes_over_confirms_its_first_messages_when_a_backup_has_them_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it handles first was said before it led, and is on its own disk before it hears anything of the view's
    backup (PROTOCOL 5)."""

    async def story(world: World) -> None:
        first, second, third = world.nodes
        await follows(world, second, first)
        await follows(world, third, first)
        sender = await lane(world, "queue:shared", "plain")
        taker = world.desk.taker("queue:shared", "client", alone=False, credit=1)
        world.desk.send(sender, count=1)
        await world.until(lambda: bool(taker.tags), lambda: "a message")
        await world.quiet()
        first.mute()  # it writes what nobody hears of
        world.desk.send(sender, count=1)
        world.desk._settle(taker, list(taker.tags), request=True)
        await world.quiet()
        assert second.server is not None
        assert third.server is not None
        assert third.server.replica is not None
        following = third.server.replica.following
        assert following is not None
        with monkeypatch.context() as silent:
            silent.setattr(following, "say_stored", lambda: None)
            await first.die(0)
            await world.until(lambda: second.is_leading and second.is_in_force, lambda: "the second leads")
            await world.quiet()
            assert second.backups == [third.incarnation]
            assert second.manager.journal.is_all_stored, "its own disk has everything"
            assert sender.waiting, "the message is not confirmed"
            assert world.desk.waiting, "nor is the acknowledgement"
        following.say_stored()
        await world.until(lambda: not sender.waiting, lambda: "the message is confirmed")
        await world.until(lambda: not world.desk.waiting, lambda: "the acknowledgement too")

    play(story, tmp_path)


@pytest.mark.req("M8", "M9")
def test_a_subscriber_that_went_before_it_was_answered_is_not_asked_for_again_when_another_leads(
    tmp_path: Path,
) -> None:
    """It came back, and went again while that was being stored. Nobody would say once more that it went, and its
    subscription would be in use for ever."""

    async def story(world: World) -> None:
        first, second, _ = world.nodes
        await follows(world, second, first)
        desk, answers = world.desk, list[str]()
        sender = await lane(world, "topic:news", "plain")
        taker = desk.taker("topic:news", "client", alone=True, subscription="news", number=1)
        await world.quiet()
        second.mute()  # the first does not hear that anything is stored, and does not answer
        desk.send(sender, count=1)
        request = desk._request("back", lambda _: answers.append("back"))
        address, session = Address("topic:news"), taker.session
        back = ConsumerAttached(
            request, address, taker.consumer, session, 5, subscription="news", client="client", durable=True
        )
        desk.clients.multicast(SessionLost(session, 5.0))
        desk.clients.multicast(replace(back, number=1, claim=Claim([], [], 0)))
        await world.quiet()
        desk.clients.multicast(SessionLost(session))
        await world.quiet()
        assert not answers
        await first.die(0)
        second.mute(False)
        await world.until(lambda: second.is_leading and second.is_in_force, lambda: "the second leads")
        await world.quiet()
        then = partial(answers.append, "another")
        desk.taker("topic:news", "client", alone=True, subscription="news", then=then)
        await world.quiet()
        assert answers == ["another"]

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
        member_of(world, slow).is_frozen = True
        await second.start()
        await world.until(lambda: bool(other.tags), lambda: "another has it")
        (letter,) = world.judge.letters.values()
        assert letter.copies["queue:units"].times == 2
        assert slow not in world.desks, "its clients went elsewhere"

    play(story, tmp_path)


@pytest.mark.req("U2", "M9")
def test_what_is_behind_a_message_that_was_returned_goes_to_another_before_its_consumer_hears_so(
    tmp_path: Path,
) -> None:
    """It goes back with it, and whoever returned it hands over nothing more of the unit until it hears what."""

    async def story(world: World) -> None:
        sender = await lane(world, "queue:units", "plain")
        slow = world._add_desk()
        taker = slow.taker("queue:units", "client", alone=False, credit=2)
        await world.quiet()
        world.desk.send(sender, count=2, unit=7)
        await world.until(lambda: len(taker.tags) == 2, lambda: "one has both")
        other = world.desk.taker("queue:units", "client", alone=False, credit=2)
        await world.quiet()
        member_of(world, slow).is_frozen = True
        slow.give_back(taker, min(taker.tags))
        await world.until(lambda: len(other.tags) == 2, lambda: "another has both")
        assert taker.recalled_behind is not None, "the one has heard nothing"
        member_of(world, slow).is_frozen = False
        await world.until(lambda: taker.recalled_behind is None, lambda: "it has")
        assert not taker.tags

    play(story, tmp_path)


@pytest.mark.req("M8", "M9")
def test_what_clients_have_of_a_client_manager_that_is_expelled_goes_to_another_marked(
    tmp_path: Path,
) -> None:
    async def story(world: World) -> None:
        sender = await lane(world, "queue:shared", "plain")
        silent = world._add_desk()
        taker = silent.taker("queue:shared", "client", alone=False, credit=1)
        await world.quiet()
        world.desk.send(sender, count=1)
        await world.until(lambda: bool(taker.tags), lambda: "one has it")
        other = world.desk.taker("queue:shared", "client", alone=False, credit=1)
        await world.quiet()
        member_of(world, silent).is_mute = True
        await world.until(lambda: bool(other.tags), lambda: "another has it")
        assert silent not in world.desks, "its clients went elsewhere"

    play(story, tmp_path)


def test_what_a_worker_has_that_comes_while_everything_is_taken_is_taken_too(tmp_path: Path) -> None:
    """It is about the world itself: one client manager takes the place of another at the very end of a run."""

    async def story(world: World) -> None:
        sender = await lane(world, WORK, "plain")
        world.desk.send(sender, count=1)
        world._open_desk()
        (worker,) = world._workers
        await world.until(lambda: bool(worker.taker.tags), lambda: "work")
        (letter,) = world.judge.letters.values()
        world._attend_all()
        await world.until(lambda: letter.copies[WORK].is_acknowledged, lambda: "somebody else takes it")

    play(story, tmp_path)


@pytest.mark.req("M10", "P8")
def test_a_promise_that_nobody_can_speak_of_in_a_part_that_was_cut_off_is_asked_about_again(
    tmp_path: Path, doubts_are_short: None
) -> None:
    """The client manager ends before it hears of the promise, and with it a backup: who goes on is restricted."""

    async def story(world: World) -> None:
        first, second, _ = world.nodes
        await follows(world, second, first)
        await committing(world, HERE)
        desk = world.desk
        member_of(world, desk).is_frozen = True
        await world.until(lambda: bool(promises(first)), lambda: "it is promised")
        await world.quiet()
        await second.die(0)
        world._replace(desk, 0)
        await world.until(lambda: world.desk.doubts > 2, lambda: "asked, and nobody can say")
        assert promises(first), "nor does anybody decide"
        await second.start()
        await world.until(lambda: not world._is_in_doubt(), lambda: "decided")

    play(story, tmp_path)


@pytest.mark.req("M10", "P8")
@pytest.mark.parametrize("decider", [HERE, THERE])
def test_a_promise_is_ended_that_its_client_manager_did_not_hear_of_before_its_part_was_cut_off(
    decider: str, tmp_path: Path, doubts_are_short: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hears that nobody can say, and goes on: the decider must not wait for it for ever."""
    monkeypatch.setattr(preparing, "TRANSACTION_PATIENCE_SECONDS", 1.0)

    async def story(world: World) -> None:
        first, second, _ = world.nodes
        others = [world._add_desk(), world._add_desk()]
        await follows(world, second, first)
        worker = await committing(world, decider, first.mute)
        await world.until(lambda: bool(promises(first)), lambda: "it is promised, and nobody hears that")
        await second.die(0)
        for desk in others:
            desk.die(0)
            world.desks.remove(desk)
        first.mute(False)
        await world.until(lambda: not world.desk.waiting_for(worker.session), lambda: "its client is told")
        assert world.desk.doubts, "that nobody can say"
        assert promises(first)
        await second.start()
        await world.until(lambda: not world._is_in_doubt(), lambda: "decided")

    play(story, tmp_path)


@pytest.mark.req("M9", "M10")
@pytest.mark.parametrize("decider", PHASES)
def test_what_was_promised_or_decided_is_told_to_nobody_before_a_backup_has_it(
    decider: str, tmp_path: Path
) -> None:
    """A commit is asked again, through another client manager, while the backup's disk is slow."""

    async def story(world: World) -> None:
        first, second, _ = world.nodes
        await follows(world, second, first)
        # The first does not hear that it has stored anything.
        worker = await committing(world, decider, second.mute)
        await world.quiet()
        answers = asks_for_state(world, worker)
        await world.quiet()
        assert not answers, "it is on one disk, as far as the first knows"
        second.mute(False)
        await world.until(lambda: bool(answers), lambda: "an answer")
        (answer,) = answers
        assert isinstance(answer, Answered)
        assert answer.body["state"] == ("prepared" if decider else "committed")

    play(story, tmp_path)


def asks_for_state(world: World, worker: Worker) -> list[Answered | Rejected]:
    """As a client manager does that knows nothing of the first time. What it hears comes into the list."""
    answers: list[Answered | Rejected] = []
    (number,) = [letter.transaction.number for letter in world.judge.letters.values() if letter.transaction]
    request = world.desk._request("what became of a commit", answers.append)
    world.desk.clients.multicast(CommitStateAsked(request, worker.session, number))
    return answers


def promises(node: Node) -> list[Key]:
    return list(node.manager.catalogue.transactions.prepared)


async def committing(world: World, decider: str, before: Callable[[], None] = lambda: None) -> Worker:
    """Somebody who has just asked for a commit in two phases. `before`: what happens before that."""
    worker = Worker(world.desk)
    await world.until(lambda: worker.sender.ready, lambda: "a lane")
    number = (PHASES.index(decider) - worker.session[-3]) % len(PHASES) + len(PHASES)
    world.desk.begin(worker.sender, number)
    world.desk.send(worker.sender, count=1)
    await world.quiet()
    before()
    world.desk.commit(worker.sender, [worker.taker])
    return worker


def member_of(world: World, desk: Desk) -> SlowMember:
    (found,) = [each for each in world.bus.members if each.incarnation == desk.member.incarnation]
    return found


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
