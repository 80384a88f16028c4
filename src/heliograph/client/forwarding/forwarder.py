"""Empties a store towards the server: one way per destination, each in order, none held up by another.

    closed ──open-lane──▶ open ──refused──▶ held ──after a pause──▶ open
       ▲                    │
       └──── connection lost┘

A block leaves only when it is durable in the store and the server has said what it has of the lane. What is on its
way is bounded over all ways together.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING

from heliograph.client.forwarding.ledger import Entry, Lane, Ledger
from heliograph.client.resending import Sealed, after, marked, relabelled
from heliograph.frontends.native.frames import RESENT, LaneOpened, OpenLane
from heliograph.model.errors import ConnectionLost, CorruptJournal, HeliographError, Unavailable
from heliograph.model.ids import lane_of
from heliograph.model.limits import FORWARD_READ_BYTES, FORWARD_RETRY_SECONDS, FORWARD_WINDOW_BYTES

if TYPE_CHECKING:
    from heliograph.client.forwarding.writer import Writer
    from heliograph.client.wire import Wire

log = logging.getLogger("heliograph.client")


class Way:
    """A lane of the store and what is on its way from there to the server."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.opened_on: Wire | None = None  # where the server takes blocks on it
        self.is_blocked = False  # the server wants us to wait
        self.is_busy = False  # it is being opened, or read
        self.is_moving = False  # that it leads on under another number is not durable yet
        self.held: HeliographError | None = None
        self.attempts = 0
        self.retry: asyncio.TimerHandle | None = None
        self.ready: deque[Sealed] = deque()  # read, and not sent
        self.ready_bytes = 0
        self.read_upto = 0
        self.under_way: deque[tuple[int, int]] = deque()  # last sequence and size of what is sent

    def begin(self, wire: Wire) -> None:
        """The server has what is confirmed, and takes the rest."""
        self.opened_on = wire
        self.held = None
        self.attempts = 0
        self.read_upto = self.lane.confirmed

    def add(self, sealed: Sealed) -> None:
        self.ready.append(sealed)
        self.ready_bytes += len(sealed.buffer)
        self.read_upto = sealed.last

    def take(self) -> Sealed:
        sealed = self.ready.popleft()
        self.ready_bytes -= len(sealed.buffer)
        return sealed

    def shut(self) -> int:
        """Nothing is on its way any more. Returns how many bytes were."""
        self.opened_on = None
        self.ready.clear()
        self.ready_bytes = 0
        if self.retry is not None:
            self.retry.cancel()
            self.retry = None
        under_way = sum(size for _, size in self.under_way)
        self.under_way.clear()
        return under_way


