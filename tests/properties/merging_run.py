"""Rounds of cuts: in each, parts accept, hand out and acknowledge what they may, nodes crash, and the cut heals.

What a part may hand out is for other tests (docs/decisions/0014). Here each part takes from queues of its own, and
acknowledges what its consumers had before the cut.
"""

from __future__ import annotations

from pathlib import Path

from tests.properties.parted_world import Parts
from tests.properties.replicated_desk import Desk, Taker
from tests.properties.replicated_managers import Node

SHARED = "queue:shared"
TOPIC = "topic:news"
SUBSCRIPTION = "kept"


class Run(Parts):
    """One run, decided by its seed but for what threads and sockets do."""

    def __init__(self, seed: int, base: Path) -> None:
        super().__init__(seed, base, nodes=3)
        self._queues: dict[str, None] = {SHARED: None}
        self._held: list[tuple[Desk, Taker]] = []

    async def play(self, rounds: int, steps: int) -> None:
        await self.open(0)
        await self._subscribe()
        for number in range(rounds):
            await self._round(number, steps)
        await self.cut([0, 0, 0], [])
        for node in self.nodes:
            if node.server is None:
                await node.start()
        await self.settled()
        self.compare()
        await self._all_taken()

    async def _subscribe(self) -> None:
        desk = self.add_desk(0)
        desk.taker(TOPIC, "client", alone=False, subscription=SUBSCRIPTION, credit=1)
        await self.until(lambda: not desk.waiting, "subscribed")
        self.lose(desk)
        await self.rest()

    async def _round(self, number: int, steps: int) -> None:
        for node in self.nodes:
            if node.server is None:
                await node.start()
        await self.until(lambda: len(self.leaders()) == 1, "one leads")
        parts = self.dice.choice(([0, 1, 1], [0, 1, 0], [0, 0, 1], [0, 1, 2]))
        if self.dice.random() < 0.6:
            desks = await self._part_when_settled(number, parts)
        else:
            desks = await self._part_at_once(parts)
        for part, desk in desks.items():
            await self._use(desk, f"queue:part{number}.{part}", steps)
        for desk in list(self.desks):
            self.lose(desk)
        await self._disturb()
        await self.heal()
        await self._disturb_merge()

    async def _part_when_settled(self, number: int, parts: list[int]) -> dict[int, Desk]:
        await self.settled()
        desks = {part: self.add_desk(0) for part in sorted(set(parts))}
        for part, desk in desks.items():
            await self._hand_out_before(desk, f"queue:before{number}.{part}")
        await self.cut(parts, list(desks))
        await self.until(lambda: len(self.leaders()) == len(desks), "each part has a primary")
        return desks

    async def _part_at_once(self, parts: list[int]) -> dict[int, Desk]:
        """Before all that parted last time is in one log. A part may have nobody who could lead."""
        await self.cut(parts, [])
        await self.rest(0.5)
        leading = {parts[node.number - 1] for node in self.leaders()}
        return {part: self.add_desk(part) for part in sorted(leading)}

    async def _hand_out_before(self, desk: Desk, address: str) -> None:
        self._queues[address] = None
        sender = await self.lane(desk, address)
        taker = desk.taker(address, "client", alone=False, credit=self.dice.randint(1, 6))
        await self.send(desk, sender, self.dice.randint(1, 10))
        await self.until(lambda: bool(taker.tags), "handed out")
        self._held.append((desk, taker))

    async def _use(self, desk: Desk, address: str, steps: int) -> None:
        self._queues[address] = None
        dice = self.dice
        senders = [await self.lane(desk, each) for each in (SHARED, TOPIC, address)]
        taker = desk.taker(address, "client", alone=False, credit=10)
        for _ in range(steps):
            chance = dice.random()
            if chance < 0.6:
                desk.send(dice.choice(senders))
            elif chance < 0.8:
                desk.settle(taker)
            else:
                for at, held in self._held:
                    if at is desk:
                        desk.settle(held)
            await self.breathe(dice.choice((0, 1, 5, 20)))
        if dice.random() < 0.7:
            await self.until(lambda: not any(sender.waiting for sender in senders), "confirmed")
        if dice.random() < 0.7:
            await self.until(lambda: not desk.waiting, "answered")

    async def _disturb(self) -> None:
        """Some node of a part dies, and may be back before the cut heals."""
        if self.dice.random() < 0.4:
            node = self.dice.choice(self.nodes)
            await node.die(self.dice.choice((0, 1, 1000)))
            if self.dice.random() < 0.6:
                await node.start()
                await self.rest(0.02)

    async def _disturb_merge(self) -> None:
        """While branches are set aside, offered and taken in, somebody dies, or the next cut comes."""
        for _ in range(self.dice.choice((0, 5, 20, 80, 200))):
            await self.breathe(self.dice.choice((1, 5, 20)))
        if self.dice.random() < 0.5:
            node = self.dice.choice(self.nodes)
            if node.server is not None and self._can_do_without(node):
                await node.die(self.dice.choice((0, 1, 1000)))

    def _can_do_without(self, victim: Node) -> bool:
        """It comes back: then nobody waits for it in vain."""
        return sum(node.server is not None for node in self.nodes) == len(self.nodes)

    async def _all_taken(self) -> None:
        desk = self.add_desk(0)
        await self.take_all(desk, {each: each for each in self._queues} | {SUBSCRIPTION: TOPIC})
