"""Looking at what waits without taking it (J9): a walk over what was there when the browser came."""

from __future__ import annotations

from collections import deque

from heliograph.bus.commands import BrowseEnded, Dispatched
from heliograph.destinations.effects import AnyEffect, Load, Multicast
from heliograph.destinations.message_list import MessageList, UserOf
from heliograph.destinations.pages import Page, assemble
from heliograph.model.block import Span
from heliograph.model.ids import ConsumerId


class Browser:
    """One browser. Its number is negative, so that pages read for it are told from those of lists."""

    def __init__(self, identity: ConsumerId, number: int, credit: int, messages: MessageList, user_of: UserOf) -> None:
        self.identity = identity
        self.number = number
        self._credit = credit
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

    def feed(self, effects: list[AnyEffect]) -> None:
        """Show what the browser has credit for."""
        ahead = self._ahead
        while ahead and self._credit and not self._loading:
            item = ahead[0]
            if isinstance(item, Page):
                self._loading = True
                effects.append(Load(self.number, 0, item))
                return
            ahead.popleft()
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
