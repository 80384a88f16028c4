"""The frames of the native protocol, as both ends write and read them.

    preamble (client, once)   "HELIO" 0x01 CR LF
    frame                     u32 payload length · u8 kind · u8 flags · u16 session number, then the payload
                              (little-endian)

Eight kinds are binary because they are hot; everything else is a CONTROL frame: one MessagePack map with its
type in the key "type". `FrameReader` cuts a byte stream into frames however it was cut before, and buffers no
more than one frame.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final, TypeVar

import msgspec

from heliograph.model.alert import AlertHeader, AlertView
from heliograph.model.claim import Claim
from heliograph.model.errors import ProtocolFault
from heliograph.model.limits import ALERT_CREDIT, HEARTBEAT_SECONDS, MAX_CONTROL_BYTES, MAX_FRAME_BYTES

PREAMBLE: Final = b"HELIO\x01\r\n"
PROTOCOL_VERSION: Final = 1
DEFAULT_PORT: Final = 7700

CONTROL: Final = 1
PUBLISH: Final = 2  # client → server: a block. Flag RESENT: possibly sent before
CONFIRM: Final = 3  # server → client: pairs (lane, confirmed up to and including this sequence)
DELIVER: Final = 4  # server → client: delivery header, user id, block or fragment
CREDIT: Final = 5  # client → server: (consumer, further messages)
SETTLE: Final = 6  # client → server: consumer, outcome, ranges of delivery tags
HEARTBEAT: Final = 7  # either way, empty
CHUNK: Final = 8  # client → server: a piece of an upload; server → client: of a download
ADVANCE: Final = (
    9  # server → client: upload written, durable so far; client → server: download allowed so far
)
DELIVER_FROM: Final = 10  # server → client: u16 length and the topic, then as DELIVER, for a consumer of many
ANSWER: Final = 20  # server → client: an `answer` that is too long for a control frame

RESENT: Final = 1  # flag of PUBLISH
STAGED: Final = 2  # flag of PUBLISH: part of the session's transaction
REPLENISH: Final = 1  # flag of SETTLE: grant as much credit as is settled
CONFIRM_SETTLEMENT: Final = 2  # flag of SETTLE: answer with SETTLED when it is stored

# A client that says goodbye with this code comes back: what its consumers have is kept for it.
MOVING: Final = "moving"

# Outcomes of SETTLE
DONE: Final = 0  # processed: never deliver again
RETURNED: Final = 1  # not processed: deliver again, marked redelivered

FRAME_HEADER = struct.Struct("<IBBH")
FRAME_HEADER_BYTES: Final = FRAME_HEADER.size
PAIR = struct.Struct("<QQ")
# consumer, earlier deliveries, first delivery tag, bytes of the user id that follow
DELIVERY = struct.Struct("<IIQH")
CREDIT_BODY = struct.Struct("<II")
SETTLEMENT = struct.Struct("<II")
# transfer, offset of the first byte that follows
CHUNK_HEAD = struct.Struct("<IQ")
# transfer, written or allowed up to, durable up to (0 from a client)
ADVANCE_BODY = struct.Struct("<IQQ")

pack_header = FRAME_HEADER.pack
pack_pair = PAIR.pack
pack_delivery = DELIVERY.pack
ADDRESS_LENGTH = struct.Struct("<H")


class Control(msgspec.Struct, tag_field="type", omit_defaults=True):
    """A control message. Fields are appended, never reordered or reused."""


# ---- client → server


class Hello(Control, tag="hello"):
    """The first frame of a client. `mechanism` is "anonymous" (loopback without users), "plain", "scram-sha-256" or
    "external"; of those but the first two, `initial` is what the mechanism says first."""

    version: int = PROTOCOL_VERSION
    client: str = ""
    mechanism: str = "anonymous"
    user: str = ""
    password: str = ""
    heartbeat_seconds: float = HEARTBEAT_SECONDS
    client_id: str = ""  # whom durable subscriptions belong to
    initial: bytes = b""


class Response(Control, tag="response"):
    """The answer to a challenge."""

    data: bytes


class OpenSession(Control, tag="open-session"):
    """Open session `number` of this connection, or resume the one that `resume` and `token` name.

    `keep`: remember it for long, because its client stores what it sends and may be away for long (U7).
    """

    request: int
    number: int
    resume: bytes = b""
    token: bytes = b""
    keep: bool = False


class CloseSession(Control, tag="close-session"):
    """End a session for good: its consumers go, its lanes are forgotten."""

    request: int
    number: int


class OpenLane(Control, tag="open-lane"):
    """Get ready to send to a destination on lane `lane` of a session; made on first use where policy
    allows."""

    request: int
    number: int
    lane: int
    destination: str


class FindPath(Control, tag="find-path"):
    """Which member of a distributed destination that is routed by path is a unit of order at (U6)? Answered with
    `member`; it holds until the session ends."""

    request: int
    number: int
    destination: str
    unit: int


class Subscribe(Control, tag="subscribe"):
    """Make a consumer. Its number is the client's choice and unique in the session.

    `subscription` names a durable or shared subscription to a topic; `browse` looks at a queue without
    taking.
    """

    request: int
    number: int
    consumer: int
    destination: str
    credit: int = 0
    selector: str = ""
    subscription: str = ""
    durable: bool = False
    shared: bool = False
    no_local: bool = False
    browse: bool = False
    prompt: bool = True  # it settles each message as it goes: it need not be sent many ahead
    claim: Claim | None = None  # the session was resumed, and this consumer goes on; answered by `answer`


class Unsubscribe(Control, tag="unsubscribe"):
    """End a consumer. What it had not settled returns to the destination, in order.

    `seen` is the last delivery tag that was handed to the application, -1 if that is not known: what comes after
    it does not count as delivered.
    """

    request: int
    number: int
    consumer: int
    seen: int = -1


class Retire(Control, tag="retire"):
    """A consumer takes nothing more. What was not handed to the application returns; the rest stays with it until
    it is settled, committed or rolled back."""

    request: int
    number: int
    consumer: int
    seen: int


class EndSubscription(Control, tag="end-subscription"):
    """Give up a durable subscription that has no consumer, with all that waits in it."""

    request: int
    number: int
    subscription: str


class Return(Control, tag="return"):
    """Give messages back, with a word on why; like SETTLE with outcome RETURNED. Answered by `recalled`."""

    number: int
    consumer: int
    ranges: list[tuple[int, int]]
    error: str = ""
    seen: int = -1  # the last delivery tag that was handed to the application; -1: not known


class Recover(Control, tag="recover"):
    """Everything that the session's consumers have not settled is to be handed out again, in order.

    `seen`: for each consumer the last delivery tag that was handed to the application.
    """

    request: int
    number: int
    seen: list[tuple[int, int]] = []


class Commit(Control, tag="commit"):
    """Transaction `transaction` (1, 2, 3 … in a session) takes effect: `messages` that were sent with STAGED,
    and what was consumed: for each consumer ranges of delivery tags. Asked again, it is answered the same."""

    request: int
    number: int
    transaction: int
    messages: int
    consumed: list[tuple[int, list[tuple[int, int]]]] = []


class Rollback(Control, tag="rollback"):
    """The transaction is dropped, and all that the session's consumers have is handed out again."""

    request: int
    number: int
    transaction: int
    seen: list[tuple[int, int]] = []


