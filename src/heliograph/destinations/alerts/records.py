"""What is written down of a channel: facts that can be applied twice. Structs are arrays on disk: fields are appended
and never reordered. Each names its channel first.

What is not persistent has no records.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from heliograph.journal.records import RecordKind
from heliograph.model.alert import AlertHeader

CANCELLED: Final = "cancelled"
EXPIRED: Final = "expired"
WITH_ITS_ALERT: Final = "ended with its alert"


class AlertRecord(msgspec.Struct, array_like=True):
    """An alert that was published."""

    channel: int
    index: int
    id: bytes
    lane: bytes
    sequence: int
    header: AlertHeader
    user: str
    arrived: int
    body: bytes


class HandedRecord(msgspec.Struct, array_like=True):
    """Arrivals, and who was handed each."""

    channel: int
    groups: list[tuple[int, list[int]]]


class TakenRecord(msgspec.Struct, array_like=True):
    """The application of a subscriber has some of what it was handed, and will not get some of it."""

    channel: int
    subscriber: int
    at: int
    taken: list[int]
    dropped: list[int]


class EndedRecord(msgspec.Struct, array_like=True):
    """Alerts that are not live any more."""

    channel: int
    indexes: list[int]
    why: str
    who: str
    at: int


class SubscriberRecord(msgspec.Struct, array_like=True):
    """A subscriber as it is from here on. `gone`: it is over."""

    channel: int
    number: int
    user: str
    name: str
    session: bytes
    consumer: int
    clearance: int
    wishes: list[tuple[int, str, str]]
    gone: bool = False


class AlertState(msgspec.Struct, array_like=True):
    """A live alert in a snapshot, or one that ended and that somebody may still have."""

    record: AlertRecord
    taken: list[tuple[int, int]]
    handed: list[int]
    acknowledged: list[tuple[int, str, bytes, int]]
    receipts: list[tuple[int, int]]
    ended: str = ""
    ended_by: str = ""
    ended_at: int = 0


class SubscriberState(msgspec.Struct, array_like=True):
    """A subscriber in a snapshot, and for each level up to which arrival it is through."""

    record: SubscriberRecord
    marks: list[int]
    unsure: int = 0  # of arrivals up to here nobody knows which it was handed


class TrailEntry(msgspec.Struct, array_like=True):
    """One thing that happened to an alert."""

    at: int
    what: str
    who: str = ""
    id: bytes = b""


class Trail(msgspec.Struct, array_like=True):
    """The life of an alert that is over."""

    id: bytes
    header: AlertHeader
    rank: tuple[int, int]
    entries: list[TrailEntry]
    lane: bytes = b""
    sequence: int = 0


class ChannelState(msgspec.Struct, array_like=True):
    """A whole channel in a snapshot."""

    next_index: int
    next_subscriber: int
    alerts: list[AlertState]
    subscribers: list[SubscriberState]
    lanes: list[tuple[bytes, list[tuple[int, int]]]]
    trails: list[Trail]
    labels: list[tuple[int, str]]


Recorded = AlertRecord | HandedRecord | TakenRecord | EndedRecord | SubscriberRecord

KINDS: Final[dict[type, RecordKind]] = {
    AlertRecord: RecordKind.ALERT,
    HandedRecord: RecordKind.ALERT_HANDED,
    TakenRecord: RecordKind.ALERT_TAKEN,
    EndedRecord: RecordKind.ALERT_ENDED,
    SubscriberRecord: RecordKind.ALERT_SUBSCRIBER,
}
ALERT_KINDS: Final = tuple(KINDS.values())
encode = msgspec.msgpack.Encoder().encode
_DECODERS: Final[dict[RecordKind, msgspec.msgpack.Decoder[Any]]] = {
    record: msgspec.msgpack.Decoder(kind) for kind, record in KINDS.items()
}
decode_channel = msgspec.msgpack.Decoder(ChannelState).decode


class _Channel(msgspec.Struct, array_like=True):
    """What every record begins with."""

    channel: int


_decode_any = msgspec.msgpack.Decoder(_Channel).decode


def channel_of(payload: bytes | memoryview) -> int:
    """The number of the channel that a record is about."""
    return _decode_any(payload).channel


def decode(kind: int, payload: bytes | memoryview) -> Recorded:
    read: Recorded = _DECODERS[RecordKind(kind)].decode(payload)
    return read
