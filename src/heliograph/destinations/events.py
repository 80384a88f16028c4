"""What happens to a destination besides the commands on the bus: answers of its own journal, and time."""

from __future__ import annotations

import msgspec

from heliograph.model.block import Block


class Event(msgspec.Struct, gc=False):
    """Something that happened."""


class BlocksStored(Event):
    """These blocks, in the order in which they were persisted, are on disk."""

    blocks: list[Block]


class BlockRefused(Event):
    """The block that was to be persisted last found no room."""

    block: Block
    code: str
    sentence: str


class PageLoaded(Event):
    """The journal read a page; `buffers` match its entries one to one."""

    list_number: int
    priority: int
    buffers: list[bytes]


class TurnCame(Event):
    """The next turn of a destination that had more to do."""
