"""Moves and deletes messages for an administrator (U8), a portion at a time.

The note that messages are done at the source and their copies at the target stand in one frame: a crash
leaves each in one place. Between two portions everybody else gets their turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from heliograph.admin.administration import Outcome
from heliograph.admin.moving import MoveOrder
from heliograph.destinations.destination import Destination
from heliograph.destinations.effects import AnyEffect, Continue
from heliograph.destinations.moving import Gathering, copies_of, wants_another_turn
from heliograph.destinations.removals import Removal
from heliograph.journal.records import RecordKind
from heliograph.model.block import Block, Span, parse
from heliograph.model.errors import NO_ROOM, ClientFault, HeliographError, StorageFull
from heliograph.model.ids import IdIssuer
from heliograph.model.limits import MOVE_PORTION_MESSAGES

if TYPE_CHECKING:
    from heliograph.nodes.message_manager import MessageManager

# What a record takes besides its payload, generously.
_RECORD_BYTES = 32
_RANGE_BYTES = 16
Tell = Callable[[Outcome | HeliographError], None]


class Mover:
    """The moves of one message manager, at most one from each queue."""

    def __init__(self, manager: MessageManager, issuer: IdIssuer) -> None:
        self._manager = manager
        self._issuer = issuer
        self._moves: dict[int, _Move] = {}  # by the number of the source

    def begin(self, order: MoveOrder, tell: Tell) -> None:
        """Raises ClientFault. `tell` hears how it ended."""
        number = order.source.number
        if number in self._moves:
            raise ClientFault(
                f"messages of {order.source.address} are being moved or deleted: wait until that is over",
                code="destination-in-use",
            )
        gathering = Gathering(order.source, self._issuer.consumer(), order.selector)
        move = self._moves[number] = _Move(self._manager, order, gathering)

        def ended(outcome: Outcome | HeliographError) -> None:
            del self._moves[number]
            tell(outcome)

        move.ended = ended
        move.step()

    def page_loaded(self, destination: Destination) -> None:
        move = self._moves.get(destination.number)
        if move is not None:
            move.step()


class _Move:
    """One of them, from its beginning to its end."""

    def __init__(self, manager: MessageManager, order: MoveOrder, gathering: Gathering) -> None:
        self._manager = manager
        self._order = order
        self._gathering = gathering
        self._moved = 0
        self._is_over = False
        self.ended: Tell = lambda _: None

    def step(self) -> None:
        """Move a portion, and come back for the next."""
        if self._is_over:
            return
        try:
            self._order.check()
            more, again = self._portion()
        except HeliographError as error:
            self._end(_so_far(error, self._moved))
            return
        if not more or (self._order.limit and self._moved >= self._order.limit):
            self._end(None)
        elif again:
            self._manager.soon(self.step)
        # Otherwise a page is being read, and `page_loaded` goes on.

    def _portion(self) -> tuple[bool, bool]:
        """Whether there may be more, and whether that can be had at once."""
        manager, source = self._manager, self._order.source
        left = MOVE_PORTION_MESSAGES
        if self._order.limit:
            left = min(left, self._order.limit - self._moved)
        effects: list[AnyEffect] = []
        spans, more = self._gathering.take(left, effects)
        again = bool(spans) or wants_another_turn(effects)
        manager.run(source, [effect for effect in effects if type(effect) is not Continue])
        if spans:
            self._carry_out(spans)
        return more, again

    def _carry_out(self, spans: list[Span]) -> None:
        """Raises StorageFull, and has then moved nothing of this."""
        manager, source, target = self._manager, self._order.source, self._order.target
        blocks = [_copy(span, buffer) for span in spans for buffer in copies_of(span)] if target else []
        size = sum(block.size + _RECORD_BYTES for block in blocks) + len(spans) * _RANGE_BYTES + _RECORD_BYTES
        if not manager.journal.reserve(size):
            self._gathering.put_back(spans)
            raise StorageFull(NO_ROOM)
        released: list[AnyEffect] = []
        ranges = source.messages.removed(spans, released)
        if ranges:
            marks = [] if target is not None else [Removal.DELETED.mark]
            manager.note(RecordKind.DONE, source, source.messages.number, ranges + marks)
        if target is not None:
            self._adopt(target, blocks)
        source.measure(released)
        manager.run(source, released)
        self._moved += sum(span.stop - span.start for span in spans)

    def _adopt(self, target: Destination, blocks: list[Block]) -> None:
        manager, moment = self._manager, self._manager.microseconds()
        effects: list[AnyEffect] = []
        for block in blocks:
            if not target.adopt(block, effects, moment):
                manager.adopt(target, block)
        target.dispatch(effects, moment)
        target.measure(effects)
        manager.run(target, effects)

    def _end(self, error: HeliographError | None) -> None:
        self._is_over = True
        if not self._order.source.has_ended:
            self._gathering.end()
        if self._moved:
            event, fields = self._order.event(self._moved)
            self._manager.record(event, **fields)
        self.ended(error or Outcome({**self._order.names(), "messages": self._moved}))


def _copy(span: Span, buffer: bytes) -> Block:
    block = parse(buffer)
    block.persistent = span.block.persistent  # a server without a store overrules the sender
    return block


def _so_far(error: HeliographError, moved: int) -> HeliographError:
    if not moved:
        return error
    return type(error)(f"{error.sentence}; {moved} messages were through by then", code=error.code)
