"""The blocking face: the same connection, sessions, producers and consumers, without await (J12).

A thread of its own runs the event loop; everything here hands over to the asyncio objects there, which do
all the work. Two paths are kept quick: `send` collects messages and wakes the loop once for many, and a
consumer draws messages straight from the asyncio consumer's inbox, so that what counts as handed over is
the same on both faces.

Callbacks (`on_error`, `on_completion`) are called on that thread: they should be short, and must not call
back into this face, which would wait for itself.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any, Self, Unpack, cast
from weakref import WeakSet

from heliograph.client.connection import (
    DEFAULT_URL,
    RECONNECT_SECONDS,
    AcknowledgeMode,
    Connecting,
    Connection,
)
from heliograph.client.connection import connect as connect_async
from heliograph.client.consumer import BATCH_MESSAGES, Consumer
from heliograph.client.link import OnError
from heliograph.client.loop_thread import LoopThread
from heliograph.client.message import BlockingMessage
from heliograph.client.preparing import MessageOptions, OnCompletion, Outgoing, SendOptions
from heliograph.client.producer import Producer
from heliograph.client.session import Session
from heliograph.model.errors import ClientFault, HeliographError
from heliograph.model.limits import BLOCK_MESSAGES, CONSUMER_CREDIT
from heliograph.model.message import DEFAULT_PRIORITY, Body

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
        self._collect((self._producer.prepare(body, **cast(MessageOptions, options)), on_completion))

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
        """Hand over what was collected, in order; on an error everything collected so far fails."""
        async with self._turn:
            with self._changed:
                entries, self._entries = self._entries, []
                self._is_woken = False
                self._changed.notify_all()
            position = 0
            try:
                for position, entry in enumerate(entries):  # noqa: B007 - the handler below uses it
                    if entry.__class__ is bytes:
                        await self._producer.send(entry)
                    else:
                        await self._producer.post(*cast(tuple[Outgoing, OnCompletion | None], entry))
            except HeliographError as error:
                self._fail(error, entries[position:])

    def _fail(self, error: HeliographError, entries: list[_Entry] | None = None) -> None:
        with self._changed:
            failed = (entries or []) + self._entries
            self._entries = []
            self._fault = error
            self._changed.notify_all()
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


class BlockingConsumer:
    """As `Consumer`, without await: `for message in consumer`."""

    def __init__(self, thread: LoopThread, consumer: Consumer) -> None:
        self._thread = thread
        self._consumer = consumer
        self._inbox = consumer.inbox

    @property
    def destination(self) -> str:
        return self._consumer.destination

    def __iter__(self) -> Iterator[BlockingMessage]:
        inbox = self._inbox
        while self._thread.run(self._consumer.more()):
            for message in inbox.messages:
                yield message
                if inbox.quiet:
                    self._acknowledge_soon()

    def receive(self, timeout: float | None = None) -> BlockingMessage | None:
        """The next message; None if none came in `timeout` seconds, or the consumer was closed."""
        inbox = self._inbox
        message: BlockingMessage | None = next(inbox.messages, None)
        while message is None:
            self._consumer.check_open()
            if not self._thread.run(self._consumer.more(timeout)):
                return None
            message = next(inbox.messages, None)
        if inbox.quiet:
            self._acknowledge_soon()
        return message

    def _acknowledge_soon(self) -> None:
        self._inbox.quiet = False
        self._thread.loop.call_soon_threadsafe(self._consumer.acknowledge_soon)

    def receive_batch(
        self, limit: int = BATCH_MESSAGES, timeout: float | None = None
    ) -> list[BlockingMessage]:
        """Wait for a message, then take all that are here; see `Consumer.receive_batch`."""
        return cast(list[BlockingMessage], self._thread.run(self._consumer.receive_batch(limit, timeout)))

    def close(self) -> None:
        """End it; see `Consumer.close`."""
        self._thread.run(self._consumer.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._thread.run(self._consumer.leave(complete=kind is None))


class BlockingSession:
    """As `Session`, without await."""

    def __init__(self, thread: LoopThread, session: Session) -> None:
        self._thread = thread
        self._session = session
        self._producers: WeakSet[BlockingProducer] = WeakSet()

    @property
    def id(self) -> str:
        return self._session.id

    def producer(
        self,
        destination: str,
        *,
        priority: int = DEFAULT_PRIORITY,
        persistent: bool = True,
        time_to_live: float | None = None,
    ) -> BlockingProducer:
        """A producer; see `Session.producer`."""
        work = self._session.producer(
            destination, priority=priority, persistent=persistent, time_to_live=time_to_live
        )
        producer = BlockingProducer(self._thread, self, self._thread.run(work))
        self._producers.add(producer)
        return producer

    def consumer(self, destination: str, *, credit: int = CONSUMER_CREDIT) -> BlockingConsumer:
        """A consumer; see `Session.consumer`."""
        work = self._session.subscribe(destination, credit, BlockingMessage)
        return BlockingConsumer(self._thread, self._thread.run(work))

    def acknowledge(self, *, confirm: bool = False) -> None:
        """Mode "client": everything handed over so far is processed."""
        self._thread.run(self._session.acknowledge(confirm=confirm))

    def close(self) -> None:
        """Wait until what was sent is confirmed, then end the session."""
        self._thread.run(self.leave(complete=True))

    async def leave(self, *, complete: bool) -> None:
        """Close, on the loop's thread."""
        fault = await self.collect() if complete else None
        await self._session.leave(complete=complete)
        if fault is not None:
            raise fault

    async def collect(self) -> HeliographError | None:
        """Hand over what producers have collected. Returns what went wrong with it."""
        fault: HeliographError | None = None
        for producer in list(self._producers):
            try:
                await producer.caught_up()
            except HeliographError as error:
                fault = fault or error
        return fault

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._thread.run(self.leave(complete=kind is None))


