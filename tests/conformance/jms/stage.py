"""What every story of the suite needs: names of its own, connections that end with it, and a way to see that
nothing more comes without waiting for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from itertools import count
from typing import Unpack

from tests.conformance.jms.adapter import (
    Body,
    Connection,
    Consumer,
    Destination,
    JmsError,
    Message,
    MessageOptions,
    Mode,
    OnError,
    Property,
    Provider,
    Session,
)

# How long a message that must come may take. Whoever waits for less time expects nothing.
ARRIVAL_SECONDS = 60.0
# How long a test waits to see that something does not happen, where no later event proves it.
SILENCE_SECONDS = 0.1
_POLL_SECONDS = 0.002
_FENCE = "fence"
_numbers = count(1)


class Stage:
    """One test's part of a provider."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self._things = ExitStack()
        self._connection: Connection | None = None
        self._helper: Session | None = None

    # ---- making things

    def name(self, label: str = "thing") -> str:
        """A name that nobody else uses."""
        return f"{label}.{next(_numbers)}"

    def queue(self) -> Destination:
        return Destination("queue", self.name("conformance.queue"))

    def topic(self) -> Destination:
        return Destination("topic", self.name("conformance.topic"))

    def connect(
        self, *, client_id: str = "", started: bool = True, on_error: OnError | None = None
    ) -> Connection:
        """A connection that ends with the test."""
        connection = self.provider.connect(client_id=client_id, started=started, on_error=on_error)
        self._things.callback(_close_quietly, connection)
        return connection

    @property
    def connection(self) -> Connection:
        """The connection of those who need only one."""
        if self._connection is None:
            self._connection = self.connect()
        return self._connection

    def session(self, mode: Mode = Mode.AUTO) -> Session:
        return self.connection.session(mode)

    @property
    def helper(self) -> Session:
        """A session on a connection of its own, for what happens behind the scenes."""
        if self._helper is None:
            self._helper = self.connect().session()
        return self._helper

    def close(self) -> None:
        self._things.close()

    # ---- sending and receiving behind the scenes

    def send(self, destination: Destination, *bodies: Body, **options: Unpack[MessageOptions]) -> list[str]:
        """Send from another connection. Returns the ids."""
        with self.helper.producer(destination) as producer:
            return [producer.send(body, **options) for body in bodies]

    def passed(
        self, destination: Destination, body: Body = b"body", **options: Unpack[MessageOptions]
    ) -> Message:
        """A message, sent and received."""
        consumer = self.session().consumer(destination)
        self.send(destination, body, **options)
        return next_of(consumer)

    def left_in(self, queue: Destination) -> list[Message]:
        """Take everything that waits in a queue, now: up to a last message of the lowest priority."""
        with self.helper.consumer(queue) as consumer:
            return self.up_to_fence(consumer, queue)

    def up_to_fence(
        self, consumer: Consumer, destination: Destination, **properties: Property
    ) -> list[Message]:
        """What a consumer still has to get, seen by a last message that is sent after everything else.

        `properties` are what the consumer's selector wants to see.
        """
        mark = self.name(_FENCE)
        self.send(destination, mark, priority=0, properties=properties)
        found: list[Message] = []
        while (message := next_of(consumer)).body != mark:
            found.append(message)
        return found

    # ---- selectors

    def assert_selects(
        self,
        selector: str,
        *,
        wanted: Iterable[dict[str, Property]] = (),
        unwanted: Iterable[dict[str, Property]] = (),
    ) -> None:
        """Messages with these properties are selected, and those are not; from a queue and from a topic."""
        self.assert_selects_sent(
            selector,
            wanted=[{"properties": properties} for properties in wanted],
            unwanted=[{"properties": properties} for properties in unwanted],
        )

    def assert_selects_sent(
        self, selector: str, *, wanted: Iterable[MessageOptions] = (), unwanted: Iterable[MessageOptions] = ()
    ) -> None:
        """The same, for messages sent with these options."""
        chosen, others = list(wanted), list(unwanted)
        self._assert_selects_from_topic(selector, chosen, others)
        self._assert_selects_from_queue(selector, chosen, others)

    def _assert_selects_from_queue(
        self, selector: str, wanted: list[MessageOptions], unwanted: list[MessageOptions]
    ) -> None:
        """What the consumer does not want stays: handed to it by mistake, it would come back marked."""
        queue = self.queue()
        self._send_each(queue, wanted, unwanted)
        with self.session().consumer(queue, selector=selector) as consumer:
            assert bodies_of(take(consumer, len(wanted))) == [f"wanted {n}" for n in range(len(wanted))]
        rest = [(message.body, message.redelivered) for message in self.left_in(queue)]
        assert rest == [(f"unwanted {n}", False) for n in range(len(unwanted))]

    def _assert_selects_from_topic(
        self, selector: str, wanted: list[MessageOptions], unwanted: list[MessageOptions]
    ) -> None:
        """Another subscriber, who wants everything, shows when all of it went through."""
        topic = self.topic()
        session = self.session()
        with session.consumer(topic, selector=selector) as consumer, session.consumer(topic) as witness:
            self._send_each(topic, wanted, unwanted)
            take(witness, len(wanted) + len(unwanted))
            assert bodies_of(take(consumer, len(wanted))) == [f"wanted {n}" for n in range(len(wanted))]
            assert consumer.receive_no_wait() is None

    def _send_each(
        self, destination: Destination, wanted: list[MessageOptions], unwanted: list[MessageOptions]
    ) -> None:
        """The unwanted first, so that they stand in the way."""
        with self.helper.producer(destination) as producer:
            for n, options in enumerate(unwanted):
                producer.send(f"unwanted {n}", **options)
            for n, options in enumerate(wanted):
                producer.send(f"wanted {n}", **options)


def _close_quietly(connection: Connection) -> None:
    with suppress(JmsError):
        connection.close()


def next_of(consumer: Consumer) -> Message:
    """The next message, which must come."""
    message = consumer.receive(ARRIVAL_SECONDS)
    assert message is not None, f"no message came in {ARRIVAL_SECONDS:g} s"
    return message


def take(consumer: Consumer, number: int) -> list[Message]:
    """So many messages, which must come."""
    return [next_of(consumer) for _ in range(number)]


def bodies_of(messages: Iterable[Message]) -> list[Body]:
    return [message.body for message in messages]


def nothing_comes(consumer: Consumer) -> bool:
    """Whether a consumer gets nothing for a moment, where no later event proves it."""
    return consumer.receive(SILENCE_SECONDS) is None


def until(condition: Callable[[], object], what: str) -> None:
    """A condition with a deadline."""
    deadline = time.monotonic() + ARRIVAL_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited {ARRIVAL_SECONDS:g} s in vain until {what}"
        time.sleep(_POLL_SECONDS)
