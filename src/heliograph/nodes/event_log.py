"""What happened on this node, for people who watch it (M15): events, to a file and to `topic:_LOG`.

Shells record events; recording only puts them in a bounded queue. A task of its own passes them on: to the
topic, and on a thread to `events.jsonl`, one JSON object a line, which is rotated by size. When the queue or
the disk is full events are dropped and counted, and the count is the next event. Bodies and credentials have
no place here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

import msgspec

from heliograph.admin.administration import Outcome
from heliograph.admin.subjects import Arguments, argument
from heliograph.bus.commands import Command, DestinationGone, DestinationMade, FlowChanged
from heliograph.journal.disk import DISK, MAKE, Disk
from heliograph.model.destination import EVENT_LOG, name_of
from heliograph.model.limits import (
    EVENT_FIELD_LENGTH,
    EVENT_FILE_BYTES,
    EVENT_FILES,
    EVENTS_PER_ANSWER,
    EVENTS_REMEMBERED,
    EVENTS_WAITING,
)
from heliograph.nodes.clock import CLOCK, Clock

Event = dict[str, Any]
ON_THE_BUS = (DestinationMade, DestinationGone, FlowChanged)
# Events that are passed on before others on the loop get their turn: a few milliseconds.
_BATCH = 200
_FILE = "events.jsonl"
_encode = msgspec.json.Encoder().encode


class Record(Protocol):
    """Records an event. It never waits and never fails."""

    def __call__(self, event: str, /, **fields: object) -> None: ...


def ignore(_event: str, /, **_fields: object) -> None:
    """For those who have no event log."""


def last_events(remembered: Iterable[Event], arguments: Arguments) -> list[Event]:
    """As many as fit an answer; `events` names those that somebody looks for, of all that happen. Raises
    ClientFault."""
    wanted: list[str] = argument(arguments, "events", list, [])
    return [event for event in remembered if not wanted or event["event"] in wanted][-EVENTS_PER_ANSWER:]


class EventLog:
    """The event log of one node."""

    def __init__(self, folder: Path, *, node: str, disk: Disk = DISK, clock: Clock = CLOCK) -> None:
        self._folder = folder
        self._disk = disk
        self._now = clock.now
        self._node = node
        self._waiting: deque[Event] = deque()
        self.remembered: deque[Event] = deque(maxlen=EVENTS_REMEMBERED)
        self._dropped = 0
        self._woken = asyncio.Event()
        self._ending = False
        self._task: asyncio.Task[None] | None = None
        self._publish: Callable[[Event], object] | None = None

    def record(self, event: str, /, **fields: object) -> None:
        if len(self._waiting) >= EVENTS_WAITING:
            self._dropped += 1
            return
        shown = {name: _bounded(value) for name, value in fields.items()}
        self._waiting.append({"time": round(self._now(), 3), "node": self._node, "event": event, **shown})
        self._woken.set()

    def on_command(self, command: Command) -> None:
        """What is on the bus and belongs here: one of `ON_THE_BUS`."""
        if isinstance(command, DestinationMade | DestinationGone):
            if not name_of(command.address).startswith("_"):
                made = isinstance(command, DestinationMade)
                event = "destination-created" if made else "destination-deleted"
                self.record(event, destination=command.address)
        elif isinstance(command, FlowChanged) and command.address != EVENT_LOG:
            event = "destination-blocked" if command.reason else "destination-unblocked"
            self.record(event, destination=command.address, reason=command.reason)

    def ask(self, arguments: Arguments) -> Outcome:
        """The last events that fit an answer."""
        return Outcome({"events": last_events(self.remembered, arguments)})

    # ---- the task

    def start(self, publish: Callable[[Event], object]) -> None:
        """`publish` gives an event to those who watch."""
        self._publish = publish
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Everything recorded so far is passed on when this returns."""
        self._ending = True
        self._woken.set()
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            batch = self._take()
            if self._publish is not None and not self._ending:
                for event in batch:
                    self._publish(event)
            if batch and not await asyncio.to_thread(self._write, batch):
                self._dropped += len(batch)
            if self._ending and not self._waiting:
                return

    def _take(self) -> list[Event]:
        batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), _BATCH))]
        if self._waiting:
            self._woken.set()
        elif self._dropped:
            lost = {"time": round(self._now(), 3), "node": self._node, "event": "events-dropped"}
            batch.append({**lost, "count": self._dropped})
            self._dropped = 0
        self.remembered.extend(batch)
        return batch

    # ---- the file, on a thread

    def _write(self, batch: list[Event]) -> bool:
        lines = b"".join(_encode(event) + b"\n" for event in batch)
        try:
            self._disk.make_folder(self._folder)
            if self._append(lines) >= EVENT_FILE_BYTES:
                self._rotate()
        except OSError:
            return False
        return True

    def _append(self, lines: bytes) -> int:
        """Returns the size of the file."""
        descriptor = self._disk.open(self._folder / _FILE, MAKE)
        try:
            size = self._disk.size(descriptor)
            while lines:
                written = self._disk.pwrite(descriptor, lines, size)
                size, lines = size + written, lines[written:]
        finally:
            self._disk.close(descriptor)
        return size

    def _rotate(self) -> None:
        """`events.jsonl` becomes `events.jsonl.1` and so on; the oldest goes."""
        names = [_FILE, *(f"{_FILE}.{number}" for number in range(1, EVENT_FILES))]
        there = dict(self._disk.list(self._folder))
        for older, newer in zip(reversed(names), [*reversed(names)][1:], strict=False):
            if newer in there:
                self._disk.rename(self._folder / newer, self._folder / older)


def _bounded(value: object) -> object:
    """Names and sentences come from outside: nobody fills the log with one."""
    if isinstance(value, str):
        return value if len(value) <= EVENT_FIELD_LENGTH else value[:EVENT_FIELD_LENGTH] + "…"
    return value
