"""Retained messages: whoever subscribes gets, first of all, the last message of each topic that was to be kept
for that.

It lies in a queue of its own beside the topic (`queue:$retained/TOPIC`), of which only the last message
counts. Here it is looked for: which such queues are there, and what is the last in each. A few are looked into
at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from heliograph.frontends.mqtt.subscriptions import Subscription
from heliograph.frontends.mqtt.topics import retained_pattern
from heliograph.frontends.prepared import opened
from heliograph.frontends.proxy import Answer, Proxy
from heliograph.model.block import Contents
from heliograph.model.destination import RETAINED_PREFIX, Kind
from heliograph.model.limits import MAX_CREDIT, MAX_RETAINED
from heliograph.sessions import commands

_AT_ONCE: Final = 32
_QUEUE: Final = f"{Kind.QUEUE}:{RETAINED_PREFIX}"
Found = Callable[[Subscription, str, Contents, int], None]
"""What to do with a retained message: for whom it is, its topic's address, and where it is."""


class _Look:
    """Into one queue."""

    def __init__(self, subscription: Subscription, queue: str) -> None:
        self.subscription = subscription
        self.queue = queue
        self.last: tuple[Contents, int] | None = None


class Retained:
    """Looks for all subscriptions of one client."""

    def __init__(self, proxy: Proxy, found: Found) -> None:
        self._proxy = proxy
        self._found = found
        self._wanted: deque[tuple[Subscription, str]] = deque()
        self._looking: dict[int, _Look] = {}

    def look_for(self, subscription: Subscription) -> None:
        def listed(answer: Answer) -> None:
            if isinstance(answer, commands.Tell):
                queues: list[Any] = answer.body["destinations"]
                self._wanted.extend((subscription, queue) for queue in queues[:MAX_RETAINED])
                self._go_on()

        pattern = retained_pattern(subscription.meaning)
        self._proxy.command(commands.FindDestinations(self._proxy.ask(listed), pattern))

    def _go_on(self) -> None:
        while self._wanted and len(self._looking) < _AT_ONCE:
            subscription, queue = self._wanted.popleft()
            number = self._proxy.new_consumer()
            self._looking[number] = _Look(subscription, queue)
            request = self._proxy.ask(lambda answer, number=number: self._attached(number, answer))  # type: ignore[misc]
            self._proxy.command(commands.Subscribe(request, number, queue, MAX_CREDIT, browse=True))

    def _attached(self, number: int, answer: Answer) -> None:
        if isinstance(answer, commands.Fail):
            self._looking.pop(number, None)
            self._go_on()

    def handle(self, effect: commands.AnySessionEffect) -> bool:
        """Whether it was for one who looks."""
        if not self._looking or getattr(effect, "consumer", None) not in self._looking:
            return False
        number = effect.consumer  # type: ignore[union-attr]
        look = self._looking[number]
        if isinstance(effect, commands.Deliver | commands.DeliverParcel):
            for _, _, contents in opened(effect):
                look.last = contents, contents.count - 1
        elif isinstance(effect, commands.EndBrowse | commands.EndConsumer):
            self._seen(number, look)
        return True

    def _seen(self, number: int, look: _Look) -> None:
        del self._looking[number]
        self._proxy.command(commands.Unsubscribe(self._proxy.ask(lambda _: None), number))
        if look.last is not None:
            contents, index = look.last
            topic = f"{Kind.TOPIC}:{look.queue.removeprefix(_QUEUE)}"
            self._found(look.subscription, topic, contents, index)
        self._go_on()
