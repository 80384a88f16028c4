"""Queues and topics as every replica sees them: commands in, effects out. Nothing here reads a clock or
touches a disk.

A block is accepted (intake), written down if it must survive or cannot stay in memory, and then added to
every list: the one list of a queue, or the list of each subscription of a topic. A persistent message is
handed out only after it is stored: otherwise a crash could make one that was consumed arrive a second time,
unmarked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from heliograph.bus.commands import (
    Answered,
    ConsumerAttached,
    ConsumerDetached,
    CreditGranted,
    Published,
    Rejected,
    Settled,
)
from heliograph.destinations.effects import AnyEffect, Multicast, Persist, Release, Retain
from heliograph.destinations.events import BlockRefused, BlocksStored, PageLoaded, TurnCame
from heliograph.destinations.intake import Intake
from heliograph.destinations.message_list import MessageList, UserOf
from heliograph.destinations.waiting import Residence
from heliograph.model.block import Block
from heliograph.model.destination import Address, Kind, kind_of
from heliograph.model.errors import ClientFault
from heliograph.model.ids import ConsumerId, SessionId

Event = (
    Published
    | ConsumerAttached
    | CreditGranted
    | Settled
    | ConsumerDetached
    | BlocksStored
    | BlockRefused
    | PageLoaded
    | TurnCame
)


class Figures(msgspec.Struct):
    """What an administrator sees of a destination."""

    address: str
    kind: str
    depth: int
    in_flight: int
    consumers: int
    published: int
    delivered: int
    settled: int
    bytes: int


class Destination:
    """What queues and topics share: intake, storage, and the way of a command to the list it concerns."""

    def __init__(self, address: Address, number: int, *, residence: Residence, user_of: UserOf) -> None:
        self.address = address
        self.number = number
        self.intake = Intake()
        self._residence = residence
        self._user_of = user_of
        self._published = 0
        self._bytes = 0
        self._handlers: dict[type, Callable[..., None]] = {
            Published: self._published_block,
            Settled: self._settled,
            CreditGranted: self._credit_granted,
            BlocksStored: self._stored,
            TurnCame: self._turn_came,
            PageLoaded: self._page_loaded,
            ConsumerAttached: self._attached,
            ConsumerDetached: self._detached,
            BlockRefused: self._refused,
        }

    def handle(self, event: Event) -> list[AnyEffect]:
        effects: list[AnyEffect] = []
        self._handlers[type(event)](event, effects)
        return effects

    # ---- what a kind of destination decides

    def lists(self) -> Iterator[MessageList]:
        raise NotImplementedError

    def list_by_number(self, number: int) -> MessageList | None:
        raise NotImplementedError

    def _list_of(self, consumer: ConsumerId) -> MessageList | None:
        raise NotImplementedError

    def _attached(self, event: ConsumerAttached, effects: list[AnyEffect]) -> None:
        raise NotImplementedError

    def _detached(self, event: ConsumerDetached, effects: list[AnyEffect]) -> None:
        raise NotImplementedError

    # ---- messages

    def _published_block(self, event: Published, effects: list[AnyEffect]) -> None:
        block = event.block
        if not self.intake.accept(block, effects):
            return
        self._published += block.count
        self._bytes += block.size
        if self._needs_no_disk(block):
            self.intake.confirm(block, effects)
            self._add(block, effects)
            return
        self.intake.persist(block)
        effects.append(Persist(block))

    def _needs_no_disk(self, block: Block) -> bool:
        """Nobody will ever ask for it, or it may be lost and there is room for it in memory."""
        lists = list(self.lists())
        if not lists:
            return True
        # Once one is on its way to the disk, the next must not overtake it.
        if block.persistent or self.intake.spilling:
            return False
        return all(messages.keeps_loaded for messages in lists)

    def _stored(self, event: BlocksStored, effects: list[AnyEffect]) -> None:
        self.intake.stored(event.blocks, effects)
        self._hold(event.blocks, effects)
        for messages in self.lists():
            for block in event.blocks:
                messages.add(block)
            messages.dispatch(effects)

    def _hold(self, blocks: list[Block], effects: list[AnyEffect]) -> None:
        """A block was held once when it was written; from here on each list holds it."""
        more = sum(1 for _ in self.lists()) - 1
        if more:
            for block in blocks:
                held = block.count * abs(more)
                effects.append(Retain(block.position, held) if more > 0 else Release(block.position, held))

    def _add(self, block: Block, effects: list[AnyEffect]) -> None:
        for messages in self.lists():
            messages.add(block)
            messages.dispatch(effects)

    def _refused(self, event: BlockRefused, effects: list[AnyEffect]) -> None:
        self._published -= event.block.count
        self._bytes -= event.block.size
        self.intake.not_stored(event.block, event.code, event.sentence, effects)

    # ---- consumers

    def _credit_granted(self, event: CreditGranted, effects: list[AnyEffect]) -> None:
        messages = self._list_of(event.consumer)
        if messages is not None:
            messages.grant(event.consumer, event.count)
            messages.dispatch(effects)

    def _settled(self, event: Settled, effects: list[AnyEffect]) -> None:
        messages = self._list_of(event.consumer)
        if messages is None:
            if event.request:
                effects.append(Multicast(Rejected(event.request, "consumer-unknown", "the consumer is gone")))
            return
        try:
            messages.settle(
                event.consumer,
                event.ranges,
                effects,
                returned=event.returned,
                replenish=event.replenish,
                request=event.request,
            )
        except ClientFault as fault:
            if event.request:
                effects.append(Multicast(Rejected(event.request, fault.code, fault.sentence)))
        messages.dispatch(effects)

    def _turn_came(self, _event: TurnCame, effects: list[AnyEffect]) -> None:
        for messages in self.lists():
            messages.dispatch(effects)

    def _page_loaded(self, event: PageLoaded, effects: list[AnyEffect]) -> None:
        messages = self.list_by_number(event.list_number)
        if messages is not None:
            messages.loaded(event.priority, event.buffers)
            messages.dispatch(effects)

    def session_ended(self, session: SessionId) -> None:
        self.intake.forget(session)

    # ---- for those who look

    def figures(self) -> Figures:
        lists = list(self.lists())
        return Figures(
            address=self.address,
            kind=kind_of(self.address),
            depth=sum(messages.depth for messages in lists),
            in_flight=sum(messages.in_flight for messages in lists),
            consumers=sum(len(messages.consumers) for messages in lists),
            published=self._published,
            delivered=sum(messages.delivered for messages in lists),
            settled=sum(messages.settled for messages in lists),
            bytes=self._bytes,
        )


class Queue(Destination):
    """Each message to exactly one consumer."""

    def __init__(self, address: Address, number: int, *, residence: Residence, user_of: UserOf) -> None:
        super().__init__(address, number, residence=residence, user_of=user_of)
        self.messages = MessageList(0, residence=residence, user_of=user_of)
        self._lists = (self.messages,)

    def lists(self) -> Iterator[MessageList]:
        return iter(self._lists)

    def list_by_number(self, number: int) -> MessageList | None:
        return self.messages if number == 0 else None

    def _list_of(self, consumer: ConsumerId) -> MessageList | None:
        return self.messages if consumer in self.messages.consumers else None

    def _attached(self, event: ConsumerAttached, effects: list[AnyEffect]) -> None:
        self.messages.attach(event.consumer, event.session, event.credit)
        effects.append(Multicast(Answered(event.request, {})))
        self.messages.dispatch(effects)

    def _detached(self, event: ConsumerDetached, effects: list[AnyEffect]) -> None:
        self.messages.detach(event.consumer, effects)
        if event.request:
            effects.append(Multicast(Answered(event.request, {})))
        self.messages.dispatch(effects)


class Topic(Destination):
    """Each message to every subscriber. A subscription begins and ends with its consumer."""

    def __init__(self, address: Address, number: int, *, residence: Residence, user_of: UserOf) -> None:
        super().__init__(address, number, residence=residence, user_of=user_of)
        self._lists: dict[int, MessageList] = {}
        self._by_consumer: dict[ConsumerId, MessageList] = {}
        self._next_list = 1

    def lists(self) -> Iterator[MessageList]:
        return iter(tuple(self._lists.values()))

    def list_by_number(self, number: int) -> MessageList | None:
        return self._lists.get(number)

    def _list_of(self, consumer: ConsumerId) -> MessageList | None:
        return self._by_consumer.get(consumer)

    def _attached(self, event: ConsumerAttached, effects: list[AnyEffect]) -> None:
        messages = MessageList(self._next_list, residence=self._residence, user_of=self._user_of)
        self._next_list += 1
        messages.attach(event.consumer, event.session, event.credit)
        self._lists[messages.number] = messages
        self._by_consumer[event.consumer] = messages
        effects.append(Multicast(Answered(event.request, {})))

    def _detached(self, event: ConsumerDetached, effects: list[AnyEffect]) -> None:
        messages = self._by_consumer.pop(event.consumer, None)
        if messages is not None:
            del self._lists[messages.number]
            messages.drop(effects)
        if event.request:
            effects.append(Multicast(Answered(event.request, {})))


def make_destination(address: Address, number: int, *, residence: Residence, user_of: UserOf) -> Destination:
    kind = Queue if kind_of(address) is Kind.QUEUE else Topic
    return kind(address, number, residence=residence, user_of=user_of)
