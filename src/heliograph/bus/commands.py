"""What nodes say to each other. Commands are addressed to a destination, a session or a consumer, never to a
node (M2).

Facts come from client managers and hold wherever they are delivered; decisions come from the message manager
that is primary. On the in-memory bus a command is passed as the object it is.
"""

from __future__ import annotations

from typing import Any, Final, get_args

import msgspec

from heliograph.model.alert import AlertHeader, AlertView
from heliograph.model.block import Block, Span
from heliograph.model.claim import Claim, Ranges, Tags
from heliograph.model.destination import Address
from heliograph.model.ids import ConsumerId, LaneId, SessionId


class Command(msgspec.Struct, gc=False, array_like=True):
    """Anything that travels on the bus. Fields are appended with a default, never moved or removed: where a command
    leaves the process, they travel by their place (`wire.py`)."""


# ---- facts: client manager → message managers


class DestinationWanted(Command):
    """A session wants to send to a destination on a lane; it is made if it is not there and `create`
    allows."""

    request: int
    address: Address
    create: bool
    lane: LaneId


class DestinationSought(Command):
    """Is this destination kept here? Asked of every sub-cluster before anything is sent there for the first time."""

    request: int
    address: Address


class PlacementWanted(Command):
    """Where is a destination to be that is nowhere? Asked of one sub-cluster, its `registrar`, which answers the same
    to everybody; `loads` says how much each has to do."""

    request: int
    address: Address
    registrar: str
    loads: list[tuple[str, float]]


class PathWanted(Command):
    """Which member of a distributed destination is a unit of order at (U6)? Asked of the sub-cluster that keeps its
    paths; a session that uses it keeps it there."""

    request: int
    address: Address
    unit: int
    session: SessionId
    members: list[str]
    leaving: list[str] = []  # a unit that is there stays


class OldestWanted(Command):
    """How old is what a member of a distributed destination has? And which of these sessions may still send to it?"""

    request: int
    address: Address
    sessions: list[SessionId]


class PathsChecked(Command):
    """What a member said of units that nobody uses: messages from number `oldest` on are there, the next to come is
    `next_number`, and these sessions may still send. `mark` is that of the question."""

    address: Address
    member: str
    units: list[int]
    mark: int
    oldest: int
    next_number: int
    open_sessions: list[SessionId]


class Published(Command):
    """A block of a session for a destination. `resent`: possibly sent before; `staged`: of its
    transaction."""

    address: Address
    block: Block
    resent: bool = False
    staged: bool = False


class ConsumerAttached(Command):
    """A consumer is ready for `credit` messages of a destination, which is made if it is not there and
    `create` allows. The rest is what it asked for (J6, J7, J9).
    """

    request: int
    address: Address
    consumer: ConsumerId
    session: SessionId
    credit: int
    create: bool = True
    selector: str = ""
    subscription: str = ""
    client: str = ""
    durable: bool = False
    shared: bool = False
    no_local: bool = False
    browse: bool = False
    prompt: bool = True
    number: int = -1  # the client's own for it, under which it can claim it; -1: it cannot
    claim: Claim | None = None  # it was away, and its client goes on with it (M8)
    again: bool = False  # asked before, of a primary that may have carried it out


class TopicsWanted(Command):
    """Which topics does a pattern mean? Those that come later announce themselves (M12)."""

    request: int
    pattern: str


class SubscriptionEnded(Command):
    """A client wants no more of a durable subscription (J6)."""

    request: int
    client: str
    subscription: str


class ConsumerRetired(Command):
    """A consumer takes nothing more; what it saw, up to tag `seen`, stays with it until it is settled."""

    address: Address
    consumer: ConsumerId
    request: int
    seen: int


class CreditGranted(Command):
    """A consumer can take `count` messages more; or, below zero, fewer."""

    address: Address
    consumer: ConsumerId
    count: int


# What becomes of messages that a consumer returns: what the policy says; as if they had not been handed out; or to
# the dead at once, since nobody can do anything with them.
BY_POLICY, UNSEEN, DEAD = 0, 1, 2


class Settled(Command):
    """A consumer is through with inclusive ranges of delivery tags.

    `request` (0: none) is answered when that is stored; `error` is the consumer's word on why it returns
    them.
    """

    address: Address
    consumer: ConsumerId
    returned: bool
    ranges: list[tuple[int, int]]
    replenish: bool = False
    request: int = 0
    error: str = ""
    seen: int = -1  # with messages that are returned: the last tag that reached the application
    again: bool = False  # asked before, of a primary that may have carried it out
    fate: int = BY_POLICY  # of messages that are returned


