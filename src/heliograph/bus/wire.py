"""Commands as bytes, for buses that leave the process. Documented in docs/reference/bus.md, pinned by golden files.

    entry    u16 command code · u16 0 · u32 bytes of fields · u32 bytes of attachment, then both (little-endian)

Fields are one MessagePack array in the order of the command's definition, so a field may be appended with a default
and none may be moved. What is bulky already is bytes: blocks and pieces of content are attached as they are. A
`Dispatched` names its block and does not repeat it, because a body crosses the bus once.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import msgspec

from heliograph.bus import bridge_words, commands, presence
from heliograph.bus.bridge_words import Echoed, Relayed
from heliograph.bus.commands import (
    ChunkRead,
    ChunkSent,
    Command,
    ConsumerAttached,
    Dispatched,
    Introduction,
    Logged,
    Parcelled,
    Published,
    Shipped,
    Standing,
    Supplied,
)
from heliograph.bus.interface import Incarnation, Origin, Place, Stamp
from heliograph.model import block
from heliograph.model.block import Block, Span
from heliograph.model.destination import Address
from heliograph.model.errors import ProtocolFault
from heliograph.model.ids import ConsumerId, LaneId, SessionId
from heliograph.model.limits import MAX_BUS_NESTING

Bytes = bytes | bytearray | memoryview

ENTRY = struct.Struct("<HHII")
ENTRY_BYTES: Final = ENTRY.size

# How much of all this a version knows (docs/reference/bus.md, "Levels"). A hello says it, and in a view nobody says
# more than all who are in it know.
FIRST_LEVEL: Final = 1
LEVEL: Final = 1
# What came after the first level, by the level that it came with.
LEVELS: Final[dict[type[Command], int]] = {}

UNKNOWN: Final = "bus-command-unknown"

# A code is given once and never again, also when its command is no more.
CODES: Final[dict[type[Command], int]] = {
    commands.DestinationWanted: 1,
    commands.Published: 2,
    commands.ConsumerAttached: 3,
    commands.TopicsWanted: 4,
    commands.SubscriptionEnded: 5,
    commands.ConsumerRetired: 6,
    commands.CreditGranted: 7,
    commands.Settled: 8,
    commands.ConsumerDetached: 9,
    commands.DestinationDeleted: 10,
    commands.CommitAsked: 11,
    commands.RollbackAsked: 12,
    commands.SessionOpened: 13,
    commands.SessionResumed: 14,
    commands.SessionLost: 15,
    commands.SessionClosed: 16,
    commands.UploadBegun: 17,
    commands.ChunkSent: 18,
    commands.UploadEnded: 19,
    commands.UploadDropped: 20,
    commands.FetchBegun: 21,
    commands.FetchAllowed: 22,
    commands.FetchEnded: 23,
    commands.Asked: 24,
    commands.Stored: 25,
    commands.Synchronised: 26,
    commands.BodyWanted: 27,
    commands.DestinationSought: 40,
    commands.PlacementWanted: 41,
    commands.PathWanted: 42,
    commands.OldestWanted: 43,
    commands.PathsChecked: 44,
    commands.PathsUnused: 45,
    commands.PrepareAsked: 28,
    commands.OutcomeAsked: 29,
    commands.FinalAsked: 30,
    commands.CommitStateAsked: 31,
    commands.NodesAsked: 48,
    commands.NodeAnswered: 49,
    commands.Happened: 50,
    commands.DocumentOffered: 51,
    commands.BranchOffered: 60,
    commands.UnionComplete: 61,
    commands.Confirmed: 64,
    commands.Refused: 65,
    commands.Dispatched: 66,
    commands.BrowseEnded: 67,
    commands.UploadAdvanced: 68,
    commands.ChunkRead: 69,
    commands.TransferFailed: 70,
    commands.DestinationMade: 71,
    commands.DestinationGone: 72,
    commands.FlowChanged: 73,
    commands.Answered: 74,
    commands.Rejected: 75,
    commands.Parcelled: 76,
    commands.Recalled: 77,
    commands.Logged: 78,
    commands.Supplied: 79,
    commands.Leads: 80,
    commands.OutcomeWanted: 81,
    commands.DocumentTold: 90,
    commands.DispatchSeen: 91,
    commands.ViewRecorded: 92,
    commands.Enrolled: 93,
    commands.EnrolmentSeen: 94,
    commands.AlertPublished: 100,
    commands.AlertAcknowledged: 101,
    commands.AlertCancelled: 102,
    commands.AlertsAttached: 103,
    commands.AlertTopicsChanged: 104,
    commands.AlertsDetached: 105,
    commands.AlertsTaken: 106,
    commands.AlertsListed: 107,
    commands.AlertAudited: 108,
    commands.AlertHanded: 110,
    commands.AlertWithdrawn: 111,
    commands.AlertReceipted: 112,
    commands.AlertsClosed: 113,
    presence.Hello: 128,
    presence.Beat: 129,
    presence.Expelled: 130,
    presence.Regrouped: 131,
    bridge_words.Introduced: 160,
    bridge_words.Acquainted: 161,
    bridge_words.Relayed: 162,
    bridge_words.OutersStated: 163,
    bridge_words.Present: 164,
    bridge_words.Lead: 165,
    bridge_words.Echoed: 166,
    bridge_words.ConfigurationEchoed: 167,
    bridge_words.Followed: 168,
    bridge_words.Follows: 169,
}


class _PublishedFields(msgspec.Struct, array_like=True, gc=False):
    """The block is attached."""

    address: Address
    resent: bool
    staged: bool


class _ChunkFields(msgspec.Struct, array_like=True, gc=False):
    """The data is attached."""

    session: SessionId
    transfer: int
    offset: int


class _SpanFields(msgspec.Struct, array_like=True, gc=False):
    """A span, and what the header of its block says: nobody has to have the body in order to know what it is."""

    start: int
    stop: int
    deliveries: int
    origin: int
    size: int
    count: int
    flags: int
    priority: int
    persistent: bool
    lane: LaneId
    first: int
    timestamp: int
    expiry: int
    delivery_time: int
    number: int
    name: bytes = b""  # under which its bytes were published or supplied


class _LoggedFields(msgspec.Struct, array_like=True, gc=False):
    """The decisions are attached, as entries."""

    first: int
    chain: int
    through: list[tuple[bytes, int]]
    records: list[Shipped]
    attached: list[ConsumerAttached]
    standing: list[Standing]
    gone: list[ConsumerId]
    introduction: Introduction | None
    beside: list[tuple[Address, LaneId, int, bool]] = []


class _SuppliedFields(msgspec.Struct, array_like=True, gc=False):
    """The block is attached."""

    name: bytes


class _RelayedFields(msgspec.Struct, array_like=True, gc=False):
    """The commands are attached, as entries."""

    configuration: bytes
    place: Place
    incarnation: Incarnation
    sequence: int
    stamp: Stamp


class _EchoedFields(msgspec.Struct, array_like=True, gc=False):
    """The commands are attached, as entries, unless they were heard."""

    chain: bytes
    place: Place
    incarnation: Incarnation
    sequence: int
    stamp: Stamp
    is_heard: bool


class _DispatchedFields(msgspec.Struct, array_like=True, gc=False):
    consumer: ConsumerId
    tag: int
    user: str
    span: _SpanFields


class _ParcelledFields(msgspec.Struct, array_like=True, gc=False):
    consumer: ConsumerId
    tag: int
    user: str
    spans: list[_SpanFields]


# Besides its own errors: text that is not UTF-8, a map as the key of a map, nesting without end.
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, TypeError, RecursionError)
_NOTHING: Final = memoryview(b"")
_encode = msgspec.msgpack.Encoder().encode
_BULKY = {
    CODES[Published]: _PublishedFields,
    CODES[ChunkSent]: _ChunkFields,
    CODES[ChunkRead]: _ChunkFields,
    CODES[Dispatched]: _DispatchedFields,
    CODES[Parcelled]: _ParcelledFields,
    CODES[Supplied]: _SuppliedFields,
    CODES[Logged]: _LoggedFields,
    CODES[Relayed]: _RelayedFields,
    CODES[Echoed]: _EchoedFields,
}
_DECODERS: Final = {code: msgspec.msgpack.Decoder(_BULKY.get(code, kind)) for kind, code in CODES.items()}


# ---- writing


def level_of(command: Command) -> int:
    """The least level of those who know this command and all that it carries."""
    level = LEVELS.get(type(command), FIRST_LEVEL)
    if isinstance(command, Logged):
        return max(level, *map(level_of, command.decisions), FIRST_LEVEL)
    return level


def append(command: Command, parts: list[Bytes]) -> int:
    """Append a command's entry to `parts`; returns its size. The bytes of blocks are not copied."""
    kind = type(command)
    attachment: Bytes = b""
    if kind is Published:
        assert isinstance(command, Published)
        assert command.block.buffer is not None, "a block is published with its bytes"
        fields = _encode(_PublishedFields(command.address, command.resent, command.staged))
        attachment = command.block.buffer
    elif kind is Dispatched:
        assert isinstance(command, Dispatched)
        span = _span_fields(command.span)
        fields = _encode(_DispatchedFields(command.consumer, command.tag, command.user, span))
    elif kind is Parcelled:
        assert isinstance(command, Parcelled)
        spans = [_span_fields(span) for span in command.spans]
        fields = _encode(_ParcelledFields(command.consumer, command.tag, command.user, spans))
    elif kind is Logged:
        assert isinstance(command, Logged)
        fields = _encode(_logged_fields(command))
        attachment = _attached(command.decisions)
    elif kind is Relayed:
        assert isinstance(command, Relayed)
        of = command.origin
        fields = _encode(
            _RelayedFields(command.configuration, of.place, of.incarnation, of.sequence, of.stamp)
        )
        attachment = _attached(command.commands)
    elif kind is Echoed:
        assert isinstance(command, Echoed)
        of = command.origin
        fields = _encode(
            _EchoedFields(command.chain, of.place, of.incarnation, of.sequence, of.stamp, command.is_heard)
        )
        attachment = _attached(command.commands)
    elif kind is Supplied:
        assert isinstance(command, Supplied)
        assert command.block.buffer is not None, "a block is supplied with its bytes"
        fields = _encode(_SuppliedFields(command.name))
        attachment = command.block.buffer
    elif kind is ChunkSent or kind is ChunkRead:
        assert isinstance(command, ChunkSent | ChunkRead)
        fields = _encode(_ChunkFields(command.session, command.transfer, command.offset))
        attachment = command.data
    else:
        fields = _encode(command)
    parts += (ENTRY.pack(CODES[kind], 0, len(fields), len(attachment)), fields)
    if attachment:
        parts.append(attachment)
    return ENTRY_BYTES + len(fields) + len(attachment)


