"""One consumer of many topics (M12): a pattern, and an attachment to every topic that it means.

    topic ──Dispatched, tags of the attachment──▶ wildcard ──Deliver, tags of the client's consumer──▶ client
          ◀──Settled, tags of the attachment──            ◀──Settle, tags of the client's consumer──

Each attachment has a small credit of its own, so that every topic gets its turn; what it delivers is replaced
from a credit that all share and that comes back as the client settles. A busy topic can so use nearly all of
the client's credit, and an idle one holds next to nothing. What comes beyond the client's credit waits here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator

import msgspec

from heliograph.bus.commands import ConsumerDetached, CreditGranted, Dispatched, Recalled, Settled
from heliograph.model.block import Span
from heliograph.model.destination import Address
from heliograph.model.errors import ClientFault
from heliograph.model.ids import ConsumerId
from heliograph.model.patterns import Pattern
from heliograph.sessions.commands import AnySessionEffect, Deliver, Multicast, Settle, TellRecalled

Ranges = list[tuple[int, int]]
# What one topic may send before anything of it is settled, whatever the others do.
_OWN_CREDIT = 64


class Tags:
    """Which attachment's tags are behind the tags that the client sees; those have no gap."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._runs: list[tuple[int, ConsumerId, int]] = []  # messages, attachment, its first tag
        self._next = 1

    def add(self, attachment: ConsumerId, tag: int, count: int) -> int:
        """The client's first tag for these messages."""
        first = self._next
        self._firsts.append(first)
        self._runs.append((count, attachment, tag))
        self._next += count
        return first

    def take(self, first: int, last: int) -> list[tuple[ConsumerId, int, int]]:
        """Remove the client's tags first..last. Raises ClientFault unless all of them are outstanding."""
        begin = bisect_right(self._firsts, first) - 1
        self._require(begin, first, last)
        taken: list[tuple[ConsumerId, int, int]] = []
        kept: list[tuple[int, tuple[int, ConsumerId, int]]] = []
        end = begin
        while end < len(self._firsts) and self._firsts[end] <= last:
            start, (count, attachment, tag) = self._firsts[end], self._runs[end]
            low, high = max(first, start), min(last, start + count - 1)
            taken.append((attachment, tag + low - start, tag + high - start))
            if start < low:
                kept.append((start, (low - start, attachment, tag)))
            if high < start + count - 1:
                kept.append((high + 1, (start + count - 1 - high, attachment, tag + high + 1 - start)))
            end += 1
        self._firsts[begin:end] = [start for start, _ in kept]
        self._runs[begin:end] = [run for _, run in kept]
        return taken

    def _require(self, index: int, first: int, last: int) -> None:
        expected = first if index >= 0 and first <= last else last + 1
        missing = index < 0 or last < first
        while not missing and expected <= last:
            missing = index >= len(self._firsts) or self._firsts[index] > expected
            if not missing:
                after = self._firsts[index] + self._runs[index][0]
                missing = after <= expected
                expected = after
                index += 1
        if missing:
            raise ClientFault(
                f"delivery tags {first} to {last} are not outstanding at this consumer",
                code="settlement-unknown",
            )

    def drop(self, attachment: ConsumerId, first: int, last: int) -> list[tuple[int, int]]:
        """Remove an attachment's tags first..last. Returns what the client calls those that it was sent."""
        dropped = [
            (start + max(first - tag, 0), start + min(last - tag, count - 1))
            for start, (count, of, tag) in zip(self._firsts, self._runs, strict=True)
            if of == attachment and tag <= last and first < tag + count
        ]
        for low, high in dropped:
            self.take(low, high)
        return dropped

    def seen(self, last: int) -> dict[ConsumerId, int]:
        """For each attachment, its highest tag that is outstanding and not beyond the client's tag `last`."""
        highest: dict[ConsumerId, int] = {}
        for first, (count, attachment, tag) in zip(self._firsts, self._runs, strict=True):
            if first <= last:
                highest[attachment] = tag + min(count - 1, last - first)
        return highest

    def clear(self) -> int:
        """Forget all of them. Returns how many messages that were."""
        count = sum(run[0] for run in self._runs)
        self._firsts.clear()
        self._runs.clear()
        return count


