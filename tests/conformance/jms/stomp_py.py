"""The suite's adapter for STOMP 1.2: stomp.py, which has its own threads.

A connection of JMS is one of STOMP, whose sessions tell their subscriptions and transactions apart by names. JMS is
told in STOMP's words so: a message of an automatic session is acknowledged by itself (`client-individual`) when it is
handed over; what a client acknowledgement covers is acknowledged with the last of each subscription (`client`);
recovery and rollback give back with NACK, and what the application has not seen goes back uncounted.

What STOMP cannot say is left out of `capabilities`:

auto-in-hand       ours alone
checked-producers  STOMP knows no producers: a destination is looked at when something is sent to it
data-bodies        JSON has no bytes
kept-after-close   what a subscription has and no transaction acknowledged goes back when it ends
plain-groups       a group is a unit of order
sent-ids           a RECEIPT does not say which id a message got

Where a test comes upon it, it ends with the reason: properties that are no texts (`stomp_messages`); going on with a
connection on which something was refused, which STOMP ends (a connection on which nothing else was is made again);
deleting a temporary destination.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any, ClassVar, Literal, Unpack, get_args

import pytest
from stomp import Connection12 as Stomp

from tests.conformance.jms import adapter
from tests.conformance.jms.adapter import (
    Account,
    Body,
    Capability,
    ConsumerOptions,
    Destination,
    IllegalState,
    JmsError,
    Message,
    MessageOptions,
    Mode,
    OnCompletion,
    OnError,
    ProducerOptions,
)
from tests.conformance.jms.native import CALL_SECONDS, NativeProvider
from tests.conformance.jms.stomp_link import Link
from tests.conformance.jms.stomp_messages import body_of, destination_at, headers_of, message_of, path_of

# More than any test takes before it acknowledges.
_PREFETCH = "2000"
_ACK = {Mode.CLIENT: "client", Mode.DUPS_OK: "client"}
_names = itertools.count(1)


def _new(label: str) -> str:
    return f"{label}-{next(_names)}"


ENDS_WITH_IT = "STOMP ends the connection with each refusal, and what else is on it"


class StompProducer(adapter.Producer):
    """STOMP knows no producers: a destination, and what is said about all messages."""

    def __init__(self, session: StompSession, destination: Destination, options: ProducerOptions) -> None:
        self._session = session
        self._path = path_of(destination)
        self._options = options
        self._completing = 0
        self._completed = threading.Condition()
        self.is_closed = False

    def send(self, body: Body, **options: Unpack[MessageOptions]) -> str:
        self._ready(body, options)().result(CALL_SECONDS)
        return ""

    def send_async(self, body: Body, on_completion: OnCompletion, **options: Unpack[MessageOptions]) -> None:
        if not 0 <= options.get("priority", 4) <= 9:
            raise JmsError("a priority is 0 to 9")  # the server's word comes after the call

        def heard(future: Future[None]) -> None:
            error = future.exception()
            assert error is None or isinstance(error, JmsError)
            on_completion(error)
            with self._completed:
                self._completing -= 1
                self._completed.notify_all()

        send = self._ready(body, options)
        with self._completed:
            self._completing += 1
        send(on_done=heard)

    def _ready(self, body: Body, options: MessageOptions) -> Callable[..., Future[None]]:
        """Everything that can be wrong before it is sent is found here."""
        if self.is_closed:
            raise IllegalState("the producer is closed")
        headers = headers_of({**self._options, **options})
        raw = body_of(body, headers)
        link = self._session.link
        if self._session.mode is Mode.TRANSACTED:
            headers["transaction"] = self._session.transaction()
        return partial(link.begin, Stomp.send, self._path, raw, headers=headers)

    def close(self) -> None:
        self.is_closed = True
        with self._completed:
            assert self._completed.wait_for(lambda: not self._completing, CALL_SECONDS)


class StompConsumer(adapter.Consumer):
    """A subscription. What has come waits here until it is asked for, while its connection is started."""

    def __init__(self, session: StompSession, key: str) -> None:
        self._session = session
        self._connection = session.connection
        self.key = key
        self.is_closed = False
        self._waiting: deque[Any] = deque()
        self._seen: list[str] = []  # what was handed over and is not acknowledged

    def arrived(self, frame: Any) -> None:
        with self._connection.changed:
            self._waiting.append(frame)
            self._connection.changed.notify_all()

    # ---- receiving

    def receive(self, timeout: float | None = None) -> Message | None:
        frame = self._next(None if timeout is None else time.monotonic() + timeout)
        return None if frame is None else self._hand_over(frame)

    def receive_no_wait(self) -> Message | None:
        return self.receive(0)

    def __iter__(self) -> Iterator[Message]:
        while (message := self.receive()) is not None:
            yield message

    def _next(self, deadline: float | None) -> Any:
        connection = self._connection
        with connection.changed:
            if self.is_closed:
                raise IllegalState("the consumer is closed")
            while not self.is_closed:
                if self._waiting and connection.is_started:
                    return self._waiting.popleft()
                if connection.is_lost:
                    raise connection.why_lost()
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return None
                connection.changed.wait(left)
        return None

    def _hand_over(self, frame: Any) -> Message:
        key = frame.headers["ack"]
        session = self._session
        if session.mode is Mode.AUTO:
            session.link.say(Stomp.ack, key)
        else:
            self._seen.append(key)
        if session.mode is Mode.TRANSACTED:
            session.link.say(Stomp.ack, key, transaction=session.transaction())
        return message_of(frame, lambda: self._acknowledge(key))

    # ---- settling

    def _acknowledge(self, key: str) -> None:
        self._session.check()
        if self._session.mode is Mode.CLIENT:
            self._session.acknowledge_all()
        elif self._session.mode is Mode.INDIVIDUAL and key in self._seen:
            self._seen.remove(key)
            self._session.link.call(Stomp.ack, key)

    def acknowledge_all(self) -> None:
        if self._seen:
            self._session.link.call(Stomp.ack, self._seen[-1])
            self._seen = []

    def committed(self) -> None:
        self._seen = []

    def give_back(self) -> None:
        """All that is not acknowledged; what has not been handed over as if it had never come."""
        with self._connection.changed:
            unseen = [frame.headers["ack"] for frame in self._waiting]
            self._waiting.clear()
        seen, self._seen = self._seen, []
        if _ACK.get(self._session.mode) == "client":  # one word is for all before it
            seen, unseen = seen[-1:], unseen[-1:]
        for key in seen:
            self._session.link.call(Stomp.nack, key)
        for key in unseen:
            self._session.link.call(Stomp.nack, key, delivered="false")

    def close(self) -> None:
        with self._connection.changed:
            if self.is_closed:
                return
            self.is_closed = True
            unseen = [frame.headers["ack"] for frame in self._waiting]
            self._connection.changed.notify_all()
        if not self._connection.is_usable:
            return
        if self._session.mode is Mode.DUPS_OK:
            self.acknowledge_all()
        headers = {"first-unseen": unseen[0]} if unseen else {}
        self._session.link.call(Stomp.unsubscribe, self.key, headers=headers)
        self._connection.consumers.pop(self.key, None)


class StompBrowser(adapter.Browser):
    """Each scan is a subscription that ends by itself."""

    def __init__(self, session: StompSession, destination: Destination, selector: str) -> None:
        self._session = session
        self._destination = destination
        self._selector = selector

    def __iter__(self) -> Iterator[Message]:
        link = self._session.link
        key = _new("browser")
        frames: queue.Queue[Any] = queue.Queue()
        listening = self._session.connection.listening
        listening[key] = frames.put
        headers = {"browser": "true", "selector": self._selector}
        try:
            link.call(Stomp.subscribe, path_of(self._destination), key, headers=headers)
            while (frame := frames.get(timeout=CALL_SECONDS)).headers.get("browser") != "end":
                yield message_of(frame, lambda: None)
            link.call(Stomp.unsubscribe, key)
        finally:
            del listening[key]

    def close(self) -> None:
        """A scan that is broken off ends with its connection."""


class StompSession(adapter.Session):
    """What a client does under names of its own on its connection."""

    def __init__(self, connection: StompConnection, mode: Mode) -> None:
        self.connection = connection
        self.mode = mode
        self._transaction = ""
        self._consumers: list[StompConsumer] = []
        self._producers: list[StompProducer] = []
        self._is_closed = False

    def check(self) -> None:
        if self._is_closed or self.connection.is_closed:
            raise IllegalState("the session is closed")

    @property
    def link(self) -> Link:
        self.check()
        return self.connection.link

    # ---- making things

    def producer(self, destination: Destination, **options: Unpack[ProducerOptions]) -> StompProducer:
        self.check()
        self._producers.append(StompProducer(self, destination, options))
        return self._producers[-1]

    def consumer(self, destination: Destination, **options: Unpack[ConsumerOptions]) -> StompConsumer:
        link = self.link
        consumer = StompConsumer(self, _new("consumer"))
        headers = {"prefetch-count": _PREFETCH, "selector": options.get("selector", "")}
        if options.get("no_local"):
            headers["no-local"] = "true"
        for word, name in (("durable", options.get("durable")), ("shared", options.get("shared"))):
            if name:
                headers |= {word: "true", "subscription-name": name}
        consumers = self.connection.consumers
        consumers[consumer.key] = consumer
        try:
            link.call(
                Stomp.subscribe,
                path_of(destination),
                consumer.key,
                ack=_ACK.get(self.mode, "client-individual"),
                headers=headers,
            )
        except JmsError:
            del consumers[consumer.key]
            raise
        self._consumers.append(consumer)
        return consumer

    def browser(self, destination: Destination, *, selector: str = "") -> StompBrowser:
        self.check()
        return StompBrowser(self, destination, selector)

    def temporary_queue(self) -> Destination:
        return self._temporary("queue")

    def temporary_topic(self) -> Destination:
        return self._temporary("topic")

    def _temporary(self, kind: Literal["queue", "topic"]) -> Destination:
        """It is made when it is first named; the first message in it tells what others call it."""
        link, key = self.link, _new("temporary")
        path = f"/temp-{kind}/{key}"
        frames: queue.Queue[Any] = queue.Queue()
        self.connection.listening[key] = frames.put
        link.call(Stomp.subscribe, path, key)
        link.call(Stomp.send, path, b"")
        made = destination_at(frames.get(timeout=CALL_SECONDS).headers["destination"])
        link.call(Stomp.unsubscribe, key)
        return made  # its listener stays: a connection that has temporary destinations is not made again

    def delete_temporary(self, destination: Destination) -> None:
        pytest.skip("STOMP has no word to delete a destination: temporary ones end with their connection")

    # ---- subscriptions, acknowledgement, transactions

    def unsubscribe(self, name: str) -> None:
        headers = {"durable": "true", "subscription-name": name}
        self.link.call(Stomp.unsubscribe, _new("nobody"), headers=headers)

    def acknowledge_all(self) -> None:
        for consumer in self._consumers:
            consumer.acknowledge_all()

    def recover(self) -> None:
        self.check()
        if self.mode is Mode.TRANSACTED:
            raise IllegalState("a transaction is rolled back")
        self._give_back()

    def _give_back(self) -> None:
        for consumer in self._consumers:
            if not consumer.is_closed:
                consumer.give_back()

    def transaction(self) -> str:
        """The current one, begun when something is to be done in it."""
        if not self._transaction:
            self._transaction = _new("transaction")
            self.link.say(Stomp.begin, self._transaction)
        return self._transaction

    def commit(self) -> None:
        self._end_transaction(Stomp.commit)
        for consumer in self._consumers:
            consumer.committed()

    def rollback(self) -> None:
        self._end_transaction(Stomp.abort)
        self._give_back()

    def _end_transaction(self, how: Any) -> None:
        self.check()
        if self.mode is not Mode.TRANSACTED:
            raise IllegalState("the session is not transacted")
        if self._transaction:
            name, self._transaction = self._transaction, ""
            self.link.call(how, name)

    def close(self) -> None:
        if self._is_closed:
            return
        for producer in self._producers:
            producer.close()
        if self._transaction and self.connection.is_usable:
            self._end_transaction(Stomp.abort)
        for consumer in self._consumers:
            consumer.close()
        self._is_closed = True


class StompConnection(adapter.Connection):
    """One connection; made again after a refusal, if there was nothing else on it."""

    def __init__(
        self, port: int, client_id: str, account: Account | None, on_error: OnError | None, *, started: bool
    ) -> None:
        self._port = port
        self._client_id = client_id
        self._account = account
        self._on_error = on_error
        self._sessions: list[StompSession] = []
        self.changed = threading.Condition()
        self.is_started = started
        self.is_closed = False
        self.is_lost = False
        self.consumers: dict[str, StompConsumer] = {}
        self.listening: dict[str, Any] = {}
        self._link = self._dial()

    def _dial(self) -> Link:
        return Link(
            self._port,
            client_id=self._client_id,
            account=self._account,
            on_message=self._arrived,
            on_lost=self._lost,
        )

    def _arrived(self, frame: Any) -> None:
        key = frame.headers["subscription"]
        if key in self.listening:
            self.listening[key](frame)
        elif key in self.consumers:
            self.consumers[key].arrived(frame)

    def _lost(self, why: JmsError) -> None:
        with self.changed:
            self.is_lost = True
            self.changed.notify_all()
        if self._on_error is not None:
            self._on_error(why)

    @property
    def is_usable(self) -> bool:
        return not self.is_lost and not self.is_closed

    @property
    def link(self) -> Link:
        if self._link.was_refused and not self.is_closed:
            if self.consumers or self.listening:
                raise self.why_lost()
            self.is_lost = False
            self._link = self._dial()
        return self._link

    def why_lost(self) -> IllegalState:
        if self._link.was_refused:
            pytest.skip(ENDS_WITH_IT)
        return IllegalState("the connection is gone")

    @property
    def user(self) -> str:
        return self._link.user

    def session(self, mode: Mode = Mode.AUTO) -> StompSession:
        if self.is_closed:
            raise IllegalState("the connection is closed")
        self._sessions.append(StompSession(self, mode))
        return self._sessions[-1]

    def start(self) -> None:
        self._set_started(True)

    def stop(self) -> None:
        self._set_started(False)

    def _set_started(self, started: bool) -> None:
        with self.changed:
            self.is_started = started
            self.changed.notify_all()

    def close(self) -> None:
        if self.is_closed:
            return
        if not self.is_lost:
            for session in self._sessions:
                session.close()
            self._link.leave()
        self.is_closed = True
        with self.changed:
            self.changed.notify_all()


class StompProvider(NativeProvider):
    """The server of the native provider, reached by STOMP."""

    name: ClassVar[str] = "stomp.py"
    capabilities: ClassVar[frozenset[Capability]] = frozenset(get_args(Capability)) - {
        "auto-in-hand",
        "checked-producers",
        "data-bodies",
        "kept-after-close",
        "plain-groups",
        "sent-ids",
    }

    def connect(  # type: ignore[override]
        self,
        *,
        client_id: str = "",
        started: bool = True,
        on_error: OnError | None = None,
        account: Account | None = None,
    ) -> StompConnection:
        return StompConnection(self._port, client_id, account, on_error, started=started)
