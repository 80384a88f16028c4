"""Moves messages to the dead message queue: the note that they are done there and their copies here stand in
one frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heliograph.bus.commands import Published
from heliograph.destinations.dead_letters import dress, portions
from heliograph.destinations.destination import Destination
from heliograph.destinations.effects import AnyEffect, Bury
from heliograph.destinations.events import BuryFailed
from heliograph.journal.records import RecordKind
from heliograph.model.block import parse
from heliograph.model.destination import DEAD_MESSAGES
from heliograph.model.ids import IdIssuer, lane_of

if TYPE_CHECKING:
    from heliograph.nodes.message_manager import MessageManager

# What a record takes besides its payload, generously.
_RECORD_BYTES = 32
_RANGE_BYTES = 16


class Gravedigger:
    """Buries for one message manager, on a lane of its own."""

    def __init__(self, manager: MessageManager, issuer: IdIssuer) -> None:
        self._manager = manager
        self._lane = lane_of(issuer.session(), 1)
        self._next = 1

    def bury(self, destination: Destination, order: Bury) -> None:
        manager = self._manager
        moment = manager.microseconds()
        effects: list[AnyEffect] = []
        grave = manager.catalogue.dead_messages(effects)
        manager.run(None, effects)
        copies = []
        first = self._next
        for span, error in zip(order.spans, order.errors, strict=True):
            for portion in portions(span):
                copies.append(
                    dress(
                        portion,
                        lane=self._lane,
                        first=first,
                        address=destination.address,
                        reason=order.reason,
                        now=moment,
                        error=error,
                    )
                )
                first += portion.stop - portion.start
        size = (
            sum(len(copy) + _RECORD_BYTES for copy in copies)
            + len(order.spans) * _RANGE_BYTES
            + _RECORD_BYTES
        )
        messages = destination.list_by_number(order.list_number)
        assert messages is not None
        if not manager.journal.reserve(size):
            failed = BuryFailed(order.list_number, order.spans, order.reason)
            manager.run(destination, destination.handle(failed, moment))
            return
        self._next = first
        released: list[AnyEffect] = []
        ranges = messages.buried(order.spans, released)
        if ranges:
            manager.note(RecordKind.DONE, destination, order.list_number, ranges)
        for copy in copies:
            published = Published(DEAD_MESSAGES, parse(copy))
            manager.run(grave, grave.handle(published, moment))
        manager.record(
            "message-dead",
            destination=destination.address,
            reason=order.reason,
            messages=sum(span.stop - span.start for span in order.spans),
        )
        manager.run(destination, released)
