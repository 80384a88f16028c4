"""The suite's adapter for the native protocol: the asyncio client, driven from this thread.

Server and clients share one event loop on a thread of its own. A lost connection is not made again by itself
here: JMS has no such thing, and a test wants to see it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, Unpack, cast, get_args

import heliograph
from heliograph import HeliographError
from heliograph import client as native
from heliograph.nodes.configuration import load
from heliograph.nodes.embedded import EmbeddedServer
from heliograph.nodes.users import UserStore
from tests.conformance.jms import adapter
from tests.conformance.jms.adapter import (
    Account,
    Body,
    Capability,
    ConsumerOptions,
    Destination,
    IllegalState,
    InvalidClientId,
    InvalidDestination,
    InvalidSelector,
    JmsError,
    Message,
    MessageFormat,
    MessageOptions,
    Mode,
    OnCompletion,
    OnError,
    ProducerOptions,
    Property,
    SecurityViolation,
    TransactionRolledBack,
)

T = TypeVar("T")
# Nothing that a test waits for takes nearly as long; only a defect does.
CALL_SECONDS = 90.0

BY_CODE: dict[str, type[JmsError]] = {
    "acknowledge-mode": IllegalState,
    "body-invalid": MessageFormat,
    "client-id-in-use": InvalidClientId,
    "client-id-invalid": InvalidClientId,
    "client-id-missing": IllegalState,
    "closed": IllegalState,
    "connection-lost": IllegalState,
    "destination-in-use": IllegalState,
    "destination-unknown": InvalidDestination,
    "not-transacted": IllegalState,
    "property-invalid": MessageFormat,
    "selector-invalid": InvalidSelector,
    "selector-too-complex": InvalidSelector,
    "subscription-unknown": InvalidDestination,
    "transacted": IllegalState,
    "transaction-rolled-back": TransactionRolledBack,
}
_BY_CLASS: tuple[tuple[type[HeliographError], type[JmsError]], ...] = (
    (heliograph.InvalidName, InvalidDestination),
    (heliograph.NotAuthenticated, SecurityViolation),
    (heliograph.NotAllowed, SecurityViolation),
)


def translated(error: HeliographError) -> JmsError:
    """The standard exception that says the same."""
    kind = BY_CODE.get(error.code)
    if kind is None:
        kind = next((jms for ours, jms in _BY_CLASS if isinstance(error, ours)), JmsError)
    return kind(str(error))


class Driver:
    """An event loop on its own thread, and calls into it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="conformance", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], timeout: float = CALL_SECONDS) -> T:
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout)
        except HeliographError as error:
            raise translated(error) from error
        except TimeoutError:
            future.cancel()
            raise AssertionError(f"the call did not return in {timeout:g} s") from None

    def call(self, function: Callable[[], None]) -> None:
        async def on_the_loop() -> None:
            function()

        self.run(on_the_loop())

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def address_of(destination: Destination) -> str:
    return f"{destination.kind}:{destination.name}"


def destination_at(address: str) -> Destination:
    kind, _, name = address.partition(":")
    return Destination(cast(Literal["queue", "topic"], kind), name)


def _native_options(options: MessageOptions) -> dict[str, Any]:
    translated_options: dict[str, Any] = dict(options)
    if "reply_to" in options:
        translated_options["reply_to"] = address_of(options["reply_to"])
    return translated_options


class NativeProducer(adapter.Producer):
    """In a transacted session nothing is confirmed before the commit."""

    def __init__(self, driver: Driver, producer: native.Producer, *, transacted: bool) -> None:
        self._driver = driver
        self._producer = producer
        self._transacted = transacted

    def send(self, body: Body, **options: Unpack[MessageOptions]) -> str:
        if self._transacted:
            self._driver.run(self._producer.send(body, **_native_options(options)))
            return ""
        return self._driver.run(self._producer.send_confirmed(body, **_native_options(options)))

    def send_async(self, body: Body, on_completion: OnCompletion, **options: Unpack[MessageOptions]) -> None:
        def completed(error: HeliographError | None) -> None:
            on_completion(None if error is None else translated(error))

        sending = self._producer.send(body, on_completion=completed, **_native_options(options))
        self._driver.run(sending)

    def close(self) -> None:
        self._driver.run(self._producer.close())


class NativeConsumer(adapter.Consumer):
    """Hands over one message at a time."""

    def __init__(self, driver: Driver, consumer: native.Consumer) -> None:
        self._driver = driver
        self._consumer = consumer

    def receive(self, timeout: float | None = None) -> Message | None:
        message = self._driver.run(self._consumer.receive(timeout), (timeout or 0.0) + CALL_SECONDS)
        return None if message is None else _seen(self._driver, message)

    def receive_no_wait(self) -> Message | None:
        return self.receive(0)

    def __iter__(self) -> Iterator[Message]:
        messages = aiter(self._consumer)
        while (message := self._driver.run(_next_of(messages))) is not None:
            yield _seen(self._driver, message)

    def close(self) -> None:
        self._driver.run(self._consumer.close())


class NativeBrowser(adapter.Browser):
    """A look at a queue."""

    def __init__(self, driver: Driver, browser: native.Browser) -> None:
        self._driver = driver
        self._browser = browser

    def __iter__(self) -> Iterator[Message]:
        messages = aiter(self._browser)
        while (message := self._driver.run(_next_of(messages))) is not None:
            yield _seen(self._driver, message)

    def close(self) -> None:
        self._driver.run(self._browser.close())