class ConsumerDetached(Command):
    """A consumer is gone; what it had not settled returns in order.

    `seen` is the last delivery tag that reached the application, -1 if that is not known.
    """

    address: Address
    consumer: ConsumerId
    request: int = 0
    seen: int = -1


class DestinationDeleted(Command):
    """A destination ends, with all that waits in it."""

    address: Address


class CommitAsked(Command):
    """A session wants its transaction to take effect: `messages` that it sent, and what it consumed (J5).

    Numbers count up in a session; a repeated one gets the answer that the first one got.
    """

    request: int
    session: SessionId
    number: int
    messages: int
    consumed: list[tuple[Address, ConsumerId, list[tuple[int, int]]]]


class RollbackAsked(Command):
    """A session's transaction is not to be. What its consumers have returns: for each the last delivery tag
    that reached the application, -1 if that is not known."""

    request: int
    session: SessionId
    number: int
    consumers: list[tuple[Address, ConsumerId, int]]


class PrepareAsked(Command):
    """A transaction touches several sub-clusters (M10): can this one do its part, as a commit would, and promise to?

    `participant` is the one that is asked, `decider` the one whose journal holds the outcome. Once it has said yes,
    it neither commits nor rolls back before it is told.
    """

    request: int
    session: SessionId
    number: int
    messages: int
    consumed: list[tuple[Address, ConsumerId, list[tuple[int, int]]]]
    decider: str
    participants: list[str]
    participant: str


class OutcomeAsked(Command):
    """To the decider. `decide`: all are prepared, let it be committed. Otherwise: what became of it? What is not
    committed and is waited for by nobody is aborted then. The answer has the `outcome`."""

    request: int
    session: SessionId
    number: int
    decide: bool


class FinalAsked(Command):
    """What the decider's journal says, for a participant that waits for it.

    For the decider itself: all have committed, so that it need not remember; or somebody cannot, so that it is to
    abort. The answer has the `outcome`.
    """

    request: int
    session: SessionId
    number: int
    is_commit: bool
    decider: str
    participant: str


class CommitStateAsked(Command):
    """A commit is asked again, perhaps of a client manager that knows nothing of the first time. What is known
    here?"""

    request: int
    session: SessionId
    number: int


class SessionOpened(Command):
    """A session began. `token` lets its client, and nobody else, resume it; `kept`: after a long time, too."""

    request: int
    session: SessionId
    user: str
    token: bytes
    connection: bytes = b""
    client: str = ""
    kept: bool = False


class SessionResumed(Command):
    """A client came back with a session that it had before. Its consumers wait `lease_seconds` to be claimed. `kept`:
    as when it was opened."""

    request: int
    session: SessionId
    user: str
    token: bytes
    connection: bytes = b""
    client: str = ""
    lease_seconds: float = 0.0
    kept: bool = False


class SessionLost(Command):
    """The connection of a session broke; it may be resumed.

    What its consumers have is kept for it for `lease_seconds`; 0: it returns at once. `connection` is the one that
    broke: if the session is on another by now, this says nothing.
    """

    session: SessionId
    lease_seconds: float = 0.0
    connection: bytes = b""


class SessionClosed(Command):
    """A session ended for good."""

    session: SessionId


class UploadBegun(Command):
    """A session sends the content of a very large message (M6) for a destination; `transfer` is its number for it.

    `file` is the id of the file that is to hold it. `resumed`: it was begun before, go on where it is.
    """

    request: int
    session: SessionId
    transfer: int
    address: Address
    file: bytes
    resumed: bool


class ChunkSent(Command):
    """A piece of an upload, which begins at `offset` of it."""

    session: SessionId
    transfer: int
    offset: int
    data: bytes | memoryview


class UploadEnded(Command):
    """An upload is complete: it has this size and this CRC-32C. Answered when all of it is on disk."""

    request: int
    session: SessionId
    transfer: int
    size: int
    checksum: int


class UploadDropped(Command):
    """A session wants no more of an upload."""

    session: SessionId
    transfer: int


class FetchBegun(Command):
    """A session reads the content of a large message, from `offset` on, for now up to `allowed`."""

    request: int
    session: SessionId
    transfer: int
    file: bytes
    offset: int
    allowed: int
    address: Address = Address("")  # where the message was received


