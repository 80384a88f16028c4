"""The replicated log: which records belong to it, and where a member stands in it (docs/decisions/0010).

The index counts records that every message manager of a sub-cluster has; the chain is a running checksum over
them, by which two histories that only look alike are told apart.
"""

from __future__ import annotations

import struct
from typing import Final, Protocol

import msgspec
from crc32c import crc32c

from heliograph.cluster.history import NOTHING_MISSING, HistoryMap, brought_in
from heliograph.cluster.partition_state import Enrolment, UnrestrictedView
from heliograph.journal.records import RecordKind
from heliograph.model.block import CHECKSUM, HEADER_BYTES, Block
from heliograph.model.limits import REMEMBERED_VIEWS

_FACTS = struct.Struct("<BII I")  # kind, destination, list, bytes of the payload
# Lane, first sequence, bytes, checksum: a lane of which something was refused may use its sequences again.
_NAME = struct.Struct("<16sQI4s")

# These concern one journal alone.
LOCAL: Final[dict[int, None]] = dict.fromkeys(
    (
        RecordKind.SPILLED,
        RecordKind.MOVED,
        RecordKind.RELOCATED,
        RecordKind.VIEW,
        RecordKind.UNRESTRICTED,
        RecordKind.ENROLMENT,
        RecordKind.PLACE,
        RecordKind.HISTORY,
        RecordKind.BROUGHT,
    )
)


class ViewMark(msgspec.Struct, frozen=True, array_like=True):
    """A view in which a manager had the log of the primary, and how far that went when the view began."""

    number: int
    id: bytes
    index: int
    is_retracted: bool = False  # it did not have the log of this view after all
    level: int = 1  # of what may be said in it, and stand in the log from here on
    boot: bytes = b""  # names the run of the machine in which it was entered


class Reader(Protocol):
    """Who goes through the log too."""

    def add(self, kind: int, destination: int, list_number: int, payload: bytes | memoryview) -> None: ...


class LogPlace:
    """How far a log reaches, through what views it came there, and who belongs to its cluster.

    `reach` is how far it is of the unrestricted lineage: up to its end while the view in which it is written is in
    force, and otherwise up to where the last such view was left (docs/decisions/0014).
    """

    __slots__ = (
        "_is_in_force",
        "_left_at",
        "chain",
        "enrolment",
        "history",
        "identity",
        "index",
        "proposed",
        "reader",
        "unrestricted",
        "views",
    )

    def __init__(self, index: int = 0, chain: int = 0, reader: Reader | None = None) -> None:
        self.reader = reader
        self.index = index
        self.chain = chain
        self.views: list[ViewMark] = []
        self.identity = b""  # of the cluster: its log begins with it
        self.enrolment: Enrolment | None = None
        self.proposed: Enrolment | None = None
        self.unrestricted: UnrestrictedView | None = None  # the newest that this journal has, of itself
        self.history = NOTHING_MISSING  # where this journal is not simply the log
        self._is_in_force = False
        self._left_at = (0, 0)

    @property
    def lineage(self) -> int:
        """The number of the last view."""
        return self.views[-1].number if self.views else 0

    @property
    def level(self) -> int:
        """Who knows less than this cannot read all of the log. It only grows (`View.level`)."""
        return self.views[-1].level if self.views else 1

    @property
    def boot(self) -> bytes:
        """The run of the machine in which its end was written. In another run, what was not forced is missing."""
        return self.views[-1].boot if self.views else b""

    @property
    def reach(self) -> tuple[int, int]:
        return (self.index, self.chain) if self._is_in_force else self._left_at

    @property
    def state(self) -> tuple[int, int, list[bytes], bytes, bytes]:
        """As a snapshot keeps it."""
        standing = _Standing(
            self._is_in_force,
            self._left_at,
            self.enrolment,
            self.proposed,
            self.unrestricted,
            self.history,
        )
        return (
            self.index,
            self.chain,
            [_encode(mark) for mark in self.views],
            self.identity,
            _encode(standing),
        )

    def restore(self, index: int, chain: int, views: list[bytes], identity: bytes, standing: bytes) -> None:
        self.index, self.chain, self.identity = index, chain, identity
        self.views = [_decode_view(mark) for mark in views]
        if standing:
            (
                self._is_in_force,
                self._left_at,
                self.enrolment,
                self.proposed,
                self.unrestricted,
                self.history,
            ) = msgspec.structs.astuple(_decode_standing(standing))

    def enter(self, number: int, identity: bytes, level: int = 1, boot: bytes = b"") -> bytes:
        """A view begins here, and this log is the primary's. Returns the record of it."""
        mark = ViewMark(number, identity, self.index, level=level, boot=boot)
        self._entered(mark)
        return _encode(mark)

    def retract(self, identity: bytes) -> bytes:
        """This log is not that of the view, as was thought when it was entered: nobody may conclude from it where the
        two part. Returns the record of it."""
        mark = ViewMark(self.lineage, identity, self.index, is_retracted=True)
        self._entered(mark)
        return _encode(mark)

    def _entered(self, mark: ViewMark) -> None:
        if mark.is_retracted:
            self.views = [each for each in self.views if each.id != mark.id]
            return
        self.views.append(mark)
        if len(self.views) > 2 * REMEMBERED_VIEWS:
            del self.views[:REMEMBERED_VIEWS]

    def add(self, kind: int, destination: int, list_number: int, payload: bytes | memoryview) -> None:
        """One record more. A block has a checksum of its own in its header: more of it need not be looked at."""
        if kind in _OF_THE_CLUSTER:
            self._concerns_cluster(kind, payload)
        if kind in LOCAL:
            return
        self.index += 1
        if self.reader is not None:
            self.reader.add(kind, destination, list_number, payload)
        facts = _FACTS.pack(kind, destination, list_number, len(payload))
        self.chain = crc32c(payload[:HEADER_BYTES], crc32c(facts, self.chain))

    def _concerns_cluster(self, kind: int, payload: bytes | memoryview) -> None:
        if kind == RecordKind.VIEW:
            self._entered(_decode_view(payload))
        elif kind == RecordKind.IDENTITY:
            self.identity = bytes(payload)
        elif kind == RecordKind.UNRESTRICTED:
            self.unrestricted = decode_unrestricted(payload)
        elif kind == RecordKind.ENROLMENT:
            record = _decode_enrolled(payload)
            if record.is_settled:
                self.enrolment, self.proposed = record.enrolment, None
            else:
                self.proposed = record.enrolment
        elif kind == RecordKind.BROUGHT:
            self.history = self.history.with_brought(brought_in(payload))
        elif kind == RecordKind.ENTERED:
            self._left_at, self._is_in_force = self.reach, False
        elif kind == RecordKind.IN_FORCE:
            self._is_in_force = True


