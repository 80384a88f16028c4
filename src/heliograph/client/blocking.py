"""The blocking face: the same connection, sessions, producers and consumers, without await (J12).

A thread of its own runs the event loop; everything here hands over to the asyncio objects there, which do
all the work. Two paths are kept quick: `send` collects messages and wakes the loop once for many, and a
consumer draws messages straight from the asyncio consumer's inbox, so that what counts as handed over is
the same on both faces.

Callbacks (`on_error`, `on_completion`) are called on that thread: they should be short, and must not call
back into this face, which would wait for itself.
"""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar, Unpack
from weakref import WeakSet

from heliograph.client.blocking_alerts import BlockingAlertChannel, BlockingAlertConsumer
from heliograph.client.blocking_receiving import BlockingBrowser, BlockingConsumer
from heliograph.client.blocking_sending import BlockingProducer, BlockingStoringProducer
from heliograph.client.connection import (
    DEFAULT_URL,
    AcknowledgeMode,
    Connecting,
    Connection,
)
from heliograph.client.connection import connect as connect_async
from heliograph.client.flow import OnBlocked
from heliograph.client.forwarding.agent import Stored
from heliograph.client.forwarding.producer import StoringProducer
from heliograph.client.link import OnError
from heliograph.client.loop_thread import LoopThread
from heliograph.client.message import BlockingMessage
from heliograph.client.preparing import MessageOptions, ProducerOptions
from heliograph.client.requesting import Requester
from heliograph.client.session import Session
from heliograph.client.subscribing import ConsumerOptions, terms_of
from heliograph.model.errors import HeliographError, TransactionRolledBack
from heliograph.model.limits import BLOCK_MESSAGES, STORE_BYTES
from heliograph.model.message import Body

T = TypeVar("T")

__all__ = [
    "BlockingAlertChannel",
    "BlockingAlertConsumer",
    "BlockingBrowser",
    "BlockingConnection",
    "BlockingConsumer",
    "BlockingMessage",
    "BlockingProducer",
    "BlockingSession",
    "BlockingStoringProducer",
    "connect",
]


