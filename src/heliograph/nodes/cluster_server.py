"""A process of a cluster: a client manager, a message manager or both, on one channel of the bus.

What is said in the channel is heard once and goes to the nodes of the process in a fixed order: first the message
manager, which acts on facts, then the client manager, which acts on decisions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

from heliograph.bus.commands import Command
from heliograph.bus.interface import ChannelBus, Incarnation, Origin
from heliograph.bus.presence import CLIENT_MANAGER, NodeState
from heliograph.cluster.view import View
from heliograph.journal.disk import DISK, Disk
from heliograph.model.errors import HeliographError, Unavailable
from heliograph.model.ids import IdIssuer
from heliograph.nodes.client_manager import ClientManager
from heliograph.nodes.clock import CLOCK, Clock
from heliograph.nodes.cluster_clients import ClusterClients
from heliograph.nodes.cluster_member import LEFT, ClusterMember
from heliograph.nodes.configuration import Configuration
from heliograph.nodes.connection import Connection
from heliograph.nodes.embedded import journal_settings
from heliograph.nodes.event_log import EventLog
from heliograph.nodes.message_manager import MessageManager
from heliograph.nodes.replica import ManagerBus, Replica
from heliograph.nodes.tick import Tick
from heliograph.nodes.users import UserStore, open_to_everyone
from heliograph.sessions.access import AccessControl


class ClusterServer:
    """The nodes of one process. Everything is set up in `start` and given back in `stop`."""

    def __init__(
        self,
        configuration: Configuration,
        bus: ChannelBus,
        *,
        disk: Disk = DISK,
        clock: Clock = CLOCK,
    ) -> None:
        self.configuration = configuration
        self._disk = disk
        self._clock = clock
        self._bus = bus
        self._server: asyncio.Server | None = None
        self._clients: ClientManager | None = None
        self._left = asyncio.Event()
        self.failed: asyncio.Future[HeliographError] = asyncio.get_running_loop().create_future()
        self.name = f"{configuration.identity.site}.{configuration.identity.node}"

    @property
    def address(self) -> tuple[str, int]:
        assert self._server is not None, "clients do not come here"
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    async def start(self) -> None:
        """Raises HeliographError, with a sentence that says what to do."""
        configuration, loop = self.configuration, asyncio.get_running_loop()
        cluster = configuration.cluster
        self._tick = Tick(loop, self._broke)
        self._events = EventLog(
            Path(configuration.server.data) / "log", node=self.name, disk=self._disk, clock=self._clock
        )
        self._issuer = IdIssuer(
            site=configuration.identity.site,
            node=configuration.identity.node,
            started_ms=self._clock.microseconds() // 1000,
        )
        self.replica: Replica | None = None
        self.bus: ClusterClients | None = None
        if cluster.role != CLIENT_MANAGER:
            self.replica = Replica(
                self.name,
                make_manager=self._make_manager,
                tick=self._tick,
                seniority=cluster.seniority,
                record=self._events.record,
                clock=self._clock,
            )
            await self.replica.open(configuration.server.host)
        if cluster.role != "message-manager":
            await self._start_clients(loop)
        self.member = ClusterMember(
            self._bus,
            f"heliograph/{cluster.name}/{cluster.sub_cluster}",
            nodes=self._nodes,
            handler=self,
            loop=loop,
            clock=loop.time,
            number=self.replica.manager.place.lineage if self.replica is not None else 0,
        )
        for part in (self.replica, self.bus):
            if part is not None:
                part.channel = self.member
        self.member.start()

    def _make_manager(self, bus: ManagerBus) -> MessageManager:
        configuration = self.configuration
        manager = MessageManager(
            Path(configuration.server.data) / "journal",
            bus=bus,
            tick=self._tick,
            settings=journal_settings(configuration),
            resident_bytes=configuration.memory.resident_bytes,
            in_memory=configuration.journal.durability == "memory",
            issuer=self._issuer,
            rules=configuration.policy_rules(),
            node=self.name,
            record=self._events.record,
            large_quota_bytes=configuration.large.quota_bytes,
            large_reserve_bytes=configuration.large.reserve_bytes,
            kept_seconds=configuration.sessions.kept_seconds,
            is_replicated=True,
            disk=self._disk,
            clock=self._clock,
        )
        manager.failed.add_done_callback(self._manager_failed)
        return manager

    def _manager_failed(self, failed: asyncio.Future[HeliographError]) -> None:
        if not failed.cancelled() and not self.failed.done():
            self.failed.set_result(failed.result())

    async def _start_clients(self, loop: asyncio.AbstractEventLoop) -> None:
        configuration = self.configuration
        everyone = open_to_everyone(configuration.server.host, configuration.users_path)
        users = None if everyone else UserStore.load(configuration.users_path)
        creation = configuration.creation_rules()
        if users is None:
            access = AccessControl(open_to_everyone=True, creation=creation)
        else:
            access = users.access_control(creation)
        self.bus = ClusterClients(self._tick)
        clients = self._clients = ClientManager(
            configuration,
            bus=self.bus,
            tick=self._tick,
            issuer=self._issuer,
            access=access,
            users=users,
            record=self._events.record,
            clock=self._clock,
        )
        clients.start()
        server = configuration.server
        try:
            self._server = await loop.create_server(
                partial(Connection, clients), server.host, server.port, backlog=1024
            )
        except OSError as error:
            raise Unavailable(
                f"cannot listen on {server.host}:{server.port}: {error.strerror or error}; is another server"
                " running there? Choose another port with --port",
                code="address-unavailable",
            ) from None

    async def stop(self) -> None:
        """No confirmed message is lost: everything is on disk when this returns."""
        if self._server is not None:
            self._server.close()
        if self._clients is not None:
            self._clients.stop()
            await asyncio.sleep(0)  # let connections send their last bytes and end
        if self.replica is not None:
            await self.replica.hand_over()
        self.member.leave()
        await self._left.wait()
        if self.replica is not None:
            await self.replica.stop()
        await self._events.stop()

    def _broke(self, bug: Exception) -> None:
        if not self.failed.done():
            self.failed.set_result(HeliographError(f"the server has a defect: {bug!r}", code="defect"))

    def _nodes(self) -> tuple[NodeState, ...]:
        states = []
        if self.replica is not None:
            states.append(self.replica.state)
        if self.bus is not None:
            states.append(NodeState(self.name, CLIENT_MANAGER))
        return tuple(states)

    # ---- the channel

    def on_apply(self, origin: Origin, commands: list[Command], _position: int) -> None:
        if self.replica is not None:
            self.replica.on_apply(origin, commands)
        if self.bus is not None:
            self.bus.on_apply(origin, commands)

    def on_suspend(self) -> None:
        if self.replica is not None:
            self.replica.on_suspend()

    def on_install(self, view: View) -> None:
        if self.replica is not None:
            self.replica.on_install(view)

    def on_arrive(self, incarnation: Incarnation, agrees: bool) -> None: ...

    def on_flow(self, may_send: bool) -> None:
        if self.replica is not None:
            self.replica.on_flow(may_send)
        if self.bus is not None and may_send:
            self.bus.go_on()

    def force(self, then: Callable[[], None]) -> None:
        if self.replica is not None:
            self.replica.force(then)
        else:
            then()

    def on_left(self, why: str) -> None:
        """Nothing that this process knew as a member counts. Its clients go elsewhere, or come again."""
        if why == LEFT:
            self._left.set()
            return
        self._events.record("node-left-the-channel", why=why)
        if self._clients is not None:
            self._clients.drop_all(
                Unavailable("the server lost its place in the cluster", code="server-moved")
            )
        if self.bus is not None:
            self.bus.forget()
        if self.replica is not None:
            self.replica.begin_anew()
        self.member.re_enter()