class Attachment(msgspec.Struct):
    """The wildcard at one topic: credit that the topic has not used, and messages that are not settled."""

    identity: ConsumerId
    address: Address
    granted: int
    outstanding: int = 0


class Wildcard:
    """A client's consumer of a pattern."""

    def __init__(
        self,
        number: int,
        pattern: Pattern,
        *,
        credit: int,
        selector: str,
        no_local: bool,
        subscription: str = "",
        durable: bool = False,
        shared: bool = False,
        client: str = "",
    ) -> None:
        """`subscription`: what its subscriptions at topics are named after."""
        self.number = number
        self.subscription = subscription
        self.durable = durable
        self.shared = shared
        self.client = client
        self.pattern = pattern
        self.selector = selector
        self.no_local = no_local
        self.own_credit = max(1, min(_OWN_CREDIT, credit // 8))
        self.request: int | None = None  # of the client, while it waits for the first attachments
        self.was_resumed = False  # the client wanted to go on with it, and has to hear that it begins anew
        self.attaching = 0
        self._attachments: dict[ConsumerId, Attachment] = {}
        self._topics: dict[Address, ConsumerId] = {}
        self._tags = Tags()
        self._client_credit = credit
        self._shared_credit = credit
        self._held: deque[Dispatched] = deque()

    # ---- topics

    def __len__(self) -> int:
        return len(self._attachments)

    def wants(self, address: Address, name: Address) -> bool:
        """`name` is what the pattern is about: of a member of a distributed topic, the topic's (U6)."""
        return address not in self._topics and self.pattern.matches(name)

    def attach(self, identity: ConsumerId, address: Address) -> None:
        """The topic gets `own_credit` from the start."""
        self._attachments[identity] = Attachment(identity, address, self.own_credit)
        self._topics[address] = identity

    def detach(self, identity: ConsumerId) -> list[AnySessionEffect]:
        """A topic is gone, with what it had given and was not settled."""
        gone = self._attachments.pop(identity, None)
        if gone is None:
            return []
        del self._topics[gone.address]
        self._held = deque(each for each in self._held if each.consumer != identity)
        self._shared_credit += gone.granted + gone.outstanding - self.own_credit
        return self._top_up(self._attachments.values())

    def identities(self) -> Iterator[ConsumerId]:
        return iter(self._attachments)

    def identity_at(self, address: Address) -> ConsumerId | None:
        return self._topics.get(address)

    def farewell(self) -> list[ConsumerDetached]:
        return [ConsumerDetached(each.address, each.identity) for each in self._attachments.values()]

    # ---- handing out

    def dispatched(self, decision: Dispatched) -> list[AnySessionEffect]:
        attachment = self._attachments[decision.consumer]
        count = decision.span.stop - decision.span.start
        attachment.granted -= count
        attachment.outstanding += count
        self._held.append(decision)
        return [*self._release(), *self._top_up((attachment,))]

    def _release(self) -> list[AnySessionEffect]:
        """Hand to the client what it has credit for.

        This comes before anything that a topic is told: its answer may be more messages.
        """
        effects: list[AnySessionEffect] = []
        while self._held and self._client_credit > 0:
            decision = self._held.popleft()
            span = decision.span
            count = min(span.stop - span.start, self._client_credit)
            if count < span.stop - span.start:
                rest = span.part(span.start + count, span.stop)
                self._held.appendleft(
                    Dispatched(decision.consumer, decision.tag + count, rest, decision.user)
                )
                span = span.part(span.start, span.start + count)
            effects.append(self._delivery(decision, span, count))
        return effects

    def _delivery(self, decision: Dispatched, span: Span, count: int) -> Deliver:
        self._client_credit -= count
        tag = self._tags.add(decision.consumer, decision.tag, count)
        address = self._attachments[decision.consumer].address
        return Deliver(self.number, tag, span, decision.user, address)

    def _top_up(self, attachments: Iterable[Attachment]) -> list[AnySessionEffect]:
        effects: list[AnySessionEffect] = []
        for each in attachments:
            more = min(self.own_credit - each.granted, self._shared_credit)
            if more > 0:
                each.granted += more
                self._shared_credit -= more
                effects.append(Multicast(CreditGranted(each.address, each.identity, more)))
        return effects

    # ---- what becomes of it

    def grant(self, count: int) -> list[AnySessionEffect]:
        self._client_credit += count
        self._shared_credit += count
        return [*self._release(), *self._top_up(self._attachments.values())]

    def settle(self, command: Settle) -> tuple[list[AnySessionEffect], ClientFault | None]:
        """What the topics are told. With a fault, what stands before it in the command holds."""
        settled: dict[ConsumerId, Ranges] = {}
        fault: ClientFault | None = None
        effects: list[AnySessionEffect] = []
        try:
            for first, last in command.ranges:
                self._take(first, last, settled)
                if command.replenish:
                    self._client_credit += last - first + 1
        except ClientFault as error:
            fault = error
        for identity, ranges in settled.items():
            attachment = self._attachments[identity]
            attachment.outstanding -= _count(ranges)
            told = Settled(
                attachment.address,
                identity,
                command.returned,
                ranges,
                error=command.error,
                fate=command.fate,
            )
            effects.append(Multicast(told))
            if command.replenish:
                self._shared_credit += _count(ranges)
                effects += self._top_up((attachment,))
        return [*self._release(), *effects], fault

    def _take(self, first: int, last: int, into: dict[ConsumerId, Ranges]) -> None:
        for identity, low, high in self._tags.take(first, last):
            if identity in self._attachments:  # else its topic is gone, and the message with it
                into.setdefault(identity, []).append((low, high))

    def recalled(self, decision: Recalled) -> list[AnySessionEffect]:
        """What a topic took back is dropped where it is: here, or at the client."""
        attachment = self._attachments[decision.consumer]
        tags: Ranges = []
        for first, last in decision.tags:
            tags += self._tags.drop(decision.consumer, first, last)
            attachment.outstanding -= last - first + 1
            attachment.granted += last - first + 1
            self._held = deque(
                part for held in self._held for part in _without(held, decision.consumer, first, last)
            )
        self._client_credit += _count(tags)
        return [TellRecalled(self.number, tags), *self._release()]

    def consumed(self, ranges: Ranges) -> list[tuple[Address, ConsumerId, Ranges]]:
        """What a commit names. Topics give the credit back by themselves. Raises ClientFault."""
        taken: dict[ConsumerId, Ranges] = {}
        for first, last in ranges:
            self._take(first, last, taken)
        for identity, tags in taken.items():
            self._attachments[identity].outstanding -= _count(tags)
            self._attachments[identity].granted += _count(tags)
        self._client_credit += _count(ranges)
        return [(self._attachments[identity].address, identity, tags) for identity, tags in taken.items()]

    def after_commit(self) -> list[AnySessionEffect]:
        return self._release()

    def returned(self, last_seen: int) -> list[tuple[Address, ConsumerId, int]]:
        """Everything goes back and comes again, under other tags.

        `last_seen`: the client's last tag that reached the application, -1 if that is not known. The same is
        said for each topic.
        """
        seen = self._tags.seen(last_seen)
        unseen = -1 if last_seen < 0 else 0
        self._client_credit += self._tags.clear()
        self._held.clear()
        for each in self._attachments.values():
            each.granted += each.outstanding
            each.outstanding = 0
        return [
            (each.address, each.identity, seen.get(each.identity, unseen))
            for each in self._attachments.values()
        ]


def _without(held: Dispatched, consumer: ConsumerId, first: int, last: int) -> Iterator[Dispatched]:
    """What is left of a delivery without some tags of an attachment."""
    span, tag = held.span, held.tag
    end = tag + span.stop - span.start - 1
    if held.consumer != consumer or end < first or last < tag:
        yield held
        return
    if tag < first:
        yield Dispatched(consumer, tag, span.part(span.start, span.start + first - tag), held.user)
    if last < end:
        yield Dispatched(consumer, last + 1, span.part(span.stop - (end - last), span.stop), held.user)


def _count(ranges: Ranges) -> int:
    return sum(last - first + 1 for first, last in ranges)