class BlockingConnection:
    """As `Connection`, without await. Made by `connect`."""

    def __init__(self, thread: LoopThread, connection: Connection) -> None:
        self._thread = thread
        self._connection = connection
        self._sessions: WeakSet[BlockingSession] = WeakSet()
        self._default: BlockingSession | None = None
        self._opening = threading.Lock()

    @property
    def user(self) -> str:
        return self._connection.user

    @property
    def server(self) -> str:
        return self._connection.server

    def is_alive(self) -> bool:
        """False once the connection is closed or given up."""
        return self._connection.is_alive()

    def session(self, *, acknowledge: AcknowledgeMode = "auto") -> BlockingSession:
        """Open a session; see `Connection.session`."""
        return self._wrap(self._thread.run(self._connection.session(acknowledge=acknowledge)))

    def _wrap(self, session: Session) -> BlockingSession:
        wrapped = BlockingSession(self._thread, session)
        self._sessions.add(wrapped)
        return wrapped

    def _default_session(self) -> BlockingSession:
        with self._opening:
            if self._default is None:
                self._default = self._wrap(self._thread.run(self._connection.default_session()))
            return self._default

    def producer(
        self,
        destination: str,
        *,
        priority: int = DEFAULT_PRIORITY,
        persistent: bool = True,
        time_to_live: float | None = None,
    ) -> BlockingProducer:
        """A producer on the connection's own session."""
        return self._default_session().producer(
            destination, priority=priority, persistent=persistent, time_to_live=time_to_live
        )

    def consumer(self, destination: str, *, credit: int = CONSUMER_CREDIT) -> BlockingConsumer:
        """A consumer on the connection's own session, which is in mode "auto"."""
        return self._default_session().consumer(destination, credit=credit)

    def ask(self, subject: str, **arguments: Any) -> dict[str, Any]:
        """Ask the server's administration."""
        return self._thread.run(self._connection.ask(subject, **arguments))

    def start(self) -> None:
        """Deliveries go on."""
        self._thread.run(_call(self._connection.start))

    def stop(self) -> None:
        """Deliveries pause."""
        self._thread.run(_call(self._connection.stop))

    def close(self) -> None:
        """Wait until what was sent is confirmed, then close; the thread ends too."""
        self._leave(complete=True)

    def _leave(self, *, complete: bool) -> None:
        if self._thread.loop.is_closed():
            return
        try:
            self._thread.run(self._left(complete=complete))
        finally:
            self._thread.stop()

    async def _left(self, *, complete: bool) -> None:
        fault: HeliographError | None = None
        if complete:
            for session in list(self._sessions):
                fault = fault or await session.collect()
        await self._connection.leave(complete=complete)
        if fault is not None:
            raise fault

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._leave(complete=kind is None)


async def _call(function: Callable[[], None]) -> None:
    function()


async def _opened(connecting: Connecting) -> Connection:
    return await connecting


def connect(
    url: str = DEFAULT_URL,
    *,
    user: str | None = None,
    password: str | None = None,
    client_name: str = "",
    reconnect_seconds: float = RECONNECT_SECONDS,
    on_error: OnError | None = None,
    block_messages: int = BLOCK_MESSAGES,
    heartbeat_seconds: float | None = None,
) -> BlockingConnection:
    """Connect to a server; see `heliograph.connect`, which takes the same. Close it, or use it in `with`."""
    connecting = connect_async(
        url,
        user=user,
        password=password,
        client_name=client_name,
        reconnect_seconds=reconnect_seconds,
        on_error=on_error,
        block_messages=block_messages,
        heartbeat_seconds=heartbeat_seconds,
    )
    thread = LoopThread()
    try:
        return BlockingConnection(thread, thread.run(_opened(connecting)))
    except BaseException:
        thread.stop()
        raise