class FetchAllowed(Command):
    """More of a download may be sent: everything before this offset."""

    session: SessionId
    transfer: int
    allowed: int


class FetchEnded(Command):
    """A session wants no more of a download."""

    session: SessionId
    transfer: int


class Asked(Command):
    """A question to the administration of the message managers."""

    request: int
    subject: str
    arguments: dict[str, Any]


class Stored(Command):
    """A message manager has the log of its sub-cluster on disk up to and including this index."""

    index: int


class Synchronised(Command):
    """A message manager has caught up: from here on it follows the log."""

    index: int


class BranchOffered(Command):
    """A message manager has branches of the log that are to be taken into the one that goes on."""

    branches: list[bytes]


class UnionComplete(Command):
    """A message manager has nothing that the log does not have, which it has up to this index."""

    index: int


class BodyWanted(Command):
    """A client manager is to hand out something, under this tag, of a block that it does not have."""

    consumer: ConsumerId
    tag: int


class DocumentOffered(Command):
    """A node shows its copy of a document that nodes share (M14). Version -1: it has none."""

    key: str
    version: int
    content: bytes
    node: str = ""


# ---- alerts (A1–A6): client manager → message managers. The client manager vouches for user and clearance.


class AlertPublished(Command):
    """An alert for a channel, which is made if it is not there and `create` allows. Lane and sequence name it once
    for ever; answered with its id when it is stored as it asks."""

    request: int
    address: Address
    create: bool
    lane: LaneId
    sequence: int
    header: AlertHeader
    body: bytes
    user: str
    clearance: int


class AlertAcknowledged(Command):
    """Somebody acknowledges an alert: one more alert, which correlates to it."""

    request: int
    address: Address
    lane: LaneId
    sequence: int
    alert: bytes
    body: bytes
    user: str
    clearance: int


class AlertCancelled(Command):
    """An alert is to be withdrawn everywhere. Answered when no application receives it any more."""

    request: int
    address: Address
    alert: bytes
    user: str
    clearance: int


class AlertsAttached(Command):
    """A consumer of a session takes the alerts of a subscriber, who from here on wants these topics: (type, prefix,
    text) each. `held`: what it was handed before and still has; `taken`: what its application got meanwhile.

    Without a `request`: it was attached before, and a client manager says so to another primary.
    """

    request: int
    address: Address
    create: bool
    session: SessionId
    number: int
    user: str
    name: str
    clearance: int
    credit: int
    topics: list[tuple[int, str, str]]
    held: list[bytes] = []
    taken: list[bytes] = []


class AlertTopicsChanged(Command):
    """A consumer wants other topics too, or some no more. The answer names what it was handed and wants no more."""

    request: int
    address: Address
    session: SessionId
    number: int
    added: list[tuple[int, str, str]]
    removed: list[tuple[int, str, str]]


class AlertsDetached(Command):
    """A consumer takes no more. `unsubscribe`: nor does its subscriber want any."""

    request: int
    address: Address
    session: SessionId
    number: int
    unsubscribe: bool


class AlertsTaken(Command):
    """The application of a consumer has got these, and will not get those. Answered when that is stored."""

    request: int
    address: Address
    session: SessionId
    number: int
    taken: list[bytes]
    dropped: list[bytes]


class AlertsListed(Command):
    """Which alerts are live that match these topics (none: all), as far as the asker may see them? A page of them,
    behind the one named `after`."""

    request: int
    address: Address
    clearance: int
    topics: list[tuple[int, str, str]]
    after: bytes


class AlertAudited(Command):
    """What was the life of an alert?"""

    request: int
    address: Address
    alert: bytes
    clearance: int


# ---- among all nodes: they concern neither the log nor any client


class NodesAsked(Command):
    """A question to nodes, each of which answers for itself (M13). `nodes`: those that are meant, by name."""

    question: bytes
    subject: str
    arguments: dict[str, Any]
    nodes: list[str]


class NodeAnswered(Command):
    """What a node has to say to a question; a `refusal`, which is a code, says that the answer is no."""

    question: bytes
    node: str
    body: dict[str, Any] = {}
    refusal: str = ""
    sentence: str = ""


class Happened(Command):
    """Events of a node that does not lead, for the log that all nodes share (M15)."""

    events: list[dict[str, Any]]


class ViewRecorded(Command):
    """I have this view on disk (docs/decisions/0014). A message manager of U says it; stamped with the view, it holds
    in that one alone."""