class MakeTemporary(Control, tag="make-temporary"):
    """Make a queue or topic (`kind`) that ends with this connection; the answer says `destination`."""

    request: int
    number: int
    kind: str


class DeleteTemporary(Control, tag="delete-temporary"):
    """End a temporary destination of this connection early."""

    request: int
    number: int
    destination: str


class BeginUpload(Control, tag="begin-upload"):
    """Send the content of a very large message for a destination in CHUNK frames, under the number `transfer`.

    The answer says `file`, its id, and `offset`, where to begin: beyond 0 where `resume` names a file that
    the session began before.
    """

    request: int
    number: int
    transfer: int
    destination: str
    resume: bytes = b""


class EndUpload(Control, tag="end-upload"):
    """All of an upload was sent. Completed when it is on disk and its CRC-32C is `checksum`."""

    request: int
    number: int
    transfer: int
    size: int
    checksum: int


class DropUpload(Control, tag="drop-upload"):
    """The upload is not wanted any more. Not answered."""

    number: int
    transfer: int


class BeginFetch(Control, tag="begin-fetch"):
    """Get the content of a large message of a destination from `offset` on, for now up to `allowed`.

    Completed, then CHUNK frames follow; ADVANCE frames allow more.
    """

    request: int
    number: int
    transfer: int
    destination: str
    file: bytes
    offset: int
    allowed: int


