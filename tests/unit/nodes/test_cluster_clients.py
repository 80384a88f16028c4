"""What a client manager of a cluster passes on to its clients, and when."""

from __future__ import annotations

import asyncio

import pytest

from heliograph.bus.commands import (
    AlertsAttached,
    Answered,
    BodyWanted,
    BrowseEnded,
    Command,
    CommitAsked,
    ConsumerAttached,
    Dispatched,
    FetchBegun,
    Leads,
    Logged,
    Parcelled,
    Rejected,
    RollbackAsked,
    SessionClosed,
    SessionLost,
    Settled,
    Supplied,
    TransferFailed,
)
from heliograph.bus.interface import NO_VIEW, Incarnation, Origin, Place
from heliograph.cluster.log import name_of
from heliograph.model.block import Block, Span, pack_lone, parse
from heliograph.model.claim import Claim
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


def test_a_download_that_came_to_nothing_is_not_begun_again_when_another_leads() -> None:
    async def story() -> None:
        channel = Channel()
        clients = ClusterClients(Tick(asyncio.get_running_loop(), lambda _: None), lambda: None)
        clients.channel = channel
        for transfer in (1, 2, 3):
            clients.multicast(FetchBegun(transfer, SESSION, transfer, b"f" * 16, 0, 10))
        answers = [Answered(1, {}), Answered(2, {}), Rejected(3, "large-gone", "it is gone")]
        clients.on_apply(PRIMARY, [*answers, TransferFailed(SESSION, 2, "disk-failed", "it is broken")])
        channel.said.clear()
        clients.on_apply(PRIMARY, [Logged(1, 0, [], [], decisions=[Leads(0)])])
        assert [each.transfer for each in channel.said if isinstance(each, FetchBegun)] == [1]

    asyncio.run(story())


@pytest.mark.parametrize("end", [SessionLost(SESSION), SessionClosed(SESSION)])
def test_what_a_client_asked_for_that_is_gone_is_not_asked_for_again_when_another_leads(end: Command) -> None:
    async def story() -> None:
        channel = Channel()
        clients = ClusterClients(Tick(asyncio.get_running_loop(), lambda _: None), lambda: None)
        clients.channel = channel
        other = SessionId(b"o" * 16)
        for number, session in enumerate((SESSION, other), start=1):
            clients.multicast(ConsumerAttached(number, ORDERS, ConsumerId(session), session, 5))
            clients.multicast(FetchBegun(number + 2, session, 1, b"f" * 16, 0, 10))
            clients.multicast(AlertsAttached(number + 4, ORDERS, True, session, 1, "user", "name", 0, 5, []))
        clients.multicast(CommitAsked(7, SESSION, 1, 0, []))
        clients.multicast(end)
        channel.said.clear()
        clients.on_apply(PRIMARY, [Logged(1, 0, [], [], decisions=[Leads(0)])])
        requests = sorted(getattr(each, "request", 0) for each in channel.said)
        assert [each for each in requests if each] == [2, 4, 6, 7]

    asyncio.run(story())


def test_what_is_asked_again_about_a_consumer_says_so() -> None:
    async def story() -> None:
        channel = Channel()
        clients = ClusterClients(Tick(asyncio.get_running_loop(), lambda _: None), lambda: None)
        clients.channel = channel
        claimed = ConsumerAttached(1, ORDERS, CONSUMER, SESSION, 5, number=1, claim=Claim())
        clients.multicast(claimed)
        clients.multicast(Settled(ORDERS, CONSUMER, False, [(1, 1)], request=2))
        leads = Logged(1, 0, [], [], decisions=[Leads(0)])
        clients.on_apply(PRIMARY, [leads, leads])
        said = [each.again for each in channel.said if isinstance(each, ConsumerAttached | Settled)]
        assert said == [False, False, True, True, True, True]

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


def test_bytes_that_are_missing_are_asked_for_once_and_each_under_its_tag() -> None:
    """Whatever is supplied, all who wait try again. If they asked again too, answers would bring more questions."""

    async def story() -> None:
        told: list[Command] = []
        channel = Channel()
        clients = ClusterClients(Tick(asyncio.get_running_loop(), lambda _: None), lambda: None)
        clients.channel = channel
        clients.join(told.append)
        other = ConsumerId(b"o" * 16)
        for request, consumer in ((1, CONSUMER), (2, other)):
            clients.multicast(ConsumerAttached(request, ORDERS, consumer, SESSION, 5))
        parcel = Parcelled(CONSUMER, 1, [Span(_named(1), 0, 1), Span(_named(2), 0, 1)], "")
        single = Dispatched(other, 7, Span(_named(3), 0, 1), "")
        clients.on_apply(PRIMARY, [Logged(1, 0, [], [], decisions=[parcel, single])])

        def asked() -> list[Command]:
            found, channel.said = [each for each in channel.said if isinstance(each, BodyWanted)], []
            return list(found)

        def supplied(sequence: int) -> None:
            clients.on_apply(PRIMARY, [Supplied(name_of(_block(sequence)), _block(sequence))])

        assert asked() == [BodyWanted(CONSUMER, 1), BodyWanted(other, 7)]
        supplied(9)
        assert asked() == [], "they have asked"
        supplied(1)
        supplied(1)
        assert asked() == [BodyWanted(CONSUMER, 2)], "the rest of the parcel"
        clients.on_apply(PRIMARY, [Logged(2, 0, [], [], decisions=[Leads(0)])])
        assert asked() == [BodyWanted(CONSUMER, 2), BodyWanted(other, 7)], (
            "the one before heard it, and told nobody"
        )
        supplied(2)
        supplied(3)
        assert [type(each) for each in told] == [Parcelled, Dispatched]
        assert asked() == []

    asyncio.run(story())


def _block(sequence: int) -> Block:
    return parse(pack_lone(b"body", lane=LaneId(b"l" * 16), sequence=sequence))


def _named(sequence: int) -> Block:
    """As a decision names it."""
    block = _block(sequence)
    name_of(block)
    block.buffer = None
    return block


@pytest.mark.req("P8")
def test_a_commit_is_told_when_most_have_seen_it_and_asked_again_when_the_view_ends_before() -> None:
    async def story() -> None:
        told: list[Command] = []
        channel = Channel()
        clients = ClusterClients(Tick(asyncio.get_running_loop(), lambda _: None), lambda: None)
        clients.channel = channel
        clients.join(told.append)
        commit = CommitAsked(1, SESSION, 1, 0, [])
        clients.multicast(commit)
        committed = Logged(1, 0, [], [], decisions=[Answered(1, {}, b"view")])
        clients.on_apply(PRIMARY, [committed], 7)
        clients.seen(6)
        assert told == []
        clients.view_ended()
        clients.go_on()
        assert channel.said == [commit, commit]
        clients.on_apply(PRIMARY, [committed], 3)
        assert told == []
        clients.seen(3)
        assert told == [Answered(1, {}, b"view")]
        clients.view_ended()
        clients.go_on()
        assert channel.said == [commit, commit]

    asyncio.run(story())
