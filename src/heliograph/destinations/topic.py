"""A topic: each message to every subscription (J1, J6)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from operator import attrgetter

import msgspec

from heliograph.bus.commands import Answered, ConsumerAttached, ConsumerDetached, Rejected
from heliograph.cluster.dispatch_rules import Hold, Situation
from heliograph.cluster.partition_state import State
from heliograph.destinations.competing import Consumer
from heliograph.destinations.destination import Destination, Figures
from heliograph.destinations.effects import AnyEffect, Multicast, Write
from heliograph.destinations.events import PageLoaded
from heliograph.destinations.flow import low_water
from heliograph.destinations.message_list import MessageList, UserOf
from heliograph.destinations.placing import cut, place_in_topic, runs_in_topic
from heliograph.destinations.standing import Standing
from heliograph.destinations.subscriptions import (
    FOR_OTHER_PARTS,
    Group,
    Subscription,
    SubscriptionRecord,
    Terms,
    check_joins,
    check_terms,
    runs_of,
)
from heliograph.destinations.waiting import Residence
from heliograph.journal.records import RecordKind
from heliograph.model.block import Block
from heliograph.model.destination import Address
from heliograph.model.errors import ClientFault
from heliograph.model.ids import ConsumerId, SessionId, session_of
from heliograph.model.selector import Columns, SelectorIndex, parse_selector

SendersOf = Callable[[SessionId], tuple[bytes, bytes]]
"""The connection and the client that a session belongs to, each as it is named in no-local subscriptions."""
_encode = msgspec.msgpack.Encoder().encode


class Topic(Destination):
    """Groups of subscriptions that want the same."""

    def __init__(
        self,
        address: Address,
        number: int,
        *,
        residence: Residence,
        user_of: UserOf,
        senders_of: SendersOf,
        writes_all: bool = False,
        is_recorded: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`writes_all`: subscriptions that end with their consumers are written down too. `is_recorded`: whether
        somebody reads the history of an address, so that it has one."""
        super().__init__(address, number, residence=residence, user_of=user_of)
        self._writes_all = writes_all
        self._is_recorded = is_recorded
        self._senders_of = senders_of
        self._groups: dict[tuple[str, bytes], Group] = {}
        self._unselective: dict[tuple[str, bytes], Group] = {}
        self._index: SelectorIndex[tuple[str, bytes]] = SelectorIndex()
        self.subscriptions: dict[int, Subscription] = {}
        self._by_key: dict[tuple[str, str, bool], Subscription] = {}
        self._by_consumer: dict[ConsumerId, Subscription] = {}
        self._next_list = 1
        self._fullest: MessageList | None = None
        # Subscriptions that begin when the block before them, accepted and not yet stored, is through.
        self._beginning: deque[tuple[Block, Subscription]] = deque()

    def lists(self) -> Iterator[MessageList]:
        return iter([subscription.messages for subscription in self.subscriptions.values()])

    def list_by_number(self, number: int) -> MessageList | None:
        found = self.subscriptions.get(number)
        return found.messages if found is not None else None

    def list_of(self, consumer: ConsumerId) -> MessageList | None:
        found = self._by_consumer.get(consumer)
        return found.messages if found is not None else None

    # ---- messages

    def wants(self, _block: Block) -> bool:
        return bool(self.subscriptions) or self._is_recorded(self.address)

    # ---- parts of a cluster

    def regate(
        self, situation: Situation | None, standing: Standing | None, effects: list[AnyEffect]
    ) -> None:
        """While the cluster is in parts all is kept, for subscriptions of other parts (P4). What is kept goes when
        the cluster is whole, and not when the parts have only met."""
        kept = self._by_key.get(FOR_OTHER_PARTS.key)
        if situation is None or situation.is_whole:
            if kept is not None:
                self._end(kept, effects)
        elif kept is None and standing is not None and situation.state is not State.A:
            self._make(FOR_OTHER_PARTS, effects)
        super().regate(situation, standing, effects)

    def regate_list(self, messages: MessageList, effects: list[AnyEffect]) -> None:
        if self.subscriptions[messages.number].is_for_other_parts:
            messages.regate(None, effects, is_closed=True)
        else:
            super().regate_list(messages, effects)

    def _kept_for_others(self) -> MessageList | None:
        kept = self._by_key.get(FOR_OTHER_PARTS.key)
        return kept.messages if kept is not None else None

    def held_back(self) -> dict[Hold, int]:
        found = super().held_back()
        kept = self._kept_for_others()
        if kept is not None and kept.depth and found[Hold.NOT_IN_FORCE] == kept.depth:
            del found[Hold.NOT_IN_FORCE]
        elif kept is not None and kept.depth:
            found[Hold.NOT_IN_FORCE] -= kept.depth
        return found

    def _has_rules(self, messages: MessageList) -> bool:
        """Every subscription gets each message; but one that is shared may have consumers in several parts."""
        return self.subscriptions[messages.number].terms.shared

    def _keeps_loaded(self) -> bool:
        # Until a new subscription begins, nothing may overtake what is before it.
        return not self._beginning and self._residence.used < self._residence.limit

    def add(self, block: Block, _effects: list[AnyEffect], _now: int) -> int:
        held = 0
        runs = runs_in_topic(block)
        for group, spans in self.selected(block):
            if group.lists:
                for priority, span in cut(block, runs, spans):
                    group.append(priority, span)
                    held += span.stop - span.start
        return held

    def selected(self, block: Block) -> Iterator[tuple[Group, list[tuple[int, int]]]]:
        """Which groups want which messages of a block."""
        for group in self._unselective.values():
            if not group.without or group.without not in self._senders_of(session_of(block.lane)):
                yield group, [(0, block.count)]
        if len(self._index):
            for key, indices in self._index.match(Columns(block)):
                group = self._groups[key]
                if not group.without or group.without not in self._senders_of(session_of(block.lane)):
                    yield group, runs_of(indices)

    def wanted(self, terms: Terms, block: Block) -> list[tuple[int, int]]:
        """The messages of a block that a subscription with these terms gets, as (start, stop) runs."""
        if terms.without and terms.without in self._senders_of(session_of(block.lane)):
            return []
        selector = parse_selector(terms.selector)
        return [(0, block.count)] if selector is None else runs_of(selector.select(Columns(block)))

    def held(self) -> int:
        """The longest backlog of any subscription. While it alone keeps the topic blocked, others do not
        matter."""
        enough = low_water(self.policy.high_water_messages)
        fullest = self._fullest
        if fullest is None or fullest.number not in self.subscriptions or fullest.backlog <= enough:
            fullest = self._fullest = max(self.lists(), key=attrgetter("backlog"), default=None)
        if fullest is None:
            return 0
        return fullest.backlog + sum(block.count for block in self.intake.pending)

    def _take_in(self, block: Block, effects: list[AnyEffect], now: int) -> None:
        super()._take_in(block, effects, now)
        while self._beginning and self._beginning[0][0] is block:
            self.begin(self._beginning.popleft()[1])

    def _dispatch(self, effects: list[AnyEffect], now: int) -> None:
        for subscription in self._by_consumer.values():
            if subscription.messages.is_hungry:
                subscription.messages.dispatch(effects, now)

    def _page_loaded(self, event: PageLoaded, effects: list[AnyEffect], now: int) -> None:
        messages = self.list_by_number(event.list_number)
        if messages is not None:
            messages.loaded(event.priority, event.page, event.buffers)
        else:  # it ended meanwhile, and others of its group may wait for the same page
            for group in self._groups.values():
                for sequence in group.sequences().values():
                    sequence.loaded(event.page, event.buffers)
        self._dispatch(effects, now)
        self._retain(effects, now)

    # ---- subscribing

    def _attached(self, event: ConsumerAttached, effects: list[AnyEffect], now: int) -> None:
        if event.consumer in self._by_consumer:
            effects.append(Multicast(Answered(event.request, {})))  # asked again
            return
        without = self._not_wanted(event) if event.no_local else b""
        terms = Terms(event.subscription, event.client, event.durable, event.shared, event.selector, without)
        try:
            if event.browse:
                raise ClientFault("a topic cannot be browsed: nothing waits in it", code="browse-invalid")
            subscription = self._find_or_make(terms, effects, now)
        except ClientFault as fault:
            effects.append(Multicast(Rejected(event.request, fault.code, fault.sentence)))
            return
        self._by_consumer[event.consumer] = subscription
        subscription.messages.attach(
            event.consumer, event.session, event.credit, prompt=event.prompt, claim=event.claim
        )
        effects.append(Multicast(Answered(event.request, self.how_it_stands)))
        subscription.messages.dispatch(effects, now)

    def restore_consumer(self, event: ConsumerAttached, list_number: int) -> Consumer | None:
        subscription = self.subscriptions.get(list_number)
        if subscription is None:
            return None
        self._by_consumer[event.consumer] = subscription
        return subscription.messages.attach(event.consumer, event.session, 0, prompt=event.prompt)

    def _not_wanted(self, event: ConsumerAttached) -> bytes:
        """No-local: a durable subscription outlives its connection, so it leaves out what its client sends."""
        connection, client = self._senders_of(event.session)
        return client if event.durable and client else connection

    def _find_or_make(self, terms: Terms, effects: list[AnyEffect], now: int) -> Subscription:
        check_terms(terms)
        found = self._by_key.get(terms.key) if terms.name else None
        if found is not None:
            check_joins(found, terms)
            if not terms.shared:
                self._take_over(found, effects, now)
            if (found.terms.selector, found.terms.without) == (terms.selector, terms.without):
                return found
            self._end(found, effects)  # other wishes make it another subscription
        return self._make(terms, effects)

    def _take_over(self, subscription: Subscription, effects: list[AnyEffect], now: int) -> None:
        """Its consumer is away, and its client need not wait for it: what it had returns, marked."""
        for consumer in list(subscription.messages.consumers):
            del self._by_consumer[consumer]
            subscription.messages.detach(consumer, effects, now)

    def _make(self, terms: Terms, effects: list[AnyEffect]) -> Subscription:
        subscription = self.restore_subscription(self._next_list, terms)
        self.regate_list(subscription.messages, [])
        if subscription.messages.durable:
            begins = self.intake.next_number
            record = SubscriptionRecord(self.number, subscription.messages.number, terms, begins=begins)
            effects.append(Write(RecordKind.SUBSCRIPTION, _encode(record)))
        if self.intake.pending:
            self._beginning.append((self.intake.pending[-1], subscription))
        else:
            self.begin(subscription)
        return subscription

    def subscribe_durably(self, terms: Terms, effects: list[AnyEffect]) -> None:
        """A subscription whose client is away."""
        if terms.key not in self._by_key:
            self._make(terms, effects)

    def restore_subscription(self, number: int, terms: Terms) -> Subscription:
        """A subscription that does not get messages yet."""
        key = (terms.selector, terms.without)
        group = self._groups.get(key)
        if group is None:
            selector = parse_selector(terms.selector)
            group = self._groups[key] = Group(key, self._residence)
            if selector is None:
                self._unselective[key] = group
            else:
                self._index.add(key, selector)
        messages = MessageList(
            number,
            make_level=group.make_level,
            user_of=self._user_of,
            residence=self._residence,
            place=place_in_topic,
            policy=self.policy,
            durable=terms.durable or self._writes_all,
        )
        messages.paused = self.pause.state.consumption
        self._next_list = max(self._next_list, number + 1)
        subscription = self.subscriptions[number] = Subscription(terms, messages, group)
        if terms.name:
            self._by_key[terms.key] = subscription
        return subscription

    @property
    def kept_list(self) -> int | None:
        """The number of what is kept for other parts, None if nothing is."""
        kept = self._kept_for_others()
        return kept.number if kept is not None else None

    @property
    def next_list(self) -> int:
        """The number that the next subscription gets."""
        return self._next_list

    def forget_subscription(self, number: int) -> None:
        """Recovery: it was unsubscribed."""
        subscription = self.subscriptions.pop(number, None)
        if subscription is not None:
            self._by_key.pop(subscription.terms.key, None)
            self._drop_group_if_empty(subscription.group)

    def begin(self, subscription: Subscription) -> None:
        """From here on it gets messages."""
        if subscription.messages.number in self.subscriptions:
            subscription.active = True
            subscription.group.join(subscription.messages)

    def begins_at(self, subscription: Subscription) -> int:
        """The number of the first message that will be appended for a subscription."""
        if not subscription.active:
            for block, beginning in self._beginning:
                if beginning is subscription:
                    return block.number + (block.count if block.persistent else 0)
        pending = self.intake.pending
        return pending[0].number if pending else self.intake.next_number

    # ---- unsubscribing

    def _leave(self, event: ConsumerDetached, effects: list[AnyEffect], now: int) -> None:
        subscription = self._by_consumer.pop(event.consumer, None)
        if subscription is not None:
            if subscription.ends_with_its_consumers and len(subscription.messages.consumers) == 1:
                self._end(subscription, effects)
            else:
                subscription.messages.detach(event.consumer, effects, now, event.seen)
        if event.request:
            effects.append(Multicast(Answered(event.request, {})))

    def subscription_named(self, client: str, name: str, *, durable: bool) -> Subscription | None:
        return self._by_key.get((client, name, durable))

    def unsubscribe(self, subscription: Subscription, effects: list[AnyEffect]) -> None:
        """Raises ClientFault while it has a consumer."""
        if subscription.messages.is_attended:
            raise ClientFault(
                f"subscription {subscription.terms.name!r} has a consumer: close it first",
                code="subscription-in-use",
            )
        self._end(subscription, effects)

    def _end(self, subscription: Subscription, effects: list[AnyEffect]) -> None:
        terms, messages, group = subscription.terms, subscription.messages, subscription.group
        del self.subscriptions[messages.number]
        for consumer in messages.consumers:
            self._by_consumer.pop(consumer, None)  # some may be away
        if terms.name:
            self._by_key.pop(terms.key, None)
        if messages.durable:
            record = SubscriptionRecord(self.number, messages.number, terms, ended=True)
            effects.append(Write(RecordKind.SUBSCRIPTION, _encode(record)))
        group.leave(messages, effects)
        self._drop_group_if_empty(group)

    def _drop_group_if_empty(self, group: Group) -> None:
        if not any(other.group is group for other in self.subscriptions.values()):
            del self._groups[group.key]
            if self._unselective.pop(group.key, None) is None:
                self._index.remove(group.key)

    # ---- for those who look

    def groups(self) -> Iterator[Group]:
        return iter(self._groups.values())

    def counts(self) -> tuple[int, ...]:
        depth, *rest, _, held_back = super().counts()
        kept = self._kept_for_others()
        away = (kept.depth, 1) if kept is not None else (0, 0)
        return (depth - away[0], *rest, len(self.subscriptions) - away[1], held_back)

    def figures(self) -> Figures:
        figures = super().figures()
        figures.subscriptions = len(self.subscriptions)
        kept = self._kept_for_others()
        if kept is not None:
            figures.subscriptions -= 1
            figures.depth -= kept.depth
            figures.kept_for_others = kept.depth
        return figures