class EndFetch(Control, tag="end-fetch"):
    """No more of a download is wanted. Not answered."""

    number: int
    transfer: int


class PublishAlert(Control, tag="publish-alert"):
    """An alert for a channel, `alerts:NAME`. Lane and sequence name it: with the same it is the same one, sent again.
    The answer says its `id`, when it is stored as it asks."""

    request: int
    number: int
    destination: str
    lane: int
    sequence: int
    header: AlertHeader
    body: bytes = b""


class AcknowledgeAlert(Control, tag="acknowledge-alert"):
    """Acknowledge an alert. The answer says the `id` of the acknowledgement, or `discarded`: nobody wanted one."""

    request: int
    number: int
    destination: str
    lane: int
    sequence: int
    alert: bytes
    body: bytes = b"ACK"


class CancelAlert(Control, tag="cancel-alert"):
    """Withdraw an alert everywhere. Completed when no application receives it any more."""

    request: int
    number: int
    destination: str
    alert: bytes


class AttachAlerts(Control, tag="attach-alerts"):
    """Make a consumer of alerts, or go on with it on another connection. `name`: marks and topics last under it.

    Topics as in `TAG:a,b;USER:c`, of alerts and of acknowledgements. `held`: alerts that it was handed and that wait
    here; `taken`: those that the application got, as far as the server has not said that it knows.
    """

    request: int
    number: int
    consumer: int
    destination: str
    name: str = ""
    topics: str = ""
    acknowledgements: str = ""
    credit: int = ALERT_CREDIT
    held: list[bytes] = []
    taken: list[bytes] = []


class ChangeAlerts(Control, tag="change-alerts"):
    """A consumer wants these topics too, or, with `removes`, no more. The answer names alerts that are `withdrawn`:
    it was handed them, drops them now, and says so."""

    request: int
    number: int
    consumer: int
    topics: str = ""
    acknowledgements: str = ""
    removes: bool = False


class DetachAlerts(Control, tag="detach-alerts"):
    """End a consumer of alerts. `unsubscribe`: under its name nothing is kept for it either."""

    request: int
    number: int
    consumer: int
    unsubscribe: bool = True


class TakeAlerts(Control, tag="take-alerts"):
    """The application got these alerts, and will not get those. Completed when that is stored."""

    request: int
    number: int
    consumer: int
    taken: list[bytes] = []
    dropped: list[bytes] = []


class ListAlerts(Control, tag="list-alerts"):
    """The live alerts that the user may see, a page behind the one named `after`."""

    request: int
    number: int
    destination: str
    topics: str = ""
    after: bytes = b""


class AuditAlert(Control, tag="audit-alert"):
    """The life of an alert."""

    request: int
    number: int
    destination: str
    alert: bytes


class Ask(Control, tag="ask"):
    """A question to the server's administration, e.g. subject "destinations"."""

    request: int
    subject: str
    arguments: dict[str, Any] = {}


# ---- server → client


class Welcome(Control, tag="welcome"):
    """The peer is who it says; this is what holds on the connection."""

    version: int
    server: str
    user: str
    heartbeat_seconds: float
    max_frame_bytes: int = MAX_FRAME_BYTES
    addresses: list[str] = []  # host:port, where clients can go when this connection is lost
    sub_clusters: list[
        str
    ] = []  # if there are several: each has the server's own destinations (queue:_DMQ@NAME)
    proof: bytes = b""  # that the server knows its client's keys, where the mechanism has such a proof


class Challenge(Control, tag="challenge"):
    """What a client has to answer to prove who it is."""

    data: bytes


class SessionOpened(Control, tag="session-opened"):
    """`lanes`: of a resumed session, (lane number, destination, last sequence stored)."""

    request: int
    session: bytes
    token: bytes
    resumed: bool = False
    lanes: list[tuple[int, str, int]] = []


class LaneOpened(Control, tag="lane-opened"):
    """The lane is ready; `last` is the last sequence the server has of it."""

    request: int
    last: int = 0


