"""What happens to a destination besides the commands on the bus: answers of its own journal, and time."""

from __future__ import annotations

import msgspec

from heliograph.destinations.pages import Page
from heliograph.model.block import Block, Span
from heliograph.model.ids import ConsumerId, SessionId


class Event(msgspec.Struct, gc=False):
    """Something that happened."""


class BlocksStored(Event):
    """These blocks, in the order in which they were persisted, are on disk: whoever sent them may know."""

    blocks: list[Block]


class BlocksReady(Event):
    """The confirmations of these blocks are on their way: now they can be handed out. Follows `BlocksStored`."""

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
    page: Page
    buffers: list[bytes]


class ConsumerAway(Event):
    """The session of a consumer lost its connection, and may come back."""

    consumer: ConsumerId


class ConsumersGone(Event):
    """Consumers left together, without a word on what their applications saw. What they had returns as one, before
    anybody else gets any of it."""

    consumers: list[ConsumerId]


class DispatchesDropped(Event):
    """What consumers have under these tags, first and last, never got to them (PROTOCOL 4). It returns as one, as if
    it had not been handed out."""

    of_consumers: list[tuple[ConsumerId, int, int]]


class TurnCame(Event):
    """The next turn of a destination that had more to do."""


class TimeCame(Event):
    """What was scheduled up to now is due."""


class Swept(Event):
    """A moment to look for messages that are past their time."""


class BuryFailed(Event):
    """There was no room for these among the dead."""

    list_number: int
    spans: list[Span]
    reason: str


class AlertStored(Event):
    """The record of an alert is on disk."""

    index: int


class AlertRefused(Event):
    """The record of the alert that was to be stored last found no room."""

    index: int
    code: str
    sentence: str


class AttendantsLost(Event):
    """A session lost its connection. Until a moment (microseconds) its client may hand over what it has of alerts."""

    session: SessionId
    until: int
