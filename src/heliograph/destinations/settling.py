"""What becomes of messages that were handed out: done, back to their place, back later, or to the dead.

The part of a list that settles. What is done is let go (`finish`); what came back takes its old place, after
a delay where the policy says so (J10), and is buried when it came back too often (M11). Messages of a unit
that come back are held at the head of their unit, and whatever later of it their consumer has comes back
with them (U2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from heliograph.bus.commands import BY_POLICY, DEAD, UNSEEN, Answered, Recalled
from heliograph.destinations.competing import Consumer
from heliograph.destinations.effects import AnyEffect, Bury, Continue, Multicast, Note, Wake
from heliograph.destinations.pages import records_of
from heliograph.destinations.removals import Removal
from heliograph.destinations.schedule import Schedule
from heliograph.destinations.unit_of_order import Units, segments
from heliograph.destinations.unit_rules import UnitRule
from heliograph.destinations.waiting import Level, number_of
from heliograph.journal.records import RecordKind
from heliograph.model.block import UNITS, Span
from heliograph.model.errors import ClientFault
from heliograph.model.ids import ConsumerId
from heliograph.model.policy import Policy
from heliograph.model.units import units_of

UNKNOWN = -1  # which tags an application saw
MAX_TAG = 2**63
SECOND = 1_000_000
Ranges = list[tuple[int, int]]
# A message that could not be buried because the disk is full is tried again after so long.
_BURY_AGAIN = 5 * SECOND
TOO_OFTEN = "redelivery-limit"
REJECTED = "rejected"


class Settling:
    """What a list does with messages that its consumers had."""

    number: int
    policy: Policy
    durable: bool
    units: Units
    schedule: Schedule
    consumers: dict[ConsumerId, Consumer]
    in_flight: int
    settled: int
    _levels: dict[int, Level]
    _last_error: dict[int, str]
    _rule: UnitRule | None
    _place: Callable[[Span], int]

    def _queue(self, consumer: Consumer) -> None:
        raise NotImplementedError

    def keys_of(self, span: Span) -> Sequence[int] | None:
        """The unit of each message, None where no message can have one."""
        if self._rule is not None:
            return self._rule.units(span)
        return units_of(span) if span.block.flags & UNITS else None

    def _waits_again(self, span: Span) -> None:
        """Messages came back, whatever way they take to their place."""

    # ---- what consumers say

    def settle(
        self,
        identity: ConsumerId,
        ranges: Ranges,
        effects: list[AnyEffect],
        now: int,
        *,
        returned: bool,
        replenish: bool,
        request: int,
        error: str = "",
        seen: int = UNKNOWN,
        again: bool = False,
        fate: int = BY_POLICY,
    ) -> None:
        """Raises ClientFault for tags that are not outstanding; what came before them in the command
        holds. `again`: what is not outstanding any more was settled when this was asked the first time."""
        consumer = self.consumers.get(identity)
        if consumer is None:
            return  # it left while this was under way; its messages have returned already
        spans: list[Span] = []
        is_refused = False
        if again or (consumer.inherited and ranges and ranges[0][0] <= consumer.inherited):
            ranges = self._still_there(consumer, ranges, again=again, replenish=replenish)
        try:
            for first, last in ranges:
                spans += consumer.outstanding.take(first, last)
        except ClientFault:
            is_refused = request != 0
            request = 0  # whoever catches this answers
            raise
        finally:
            consumer.gave_up(spans)
            if replenish:
                consumer.credit += sum(span.stop - span.start for span in spans)
            if returned and fate == UNSEEN:
                tags, behind = self._recall_behind(consumer, spans, 0)
                effects.append(Multicast(Recalled(consumer.identity, tags)))
                self._return_unseen([*spans, *behind], effects)
                self._note(RecordKind.UNSEEN, [], request, effects)
            elif returned:
                if not is_refused:
                    self._recall(consumer, spans, seen, effects)
                self._return(spans, effects, now, request=request, error=error, is_dead=fate == DEAD)
            else:
                self.finish(spans, effects, request=request)
            self._queue(consumer)

    def _still_there(self, consumer: Consumer, ranges: Ranges, *, again: bool, replenish: bool) -> Ranges:
        """What is not outstanding any more was settled when this was asked the first time, or was not persistent and
        ended with the server that gave it."""
        limit = consumer.next_tag - 1 if again else consumer.inherited
        known = consumer.outstanding.among([(first, min(last, limit)) for first, last in ranges])
        if replenish and not again:
            asked = sum(min(last, limit) - first + 1 for first, last in ranges if first <= limit)
            consumer.credit += asked - sum(last - first + 1 for first, last in known)
        return known + [(max(first, limit + 1), last) for first, last in ranges if last > limit]

    def take_outstanding(self, identity: ConsumerId, ranges: Ranges) -> list[Span]:
        """Take handed-out messages, which `require_outstanding` has seen, away from a consumer: they are
        decided."""
        consumer = self.consumers[identity]
        if consumer.inherited:
            ranges = self._still_there(consumer, ranges, again=False, replenish=True)
        spans = [span for first, last in ranges for span in consumer.outstanding.take(first, last)]
        consumer.gave_up(spans)
        consumer.credit += sum(span.stop - span.start for span in spans)
        self._queue(consumer)
        return spans

    def require_outstanding(self, identity: ConsumerId, ranges: Ranges) -> None:
        """Raises ClientFault unless the consumer has all of these."""
        consumer = self.consumers.get(identity)
        if consumer is None:
            raise ClientFault("the consumer is gone, and what it had went back", code="consumer-unknown")
        if consumer.inherited:
            ranges = self._still_there(consumer, ranges, again=False, replenish=False)
        consumer.outstanding.require(ranges)

    def return_all(
        self, identity: ConsumerId, effects: list[AnyEffect], now: int, seen: int = UNKNOWN
    ) -> None:
        """A consumer stays and wants everything again that it has not settled (recover, rollback)."""
        consumer = self.consumers.get(identity)
        if consumer is not None:
            consumer.credit += consumer.outstanding.messages
            consumer.outstanding_bytes = 0
            self._return_seen(consumer, MAX_TAG if seen == UNKNOWN else seen, effects, now)
            self._queue(consumer)

    def take_back(self, of_consumers: list[tuple[ConsumerId, int, int]], effects: list[AnyEffect]) -> None:
        """Clients were never given what their consumers have under these tags, first and last. One that is away says
        so itself when it claims what it has."""
        never_saw: list[Span] = []
        for identity, first, last in of_consumers:
            consumer = self.consumers.get(identity)
            if consumer is None or consumer.away:
                continue
            taken: list[Span] = []
            for low, high in consumer.outstanding.among([(first, last)]):
                taken += consumer.outstanding.take(low, high)
            consumer.gave_up(taken)
            consumer.credit += sum(span.stop - span.start for span in taken)
            self._queue(consumer)
            never_saw += taken
        self._return_unseen(never_saw, effects)

    # ---- done

    def finish(
        self, spans: list[Span], effects: list[AnyEffect], *, request: int = 0, note: bool = True
    ) -> Ranges:
        """These were handed out and are done: never again, and their bytes may go. Returns their numbers."""
        for span in spans:
            self.in_flight -= span.stop - span.start
            keys = self.keys_of(span)
            if keys is not None:
                self.units.completed(span, keys)
        self.let_units_go_on()
        return self._end(spans, effects, request=request, note=note)

    def _end(
        self,
        spans: list[Span],
        effects: list[AnyEffect],
        *,
        request: int = 0,
        note: bool = True,
        why: Removal | None = None,
    ) -> Ranges:
        """These, which nobody has, are never handed out again. `why` not, where nobody ever had them."""
        ranges: Ranges = []
        for span in spans:
            count = span.stop - span.start
            self.settled += count
            self._let_go(span, effects)
            if span.block.persistent:
                extend(ranges, number_of(span), count)
        if note:
            marks = [why.mark] if why is not None and ranges else []
            self._note(RecordKind.DONE, ranges + marks, request, effects)
        return ranges if self.durable else []

    def _let_go(self, span: Span, effects: list[AnyEffect]) -> None:
        level = self._levels[self._place(span)]
        for position, count in records_of(span):
            level.settled(position, count, span.origin, effects)
        if self._last_error:
            for number in range(number_of(span), number_of(span) + span.stop - span.start):
                self._last_error.pop(number, None)

    def _note(self, kind: int, ranges: Ranges, request: int, effects: list[AnyEffect]) -> None:
        """Write it down, or, where nothing of it is on disk, answer at once."""
        if ranges and self.durable:
            effects.append(Note(kind, self.number, ranges, request))
        elif request:
            effects.append(Multicast(Answered(request, {})))

    # ---- back

    def _recall(self, consumer: Consumer, spans: list[Span], seen: int, effects: list[AnyEffect]) -> None:
        """A message of a unit comes back: so must what its consumer has of the unit behind it.

        The consumer is told, so that it drops what is not in the application's hands yet; what comes after
        that word is new. It waits for the word, so it is given even where nothing had to come back.
        """
        tags, unseen = self._recall_behind(consumer, spans, seen)
        effects.append(Multicast(Recalled(consumer.identity, tags)))
        self._return_unseen(unseen, effects)

    def _recall_behind(self, consumer: Consumer, spans: list[Span], seen: int) -> tuple[Ranges, list[Span]]:
        """Take from a consumer what it has of the units of these messages behind them. What its application saw of
        that is added to them. Returns the tags, and what it never saw."""
        first_of: dict[int, int] = {}
        for span in spans:
            for start, _, key in segments(span, self.keys_of(span) or (0,) * (span.stop - span.start)):
                if key:
                    first_of[key] = min(first_of.get(key, MAX_TAG), span.block.number + start)
        tags: Ranges = []
        unseen: list[Span] = []
        for tag, span in consumer.outstanding.tagged() if first_of else ():
            keys = self.keys_of(span)
            for start, stop, key in segments(span, keys) if keys is not None else ():
                if key in first_of and span.block.number + start > first_of[key]:
                    extend(tags, tag + start - span.start, stop - start)
        for first, last in cut_at(tags, seen):
            taken = consumer.outstanding.take(first, last)
            consumer.gave_up(taken)
            consumer.credit += last - first + 1
            (spans if seen == UNKNOWN or last <= seen else unseen).extend(taken)
        return tags, unseen

    def _return_seen(self, consumer: Consumer, seen: int, effects: list[AnyEffect], now: int) -> None:
        """What the application never saw goes back as if it had not been handed out."""
        saw, never_saw = consumer.outstanding.split(seen)
        self._return_unseen(never_saw, effects, release=False)
        self._return(saw, effects, now, also=never_saw)

    def _return_unseen(
        self, never_saw: list[Span], effects: list[AnyEffect], *, release: bool = True
    ) -> None:
        """`release`: whether units may go on now; otherwise something earlier of them is about to come back."""
        ranges: Ranges = []
        by_level: dict[int, list[Span]] = {}
        touched: list[int] = []
        for span in never_saw:
            self.in_flight -= span.stop - span.start
            self._waits_again(span)
            if span.block.persistent:
                extend(ranges, number_of(span), span.stop - span.start)
            for part in self._back_to_units(span, touched):
                by_level.setdefault(self._place(part), []).append(part)
        for priority, spans in by_level.items():
            self._levels[priority].put_back(spans)
        if release:
            self.units.settle(touched)
            self.let_units_go_on()
        self._note(RecordKind.UNSEEN, ranges, 0, effects)

    def _back_to_units(self, span: Span, touched: list[int]) -> Iterator[Span]:
        """Hold the messages of a span that have a unit, which is noted in `touched`; yield the others."""
        keys = self.keys_of(span)
        if keys is None:
            yield span
            return
        for start, stop, key in segments(span, keys):
            part = span.part(start, stop)
            if key:
                self.units.came_back(part, (key,) * (stop - start))
                touched.append(key)
            else:
                yield part

    def _return(
        self,
        spans: list[Span],
        effects: list[AnyEffect],
        now: int,
        *,
        request: int = 0,
        error: str = "",
        suspects: int | None = None,
        also: Sequence[Span] = (),
        is_dead: bool = False,
    ) -> None:
        """Handed out in vain: back to their place, later, or to the dead (`is_dead`: all of them, since somebody said
        so).

        Only the first `suspects` messages (None: all) can have had their last chance. `also` came back before,
        unseen, and its units have waited for these.
        """
        ranges: Ranges = []
        again: dict[int, list[Span]] = {}
        dead: list[Span] = []
        limit = self.policy.redelivery_limit
        ordered = sorted(spans, key=number_of)
        if limit and any(span.deliveries + 1 >= limit for span in ordered):
            ordered = list(_cut_behind(ordered, suspects))
        touched = [key for span in also for key in self.keys_of(span) or () if key]
        due: dict[int, int] = {}
        for span in ordered:
            self.in_flight -= span.stop - span.start
            if error:
                self._last_error[number_of(span)] = error
            is_suspect = suspects is None or suspects > 0
            if suspects is not None:
                suspects -= span.stop - span.start
            if is_dead or (is_suspect and limit and span.deliveries + 1 >= limit):
                dead.append(span)
                continue
            self._waits_again(span)
            if span.block.persistent:
                extend(ranges, number_of(span), span.stop - span.start)
            back = Span(span.block, span.start, span.stop, span.deliveries + 1, span.origin)
            delay = int(self.policy.delay_before(span.deliveries + 2) * SECOND)
            for part in self._back_to_units(back, touched):
                if delay:
                    self._set_aside(now + delay, self._place(part), part, effects)
                else:
                    again.setdefault(self._place(part), []).append(part)
            if delay:
                self._delay_heads(back, now + delay, due)
        for priority, level_spans in again.items():
            self._levels[priority].put_back(level_spans)
        self._note(RecordKind.RETURNED, ranges, request, effects)
        self._dead(dead, touched, effects, REJECTED if is_dead else TOO_OFTEN)
        self._set_heads_aside(due, effects)
        self.units.settle(touched)
        self.let_units_go_on()

    def _delay_heads(self, span: Span, at: int, due: dict[int, int]) -> None:
        """When the unit of a message that came back may go on: its first message says."""
        for key in self.keys_of(span) or ():
            if key:
                due.setdefault(key, at)

    def _set_heads_aside(self, due: dict[int, int], effects: list[AnyEffect]) -> None:
        """Of each unit only the head waits for its time; what is behind it waits for the head."""
        for key, at in due.items():
            head = self.units.take_head(key)
            if head is not None:
                self.units.put_aside(key, number_of(head))
                self._set_aside(at, self._place(head), head, effects)

    def _dead(
        self, dead: list[Span], touched: list[int], effects: list[AnyEffect], reason: str = TOO_OFTEN
    ) -> None:
        """Had their last chance: to the dead, or, where the policy says so, their units stop."""
        if not dead:
            return
        burying: list[Span] = []
        for span in dead:
            keys = self.keys_of(span)
            if keys is None:
                burying.append(span)
                continue
            for start, stop, key in segments(span, keys):
                part = span.part(start, stop)
                if not key:
                    burying.append(part)
                    continue
                part_keys = (key,) * (stop - start)
                touched.append(key)
                if self.policy.unit_stops:
                    stopped = Span(part.block, start, stop, part.deliveries + 1, part.origin)
                    self.units.came_back(stopped, part_keys)
                    self.units.stop(key, number_of(part))
                else:
                    self.units.given_up(part, part_keys)
                    burying.append(part)
        if burying:
            self._bury(burying, reason, effects)

    def _set_aside(self, due: int, priority: int, span: Span, effects: list[AnyEffect]) -> None:
        self.schedule.add(due, priority, span)
        effects.append(Wake(due))

    def let_units_go_on(self) -> bool:
        """What units let go takes its old place. Whether there was anything."""
        units = self.units
        if not units.released and not units.released_cold:
            return False
        by_level: dict[int, list[Span]] = {}
        for span in units.released:
            by_level.setdefault(self._place(span), []).append(span)
        for priority, spans in by_level.items():
            self._levels[priority].put_back(spans)
        for priority, page in units.released_cold:
            self._levels[priority].put_back_cold(page)
        units.released, units.released_cold = [], []
        return True

    # ---- the dead

    def _bury(self, spans: list[Span], reason: str, effects: list[AnyEffect]) -> None:
        """Move messages, which are neither waiting nor outstanding, to the dead message queue."""
        for span in spans:
            keys = self.keys_of(span)
            if keys is not None:
                self.units.bury(span, keys)
        errors = [self._last_error.get(number_of(span), "") for span in spans]
        effects.append(Bury(self.number, spans, reason, errors))

    def buried(self, spans: list[Span], effects: list[AnyEffect]) -> Ranges:
        """The dead message queue has them. Returns the numbers to be noted as done with the same stroke."""
        ranges = self._gone(spans, effects)
        if self._left_burial(spans):
            effects.append(Continue())
        return ranges

    def _gone(self, spans: list[Span], effects: list[AnyEffect]) -> Ranges:
        """Messages that nobody has are not here any more."""
        ranges: Ranges = []
        for span in spans:
            self.settled += span.stop - span.start
            self._let_go(span, effects)
            if span.block.persistent and self.durable:
                extend(ranges, number_of(span), span.stop - span.start)
        return ranges

    def _left_burial(self, spans: list[Span]) -> bool:
        """Whether units may go on now."""
        has_units = False
        for span in spans:
            keys = self.keys_of(span)
            if keys is not None:
                self.units.buried(span, keys)
                has_units = True
        self.let_units_go_on()
        return has_units

    def not_buried(self, spans: list[Span], reason: str, effects: list[AnyEffect], now: int) -> None:
        """There was no room for them among the dead: they stay, and it is tried again later."""
        ranges: Ranges = []
        for span in spans:
            if reason == TOO_OFTEN:  # it comes back after all
                span.deliveries += 1
                if span.block.persistent:
                    extend(ranges, number_of(span), span.stop - span.start)
            for number, key in enumerate(self.keys_of(span) or (), number_of(span)):
                if key:
                    self.units.put_aside(key, number)
            self._set_aside(now + _BURY_AGAIN, self._place(span), span, effects)
        if self._left_burial(spans):
            effects.append(Continue())
        self._note(RecordKind.RETURNED, ranges, 0, effects)


def extend(ranges: Ranges, first: int, count: int) -> None:
    """Add numbers first.. to inclusive ranges, joining neighbours."""
    if ranges and ranges[-1][1] + 1 == first:
        ranges[-1] = (ranges[-1][0], first + count - 1)
    else:
        ranges.append((first, first + count - 1))


def cut_at(ranges: Ranges, last: int) -> Iterator[tuple[int, int]]:
    """The same ranges, cut so that one ends there."""
    for first, end in ranges:
        if first <= last < end:
            yield first, last
            yield last + 1, end
        else:
            yield first, end


def _cut_behind(spans: list[Span], messages: int | None) -> Iterator[Span]:
    """The same spans, cut so that one ends after so many messages."""
    for span in spans:
        count = span.stop - span.start
        if messages is not None and 0 < messages < count:
            yield span.part(span.start, span.start + messages)
            span = span.part(span.start + messages, span.stop)  # noqa: PLW2901 - the rest of it
        yield span
        if messages is not None:
            messages -= count
