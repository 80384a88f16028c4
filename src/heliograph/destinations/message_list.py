"""One ordered list of messages and the consumers that compete for it: a queue has one, a topic one per
subscription.

Consumers with credit take turns, a span at a time. A turn of the whole list is bounded, so that one busy list
never holds up the others (M4). What is handed out stays outstanding at its consumer until it is settled:
done, or returned to its old place; what came back too often is buried (J10). Messages whose time has passed,
or has not come, are set aside when they come up (J8).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from heliograph.bus.commands import Answered, Dispatched
from heliograph.destinations.effects import AnyEffect, Bury, Continue, Load, Multicast, Note, Wake
from heliograph.destinations.outstanding import Outstanding
from heliograph.destinations.pages import Entry, Page, entries_of, records_of
from heliograph.destinations.schedule import Schedule
from heliograph.destinations.selective import SelectiveLevel
from heliograph.destinations.sequence import SharedLevel
from heliograph.destinations.waiting import Level, Waiting, number_of
from heliograph.journal.records import RecordKind
from heliograph.model.block import (
    DELIVERIES,
    EXPIRIES,
    PRIORITIES,
    Block,
    Span,
    delivery_times_of,
    expiries_of,
    priority_runs,
)
from heliograph.model.errors import ClientFault
from heliograph.model.ids import ConsumerId, LaneId, SessionId
from heliograph.model.limits import (
    CONSUMER_WINDOW_BYTES,
    DISPATCH_SPANS_PER_TURN,
    MAX_ACK_RANGES,
    MAX_CREDIT,
    MAX_TRANSACTION_BYTES,
    PRIORITY_PREFETCH,
)
from heliograph.model.policy import DEFAULT_POLICY, Policy

UNKNOWN = -1  # which tags an application saw
MAX_TAG = 2**63
UserOf = Callable[[LaneId], str]
Ranges = list[tuple[int, int]]
_TIMED = EXPIRIES | DELIVERIES
_SECOND = 1_000_000
# A message that could not be buried because the disk is full is tried again after so long.
_BURY_AGAIN = 5 * _SECOND
_TOO_OFTEN = "redelivery-limit"


class Consumer:
    """One taker: how much more it wants, and what it has."""

    __slots__ = (
        "credit",
        "identity",
        "next_tag",
        "outstanding",
        "outstanding_bytes",
        "prefetch",
        "prompt",
        "queued",
        "retired",
        "session",
    )

    def __init__(self, identity: ConsumerId, session: SessionId, credit: int, *, prompt: bool) -> None:
        self.identity = identity
        self.session = session
        self.credit = credit
        self.prompt = prompt  # settles each message as it goes
        self.prefetch = MAX_CREDIT
        self.next_tag = 1
        self.outstanding = Outstanding()
        self.outstanding_bytes = 0
        self.queued = False
        self.retired = False

    @property
    def room(self) -> int:
        """How many messages it can be given now."""
        if self.retired:
            return 0
        if self.outstanding_bytes >= (CONSUMER_WINDOW_BYTES if self.prompt else MAX_TRANSACTION_BYTES):
            return 0
        return min(self.credit, self.prefetch - self.outstanding.messages)


class MessageList:
    """Waiting messages by priority, consumers in turn."""

    def __init__(
        self,
        number: int,
        *,
        make_level: Callable[[int], Level],
        user_of: UserOf,
        policy: Policy = DEFAULT_POLICY,
        durable: bool = True,
    ) -> None:
        self.number = number
        self.policy = policy
        self.durable = durable  # whether what happens to it is written down
        self._make_level = make_level
        self._user_of = user_of
        self._levels: dict[int, Level] = {}
        self._order: list[tuple[int, Level]] = []  # highest priority first
        self._turn: deque[Consumer] = deque()
        self.schedule = Schedule()
        self._last_error: dict[int, str] = {}  # of messages that came back with a word why
        self.consumers: dict[ConsumerId, Consumer] = {}
        self.selective = False
        self.paused = False  # an administrator wants nothing handed out
        self.in_flight = 0
        self.delivered = 0
        self.settled = 0

    @property
    def depth(self) -> int:
        """Messages that wait for a consumer, or for their time."""
        return sum(level.messages for _, level in self._order) + self.schedule.messages

    @property
    def backlog(self) -> int:
        """Messages that are not done."""
        return self.depth + self.in_flight

    @property
    def keeps_loaded(self) -> bool:
        return all(level.keeps_loaded for _, level in self._order)

    @property
    def is_hungry(self) -> bool:
        """Whether somebody would take a message now."""
        return bool(self._turn)

    # ---- what arrives

    def level(self, priority: int) -> Level:
        found = self._levels.get(priority)
        if found is None:
            found = self._levels[priority] = self._make_level(priority)
            self._order = [(key, self._levels[key]) for key in sorted(self._levels, reverse=True)]
            for consumer in self.consumers.values():
                self._limit(consumer)
        return found

    def append(self, priority: int, span: Span) -> None:
        """A message arrives behind all others of its priority."""
        level = self.level(priority)
        assert isinstance(level, Waiting | SelectiveLevel)
        level.append(span)

    def sort_by_takers(self, make_selective: Callable[[Waiting], SelectiveLevel]) -> None:
        """Consumers with selectors are there, or others than before."""
        self.selective = True
        for priority, level in self._order:
            if isinstance(level, SelectiveLevel):
                level.takers_changed()
            else:
                assert isinstance(level, Waiting)
                self._levels[priority] = make_selective(level)
        self._order = [(key, self._levels[key]) for key in sorted(self._levels, reverse=True)]

    def set_policy(self, policy: Policy) -> None:
        self.policy = policy
        for consumer in self.consumers.values():
            self._limit(consumer)
            self._queue(consumer)

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
        return MAX_CREDIT if len(self._order) <= 1 else PRIORITY_PREFETCH

    # ---- consumers

    def attach(self, identity: ConsumerId, session: SessionId, credit: int, *, prompt: bool = True) -> None:
        """`prompt`: it settles each message as it goes. One that gathers what it settles is not limited in how much
        it has, or it could never go on."""
        assert identity not in self.consumers, "consumer ids are issued once"
        consumer = self.consumers[identity] = Consumer(identity, session, credit, prompt=prompt)
        self._limit(consumer)
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
        if consumer.queued:
            self._turn.remove(consumer)
        if seen == UNKNOWN:
            self._return(consumer.outstanding.take_all(), effects, now, suspects=1)
        else:
            self._return_seen(consumer, seen, effects, now)

    def retire(self, identity: ConsumerId, effects: list[AnyEffect], now: int, seen: int) -> None:
        """A consumer takes nothing more. What its application saw stays with it; the rest goes back."""
        consumer = self.consumers.get(identity)
        if consumer is None:
            return
        if consumer.queued:
            self._turn.remove(consumer)
            consumer.queued = False
        consumer.retired = True
        self._return_unseen(consumer.outstanding.drop_behind(seen), effects)

    def _queue(self, consumer: Consumer) -> None:
        if not consumer.queued and consumer.room > 0:
            consumer.queued = True
            self._turn.append(consumer)

    # ---- settling

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
    ) -> None:
        """Raises ClientFault for tags that are not outstanding; what came before them in the command
        holds."""
        consumer = self.consumers.get(identity)
        if consumer is None:
            return  # it left while this was under way; its messages have returned already
        spans: list[Span] = []
        try:
            for first, last in ranges:
                spans += consumer.outstanding.take(first, last)
        except ClientFault:
            request = 0  # whoever catches this answers
            raise
        finally:
            for span in spans:
                consumer.outstanding_bytes -= _share(span)
            if returned:
                self._return(spans, effects, now, request=request, error=error)
            else:
                self.finish(spans, effects, request=request)
            if replenish:
                consumer.credit += sum(span.stop - span.start for span in spans)
            self._queue(consumer)

    def take_outstanding(self, identity: ConsumerId, ranges: Ranges) -> list[Span]:
        """Take handed-out messages, which `require_outstanding` has seen, away from a consumer: they are
        decided."""
        consumer = self.consumers[identity]
        spans = [span for first, last in ranges for span in consumer.outstanding.take(first, last)]
        for span in spans:
            consumer.outstanding_bytes -= _share(span)
        consumer.credit += sum(span.stop - span.start for span in spans)
        self._queue(consumer)
        return spans

    def require_outstanding(self, identity: ConsumerId, ranges: Ranges) -> None:
        """Raises ClientFault unless the consumer has all of these."""
        consumer = self.consumers.get(identity)
        if consumer is None:
            raise ClientFault("the consumer is gone, and what it had went back", code="consumer-unknown")
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

    def _return_seen(self, consumer: Consumer, seen: int, effects: list[AnyEffect], now: int) -> None:
        """What the application never saw goes back as if it had not been handed out."""
        saw, never_saw = consumer.outstanding.split(seen)
        self._return_unseen(never_saw, effects)
        self._return(saw, effects, now)

    def _return_unseen(self, never_saw: list[Span], effects: list[AnyEffect]) -> None:
        ranges: Ranges = []
        by_level: dict[int, list[Span]] = {}
        for span in never_saw:
            self.in_flight -= span.stop - span.start
            by_level.setdefault(_priority(span), []).append(span)
            if span.block.persistent:
                _extend(ranges, number_of(span), span.stop - span.start)
        for priority, spans in by_level.items():
            self._levels[priority].put_back(spans)
        self._note(RecordKind.UNSEEN, ranges, 0, effects)

    def finish(
        self, spans: list[Span], effects: list[AnyEffect], *, request: int = 0, note: bool = True
    ) -> Ranges:
        """These were handed out and are done: never again, and their bytes may go. Returns their numbers."""
        ranges: Ranges = []
        for span in spans:
            count = span.stop - span.start
            self.in_flight -= count
            self.settled += count
            self._let_go(span, effects)
            if span.block.persistent:
                _extend(ranges, number_of(span), count)
        if note:
            self._note(RecordKind.DONE, ranges, request, effects)
        return ranges if self.durable else []

    def _let_go(self, span: Span, effects: list[AnyEffect]) -> None:
        level = self._levels[_priority(span)]
        for position, count in records_of(span):
            level.settled(position, count, span.origin, effects)
        if self._last_error:
            for number in range(number_of(span), number_of(span) + span.stop - span.start):
                self._last_error.pop(number, None)

    def _return(
        self,
        spans: list[Span],
        effects: list[AnyEffect],
        now: int,
        *,
        request: int = 0,
        error: str = "",
        suspects: int | None = None,
    ) -> None:
        """Handed out in vain: back to their place, later, or to the dead.

        Only the first `suspects` messages (None: all) can have had their last chance.
        """
        if not spans:
            self._note(RecordKind.RETURNED, [], request, effects)
            return
        ranges: Ranges = []
        again: dict[int, list[Span]] = {}
        dead: list[Span] = []
        policy = self.policy
        limit = policy.redelivery_limit
        ordered = sorted(spans, key=number_of)
        if limit and any(span.deliveries + 1 >= limit for span in ordered):
            ordered = list(_cut_behind(ordered, suspects))
        for span in ordered:
            self.in_flight -= span.stop - span.start
            if error:
                self._last_error[number_of(span)] = error
            is_suspect = suspects is None or suspects > 0
            if suspects is not None:
                suspects -= span.stop - span.start
            if is_suspect and limit and span.deliveries + 1 >= limit:
                dead.append(span)
                continue
            if span.block.persistent:
                _extend(ranges, number_of(span), span.stop - span.start)
            back = Span(span.block, span.start, span.stop, span.deliveries + 1, span.origin)
            delay = policy.delay_before(span.deliveries + 2)
            if delay:
                self._set_aside(now + int(delay * _SECOND), _priority(span), back, effects)
            else:
                again.setdefault(_priority(span), []).append(back)
        for priority, level_spans in again.items():
            self._levels[priority].put_back(level_spans)
        self._note(RecordKind.RETURNED, ranges, request, effects)
        if dead:
            self._bury(dead, _TOO_OFTEN, effects)

    def _note(self, kind: int, ranges: Ranges, request: int, effects: list[AnyEffect]) -> None:
        """Write it down, or, where nothing of it is on disk, answer at once."""
        if ranges and self.durable:
            effects.append(Note(kind, self.number, ranges, request))
        elif request:
            effects.append(Multicast(Answered(request, {})))

    # ---- the dead

    def _bury(self, spans: list[Span], reason: str, effects: list[AnyEffect]) -> None:
        """Move messages, which are neither waiting nor outstanding, to the dead message queue."""
        errors = [self._last_error.get(number_of(span), "") for span in spans]
        effects.append(Bury(self.number, spans, reason, errors))

    def buried(self, spans: list[Span], effects: list[AnyEffect]) -> Ranges:
        """The dead message queue has them. Returns the numbers to be noted as done with the same stroke."""
        ranges: Ranges = []
        for span in spans:
            self.settled += span.stop - span.start
            self._let_go(span, effects)
            if span.block.persistent and self.durable:
                _extend(ranges, number_of(span), span.stop - span.start)
        return ranges

    def not_buried(self, spans: list[Span], reason: str, effects: list[AnyEffect], now: int) -> None:
        """There was no room for them among the dead: they stay, and it is tried again later."""
        ranges: Ranges = []
        for span in spans:
            if reason == _TOO_OFTEN:  # it comes back after all
                span.deliveries += 1
                if span.block.persistent:
                    _extend(ranges, number_of(span), span.stop - span.start)
            self._set_aside(now + _BURY_AGAIN, _priority(span), span, effects)
        self._note(RecordKind.RETURNED, ranges, 0, effects)

    # ---- handing out

    def dispatch(self, effects: list[AnyEffect], now: int) -> None:
        """Give what waits to those who want it, for one turn."""
        if self.paused:
            return
        turn = self._turn
        ranges: Ranges = []
        spans_left = DISPATCH_SPANS_PER_TURN
        idle = 0
        while turn:
            consumer = turn[0]
            if consumer.room <= 0:  # it had some when it queued, but another priority came into use since
                turn.popleft()
                consumer.queued = False
                continue
            priority, span = self._take(consumer, effects)
            if span is None:
                # Its head is being read from the disk; or, with selectors, nothing that waits is for this
                # consumer.
                idle += 1
                if not self.selective or idle >= len(turn):
                    break
                turn.rotate(-1)
                continue
            idle = 0
            block = span.block
            spans_left -= 1
            if block.expiry or block.delivery_time or block.flags & _TIMED:
                timely = self._timely(priority, span, now, effects)
                if timely is None:
                    if not spans_left:
                        effects.append(Continue())
                        break
                    continue
                span = timely
            self._hand_out(consumer, span, effects)
            if block.persistent:
                _extend(ranges, number_of(span), span.stop - span.start)
            turn.popleft()
            if consumer.room > 0:
                turn.append(consumer)
            else:
                consumer.queued = False
            if not spans_left:
                effects.append(Continue())
                break
        self._note(RecordKind.DISPATCHED, ranges, 0, effects)
        if turn:
            self._read_ahead(effects)

    def _take(self, consumer: Consumer, effects: list[AnyEffect]) -> tuple[int, Span | None]:
        """The next messages for a consumer, of the highest priority that has any for it."""
        for priority, level in self._order:
            if level.messages:
                span = level.take(consumer.room, consumer.identity, effects)
                if span is not None or not self.selective:
                    return priority, span
        return 0, None

    def _hand_out(self, consumer: Consumer, span: Span, effects: list[AnyEffect]) -> None:
        count = span.stop - span.start
        tag = consumer.next_tag
        consumer.next_tag = tag + count
        consumer.credit -= count
        consumer.outstanding.add(tag, span)
        consumer.outstanding_bytes += _share(span)
        self.in_flight += count
        self.delivered += count
        effects.append(Multicast(Dispatched(consumer.identity, tag, span, self._user_of(span.block.lane))))

    def _read_ahead(self, effects: list[AnyEffect]) -> None:
        for priority, level in self._order:
            page = level.page_to_load()
            if page is not None:
                effects.append(Load(self.number, priority, page))

    def loaded(self, priority: int, page: Page, buffers: list[bytes]) -> None:
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
        if due[0]:
            self._set_aside(due[0], priority, head, effects)
            return None
        return head

    def _expire(self, span: Span, effects: list[AnyEffect]) -> None:
        self.discard([span], "expired" if self.policy.expired_to_dead else "", effects)

    def put_back(self, spans: list[Span]) -> None:
        """Messages that were taken out and given to nobody return to their places."""
        for span in spans:
            self._levels[_priority(span)].put_back([span])

    def discard(self, spans: list[Span], why_dead: str, effects: list[AnyEffect]) -> None:
        """Messages that were taken out and given to nobody go to the dead, for a reason, or nowhere."""
        if why_dead:
            for span in spans:
                self._bury([span], why_dead, effects)
            return
        self.in_flight += sum(span.stop - span.start for span in spans)  # `finish` takes it off again
        self.finish(spans, effects)

    def _set_aside(self, due: int, priority: int, span: Span, effects: list[AnyEffect]) -> None:
        self.schedule.add(due, priority, span)
        effects.append(Wake(due))

    def time_came(self, now: int) -> None:
        """What is due may go."""
        for priority, what in self.schedule.due(now):
            if isinstance(what, Page):
                self._levels[priority].put_back_cold(what)
            else:
                self._levels[priority].put_back([what])

    def sweep(self, effects: list[AnyEffect], now: int) -> None:
        """Take what is expired, or waited too long, from the head of each level."""
        # Nobody could take anything while it is paused: that is no reason to give it up.
        patience = 0 if self.paused else int(self.policy.undelivered_to_dead_after * _SECOND)
        for priority, level in self._order:
            for _ in range(DISPATCH_SPANS_PER_TURN):
                span = level.take(MAX_CREDIT, NOBODY, effects) if level.messages else None
                if span is None:
                    break
                block = span.block
                if patience and block.timestamp and block.timestamp + patience < now:
                    self._bury([span], "undeliverable", effects)
                elif (timely := self._timely(priority, span, now, effects)) is not None:
                    level.put_back([timely])
                    break
            if patience or level.messages:
                page = level.page_to_load()
                if page is not None:
                    effects.append(Load(self.number, priority, page))

    # ---- recovery, snapshots, moving

    def shared_level(self, priority: int) -> SharedLevel:
        level = self.level(priority)
        assert isinstance(level, SharedLevel)
        return level

    def waiting_pages(self) -> Iterator[tuple[int, Page]]:
        for priority, level in self._levels.items():
            for page in level.cold_pages():
                yield priority, page

    def loaded_entries(self) -> Iterator[tuple[int, Entry]]:
        """Waiting messages that are in memory and in the journal, by priority."""
        for priority, level in self._levels.items():
            for span in level.hot_spans():
                if span.block.persistent:
                    for entry in entries_of(span):
                        yield priority, entry
        yield from self.schedule.entries(spilled=False)

    def outstanding_entries(self) -> Iterator[tuple[int, Entry]]:
        for consumer in self.consumers.values():
            for span in consumer.outstanding.spans():
                if span.block.persistent:
                    for entry in entries_of(span):
                        yield _priority(span), entry

    def all_spans(self) -> Iterator[Span]:
        for _, level in self._order:
            yield from level.hot_spans()
        for consumer in self.consumers.values():
            yield from consumer.outstanding.spans()

    def end(self, effects: list[AnyEffect]) -> None:
        """The list is gone with all that waits in it."""
        for consumer in self.consumers.values():
            for span in consumer.outstanding.take_all():
                self._let_go(span, effects)
        self._let_go_scheduled(effects)
        for _, level in self._order:
            level.leave(effects)

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
        self._let_go_scheduled(effects)
        for _, level in self._order:
            level.purge(effects)
        self._last_error.clear()
        self.settled += count
        done = self._but_outstanding(last) if count else []
        for start in range(0, len(done), MAX_ACK_RANGES):
            self._note(RecordKind.DONE, done[start : start + MAX_ACK_RANGES], 0, effects)
        return count

    def _but_outstanding(self, last: int) -> Ranges:
        """All numbers up to `last` without those that consumers have."""
        taken = [
            (number_of(span), number_of(span) + span.stop - span.start - 1)
            for consumer in self.consumers.values()
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


NOBODY = ConsumerId(b"")  # takes what comes next, to remove it


def spans_by_priority(block: Block, spans: list[tuple[int, int]]) -> Iterator[tuple[int, Span]]:
    """Runs of a block's messages, cut where the priority changes."""
    if not block.flags & PRIORITIES:
        for start, stop in spans:
            yield block.priority, Span(block, start, stop)
        return
    runs = priority_runs(block)
    for start, stop in spans:
        for priority, first, last in runs:
            if first < stop and start < last:
                yield priority, Span(block, max(first, start), min(last, stop))


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


def _share(span: Span) -> int:
    """About how many bytes of its block a span is. The shares of all its parts add up to that of the
    whole."""
    block = span.block
    return block.size * span.stop // block.count - block.size * span.start // block.count


def _priority(span: Span) -> int:
    if not span.block.flags & PRIORITIES:
        return span.block.priority
    for priority, first, stop in priority_runs(span.block):
        if first <= span.start < stop:
            return priority
    raise AssertionError("a span lies inside its block")


def _extend(ranges: Ranges, first: int, count: int) -> None:
    """Add numbers first.. to inclusive ranges, joining neighbours."""
    if ranges and ranges[-1][1] + 1 == first:
        ranges[-1] = (ranges[-1][0], first + count - 1)
    else:
        ranges.append((first, first + count - 1))
