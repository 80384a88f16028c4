"""A cluster of message managers in one process, clients that do everything, and faults between any two frames."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from heliograph.model.ids import SessionId
from heliograph.model.limits import TRANSACTION_PATIENCE_SECONDS
from tests.properties.replicated_bus import SlowBus
from tests.properties.replicated_desk import Desk
from tests.properties.replicated_judge import Judge, Violation
from tests.properties.replicated_managers import Node, knowledge

PATIENCE_SECONDS = 40.0
QUEUES = {
    "queue:plain": ("plain", "auto", True),
    "queue:shared": ("mixed", "client", False),
    "queue:units": ("unit", "client", False),
    "queue:times": ("delayed", "client", True),
    "queue:late": ("expiring", "auto", True),
    "queue:ranks": ("priority", "client", True),
    "queue:light": ("volatile", "client", True),
}
TOPIC = "topic:news"
WORK = "queue:work"
RESULT = "queue:result"


class Worker:
    """A transacted session: takes work, sends results."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.session: SessionId = desk.session()
        self.sender = desk.sender(RESULT, "plain", self.session)
        self.taker = desk.taker(WORK, "transacted", alone=False, session=self.session, credit=5)
        self.number = 0

    def act(self, dice: Random) -> None:
        if self.sender.transaction is None:
            if self.desk.waiting_for(self.session):
                return
            self.number += 1
            self.desk.begin(self.sender, self.number)
        for _ in range(dice.randint(0, 2)):
            self.desk.send(self.sender)
        if dice.random() < 0.3:
            if dice.random() < 0.75:
                self.desk.commit(self.sender, [self.taker])
            else:
                self.desk.roll_back(self.sender, [self.taker])