def _attached(within: list[Command]) -> bytes:
    parts: list[Bytes] = []
    for each in within:
        append(each, parts)
    return b"".join(parts)


def _logged_fields(command: Logged) -> _LoggedFields:
    return _LoggedFields(
        command.first,
        command.chain,
        command.through,
        command.records,
        command.attached,
        command.standing,
        command.gone,
        command.introduction,
        command.beside,
    )


def _span_fields(span: Span) -> _SpanFields:
    of = span.block
    return _SpanFields(
        span.start,
        span.stop,
        span.deliveries,
        span.origin,
        of.size,
        of.count,
        of.flags,
        of.priority,
        of.persistent,
        of.lane,
        of.first,
        of.timestamp,
        of.expiry,
        of.delivery_time,
        of.number,
        of.name,
    )


# ---- reading


def malformed(sentence: str) -> ProtocolFault:
    return ProtocolFault(sentence, code="bus-frame-malformed")


def read(payload: Bytes, depth: int = 0) -> list[Command]:
    """The commands of a frame whose checksum was right. Raises ProtocolFault, and then none of it counts.

    `depth`: in so many commands are these.
    """
    if depth > MAX_BUS_NESTING:
        raise malformed(f"commands within commands, more than {MAX_BUS_NESTING} deep")
    view = payload if isinstance(payload, memoryview) else memoryview(payload)
    commands: list[Command] = []
    at, end = 0, len(view)
    while at < end:
        if end - at < ENTRY_BYTES:
            raise malformed("an entry is cut off in its header")
        code, _reserved, field_bytes, attached_bytes = ENTRY.unpack_from(view, at)
        behind_fields = at + ENTRY_BYTES + field_bytes
        behind = behind_fields + attached_bytes
        if behind > end:
            raise malformed("an entry is longer than what is left of its frame")
        fields = view[at + ENTRY_BYTES : behind_fields]
        attachment = view[behind_fields:behind] if attached_bytes else _NOTHING
        commands.append(_command(code, fields, attachment, depth))
        at = behind
    return commands


