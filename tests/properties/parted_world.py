"""Message managers and client managers that a cut keeps apart, each part with clients of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from heliograph.nodes.cluster_member import ClusterMember
from tests.properties.parted_bus import PartedBus, PartedChannel
from tests.properties.replicated_bus import SlowMember
from tests.properties.replicated_desk import Desk, Sender
from tests.properties.replicated_judge import Judge, Violation
from tests.properties.replicated_managers import Node, knowledge

PATIENCE_SECONDS = 40.0


class Parts:
    """Nodes 1, 2, 3, and as many desks as there are parts."""

    def __init__(self, seed: int, base: Path, nodes: int = 3) -> None:
        self.dice = Random(seed)
        self.bus = PartedBus(self.dice)
        self._doors = [PartedChannel(self.bus, 0) for _ in range(nodes)]
        self.nodes = [Node(base, number + 1, self._doors[number]) for number in range(nodes)]
        self.judge = Judge()
        self.desks: list[Desk] = []
        self._made = 0

    # ---- time

    async def breathe(self, frames: int = 20) -> None:
        for _ in range(frames):
            if not self.bus.step():
                await asyncio.sleep(0.0005)
                break
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self.check()

    def check(self) -> None:
        for desk in self.desks:
            if desk.failure is not None:
                raise desk.failure
        for node in self.nodes:
            if node.server is not None and node.server.failed.done():
                raise Violation(f"manager {node.number} failed: {node.server.failed.result()}")

    async def until(
        self, condition: Callable[[], bool], what: str, seconds: float = PATIENCE_SECONDS
    ) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise Violation(f"waited in vain: {what}; {self.standing()}")
            await self.breathe()

    def standing(self) -> str:
        return str(
            [
                (
                    node.number,
                    node.server.replica.standing,
                    node.manager.place.index,
                    len(self.branches(node)),
                )
                for node in self.nodes
                if node.server is not None and node.server.replica is not None
            ]
        )

    async def rest(self, seconds: float = 0.05) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            await self.breathe()

    # ---- who is there

    async def open(self, desks: int) -> None:
        for node in self.nodes:
            await node.start()
            await self.until(lambda node=node: node.is_synchronised, "it leads or follows")  # type: ignore[misc]
        await self.settled()
        for _ in range(desks):
            self.add_desk(0)

    def add_desk(self, part: int) -> Desk:
        self._made += 1
        desk = Desk(f"desk{self._made}", self._made, self.bus.within(part), self.judge, self.dice)
        self.desks.append(desk)
        return desk

    async def cut(self, nodes: list[int], desks: list[int]) -> None:
        """`nodes` and `desks`: the part of each."""
        self.bus.new_ring()
        parts: dict[SlowMember, int] = {}
        for door, node, part in zip(self._doors, self.nodes, nodes, strict=True):
            door.part = part
            if node.server is not None:
                parts |= dict.fromkeys(_memberships(node.server.member), part)
        for desk, part in zip(self.desks, desks, strict=True):
            parts |= dict.fromkeys(_memberships(desk.member), part)
        self.bus.rearrange(parts)

    async def heal(self) -> None:
        """The client managers of all parts but the first are gone by then."""
        await self.cut([0] * len(self.nodes), [0] * len(self.desks))

    def leaders(self) -> list[Node]:
        return [node for node in self.nodes if node.is_leading]

    def branches(self, node: Node) -> list[bytes]:
        assert node.server is not None
        assert node.server.replica is not None
        return list(node.server.replica.reunion.branches.all)

    @property
    def is_one(self) -> bool:
        up = [node for node in self.nodes if node.server is not None]
        places = {(node.manager.place.index, node.manager.place.chain) for node in up}
        return (
            len(self.leaders()) == 1
            and all(node.is_synchronised for node in up)
            and not any(self.branches(node) for node in up)
            and not any(node.server.replica.reunion.is_merging for node in up)  # type: ignore[union-attr]
            and len(places) == 1
        )

    async def settled(self) -> None:
        await self.until(lambda: self.is_one, "one log, without branches")
        await self.rest()
        await self.until(lambda: self.is_one, "one log, without branches")

    # ---- what clients do

    async def lane(self, desk: Desk, address: str, kind: str = "plain") -> Sender:
        sender = desk.sender(address, kind)
        await self.until(lambda: sender.ready, "a lane")
        return sender

    async def send(self, desk: Desk, sender: Sender, messages: int) -> None:
        """And hear that they are stored."""
        goal = sender.next + messages
        while sender.next < goal:
            desk.send(sender, count=min(self.dice.choice((1, 2, 5)), goal - sender.next))
            await self.breathe()
        await self.until(lambda: not sender.waiting, "confirmed")

    def lose(self, desk: Desk) -> None:
        desk.die(0)
        self.desks.remove(desk)

    async def take_all(self, desk: Desk, lists: dict[str, str]) -> None:
        """Empty these: queues by address, subscriptions by name. Nothing that must arrive may be missing."""
        for of, address in lists.items():
            desk.taker(address, "auto", alone=True, subscription="" if of == address else of, credit=40)
        wanted = [
            (letter, of)
            for letter in self.judge.letters.values()
            for of, address in lists.items()
            if letter.must_arrive and letter.address == address
        ]

        def missing() -> list[str]:
            return [
                f"{letter.name} in {of}: {letter.copies[of].history if of in letter.copies else []}"
                for letter, of in wanted
                if of not in letter.copies
                or not (letter.copies[of].is_acknowledged or letter.copies[of].may_be_done)
            ]

        deadline = time.monotonic() + PATIENCE_SECONDS
        while missing() and time.monotonic() < deadline:
            await self.breathe()
        if missing():
            raise Violation(f"{len(missing())} lost: {missing()[:5]}; {self.standing()}")
        await self.rest(0.1)

    def compare(self) -> None:
        known = [knowledge(node.manager) for node in self.nodes if node.server is not None]
        assert all(each == known[0] for each in known)

    async def stop(self) -> None:
        for desk in self.desks:
            desk.die(0)
        for node in self.nodes:
            if node.server is not None:
                await node.die(0)


def _memberships(member: ClusterMember) -> list[SlowMember]:
    """One, or none: it has left, and comes back as another."""
    stay = member._stay
    return [stay.membership] if stay is not None else []  # type: ignore[list-item]