class Forwarder:
    """Sends on one connection after the other what a store holds."""

    def __init__(
        self,
        number: int,
        ledger: Ledger,
        writer: Writer,
        *,
        report: Callable[[HeliographError], None],
        on_progress: Callable[[Lane], None],
    ) -> None:
        self._number = number
        self._ledger = ledger
        self._writer = writer
        self._report = report
        self._on_progress = on_progress
        self._loop = asyncio.get_running_loop()
        self._wire: Wire | None = None
        self._ways: dict[int, Way] = {key: Way(lane) for key, lane in ledger.lanes.items()}
        self._window = 0  # bytes under way
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_attached(self) -> bool:
        return self._wire is not None

    def ways(self) -> list[Way]:
        return list(self._ways.values())

    def way_of(self, lane: Lane) -> Way:
        way = self._ways.get(lane.key)
        if way is None:
            way = self._ways[lane.key] = Way(lane)
        return way

    # ---- the connection

    async def resume_lanes(self, wire: Wire, known: dict[tuple[int, str], int]) -> None:
        """Find out what the server has of each lane. `known`: by number and destination."""
        for way in self.ways():
            lane = way.lane
            last = known.get((lane.wire, lane.destination))
            if last is None and not lane.waiting:
                continue  # opened when there is something to send
            try:
                await self._settle(wire, way, last)
            except ConnectionLost:
                raise
            except HeliographError as refusal:
                self._hold(way, refusal)

    async def _settle(self, wire: Wire, way: Way, last: int | None = None) -> None:
        """Open a lane and agree with the server on what it has. Raises its refusal."""
        lane = way.lane
        if last is None:
            last = await self._ask(wire, lane)
        self._window -= way.shut()
        if not self._ledger.resumed(lane, last):
            sentence = (
                f"the server has {last} messages on a lane to {lane.destination}; the store says otherwise"
            )
            self._report(Unavailable(f"{sentence}: a new lane goes on", code="store-behind"))
            await self._ask(wire, lane)
            await self._writer.durable(state=True)
            wire.check()
        self._on_progress(lane)
        self._writer.note_confirmed()
        way.begin(wire)

    async def _ask(self, wire: Wire, lane: Lane) -> int:
        """What the server has of a lane, under the number that it has in the end."""
        while True:
            number = lane.wire
            opening = OpenLane(request=0, number=self._number, lane=number, destination=lane.destination)
            last = (await wire.request(opening, LaneOpened)).last
            wire.check()
            if lane.wire == number:
                return last

    def attach(self, wire: Wire) -> None:
        """Everything that must be durable before a block leaves is."""
        self._wire = wire
        for way in self.ways():
            self.pump(way)

    def detach(self) -> None:
        self._wire = None
        for way in self._ways.values():
            self._window -= way.shut()
            way.is_blocked = False

    async def open(self, lane: Lane) -> None:
        """Open a lane now, if there is a server. Raises its refusal."""
        way, wire = self.way_of(lane), self._wire
        if wire is None or way.opened_on is wire or way.is_busy or way.is_moving:
            return
        way.is_busy = True
        try:
            await self._settle(wire, way)
        finally:
            way.is_busy = False
        self.pump(way)

    # ---- out

    def stored(self, lane: Lane, sealed: Sealed) -> None:
        """A block is durable. It need not be read again if its turn is next."""
        way = self.way_of(lane)
        is_next = way.opened_on is not None and not way.is_busy and way.read_upto == sealed.first - 1
        if is_next and way.ready_bytes < FORWARD_READ_BYTES:
            way.add(sealed)
        self.pump(way)

    def pump(self, way: Way) -> None:
        """Send what can be sent now."""
        wire = self._wire
        if wire is None or way.is_busy or way.is_moving or way.held is not None:
            return
        if way.opened_on is not wire:
            if way.lane.waiting:
                self._start(self._open_by_itself(way))
            return
        while way.ready and self._has_room(way, wire):
            self._send(way, way.take(), wire)
        if not way.ready and way.read_upto < way.lane.stored and self._has_room(way, wire):
            way.is_busy = True
            self._start(self._read(way))

    def _has_room(self, way: Way, wire: Wire) -> bool:
        is_open = not way.is_blocked and not wire.is_paused and not wire.is_closing
        return is_open and self._window < FORWARD_WINDOW_BYTES

    def _send(self, way: Way, sealed: Sealed, wire: Wire) -> None:
        lane = way.lane
        if sealed.last <= lane.confirmed:
            return
        sealed = after(sealed, lane.confirmed)
        was_sent = sealed.first <= max(lane.sent, lane.doubtful)
        if sealed.first <= lane.doubtful:
            sealed = marked(sealed, lane.doubtful)
        identity = lane_of(self._ledger.session, lane.wire)
        buffer = relabelled(sealed.buffer, identity, sealed.first - lane.shift)
        lane.sent = max(lane.sent, sealed.last)
        way.under_way.append((sealed.last, len(buffer)))
        self._window += len(buffer)
        wire.publish(self._number, buffer, RESENT if was_sent else 0)

    async def _read(self, way: Way) -> None:
        """Read on from where the way has come."""
        wire, start = self._wire, way.read_upto
        portion = _portion(way.lane, start + 1)
        try:
            payloads = await self._writer.read(portion)
        except CorruptJournal as damage:
            way.is_busy = False
            if self._wire is wire and _portion(way.lane, start + 1) == portion:
                self._hold(way, damage)
            else:
                self.pump(way)
            return
        way.is_busy = False
        if self._wire is wire and way.opened_on is wire and way.read_upto == start:
            for entry, payload in zip(portion, payloads, strict=True):
                way.add(Sealed(entry.first, entry.messages, payload))
        self.pump(way)

    async def _open_by_itself(self, way: Way) -> None:
        try:
            await self.open(way.lane)
        except ConnectionLost:
            pass  # the next connection opens it
        except HeliographError as refusal:
            self._hold(way, refusal)

    # ---- what the server said

    def confirmed(self, number: int, last: int) -> None:
        way = self._by_number(number)
        if way is None or way.opened_on is None:
            return
        lane = way.lane
        self._ledger.confirm(lane, last + lane.shift)
        while way.under_way and way.under_way[0][0] <= lane.confirmed:
            self._window -= way.under_way.popleft()[1]
        self._writer.note_confirmed()
        self._on_progress(lane)
        self.wake()

    def refused(self, number: int, error: HeliographError) -> None:
        """The server took nothing from here on; what it has is asked again when the way is opened again."""
        way = self._by_number(number)
        if way is not None and way.opened_on is not None:
            self._window -= way.shut()
            self._hold(way, error)

    def blocked(self, destination: str, *, is_blocked: bool) -> None:
        lane = self._ledger.by_destination.get(destination)
        if lane is not None:
            way = self.way_of(lane)
            way.is_blocked = is_blocked
            self.pump(way)

    def wake(self) -> None:
        """There may be room again."""
        for way in self.ways():
            if way.ready or way.read_upto < way.lane.stored:
                self.pump(way)

    def _by_number(self, number: int) -> Way | None:
        lane = self._ledger.lanes.get(number)
        if lane is None or lane.wire != number:
            lane = next((lane for lane in self._ledger.lanes.values() if lane.wire == number), None)
        return None if lane is None else self.way_of(lane)

    # ---- refusals

    def _hold(self, way: Way, error: HeliographError) -> None:
        """Nothing is dropped: it is tried again, and said once."""
        is_news = way.held is None or way.held.code != error.code
        first, longest = FORWARD_RETRY_SECONDS
        way.held = error
        pause = min(first * 2 ** min(way.attempts, 10), longest)
        way.attempts += 1
        if way.retry is not None:
            way.retry.cancel()
        way.retry = self._loop.call_later(pause, self._try_again, way)
        if is_news:
            self._report(error)

    def _try_again(self, way: Way) -> None:
        way.retry = None
        if self._wire is not None and not way.is_busy:
            self._start(self._open_by_itself(way))

    # ---- discarding, and the end

    async def discard(self, lane: Lane) -> int:
        """Drop what waits. Returns how many messages; nothing leaves on the lane before that is durable."""
        way = self.way_of(lane)
        self._window -= way.shut()
        way.held = None
        way.attempts = 0
        way.is_moving = True
        try:
            count = self._ledger.discard(lane)
            self._on_progress(lane)
            await self._writer.durable(state=True)
        finally:
            way.is_moving = False
        self.pump(way)
        return count

    def _start(self, work: Coroutine[object, object, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            log.error("forwarding failed", exc_info=fault)

    async def close(self) -> None:
        self.detach()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _portion(lane: Lane, sequence: int) -> list[Entry]:
    """The next stored blocks of a lane, as many as are read at a time."""
    portion: list[Entry] = []
    size = 0
    for entry in lane.entries_from(sequence):
        portion.append(entry)
        size += entry.size
        if size >= FORWARD_READ_BYTES:
            break
    return portion
