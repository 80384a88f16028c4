"""Looking at what waits without taking it (J9): a walk over what was there when the browser came."""

from __future__ import annotations

from collections import deque

from heliograph.bus.commands import Answered, BrowseEnded, ConsumerAttached, CreditGranted, Dispatched
from heliograph.destinations.effects import AnyEffect, Load, Multicast
from heliograph.destinations.events import PageLoaded
from heliograph.destinations.message_list import MessageList, UserOf
from heliograph.destinations.pages import Page, assemble
from heliograph.destinations.subscriptions import runs_of
from heliograph.model.block import DELIVERIES, EXPIRIES, Span, delivery_times_of, expiries_of
from heliograph.model.ids import ConsumerId
from heliograph.model.selector import Columns, Selector


class Browser:
    """One browser. Its number is negative, so that pages read for it are told from those of lists."""

    def __init__(
        self,
        identity: ConsumerId,
        number: int,
        credit: int,
        selector: Selector | None,
        messages: MessageList,
        user_of: UserOf,
    ) -> None:
        self.identity = identity
        self.number = number
        self._credit = credit
        self._selector = selector
        self._user_of = user_of
        self._next_tag = 1
        self._loading = False
        self._ended = False
        self._ahead: deque[Span | Page] = deque()
        for priority in messages.priorities():
            level = messages.level(priority)
            self._ahead += [span.part(span.start, span.stop) for span in level.hot_spans()]
            self._ahead += level.cold_pages()

    def grant(self, count: int) -> None:
        self._credit += count

    def loaded(self, page: Page, buffers: list[bytes]) -> None:
        self._loading = False
        self._ahead.popleft()
        self._ahead.extendleft(reversed(assemble(page, buffers)))

    def feed(self, effects: list[AnyEffect], now: int) -> None:
        """Show what the browser has credit for."""
        ahead = self._ahead
        while ahead and self._credit and not self._loading:
            item = ahead[0]
            if isinstance(item, Page):
                self._loading = True
                effects.append(Load(self.number, 0, item))
                return
            ahead.popleft()
            if self._selector is not None and not self._is_chosen(item):
                continue
            if not self._is_timely(item, now):
                continue
            count = min(item.stop - item.start, self._credit)
            shown = item.part(item.start, item.start + count)
            if shown.stop < item.stop:
                ahead.appendleft(item.part(shown.stop, item.stop))
            self._credit -= count
            user = self._user_of(item.block.lane)
            effects.append(Multicast(Dispatched(self.identity, self._next_tag, shown, user)))
            self._next_tag += count
        if not ahead and not self._ended:
            self._ended = True
            effects.append(Multicast(BrowseEnded(self.identity)))

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
        self, event: ConsumerAttached, selector: Selector | None, effects: list[AnyEffect], now: int
    ) -> None:
        self._last_number -= 1
        browser = Browser(
            event.consumer, self._last_number, event.credit, selector, self._messages, self._user_of
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
