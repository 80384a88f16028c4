"""When a client manager speaks: what its clients want is not said where nobody would act upon it."""

import asyncio

from heliograph.bus.commands import (
    AlertsAttached,
    Answered,
    Command,
    Leads,
    SessionClosed,
    SessionLost,
    SessionResumed,
)
from heliograph.bus.interface import NO_VIEW, Incarnation, Origin, Place
from heliograph.model.destination import Address
from heliograph.model.ids import SessionId
from heliograph.nodes.cluster_clients import ClusterClients
from heliograph.nodes.tick import Tick


class Channel:
    """Takes everything."""

    incarnation = Incarnation(b"me")

    def __init__(self) -> None:
        self.said: list[Command] = []

    def multicast(self, command: Command) -> None:
        self.said.append(command)


def in_channel() -> tuple[ClusterClients, Channel]:
    loop = asyncio.new_event_loop()
    clients, channel = ClusterClients(Tick(loop, lambda _: None), lambda: None), Channel()
    clients.channel = channel
    loop.close()
    return clients, channel


FIRST, SECOND = SessionLost(SessionId(b"1")), SessionClosed(SessionId(b"2"))


def test_what_clients_want_waits_for_somebody_who_leads_and_keeps_its_order() -> None:
    clients, channel = in_channel()
    clients.may_speak = False
    clients.multicast(FIRST)
    clients.multicast(SECOND)
    clients.go_on()
    assert channel.said == []
    assert not clients.has_spoken
    clients.may_speak = True
    clients.go_on()
    assert channel.said == [FIRST, SECOND]
    assert clients.has_spoken


def test_who_begins_anew_has_said_nothing_and_says_nothing_of_before() -> None:
    clients, channel = in_channel()
    clients.multicast(FIRST)
    clients.may_speak = False
    clients.multicast(SECOND)
    clients.forget()
    assert not clients.has_spoken
    clients.may_speak = True
    clients.go_on()
    assert channel.said == [FIRST]


def test_whoever_leads_anew_hears_of_subscribers_from_the_client_manager_that_has_them_alone() -> None:
    """What another says of a session that went away may be out of date: it was unsubscribed from since."""
    clients, channel = in_channel()
    ours, theirs = SessionId(b"1" * 16), SessionId(b"2" * 16)
    for session in (ours, theirs):
        attached = AlertsAttached(
            0, Address("alerts:ops"), True, session, 1, "ann", "", 0, 5, [(0, "TAG", "^db")], [], []
        )
        clients.multicast(attached)
    elsewhere = Origin(Place(2, 1), Incarnation(b"them"), 1, NO_VIEW)
    clients._note_resumed(elsewhere, SessionResumed(9, theirs, "ann", b""))
    clients.on_decisions([Answered(9, {})])
    channel.said.clear()
    clients.on_decisions([Leads(3)])
    said_again = [fact for fact in channel.said if isinstance(fact, AlertsAttached)]
    assert [fact.session for fact in said_again] == [ours]
