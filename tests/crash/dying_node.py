"""A message manager on a real journal that can be killed at any step, and what the next one finds.

Everything runs in the caller's thread, one step after the other: a tick ends when the story says so, and the
disk is synced in place. So each append, each write and each sync is a step that can be the last.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Callable, Collection, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest

from heliograph.bus.commands import (
    Answered,
    Command,
    CommitAsked,
    ConsumerAttached,
    DestinationWanted,
    Dispatched,
    Published,
    SessionOpened,
)
from heliograph.bus.interface import Receiver
from heliograph.destinations.effects import AnyEffect
from heliograph.destinations.pausing import NOTHING
from heliograph.destinations.snapshot import snapshot_of
from heliograph.journal.files import JournalSettings
from heliograph.journal.records import OFFSET_BITS, OFFSET_MASK
from heliograph.journal.writing import LogWriter
from heliograph.model.block import Block, pack, parse, slice_span, unpack
from heliograph.model.destination import DEAD_MESSAGES, Address
from heliograph.model.ids import ConsumerId, IdIssuer, LaneId, SessionId, lane_of
from heliograph.model.policy import Policy
from heliograph.nodes.clock import Clock
from heliograph.nodes.message_manager import MessageManager
from heliograph.nodes.tick import Step, Tick

ORDERS = Address("queue:orders")
BILLS = Address("queue:bills")
NEWS = Address("topic:news")
SECONDS = 60.0
SEGMENT = 1 << 20

Tell = Callable[["Node", "Guillotine"], Coroutine[Any, Any, None]]
Found = dict[
    str, list[tuple[bytes, int]]
]  # for each list the bodies in it, and how often they were handed out


class Killed(BaseException):
    """The process ends here."""


class Booted(Clock):
    """The clock of a machine that was started under this name."""

    def __init__(self, boot: bytes) -> None:
        self._boot = boot

    def boot_id(self) -> bytes:
        return self._boot


class Guillotine:
    """Counts the steps of a process, and ends it at one of them, before it is done or after."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[str] = []
        self.begin = 0  # where the log ended when the steps began to count
        self.records: list[int] = []  # where each begins
        self.frames: list[int] = []  # where each ends
        self._last = -1
        self._after = False
        self._is_armed = False
        self.is_down = False
        self._thread = threading.get_ident()
        for kind, name in (("append", "append"), ("write", "_write")):
            monkeypatch.setattr(LogWriter, name, self._step(kind, getattr(LogWriter, name)))
        monkeypatch.setattr(os, "fdatasync", self._step("sync", os.fdatasync))

    def plan(self, last: int = -1, *, after: bool = False) -> None:
        """Step number `last` will be the last; -1: none will."""
        self.steps, self.records, self.frames = [], [], []
        self._last, self._after = last, after
        self._is_armed = self.is_down = False

    def arm(self, node: Node) -> None:
        """From here on steps count."""
        self.begin, self._is_armed = node.log_end, True

    def disarm(self) -> None:
        self._is_armed = False

    def _step(self, kind: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*given: Any, **named: Any) -> Any:
            # What a thread syncs is in the page cache in any case.
            if not self._is_armed or threading.get_ident() != self._thread:
                return real(*given, **named)
            if self.is_down:
                raise Killed
            is_last = len(self.steps) == self._last
            self.steps.append(kind)
            if is_last and not self._after:
                self._fall()
            result = real(*given, **named)
            if kind == "append":
                self.records.append(result)
            elif kind == "write":
                self.frames.append(given[0].frames_end)
            if is_last:
                self._fall()
            return result

        return step

    def _fall(self) -> None:
        self.is_down = True
        raise Killed