class Enrolled(msgspec.Struct, frozen=True, array_like=True):
    """Who belongs to the sub-cluster. Not settled: it is proposed, and until it is settled both hold."""

    enrolment: Enrolment
    is_settled: bool


class _Standing(msgspec.Struct, frozen=True, array_like=True):
    is_in_force: bool
    left_at: tuple[int, int]
    enrolment: Enrolment | None
    proposed: Enrolment | None
    unrestricted: UnrestrictedView | None
    history: HistoryMap = NOTHING_MISSING


_OF_THE_CLUSTER = dict.fromkeys(
    (
        RecordKind.VIEW,
        RecordKind.IDENTITY,
        RecordKind.UNRESTRICTED,
        RecordKind.ENROLMENT,
        RecordKind.BROUGHT,
        RecordKind.ENTERED,
        RecordKind.IN_FORCE,
    )
)
_encode = msgspec.msgpack.Encoder().encode
_decode_view = msgspec.msgpack.Decoder(ViewMark).decode
_decode_standing = msgspec.msgpack.Decoder(_Standing).decode
_decode_place = msgspec.msgpack.Decoder(int).decode
_decode_enrolled = msgspec.msgpack.Decoder(Enrolled).decode
decode_enrolment = msgspec.msgpack.Decoder(Enrolment).decode
decode_unrestricted = msgspec.msgpack.Decoder(UnrestrictedView).decode


def name_of(block: Block) -> bytes:
    """What everybody calls a block who heard it published. One that was put together since has its own name."""
    if not block.name:
        assert block.buffer is not None, "who names a block has its bytes"
        block.name = _NAME.pack(block.lane, block.first, block.size, block.buffer[CHECKSUM])
    return block.name


def encode_place(index: int) -> bytes:
    """The record PLACE."""
    return _encode(index)


def place_in(kind: int, payload: bytes | memoryview) -> int | None:
    """The index at which a record stands, if it says so."""
    if kind == RecordKind.PLACE:
        return _decode_place(payload)
    return _decode_view(payload).index if kind == RecordKind.VIEW else None


def with_history(standing: bytes, history: HistoryMap) -> bytes:
    """How the log stands that another manager has, as the journal of this one is to keep it."""
    return _encode(msgspec.structs.replace(_decode_standing(standing), history=history))