class World:
    """One run. Everything that is decided by chance is decided by `seed`, but for what threads and sockets do."""

    def __init__(self, seed: int, base: Path) -> None:
        self.seed = seed
        self.dice = Random(seed)
        self.bus = SlowBus(self.dice)
        self.nodes = [Node(base, number, self.bus) for number in (1, 2, 3)]
        self.judge = Judge()
        self.desks: list[Desk] = []
        self.crashes = 0
        self.take_overs = 0
        self.subscriptions: dict[str, int] = {}
        self._subscribing: dict[str, None] = {}
        self._workers: list[Worker] = []
        self._made = 0

    # ---- time

    async def breathe(self, frames: int) -> None:
        for _ in range(frames):
            if not self.bus.step():
                await asyncio.sleep(0.0005)
                break
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self.check()
        for desk in [each for each in self.desks if each.is_left_behind or self._is_gone_without(each)]:
            self._replace(desk, 1000)  # its clients go elsewhere: to them it is as if it had ended

    def _is_gone_without(self, desk: Desk) -> bool:
        """Whether whoever leads is in a view without this desk, which was too slow to come along and does not know it
        yet. What its clients have is kept for them for a while, and then goes to others (PROTOCOL 4): they must not
        be taken for its holders any longer. Nothing is given to others before this was asked."""
        return any(node.is_leading and node.has_gone_without(desk.member) for node in self.nodes)

    def check(self) -> None:
        for desk in self.desks:
            if desk.failure is not None:
                raise desk.failure
        for node in self.nodes:
            if node.server is not None and node.server.failed.done():
                raise Violation(f"manager {node.number} failed: {node.server.failed.result()}")

    async def until(
        self, condition: Callable[[], bool], what: Callable[[], str], patience: float = PATIENCE_SECONDS
    ) -> None:
        deadline = time.monotonic() + patience
        while not condition():
            if time.monotonic() > deadline:
                raise Violation(f"waited in vain: {what()}")
            await self.breathe(20)

    # ---- the run

    async def open(self) -> None:
        """One message manager that leads, and one client manager."""
        await self.nodes[0].start()
        await self.until(lambda: self.nodes[0].is_leading, lambda: "the first leads")
        await self.quiet()
        self._add_desk()

    def ends(self) -> int:
        """How often what is not persistent may have ended with a primary."""
        return self.crashes + sum(node.retreats for node in self.nodes)

    @property
    def desk(self) -> Desk:
        return self.desks[0]

    async def run(self, steps: int) -> None:
        await self.nodes[0].start()
        await self.until(lambda: self.nodes[0].is_leading, lambda: "the first leads")
        await self.quiet()
        self._open_desk()
        self._open_desk()
        for node in self.nodes[1:]:
            await node.start()
        for _ in range(steps):
            await self._act()
            await self.breathe(self.dice.choice((0, 1, 5, 20)))
        await self._calm()

    def _add_desk(self) -> Desk:
        self._made += 1
        desk = Desk(f"desk{self._made}", self._made, self.bus, self.judge, self.dice)
        desk.crashes = self.ends
        desk.begun = lambda: len(self.subscriptions)
        self.desks.append(desk)
        return desk

    def _open_desk(self) -> None:
        desk = self._add_desk()
        for address, (kind, _, _) in QUEUES.items():
            desk.sender(address, kind)
        desk.sender(WORK, "plain")
        desk.sender(TOPIC, "plain")
        self._workers.append(Worker(desk))

    async def _act(self) -> None:
        dice = self.dice
        chance = dice.random()
        desk = dice.choice(self.desks)
        if chance < 0.60:
            senders = [one for one in desk.senders.values() if one.address != RESULT]
            desk.send(dice.choice(senders))
        elif chance < 0.72:
            for taker in list(desk.takers.values()):
                desk.settle(taker)
        elif chance < 0.75:
            if desk.takers:
                desk.give_back(dice.choice(list(desk.takers.values())))
        elif chance < 0.82:
            self._attend(desk)
        elif chance < 0.85:
            self._dismiss(desk)
        elif chance < 0.93:
            dice.choice(self._workers).act(dice)
        else:
            await self._disturb(dice.random())

    def _attend(self, desk: Desk) -> None:
        """Somebody comes for messages, if there is room."""
        address = self.dice.choice([*QUEUES, TOPIC])
        if address == TOPIC:
            self._subscribe(desk)
            return
        _, mode, alone = QUEUES[address]
        present = [one for each in self.desks for one in each.takers.values() if one.address == address]
        leaving = any(
            what.endswith(f"from {address}") for each in self.desks for what, _ in each.waiting.values()
        )
        if len(present) < (1 if alone else 3) and not (alone and leaving):
            desk.taker(address, mode, alone=alone)

    def _subscribe(self, desk: Desk) -> None:
        name = self.dice.choice(("a", "b"))
        present = [one for each in self.desks for one in each.takers.values() if one.of == name]
        leaving = any(
            what.endswith(f"from {name}") for each in self.desks for what, _ in each.waiting.values()
        )
        if present or leaving:
            return

        def begun() -> None:
            self.subscriptions.setdefault(name, len(self.subscriptions) + 1)

        mode = self.dice.choice(("auto", "client"))
        desk.taker(TOPIC, mode, alone=True, subscription=name, then=begun)

    def _dismiss(self, desk: Desk) -> None:
        takers = [one for one in desk.takers.values() if one.mode != "transacted"]
        if takers:
            desk.detach(self.dice.choice(takers))

    # ---- faults

    async def _disturb(self, chance: float) -> None:
        dice = self.dice
        up = [node for node in self.nodes if node.server is not None]
        down = [node for node in self.nodes if node.server is None]
        if chance < 0.35:
            for member in self.bus.members:
                member.is_frozen = False
            if dice.random() < 0.5:
                dice.choice(self.bus.members).is_frozen = True
        elif chance < 0.6 and down:
            await dice.choice(down).start()
        elif chance < 0.93:
            leading = [node for node in up if node.is_leading]
            victim = leading[0] if leading and dice.random() < 0.7 else dice.choice(up)
            if self._can_do_without(victim):
                self.crashes += victim.is_leading
                await victim.die(dice.choice((0, 0, 1, 2, 1000)))
        elif (
            chance < 0.95 and len(self.desks) > 1 and any(node.is_leading and node.is_in_force for node in up)
        ):
            # Before, the client managers that are left may be no majority: then what they go on with is restricted.
            desk = dice.choice(self.desks)
            self._replace(desk, dice.choice((0, 1, 1000)))

    def _replace(self, desk: Desk, said: int) -> None:
        desk.die(said)
        self.desks.remove(desk)
        self._workers = [worker for worker in self._workers if worker.desk is not desk]
        self._open_desk()

    def _can_do_without(self, victim: Node) -> bool:
        """Somebody else has the log, and those who decide know that. One that is frozen may have been expelled."""
        others = [
            node for node in self.nodes if node is not victim and node.is_synchronised and not node.is_frozen
        ]
        if victim.is_leading:
            return any(node.incarnation in victim.backups for node in others)
        return any(node.is_leading and (node.backups or not victim.is_synchronised) for node in others)

    # ---- the end

    async def _calm(self) -> None:
        for member in self.bus.members:
            member.is_frozen = False
        for node in self.nodes:
            if node.server is None:
                await node.start()
        await self.until(lambda: all(node.is_synchronised for node in self.nodes), self._who_is_behind)
        await self.until(self._is_all_answered, self._what_waits)
        await self._until_all_is_decided()
        await self.quiet()
        await self._compare("before everything was taken")
        for worker in self._workers:
            if worker.sender.transaction is not None:
                self._workers[0].desk.failure = None
                worker.desk.commit(worker.sender, [worker.taker])
        await self._take_all()
        await self.until(self._is_all_answered, self._what_waits)
        await self._until_all_is_decided()
        await self.quiet()
        await self.until(lambda: all(node.is_synchronised for node in self.nodes), self._who_is_behind)
        await self._compare("in the end")
        lists = {address: (address, 0) for address in (*QUEUES, WORK, RESULT)}
        lists |= {name: (TOPIC, number) for name, number in self.subscriptions.items()}
        self.judge.check_complete(lists, self.ends())

    async def quiet(self) -> None:
        """Until nothing moves any more."""
        still = 0
        last = -1
        deadline = time.monotonic() + PATIENCE_SECONDS
        while still < 8 and time.monotonic() < deadline:
            await self.breathe(1000)
            indices = sum(node.manager.place.index for node in self.nodes if node.server is not None)
            still = (
                still + 1 if indices == last and not any(member.inbox for member in self.bus.members) else 0
            )
            last = indices
            await asyncio.sleep(0.005)

    def _is_all_answered(self) -> bool:
        return not any(
            desk.waiting or any(sender.waiting for sender in desk.senders.values()) for desk in self.desks
        )

    async def _until_all_is_decided(self) -> None:
        """A decider that could not say what became of a transaction waits for its client manager, which has given it
        up, as long as it would for any other."""
        patience = PATIENCE_SECONDS
        if any(desk.doubts for desk in self.desks):
            patience += TRANSACTION_PATIENCE_SECONDS
        await self.until(
            lambda: not self._is_in_doubt(), lambda: "a transaction that nobody decides", patience
        )

    def _is_in_doubt(self) -> bool:
        """Whether the one that leads has promised something, or knows of somebody who may have."""
        leading = [node.manager.catalogue.transactions for node in self.nodes if node.is_leading]
        return not leading or any(each.prepared or each.finishing for each in leading)

    def _what_waits(self) -> str:
        return "; ".join(
            f"{desk.name}: {[what for what, _ in desk.waiting.values()]} and"
            f" {[(one.address, sorted(one.waiting)) for one in desk.senders.values() if one.waiting]}"
            for desk in self.desks
        )

    def _how_far(self) -> str:
        return f"one log: {[(node.number, node.manager.place.index) for node in self.nodes]}"

    def _who_is_behind(self) -> str:
        return str([(node.number, node.is_leading, node.is_synchronised) for node in self.nodes])

    async def _take_all(self) -> None:
        """Every list is emptied."""
        self._dismiss_all()
        await self.until(self._is_all_answered, self._what_waits)
        wanted = [
            letter.copies
            for letter in self.judge.letters.values()
            if letter.must_arrive and letter.address != TOPIC
        ]

        def is_all_taken() -> bool:
            self._attend_all()  # a desk that is left behind takes its takers along
            return all(_is_over(copies) for copies in wanted)

        with contextlib.suppress(Violation):  # the judge says what is missing
            await self.until(is_all_taken, lambda: "all is taken")
        await asyncio.sleep(0.1)
        await self.breathe(1000)

    def _dismiss_all(self) -> None:
        """Whoever does not acknowledge by itself leaves."""
        for each in self.desks:
            for taker in list(each.takers.values()):
                if taker.mode != "auto":
                    each.detach(taker)

    def _attend_all(self) -> None:
        self._dismiss_all()  # a desk that comes in the place of another brings a worker
        desk = self.desks[0]
        present = {one.of for each in self.desks for one in each.takers.values()}
        for address in (*QUEUES, WORK, RESULT):
            if address not in present:
                desk.taker(address, "auto", alone=False, credit=40)
        for name in self.subscriptions:
            if name not in present:
                desk.taker(TOPIC, "auto", insists=True, alone=False, subscription=name, credit=40)

    def _have_one_log(self) -> bool:
        places = [node.manager.place for node in self.nodes]
        return len({(place.index, place.chain) for place in places}) == 1

    async def _compare(self, when: str) -> None:
        """Who has the same log knows the same. A slow disk may look like quiet; and to look ends a tick, in which the
        one that leads may write more."""
        known: dict[int, Any] = {}
        while not known or not self._have_one_log():
            await self.until(self._have_one_log, self._how_far)
            known = {node.number: knowledge(node.manager) for node in self.nodes}
        (first, reference), *others = known.items()
        for number, other in others:
            apart = list(_differences(reference, other))
            if apart:
                raise Violation(
                    f"{when}: {first} and {number} differ in {apart[:5]}; {self._who_is_behind()}"
                )

    async def stop(self) -> None:
        for desk in self.desks:
            desk.die(0)
        for node in self.nodes:
            if node.server is not None:
                await node.die(0)


def _is_over(copies: dict) -> bool:  # type: ignore[type-arg]
    return any(copy.is_done or copy.is_acknowledged or copy.may_be_done for copy in copies.values())


def _differences(one: Any, other: Any, path: str = "") -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in {**one, **other}:
            yield from _differences(one.get(key), other.get(key), f"{path}/{key}")
    elif isinstance(one, list) and isinstance(other, list):
        left, right = [each for each in one if each not in other], [each for each in other if each not in one]
        if left or right:
            yield f"{path}: {left[:10]} and {right[:10]}"
    elif one != other:
        yield f"{path}: {one} and {other}"
