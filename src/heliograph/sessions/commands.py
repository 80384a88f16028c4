"""What a client asks of its session and what the session tells it, whatever protocol the client speaks.

A front end turns bytes into these and these into bytes. `request` is the client's own number for what it
asked; the answer names it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from heliograph.bus.commands import BY_POLICY, Fact
from heliograph.model.alert import AlertHeader, AlertView
from heliograph.model.block import Block, Span
from heliograph.model.claim import Claim
from heliograph.model.distribution import Distribution


class SessionCommand(msgspec.Struct, gc=False):
    """From the client."""


class Publish(SessionCommand):
    """A block on one of the session's lanes."""

    block: Block
    resent: bool
    staged: bool = False


class OpenLane(SessionCommand):
    """Get ready to send to a destination."""

    request: int
    lane: int
    destination: str


class FindPath(SessionCommand):
    """Which member of a distributed destination is a unit of order at?"""

    request: int
    destination: str
    unit: int


class FindDestinations(SessionCommand):
    """Which destinations that the client may receive from or browse does a pattern mean?"""

    request: int
    pattern: str


class Subscribe(SessionCommand):
    """Make a consumer."""

    request: int
    consumer: int
    destination: str
    credit: int
    selector: str = ""
    subscription: str = ""
    durable: bool = False
    shared: bool = False
    no_local: bool = False
    browse: bool = False
    prompt: bool = True
    claim: Claim | None = None  # it goes on where it was, in a session that was resumed
    common: bool = False  # the name of a shared subscription is the same for all clients
    create: bool = True  # the destination may be made, if it is not there and the user may


class Unsubscribe(SessionCommand):
    """End a consumer."""

    request: int
    consumer: int
    seen: int = -1


class Retire(SessionCommand):
    """A consumer takes nothing more; what it saw stays with it until it is settled."""

    request: int
    consumer: int
    seen: int


class GrantCredit(SessionCommand):
    """A consumer can take more; or, where the count is below zero, fewer."""

    consumer: int
    count: int


class Settle(SessionCommand):
    """A consumer is through with inclusive ranges of delivery tags."""

    consumer: int
    returned: bool
    ranges: list[tuple[int, int]]
    replenish: bool
    confirm: bool
    error: str = ""
    seen: int = -1  # with messages that are returned: the last tag that reached the application
    fate: int = BY_POLICY  # of messages that are returned


class EndSubscription(SessionCommand):
    """Give up a durable subscription."""

    request: int
    subscription: str
    common: bool = False  # one whose name is the same for all clients


class Recover(SessionCommand):
    """Hand out again what is not settled."""

    request: int
    seen: list[tuple[int, int]]


class Commit(SessionCommand):
    """The transaction takes effect."""

    request: int
    transaction: int
    messages: int
    consumed: list[tuple[int, list[tuple[int, int]]]]


class Rollback(SessionCommand):
    """The transaction is dropped."""

    request: int
    transaction: int
    seen: list[tuple[int, int]]


class MakeTemporary(SessionCommand):
    """Make a destination that ends with the connection."""

    request: int
    kind: str


class DeleteTemporary(SessionCommand):
    """End a temporary destination."""

    request: int
    destination: str


class BeginUpload(SessionCommand):
    """Begin the content of a very large message, or go on with file `resume`."""

    request: int
    transfer: int
    destination: str
    resume: bytes


class SendChunk(SessionCommand):
    """A piece of an upload."""

    transfer: int
    offset: int
    data: memoryview


class EndUpload(SessionCommand):
    """All of an upload was sent."""

    request: int
    transfer: int
    size: int
    checksum: int


class DropUpload(SessionCommand):
    """Forget an upload."""

    transfer: int


class BeginFetch(SessionCommand):
    """Read the content of a large message."""

    request: int
    transfer: int
    destination: str
    file: bytes
    offset: int
    allowed: int


class AllowFetch(SessionCommand):
    """Send more of a download."""

    transfer: int
    allowed: int


class EndFetch(SessionCommand):
    """Send no more of a download."""

    transfer: int


class PublishAlert(SessionCommand):
    """An alert for a channel, under a lane and sequence of the session."""

    request: int
    destination: str
    lane: int
    sequence: int
    header: AlertHeader
    body: bytes


class AcknowledgeAlert(SessionCommand):
    """An acknowledgement of an alert, which is an alert too."""

    request: int
    destination: str
    lane: int
    sequence: int
    alert: bytes
    body: bytes


