"""Consumers that are away, and what becomes of what they have when their client is back and claims it (M8).

Of each outstanding tag the client says whether it holds the message, or has settled it; what it says nothing about
goes back: without a mark if its application cannot have seen it, otherwise marked. So a client that forgets
something costs a second delivery and never a message.
"""

from __future__ import annotations

from collections import deque

from heliograph.bus.commands import ConsumerAttached
from heliograph.destinations.competing import Consumer
from heliograph.destinations.effects import AnyEffect
from heliograph.destinations.outstanding import subtracted
from heliograph.destinations.settling import MAX_TAG, UNKNOWN, Ranges, Settling, cut_at
from heliograph.model.block import Span
from heliograph.model.claim import FIRST_OF_A_PART, Claim, part_of
from heliograph.model.errors import ClientFault
from heliograph.model.ids import ConsumerId


class Claiming(Settling):
    """What a list does with consumers that come back."""

    _first_tag: int
    _turn: deque[Consumer]

    def step_away(self, identity: ConsumerId) -> None:
        """A consumer's session lost its connection: it keeps what it has and is given nothing."""
        consumer = self.consumers.get(identity)
        if consumer is not None:
            consumer.away = True
            self.leave_turn(consumer)

    def leave_turn(self, consumer: Consumer) -> None:
        if consumer.queued:
            self._turn.remove(consumer)
            consumer.queued = False

    @property
    def is_attended(self) -> bool:
        """Whether a consumer is there that is not away."""
        return any(not consumer.away for consumer in self.consumers.values())

    def begin_tags(self, first: int) -> None:
        """What consumers are given from here on has these tags."""
        self._first_tag = first
        for consumer in self.consumers.values():
            consumer.begin_tags(first)

    def claim(
        self, event: ConsumerAttached, claim: Claim, effects: list[AnyEffect], now: int
    ) -> Ranges | None:
        """A consumer is back. Returns what its client thinks to hold and does not; None if it means one that was
        forgotten, and has to start over with this one.

        Raises ClientFault, before anything is changed, for a claim that cannot be true.
        """
        consumer = self.consumers[event.consumer]
        if not consumer.away and consumer.session == event.session and consumer.inherited:
            # Asked again, of another server than the one that carried it out.
            if consumer.is_unheard_of(claim):
                return None
            return subtracted(claim.held, consumer.outstanding.among(claim.held))
        if not consumer.away or consumer.session != event.session:
            raise ClientFault(
                "the consumer is not waiting to be claimed by this session", code="consumer-exists"
            )
        _check(claim, consumer.next_tag)
        consumer.away = False
        if consumer.is_unheard_of(claim):
            self._return_unseen(self._take_from(consumer, consumer.outstanding.but([])), effects)
            consumer.credit = event.credit
            self._queue(consumer)
            return None
        done = self._take_from(consumer, consumer.outstanding.among(claim.settled))
        self.finish(done, effects)
        self._return_unclaimed(consumer, claim, effects, now)
        consumer.credit = event.credit - consumer.outstanding.messages
        self._queue(consumer)
        return subtracted(claim.held, consumer.outstanding.among(claim.held))

    def never_given(self, identity: ConsumerId, ranges: Ranges) -> Ranges:
        """Which of these tags another part of a cut gave: what became of their messages is not known here."""
        return subtracted(ranges, self.consumers[identity].all_given)

    def _return_unclaimed(self, consumer: Consumer, claim: Claim, effects: list[AnyEffect], now: int) -> None:
        saw: list[Span] = []
        never_saw: list[Span] = []
        for first, last in consumer.outstanding.but(claim.held):
            for low, high in cut_at([(first, last)], seen_of(claim, first)):
                is_seen = high <= seen_of(claim, first)
                (saw if is_seen else never_saw).extend(self._take_from(consumer, [(low, high)]))
        _, unseen = self._recall_behind(consumer, saw, max([_seen(claim), *claim.seen_elsewhere]))
        never_saw += unseen
        self._return_unseen(never_saw, effects, release=False)
        self._return(saw, effects, now, also=never_saw)

    def _take_from(self, consumer: Consumer, ranges: Ranges) -> list[Span]:
        taken = [span for first, last in ranges for span in consumer.outstanding.take(first, last)]
        consumer.gave_up(taken)
        return taken


def _seen(claim: Claim) -> int:
    return MAX_TAG if claim.seen == UNKNOWN else claim.seen


def seen_of(claim: Claim, tag: int) -> int:
    """The last tag that its client saw of those that the part of this one gave."""
    seen, part = _seen(claim), part_of(tag)
    if not claim.seen_elsewhere or part_of(seen) == part or seen == MAX_TAG:
        return seen
    return next((last for last in claim.seen_elsewhere if part_of(last) == part), 0)


def _check(claim: Claim, next_tag: int) -> None:
    for ranges in (claim.held, claim.settled):
        before = 0
        for first, last in ranges:
            if not before < first <= last:
                raise ClientFault("ranges of tags are given in order, each tag once", code="claim-invalid")
            if last >= next_tag and first < FIRST_OF_A_PART:  # others, another part of a cut may have given
                raise ClientFault(
                    f"delivery tag {last} was never given to this consumer", code="settlement-unknown"
                )
            before = last
    if subtracted(claim.held, claim.settled) != claim.held:
        raise ClientFault("what is settled is not held any more", code="claim-invalid")
