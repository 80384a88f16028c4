"""Dead messages on their way again: sent, confirmed, and only then taken out of the dead message queue.

Whatever interrupts this, no message is lost; one that was sent and not yet taken out is sent again the next
time. What dies again meanwhile is left alone: only what was dead at the beginning is sent.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heliograph.cli.connecting import ServerAddress, connected
from heliograph.cli.dead_queues import dead_message_queues
from heliograph.cli.presentation import count_of, duration_of
from heliograph.destinations import dead_letters as names
from heliograph.model.errors import ClientFault, HeliographError

if TYPE_CHECKING:
    from heliograph.client import Connection, Consumer, Message, Producer, Session

_BATCH = 200
_A_MOMENT_SECONDS = 1.0
# With so many that cannot be sent, something is wrong that a person should look at first.
_MAX_FAILURES = 1000
_OURS = (
    names.ORIGINAL_DESTINATION,
    names.ORIGINAL_ID,
    names.REASON,
    names.DELIVERIES,
    names.DIED_AT,
    names.LAST_ERROR,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Which messages, how fast, how many, where to."""

    selector: str = ""
    rate: float | None = None
    count: int | None = None
    to: str | None = None

    def selector_until(self, moment: float) -> str:
        """Those that were dead by then."""
        by_then = f"{names.DIED_AT} <= {moment!r}"
        return f"({self.selector}) AND {by_then}" if self.selector else by_then


class Redrive:
    """One run, and how far it came."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._producers: dict[str, Producer] = {}
        self._stopped = asyncio.Event()
        self._seconds = 0.0
        self.redriven = 0
        self.failures: dict[str, int] = {}

    @property
    def _failed(self) -> int:
        return sum(self.failures.values())

    def record(self) -> dict[str, Any]:
        return {
            "redriven": self.redriven,
            "failed": self._failed,
            "failures": self.failures,
            "stopped": self._stopped.is_set(),
            "seconds": round(self._seconds, 3),
        }

    def sentence(self) -> str:
        told = f"{count_of(self.redriven, 'message')} sent again in {duration_of(self._seconds)}"
        return f"{told}; stopped, start it again to go on" if self._stopped.is_set() else told

    async def run(self, address: ServerAddress) -> None:
        """Until nothing is left, enough was sent, or Ctrl-C."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._stopped.set)
        began = time.monotonic()
        try:
            async with connected(address, purpose="dmq redrive") as connection:
                session = await connection.session(acknowledge="individual")
                selector = self._order.selector_until(await _now(connection))
                for queue in dead_message_queues(connection):
                    await self._work(session, await session.consumer(queue, selector=selector))
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            self._seconds = time.monotonic() - began

    async def _work(self, session: Session, consumer: Consumer) -> None:
        rate = self._order.rate
        batch_limit = _BATCH if rate is None else max(1, min(_BATCH, int(rate / 10)))
        progress = _Progress()
        with progress:
            while not self._stopped.is_set() and self._wanted(batch_limit):
                began = time.monotonic()
                batch = await consumer.receive_batch(self._wanted(batch_limit), timeout=_A_MOMENT_SECONDS)
                if not batch:
                    return
                await self._send(session, batch)
                progress.show(self.redriven)
                if self._failed >= _MAX_FAILURES:
                    raise ClientFault(f"{self._failed} messages cannot be sent", code="redrive-failed")
                if rate is not None:
                    await self._pause(len(batch) / rate - (time.monotonic() - began))

    def _wanted(self, limit: int) -> int:
        count = self._order.count
        return limit if count is None else min(limit, count - self.redriven - self._failed)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, 0)):
                await self._stopped.wait()

    async def _send(self, session: Session, batch: list[Message]) -> None:
        """All of them, and then, of those that were taken, the acknowledgements."""
        outcomes = await asyncio.gather(
            *[self._send_one(session, message) for message in batch], return_exceptions=True
        )
        sent: list[Message] = []
        for message, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, HeliographError):
                self.failures[outcome.sentence] = self.failures.get(outcome.sentence, 0) + 1
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                sent.append(message)
        for message in sent:
            await message.acknowledge(confirm=message is sent[-1])
        self.redriven += len(sent)

    async def _send_one(self, session: Session, message: Message) -> None:
        destination = self._order.to or message.properties.get(names.ORIGINAL_DESTINATION)
        if not isinstance(destination, str):
            raise ClientFault("it does not say where it came from: give --to", code="redrive-failed")
        producer = self._producers.get(destination)
        if producer is None:
            producer = self._producers[destination] = await session.producer(destination)
        await producer.send_confirmed(
            message.body,
            properties={name: value for name, value in message.properties.items() if name not in _OURS},
            correlation_id=message.correlation_id,
            reply_to=message.reply_to,
            type=message.type,
            priority=message.priority,
            persistent=message.persistent,
            group_id=message.group_id,
            group_sequence=message.group_sequence,
        )


async def _now(connection: Connection) -> float:
    """The server's time if we may ask for it: that is what deaths are dated by."""
    try:
        return float((await connection.ask("server"))["time"])
    except HeliographError:
        return time.time()


class _Progress:
    """A counter that moves where a person is watching."""

    def __init__(self) -> None:
        self._status: Any = None
        if sys.stderr.isatty():
            from rich.console import Console

            self._status = Console(stderr=True).status("sending again…")

    def __enter__(self) -> _Progress:
        if self._status is not None:
            self._status.start()
        return self

    def show(self, redriven: int) -> None:
        if self._status is not None:
            self._status.update(f"{count_of(redriven, 'message')} sent again")

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()
