"""What a client manager of a cluster passes on to its clients, and when."""

from __future__ import annotations

import asyncio

from heliograph.bus.commands import (
    Answered,
    BrowseEnded,
    Command,
    ConsumerAttached,
    Dispatched,
    Leads,
    Logged,
    RollbackAsked,
    Supplied,
)
from heliograph.bus.interface import NO_VIEW, Incarnation, Origin, Place
from heliograph.cluster.log import name_of
from heliograph.model.block import Span, pack_lone, parse
from heliograph.model.destination import Address
from heliograph.model.ids import ConsumerId, LaneId, SessionId
from heliograph.nodes.cluster_clients import ClusterClients
from heliograph.nodes.tick import Tick

CONSUMER = ConsumerId(b"c" * 16)
SESSION = SessionId(b"s" * 16)
ORDERS = Address("queue:orders")
PRIMARY = Origin(Place(1, 1), Incarnation(b"p" * 16), 1, NO_VIEW)


class Channel:
    """Everything said goes nowhere."""

    incarnation = Incarnation(b"i" * 16)

    def __init__(self) -> None:
        self.said: list[Command] = []

    def multicast(self, command: Command) -> None:
        self.said.append(command)


def test_a_browser_ends_when_another_leads_unless_it_has_not_begun() -> None:
    async def story() -> None:
        told: list[Command] = []
        clients = ClusterClients(Tick(asyncio.get_running_loop(), lambda _: None), lambda: None)
        clients.channel = Channel()
        clients.join(told.append)
        clients.multicast(ConsumerAttached(1, ORDERS, CONSUMER, SESSION, 5, browse=True))
        leads = Logged(1, 0, [], [], decisions=[Leads(0)])
        clients.on_apply(PRIMARY, [leads])
        assert told == []
        clients.on_apply(PRIMARY, [Logged(1, 0, [], [], decisions=[Answered(1, {})]), leads, leads])
        assert told == [Answered(1, {}), BrowseEnded(CONSUMER)]

    asyncio.run(story())


def test_what_was_rolled_back_while_its_bytes_were_missing_does_not_come_behind_the_answer() -> None:
    async def story() -> None:
        told: list[Command] = []
        clients = ClusterClients(Tick(asyncio.get_running_loop(), lambda _: None), lambda: None)
        clients.channel = Channel()
        clients.join(told.append)
        clients.multicast(ConsumerAttached(1, ORDERS, CONSUMER, SESSION, 5))
        clients.multicast(RollbackAsked(2, SESSION, 1, [(ORDERS, CONSUMER, 0)]))
        block = parse(pack_lone(b"body", lane=LaneId(b"l" * 16), sequence=1))
        named = parse(pack_lone(b"body", lane=LaneId(b"l" * 16), sequence=1))
        name_of(named)
        named.buffer = None

        def decided(*decisions: Command) -> None:
            clients.on_apply(PRIMARY, [Logged(1, 0, [], [], decisions=list(decisions))])

        decided(Dispatched(CONSUMER, 1, Span(named, 0, 1), ""))
        decided(Answered(2, {}))
        clients.on_apply(PRIMARY, [Supplied(name_of(block), block)])
        assert told == [Answered(2, {})]
        decided(Dispatched(CONSUMER, 2, Span(named, 0, 1), ""))
        assert [type(each) for each in told] == [Answered, Dispatched]

    asyncio.run(story())
