"""When a client manager speaks: what its clients want is not said where nobody would act upon it."""

import asyncio

from heliograph.bus.commands import Command, SessionClosed, SessionLost
from heliograph.bus.interface import Incarnation
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
