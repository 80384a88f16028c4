"""The replicated log: which records belong to it, and where a member stands in it (docs/decisions/0010).

The index counts records that every message manager of a sub-cluster has; the chain is a running checksum over
them, by which two histories that only look alike are told apart.
"""

from __future__ import annotations

import struct
from typing import Final, Protocol

import msgspec
from crc32c import crc32c

from heliograph.journal.records import RecordKind
from heliograph.model.block import CHECKSUM, HEADER_BYTES, Block
from heliograph.model.limits import REMEMBERED_VIEWS

_FACTS = struct.Struct("<BII I")  # kind, destination, list, bytes of the payload
# Lane, first sequence, bytes, checksum: a lane of which something was refused may use its sequences again.
_NAME = struct.Struct("<16sQI4s")

# These concern one journal alone.
LOCAL: Final[dict[int, None]] = dict.fromkeys(
    (RecordKind.SPILLED, RecordKind.MOVED, RecordKind.RELOCATED, RecordKind.VIEW)
)


class ViewMark(msgspec.Struct, frozen=True, array_like=True):
    """A view in which a manager had the log of the primary, and how far that went when the view began."""

    number: int
    id: bytes
    index: int
    holders: tuple[bytes, ...] = ()  # the stores that had it
    names: tuple[str, ...] = ()  # and the nodes whose they are
    disowned: tuple[bytes, ...] = ()  # stores that an operator gave up, and that have not caught up since
    is_retracted: bool = False  # it did not have the log of this view after all


class Reader(Protocol):
    """Who goes through the log too."""

    def add(self, kind: int, destination: int, list_number: int, payload: bytes | memoryview) -> None: ...


class LogPlace:
    """How far a log reaches, and through what views it came there."""

    __slots__ = ("chain", "identity", "index", "reader", "views")

    def __init__(self, index: int = 0, chain: int = 0, reader: Reader | None = None) -> None:
        self.reader = reader
        self.index = index
        self.chain = chain
        self.views: list[ViewMark] = []
        self.identity = b""  # of the cluster: its log begins with it

    @property
    def lineage(self) -> int:
        """The number of the last view."""
        return self.views[-1].number if self.views else 0

    @property
    def state(self) -> tuple[int, int, list[bytes], bytes]:
        """As a snapshot keeps it."""
        return self.index, self.chain, [_encode(mark) for mark in self.views], self.identity

    def restore(self, index: int, chain: int, views: list[bytes], identity: bytes) -> None:
        self.index, self.chain, self.identity = index, chain, identity
        self.views = [_decode_view(mark) for mark in views]

    @property
    def holders(self) -> tuple[bytes, ...]:
        return self.views[-1].holders if self.views else ()

    def ever_held(self) -> tuple[bytes, ...]:
        """Stores that had the log in any view that is remembered, but for those that were given up since."""
        found: dict[bytes, None] = {}
        for mark in self.views:
            found.update(dict.fromkeys(mark.holders))
            for store in mark.disowned:
                found.pop(store, None)
        return tuple(found)

    @property
    def holder_names(self) -> tuple[str, ...]:
        """Of the nodes whose the holders are; of a log that does not say, their numbers."""
        names = self.views[-1].names if self.views else ()
        return (
            names
            if len(names) == len(self.holders)
            else tuple(each.decode(errors="replace") for each in self.holders)
        )

    def enter(self, number: int, identity: bytes, holders: dict[bytes, str]) -> bytes:
        """A view begins here, and these have the log in it: stores, and the nodes whose they are. Returns the record
        of it."""
        disowned = tuple(store for store in self.disowned if store not in holders)
        mark = ViewMark(number, identity, self.index, tuple(holders), tuple(holders.values()), disowned)
        self._entered(mark)
        return _encode(mark)

    @property
    def disowned(self) -> tuple[bytes, ...]:
        return self.views[-1].disowned if self.views else ()

    def without(self, name: str) -> bytes | None:
        """One of the holders is gone for good: nobody waits for it, and if it comes back, its log does not count. The
        record of that; None if it was none."""
        left = {
            store: node for store, node in zip(self.holders, self.holder_names, strict=True) if node != name
        }
        if len(left) == len(self.holders):
            return None
        gone = tuple(store for store in self.holders if store not in left)
        last = self.views[-1]
        mark = ViewMark(
            last.number, last.id, self.index, tuple(left), tuple(left.values()), (*self.disowned, *gone)
        )
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
        if kind == RecordKind.VIEW:
            self._entered(_decode_view(payload))
        elif kind == RecordKind.IDENTITY:
            self.identity = bytes(payload)
        if kind in LOCAL:
            return
        self.index += 1
        if self.reader is not None:
            self.reader.add(kind, destination, list_number, payload)
        facts = _FACTS.pack(kind, destination, list_number, len(payload))
        self.chain = crc32c(payload[:HEADER_BYTES], crc32c(facts, self.chain))


_encode = msgspec.msgpack.Encoder().encode
_decode_view = msgspec.msgpack.Decoder(ViewMark).decode


def name_of(block: Block) -> bytes:
    """What everybody calls a block who heard it published. One that was put together since has its own name."""
    if not block.name:
        assert block.buffer is not None, "who names a block has its bytes"
        block.name = _NAME.pack(block.lane, block.first, block.size, block.buffer[CHECKSUM])
    return block.name