class Enrolled(Command):
    """The primary: who belongs to the sub-cluster, as `cluster/log.py` writes it. Proposed until it is settled."""

    enrolment: bytes
    is_settled: bool


class EnrolmentSeen(Command):
    """I have heard of an enrolment, or, if I keep messages, I have it on disk."""

    epoch: int


OF_THE_VIEW: Final[frozenset[type[Command]]] = frozenset((ViewRecorded, Enrolled, EnrolmentSeen))
AMONG_NODES: Final[frozenset[type[Command]]] = frozenset((NodesAsked, NodeAnswered, Happened))

Fact = (
    DestinationWanted
    | DestinationSought
    | PlacementWanted
    | PathWanted
    | OldestWanted
    | PathsChecked
    | Published
    | ConsumerAttached
    | CreditGranted
    | Settled
    | ConsumerDetached
    | SubscriptionEnded
    | TopicsWanted
    | ConsumerRetired
    | CommitAsked
    | DestinationDeleted
    | RollbackAsked
    | PrepareAsked
    | OutcomeAsked
    | FinalAsked
    | CommitStateAsked
    | SessionOpened
    | SessionResumed
    | SessionLost
    | SessionClosed
    | UploadBegun
    | ChunkSent
    | UploadEnded
    | UploadDropped
    | FetchBegun
    | FetchAllowed
    | FetchEnded
    | Asked
    | Stored
    | Synchronised
    | BranchOffered
    | UnionComplete
    | BodyWanted
    | DocumentOffered
    | NodesAsked
    | NodeAnswered
    | Happened
    | AlertPublished
    | AlertAcknowledged
    | AlertCancelled
    | AlertsAttached
    | AlertTopicsChanged
    | AlertsDetached
    | AlertsTaken
    | AlertsListed
    | AlertAudited
)
FACTS: Final[frozenset[type[Command]]] = frozenset(get_args(Fact))

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


class Parcelled(Command):
    """Several spans, of one block or of many, go to a consumer under delivery tags `tag` and up."""

    consumer: ConsumerId
    tag: int
    spans: list[Span]
    user: str


class Recalled(Command):
    """A consumer gave back a message of a unit of order, and whatever it had of that unit behind it, under
    these tags, came back too. What it gets from now on it has to do with anew."""

    consumer: ConsumerId
    tags: list[tuple[int, int]]


class BrowseEnded(Command):
    """A browser has been shown everything that was there when it came."""

    consumer: ConsumerId


class UploadAdvanced(Command):
    """An upload is written up to here, and forced to disk up to there."""

    session: SessionId
    transfer: int
    written: int
    durable: int


class ChunkRead(Command):
    """A piece of a download."""

    session: SessionId
    transfer: int
    offset: int
    data: bytes


class TransferFailed(Command):
    """An upload or download came to nothing."""

    session: SessionId
    transfer: int
    code: str
    sentence: str


class DestinationMade(Command):
    """A destination came into being."""

    address: Address


class DestinationGone(Command):
    """A destination ended, and with it its consumers."""

    address: Address
    consumers: list[ConsumerId]


class FlowChanged(Command):
    """Producers to a destination must wait, for `reason`; or, where that is empty, need not any more."""

    address: Address
    reason: str


class Answered(Command):
    """The request was carried out; `body` says what there is to say.

    `binds`: the view in which a promise was given, or an outcome decided, that whoever goes on from the view must
    know of. It counts when most client managers have seen it (PROTOCOL 7.2). `is_history`: it tells what is in the
    log, which whoever goes on must have too (PROTOCOL 5).
    """

    request: int
    body: dict[str, Any]
    binds: bytes = b""
    is_history: bool = False


class Rejected(Command):
    """The request was not carried out."""

    request: int
    code: str
    sentence: str


class Shipped(msgspec.Struct, array_like=True, gc=False):
    """A record of the log as it travels. `named`: the payload is the name of a block that was heard published."""

    kind: int
    destination: int
    list: int
    payload: bytes
    named: bool = False


class Standing(msgspec.Struct, array_like=True, gc=False):
    """How a consumer stands after a tick of the primary: what it may still be given, and under what tags."""

    consumer: ConsumerId
    list: int
    credit: int
    next_tag: int
    is_retired: bool = False
    lease_seconds: float = 0.0  # it is away, and is waited for this much longer
    given: Ranges = []  # tags that it had from those who led before
    former: Tags = []  # the last that its client had of one that was forgotten, in whose place it came