class Distributed(Control, tag="distributed"):
    """The answer to OpenLane and Subscribe where the destination has members in several sub-clusters (U6). Nothing
    was opened. Each member is addressed as DESTINATION@MEMBER; `routing` says how a unit of order finds its own."""

    request: int
    members: list[str]
    routing: str
    version: int
    unit_from: str = ""
    leaving: list[str] = []


class Completed(Control, tag="completed"):
    """The request was carried out and has nothing else to say."""

    request: int


class Answer(Control, tag="answer"):
    """The answer to an Ask."""

    request: int
    body: dict[str, Any]


class Failed(Control, tag="failed"):
    """The request was not carried out."""

    request: int
    code: str
    sentence: str


class Refused(Control, tag="refused"):
    """Messages `first` and up of a lane were not taken, and the lane takes no more: open another to go on."""

    number: int
    lane: int
    first: int
    code: str
    sentence: str


class ConsumerClosed(Control, tag="consumer-closed"):
    """The server ended a consumer."""

    number: int
    consumer: int
    code: str
    sentence: str


class Recalled(Control, tag="recalled"):
    """A consumer gave messages back; what it had of their units of order behind them, under these tags, went
    back with them. Whatever is delivered after this is new."""

    number: int
    consumer: int
    tags: list[tuple[int, int]]


class BrowseEnded(Control, tag="browse-ended"):
    """A browser was shown everything that was there when it came."""

    number: int
    consumer: int


class Blocked(Control, tag="blocked"):
    """Wait with messages to a destination, for `reason`; or, where that is empty, go on."""

    number: int
    destination: str
    reason: str = ""


class Settled(Control, tag="settled"):
    """A settlement that asked for it is stored: these messages are never handed out again. Answers come in
    the order asked."""

    number: int
    consumer: int


class TransferFailed(Control, tag="transfer-failed"):
    """An upload or download came to nothing."""

    number: int
    transfer: int
    code: str
    sentence: str


class Alert(Control, tag="alert"):
    """An alert for a consumer."""

    number: int
    consumer: int
    alert: AlertView


class AlertWithdrawn(Control, tag="alert-withdrawn"):
    """An alert that was handed to a consumer ended. It drops it and says so, or that the application has it."""

    number: int
    consumer: int
    alert: bytes


class AlertReceipt(Control, tag="alert-receipt"):
    """The application of a subscriber, a user and perhaps a name, has an alert that this session published."""

    number: int
    destination: str
    alert: bytes
    user: str
    name: str
    at: int


class Move(Control, tag="move"):
    """The server is about to leave: go to another of the addresses within `seconds`, with all sessions."""

    seconds: float


class Goodbye(Control, tag="goodbye"):
    """The last frame of either side, saying why."""

    code: str = "closed"
    sentence: str = "the connection was closed"


FromClient = (
    Hello
    | Response
    | OpenSession
    | CloseSession
    | OpenLane
    | FindPath
    | Subscribe
    | Unsubscribe
    | Retire
    | EndSubscription
    | Return
    | Recover
    | Commit
    | Rollback
    | MakeTemporary
    | DeleteTemporary
    | BeginUpload
    | EndUpload
    | DropUpload
    | BeginFetch
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
    | Ask
    | Goodbye
)
FromServer = (
    Welcome
    | Challenge
    | SessionOpened
    | LaneOpened
    | Distributed
    | Completed
    | Answer
    | Failed
    | Refused
    | ConsumerClosed
    | Recalled
    | BrowseEnded
    | Blocked
    | Settled
    | TransferFailed
    | Alert
    | AlertWithdrawn
    | AlertReceipt
    | Move
    | Goodbye
)

Message = TypeVar("Message")

_encode = msgspec.msgpack.Encoder().encode
_from_client: msgspec.msgpack.Decoder[FromClient] = msgspec.msgpack.Decoder(FromClient)
_answer: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)
_from_server: msgspec.msgpack.Decoder[FromServer] = msgspec.msgpack.Decoder(FromServer)


def control_frame(message: Control) -> bytes:
    body = _encode(message)
    return pack_header(len(body), CONTROL, 0, 0) + body


def answer_frame(answer: Answer) -> bytes:
    """An answer of any length that fits a frame: one with messages in it is longer than control messages are."""
    body = _encode(answer)
    kind = CONTROL if len(body) <= MAX_CONTROL_BYTES else ANSWER
    return pack_header(len(body), kind, 0, 0) + body


