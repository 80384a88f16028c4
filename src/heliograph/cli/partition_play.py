"""What happens in `helio demo partition`: clients send and receive at every client manager while the network is cut
and healed, and in the end what was confirmed is compared with what was received.

At each client manager one client sends numbered messages and another receives them, a little more slowly, so that
some are waiting when the network is cut. Then another client begins to send in each part: what it sends is newer than
the cut.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from heliograph.cli.cluster_status import Part, survey
from heliograph.cli.connecting import FOLLOW_SECONDS, ServerAddress, connected
from heliograph.model.errors import HeliographError

if TYPE_CHECKING:
    from heliograph.cli.partition_stage import Stage
    from heliograph.client import Connection, Consumer, Message

QUEUE: Final = "queue:demo"
SENDING_SECONDS: Final = 0.03
# Receivers take longer than senders, so that something waits in the queue.
RECEIVING_SECONDS: Final = 0.04
WHOLE_SECONDS: Final = 3.0
CUT_SECONDS: Final = 6.0
LOOK_SECONDS: Final = 0.5
DRAIN_SECONDS: Final = 60.0
_WAIT_SECONDS: Final = 0.2
_ENDED_BY_MERGE: Final = "settlement-unknown"
_OF_BRANCHES: Final = ("branch-set-aside", "branch-taken-in")


@dataclass(slots=True)
class Tally:
    """What clients were told, and what they got."""

    confirmed: dict[str, int] = field(default_factory=dict)  # by sender: its messages are numbered from 1
    received: dict[tuple[str, int], int] = field(default_factory=dict)  # how often
    last: dict[tuple[str, str], int] = field(
        default_factory=dict
    )  # the highest number so far, by receiver and sender
    marked: int = 0  # came again, and said so
    disordered: int = 0

    def took(self, receiver: str, sender: str, number: int, *, redelivered: bool) -> None:
        """What one sends, each receiver gets in order, but for what comes again."""
        before = self.received.get((sender, number), 0)
        self.received[sender, number] = before + 1
        if before:
            self.marked += redelivered
        last = self.last.get((receiver, sender), 0)
        self.disordered += number < last and not redelivered
        self.last[receiver, sender] = max(number, last)

    @property
    def accepted(self) -> int:
        return sum(self.confirmed.values())

    @property
    def handed_out(self) -> int:
        return len(self.received)

    @property
    def lost(self) -> int:
        wanted = (
            (sender, number) for sender, count in self.confirmed.items() for number in range(1, count + 1)
        )
        return sum(each not in self.received for each in wanted)

    @property
    def doubled(self) -> int:
        return sum(self.received.values()) - len(self.received) - self.marked


@dataclass(slots=True)
class Moment:
    """How things are, for those who watch."""

    seconds: float
    act: str
    parts: list[Part]
    tally: Tally


@dataclass(slots=True)
class Outcome:
    """What it came to."""

    tally: Tally
    events: list[dict[str, Any]]
    healed_seconds: float  # from the heal until everything was received


Tell = Callable[[Moment], None]


class Play:
    """One performance."""

    def __init__(self, stage: Stage, tell: Tell) -> None:
        self._stage = stage
        self._tell = tell
        self._tally = Tally()
        self._began = time.monotonic()
        self._sends = True
        self._is_over = False
        self._tasks: list[asyncio.Task[None]] = []
        self._senders: list[asyncio.Task[None]] = []

    async def run(self) -> Outcome:
        """Raises HeliographError."""
        async with AsyncExitStack() as stack:
            await self._begin(stack)
            await self._watch("whole", WHOLE_SECONDS)
            await self._stage.cut()
            for number in (1, 3):
                await self._client(stack, number, f"new at {number}", self._send)
            await self._watch("cut", CUT_SECONDS)
            self._sends = False
            await asyncio.gather(*self._senders)
            await self._stage.heal()
            healed = time.monotonic()
            await self._watch("healed", DRAIN_SECONDS, until=self._is_drained)
            took = time.monotonic() - healed
            self._is_over = True
            await asyncio.gather(*self._tasks)
        return Outcome(self._tally, await self._events(), took)

    # ---- clients

    async def _begin(self, stack: AsyncExitStack) -> None:
        for number in range(1, len(self._stage.addresses) + 1):
            await self._client(stack, number, f"client {number}", self._send)
            await self._client(stack, number, f"receiver {number}", self._receive)

    async def _client(
        self,
        stack: AsyncExitStack,
        at: int,
        name: str,
        work: Callable[[Connection, str], Coroutine[None, None, None]],
    ) -> None:
        address = self._stage.addresses[at - 1]
        opening = connected(address, purpose=f"demo, {name}", reconnect_seconds=FOLLOW_SECONDS)
        connection = await stack.enter_async_context(opening)
        task = asyncio.create_task(work(connection, name))
        self._tasks.append(task)
        if work == self._send:
            self._senders.append(task)

    async def _send(self, connection: Connection, name: str) -> None:
        producer = await connection.producer(QUEUE)
        while self._sends:
            number = self._tally.confirmed.get(name, 0) + 1
            await producer.send_confirmed({"sender": name, "number": number})
            self._tally.confirmed[name] = number
            await asyncio.sleep(SENDING_SECONDS)

    async def _receive(self, connection: Connection, name: str) -> None:
        """A consumer may end with the part that it was in; a program that wants to go on makes another."""
        while not self._is_over:
            consumer = await connection.consumer(QUEUE, credit=1)
            try:
                await self._receive_all(consumer, name)
            except HeliographError as error:
                if error.code != _ENDED_BY_MERGE:
                    raise

    async def _receive_all(self, consumer: Consumer, name: str) -> None:
        while not self._is_over:
            message = await consumer.receive(timeout=_WAIT_SECONDS)
            if message is not None:
                self._took(name, message)
                await asyncio.sleep(RECEIVING_SECONDS if self._sends else 0)

    def _took(self, name: str, message: Message) -> None:
        body = message.body
        assert isinstance(body, dict), "only this demo sends to the queue"
        sender, number = str(body["sender"]), int(body["number"])
        self._tally.took(name, sender, number, redelivered=message.redelivered)

    # ---- watching

    async def _watch(self, act: str, seconds: float, until: Callable[[], bool] | None = None) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for task in self._tasks:
                if task.done():
                    task.result()  # raises what ended it
            parts = await _look(self._stage.addresses)
            self._tell(Moment(time.monotonic() - self._began, act, parts, self._tally))
            if until is not None and until() and len(parts) == 1:
                return
            await asyncio.sleep(LOOK_SECONDS)

    def _is_drained(self) -> bool:
        return not self._tally.lost

    async def _events(self) -> list[dict[str, Any]]:
        async with connected(self._stage.addresses[0], purpose="demo") as connection:
            events: list[dict[str, Any]] = (await connection.ask("log", events=[*_OF_BRANCHES]))["events"]
        return events


async def _look(addresses: list[ServerAddress]) -> list[Part]:
    """A view that is being made answers nobody: then there is nothing to see for a moment."""
    try:
        return (await survey(addresses))[0]
    except HeliographError:
        return []
