"""Units of order: messages of one name are processed one after the other (U1, U2; docs/decisions/0008).

A list's messages come up in the order of arrival. Here it is decided, message by message and only where there
are units, whether one may go:

    comes up ──its unit is free, or its consumer's own──▶ handed out ──settled──▶ the next of its unit may go
        └──anything earlier of it is handed out elsewhere, or may not go yet──▶ held back in its unit's run

What holds: all that is handed out of a unit is with one consumer; nothing goes while anything earlier of its
unit waits, be it for its time, for a consumer with a fitting selector, or for an administrator; what comes
back takes its old place before everything later. A unit that nothing is handed out or held back of is not
known here at all, so a million of them on disk cost nothing.

Messages that are let go return to their level and come up again as if they had just arrived; until all of
them have, everything later of the unit is held back (`ready`).
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import msgspec

from heliograph.destinations.competing import Consumer
from heliograph.destinations.pages import Page, entries_of
from heliograph.destinations.waiting import Residence, number_of
from heliograph.model.block import Span
from heliograph.model.limits import UNIT_HELD_MESSAGES, UNIT_STRIDE

FAR = 2**63
Keys = Sequence[int]
PriorityOf = Callable[[Span], int]
Given = list[tuple[Consumer, Span]]
Offer = tuple[Span, Consumer | None]
"""Messages that may be handed out, and the only consumer that may have them, if it has to be one."""


class Unit(msgspec.Struct, eq=False, gc=False):
    """What is known of a unit while anything of it is handed out, held back or not yet allowed to go.

    There may be a million: no field costs memory before it is used, and none refers back to a unit.
    """

    owner: Consumer | None = None
    outstanding: int = 0
    ready: int = 0  # messages that were let go and have not come up again
    ready_last: int = 0  # the number of the last of them
    offered: int = 0  # the number of the only one that consumers with selectors may take
    asides: list[int] | None = None  # the numbers of messages that wait for their time
    burying: int = 0  # messages on their way to the dead
    stopped: int = 0  # the number of a head that waits for an administrator
    excused: int = 0  # the number of one that an administrator wants to be tried once more
    is_unfit: bool = False  # what comes next does not match the selector of the consumer that has it
    run: deque[Span] | None = None  # held back, by number
    cold: deque[tuple[int, Page]] | None = None  # the same on disk only, by priority

    def put_aside(self, number: int) -> None:
        """A message waits for its time."""
        if not self.asides:
            self.asides = [number]
        elif number not in self.asides:
            insort(self.asides, number)

    @property
    def lowest_held(self) -> int:
        """The number of the first message that is held back, 0 if there is none."""
        hot = number_of(self.run[0]) if self.run else 0
        cold = self.cold[0][1].first if self.cold else 0
        return min(hot, cold) if hot and cold else hot or cold

    @property
    def aside(self) -> int:
        """The number of the first message that waits for its time, 0 if none does."""
        return self.asides[0] if self.asides else 0

    @property
    def is_idle(self) -> bool:
        return not (
            self.outstanding
            or self.run
            or self.cold
            or self.ready
            or self.asides
            or self.burying
            or self.stopped
        )


class Units:
    """The units of one list."""

    def __init__(self, residence: Residence, priority_of: PriorityOf) -> None:
        self._residence = residence
        self._priority_of = priority_of
        self._units: dict[int, Unit] = {}
        self.one_by_one = False  # what is let go would come up in another order than it arrived in
        self._may_stop = False  # whether any unit ever stopped
        self._hot = 0  # messages in runs, in memory
        self._cold = 0
        # Whether something that was offered to one consumer is now for all.
        self.has_freed_offers = False
        self.has_overtaken = False  # whether something was let go before something earlier was held back
        self.released: list[Span] = []  # to be put back by whoever called
        self.released_cold: list[tuple[int, Page]] = []

    def __len__(self) -> int:
        return len(self._units)

    @property
    def messages(self) -> int:
        """How many are held back."""
        return self._hot + self._cold

    @property
    def stopped(self) -> int:
        """How many units wait for an administrator."""
        return sum(1 for unit in self._units.values() if unit.stopped) if self._may_stop else 0

    def owner_of(self, key: int) -> Consumer | None:
        unit = self._units.get(key)
        return unit.owner if unit is not None else None

    def is_overtaken(self, key: int) -> bool:
        """Whether something of a unit was let go that is not the first to go any more."""
        unit = self._units.get(key)
        return unit is not None and unit.ready > 0 and 0 < unit.lowest_held < unit.ready_last

    # ---- coming up

    def route(self, span: Span, keys: Keys, taker: Consumer, *, hand_over: bool) -> Given:
        """Who gets which messages of a span that came up for `taker`, in order; the rest is held back.

        `hand_over`: whether somebody else than the taker may be given any.
        """
        given: Given = []
        units = self._units
        promised: dict[Consumer, int] = {}
        for start, stop, key in segments(span, keys):
            unit = units.get(key)
            if not key:
                _give(given, taker, span, start, stop)
            elif unit is None:
                unit = units[key] = Unit()
                unit.owner = taker
                unit.outstanding = stop - start
                _give(given, taker, span, start, stop)
            else:
                self._admit(key, unit, span, start, stop, taker, hand_over, given, promised)
        return given

    def _admit(
        self,
        key: int,
        unit: Unit,
        span: Span,
        start: int,
        stop: int,
        taker: Consumer,
        hand_over: bool,
        given: Given,
        promised: dict[Consumer, int],
    ) -> None:
        while start < stop:
            end = self._allowed(unit, span.block.number, start, stop)
            if end == start:
                self._hold_back(key, unit, span.part(start, stop))
                return
            owner = unit.owner
            if owner is None:
                owner = unit.owner = taker
                if unit.run or unit.cold:
                    owner.held_units[key] = None
            if owner is not taker:
                room = owner.room - promised.get(owner, 0) if hand_over else 0
                if room <= 0:
                    self._hold_back(key, unit, span.part(start, stop))
                    return
                end = min(end, start + room)
                promised[owner] = promised.get(owner, 0) + end - start
            self._came_up(unit, span.block.number + start, end - start)
            unit.outstanding += end - start
            _give(given, owner, span, start, end)
            start = end

    def _allowed(self, unit: Unit, number: int, start: int, stop: int) -> int:
        """Up to where messages start..stop of one unit have nothing of it before them."""
        first = number + start
        if unit.stopped or unit.burying:
            return start
        if unit.ready:
            if first > unit.ready_last:
                return start
            stop = min(stop, unit.ready_last - number + 1)
        if unit.aside and first > unit.aside:
            return start
        if unit.aside:
            stop = min(stop, unit.aside - number + 1)
        held = unit.lowest_held
        if held:
            stop = min(stop, max(held - number, start))
        return stop

    def _came_up(self, unit: Unit, first: int, count: int) -> None:
        """Messages of a unit have left their level."""
        if first <= unit.offered < first + count:
            unit.offered = 0
        waited = 0
        if unit.asides:
            waiting = [number for number in unit.asides if not first <= number < first + count]
            waited = len(unit.asides) - len(waiting)
            unit.asides = waiting
        if unit.ready and first <= unit.ready_last:
            unit.ready -= min(count - waited, unit.ready_last - first + 1, unit.ready)

    def _hold_back(self, key: int, unit: Unit, span: Span) -> None:
        """Messages that came up may not go. When all that were let go have come up, the first is let go anew."""
        self._came_up(unit, number_of(span), span.stop - span.start)
        self._hold(key, unit, span)
        if unit.ready:
            return
        if unit.owner is None:
            self._let_go(unit)
        elif not unit.is_unfit and unit.owner.room > 0:
            self._let_go(unit, unit.owner.room)

    def _hold(self, key: int, unit: Unit, span: Span, *, keep_loaded: bool = False) -> None:
        """Keep messages, which are in no level now, until what is before them is done.

        `keep_loaded`: they were handed out, so they are few, and come up again before the others.
        """
        if unit.owner is not None:
            unit.owner.held_units[key] = None
        if self.one_by_one and unit.ready and number_of(span) < unit.ready_last:
            self.has_overtaken = True  # what was let go waits for somebody who wants it, perhaps for ever
        self._keep(unit, span, keep_loaded=keep_loaded)

    def _keep(self, unit: Unit, span: Span, *, keep_loaded: bool) -> None:
        """In order of number, behind everything in memory on disk only where memory is short."""
        run, number = unit.run, number_of(span)
        is_crowded = self._hot >= UNIT_HELD_MESSAGES or self._residence.used >= self._residence.limit
        last = max(number_of(run[-1]) if run else 0, unit.cold[-1][1].next - 1 if unit.cold else 0)
        may_go_cold = span.block.position and not keep_loaded and not self.one_by_one and last < number
        if may_go_cold and (unit.cold or is_crowded):
            self._keep_cold(unit, span)
            return
        self._hot += span.stop - span.start
        if run is None:
            run = unit.run = deque()
        if run and number < number_of(run[-1]):
            unit.run = deque(sorted([*run, span], key=number_of))
        else:
            run.append(span)

    def _keep_cold(self, unit: Unit, span: Span) -> None:
        if unit.cold is None:
            unit.cold = deque()
        priority = self._priority_of(span)
        behind = number_of(unit.run[-1]) if unit.run else 0
        self._cold += span.stop - span.start
        for entry in entries_of(span):
            at, page = unit.cold[-1] if unit.cold else (priority, None)
            if page is None or at != priority or page.full or page.next <= behind or not page.suits(span):
                page = Page(span.deliveries, span.origin)
                unit.cold.append((priority, page))
            size = span.block.size * entry.messages // span.block.count
            page.append(
                entry.number,
                entry.position,
                entry.start,
                entry.messages,
                size,
                persistent=span.block.persistent,
            )

    # ---- being offered

    def screen(self, span: Span, keys: Keys) -> list[Offer]:
        """What of a span may be offered to consumers: of each unit the first, and no more before that has come
        up. It is for the consumer that has something of the unit, if one has. The rest is held back."""
        offers: list[Offer] = []
        for start, stop, key in segments(span, keys):
            if not key:
                _offer(offers, span, start, stop, None)
                continue
            unit = self._units.setdefault(key, Unit())
            end = self._allowed(unit, span.block.number, start, stop)
            number = span.block.number + start
            if end > start and self._may_be_offered(unit, number):
                end = start + 1
                unit.offered = number
                if unit.asides and number in unit.asides:
                    unit.asides.remove(number)
                if not unit.ready:
                    unit.ready, unit.ready_last = 1, number
            else:
                end = start
            if end < stop:
                self._hold_back(key, unit, span.part(end, stop))
            if start < end:
                _offer(offers, span, start, end, unit.owner)
        return offers

    def _may_be_offered(self, unit: Unit, number: int) -> bool:
        """Whether nothing else of a unit is offered. One whose time has come takes its turn behind what was let go:
        that is looked at next, is found not to be the first any more, and makes way."""
        if unit.ready and unit.asides and number in unit.asides:
            return False
        return unit.offered in (0, number)

    def unfit(self, span: Span, keys: Keys) -> None:
        """Offered messages are for one consumer only, whose selector does not want them."""
        for start, stop, key in segments(span, keys):
            unit = self._units[key]
            unit.is_unfit = True
            self._hold_back(key, unit, span.part(start, stop))

    # ---- leaving

    def completed(self, span: Span, keys: Keys) -> None:
        """Messages that were handed out are done."""
        units = self._units
        for start, stop, key in segments(span, keys):
            if key:
                unit = units[key]
                unit.outstanding -= stop - start
                if not unit.outstanding:
                    self._advance(key, unit)

    def came_back(self, span: Span, keys: Keys) -> None:
        """Messages that were handed out are held back again, at the head of their units."""
        for start, stop, key in segments(span, keys):
            unit = self._units[key]
            unit.outstanding -= stop - start
            unit.is_unfit = False  # something else comes next
            self._hold(key, unit, span.part(start, stop), keep_loaded=True)

    def set_aside(self, key: int, span: Span) -> None:
        """A message that was about to be handed out may not go yet; it comes up again when its time has come."""
        unit = self._units[key]
        unit.outstanding -= 1
        unit.put_aside(number_of(span))
        if not unit.outstanding:
            self._advance(key, unit)

    def settle(self, keys: Keys) -> None:
        """Let go of what may go now, of units that messages came back to."""
        for key in dict.fromkeys(keys):
            unit = self._units.get(key)
            if unit is not None and not unit.outstanding:
                self._advance(key, unit)

    def take_head(self, key: int) -> Span | None:
        """The first message that is held back, taken away: it has to wait for its time."""
        unit = self._units[key]
        if not unit.run or unit.lowest_held != number_of(unit.run[0]):
            return None
        first = unit.run[0]
        head = first.part(first.start, first.start + 1)
        if first.stop - first.start > 1:
            unit.run[0] = first.part(first.start + 1, first.stop)
        else:
            unit.run.popleft()
        self._hot -= 1
        return head

    def given_up(self, span: Span, keys: Keys) -> None:
        """Messages that were handed out came back and will not be handed out again."""
        for start, stop, key in segments(span, keys):
            self._units[key].outstanding -= stop - start

    def put_aside(self, key: int, number: int) -> None:
        """The head of a unit waits for its time; it comes up again when that has come."""
        unit = self._units.get(key)
        if unit is None:
            unit = self._units[key] = Unit()
        unit.put_aside(number)

    def left(self, span: Span, keys: Keys) -> None:
        """Messages that waited in a level are gone from there without having come up."""
        for start, stop, key in segments(span, keys):
            unit = self._units.get(key) if key else None
            if unit is not None:
                self._came_up(unit, span.block.number + start, stop - start)
                if not unit.outstanding:
                    self._advance(key, unit)

    def bury(self, span: Span, keys: Keys) -> None:
        """Messages, neither waiting nor handed out, are on their way to the dead: nothing of their units goes
        meanwhile."""
        for start, stop, key in segments(span, keys):
            if key:
                unit = self._units.get(key)
                if unit is None:
                    unit = self._units[key] = Unit()
                unit.burying += stop - start

    def buried(self, span: Span, keys: Keys) -> None:
        """They are there, or could not go there."""
        for start, stop, key in segments(span, keys):
            if key:
                unit = self._units[key]
                unit.burying -= stop - start
                if not unit.outstanding:
                    self._advance(key, unit)

    def stop(self, key: int, number: int) -> None:
        """The head of a unit failed too often: the unit waits for an administrator."""
        self._units[key].stopped = number
        self._may_stop = True

    def stop_again(self, key: int, span: Span) -> bool:
        """A message that failed too often comes up, as after a restart. Whether that stops its unit."""
        unit = self._units.setdefault(key, Unit())
        number = number_of(span)
        if (
            unit.excused == number
            or self._allowed(unit, span.block.number, span.start, span.stop) == span.start
        ):
            return False
        self._came_up(unit, number, 1)
        self._hold(key, unit, span, keep_loaded=True)
        unit.stopped = number
        self._may_stop = True
        return True

    def resume(self, key: int) -> bool:
        """An administrator wants a stopped unit to go on. Whether it was stopped."""
        unit = self._units.get(key)
        if unit is None or not unit.stopped:
            return False
        unit.excused, unit.stopped = unit.stopped, 0
        if not unit.outstanding:
            self._advance(key, unit)
        return True

    def give_up(self, key: int) -> Span | None:
        """An administrator gives up the message for which a unit stopped: it is taken away, to be buried."""
        unit = self._units.get(key)
        if unit is None or not unit.stopped:
            return None
        unit.stopped = 0
        return self.take_head(key)

    def forget_waiting(self) -> None:
        """Nothing waits any more but what was handed out."""
        self._hot = self._cold = 0
        for key, unit in list(self._units.items()):
            unit.run = unit.cold = None
            unit.ready = unit.offered = unit.stopped = 0
            unit.asides = None
            if unit.is_idle:
                del self._units[key]

    def let_all_go(self, *, keep_asides: bool) -> None:
        """Forget all units; what is held back may come up again. `keep_asides`: but for what waits for its time."""
        self.released += [span for unit in self._units.values() for span in unit.run or ()]
        self.released_cold += [item for unit in self._units.values() for item in unit.cold or ()]
        waiting = {key: unit.asides for key, unit in self._units.items() if unit.asides}
        self._units.clear()
        self._hot = self._cold = 0
        for key, asides in waiting.items() if keep_asides else ():
            self._units[key] = Unit()
            self._units[key].asides = asides

    def passed_on(self, span: Span, keys: Keys, owner: Consumer) -> None:
        """Handed-out messages are with somebody else now, and so are their units, whoever else has something of
        them."""
        for _, _, key in segments(span, keys):
            if key:
                unit = self._units[key]
                if unit.owner is not None:
                    unit.owner.held_units.pop(key, None)
                unit.owner = owner
                unit.is_unfit = False

    def restore(self, span: Span, keys: Keys, owner: Consumer | None) -> None:
        """Messages that a consumer has count for these units."""
        for start, stop, key in segments(span, keys):
            if key:
                unit = self._units.setdefault(key, Unit())
                if unit.owner is None or not unit.owner.is_transaction:
                    unit.owner = owner
                unit.outstanding += stop - start

    # ---- letting go

    def feed(self, consumer: Consumer) -> None:
        """A consumer has room: it may have more of the units that it has something of."""
        room = consumer.room
        for key in list(consumer.held_units):
            unit = self._units.get(key)
            if unit is None or unit.owner is not consumer or not unit.lowest_held:
                del consumer.held_units[key]
            elif not unit.ready and not unit.is_unfit and room > 0:
                self._let_go(unit, room)
                room -= unit.ready

    def _advance(self, key: int, unit: Unit) -> None:
        """Nothing of a unit is handed out any more."""
        if unit.owner is not None:
            unit.owner.held_units.pop(key, None)
            unit.owner = None
            unit.is_unfit = False
            self.has_freed_offers |= unit.ready > 0
        if unit.run or unit.cold:
            if not unit.ready:
                self._let_go(unit)
        elif unit.is_idle:
            del self._units[key]

    def _let_go(self, unit: Unit, limit: int = UNIT_STRIDE) -> None:
        """The first messages that are held back may come up again, all of one priority so that they do so in
        order."""
        if unit.stopped or unit.burying or (unit.aside and unit.aside < unit.lowest_held):
            return
        if unit.cold and (not unit.run or unit.cold[0][1].first < number_of(unit.run[0])):
            self._let_go_cold(unit, unit.cold)
        else:
            assert unit.run
            self._let_go_hot(unit, unit.run, 1 if self.one_by_one else limit)

    def _let_go_cold(self, unit: Unit, cold: deque[tuple[int, Page]]) -> None:
        priority, page = cold.popleft()
        if unit.aside and page.next > unit.aside:
            cold.appendleft((priority, page.between(unit.aside + 1, page.next)))
            page = page.between(page.first, unit.aside - 1)
        self._cold -= page.messages
        self.released_cold.append((priority, page))
        unit.ready, unit.ready_last = page.messages, page.next - 1

    def _let_go_hot(self, unit: Unit, run: deque[Span], limit: int) -> None:
        """Up to what is on disk, or waits for its time."""
        priority = self._priority_of(run[0])
        barrier = min(unit.cold[0][1].first if unit.cold else FAR, unit.aside or FAR)
        count = 0
        while run and count < limit and number_of(run[0]) < barrier and self._priority_of(run[0]) == priority:
            span = run.popleft()
            stop = min(span.stop, span.start + limit - count, barrier - span.block.number)
            if stop < span.stop:
                run.appendleft(span.part(stop, span.stop))
                span = span.part(span.start, stop)
            count += span.stop - span.start
            self.released.append(span)
            unit.ready_last = span.block.number + span.stop - 1
        self._hot -= count
        unit.ready = count

    # ---- for those who look

    def hot_spans(self) -> Iterator[Span]:
        for unit in self._units.values():
            if unit.run:
                yield from unit.run

    def pages(self) -> Iterator[tuple[int, Page]]:
        for unit in self._units.values():
            if unit.cold:
                yield from unit.cold

    def items(self) -> Iterator[tuple[int, Unit]]:
        return iter(self._units.items())


def segments(span: Span, keys: Keys) -> Iterator[tuple[int, int, int]]:
    """Runs of a span's messages with one unit: start, stop, unit."""
    start, stop = span.start, span.stop
    if stop - start == 1:
        yield start, stop, keys[0]
        return
    begin, current = start, keys[0]
    for index, key in enumerate(keys, start):
        if key != current:
            yield begin, index, current
            begin, current = index, key
    yield begin, stop, current


def _give(given: Given, consumer: Consumer, span: Span, start: int, stop: int) -> None:
    if given and given[-1][0] is consumer and given[-1][1].stop == start:
        given[-1][1].stop = stop
    else:
        given.append((consumer, span.part(start, stop)))


def _offer(offers: list[Offer], span: Span, start: int, stop: int, owner: Consumer | None) -> None:
    if offers and offers[-1][0].stop == start and offers[-1][1] is owner:
        offers[-1][0].stop = stop
    else:
        offers.append((span.part(start, stop), owner))
