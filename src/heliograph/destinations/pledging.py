"""Messages that a prepared transaction has consumed (M10): promised to be done, and locked until that is decided.

They are taken from the consumer that had them and held by the list, so that neither leases nor closed sessions nor
purges reach them. For units of order the transaction is who has them: nothing of those units goes to anybody else.
"""

from __future__ import annotations

from collections.abc import Iterator

from heliograph.destinations.claiming import Claiming
from heliograph.destinations.competing import Consumer
from heliograph.destinations.effects import AnyEffect
from heliograph.destinations.settling import Ranges, extend
from heliograph.destinations.waiting import number_of
from heliograph.model.block import Span
from heliograph.model.ids import ConsumerId, SessionId

Pledge = tuple[SessionId, int]
"""A session, and the number of its transaction."""


class Pledging(Claiming):
    """What a list does with messages of which two outcomes are possible."""

    pledged: dict[Pledge, Consumer]
    has_units: bool

    def pledge(self, pledge: Pledge, identity: ConsumerId, ranges: Ranges) -> Ranges:
        """Take handed-out messages, which `require_outstanding` has seen, from a consumer for a transaction. Returns
        the numbers of those that outlive this server."""
        numbers: Ranges = []
        for span in self.take_outstanding(identity, ranges):
            self._hold_for(pledge, span)
            if span.block.persistent and self.durable:
                extend(numbers, number_of(span), span.stop - span.start)
        return numbers

    def _hold_for(self, pledge: Pledge, span: Span) -> None:
        holder = self.pledged.get(pledge)
        if holder is None:
            holder = self.pledged[pledge] = Consumer(ConsumerId(b""), pledge[0], 0, prompt=False)
            holder.retired = True  # nobody gives it anything more
        holder.hold(span)
        keys = self.keys_of(span)
        if keys is not None:
            self.units.passed_on(span, keys, holder)

    def redeem(self, pledge: Pledge, effects: list[AnyEffect]) -> Ranges:
        """The transaction is committed: they are done. Returns the numbers to be noted with the same stroke."""
        holder = self.pledged.pop(pledge, None)
        return self.finish(holder.outstanding.take_all(), effects, note=False) if holder is not None else []

    def give_back(self, pledge: Pledge, effects: list[AnyEffect], now: int) -> None:
        """The transaction is not to be: they return to their places, marked. None of them is to blame for it."""
        holder = self.pledged.pop(pledge, None)
        if holder is not None:
            self._return(holder.outstanding.take_all(), effects, now, suspects=0)

    def restore_pledged(self, pledge: Pledge, span: Span) -> None:
        """Recovery: a transaction of another run, or of another server, has these."""
        self.in_flight += span.stop - span.start
        keys = self.keys_of(span)
        if keys is not None:
            self.meets_units()
            self.units.restore(span, keys, None)
        self._hold_for(pledge, span)

    def meets_units(self) -> None:
        raise NotImplementedError

    def holders(self) -> Iterator[Consumer]:
        """Everybody who has messages of this list. Transactions come last: where a consumer has something of the same
        unit, the unit waits for the transaction."""
        yield from self.consumers.values()
        yield from self.pledged.values()
