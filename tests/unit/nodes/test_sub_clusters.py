"""Several sub-clusters as one: what is not asked for any more of one when another has said that it is over."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from heliograph.bus.commands import (
    Answered,
    Command,
    ConsumerAttached,
    DestinationMade,
    Leads,
    SessionResumed,
)
from heliograph.bus.interface import NO_VIEW, Incarnation, Origin, Place
from heliograph.model.destination import Address
from heliograph.model.ids import ConsumerId, SessionId
from heliograph.nodes.cluster_clients import ClusterClients
from heliograph.nodes.sub_clusters import SubClusters
from heliograph.nodes.tick import Tick

ORDERS = Address("queue:orders")
MINE, THEIRS = SessionId(b"s" * 16), SessionId(b"t" * 16)
ELSEWHERE = Origin(Place(2, 1), Incarnation(b"e" * 16), 1, NO_VIEW)


class Channel:
    """Of one sub-cluster."""

    incarnation = Incarnation(b"i" * 16)

    def __init__(self) -> None:
        self.said: list[Command] = []

    def multicast(self, command: Command) -> None:
        self.said.append(command)

    @property
    def attached(self) -> list[SessionId]:
        return [each.session for each in self.said if isinstance(each, ConsumerAttached)]


class Desk:
    """A client manager of the east and the west."""

    def __init__(self) -> None:
        tick = Tick(asyncio.get_running_loop(), lambda _: None)
        self.channels = {name: Channel() for name in ("east", "west")}
        parts = {name: ClusterClients(tick, lambda: None, self._taken) for name in self.channels}
        for name, part in parts.items():
            part.channel = self.channels[name]
        self.whole = SubClusters(parts, next_request=count(100).__next__, on_missed=lambda: None)

    def _taken(self, session: SessionId) -> None:
        self.whole.taken(session)

    def attach(self, request: int, session: SessionId) -> None:
        consumer = ConsumerId(bytes([request]) * 16)
        self.whole.multicast(ConsumerAttached(request, ORDERS, consumer, session, 5, create=True))

    def hears_in_the_west_that_mine_is_elsewhere(self) -> None:
        west = self.whole.parts["west"]
        west.on_apply(ELSEWHERE, [SessionResumed(9, MINE, "guest", b"token")])
        west.on_decisions([Answered(9, {})])

    def hears_in_the_east(self, decision: Command) -> None:
        self.whole.parts["east"].on_decisions([decision])


@pytest.mark.req("M8")
def test_who_waits_for_the_place_of_a_queue_and_goes_on_elsewhere_is_not_attached_when_it_is_found() -> None:
    async def story() -> None:
        desk = Desk()
        desk.attach(1, MINE)
        desk.attach(2, THEIRS)
        desk.hears_in_the_west_that_mine_is_elsewhere()
        desk.hears_in_the_east(DestinationMade(ORDERS))
        assert desk.channels["east"].attached == [THEIRS]

    asyncio.run(story())


@pytest.mark.req("M8")
def test_who_was_not_answered_in_one_sub_cluster_and_goes_on_elsewhere_is_not_asked_for_again_there() -> None:
    """The sub-cluster in which it waits does not hear that the session moved before another leads it."""

    async def story() -> None:
        desk = Desk()
        desk.hears_in_the_east(DestinationMade(ORDERS))
        desk.attach(1, MINE)
        desk.attach(2, THEIRS)
        desk.hears_in_the_west_that_mine_is_elsewhere()
        desk.channels["east"].said.clear()
        desk.hears_in_the_east(Leads(1))
        assert desk.channels["east"].attached == [THEIRS]

    asyncio.run(story())