class Introduction(msgspec.Struct, array_like=True, gc=False):
    """What one that has just caught up could not hear: with which client manager each session is, on what connection;
    and what consumers, all of whom are in `attached`, have: tag, first and last number."""

    sessions: list[tuple[SessionId, bytes, bytes]]
    given: list[tuple[ConsumerId, int, int, int]]
    handled: list[tuple[bytes, int]] = []  # through which frame of each sender
    refused: list[tuple[Address, LaneId]] = []  # lanes of which nothing more is taken
    answered: list[int] = []  # requests, the last ones
    unconfirmed: list[
        tuple[LaneId, int]
    ] = []  # lanes of which something was taken up to there, and not confirmed yet
    marks: list[tuple[Address, LaneId, int]] = []  # lanes that have come further than the log says
    resumed: list[tuple[Address, LaneId]] = []  # lanes on which nothing came since


class Logged(Command):
    """What the primary wrote to its log in one tick (docs/decisions/0010).

    `first` is the index of the first record, `chain` the hash of the log before it. The log holds what followed
    from the frames of each sender up to the sequence in `through`, where that has changed. Consumers are not in
    the log, since they do not outlive their client managers; but a backup that takes over must know them. `beside`
    are lanes that came further than the log says: by what is not persistent, and by what nobody wants.
    """

    first: int
    chain: int
    through: list[tuple[bytes, int]]
    records: list[Shipped]
    attached: list[ConsumerAttached] = []
    standing: list[Standing] = []
    gone: list[ConsumerId] = []
    introduction: Introduction | None = None
    decisions: list[Command] = []  # of the same tick: nobody hears them without the log, or it without them
    beside: list[tuple[Address, LaneId, int, bool]] = []  # the last that was taken; whether for a transaction


class Supplied(Command):
    """The bytes of a block that client managers may not have, before something of it is handed out."""

    name: bytes
    block: Block


class Leads(Command):
    """The sender is the primary from here on. Whoever waits for an answer asks again.

    `anew`: it begins with what is on its disk, and knows of no consumer and of nothing that was under way.
    """

    index: int
    anew: bool = False


class OutcomeWanted(Command):
    """A participant is prepared and does not know what became of the transaction; or the decider does not know
    whether all others do. Any client manager asks the decider and tells them."""

    session: SessionId
    number: int
    decider: str
    participants: list[str]


class PathsUnused(Command):
    """Nobody uses these units of a distributed destination any more; these sessions did. Any client manager asks
    their member whether it still has anything of them. `mark` names the question."""

    address: Address
    member: str
    units: list[int]
    sessions: list[SessionId]
    mark: int


class DocumentTold(Command):
    """A document that nodes share, as the cluster has it: whoever has another copy takes this one."""

    key: str
    version: int
    content: bytes


# ---- alerts: message manager → client managers


class AlertHanded(Command):
    """An alert goes to consumers: session, number, and whether they may have seen it before."""

    alert: AlertView
    recipients: list[tuple[SessionId, int, bool]]


class AlertWithdrawn(Command):
    """Consumers were handed an alert that ended. Each says what became of it: taken before, or dropped."""

    alert: bytes
    recipients: list[tuple[SessionId, int]]


class AlertReceipted(Command):
    """A consumer's application has an alert whose producer, with this session, wants to know."""

    session: SessionId
    address: Address
    alert: bytes
    user: str
    name: str
    at: int


class AlertsClosed(Command):
    """A consumer of alerts was ended by the server."""

    session: SessionId
    number: int
    code: str
    sentence: str


# ---- decisions of client managers


class DispatchSeen(Command):
    """A client manager has delivered everything up to this place of the view (P5). It says so for what is handed out
    to clients of others as well as to its own, whether it has the bodies or not."""

    place: int


Decision = (
    Confirmed
    | Refused
    | Dispatched
    | Parcelled
    | Recalled
    | BrowseEnded
    | DestinationMade
    | DestinationGone
    | FlowChanged
    | UploadAdvanced
    | ChunkRead
    | TransferFailed
    | Answered
    | Rejected
    | Logged
    | Supplied
    | Leads
    | OutcomeWanted
    | PathsUnused
    | DocumentTold
    | AlertHanded
    | AlertWithdrawn
    | AlertReceipted
    | AlertsClosed
)
DECISIONS: Final[frozenset[type[Command]]] = frozenset(get_args(Decision))
