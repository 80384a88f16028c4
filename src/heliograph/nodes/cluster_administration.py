"""What a node of a cluster does for administrators: it asks and answers, and shares its events (M13, M15).

A client manager is in the channels of all sub-clusters: it asks each node in one channel in which that node is, and
brings events of message managers to the sub-cluster that keeps the log of all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from heliograph.admin.administration import Outcome
from heliograph.admin.subjects import (
    BUS,
    CERTIFICATE_RELOAD,
    HAND_OVER,
    LOG,
    NODE,
    OVERRIDE,
    REMOVE_NODE,
    USERS,
    Arguments,
    argument,
)
from heliograph.bus.commands import Command, DocumentTold, Happened, NodesAsked
from heliograph.bus.interface import Incarnation
from heliograph.bus.presence import CLIENT_MANAGER, MESSAGE_MANAGER
from heliograph.cluster.view import View
from heliograph.destinations.documents import Document, encode_document
from heliograph.destinations.effects import AnyEffect, Multicast, Write
from heliograph.journal.records import RecordKind
from heliograph.model.destination import EVENT_LOG
from heliograph.model.errors import ClientFault
from heliograph.model.limits import MAX_DOCUMENT_BYTES
from heliograph.model.rendezvous import chosen
from heliograph.nodes.administrator import Administrator
from heliograph.nodes.clock import Clock
from heliograph.nodes.event_log import Event, EventLog
from heliograph.nodes.handing_over import order_hand_over
from heliograph.nodes.log_relay import LogRelay
from heliograph.nodes.message_manager import MessageManager
from heliograph.nodes.node_facts import client_manager_facts, partition_facts, process_facts, replica_facts
from heliograph.nodes.partition_orders import NOTHING, PartitionOrders
from heliograph.nodes.station import Station
from heliograph.nodes.surveyor import Surveyor
from heliograph.nodes.user_handlers import UserHandlers
from heliograph.nodes.users import UserStore
from heliograph.nodes.users_copy import UsersCopy

if TYPE_CHECKING:
    from heliograph.nodes.cluster_server import ClusterServer


class ClusterAdministration:
    """Of one process."""

    def __init__(self, server: ClusterServer, events: EventLog, clock: Clock) -> None:
        loop = asyncio.get_running_loop()
        self._server = server
        self._events = events
        self._now = clock.now
        self._started = clock.now()
        self._here: dict[str, tuple[str, ...]] = {}  # the nodes in the view of each sub-cluster
        self._views: dict[str, int] = {}
        # The one whose `topic:_LOG` clients are given.
        self._keeper = chosen(EVENT_LOG.encode(), list(server.configuration.cluster.all_sub_clusters))
        self.surveyor = Surveyor(
            server.name,
            loop=loop,
            say=self._ask_nodes,
            members=self._members,
            leading=self._leading,
            leader=lambda: _leader_in(server.own),
            clock=clock,
        )
        self.surveyor.keeper = self._leader_of_keeper
        self._copy: UsersCopy | None = None
        self._shown_to: Incarnation | None = None
        self._relay = LogRelay(loop=loop, say=self._tell, may_speak=self._may_speak, publish=self._publish)
        answers = self.surveyor.administration
        answers.register(NODE, self._node)
        answers.register(LOG, events.ask)
        answers.register(BUS, self.bus_figures)
        answers.register(REMOVE_NODE, self._remove_node)
        answers.register(OVERRIDE, self._override)
        answers.register(HAND_OVER, self._hand_over)
        answers.register(CERTIFICATE_RELOAD, lambda _: Outcome(server.reload_certificates()))

    def register_with(self, manager: MessageManager) -> None:
        """What is asked of the cluster, and not of one of its nodes: whoever leads says it."""
        administrator = manager.administrator
        administrator.surveyor = self.surveyor
        administrator.administration.register(LOG, self._log)
        administrator.administration.register(BUS, self.bus_figures)
        administrator.administration.register(NODE, self._node)
        UserHandlers(partial(self._users_in, manager), partial(_keep_in, manager)).register_with(
            administrator.administration
        )

    def _users_in(self, manager: MessageManager) -> UserStore:
        document = manager.catalogue.documents.by_key.get(USERS)
        path = self._server.configuration.users_path
        return UserStore(path) if document is None else UserStore.of(document.content, path)

    def keep_copy(self, copy: UsersCopy) -> None:
        """Of the users, whom the sub-cluster knows that keeps the log, too."""
        self._copy = copy
        station = self._server.stations[self._keeper]
        assert station.clients is not None, "users are for clients"
        station.clients.join(copy.on_command, (DocumentTold,))

    def _show_copy(self, station: Station) -> None:
        """To each that comes to lead."""
        leader = station.roles.primary if station.roles is not None else None
        if self._copy is None or station.sub_cluster != self._keeper or leader in (None, self._shown_to):
            return
        offer = self._copy.offer()
        if offer is not None and station.clients is not None:
            station.clients.multicast(offer)
        self._shown_to = leader

    def stop(self) -> None:
        self._relay.stop()

    # ---- the channels

    def on_command(self, station: Station, command: Command) -> None:
        if not isinstance(command, Happened):
            self.surveyor.on_command(command, station.member.multicast)
            return
        self._relay.on_command(command)
        if station.sub_cluster != self._keeper and self._brings_from(station):
            for event in command.events:
                self._relay.add(event)

    def on_install(self, station: Station, view: View) -> None:
        name = station.sub_cluster
        before, self._here[name] = self._here.get(name, ()), names_in(view)
        self._views[name] = view.number
        self.surveyor.members_changed()
        self._relay.go_on()
        self._show_copy(station)
        if before and station.replica is not None and station.replica.is_leading:
            self._tell_who_came(before, self._here[name])

    def _tell_who_came(self, before: tuple[str, ...], here: tuple[str, ...]) -> None:
        for event, nodes, others in (("node-came", here, before), ("node-went", before, here)):
            for node in nodes:
                if node not in others:
                    self._events.record(event, which=node)

    def _leading(self) -> Administrator | None:
        replica = self._server.replica
        return replica.manager.administrator if replica is not None and replica.is_leading else None

    def _leader_of_keeper(self) -> str:
        station = self._server.stations.get(self._keeper)
        return _leader_in(station) if station is not None else ""

    # ---- questions

    def _members(self) -> list[str]:
        return in_order(name for names in self._here.values() for name in names)

    def _ask_nodes(self, command: Command) -> None:
        """Each where it is. Raises Unavailable."""
        assert isinstance(command, NodesAsked), "nothing else is said here"
        left = list(command.nodes)
        for name, station in self._server.stations.items():
            there = [node for node in left if node in self._here.get(name, ())]
            left = [node for node in left if node not in there]
            if there:
                station.member.multicast(msgspec.structs.replace(command, nodes=there))

    # ---- events

    def happened(self, event: Event) -> None:
        """Something happened on this node."""
        self._relay.add(event)

    def _log_station(self) -> Station:
        """Where this node tells what happened: where the log of all is kept, if it is there."""
        return self._server.stations.get(self._keeper) or self._server.own

    def _may_speak(self) -> bool:
        station = self._log_station()
        return station.member.is_installed and bool(_leader_in(station))

    def _tell(self, happened: Command) -> None:
        self._log_station().member.multicast(happened)

    def _brings_from(self, station: Station) -> bool:
        """Of the client managers that hear it, the first brings it to those who keep the log."""
        roles = station.roles
        return bool(
            self._keeper in self._server.stations
            and roles is not None
            and roles.client_managers
            and roles.client_managers[0] == station.member.incarnation
        )

    def _publish(self, event: Event) -> None:
        """To `topic:_LOG`, by whoever leads; stored, if somebody wants to have it who is away."""
        replica = self._server.replica
        if replica is not None and replica.is_leading:
            replica.manager.own_messages.send(EVENT_LOG, event, persistent=None)

    def _log(self, arguments: Arguments) -> Outcome:
        """One sub-cluster answers for all."""
        is_keeper = self._server.configuration.cluster.sub_cluster == self._keeper
        return self._relay.ask(arguments) if is_keeper else Outcome({"events": []})

    # ---- what this node answers

    def _node(self, _arguments: Arguments) -> Outcome:
        server = self._server
        settings = server.configuration.cluster
        body: dict[str, Any] = {
            "cluster": settings.name,
            "uptime_seconds": self._now() - self._started,
            "leaders": {name: _leader_in(station) for name, station in server.stations.items()},
            "views": dict(self._views),
            "partitions": {name: partition_facts(station) for name, station in server.stations.items()},
            "lacks": server.lacks,
            **process_facts(),
        }
        if server.clients is not None:
            body[CLIENT_MANAGER] = client_manager_facts(server.clients, server.address)
        if server.replica is not None:
            body[MESSAGE_MANAGER] = {"sub_cluster": settings.sub_cluster, **replica_facts(server.replica)}
        return Outcome(body)

    def _remove_node(self, arguments: Arguments) -> Outcome:
        name, by = argument(arguments, "node", str), argument(arguments, "by", str, "")
        orders = self._orders()
        return Outcome(orders.remove(name, by) if orders is not None else {"done": NOTHING})

    def _override(self, arguments: Arguments) -> Outcome:
        orders = self._orders()
        by = argument(arguments, "by", str, "")
        return Outcome(orders.override(by) if orders is not None else {"done": NOTHING})

    def _hand_over(self, arguments: Arguments) -> Outcome:
        server, by = self._server, argument(arguments, "by", str, "")
        return Outcome(order_hand_over(server.own, server.replica, by, self._events.record))

    def _orders(self) -> PartitionOrders | None:
        server = self._server
        if server.replica is None:
            return None
        return PartitionOrders(server.own, server.replica, self._events.record)

    def bus_figures(self, _arguments: Arguments) -> Outcome:
        """Everybody hears everything, so each can say what all members of its channel sent."""
        return Outcome({"node": self._server.name, "heard_bytes": self._server.member.heard_bytes})


def _keep_in(manager: MessageManager, store: UserStore) -> list[AnyEffect]:
    """In the journal, and every node gets a copy. Raises ClientFault."""
    content = store.content
    if len(content) > MAX_DOCUMENT_BYTES:
        raise ClientFault(
            f"the users of a cluster take {MAX_DOCUMENT_BYTES} bytes at most", code="users-too-many"
        )
    document = Document(USERS, store.version, content)
    manager.catalogue.documents.restore(document)
    return [
        Write(RecordKind.DOCUMENT, encode_document(document)),
        Multicast(DocumentTold(USERS, store.version, content)),
    ]


def _leader_in(station: Station) -> str:
    roles = station.roles
    return roles.states[roles.primary].name if roles is not None and roles.primary is not None else ""


def names_in(view: View) -> tuple[str, ...]:
    """The nodes that are here, each process once."""
    return tuple(in_order(node.name for _, hello in view.hellos for node in hello.nodes))


def in_order(names: Iterable[str]) -> list[str]:
    """Each once, by site and number."""
    return sorted(dict.fromkeys(names), key=lambda name: [part.rjust(5) for part in name.split(".")])
