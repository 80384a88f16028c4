"""What a clustered consumer needs of a middleware: copies for every member, and a control topic (H4).

An adapter does I/O and decides nothing. It belongs to one incarnation of one member: connect, use, close; a
connection that is lost is an error of whatever is waiting, and the member begins again with a new adapter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, runtime_checkable

from heliograph.clustered.words import MemberKey
from heliograph.model import limits
from heliograph.model.errors import ClientFault


class Acknowledge(Enum):
    """When a member acknowledges its copy of a message to the middleware."""

    OWNER = "owner"
    """When its owner has processed it: who dies loses nothing, nor do all of them."""
    ALL = "all"
    """When it arrives, whoever's it is: quicker, and lost if all members die at once."""
    NONE = "none"
    """Never: for middleware, or a subscription, without acknowledgements."""


@dataclass(slots=True, kw_only=True)
class Delivery:
    """A copy of a message, of whatever middleware, with the fields that a message verifier may choose."""

    id: str
    """The same for the copies of all members, and for no other message."""
    body: bytes
    destination: str = ""
    persistent: bool = True
    timestamp: float = 0.0
    type: str | None = None
    expiration: float = 0.0
    priority: int = 4
    unit_of_order: str | None = None
    correlation_id: str | None = None
    properties: Mapping[str, Any] = field(default_factory=dict)
    redelivered: bool = False
    """It may have been processed before: by somebody whose word for it never came."""
    reference: bytes = b""
    """Where the content is, if it is too large for a body; `open` reads it."""
    open: Callable[[], Any] | None = None
    """The content as a stream, where the body has only a reference to it."""
    handle: Any = None
    """What the adapter acknowledges by; None for a copy that another member sent."""
    copy: str | int | None = None
    """Names the copy where this member may be given several of one message, because a producer sent it again. What
    comes again under the same name, or without one, is the same copy delivered once more."""
    fault: str | None = None
    """Why nobody can process it, in a sentence. Its body and its handle are there."""


def made(make: Callable[[Any], Delivery], message: Any, *, body: bytes, handle: Any) -> Delivery:
    """What `make` makes of a message of the middleware, or one with a fault: whatever a producer sends, the consumer
    goes on."""
    try:
        delivery = make(message)
        _check_id(delivery.id)
        return delivery
    except Exception as error:
        return Delivery(id="", body=body, handle=handle, fault=str(error) or repr(error))


def _check_id(identity: Any) -> None:
    """It travels in control words, so what is no text of some bytes would end whoever says or hears it."""
    if not isinstance(identity, str):
        raise ClientFault(
            f"an id is a text, not {type(identity).__name__}: give an identity that makes one",
            code="message-without-id",
        )
    if not 0 < len(identity.encode()) <= limits.CLUSTERED_ID_BYTES:
        raise ClientFault(
            f"an id has 1 to {limits.CLUSTERED_ID_BYTES} bytes, and this one {len(identity.encode())}",
            code="message-without-id",
        )


Identity = Callable[[Any], str]
"""The id of a message of the middleware, for producers that give it another way than the adapter expects."""


class Adapter(Protocol):
    """One member's connection to the middleware."""

    redelivers: bool
    """What was not acknowledged is delivered again when its member comes back."""

    async def connect(self, cluster: str, member: MemberKey) -> None:
        """Connect, and listen to the control topic."""

    async def say(self, word: bytes) -> None:
        """Publish a control word to all members, this one among them, behind what was said before."""

    async def hear(self) -> bytes:
        """The next control word."""

    async def subscribe(self, *, is_fresh: bool) -> None:
        """Begin to get a copy of every message; `is_fresh`: without those that wait from an earlier life."""

    async def receive(self) -> list[Delivery]:
        """At least one. Only this is cancelled."""

    async def acknowledge(self, deliveries: list[Delivery]) -> None:
        """These copies are done with; each once, in any order."""

    async def set_aside(self, deliveries: list[Delivery]) -> None:
        """These copies cannot be processed by anybody: they must not come again."""

    async def caught_up(self) -> None:
        """Wait until everything that was published before this call has been received."""

    async def lead(self, is_leader: bool) -> None:
        """This member leads, or does so no more: for what only one of them should do, to keep an order."""

    async def discard(self, member: str) -> None:
        """Throw away the copies of a member that is gone."""

    async def close(self, *, keeps_copies: bool) -> None:
        """Say goodbye; without `keeps_copies` nothing is left at the middleware."""


@runtime_checkable
class Referring(Protocol):
    """A middleware whose messages may be references to a content of any size."""

    def opening(self, delivery: Delivery) -> Callable[[], Any]:
        """What opens the content of a copy that another member sent."""


@runtime_checkable
class Transacting(Protocol):
    """A middleware whose transactions cover what a handler sends and the word that its message is done."""

    transacts: bool

    async def begin(self) -> Any:
        """The session of the next transaction. Waits for this member's licence."""

    async def commit(self, word: bytes) -> None:
        """What was sent, and this control word: both or neither."""

    async def roll_back(self) -> None: ...

    async def kept_words(self) -> list[bytes]:
        """Words said in transactions that the middleware keeps for this member, and that came since the last call."""

    async def let_go(self) -> None:
        """Forget the kept words that the last call but one gave, and those before: their copies are done with."""

    async def fence(self, key: MemberKey) -> None:
        """Take the licence of a member that is taken for dead: from then on nothing that it commits takes effect."""

    async def fence_all(self, spares: Callable[[MemberKey], bool]) -> None:
        """The same for everybody who has a licence, but this member and those that `spares` says yes to."""
