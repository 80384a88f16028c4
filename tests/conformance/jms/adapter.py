"""What the conformance suite asks of a protocol, in the words of JMS 2.0.

Every test is written against these classes and nothing else, so that the same statements are proved for every
protocol the server speaks. An adapter implements them over one client library; what its protocol cannot
express at all it leaves out of `capabilities`, and the tests that need it say so and are skipped.

Calls wait for their result. Times are seconds, and moments seconds since 1970.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, ClassVar, Literal, Self, TypedDict, Unpack

Property = bool | int | float | str | None
Body = bytes | str | dict[str, Any] | list[Any]

Capability = Literal[
    "authentication",
    "auto-in-hand",
    "browse",
    "checked-producers",
    "client-id",
    "completion",
    "data-bodies",
    "delay",
    "dups-ok",
    "durable",
    "individual",
    "kept-after-close",
    "no-local",
    "plain-groups",
    "recover",
    "restart",
    "sent-ids",
    "shared",
    "temporary",
    "transactions",
    "user-id",
]


class Mode(enum.StrEnum):
    """When the messages that a session consumes count as acknowledged. INDIVIDUAL goes beyond JMS."""

    AUTO = "auto"
    CLIENT = "client"
    DUPS_OK = "dups-ok"
    INDIVIDUAL = "individual"
    TRANSACTED = "transacted"


# ---- errors: the standard exceptions of chapter 10


class JmsError(Exception):
    """The provider refused. Its text says why."""


class IllegalState(JmsError):
    """Not now: it is closed, or not of the right kind."""


class InvalidClientId(JmsError):
    """The client identifier cannot be used."""


class InvalidDestination(JmsError):
    """The destination is not understood, or no longer there."""


class InvalidSelector(JmsError):
    """The selector's syntax is wrong."""


class MessageFormat(JmsError):
    """A body or a property of a kind that cannot travel."""


class SecurityViolation(JmsError):
    """The user may not do this."""


class TransactionRolledBack(JmsError):
    """A commit became a rollback."""


# ---- values


@dataclass(frozen=True, slots=True)
class Destination:
    """A queue or a topic. A temporary one has a name that only its provider understands."""

    kind: Literal["queue", "topic"]
    name: str


@dataclass(frozen=True, slots=True)
class Account:
    """A user of a guarded server; one that is not trusted may log in and do nothing else."""

    name: str
    password: str
    trusted: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message as its consumer sees it; JMS defined properties (JMSX…) are fields of their own."""

    body: Body
    id: str
    destination: Destination
    timestamp: float
    expiration: float
    delivery_time: float
    priority: int
    persistent: bool
    correlation_id: str | None
    reply_to: Destination | None
    type: str | None
    redelivered: bool
    delivery_count: int
    user_id: str | None
    group_id: str | None
    group_sequence: int
    properties: Mapping[str, Property]
    on_acknowledge: Callable[[], None] = field(repr=False, compare=False)

    def acknowledge(self) -> None:
        """Returns when the provider has taken note."""
        self.on_acknowledge()


class MessageOptions(TypedDict, total=False):
    """What a client may say about a message that it sends."""

    properties: Mapping[str, Property]
    correlation_id: str
    reply_to: Destination
    type: str
    group_id: str
    group_sequence: int
    priority: int
    persistent: bool
    time_to_live: float
    delay: float


class ProducerOptions(TypedDict, total=False):
    """What a producer says about all its messages."""

    priority: int
    persistent: bool
    time_to_live: float
    delay: float


class ConsumerOptions(TypedDict, total=False):
    """`durable` and `shared` name a subscription to a topic; both with one name: a shared durable one."""

    selector: str
    no_local: bool
    durable: str
    shared: str


OnCompletion = Callable[[JmsError | None], None]
OnError = Callable[[JmsError], None]


# ---- objects


class Closeable(ABC):
    """Whatever has to be closed; closing it again is ignored."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Producer(Closeable):
    """Sends to one destination."""

    @abstractmethod
    def send(self, body: Body, **options: Unpack[MessageOptions]) -> str:
        """Returns the message's id when the provider has it; in a transacted session the id may be empty."""

    @abstractmethod
    def send_async(self, body: Body, on_completion: OnCompletion, **options: Unpack[MessageOptions]) -> None:
        """Returns at once; `on_completion` is called when `send` would have returned: None for success."""


class Consumer(Closeable):
    """Receives from one destination or subscription."""

    @abstractmethod
    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message; None when none came in time, or when the consumer was closed meanwhile."""

    @abstractmethod
    def receive_no_wait(self) -> Message | None:
        """The next message if one is here."""

    @abstractmethod
    def __iter__(self) -> Iterator[Message]: ...


class Browser(Closeable):
    """Looks at a queue. Its iteration ends by itself."""

    @abstractmethod
    def __iter__(self) -> Iterator[Message]: ...


class Session(Closeable):
    """A series of sends and receives."""

    @abstractmethod
    def producer(self, destination: Destination, **options: Unpack[ProducerOptions]) -> Producer: ...

    @abstractmethod
    def consumer(self, destination: Destination, **options: Unpack[ConsumerOptions]) -> Consumer: ...

    @abstractmethod
    def browser(self, destination: Destination, *, selector: str = "") -> Browser: ...

    @abstractmethod
    def temporary_queue(self) -> Destination: ...

    @abstractmethod
    def temporary_topic(self) -> Destination: ...

    @abstractmethod
    def delete_temporary(self, destination: Destination) -> None: ...

    @abstractmethod
    def unsubscribe(self, name: str) -> None: ...

    @abstractmethod
    def recover(self) -> None: ...

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def rollback(self) -> None: ...


class Connection(Closeable):
    """A client's connection. It is stopped when it is made, unless the client asked otherwise."""

    @property
    @abstractmethod
    def user(self) -> str:
        """Who the provider takes this client for."""

    @abstractmethod
    def session(self, mode: Mode = Mode.AUTO) -> Session: ...

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def stop(self) -> None: ...


class Provider(Closeable):
    """One running server, reached over one protocol."""

    name: ClassVar[str]
    capabilities: ClassVar[frozenset[Capability]]

    def supports(self, capability: Capability) -> bool:
        return capability in self.capabilities

    @abstractmethod
    def connect(
        self,
        *,
        client_id: str = "",
        started: bool = True,
        on_error: OnError | None = None,
        account: Account | None = None,
    ) -> Connection: ...

    @abstractmethod
    def stop_server(self) -> None: ...

    @abstractmethod
    def start_server(self) -> None:
        """On the data that it had when it stopped."""