class BlockingSession:
    """As `Session`, without await."""

    def __init__(self, thread: LoopThread, session: Session) -> None:
        self._thread = thread
        self._session = session
        self._producers: WeakSet[BlockingProducer] = WeakSet()

    @property
    def id(self) -> str:
        return self._session.id

    def producer(self, destination: str, **options: Unpack[ProducerOptions]) -> BlockingProducer:
        """A producer; see `Session.producer`."""
        made = self._thread.run(self._session.producer(destination, **options))
        if isinstance(made, StoringProducer):
            producer: BlockingProducer = BlockingStoringProducer(self._thread, self, made)
        else:
            producer = BlockingProducer(self._thread, self, made)
        self._producers.add(producer)
        return producer

    def consumer(self, destination: str, **options: Unpack[ConsumerOptions]) -> BlockingConsumer:
        """A consumer; see `Session.consumer`."""
        work = self._session.subscribe(terms_of(destination, **options), BlockingMessage)
        return BlockingConsumer(self._thread, self._thread.run(work))

    def browser(self, destination: str, *, selector: str = "") -> BlockingBrowser:
        """A browser; see `Session.browser`."""
        work = self._session.browse(destination, selector, BlockingMessage)
        return BlockingBrowser(self._thread, self._thread.run(work))

    def unsubscribe(self, name: str) -> None:
        """Give up a durable subscription; see `Session.unsubscribe`."""
        self._thread.run(self._session.unsubscribe(name))

    def acknowledge(self, *, confirm: bool = False) -> None:
        """Mode "client": everything handed over so far is processed."""
        self._thread.run(self._session.acknowledge(confirm=confirm))

    def recover(self) -> None:
        """Have again what is not acknowledged; see `Session.recover`."""
        self._thread.run(self._session.recover())

    def commit(self) -> None:
        """All since the last commit takes effect together; see `Session.commit`."""
        self._thread.run(self._committed())

    async def _committed(self) -> None:
        fault = await self.collect() if self._session.transaction is not None else None
        if fault is None:
            await self._session.commit()
        else:
            await self._session.rollback()
            raise TransactionRolledBack(f"the transaction was rolled back: {fault.sentence}") from fault

    def rollback(self) -> None:
        """Nothing since the last commit takes effect; see `Session.rollback`."""
        self._thread.run(self._rolled_back())

    async def _rolled_back(self) -> None:
        if self._session.transaction is not None:
            await self.collect()  # whatever went wrong with it: it is dropped
        await self._session.rollback()

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
        self._requester = Requester(connection, BlockingMessage)

    @property
    def user(self) -> str:
        return self._connection.user

    @property
    def server(self) -> str:
        return self._connection.server

    def is_alive(self) -> bool:
        """False once the connection is closed or given up."""
        return self._connection.is_alive()

    def is_blocked(self, destination: str) -> bool:
        """Whether the server wants us to wait with messages to a destination; see `Connection.is_blocked`."""
        return self._connection.is_blocked(destination)

    @property
    def on_blocked(self) -> OnBlocked | None:
        """Called on the loop's thread; see `Connection.on_blocked`."""
        return self._connection.on_blocked

    @on_blocked.setter
    def on_blocked(self, callback: OnBlocked | None) -> None:
        self._connection.on_blocked = callback

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

    def producer(self, destination: str, **options: Unpack[ProducerOptions]) -> BlockingProducer:
        """A producer on the connection's own session."""
        return self._default_session().producer(destination, **options)

    def consumer(self, destination: str, **options: Unpack[ConsumerOptions]) -> BlockingConsumer:
        """A consumer on the connection's own session, which is in mode "auto"."""
        return self._default_session().consumer(destination, **options)

    def browse(self, destination: str, *, selector: str = "") -> BlockingBrowser:
        """A browser on the connection's own session."""
        return self._default_session().browser(destination, selector=selector)

    def alerts(self, channel: str) -> BlockingAlertChannel:
        """An alert channel; see `Connection.alerts`."""
        return BlockingAlertChannel(self._thread, self._connection.alerts(channel))

    def unsubscribe(self, name: str) -> None:
        """Give up a durable subscription of this client."""
        self._thread.run(self._connection.unsubscribe(name))

    def temporary_queue(self) -> str:
        """Make a queue that ends with this connection."""
        return self._thread.run(self._connection.temporary_queue())

    def temporary_topic(self) -> str:
        """Make a topic that ends with this connection."""
        return self._thread.run(self._connection.temporary_topic())

    def delete_temporary(self, address: str) -> None:
        """End a temporary destination early."""
        self._thread.run(self._connection.delete_temporary(address))

    def request(
        self, destination: str, body: Body, *, timeout: float | None, **options: Unpack[MessageOptions]
    ) -> BlockingMessage:
        """Send a question and wait for the reply; see `Connection.request`."""
        work = self._requester.request(destination, body, timeout, options)
        reply: BlockingMessage = self._thread.run(work)
        return reply

    @property
    def stored(self) -> Stored:
        """What waits on the local disk to be forwarded."""
        return self._connection.stored

    def forwarded(self) -> None:
        """Wait until the server has everything that is stored."""
        self._thread.run(self._connection.forwarded())

    def discard(self, destination: str) -> int:
        """Drop what is stored for a destination; see `Connection.discard`."""
        return self._thread.run(self._connection.discard(destination))

    def ask(self, subject: str, **arguments: Any) -> dict[str, Any]:
        """Ask the server's administration."""
        return self._thread.run(self._connection.ask(subject, **arguments))

    @property
    def asynchronous(self) -> Connection:
        """The connection behind this one, for work that is done on its loop by `run`."""
        return self._connection

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something on the connection's loop and wait for its result."""
        return self._thread.run(work)

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
    client_id: str = "",
    reconnect_seconds: float | None = None,
    on_error: OnError | None = None,
    block_messages: int = BLOCK_MESSAGES,
    heartbeat_seconds: float | None = None,
    unit_of_order: str | bool | None = None,
    store_and_forward: str | os.PathLike[str] | None = None,
    store_bytes: int = STORE_BYTES,
    tls: bool | ssl.SSLContext | None = None,
    mechanism: str | None = None,
) -> BlockingConnection:
    """Connect to a server; see `heliograph.connect`, which takes the same. Close it, or use it in `with`."""
    connecting = connect_async(
        url,
        user=user,
        password=password,
        client_name=client_name,
        client_id=client_id,
        reconnect_seconds=reconnect_seconds,
        on_error=on_error,
        block_messages=block_messages,
        heartbeat_seconds=heartbeat_seconds,
        unit_of_order=unit_of_order,
        store_and_forward=store_and_forward,
        store_bytes=store_bytes,
        tls=tls,
        mechanism=mechanism,
    )
    thread = LoopThread()
    try:
        return BlockingConnection(thread, thread.run(_opened(connecting)))
    except BaseException:
        thread.stop()
        raise