async def _next_of(messages: Any) -> native.Message | None:
    return await anext(messages, None)


def _seen(driver: Driver, message: native.Message) -> Message:
    return Message(
        body=cast(Body, message.body),
        id=message.id,
        destination=destination_at(message.destination),
        timestamp=message.timestamp,
        expiration=message.expiration,
        delivery_time=message.delivery_time,
        priority=message.priority,
        persistent=message.persistent,
        correlation_id=message.correlation_id,
        reply_to=None if message.reply_to is None else destination_at(message.reply_to),
        type=message.type,
        redelivered=message.redelivered,
        delivery_count=message.delivery_count,
        user_id=message.user_id,
        group_id=message.group_id,
        group_sequence=message.group_sequence,
        properties=cast(Mapping[str, Property], message.properties),
        on_acknowledge=lambda: driver.run(message.acknowledge(confirm=True)),
    )


class NativeSession(adapter.Session):
    """Temporary destinations and subscriptions are the connection's here, as JMS says they are."""

    def __init__(
        self, driver: Driver, connection: native.Connection, session: native.Session, mode: Mode
    ) -> None:
        self._driver = driver
        self._connection = connection
        self._session = session
        self._mode = mode

    def producer(self, destination: Destination, **options: Unpack[ProducerOptions]) -> NativeProducer:
        producer = self._driver.run(self._session.producer(address_of(destination), **options))
        return NativeProducer(self._driver, producer, transacted=self._mode is Mode.TRANSACTED)

    def consumer(self, destination: Destination, **options: Unpack[ConsumerOptions]) -> NativeConsumer:
        durable, shared = options.get("durable"), options.get("shared")
        consumer = self._session.consumer(
            address_of(destination),
            selector=options.get("selector", ""),
            no_local=options.get("no_local", False),
            durable=durable,
            shared=shared if durable is None or shared is None else True,
        )
        return NativeConsumer(self._driver, self._driver.run(consumer))

    def browser(self, destination: Destination, *, selector: str = "") -> NativeBrowser:
        browser = self._session.browser(address_of(destination), selector=selector)
        return NativeBrowser(self._driver, self._driver.run(browser))

    def temporary_queue(self) -> Destination:
        return destination_at(self._driver.run(self._connection.temporary_queue()))

    def temporary_topic(self) -> Destination:
        return destination_at(self._driver.run(self._connection.temporary_topic()))

    def delete_temporary(self, destination: Destination) -> None:
        self._driver.run(self._connection.delete_temporary(address_of(destination)))

    def unsubscribe(self, name: str) -> None:
        self._driver.run(self._session.unsubscribe(name))

    def recover(self) -> None:
        self._driver.run(self._session.recover())

    def commit(self) -> None:
        self._driver.run(self._session.commit())

    def rollback(self) -> None:
        self._driver.run(self._session.rollback())

    def close(self) -> None:
        self._driver.run(self._session.close())


class NativeConnection(adapter.Connection):
    """Ours is started from the beginning, so where JMS wants it stopped it is stopped first of all."""

    def __init__(self, driver: Driver, connection: native.Connection) -> None:
        self._driver = driver
        self._connection = connection

    @property
    def user(self) -> str:
        return self._connection.user

    def session(self, mode: Mode = Mode.AUTO) -> NativeSession:
        session = self._driver.run(self._connection.session(acknowledge=mode.value))
        return NativeSession(self._driver, self._connection, session, mode)

    def start(self) -> None:
        self._driver.call(self._connection.start)

    def stop(self) -> None:
        self._driver.call(self._connection.stop)

    def close(self) -> None:
        self._driver.run(self._connection.close())


class NativeProvider(adapter.Provider):
    """A server in this process, on a free port that it keeps when it is started again."""

    name: ClassVar[str] = "native"
    capabilities: ClassVar[frozenset[Capability]] = frozenset(get_args(Capability))

    def __init__(self, folder: Path, accounts: Sequence[Account] = ()) -> None:
        """Without accounts the server is open to everybody."""
        self._data = folder / "data"
        self._driver = Driver()
        self._port = 0
        self._server: EmbeddedServer | None = None
        users = UserStore.load(self._data / "users.toml")
        for account in accounts:
            users.add(account.name, account.password, ["admin"] if account.trusted else [])
        self.start_server()

    def start_server(self) -> None:
        # "write": a restart finds everything, and nobody waits for the disk.
        settings: dict[str, object] = {
            "server.host": "127.0.0.1",
            "server.port": self._port,
            "server.data": str(self._data),
            "journal.durability": "write",
        }
        server = EmbeddedServer(load(None, settings))
        self._driver.run(server.start())
        self._server = server
        self._port = server.address[1]

    def stop_server(self) -> None:
        if self._server is not None:
            self._driver.run(self._server.stop())
            self._server = None

    def connect(
        self,
        *,
        client_id: str = "",
        started: bool = True,
        on_error: OnError | None = None,
        account: Account | None = None,
    ) -> NativeConnection:
        def heard(error: HeliographError) -> None:
            if on_error is not None:
                on_error(translated(error))

        async def connected() -> native.Connection:
            return await heliograph.connect(
                f"helio://127.0.0.1:{self._port}",
                user=account.name if account else None,
                password=account.password if account else None,
                client_id=client_id,
                reconnect_seconds=0,
                on_error=heard,
            )

        connection = NativeConnection(self._driver, self._driver.run(connected()))
        if not started:
            connection.stop()
        return connection

    def close(self) -> None:
        self.stop_server()
        self._driver.stop()