class CancelAlert(SessionCommand):
    """Withdraw an alert."""

    request: int
    destination: str
    alert: bytes


class AttachAlerts(SessionCommand):
    """Make a consumer of alerts, or go on with one. `held` and `taken`: what became of what it had."""

    request: int
    consumer: int
    destination: str
    name: str
    topics: str
    acknowledgements: str
    credit: int
    held: list[bytes]
    taken: list[bytes]


class ChangeAlerts(SessionCommand):
    """A consumer of alerts wants other topics too, or some no more."""

    request: int
    consumer: int
    topics: str
    acknowledgements: str
    removes: bool


class DetachAlerts(SessionCommand):
    """End a consumer of alerts."""

    request: int
    consumer: int
    unsubscribe: bool


class TakeAlerts(SessionCommand):
    """What the application got, and what it will not get."""

    request: int
    consumer: int
    taken: list[bytes]
    dropped: list[bytes]


class ListAlerts(SessionCommand):
    """A page of the live alerts."""

    request: int
    destination: str
    topics: str
    after: bytes


class AuditAlert(SessionCommand):
    """The life of an alert."""

    request: int
    destination: str
    alert: bytes


AnyCommand = (
    Publish
    | OpenLane
    | FindPath
    | FindDestinations
    | Subscribe
    | Unsubscribe
    | Retire
    | GrantCredit
    | Settle
    | EndSubscription
    | Recover
    | Commit
    | Rollback
    | MakeTemporary
    | DeleteTemporary
    | BeginUpload
    | SendChunk
    | EndUpload
    | DropUpload
    | BeginFetch
    | AllowFetch
    | EndFetch
    | PublishAlert
    | AcknowledgeAlert
    | CancelAlert
    | AttachAlerts
    | ChangeAlerts
    | DetachAlerts
    | TakeAlerts
    | ListAlerts
    | AuditAlert
)


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


class DeliverParcel(SessionEffect):
    """Picked messages for a consumer, under delivery tags `tag` and up."""

    consumer: int
    tag: int
    spans: list[Span]
    user: str


class TellRecalled(SessionEffect):
    """What a consumer had of some units of order, under these tags, went back."""

    consumer: int
    tags: list[tuple[int, int]]


class Deliver(SessionEffect):
    """Hand a span to the client."""

    consumer: int
    tag: int
    span: Span
    user: str
    destination: str = ""  # where it comes from, for a consumer of many


class TellBlocked(SessionEffect):
    """Producers to a destination must wait, for this reason; or, where it is empty, need not any more."""

    destination: str
    reason: str


class LaneReady(SessionEffect):
    """The lane can be used; the server has it up to `last`."""

    request: int
    last: int


class TellDistributed(SessionEffect):
    """What was named is not one destination: the client chooses among its members, or takes from all (U6)."""

    request: int
    distribution: Distribution


class Done(SessionEffect):
    """The request was carried out."""

    request: int


class Tell(SessionEffect):
    """The request was carried out, and this is what came of it."""

    request: int
    body: dict[str, Any]


class EndBrowse(SessionEffect):
    """A browser has seen everything."""

    consumer: int


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


class TellAdvance(SessionEffect):
    """An upload is written, and forced to disk, so far."""

    transfer: int
    written: int
    durable: int


class HandChunk(SessionEffect):
    """Hand a piece of a download to the client."""

    transfer: int
    offset: int
    data: bytes


class EndTransfer(SessionEffect):
    """An upload or download came to nothing."""

    transfer: int
    code: str
    sentence: str


class HandAlert(SessionEffect):
    """Hand an alert to a consumer."""

    consumer: int
    alert: AlertView


class WithdrawAlert(SessionEffect):
    """An alert that a consumer was handed ended: it says what became of it."""

    consumer: int
    alert: bytes


class TellReceipt(SessionEffect):
    """A consumer's application has an alert of this session."""

    destination: str
    alert: bytes
    user: str
    name: str
    at: int


AnySessionEffect = (
    Multicast
    | Confirm
    | RefuseLane
    | Deliver
    | DeliverParcel
    | TellRecalled
    | TellBlocked
    | LaneReady
    | TellDistributed
    | Done
    | Tell
    | EndBrowse
    | Fail
    | SettlementStored
    | EndConsumer
    | TellAdvance
    | HandChunk
    | EndTransfer
    | HandAlert
    | WithdrawAlert
    | TellReceipt
)
