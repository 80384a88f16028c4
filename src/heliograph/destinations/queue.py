"""A queue: each message to exactly one consumer (J1)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from heliograph.bus.commands import (
    Answered,
    ConsumerAttached,
    ConsumerDetached,
    CreditGranted,
    Rejected,
    Settled,
)
from heliograph.destinations.browsing import Browsers
from heliograph.destinations.competing import Consumer
from heliograph.destinations.destination import Destination
from heliograph.destinations.effects import AnyEffect, Multicast
from heliograph.destinations.events import PageLoaded
from heliograph.destinations.message_list import MessageList, UserOf
from heliograph.destinations.pages import Page
from heliograph.destinations.placing import cut, runs_in_queue
from heliograph.destinations.selective import SelectiveLevel, Takers
from heliograph.destinations.sorted_level import SortedLevel
from heliograph.destinations.waiting import Residence, Waiting
from heliograph.model.block import Block
from heliograph.model.destination import Address
from heliograph.model.errors import ClientFault
from heliograph.model.ids import ConsumerId
from heliograph.model.limits import MESSAGES_SEARCHED_FOR_OLDEST
from heliograph.model.selector import Selector, parse_selector


class Queue(Destination):
    """One list, for which consumers compete."""

    def __init__(self, address: Address, number: int, *, residence: Residence, user_of: UserOf) -> None:
        super().__init__(address, number, residence=residence, user_of=user_of)
        self._takers = Takers()
        self.messages = MessageList(
            0,
            make_level=self._make_level,
            make_sorted=lambda keys: SortedLevel(keys, self._takers, residence, self.messages.owner_of),
            user_of=user_of,
            residence=residence,
        )
        self._lists = (self.messages,)
        self._browsers = Browsers(self.messages, user_of)

    def _make_level(self, _priority: int) -> Waiting | SelectiveLevel:
        level = Waiting(self._residence)
        return self._make_selective(level) if self._takers.any_selective else level

    def _make_selective(self, level: Waiting) -> SelectiveLevel:
        return SelectiveLevel(self._takers, self._residence, level, self.messages)

    def lists(self) -> Iterator[MessageList]:
        return iter(self._lists)

    def list_by_number(self, number: int) -> MessageList | None:
        return self.messages if number == 0 else None

    def list_of(self, consumer: ConsumerId) -> MessageList | None:
        return self.messages if consumer in self.messages.consumers else None

    def wants(self, _block: Block) -> bool:
        return True

    def _has_rules(self, _messages: MessageList) -> bool:
        return True

    def add(self, block: Block, _effects: list[AnyEffect], _now: int) -> int:
        for priority, span in cut(block, runs_in_queue(block), [(0, block.count)]):
            self.messages.append(priority, span)
        return block.count

    def held(self) -> int:
        messages = self.messages
        return messages.depth + messages.in_flight + sum(block.count for block in self.intake.pending)

    def oldest_number(self) -> int:
        messages = self.messages
        count = messages.depth + messages.in_flight
        if not count:
            return self.intake.next_number
        spans = list(islice(messages.all_spans(), MESSAGES_SEARCHED_FOR_OLDEST))
        pages = [page for _, page in messages.waiting_pages()]
        found = sum(span.stop - span.start for span in spans) + sum(page.messages for page in pages)
        if found < count:  # there are more, or some that wait for their time
            return 0
        numbers = [span.block.number + span.start for span in spans]
        return min(numbers + [page.oldest for page in pages])

    def consumers(self) -> list[ConsumerId]:
        return [*super().consumers(), *self._browsers.consumers()]

    def begin_pulling(self, identity: ConsumerId, selector: Selector | None) -> None:
        """Somebody who is no consumer is sorted for like one, and takes by itself."""
        self.messages.begin_pulling()
        self._takers.add(identity, selector)
        self.messages.sort_by_takers(self._make_selective)

    def end_pulling(self, identity: ConsumerId) -> None:
        self._takers.remove(identity)
        self.messages.sort_by_takers(self._make_selective)
        self.messages.end_pulling()
        self.regate_list(self.messages, [])

    def restore(self, priority: int, pages: list[Page]) -> None:
        """What recovery found to wait."""
        if self.messages.is_sorted:
            self.messages.restore_unsorted(priority, pages)
            return
        level = self.messages.level(priority)
        assert isinstance(level, Waiting), "consumers come later"
        level.restore(pages)

    def _dispatch(self, effects: list[AnyEffect], now: int) -> None:
        self.messages.dispatch(effects, now)

    def _attached(self, event: ConsumerAttached, effects: list[AnyEffect], now: int) -> None:
        try:
            selector = parse_selector(event.selector)
        except ClientFault as fault:
            effects.append(Multicast(Rejected(event.request, fault.code, fault.sentence)))
            return
        if event.browse:
            self._browsers.attach(event, selector, self.intake.next_number - 1, effects, now)
            return
        if event.consumer in self.messages.consumers:
            effects.append(Multicast(Answered(event.request, {})))  # asked again
            return
        self._takers.add(event.consumer, selector)
        if self._takers.any_selective or self.messages.selective:
            self.messages.sort_by_takers(self._make_selective)
        self.messages.attach(
            event.consumer, event.session, event.credit, prompt=event.prompt, claim=event.claim
        )
        effects.append(Multicast(Answered(event.request, self.how_it_stands)))
        self.messages.dispatch(effects, now)

    def restore_consumer(self, event: ConsumerAttached, _list_number: int) -> Consumer | None:
        if event.browse:
            return None
        self._takers.add(event.consumer, parse_selector(event.selector))
        if self._takers.any_selective or self.messages.selective:
            self.messages.sort_by_takers(self._make_selective)
        return self.messages.attach(event.consumer, event.session, 0, prompt=event.prompt)

    def _credit_granted(self, event: CreditGranted, effects: list[AnyEffect], now: int) -> None:
        if event.consumer in self._browsers:
            self._browsers.grant(event, effects, now)
        else:
            super()._credit_granted(event, effects, now)

    def _settled(self, event: Settled, effects: list[AnyEffect], now: int) -> None:
        if event.consumer not in self._browsers:  # what was only looked at needs no settling
            super()._settled(event, effects, now)

    def _leave(self, event: ConsumerDetached, effects: list[AnyEffect], now: int) -> None:
        self._browsers.detach(event.consumer)
        self.messages.detach(event.consumer, effects, now, event.seen)
        self._takers.remove(event.consumer)
        if self.messages.selective:
            self.messages.sort_by_takers(self._make_selective)
        if event.request:
            effects.append(Multicast(Answered(event.request, {})))

    def _page_loaded(self, event: PageLoaded, effects: list[AnyEffect], now: int) -> None:
        if event.list_number < 0:
            self._browsers.loaded(event, effects, now)
            return
        self.messages.loaded(event.priority, event.page, event.buffers)
        self.messages.dispatch(effects, now)
        self._retain(effects, now)
