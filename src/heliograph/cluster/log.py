"""The replicated log: which records belong to it, and where a member stands in it (docs/decisions/0010).

The index counts records that every message manager of a sub-cluster has; the chain is a running checksum over
them, by which two histories that only look alike are told apart.
"""

from __future__ import annotations

import struct
from typing import Final

from crc32c import crc32c

from heliograph.journal.records import RecordKind
from heliograph.model.block import HEADER_BYTES, Block

_FACTS = struct.Struct("<BII I")  # kind, destination, list, bytes of the payload
_NAME = struct.Struct("<16sQII")  # lane, first sequence, messages, bytes

# These concern one journal alone.
LOCAL: Final[dict[int, None]] = dict.fromkeys(
    (RecordKind.SPILLED, RecordKind.MOVED, RecordKind.RELOCATED, RecordKind.VIEW)
)


class LogPlace:
    """How far a log reaches."""

    __slots__ = ("chain", "index")

    def __init__(self, index: int = 0, chain: int = 0) -> None:
        self.index = index
        self.chain = chain

    def add(self, kind: int, destination: int, list_number: int, payload: bytes | memoryview) -> None:
        """One record more. A block has a checksum of its own in its header: more of it need not be looked at."""
        if kind in LOCAL:
            return
        self.index += 1
        facts = _FACTS.pack(kind, destination, list_number, len(payload))
        self.chain = crc32c(payload[:HEADER_BYTES], crc32c(facts, self.chain))


def name_of(block: Block) -> bytes:
    """What everybody calls a block who heard it published. One that was put together since has its own name."""
    return block.name or _NAME.pack(block.lane, block.first, block.count, block.size)
