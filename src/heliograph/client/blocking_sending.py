"""A producer of the blocking face: collects messages and wakes the loop's thread once for many."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Self, Unpack, cast

from heliograph.client.forwarding.producer import StoringProducer
from heliograph.client.large_source import StreamSource
from heliograph.client.loop_thread import LoopThread
from heliograph.client.preparing import MessageOptions, OnCompletion, Outgoing, SendOptions
from heliograph.client.producer import Producer
from heliograph.model.errors import ClientFault, HeliographError, OrderBroken, Unavailable
from heliograph.model.limits import BLOCK_MESSAGES, LARGE_THRESHOLD_BYTES
from heliograph.model.message import Body
from heliograph.model.units import NO_UNIT, unit_number

if TYPE_CHECKING:
    from heliograph.client.blocking import BlockingSession

# Messages collected on this side of the thread before `send` waits for the loop: a few blocks, so that both
# sides stay busy.
COLLECTED_MESSAGES = 4 * BLOCK_MESSAGES

_Entry = bytes | tuple[Outgoing, OnCompletion | None]


class BlockingProducer:
    """As `Producer`, without await."""

    def __init__(self, thread: LoopThread, session: BlockingSession, producer: Producer) -> None:
        self._thread = thread
        self._session = session  # which hands over what is collected here when it is closed
        self._producer = producer
        self._entries: list[_Entry] = []
        self._is_woken = False
        self._changed = threading.Condition()
        self._fault: HeliographError | None = None
        self._turn = asyncio.Lock()  # one at a time empties the entries, so that they stay in order

    @property
    def destination(self) -> str:
        return self._producer.destination

    @property
    def unconfirmed(self) -> int:
        return self._producer.unconfirmed + len(self._entries)

    def send(self, body: Body, **options: Unpack[SendOptions]) -> None:
        """Send without waiting for the server's yes; see `Producer.send`."""
        if not options and body.__class__ is bytes:
            self._collect(body)
            return
        on_completion = options.pop("on_completion", None)
        timeout = options.pop("timeout", None)
        message = self._producer.prepare(body, **cast(MessageOptions, options))
        if timeout is None:
            self._collect((message, on_completion))
        else:
            self._thread.run(self._posted(message, on_completion, timeout))

    async def _posted(self, message: Outgoing, on_completion: OnCompletion | None, timeout: float) -> None:
        try:
            async with asyncio.timeout(timeout):
                await self.caught_up()
                await self._producer.post(message, on_completion)
        except TimeoutError:
            raise Unavailable(
                f"{self.destination} took no message for {timeout:g} s: try again later", code="send-timeout"
            ) from None

    @property
    def is_blocked(self) -> bool:
        """Whether the server wants us to wait; see `Producer.is_blocked`."""
        return self._producer.is_blocked

    def try_send(self, body: Body, **options: Unpack[SendOptions]) -> bool:
        """Send if that is possible without waiting; see `Producer.try_send`."""
        return self._thread.run(self._tried(body, options))

    async def _tried(self, body: Body, options: SendOptions) -> bool:
        if self._producer.is_blocked:
            return False
        await self.caught_up()
        return await self._producer.try_send(body, **options)

    def _collect(self, entry: _Entry) -> None:
        with self._changed:
            while len(self._entries) >= COLLECTED_MESSAGES and self._fault is None:
                self._changed.wait()
            self._raise_fault()
            self._entries.append(entry)
            if self._is_woken:
                return
            self._is_woken = True
        self._wake()

    def _wake(self) -> None:
        try:
            self._thread.loop.call_soon_threadsafe(self._begin)
        except RuntimeError:  # the loop is closed
            self._fail(ClientFault("the connection is closed", code="closed"))

    def _begin(self) -> None:
        self._draining = self._thread.loop.create_task(self._drain())

    async def _drain(self) -> None:
        """Hand over what was collected, in order; on an error everything collected so far fails.

        But where only the place of one unit of order cannot be reached, only that unit's messages do.
        """
        async with self._turn:
            with self._changed:
                entries, self._entries = self._entries, []
                self._is_woken = False
                self._changed.notify_all()
            while entries:
                position = 0
                try:
                    for position, entry in enumerate(entries):  # noqa: B007 - the handler below uses it
                        if entry.__class__ is bytes:
                            await self._producer.send(entry)
                        else:
                            await self._producer.post(*cast(tuple[Outgoing, OnCompletion | None], entry))
                    return
                except OrderBroken as error:
                    entries = self._fail_unit(error, entries[position:])
                except HeliographError as error:
                    self._fail(error, entries[position:])
                    return

    def _fail_unit(self, error: OrderBroken, entries: list[_Entry]) -> list[_Entry]:
        """The first of these cannot go, nor anything of its unit until its sender has heard so. Returns the rest."""
        unit = self._unit_of(entries[0])
        with self._changed:
            failed = [entry for entry in (*entries, *self._entries) if self._unit_of(entry) == unit]
            self._entries = [entry for entry in self._entries if self._unit_of(entry) != unit]
            self._fault = error
            self._changed.notify_all()
        self._tell_failed(error, failed)
        return [entry for entry in entries if self._unit_of(entry) != unit]

    def _unit_of(self, entry: _Entry) -> int:
        if isinstance(entry, tuple):
            return entry[0].unit
        name = self._producer.unit_of_order
        return unit_number(name) if name else NO_UNIT

    def _fail(self, error: HeliographError, entries: list[_Entry] | None = None) -> None:
        with self._changed:
            failed = (entries or []) + self._entries
            self._entries = []
            self._fault = error
            self._changed.notify_all()
        self._tell_failed(error, failed)

    @staticmethod
    def _tell_failed(error: HeliographError, failed: list[_Entry]) -> None:
        for entry in failed:
            if isinstance(entry, tuple) and entry[1] is not None:
                entry[1](error)

    def _raise_fault(self) -> None:
        fault, self._fault = self._fault, None
        if fault is not None:
            raise fault

    def send_confirmed(self, body: Body, **options: Unpack[MessageOptions]) -> str:
        """Send and wait until the server has the message; see `Producer.send_confirmed`."""
        message = self._producer.prepare(body, **options)
        return self._thread.run(self._confirmed(message))

    def send_stream(
        self,
        source: StreamSource,
        *,
        threshold: int = LARGE_THRESHOLD_BYTES,
        **options: Unpack[MessageOptions],
    ) -> str:
        """Send what may be far larger than memory; see `Producer.send_stream`."""
        return self._thread.run(self._streamed(source, threshold, options))

    async def _streamed(self, source: StreamSource, threshold: int, options: MessageOptions) -> str:
        await self.caught_up()
        return await self._producer.send_stream(source, threshold=threshold, **options)

    async def _confirmed(self, message: Outgoing) -> str:
        await self.caught_up()
        return await self._producer.post_confirmed(message)

    def flush(self) -> None:
        """Wait until everything sent so far is confirmed. Raises, once, what was refused."""
        self._thread.run(self._flushed())

    async def _flushed(self) -> None:
        await self.caught_up()
        await self._producer.flush()

    async def caught_up(self) -> None:
        await self._drain()
        with self._changed:
            self._raise_fault()

    def close(self) -> None:
        """Flush, and send no more."""
        self._thread.run(self._closed())

    async def _closed(self) -> None:
        await self.caught_up()
        await self._producer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()


class BlockingStoringProducer(BlockingProducer):
    """As `StoringProducer`, without await: `send` returns when the message is on the local disk."""

    def __init__(self, thread: LoopThread, session: BlockingSession, producer: StoringProducer) -> None:
        super().__init__(thread, session, producer)
        self._storing = producer

    def send(self, body: Body, **options: Unpack[SendOptions]) -> None:
        """Send: returns when the message is on the local disk; see `StoringProducer.send`."""
        self._thread.run(self._storing.send(body, **options))

    def send_all(self, bodies: Iterable[Body], **options: Unpack[MessageOptions]) -> None:
        """Send many: returns when all are on the local disk, with few synchronisations."""
        source = iter(bodies)  # drawn from here: it may take its time
        while portion := list(islice(source, COLLECTED_MESSAGES)):
            self._thread.run(self._storing.send_all(portion, **options))
