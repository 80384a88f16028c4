"""What a client asks of its session and what the session tells it, whatever protocol the client speaks.

A front end turns bytes into these and these into bytes. `request` is the client's own number for what it
asked; the answer names it.
"""

from __future__ import annotations

import msgspec

from heliograph.bus.commands import Fact
from heliograph.model.block import Block, Span


class SessionCommand(msgspec.Struct, gc=False):
    """From the client."""


class Publish(SessionCommand):
    """A block on one of the session's lanes."""

    block: Block
    resent: bool


class OpenLane(SessionCommand):
    """Get ready to send to a destination."""

    request: int
    lane: int
    destination: str


class Subscribe(SessionCommand):
    """Make a consumer."""

    request: int
    consumer: int
    destination: str
    credit: int


class Unsubscribe(SessionCommand):
    """End a consumer."""

    request: int
    consumer: int


class GrantCredit(SessionCommand):
    """A consumer can take more."""

    consumer: int
    count: int


class Settle(SessionCommand):
    """A consumer is through with inclusive ranges of delivery tags."""

    consumer: int
    returned: bool
    ranges: list[tuple[int, int]]
    replenish: bool
    confirm: bool


AnyCommand = Publish | OpenLane | Subscribe | Unsubscribe | GrantCredit | Settle


class SessionEffect(msgspec.Struct, gc=False):
    """What a session wants done."""


class Multicast(SessionEffect):
    """Tell the message managers."""

    command: Fact


class Confirm(SessionEffect):
    """Tell the client that a lane is stored up to and including `last`."""

    lane: int
    last: int


class RefuseLane(SessionEffect):
    """Tell the client that a lane took nothing from `first` on."""

    lane: int
    first: int
    code: str
    sentence: str


class Deliver(SessionEffect):
    """Hand a span to the client."""

    consumer: int
    tag: int
    span: Span
    user: str


class LaneReady(SessionEffect):
    """The lane can be used; the server has it up to `last`."""

    request: int
    last: int


class Done(SessionEffect):
    """The request was carried out."""

    request: int


class Fail(SessionEffect):
    """The request was not carried out."""

    request: int
    code: str
    sentence: str


class SettlementStored(SessionEffect):
    """A settlement that asked for it is stored."""

    consumer: int


class EndConsumer(SessionEffect):
    """The server ended a consumer."""

    consumer: int
    code: str
    sentence: str


AnySessionEffect = (
    Multicast | Confirm | RefuseLane | Deliver | LaneReady | Done | Fail | SettlementStored | EndConsumer
)