class Node:
    """One life of a message manager. The bus and the tick are this object."""

    def __init__(
        self,
        directory: Path,
        *,
        boot: bytes = b"boot",
        segment_bytes: int = SEGMENT,
        guillotine: Guillotine | None = None,
    ) -> None:
        self._guillotine = guillotine
        self.said: list[Command] = []
        self.left: list[tuple[int, Command]] = []  # what was said, and where the log ended when it left
        self._steps: list[Step] = []
        self._requests = 0
        started = 1 + len(list(directory.glob("*")))
        self.issuer = IdIssuer(site=1, node=1, started_ms=started)
        self.manager = self._make(directory, segment_bytes, boot)
        self.manager.start()

    def _make(self, directory: Path, segment_bytes: int, boot: bytes) -> MessageManager:
        return MessageManager(
            directory / "journal",
            bus=self,
            tick=cast("Tick", self),
            settings=JournalSettings(
                inline_sync_bytes=1 << 40, inline_sync_seconds=1e9, segment_bytes=segment_bytes
            ),
            resident_bytes=1 << 30,
            in_memory=False,
            issuer=self.issuer,
            clock=Booted(boot),
        )

    # ---- as a bus and as a tick

    def join(self, _receiver: Receiver, kinds: Collection[type[Command]] | None = None) -> None:
        pass

    def multicast(self, command: Command) -> None:
        self.said.append(command)

    def add_write(self, step: Step) -> None:
        self._steps.append(step)

    def ask(self) -> None:
        pass

    def end_of_tick(self) -> None:
        for step in self._steps:
            step()
        self.send_early()

    def send_early(self) -> None:
        end = self.manager.journal._writer.frames_end
        self.left += [(end, command) for command in self.said]
        self.said = []

    # ---- as a client

    async def tell(self, *commands: Command) -> None:
        """Commands that arrive in one tick. When this returns, they are stored."""
        for command in commands:
            self.manager.on_command(command)
        await self._calm()

    async def publish(self, address: Address, sent: Block) -> None:
        await self.tell(Published(address, sent))

    async def _calm(self) -> None:
        journal = self.manager.journal
        self.end_of_tick()
        while journal._syncer.running or journal._snapshot_running:
            await asyncio.sleep(0.0005)
            if self._guillotine is not None and self._guillotine.is_down:
                raise Killed
        self.end_of_tick()

    def request(self) -> int:
        self._requests += 1
        return self._requests

    async def open_session(self) -> SessionId:
        session = self.issuer.session()
        await self.tell(SessionOpened(self.request(), session, "ann", b"token"))
        return session

    async def lane(self, session: SessionId, number: int, address: Address) -> LaneId:
        lane = lane_of(session, number)
        await self.tell(DestinationWanted(self.request(), address, True, lane))
        return lane

    async def attach(self, session: SessionId, address: Address, **wishes: Any) -> ConsumerId:
        consumer = self.issuer.consumer()
        await self.tell(ConsumerAttached(self.request(), address, consumer, session, 1000, **wishes))
        return consumer

    async def set_policy(self, address: Address, policy: Policy) -> None:
        effects: list[AnyEffect] = []
        self.manager.catalogue.set_policy(address, policy, effects)
        self.manager.run(self.manager.catalogue.by_address[address], effects)
        await self._calm()

    async def snapshot(self) -> None:
        self.manager.journal.snapshot([snapshot_of(self.manager.catalogue, self.manager.boot)])
        await self._calm()

    @property
    def log_end(self) -> int:
        return self.manager.journal._writer.frames_end

    def was_told(self, command: Command, upto: int) -> bool:
        """Whether something had been said when the log was this long."""
        return any(end <= upto and said == command for end, said in self.left)

    def handed_out(self, upto: int) -> list[bytes]:
        """What had left for consumers when the log was this long."""
        bodies = []
        for end, command in self.left:
            if end <= upto and isinstance(command, Dispatched):
                bodies += unpack(b"".join(slice_span(command.span))).bodies
        return bodies

    # ---- the end

    def abandon(self) -> None:
        """Give descriptors and threads back without writing anything more."""
        self.manager.journal._writer.give_up()
        self.manager.stop()


def block(lane: LaneId, first: int, *bodies: bytes, **wishes: Any) -> Block:
    return parse(pack(list(bodies), lane=lane, first=first, **wishes))


def send(lane: LaneId, address: Address, first: int, *bodies: bytes, staged: bool = False) -> Published:
    return Published(address, block(lane, first, *bodies), staged=staged)


def commit(
    session: SessionId, number: int, messages: int, *consumed: tuple[Address, ConsumerId, int]
) -> CommitAsked:
    """Consumed: up to which tag, of each consumer."""
    ranges = [(address, consumer, [(1, last)]) for address, consumer, last in consumed]
    return CommitAsked(1000 + number, session, number, messages, ranges)


def committed(number: int) -> Answered:
    return Answered(1000 + number, {})


# ---- what is found afterwards


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():
            await asyncio.sleep(0.001)


async def _read(directory: Path, boot: bytes) -> Found:
    node = Node(directory, boot=boot)
    manager = node.manager
    try:
        session = await node.open_session()
        readers = {
            "orders": await node.attach(session, ORDERS),
            "bills": await node.attach(session, BILLS),
            "dead": await node.attach(session, DEAD_MESSAGES),
        }
        for destination in manager.catalogue.all_destinations():
            effects: list[AnyEffect] = []
            manager.catalogue.set_paused(destination, NOTHING, effects)
            manager.run(destination, effects)
        if NEWS in manager.catalogue.by_address:
            desk = {"subscription": "desk", "client": "ann", "durable": True}
            readers["news"] = await node.attach(session, NEWS, **desk)
        await _until(lambda: not any(each.figures().depth for each in manager.catalogue.all_destinations()))
        node.end_of_tick()
        found: Found = {name: [] for name in readers}
        names = {consumer: name for name, consumer in readers.items()}
        for _, command in node.left:
            if isinstance(command, Dispatched):
                bodies = unpack(b"".join(slice_span(command.span))).bodies
                found[names[command.consumer]] += [(body, command.span.deliveries) for body in bodies]
        return found
    finally:
        node.abandon()


def find(directory: Path, *, boot: bytes = b"boot") -> Found:
    """Start again on what is there, and take everything out."""
    return asyncio.run(_read(directory, boot))


def play(directory: Path, tell: Tell, guillotine: Guillotine, *, segment_bytes: int = SEGMENT) -> Node:
    """A story from its beginning to its end, or to that of the process. What it wrote stays as it is then."""

    async def life() -> Node:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        node = Node(directory, segment_bytes=segment_bytes, guillotine=guillotine)
        try:
            await tell(node, guillotine)
        except Killed:
            pass
        finally:
            shutil.copytree(directory, left_by(directory))
            guillotine.disarm()
            node.abandon()
        return node

    return asyncio.run(life())


def left_by(directory: Path) -> Path:
    return directory.with_name(directory.name + " left")


# ---- cutting the log


def cut(directory: Path, position: int, to: Path) -> Path:
    """A copy of what a process left, of which nothing from this position on was written."""
    shutil.copytree(directory, to)
    segment, offset = position >> OFFSET_BITS, position & OFFSET_MASK
    for path in (to / "journal").glob("*.segment"):
        if int(path.stem) > segment:
            path.unlink()
        elif int(path.stem) == segment:
            os.truncate(path, offset)
    return to
