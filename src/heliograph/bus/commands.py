"""What nodes say to each other. Commands are addressed to a destination, a session or a consumer, never to a
node (M2).

Facts come from client managers and hold wherever they are delivered; decisions come from the message manager
that is primary. On the in-memory bus a command is passed as the object it is.
"""

from __future__ import annotations

from typing import Any

import msgspec

from heliograph.model.block import Block, Span
from heliograph.model.destination import Address
from heliograph.model.ids import ConsumerId, LaneId, SessionId


class Command(msgspec.Struct, gc=False):
    """Anything that travels on the bus."""


# ---- facts: client manager → message managers


class DestinationWanted(Command):
    """A session wants to send to a destination on a lane; it is made if it is not there and `create`
    allows."""

    request: int
    address: Address
    create: bool
    lane: LaneId


class Published(Command):
    """A block of a session for a destination. `resent`: possibly sent before."""

    address: Address
    block: Block
    resent: bool = False


class ConsumerAttached(Command):
    """A consumer is ready for `credit` messages of a destination, which is made if it is not there and
    `create` allows."""

    request: int
    address: Address
    consumer: ConsumerId
    session: SessionId
    credit: int
    create: bool = True


class CreditGranted(Command):
    """A consumer can take `count` messages more."""

    address: Address
    consumer: ConsumerId
    count: int


class Settled(Command):
    """A consumer is through with inclusive ranges of delivery tags. `request` (0: none) is answered when that
    is stored."""

    address: Address
    consumer: ConsumerId
    returned: bool
    ranges: list[tuple[int, int]]
    replenish: bool = False
    request: int = 0


class ConsumerDetached(Command):
    """A consumer is gone; what it had not settled returns in order."""

    address: Address
    consumer: ConsumerId
    request: int = 0


class SessionOpened(Command):
    """A session began. `token` lets its client, and nobody else, resume it."""

    request: int
    session: SessionId
    user: str
    token: bytes


class SessionResumed(Command):
    """A client came back with a session that it had before."""

    request: int
    session: SessionId
    user: str
    token: bytes


class SessionLost(Command):
    """The connection of a session broke; it may be resumed."""

    session: SessionId


class SessionClosed(Command):
    """A session ended for good."""

    session: SessionId


class Asked(Command):
    """A question to the administration of the message managers."""

    request: int
    subject: str
    arguments: dict[str, Any]


Fact = (
    DestinationWanted
    | Published
    | ConsumerAttached
    | CreditGranted
    | Settled
    | ConsumerDetached
    | SessionOpened
    | SessionResumed
    | SessionLost
    | SessionClosed
    | Asked
)

# ---- decisions and answers: message manager → client managers


class Confirmed(Command):
    """Everything of a lane up to and including sequence `last` is stored as its delivery mode asks."""

    lane: LaneId
    last: int


class Refused(Command):
    """A lane's messages from sequence `first` on were not taken, and no more of that lane will be."""

    lane: LaneId
    first: int
    code: str
    sentence: str


class Dispatched(Command):
    """A span goes to a consumer under delivery tags `tag` and up."""

    consumer: ConsumerId
    tag: int
    span: Span
    user: str


class Answered(Command):
    """The request was carried out; `body` says what there is to say."""

    request: int
    body: dict[str, Any]


class Rejected(Command):
    """The request was not carried out."""

    request: int
    code: str
    sentence: str


Decision = Confirmed | Refused | Dispatched | Answered | Rejected
