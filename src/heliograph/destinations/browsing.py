"""Looking at what waits without taking it (J9): a walk over what was there when the browser came."""

from __future__ import annotations

from collections import deque

from heliograph.bus.commands import Answered, BrowseEnded, ConsumerAttached, CreditGranted, Dispatched
from heliograph.destinations.effects import AnyEffect, Load, Multicast
from heliograph.destinations.events import PageLoaded
from heliograph.destinations.message_list import MessageList, UserOf
from heliograph.destinations.pages import Page, assemble
from heliograph.destinations.subscriptions import runs_of
from heliograph.destinations.waiting import number_of
from heliograph.model.block import DELIVERIES, EXPIRIES, Span, delivery_times_of, expiries_of
from heliograph.model.ids import ConsumerId
from heliograph.model.selector import Columns, Selector


class Browser:
    """One browser. Its number is negative, so that pages read for it are told from those of lists.

    It keeps nothing but its place, priority by priority: what waits may be done, and its record gone, before
    the browser comes to it.
    """

    def __init__(
        self,
        identity: ConsumerId,
        number: int,
        credit: int,
        selector: Selector | None,
        messages: MessageList,
        until: int,
        user_of: UserOf,
    ) -> None:
        self.identity = identity
        self.number = number
        self._credit = credit
        self._selector = selector
        self._messages = messages
        self._user_of = user_of
        self._next_tag = 1
        self._loading = False
        self._ended = False
        self._until = until  # what has a higher number came later
        self._passed = 0  # what has a lower number, or this, was looked at
        self._priorities = deque(messages.priorities())
        self._found: deque[Span | Page] = deque()  # to be looked at
        self._ahead: deque[Span] = deque()  # to be shown next

    def grant(self, count: int) -> None:
        self._credit += count

    def loaded(self, page: Page, buffers: list[bytes]) -> None:
        self._loading = False
        if buffers:  # otherwise it was done, and its record went, before it could be read
            self._ahead.extend(assemble(page, buffers))

    def feed(self, effects: list[AnyEffect], now: int) -> None:
        """Show what the browser has credit for."""
        while self._credit and not self._loading and (self._ahead or self._look(effects)):
            if self._ahead:
                self._show(effects, now)
        self._found = deque()  # until next time anything may become of it
        if not self._ahead and not self._priorities and not self._loading and not self._ended:
            self._ended = True
            effects.append(Multicast(BrowseEnded(self.identity)))

    def _look(self, effects: list[AnyEffect]) -> bool:
        """Find what comes next, or have it read. False: there is no more."""
        while self._priorities:
            found = self._found = self._found or self._gather(self._priorities[0])
            while found:
                item = found.popleft()
                if isinstance(item, Page):
                    # Only up to the next that is elsewhere, so that all are seen in order.
                    stop = _first(found[0]) if found else self._until + 1
                    part = item.between(self._passed + 1, stop - 1)
                    if found and item.next > stop:
                        found.insert(1, item)
                    if len(part):
                        self._read(part, effects)
                        return True
                elif (span := _between(item, self._passed + 1, self._until)) is not None:
                    self._ahead.append(span)
                    self._passed = number_of(span) + span.stop - span.start - 1
                    return True
            self._priorities.popleft()
            self._passed = 0
        return False

    def _gather(self, priority: int) -> deque[Span | Page]:
        """What waits there now and was not looked at, in order."""
        level = self._messages.level(priority)
        found: list[Span | Page] = [
            span for span in level.hot_spans() if self._passed < span.block.number + span.stop - 1
        ]
        found += [page for page in level.cold_pages() if self._passed < page.next - 1]
        found += self._messages.elsewhere_behind(self._passed, priority)
        found = [item for item in found if _first(item) <= self._until]
        return deque(sorted(found, key=_first))

    def _read(self, page: Page, effects: list[AnyEffect]) -> None:
        self._loading = True
        self._passed = page.next - 1
        effects.append(Load(self.number, 0, page))

    def _show(self, effects: list[AnyEffect], now: int) -> None:
        span = self._ahead.popleft()
        if self._selector is not None and not self._is_chosen(span):
            return
        if not self._is_timely(span, now):
            return
        count = min(span.stop - span.start, self._credit)
        shown = span.part(span.start, span.start + count)
        if shown.stop < span.stop:
            self._ahead.appendleft(span.part(shown.stop, span.stop))
        self._credit -= count
        user = self._user_of(span.block.lane)
        effects.append(Multicast(Dispatched(self.identity, self._next_tag, shown, user)))
        self._next_tag += count

    def _is_chosen(self, span: Span) -> bool:
        """Whether all of a span matches. If not, the parts that do take its place."""
        assert self._selector is not None
        return self._is_whole(span, self._selector.select(Columns(span.block)))

    def _is_timely(self, span: Span, now: int) -> bool:
        """The same for the messages whose time has come and has not passed (JMS 2.0, 4.1.6)."""
        block = span.block
        if not (block.expiry or block.delivery_time or block.flags & (EXPIRIES | DELIVERIES)):
            return True
        times = zip(expiries_of(span), delivery_times_of(span), strict=True)
        timely = [
            index
            for index, (expiry, due) in enumerate(times, span.start)
            if due <= now and (not expiry or expiry > now)
        ]
        return self._is_whole(span, timely)

    def _is_whole(self, span: Span, chosen: list[int]) -> bool:
        runs = [(max(low, span.start), min(high, span.stop)) for low, high in runs_of(chosen)]
        runs = [(low, high) for low, high in runs if low < high]
        if runs == [(span.start, span.stop)]:
            return True
        self._ahead.extendleft(span.part(low, high) for low, high in reversed(runs))
        return False


def _first(item: Span | Page) -> int:
    return item.first if isinstance(item, Page) else number_of(item)


def _between(span: Span, first: int, last: int) -> Span | None:
    """The messages of a span with numbers first..last."""
    start = max(span.start, first - span.block.number)
    stop = min(span.stop, last - span.block.number + 1)
    return span.part(start, stop) if start < stop else None


class Browsers:
    """The browsers of a queue."""

    def __init__(self, messages: MessageList, user_of: UserOf) -> None:
        self._messages = messages
        self._user_of = user_of
        self._by_consumer: dict[ConsumerId, Browser] = {}
        self._last_number = 0

    def __contains__(self, consumer: ConsumerId) -> bool:
        return consumer in self._by_consumer

    def consumers(self) -> list[ConsumerId]:
        return list(self._by_consumer)

    def attach(
        self,
        event: ConsumerAttached,
        selector: Selector | None,
        until: int,
        effects: list[AnyEffect],
        now: int,
    ) -> None:
        """`until`: the number of the last message that was accepted."""
        self._last_number -= 1
        browser = Browser(
            event.consumer, self._last_number, event.credit, selector, self._messages, until, self._user_of
        )
        self._by_consumer[event.consumer] = browser
        effects.append(Multicast(Answered(event.request, {})))
        browser.feed(effects, now)

    def grant(self, event: CreditGranted, effects: list[AnyEffect], now: int) -> None:
        browser = self._by_consumer[event.consumer]
        browser.grant(event.count)
        browser.feed(effects, now)

    def detach(self, consumer: ConsumerId) -> None:
        self._by_consumer.pop(consumer, None)

    def loaded(self, event: PageLoaded, effects: list[AnyEffect], now: int) -> None:
        for browser in self._by_consumer.values():
            if browser.number == event.list_number:
                browser.loaded(event.page, event.buffers)
                browser.feed(effects, now)
