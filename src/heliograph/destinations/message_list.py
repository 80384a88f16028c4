"""One ordered list of messages and the consumers that compete for it: a queue has one, a topic one per
subscription.

Consumers with credit take turns, a span at a time. A turn of the whole list is bounded, so that one busy list
never holds up the others (M4). What is handed out stays outstanding at its consumer until it is settled:
done, or returned to its old place; what came back too often is buried (J10). Messages whose time has passed,
or has not come, are set aside when they come up (J8).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from heliograph.bus.commands import Dispatched, Parcelled
from heliograph.destinations.competing import Consumer, share
from heliograph.destinations.effects import AnyEffect, Continue, Load, Multicast
from heliograph.destinations.holding_back import HoldingBack, Unshared
from heliograph.destinations.pages import Entry, Page, entries_of
from heliograph.destinations.partition_gate import PartitionGate
from heliograph.destinations.placing import place_in_queue
from heliograph.destinations.pledging import Pledge
from heliograph.destinations.removals import Removal
from heliograph.destinations.schedule import Schedule
from heliograph.destinations.selective import SelectiveLevel
from heliograph.destinations.sequence import SharedLevel
from heliograph.destinations.settling import SECOND, TOO_OFTEN, UNKNOWN, Ranges, extend
from heliograph.destinations.sorted_level import SortedLevel
from heliograph.destinations.survey import Survey
from heliograph.destinations.unit_of_order import Given, Offer, Units
from heliograph.destinations.unit_rules import UnitRule, unit_rule
from heliograph.destinations.waiting import Level, Residence, Waiting, number_of
from heliograph.journal.records import RecordKind
from heliograph.model.block import DELIVERIES, EXPIRIES, UNITS, Span, delivery_times_of, expiries_of
from heliograph.model.claim import Claim, Tags
from heliograph.model.ids import ConsumerId, LaneId, SessionId
from heliograph.model.limits import (
    DISPATCH_SPANS_PER_TURN,
    MAX_ACK_RANGES,
    MAX_CREDIT,
    PRIORITY_PREFETCH,
    UNIT_PREFETCH,
)
from heliograph.model.message import DEFAULT_PRIORITY
from heliograph.model.policy import DEFAULT_POLICY, Policy
from heliograph.model.sort_keys import SortKey, parse_sort_keys

UserOf = Callable[[LaneId], str]
_TIMED = EXPIRIES | DELIVERIES


class MessageList(HoldingBack):
    """Waiting messages by priority, consumers in turn."""

    def __init__(
        self,
        number: int,
        *,
        make_level: Callable[[int], Level],
        make_sorted: Callable[[tuple[SortKey, ...]], SortedLevel] | None = None,
        user_of: UserOf,
        residence: Residence,
        place: Callable[[Span], int] = place_in_queue,
        policy: Policy = DEFAULT_POLICY,
        durable: bool = True,
    ) -> None:
        self.number = number
        self.policy = policy
        self._place = place
        self._rule = unit_rule(policy.unit_from)
        self.units = Units(residence, place)
        self.has_units = self._rule is not None  # whether messages with a unit ever came
        self._survey: Survey | None = None
        self._parcels: dict[Consumer, tuple[int, list[Span]]] = {}
        self.durable = durable  # whether what happens to it is written down
        self._make_level = make_level
        self._make_sorted = make_sorted  # None: what waits cannot be sorted
        self._sorted: SortedLevel | None = None
        self._user_of = user_of
        self._levels: dict[int, Level] = _Levels(self.level)
        self._order: list[tuple[int, Level]] = []  # highest priority first
        self._turn: deque[Consumer] = deque()
        self._first_tag = 1
        self.schedule = Schedule()
        self._last_error: dict[int, str] = {}  # of messages that came back with a word why
        self.consumers: dict[ConsumerId, Consumer] = {}
        self.pledged: dict[Pledge, Consumer] = {}
        self.selective = False
        self.paused = False  # an administrator wants nothing handed out
        self._is_pulled_from = False
        self.is_closed = False
        self._gate: PartitionGate | None = None
        self.in_flight = 0
        self.delivered = 0
        self.settled = 0

    @property
    def depth(self) -> int:
        """Messages that wait for a consumer, or for their time."""
        waiting = sum(level.messages for _, level in self._order) + self.schedule.messages
        surveyed = self._survey.messages if self._survey is not None else 0
        held_back = self._gate.messages if self._gate is not None else 0
        return waiting + self.units.messages + surveyed + held_back

    @property
    def backlog(self) -> int:
        """Messages that are not done."""
        return self.depth + self.in_flight

    @property
    def keeps_loaded(self) -> bool:
        # What waits on disk behind a gate comes before what arrives now.
        if self._gate is not None and self._gate.is_partly_cold:
            return False
        return all(level.keeps_loaded for _, level in self._order)

    @property
    def is_hungry(self) -> bool:
        """Whether somebody would take a message now."""
        return bool(self._turn)

    # ---- what arrives

    def level(self, priority: int) -> Level:
        if self._sorted is not None:
            return self._sorted
        found = self._levels.get(priority)
        if found is None:
            found = self._levels[priority] = self._make_level(priority)
            self._order = [(key, self._levels[key]) for key in sorted(self._levels, reverse=True)]
            for consumer in self.consumers.values():
                self._limit(consumer)
            if self.has_units:
                self.survey()
        return found

    def append(self, priority: int, span: Span) -> None:
        """A message arrives behind all others of its priority."""
        level = self.level(priority)
        assert isinstance(level, Unshared)
        if self._gate is not None:
            free = self._sifted_arrival(priority, span)
            if free is None:
                return
            span = free
        if self._survey is not None:
            self._survey.append(priority, span)
        elif span.block.flags & UNITS or self._rule is not None:
            self._append_in_order(priority, level, span)
        else:
            level.append(span)

    def _sifted_arrival(self, priority: int, span: Span) -> Span | None:
        """What of it need not wait behind the gate. While earlier ones are looked through it takes its turn there."""
        if span.block.flags & UNITS or self._rule is not None:
            self.meets_units()
        return span if self._survey is not None else self.sifted(priority, span)

    # ---- units of order

    def _append_in_order(self, priority: int, level: Unshared, span: Span) -> None:
        """At one priority units are looked at when messages come up. Where there are several, a later message
        could come up first, so of each unit only the first waits in a level."""
        self.meets_units()
        if self._survey is not None:
            self._survey.append(priority, span)
        elif len(self._order) == 1 and self._sorted is None:
            level.append(span)
        else:
            for part, _ in self.screen(span):
                level.append(part)
            self.let_units_go_on()

    def begin_pulling(self) -> None:
        """Somebody takes single messages out, also such as are not the first of their unit; meanwhile nothing is
        handed out."""
        self._is_pulled_from = True
        self.open_gate()
        self.units.let_all_go(keep_asides=True)
        self.let_units_go_on()
        self.count_handed_out()

    def can_be_pulled_from(self, effects: list[AnyEffect]) -> bool:
        """Whether all that waits is in a level; otherwise it is being looked through."""
        return self._survey is None or self._look_through(effects)

    def end_pulling(self) -> None:
        self._is_pulled_from = False
        if self.has_units:
            self.survey()

    def count_handed_out(self) -> None:
        """Units were forgotten: what consumers have counts anew."""
        for consumer in self.holders():
            consumer.held_units.clear()
            for span in consumer.outstanding.spans():
                keys = self.keys_of(span)
                if keys is not None:
                    self.units.restore(span, keys, consumer)

    def _change_rule(self, rule: UnitRule | None) -> None:
        """Messages that come up from now on belong to other units; what is handed out counts for those."""
        self.units.let_all_go(keep_asides=False)
        self.let_units_go_on()
        self._rule = rule
        self.count_handed_out()
        if rule is not None:
            self.meets_units()

    def meets_units(self) -> None:
        """From now on messages with a unit are to be expected."""
        if not self.has_units:
            self.has_units = True
            for consumer in self.consumers.values():
                self._limit(consumer)
            self.survey()

    def _take_offers_back(self) -> None:
        """In a sorted list something earlier is held back than what is offered of its unit, and nobody may want
        that."""
        if self._sorted is not None:
            for span in self._sorted.take_out(self._is_overtaken):
                for part, _ in self.screen(span):
                    self._sorted.append(part)
            self.let_units_go_on()
        self.units.has_overtaken = False

    def _is_overtaken(self, span: Span) -> bool:
        keys = self.keys_of(span)
        return keys is not None and self.units.is_overtaken(keys[0])

    def resume_unit(self, key: int, effects: list[AnyEffect]) -> bool:
        """An administrator wants a stopped unit to go on. Whether it was stopped."""
        if not self.units.resume(key):
            return False
        self.let_units_go_on()
        effects.append(Continue())
        return True

    def give_up(self, key: int, effects: list[AnyEffect]) -> bool:
        """An administrator gives up the message for which a unit stopped. Whether there was one."""
        head = self.units.give_up(key)
        if head is None:
            return False
        self._bury([head], TOO_OFTEN, effects)
        return True

    def _stopped(self, span: Span, keys: Sequence[int]) -> bool:
        """Whether a message that failed too often, before a restart perhaps, stops its unit."""
        if not self.policy.unit_stops or not 0 < self.policy.redelivery_limit <= span.deliveries:
            return False
        key = keys[0]
        if not key or not self.units.stop_again(key, span.part(span.start, span.start + 1)):
            return False
        if span.stop - span.start > 1:
            self._levels[self._place(span)].put_back([span.part(span.start + 1, span.stop)])
        return True

    def _is_surprised(self, priority: int, span: Span) -> bool:
        """The first message with a unit since the start comes up. Whether a survey has to come before it."""
        level = self._levels[priority]
        if len(self._order) == 1 or isinstance(level, SharedLevel):
            self.meets_units()
            return False
        level.put_back([span])
        self.meets_units()
        return True

    def screen(self, span: Span) -> list[Offer]:
        """What of a span may be offered, and to whom; the rest is held back for its units."""
        keys = self.keys_of(span)
        if keys is None or self._is_pulled_from:
            return [(span, None)]
        if not self.has_units:
            self.meets_units()
            if self._survey is not None:
                self._survey.insert(self._place(span), span)
                return []
        return self.units.screen(span, keys)

    def owner_of(self, span: Span) -> Consumer | None:
        """The only consumer that may have a message, because it has something of its unit."""
        keys = self.keys_of(span)
        return None if keys is None or self._is_pulled_from else self.units.owner_of(keys[0])

    def unfit(self, span: Span) -> None:
        """What was offered to one consumer is not what it selects."""
        self.units.unfit(span, self.keys_of(span) or ())

    def _offer_again(self) -> None:
        """What only one consumer could have is for all now."""
        self.units.has_freed_offers = False
        for _, level in self._order:
            if isinstance(level, SelectiveLevel):
                level.takers_changed()

    def survey(self) -> None:
        """Several priorities, and units: look through all that waits before anything goes."""
        levels = [(at, level) for at, level in self._order if isinstance(level, Unshared)]
        if len(levels) > 1 or self._sorted is not None:
            self._begin_survey()

    def _begin_survey(self) -> None:
        levels = [(at, level) for at, level in self._order if isinstance(level, Unshared)]
        if self._survey is not None:
            self._survey.restart(levels)
        elif any(level.messages for _, level in levels):
            self._survey = Survey(levels)

    def _look_through(self, effects: list[AnyEffect]) -> bool:
        """Go on with the survey. Whether it is done."""
        survey = self._survey
        assert survey is not None
        for each in survey.spans():
            span = each if self._gate is None else self.sifted(self._place(each), each)
            for part, _ in self.screen(span) if span is not None else ():
                level = self.level(self._place(part))
                assert isinstance(level, Unshared)
                level.append(part)
        self.let_units_go_on()
        page = survey.page_to_load()
        if page is not None:
            effects.append(Load(self.number, page[0], page[1]))
        if survey.messages:
            return False
        self._survey = None
        return True

    def sort_by_takers(self, make_selective: Callable[[Waiting], SelectiveLevel]) -> None:
        """Consumers with selectors are there, or others than before."""
        self.selective = True
        for priority, level in self._order:
            if isinstance(level, SelectiveLevel):
                level.takers_changed()
            elif not isinstance(level, SortedLevel):
                assert isinstance(level, Waiting)
                self._levels[priority] = make_selective(level)
        self._order = [(key, self._levels[key]) for key in sorted(self._levels, reverse=True)]

    def set_policy(self, policy: Policy) -> None:
        former, self.policy = self.policy, policy
        if policy.unit_from != former.unit_from:
            self._change_rule(unit_rule(policy.unit_from))
        if policy.sort_keys != former.sort_keys and self._make_sorted is not None:
            self._sort_by(parse_sort_keys(policy.sort_keys))
        for consumer in self.consumers.values():
            self._limit(consumer)
            self._queue(consumer)

    def _sort_by(self, keys: tuple[SortKey, ...]) -> None:
        """From now on what waits is in another order: look through all of it."""
        assert self._make_sorted is not None
        self.units.let_all_go(keep_asides=True)
        self.let_units_go_on()
        self._begin_survey()
        self._sorted = self._make_sorted(keys) if keys else None
        self._levels = _Levels(self.level)
        if self._sorted is not None:
            self._levels[DEFAULT_PRIORITY] = self._sorted
        self._order = list(self._levels.items())
        self.units.one_by_one = self._sorted is not None
        self.count_handed_out()

    def restore_unsorted(self, priority: int, pages: list[Page]) -> None:
        """What recovery found to wait in a sorted list: its keys have to be read first."""
        if self._survey is None:
            self._survey = Survey([])
        for page in pages:
            self._survey.add(priority, page)

    @property
    def is_sorted(self) -> bool:
        return self._sorted is not None

    def levels(self) -> list[tuple[int, Level]]:
        """What waits, highest priority first."""
        return self._order

    def priorities(self) -> list[int]:
        """Highest first."""
        return [priority for priority, _ in self._order]

    @property
    def _prefetch(self) -> int:
        if self.policy.prefetch_limit:
            return self.policy.prefetch_limit
        if len(self._order) > 1:
            return PRIORITY_PREFETCH
        return UNIT_PREFETCH if self.has_units else MAX_CREDIT

    # ---- consumers

    def attach(
        self,
        identity: ConsumerId,
        session: SessionId,
        credit: int,
        *,
        prompt: bool = True,
        claim: Claim | None = None,
    ) -> Consumer:
        """`prompt`: it settles each message as it goes. One that gathers what it settles is not limited in how much
        it has, or it could never go on. `claim`: what its client had of one that is not known any more."""
        assert identity not in self.consumers, "consumer ids are issued once"
        consumer = self.consumers[identity] = Consumer(
            identity, session, credit, prompt=prompt, first_tag=self._first_tag
        )
        if claim is not None:
            consumer.begin_behind(claim)
        self._limit(consumer)
        self._queue(consumer)
        return consumer

    def restore_handed_out(self, consumer: Consumer, tag: int, span: Span) -> None:
        """A consumer that another server had keeps what it was given there."""
        consumer.outstanding.add(tag, span)
        consumer.outstanding_bytes += share(span)
        self.in_flight += span.stop - span.start
        keys = self.keys_of(span)
        if keys is not None:
            self.meets_units()
            self.units.restore(span, keys, consumer)

    def restore_standing(
        self,
        consumer: Consumer,
        credit: int,
        next_tag: int,
        given: Ranges,
        former: Tags,
        *,
        retired: bool,
        away: bool,
    ) -> None:
        consumer.credit = credit
        consumer.away = away
        consumer.next_tag = next_tag
        consumer.given = given
        consumer.former = former
        consumer.inherited = next_tag - 1
        consumer.retired = retired
        self._queue(consumer)

    def _limit(self, consumer: Consumer) -> None:
        consumer.prefetch = self._prefetch if consumer.prompt else MAX_CREDIT

    def grant(self, identity: ConsumerId, count: int) -> None:
        consumer = self.consumers.get(identity)
        if consumer is not None:
            consumer.credit += count
            self._queue(consumer)

    def detach(self, identity: ConsumerId, effects: list[AnyEffect], now: int, seen: int = UNKNOWN) -> None:
        """A consumer leaves; what it had returns in order.

        `seen` is the last tag that reached the application. Where that is not known, any of it may have, and the
        oldest is the one to suspect of its end.
        """
        consumer = self.consumers.pop(identity, None)
        if consumer is None:
            return
        self.leave_turn(consumer)
        if seen == UNKNOWN:
            self._return(consumer.outstanding.take_all(), effects, now, suspects=1)
        else:
            self._return_seen(consumer, seen, effects, now)

    def retire(self, identity: ConsumerId, effects: list[AnyEffect], now: int, seen: int) -> None:
        """A consumer takes nothing more. What its application saw stays with it; the rest goes back."""
        consumer = self.consumers.get(identity)
        if consumer is None:
            return
        self.leave_turn(consumer)
        consumer.retired = True
        self._return_unseen(consumer.outstanding.drop_behind(seen), effects)

    def _queue(self, consumer: Consumer) -> None:
        if not consumer.queued and consumer.room > 0:
            consumer.queued = True
            self._turn.append(consumer)

    # ---- handing out

    def dispatch(self, effects: list[AnyEffect], now: int) -> None:
        """Give what waits to those who want it, for one turn."""
        if self.paused or self._is_pulled_from or self.is_closed:
            return
        if self._survey is not None and not self._look_through(effects):
            return
        if self.units.has_freed_offers:
            self._offer_again()
        if self.units.has_overtaken:
            self._take_offers_back()
        turn = self._turn
        ranges: Ranges = []
        spans_left = DISPATCH_SPANS_PER_TURN
        idle = 0
        while turn:
            consumer = turn[0]
            if consumer.room <= 0:  # it had some when it queued, but was given other messages since
                turn.popleft()
                consumer.queued = False
                continue
            if consumer.held_units:
                self.units.feed(consumer)
                self.let_units_go_on()
            priority, span = self._take(consumer, effects)
            if span is None and consumer.held_units:
                self.units.feed(consumer)  # what it was fed may have turned out not to be for it
            if span is None and (
                self.let_units_go_on() or self.units.has_overtaken or self._survey is not None
            ):
                # What was looked at let something else go, which may wait at a higher priority, or should have
                # gone before what was let go, or was the first to have a unit.
                effects.append(Continue())
                break
            self.let_units_go_on()
            if span is None:
                # What comes next is being read from the disk; or, with selectors and units of order, nothing
                # that waits is for this consumer.
                idle += 1
                if not (self.selective or self.has_units) or idle >= len(turn):
                    break
                turn.rotate(-1)
                continue
            idle = 0
            spans_left -= 1
            if self._give(consumer, priority, span, effects, now, ranges):
                turn.popleft()
                if consumer.room > 0:
                    turn.append(consumer)
                else:
                    consumer.queued = False
            if not spans_left or self._survey is not None:
                effects.append(Continue())
                break
        if self._parcels:
            self._send_parcels(effects)
        self._note(RecordKind.DISPATCHED, ranges, 0, effects)
        if turn:
            self._read_ahead(effects)

    def _give(
        self,
        consumer: Consumer,
        priority: int,
        span: Span,
        effects: list[AnyEffect],
        now: int,
        ranges: Ranges,
    ) -> bool:
        """Hand out what came up for a consumer, as far as it may go. Whether the consumer had its turn."""
        if self._gate is not None:
            free = self.sifted_from(priority, span, effects)
            if free is None:
                return False
            span = free
        block = span.block
        if block.flags & UNITS or self._rule is not None:
            if not self.has_units and self._is_surprised(priority, span):
                return False
            self._hand_out_in_order(consumer, priority, span, effects, now, ranges)
            return True
        if block.expiry or block.delivery_time or block.flags & _TIMED:
            timely = self._timely(priority, span, now, effects)
            if timely is None:
                return False
            span = timely
        if self._sorted is None:
            self._hand_out(consumer, span, effects)
        else:
            self._put_in_parcel(consumer, span)
        if block.persistent:
            extend(ranges, number_of(span), span.stop - span.start)
        return True

    def _take(self, consumer: Consumer, effects: list[AnyEffect]) -> tuple[int, Span | None]:
        """The next messages for a consumer, of the highest priority that has any for it."""
        for priority, level in self._order:
            if level.messages:
                span = level.take(consumer.room, consumer.identity, effects)
                if span is not None or not self.selective:
                    return priority, span
        return 0, None

    def _hand_out(self, consumer: Consumer, span: Span, effects: list[AnyEffect]) -> None:
        if consumer in self._parcels:  # on the wire, as everywhere, tags are in order
            self._send_parcels(effects)
        count = span.stop - span.start
        tag = consumer.hold(span)
        self.in_flight += count
        self.delivered += count
        effects.append(Multicast(Dispatched(consumer.identity, tag, span, self._user_of(span.block.lane))))

    def _hand_out_in_order(
        self,
        taker: Consumer,
        priority: int,
        span: Span,
        effects: list[AnyEffect],
        now: int,
        ranges: Ranges,
    ) -> None:
        """Messages of units: each to whom its unit is with, or nobody yet."""
        keys = self.keys_of(span)
        assert keys is not None
        block = span.block
        if self._stopped(span, keys):
            return
        # Where what waits is sorted, a message that only one consumer may have comes up for that one alone.
        hand_over = not isinstance(self._levels[priority], SelectiveLevel | SortedLevel)
        given = self.units.route(span, keys, taker, hand_over=hand_over)
        self.let_units_go_on()
        if block.expiry or block.delivery_time or block.flags & _TIMED:
            given = self._timely_in_order(given, effects, now)
        for consumer, part in given:
            self._put_in_parcel(consumer, part)
            if block.persistent:
                extend(ranges, number_of(part), part.stop - part.start)

    def _put_in_parcel(self, consumer: Consumer, span: Span) -> None:
        count = span.stop - span.start
        tag = consumer.hold(span)
        self.in_flight += count
        self.delivered += count
        parcel = self._parcels.get(consumer)
        if parcel is None:
            self._parcels[consumer] = (tag, [span])
        else:
            parcel[1].append(span)

    def _send_parcels(self, effects: list[AnyEffect]) -> None:
        """What was picked for each consumer goes together: one by one it would cost ten times as much."""
        parcels, self._parcels = self._parcels, {}
        for consumer, (first, spans) in parcels.items():
            tag = first
            for user, same in groupby(spans, lambda span: self._user_of(span.block.lane)):
                parcel = list(same)
                effects.append(Multicast(Parcelled(consumer.identity, tag, parcel, user)))
                tag += sum(span.stop - span.start for span in parcel)

    def _read_ahead(self, effects: list[AnyEffect]) -> None:
        if self._gate is not None:
            self.read_behind_gate(effects)
        for priority, level in self._order:
            page = level.page_to_load()
            if page is not None:
                effects.append(Load(self.number, priority, page))

    def loaded(self, priority: int, page: Page, buffers: list[bytes]) -> None:
        if self._gate is not None and self.was_read_behind_gate(page, buffers):
            return
        if self._survey is None or not self._survey.loaded(page, buffers):
            self._levels[priority].loaded(page, buffers)

    # ---- time

    def _timely(self, priority: int, span: Span, now: int, effects: list[AnyEffect]) -> Span | None:
        """The first messages of a span if they may go now; otherwise they are set aside, and None."""
        expiry = [at if 0 < at <= now else 0 for at in expiries_of(span)]
        due = [at if at > now else 0 for at in delivery_times_of(span)]
        length = 1
        while length < len(due) and due[length] == due[0] and bool(expiry[length]) == bool(expiry[0]):
            length += 1
        head = span.part(span.start, span.start + length)
        if head.stop < span.stop:
            self._levels[priority].put_back([span.part(head.stop, span.stop)])
        if expiry[0]:
            self._expire(head, effects)
            return None
        if due[0] and self.keys_of(head) is None:
            self._set_aside(due[0], priority, head, effects)
            return None
        return head

    def _timely_in_order(self, given: Given, effects: list[AnyEffect], now: int) -> Given:
        """What may go now of messages that are about to be handed out. One that may not yet keeps the later ones
        of its unit."""
        timely: Given = []
        waiting: dict[int, None] = {}
        for consumer, span in given:
            keys = self.keys_of(span)
            assert keys is not None
            times = zip(keys, expiries_of(span), delivery_times_of(span), strict=True)
            for index, (key, expiry, due) in enumerate(times, span.start):
                one = span.part(index, index + 1)
                if key in waiting:
                    self.units.came_back(one, (key,))
                elif 0 < expiry <= now:
                    if key:
                        self.units.given_up(one, (key,))
                    self._end_unseen([one], Removal.EXPIRED, effects, is_dead=self.policy.expired_to_dead)
                elif due > now:
                    if key:
                        waiting[key] = None
                        self.units.set_aside(key, one)
                    self._set_aside(due, self._place(one), one, effects)
                else:
                    timely.append((consumer, one))
                    continue
                if key:
                    self.units.settle((key,))
        self.let_units_go_on()
        return timely

    def _expire(self, span: Span, effects: list[AnyEffect]) -> None:
        """Messages that waited in a level are past their time."""
        self.discard([span], Removal.EXPIRED, effects, is_dead=self.policy.expired_to_dead)

    def put_back(self, spans: list[Span]) -> None:
        """Messages that were taken out and given to nobody return to their places."""
        for span in spans:
            self._levels[self._place(span)].put_back([span])

    def discard(self, spans: list[Span], why: Removal, effects: list[AnyEffect], *, is_dead: bool) -> None:
        """Messages that were taken out and given to nobody go to the dead, for this reason, or nowhere."""
        for span in spans:
            self._leave_level(span, effects)
        self._end_unseen(spans, why, effects, is_dead=is_dead)

    def removed(self, spans: list[Span], effects: list[AnyEffect]) -> Ranges:
        """Messages that were taken out and given to nobody are elsewhere, or nowhere, now. Returns the numbers to
        be noted as done with the same stroke."""
        for span in spans:
            self._leave_level(span, effects)
        return self._gone(spans, effects)

    def _end_unseen(
        self, spans: list[Span], why: Removal, effects: list[AnyEffect], *, is_dead: bool
    ) -> None:
        if is_dead:
            for span in spans:
                self._bury([span], why.reason, effects)
        else:
            self._end(spans, effects, why=why)

    def time_came(self, now: int) -> None:
        """What is due may go."""
        for priority, what in self.schedule.due(now):
            if isinstance(what, Page):
                self._levels[priority].put_back_cold(what)
            else:
                self._levels[priority].put_back([what])

    def _leave_level(self, span: Span, effects: list[AnyEffect]) -> None:
        """Messages left their level without having come up: what was held back behind them may go on."""
        keys = self.keys_of(span)
        if keys is not None:
            self.units.left(span, keys)
            self.let_units_go_on()
            effects.append(Continue())

    def sweep(self, effects: list[AnyEffect], now: int) -> None:
        """Take what is expired, or waited too long, from the head of each level."""
        if self.is_closed:
            return  # who may not hand out may not give up either
        # Nobody could take anything while it is paused: that is no reason to give it up.
        patience = 0 if self.paused else int(self.policy.undelivered_to_dead_after * SECOND)
        for priority, level in self._order:
            for _ in range(DISPATCH_SPANS_PER_TURN):
                span = level.take(MAX_CREDIT, NOBODY, effects) if level.messages else None
                if span is None:
                    break
                if self._gate is not None:
                    free = self.sifted_from(priority, span, effects)
                    if free is None:
                        continue
                    span = free
                block = span.block
                if patience and block.timestamp and block.timestamp + patience < now:
                    self._leave_level(span, effects)
                    self._bury([span], "undeliverable", effects)
                elif (timely := self._timely(priority, span, now, effects)) is not None:
                    level.put_back([timely])
                    break
            if patience or level.messages:
                page = level.page_to_load()
                if page is not None:
                    effects.append(Load(self.number, priority, page))
        if self.let_units_go_on() or self._survey is not None:
            effects.append(Continue())

    # ---- recovery, snapshots, moving

    def shared_level(self, priority: int) -> SharedLevel:
        level = self.level(priority)
        assert isinstance(level, SharedLevel)
        return level

    def waiting_pages(self) -> Iterator[tuple[int, Page]]:
        for priority, level in self._levels.items():
            for page in level.cold_pages():
                yield priority, page
        yield from self.units.pages()
        if self._survey is not None:
            yield from self._survey.pages()
        if self._gate is not None:
            yield from self._gate.pages()

    def loaded_entries(self) -> Iterator[tuple[int, Entry]]:
        """Waiting messages that are in memory and in the journal, by priority."""
        for priority, level in self._levels.items():
            for span in level.hot_spans():
                if span.block.persistent:
                    for entry in entries_of(span):
                        yield priority, entry
        for span in self._spans_elsewhere():
            if span.block.persistent:
                for entry in entries_of(span):
                    yield self._place(span), entry
        yield from self.schedule.entries(spilled=False)

    def _spans_elsewhere(self) -> Iterator[Span]:
        """Loaded, waiting, and in no level."""
        yield from self.units.hot_spans()
        if self._survey is not None:
            yield from self._survey.hot_spans()
        if self._gate is not None:
            yield from self._gate.hot_spans()

    def outstanding_entries(self) -> Iterator[tuple[int, Entry]]:
        for consumer in self.holders():
            for span in consumer.outstanding.spans():
                if span.block.persistent:
                    for entry in entries_of(span):
                        yield self._place(span), entry

    def all_spans(self) -> Iterator[Span]:
        for _, level in self._order:
            yield from level.hot_spans()
        yield from self._spans_elsewhere()
        for consumer in self.holders():
            yield from consumer.outstanding.spans()

    def end(self, effects: list[AnyEffect]) -> None:
        """The list is gone with all that waits in it."""
        for consumer in self.holders():
            for span in consumer.outstanding.take_all():
                self._let_go(span, effects)
        self._let_go_elsewhere(effects)
        for _, level in self._order:
            level.leave(effects)

    def _let_go_elsewhere(self, effects: list[AnyEffect]) -> None:
        """Of what waits for its time, for its unit, for the cluster to be whole, or to be looked at."""
        for span in self._spans_elsewhere():
            self._let_go(span, effects)
        pages = [*self.units.pages(), *(self._survey.pages() if self._survey is not None else ())]
        pages += self._gate.pages() if self._gate is not None else ()
        for priority, page in pages:
            for entry in page.entries():
                self._levels[priority].settled(entry.position, entry.messages, entry.origin, effects)
        self.units.forget_waiting()
        if self._gate is not None:
            self._gate.take_all()
        self._survey = None
        self._let_go_scheduled(effects)

    def _let_go_scheduled(self, effects: list[AnyEffect]) -> None:
        for priority, origin, what in self.schedule.everything():
            if isinstance(what, Entry):
                self._levels[priority].settled(what.position, what.messages, origin, effects)
            else:
                self._let_go(what, effects)
        self.schedule.clear()

    def purge(self, last: int, effects: list[AnyEffect]) -> int:
        """Everything up to number `last` is done, but for what is handed out. Returns how many messages
        waited."""
        count = self.depth
        self._let_go_elsewhere(effects)
        for _, level in self._order:
            level.purge(effects)
        self._last_error.clear()
        self.settled += count
        done = self._but_outstanding(last) if count else []
        for start in range(0, len(done), MAX_ACK_RANGES):
            marked = [*done[start : start + MAX_ACK_RANGES], Removal.PURGED.mark]
            self._note(RecordKind.DONE, marked, 0, effects)
        return count

    def _but_outstanding(self, last: int) -> Ranges:
        """All numbers up to `last` without those that consumers have."""
        taken = [
            (number_of(span), number_of(span) + span.stop - span.start - 1)
            for consumer in self.holders()
            for span in consumer.outstanding.spans()
        ]
        ranges: Ranges = []
        first = 1
        for low, high in sorted(taken):
            if first < low:
                ranges.append((first, low - 1))
            first = max(first, high + 1)
        if first <= last:
            ranges.append((first, last))
        return ranges


class _Levels(dict[int, Level]):
    """The levels of a list by priority, made when they are needed; a sorted list has one for all."""

    def __init__(self, make: Callable[[int], Level]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, priority: int) -> Level:
        return self._make(priority)


NOBODY = ConsumerId(b"")  # takes what comes next, to remove it
