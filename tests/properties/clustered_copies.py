"""Messages in the world of clustered members: the copies that a middleware keeps for each name, and what becomes of
them.

A copy stays until its member acknowledges it, or somebody throws the copies of that name away. A member that begins
again is delivered what it has not acknowledged, marked. Copies may be late by any time; control words overtake them.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from heliograph.clustered.adapter import Delivery
from heliograph.clustered.events import HasEverything
from heliograph.clustered.holding import Held, Holding
from heliograph.clustered.settling import Settling
from heliograph.clustered.words import Answer, Ask, Copy, Done, MemberKey, View


@dataclass
class Subscription:
    """What a middleware keeps for one name: values by id, and what was delivered once."""

    copies: dict[str, int] = field(default_factory=dict)
    delivered: set[str] = field(default_factory=set)


@dataclass
class Middleware:
    """Every standing subscription, and what was published while there was one."""

    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    published: dict[str, int] = field(default_factory=dict)
    processed: dict[str, list[str]] = field(default_factory=dict)
    """Who processed it, each time."""
    part: tuple[str, ...] = ()
    """Names that are in one part of it, while it is in two."""
    late: list[tuple[str, bool]] = field(default_factory=list)
    """What was published meanwhile, and in which part: the subscriptions of the other get it when they are one."""

    def is_in(self, name: str) -> bool:
        return name in self.part

    def publish(self, value: int) -> str:
        """While it is in parts: now in one, now in the other."""
        identity = f"m-{len(self.published)}"
        here = bool(len(self.published) % 2)
        reached = {
            name: each
            for name, each in self.subscriptions.items()
            if not self.part or self.is_in(name) == here
        }
        if reached:
            self.published[identity] = value
            for subscription in reached.values():
                subscription.copies[identity] = value
            if self.part:
                self.late.append((identity, here))
        return identity

    def heal(self) -> dict[str, list[str]]:
        """What each name gets now, of what was published in the other part."""
        reached: dict[str, list[str]] = {}
        for identity, here in self.late:
            for name, subscription in self.subscriptions.items():
                if self.is_in(name) != here:
                    subscription.copies[identity] = self.published[identity]
                    reached.setdefault(name, []).append(identity)
        self.part, self.late = (), []
        return reached

    @property
    def waiting(self) -> set[str]:
        """Whatever somebody has not acknowledged."""
        return {identity for each in self.subscriptions.values() for identity in each.copies}

    @property
    def lost(self) -> list[str]:
        return [identity for identity in self.published if identity not in self.processed]


class Keeping:
    """What one incarnation does with its copies: as `member.py` does it, without tasks."""

    def __init__(self, name: str, middleware: Middleware, known: OrderedDict[str, None]) -> None:
        self.known = known
        self.holding = Holding(known=known)
        self.under_way: list[Held] = []
        self._name = name
        self._middleware = middleware
        self._settling: Settling[HasEverything] = Settling()
        self._subscription: Subscription | None = None
        self._waiting: deque[str] = deque()
        self._catching_up: list[tuple[set[str], Callable[[], None]]] = []
        self.done_words = 0

    @property
    def is_subscribed(self) -> bool:
        return self._subscription is not None

    def subscribe(self, is_fresh: bool) -> None:
        if is_fresh:
            self._middleware.subscriptions.pop(self._name, None)
        self._subscription = self._middleware.subscriptions.setdefault(self._name, Subscription())
        self._waiting.extend(self._subscription.copies)

    def arrived(self, identity: str) -> None:
        if self._subscription is not None and identity in self._subscription.copies:
            self._waiting.append(identity)

    def receive(self, now: float) -> None:
        """All that waits; and whoever wanted to know that it is caught up is told."""
        subscription = self._subscription
        while subscription is not None and self._waiting:
            identity = self._waiting.popleft()
            delivery = Delivery(
                id=identity, body=b"", redelivered=identity in subscription.delivered, handle=1, copy=identity
            )
            subscription.delivered.add(identity)
            if not self.holding.receive(delivery, subscription.copies[identity], now):
                subscription.copies.pop(identity)
        for missing, then in self._catching_up[:]:
            if not missing & set(self._waiting):
                self._catching_up.remove((missing, then))
                then()

    def when_caught_up(self, then: Callable[[], None]) -> None:
        self._catching_up.append((set(self._waiting), then))

    def settle(self, finding: HasEverything) -> list[HasEverything]:
        return self._settling.add(finding, self.holding.held)

    # ---- words

    def finish(self, held: Held, key: MemberKey) -> Done:
        self.under_way.remove(held)
        self.holding.finish(held)
        self._middleware.processed.setdefault(held.delivery.id, []).append(self._name)
        self.done_words += 1
        return Done(*key, self.done_words, [held.delivery.id])

    def hear_done(self, ids: list[str]) -> list[HasEverything]:
        for delivery in self.holding.done(ids):
            if delivery.handle is not None and self._subscription is not None:
                self._subscription.copies.pop(delivery.id, None)
        return self._settling.done(ids)

    def asks(self, now: float, view: View | None) -> list[Ask]:
        if view is None:
            return []
        overdue = [
            (view.assignment.owner(held.value), held.delivery.id) for held in self.holding.overdue(now)
        ]
        return [Ask(self._name, owner, [identity]) for owner, identity in overdue if owner != self._name]

    def answer(self, ask: Ask) -> Answer:
        done = [each for each in ask.ids if self.holding.is_done(each)]
        wanted = [each for each in ask.ids if each not in self.holding.held and each not in done]
        return Answer(self._name, ask.name, done, wanted)

    def copies_for(self, answer: Answer) -> list[Copy]:
        found = [self.holding.held[each] for each in answer.wanted if each in self.holding.held]
        nothing: dict[str, Any] = {}
        return [Copy(self._name, answer.name, h.delivery.id, h.value, b"", nothing) for h in found]

    def take_copy(self, word: Copy, now: float) -> None:
        self.holding.receive(Delivery(id=word.id, body=b"", redelivered=True), word.value, now)
