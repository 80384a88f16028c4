"""What was handed out in one view, and how far most of its client managers have seen it (P5, PROTOCOL 4).

Every member keeps this, in the order of deliveries, so those who go on straight from the view agree on what it says:
the client manager that a dispatch was for, the primary that made it, and whoever leads next. What most have said they
have seen is forgotten: whatever happens, it may be with a client.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from heliograph.bus.commands import Command, ConsumerAttached, Dispatched, Parcelled
from heliograph.bus.interface import Incarnation
from heliograph.cluster.dispatch_rules import Fate, fate_of
from heliograph.cluster.seen_marks import SeenMarks
from heliograph.model.destination import Kind, kind_of
from heliograph.model.ids import ConsumerId


class Handed(NamedTuple):
    """Messages of one block went to a consumer under tags `first` to `last`, at this place of the view."""

    place: int
    consumer: ConsumerId
    first: int
    last: int
    persistent: bool


def needs_majority(attached: ConsumerAttached) -> bool:
    """PROTOCOL 4 is about messages that go to one of many: of queues and of shared subscriptions. Who has a
    subscription for itself gets what everybody gets, and who browses takes nothing."""
    return not attached.browse and (attached.shared or kind_of(attached.address) is Kind.QUEUE)


def parts_of(decision: Command, place: int) -> Iterator[Handed]:
    """What a decision hands out, block by block."""
    if isinstance(decision, Dispatched):
        span = decision.span
        last = decision.tag + span.stop - span.start - 1
        yield Handed(place, decision.consumer, decision.tag, last, span.block.persistent)
    elif isinstance(decision, Parcelled):
        tag = decision.tag
        for span in decision.spans:
            behind = tag + span.stop - span.start
            yield Handed(place, decision.consumer, tag, behind - 1, span.block.persistent)
            tag = behind


class HandedOut:
    """One view. `clients`: its client managers; with fewer than two there is nobody to wait for."""

    def __init__(self, clients: tuple[Incarnation, ...]) -> None:
        self.is_waived = len(clients) < 2
        self._clients = clients
        self._marks = SeenMarks(clients)
        self._unseen: deque[Handed] = deque()

    def decided(self, decision: Command, place: int) -> None:
        """Delivered in the view, at this place."""
        if not self.is_waived and isinstance(decision, Dispatched | Parcelled):
            self._marks.dispatched(place)
            self._unseen.extend(parts_of(decision, place))

    def answered(self, place: int) -> None:
        """A promise, or an outcome, was delivered in the view, at this place."""
        self._marks.dispatched(place)

    def seen(self, who: Incarnation, place: int) -> None:
        """`DispatchSeen`, delivered with the stamp of the view."""
        self._marks.seen(who, place)
        unseen = self._unseen
        if unseen:
            told = self._marks.told_by_most()
            while unseen and unseen[0].place <= told:
                unseen.popleft()

    def claimed(self, consumer: ConsumerId) -> None:
        """Its client has said what it holds (M8), and the rest has gone back: what it was given before that is
        settled, wherever its session was then. That is so when it is said for the first time. Said again it brings
        nothing back, and what its consumer was given since goes back as PROTOCOL 4 says, or nobody ever gets it."""
        if any(handed.consumer == consumer for handed in self._unseen):
            self._unseen = deque(handed for handed in self._unseen if handed.consumer != consumer)

    @property
    def has_word(self) -> bool:
        """Whether a client manager has something to tell that it has not told."""
        return not self.is_waived and self._marks.has_word

    def take_word(self) -> int | None:
        """The place that this client manager has to tell, if there is anything new; it is then told."""
        return None if self.is_waived else self._marks.take_word()

    def seen_by_most(self, target: Incarnation) -> int:
        """What was delivered up to this place may reach the clients of a client manager, or has."""
        return self._marks.seen_by_most(target)

    def dropped(
        self,
        came: Collection[Incarnation],
        target_of: Callable[[ConsumerId], Incarnation | None],
        *,
        goes_through: bool = False,
    ) -> list[Handed]:
        """The view is over. What no client has, nor will get: it goes back as if it had never been handed out.

        `came`: those who are straight from this view together with the member that asks. `target_of`: with which
        client manager a consumer is; None: this is not about it.
        """
        dropped = []
        for handed in self._unseen:
            target = target_of(handed.consumer)
            if target is None or target not in self._clients:
                continue
            was_seen = handed.place <= self.seen_by_most(target)
            fate = fate_of(target_came=target in came, was_seen=was_seen, goes_through=goes_through)
            if fate is Fate.DROPPED:
                dropped.append(handed)
        return dropped
