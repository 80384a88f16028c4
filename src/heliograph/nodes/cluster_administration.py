"""What a node of a cluster does for administrators: it asks and answers, and shares its events (M13, M15)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from heliograph.admin.administration import Outcome
from heliograph.admin.subjects import BUS, GO_ON_WITHOUT, LOG, NODE, Arguments, argument
from heliograph.bus.commands import AMONG_NODES, Command, Happened
from heliograph.bus.presence import CLIENT_MANAGER, MESSAGE_MANAGER
from heliograph.cluster.roles import Roles
from heliograph.cluster.view import View
from heliograph.model.destination import EVENT_LOG
from heliograph.nodes.administrator import Administrator
from heliograph.nodes.clock import Clock
from heliograph.nodes.event_log import Event, EventLog
from heliograph.nodes.log_relay import LogRelay
from heliograph.nodes.message_manager import MessageManager
from heliograph.nodes.node_facts import client_manager_facts, process_facts, replica_facts
from heliograph.nodes.surveyor import Surveyor

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
        self._here: tuple[str, ...] = ()  # names of the nodes in the view
        self._roles: Roles | None = None
        self._view_number = 0
        self.surveyor = Surveyor(
            server.name,
            loop=loop,
            say=self._say,
            members=lambda: self._here,
            leading=self._leading,
            leader=self._leader,
            clock=clock,
        )
        self._relay = LogRelay(loop=loop, say=self._say, may_speak=self._may_speak, publish=self._publish)
        answers = self.surveyor.administration
        answers.register(NODE, self._node)
        answers.register(LOG, events.ask)
        answers.register(BUS, self.bus_figures)
        answers.register(GO_ON_WITHOUT, self._go_on_without)

    def register_with(self, manager: MessageManager) -> None:
        """What is asked of the cluster, and not of one of its nodes: whoever leads says it."""
        administrator = manager.administrator
        administrator.surveyor = self.surveyor
        administrator.administration.register(LOG, self._relay.ask)
        administrator.administration.register(BUS, self.bus_figures)
        administrator.administration.register(NODE, self._node)

    def happened(self, event: Event) -> None:
        """Something happened on this node."""
        self._relay.add(event)

    def stop(self) -> None:
        self._relay.stop()

    # ---- the channel

    def on_apply(self, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, AMONG_NODES):
                if isinstance(command, Happened):
                    self._relay.on_command(command)
                else:
                    self.surveyor.on_command(command)

    def on_install(self, view: View, roles: Roles) -> None:
        before, self._here = self._here, names_in(view)
        self._roles, self._view_number = roles, view.number
        self.surveyor.members_changed()
        self._relay.go_on()
        if before and self._leading() is not None:
            self._tell_who_came(before)

    def _tell_who_came(self, before: tuple[str, ...]) -> None:
        for event, nodes, others in (("node-came", self._here, before), ("node-went", before, self._here)):
            for node in nodes:
                if node not in others:
                    self._events.record(event, which=node)

    def _say(self, command: Command) -> None:
        self._server.member.multicast(command)

    def _may_speak(self) -> bool:
        return self._server.member.is_installed and bool(self._leader())

    def _leader(self) -> str:
        roles = self._roles
        return roles.states[roles.primary].name if roles is not None and roles.primary is not None else ""

    def _leading(self) -> Administrator | None:
        replica = self._server.replica
        return replica.manager.administrator if replica is not None and replica.is_leading else None

    def _publish(self, event: Event) -> None:
        """To `topic:_LOG`, by whoever leads; stored, if somebody wants to have it who is away."""
        replica = self._server.replica
        if replica is not None and replica.is_leading:
            replica.manager.own_messages.send(EVENT_LOG, event, persistent=None)

    # ---- what this node answers

    def _node(self, _arguments: Arguments) -> Outcome:
        server = self._server
        settings = server.configuration.cluster
        body: dict[str, Any] = {
            "cluster": settings.name,
            "sub_cluster": settings.sub_cluster,
            "uptime_seconds": self._now() - self._started,
            "view": self._view_number,
            "members": len(self._here),
            "leader": self._leader(),
            "lacks": server.lacks,
            **process_facts(),
        }
        if server.clients is not None:
            body[CLIENT_MANAGER] = client_manager_facts(server.clients, server.address)
        if server.replica is not None:
            body[MESSAGE_MANAGER] = replica_facts(server.replica)
        return Outcome(body)

    def _go_on_without(self, arguments: Arguments) -> Outcome:
        replica = self._server.replica
        waited = replica is not None and replica.go_on_without(argument(arguments, "node", str))
        return Outcome({"waited": waited})

    def bus_figures(self, _arguments: Arguments) -> Outcome:
        """Everybody hears everything, so each can say what all members sent."""
        return Outcome({"node": self._server.name, "heard_bytes": self._server.member.heard_bytes})


def names_in(view: View) -> tuple[str, ...]:
    """The nodes that are here, each process once."""
    names = dict.fromkeys(node.name for _, hello in view.hellos for node in hello.nodes)
    return tuple(sorted(names, key=lambda name: [part.rjust(5) for part in name.split(".")]))