def decode_answer(payload: bytes) -> Answer:
    try:
        return _answer.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as fault:
        raise ProtocolFault(f"an answer cannot be read: {fault}", code="control-malformed") from None


def decode_from_client(payload: bytes) -> FromClient:
    return _decode(_from_client, payload)


def decode_from_server(payload: bytes) -> FromServer:
    return _decode(_from_server, payload)


def _decode(decoder: msgspec.msgpack.Decoder[Message], payload: bytes) -> Message:
    if len(payload) > MAX_CONTROL_BYTES:
        raise ProtocolFault(
            f"a control frame has at most {MAX_CONTROL_BYTES} bytes, this one {len(payload)}",
            code="control-too-long",
        )
    try:
        return decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as fault:
        raise ProtocolFault(f"a control frame cannot be read: {fault}", code="control-malformed") from None


HEARTBEAT_FRAME: Final = pack_header(0, HEARTBEAT, 0, 0)


def publish_frame(number: int, block: bytes, *, resent: bool = False) -> bytes:
    return pack_header(len(block), PUBLISH, RESENT if resent else 0, number) + block


def credit_frame(number: int, consumer: int, count: int) -> bytes:
    return pack_header(CREDIT_BODY.size, CREDIT, 0, number) + CREDIT_BODY.pack(consumer, count)


def settle_frame(
    number: int, consumer: int, outcome: int, ranges: list[tuple[int, int]], flags: int = 0
) -> bytes:
    """Settle inclusive ranges of delivery tags."""
    body = b"".join([SETTLEMENT.pack(consumer, outcome), *[pack_pair(first, last) for first, last in ranges]])
    return pack_header(len(body), SETTLE, flags, number) + body


def chunk_header(number: int, transfer: int, offset: int, size: int) -> bytes:
    """What stands before the bytes of a chunk."""
    return pack_header(CHUNK_HEAD.size + size, CHUNK, 0, number) + CHUNK_HEAD.pack(transfer, offset)


def advance_frame(number: int, transfer: int, upto: int, durable: int = 0) -> bytes:
    return pack_header(ADVANCE_BODY.size, ADVANCE, 0, number) + ADVANCE_BODY.pack(transfer, upto, durable)


Frame = tuple[int, int, int, bytes]
"""kind, flags, session number, payload"""


class FrameReader:
    """Cuts a stream of bytes into frames. Holds at most one unfinished frame, made of what arrived, not of
    what was promised."""

    __slots__ = ("_needed", "_pieces", "_size", "limit")

    def __init__(self, limit: int = MAX_FRAME_BYTES) -> None:
        self.limit = limit
        self._pieces: list[bytes] = []
        self._size = 0
        self._needed = FRAME_HEADER_BYTES

    @property
    def buffered(self) -> int:
        return self._size

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are complete now; take them all.

        Raises ProtocolFault on reaching one beyond the limit: what came before it is seen, however the stream
        was cut.
        """
        position = 0
        available = len(data)
        if self._pieces:
            if self._size < FRAME_HEADER_BYTES:
                data = b"".join([*self._pieces, data])
                available = len(data)
                self._pieces = []
            else:
                position = min(self._needed - self._size, available)
                frame = self._complete(data[:position])
                if frame is None:
                    return
                yield frame
        needed = FRAME_HEADER_BYTES
        while available - position >= FRAME_HEADER_BYTES:
            length, kind, flags, number = FRAME_HEADER.unpack_from(data, position)
            if length > self.limit:
                raise ProtocolFault(
                    f"a frame of {length} bytes is beyond the limit of {self.limit}", code="frame-too-long"
                )
            start = position + FRAME_HEADER_BYTES
            end = start + length
            if end > available:
                needed = end - position
                break
            yield kind, flags, number, data[start:end]
            position = end
        self._size = available - position
        if self._size:
            self._pieces = [data[position:] if position else data]
            self._needed = needed

    def _complete(self, data: bytes) -> Frame | None:
        """Add to the frame whose beginning is here, and return it if it is whole now."""
        self._pieces.append(data)
        self._size += len(data)
        if self._size < self._needed:
            return None
        whole = b"".join(self._pieces)
        self._pieces = []
        self._size = 0
        _, kind, flags, number = FRAME_HEADER.unpack_from(whole)
        return kind, flags, number, whole[FRAME_HEADER_BYTES:]
