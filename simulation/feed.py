"""Partitions with a reader of the history (D2, PROTOCOL 5): what it was told once is what it is told ever after, by
whoever leads, and nothing that was confirmed is missing.

The reader keeps its position as a query of Spark keeps its checkpoint: it outlives all its lives and connections.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from hashlib import blake2b
from typing import Final

from heliograph.client.connection import Connection
from heliograph.journal.records import RecordKind
from heliograph.model.block import LARGE, parse_trusted, unpack
from heliograph.model.limits import MAX_HOLD_SECONDS
from heliograph.model.portions import FED
from simulation.checkers import named
from simulation.clients import Client, Scene, key_of
from simulation.feed_faults import FeedWeather
from simulation.history import Sent
from simulation.machines import Machine
from simulation.partition_faults import PartitionWeather
from simulation.partitions import APART, FIVE, MIXED, TOGETHER, Layout, Partitions
from simulation.play import Outcome
from simulation.weather import STORM, Plan

_LAYOUTS: Final[tuple[Layout, ...]] = (APART, TOGETHER, MIXED, FIVE)
_BLOCKS: Final = (RecordKind.PUBLISHED, RecordKind.ADOPTED, RecordKind.JOINED)
_PORTION_BYTES: Final = 20_000
_LOOK_AGAIN: Final = 0.2  # how often it reads again what it has read
_MOVE_ON: Final = 0.25  # and how often it asks elsewhere
_PATIENCE_SECONDS: Final = 1.0  # for an answer: where no message manager is, there is none
_VERIFY_SECONDS: Final = 60.0


class Reading(Client):
    """Reads the history of all destinations, and what it has read again. It goes from one client manager to another,
    and so, while the network is cut, from one part to another."""

    def __init__(self, scene: Scene, machine: Machine, name: str) -> None:
        super().__init__(scene, machine, name)
        self.position = 0
        self.seen: dict[int, list[bytes]] = {}  # digests by position
        self.keys: dict[str, None] = {}
        self.violations: list[str] = []
        self.is_held = False
        self.asked_to_verify = False
        self.is_verified = False

    async def work(self, connection: Connection) -> None:
        while not self.is_held:
            await connection.ask(
                "pipeline.hold", name=self.name, destination="*", after=0, seconds=MAX_HOLD_SECONDS
            )
            self.is_held = True
        with suppress(TimeoutError):
            await self._read_here(connection)

    async def _read_here(self, connection: Connection) -> None:
        """Until it moves on, or is through."""
        while not self.is_verified and not self.world.chance(_MOVE_ON):
            before = self.position
            self.position = await self._read(connection, self.position, is_new=True)
            if self.position and self.dice.random() < _LOOK_AGAIN:
                await self._read(connection, self.dice.randrange(self.position), is_new=False)
            if self.asked_to_verify and self.position == before:
                await self._verify(connection)
            await self.pause(0.2)

    def is_content(self) -> bool:
        return self.is_verified

    async def _verify(self, connection: Connection) -> None:
        after = 0
        while after < self.position:
            after = await self._read(connection, after, is_new=False)
        self.is_verified = True

    async def _read(self, connection: Connection, after: int, *, is_new: bool) -> int:
        """A portion. Returns how far it goes."""
        until = {} if is_new else {"until": self.position}
        async with asyncio.timeout(_PATIENCE_SECONDS):
            portion = await connection.ask(
                "pipeline.feed", destination="*", after=after, events=True, bytes=_PORTION_BYTES, **until
            )
        found: dict[int, list[bytes]] = {}
        records, at = portion["records"], 0
        while at < len(records):
            size, kind, destination, list_number, lsn = FED.unpack_from(records, at)
            at += FED.size
            payload = records[at : at + size]
            at += size
            facts = FED.pack(size, kind, destination, list_number, lsn)
            found.setdefault(lsn, []).append(blake2b(facts + payload, digest_size=8).digest())
            if kind in _BLOCKS and not parse_trusted(payload, keep=False).flags & LARGE:
                self.keys.update((key_of(body), None) for body in unpack(payload).bodies)
        upto: int = portion["upto"]
        if is_new:
            self.seen.update(found)
        else:
            expected = {lsn: told for lsn, told in self.seen.items() if after < lsn <= upto}
            self._compare(expected, found)
        return max(upto, after)

    def _compare(self, expected: dict[int, list[bytes]], found: dict[int, list[bytes]]) -> None:
        for lsn in sorted(expected.keys() | found.keys()):
            if expected.get(lsn) != found.get(lsn):
                self.violations.append(f"position {lsn} is not what {self.name} was told before")
                return


class Fed(Partitions):
    """One seed."""

    kind_of_weather = FeedWeather

    def __init__(self, seed: int, plan: Plan, *, layout: Layout | None = None) -> None:
        super().__init__(seed, plan, layout=layout or _LAYOUTS[seed % len(_LAYOUTS)])

    def _cast(self) -> list[Client]:
        everywhere = self.desks[0]  # from where all client managers are reached
        self.reader = Reading(self.scene, everywhere, "reader")
        return [*super()._cast(), self.reader]

    def make_weather(self, plan: Plan) -> PartitionWeather:
        weather = super().make_weather(plan)
        assert isinstance(weather, FeedWeather), "it is of this kind"
        weather.find_reader = self._host_of_reader
        if not plan.kinds:
            weather.insist()
        return weather

    def _host_of_reader(self) -> int:
        transport = self.reader.transport
        node = str(transport.get_extra_info("peername")[0]) if transport is not None else ""
        return int(node.removeprefix("node") or 0)

    def begin(self) -> None:
        for supervisor in self.supervisors:
            supervisor.start()
        self.reader.start()
        self._until(lambda: self.reader.is_held, 20.0)  # nothing is sent before it is kept
        self.clients.remove(self.reader)
        try:
            super().begin()
        finally:
            self.clients.append(self.reader)

    def _ended_in_a_branch(self, sent: Sent) -> bool:
        """What none but restricted parts accepted, and its own consumers were through with before the parts met, is
        in no log that goes on: parts that meet bring what waits (0018)."""
        views = self.watch.logged_in.get(sent.key, {})
        return (
            bool(views)
            and all(self.watch.views[stamp].is_restricted for stamp in views)
            and all(self._was_done_in_a_branch(place, sent.key) for place in self.history.places_of(sent))
        )

    def _was_done_in_a_branch(self, place: str, key: str) -> bool:
        happened = (place, key) in self.history.taken_by_unknown()
        for hand_out in self.history.by_place.get((place, key), ()):
            done_at = hand_out.settled_at or (hand_out.at if happened else 0.0)
            decision = self.watch.decision_of(key, hand_out.tag, hand_out.at)
            if not done_at or decision is None or not self.watch.views[decision.stamp].is_restricted:
                continue
            if done_at < self.watch.is_unrestricted_from(decision.node, decision.at):
                return True
        return False

    def judge(self) -> list[str]:
        judged = super().judge()
        self.reader.asked_to_verify = True
        self._until(lambda: self.reader.is_verified, _VERIFY_SECONDS)
        found = list(self.reader.violations)
        if not self.reader.is_verified:
            found.append("the history could not be read again to its end")
        missing = [
            key
            for key, sent in self.history.sent.items()
            if sent.confirmed_at and not sent.may_be_lost and key not in self.reader.keys
            if not sent.is_large and not self._ended_in_a_branch(sent)
        ]
        if missing and self.reader.is_verified:
            found.append(
                f"{len(missing)} messages that were confirmed are in no history, such as {missing[0]}"
            )
        return judged + named("history", found)

    def _judged(self) -> Outcome:
        outcome = super()._judged()
        outcome.counts["positions_read"] = len(self.reader.seen)
        return outcome


def run(seed: int, plan: Plan = STORM) -> Outcome:
    return Fed(seed, plan).run()