def _command(code: int, fields: memoryview, attachment: memoryview, depth: int) -> Command:
    decoder = _DECODERS.get(code)
    if decoder is None:
        sentence = f"a member sent command {code}, which this version does not know"
        raise ProtocolFault(sentence, code=UNKNOWN)
    try:
        found: Any = decoder.decode(fields)
    except _UNREADABLE as error:
        raise malformed(f"command {code} cannot be read: {error}") from None
    if code not in _BULKY:  # nearly all of them
        command: Command = found
        return command
    if isinstance(found, _LoggedFields):
        return _logged(found, read(attachment, depth + 1))
    if isinstance(found, _PublishedFields):
        return Published(found.address, _attached_block(attachment), found.resent, found.staged)
    if isinstance(found, _DispatchedFields):
        return Dispatched(found.consumer, found.tag, _span(found.span), found.user)
    if isinstance(found, _ParcelledFields):
        return Parcelled(found.consumer, found.tag, [_span(span) for span in found.spans], found.user)
    if isinstance(found, _RelayedFields):
        origin = Origin(found.place, found.incarnation, found.sequence, found.stamp)
        return Relayed(found.configuration, origin, read(attachment, depth + 1))
    if isinstance(found, _EchoedFields):
        origin = Origin(found.place, found.incarnation, found.sequence, found.stamp)
        return Echoed(found.chain, origin, found.is_heard, read(attachment, depth + 1))
    if isinstance(found, _ChunkFields):
        kind = ChunkSent if code == CODES[ChunkSent] else ChunkRead
        return kind(found.session, found.transfer, found.offset, bytes(attachment))
    assert isinstance(found, _SuppliedFields)
    return Supplied(found.name, _attached_block(attachment))


def _logged(found: _LoggedFields, decisions: list[Command]) -> Logged:
    return Logged(
        found.first,
        found.chain,
        found.through,
        found.records,
        found.attached,
        found.standing,
        found.gone,
        found.introduction,
        decisions,
        found.beside,
    )


def _attached_block(attachment: memoryview) -> Block:
    if len(attachment) < block.HEADER_BYTES:
        raise malformed("a block is shorter than its header")
    read = block.parse_trusted(attachment)
    if read.size != len(attachment):
        raise malformed(f"a block says {read.size} bytes and has {len(attachment)}")
    return read


def _span(read: _SpanFields) -> Span:
    named = Block(
        None,
        read.size,
        read.count,
        read.flags,
        read.priority,
        read.persistent,
        read.lane,
        read.first,
        read.timestamp,
        read.expiry,
        read.delivery_time,
        number=read.number,
        name=read.name,
    )
    return Span(named, read.start, read.stop, read.deliveries, read.origin)
