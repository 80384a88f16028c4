"""What a client manager is told to hand to its clients, until it may and can.

A dispatch waits until most client managers of the view have seen it (P5, PROTOCOL 4) and its bytes are here; what the
primary decided later about the same consumer waits behind it. When the view ends, what still waits for the others
either stands, or is dropped here and goes back at the message managers, who know the same
(docs/decisions/0014).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec

from heliograph.bus.commands import Command, Dispatched, Parcelled
from heliograph.cluster.bodies import Bodies
from heliograph.cluster.handed_out import parts_of
from heliograph.cluster.log import name_of
from heliograph.model.block import Block, Span
from heliograph.model.ids import ConsumerId
from heliograph.model.limits import BODY_CACHE_BYTES

AT_ONCE = 0
"""The place of what waits for nobody else."""

_Waiting = deque[tuple[int, Command]]


class HandingOut:
    """All consumers of this process in one sub-cluster."""

    def __init__(self, tell: Callable[[Command], None], want: Callable[[ConsumerId, int], None]) -> None:
        """`tell`: its time has come. `want`: the bytes of what a consumer has under this tag are not here."""
        self._tell = tell
        self._want = want
        self._bodies: Bodies[Block] = Bodies(BODY_CACHE_BYTES)
        self._waiting: dict[ConsumerId, _Waiting] = {}
        self._unseen: deque[tuple[int, ConsumerId]] = deque()  # whose dispatches wait for others, by place
        self._seen = AT_ONCE  # the place up to which most have seen everything
        self._wanted: dict[ConsumerId, int] = {}  # who lacks bytes, and under which tag it has asked for some

    # ---- bodies

    def keep(self, name: bytes, block: Block) -> None:
        # A copy: a message manager in the same process lets go of the bytes when it likes.
        self._bodies.add(name, msgspec.structs.replace(block), block.size)

    def supplied(self) -> None:
        """Bytes came that somebody lacked. Whatever it was, all who wait for some look again."""
        for consumer in list(self._wanted):
            self._look_again(consumer)
            self._go_on(consumer)

    def ask_again(self) -> None:
        """Another leads, and may not have heard what was wanted."""
        wanted, self._wanted = self._wanted, {}
        for consumer in wanted:
            self._look_again(consumer)

    def _look_again(self, consumer: ConsumerId) -> None:
        """Ask for the first bytes that are not here, once."""
        for _, decision in self._waiting.get(consumer, ()):
            tag = self._lacks(decision)
            if tag is not None:
                if self._wanted.get(consumer) != tag:
                    self._wanted[consumer] = tag
                    self._want(consumer, tag)
                return
        self._wanted.pop(consumer, None)

    def _lacks(self, decision: Command) -> int | None:
        """Put the bytes to what names them. The first tag whose bytes are not here, None if all are."""
        if isinstance(decision, Dispatched):
            whole = self._whole(decision.span)
            if whole is None:
                return decision.tag
            decision.span = whole
        elif isinstance(decision, Parcelled):
            tag, spans = decision.tag, []
            for span in decision.spans:
                whole = self._whole(span)
                if whole is None:
                    return tag
                spans.append(whole)
                tag += span.stop - span.start
            decision.spans = spans
        return None

    def _whole(self, span: Span) -> Span | None:
        named = span.block
        if named.buffer is not None:
            return span
        block = self._bodies.get(name_of(named))
        if block is None:
            return None
        block.number = named.number
        return Span(block, span.start, span.stop, span.deliveries, span.origin)

    # ---- in order

    def hand_out(self, decision: Dispatched | Parcelled, place: int) -> None:
        """At this place of the view; or, if it need not wait for others, `AT_ONCE`."""
        consumer = decision.consumer
        lacks = self._lacks(decision)
        waiting = self._waiting.get(consumer)
        if waiting is None:
            if place <= self._seen and lacks is None:
                self._tell(decision)
                return
            waiting = self._waiting[consumer] = deque()
        waiting.append((place, decision))
        if place > self._seen:
            self._unseen.append((place, consumer))
        if lacks is not None and consumer not in self._wanted:
            self._wanted[consumer] = lacks
            self._want(consumer, lacks)

    def follows(self, consumer: ConsumerId, command: Command) -> bool:
        """Something else about a consumer. Whether it waits behind what was handed out before."""
        waiting = self._waiting.get(consumer)
        if waiting is not None:
            waiting.append((AT_ONCE, command))
        return waiting is not None

    def drop(self, consumer: ConsumerId) -> None:
        """It is gone, or what it was given and has not got yet has gone back."""
        self._waiting.pop(consumer, None)
        self._wanted.pop(consumer, None)

    def _go_on(self, consumer: ConsumerId) -> None:
        waiting = self._waiting.get(consumer)
        while waiting and self._waiting.get(consumer) is waiting:
            place, decision = waiting[0]
            if place > self._seen or self._lacks(decision) is not None:
                return
            waiting.popleft()
            if not waiting:
                self.drop(consumer)
            self._tell(decision)

    # ---- the others

    @property
    def unseen(self) -> int:
        """How many messages wait for other client managers."""
        waiting = [each for of_consumer in self._waiting.values() for each in of_consumer]
        return sum(
            handed.last - handed.first + 1
            for place, decision in waiting
            if place > self._seen
            for handed in parts_of(decision, place)
        )

    @property
    def seen_place(self) -> int:
        """Most client managers of the view, this one included, have delivered everything up to there."""
        return self._seen

    def seen(self, place: int) -> None:
        """Most client managers of the view, this one included, have delivered everything up to there."""
        self._seen = max(place, self._seen)
        unseen = self._unseen
        while unseen and unseen[0][0] <= self._seen:
            self._go_on(unseen.popleft()[1])

    def view_ended(self) -> None:
        """Places begin anew. What most have not seen in the view goes back."""
        for consumer, waiting in list(self._waiting.items()):
            kept = [decision for place, decision in waiting if place <= self._seen]
            if kept:
                self._waiting[consumer] = deque((AT_ONCE, decision) for decision in kept)
            else:
                self.drop(consumer)
        self._unseen.clear()
        self._seen = AT_ONCE
        for consumer in list(self._waiting):
            self._look_again(consumer)
            self._go_on(consumer)

    def clear(self) -> None:
        """Nothing that was told counts."""
        self._bodies.clear()
        self._waiting.clear()
        self._wanted.clear()
        self._unseen.clear()
        self._seen = AT_ONCE
