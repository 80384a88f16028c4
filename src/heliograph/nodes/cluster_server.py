"""A process of a cluster: a client manager, a message manager or both, on one channel of the bus.

What is said in the channel is heard once and goes to the nodes of the process in a fixed order: first the message
manager, which acts on facts, then the client manager, which acts on decisions.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from heliograph import __version__
from heliograph.bus.commands import Command
from heliograph.bus.interface import ChannelBus, Damage, Incarnation, Origin
from heliograph.bus.presence import CLIENT_MANAGER, MESSAGE_MANAGER, NodeState
from heliograph.cluster.roles import Roles, roles_in
from heliograph.cluster.view import View, straight
from heliograph.journal.disk import DISK, Disk
from heliograph.model.errors import HeliographError, Unavailable
from heliograph.model.ids import IdIssuer
from heliograph.model.limits import DRAIN_SECONDS, LEAVING_SECONDS, NOBODY_LEADS_SECONDS
from heliograph.nodes.client_manager import ClientManager
from heliograph.nodes.clock import CLOCK, Clock
from heliograph.nodes.cluster_administration import ClusterAdministration
from heliograph.nodes.cluster_clients import ClusterClients
from heliograph.nodes.cluster_member import LEFT, ClusterMember
from heliograph.nodes.configuration import Configuration, essentials_of
from heliograph.nodes.embedded import journal_settings
from heliograph.nodes.event_log import ON_THE_BUS, EventLog
from heliograph.nodes.message_manager import MessageManager
from heliograph.nodes.node_file import Folder
from heliograph.nodes.replica import ManagerBus, Replica
from heliograph.nodes.serving import admission, listen, settle_memory
from heliograph.nodes.tick import Tick

# The bus could not be entered: nothing was heard since the last time.
_NOT_ENTERED: Final = "bus-unavailable"


class ClusterServer:
    """The nodes of one process. Everything is set up in `start` and given back in `stop`."""

    member: ClusterMember

    def __init__(
        self,
        configuration: Configuration,
        bus: ChannelBus,
        *,
        disk: Disk = DISK,
        clock: Clock = CLOCK,
        owns_process: bool = True,
        look_around: Callable[[], str] = lambda: "",
    ) -> None:
        """`owns_process`: nobody else minds how its memory is managed. `look_around` says what is missing if the bus
        reaches nobody else though it should."""
        self._look_around = look_around
        self.configuration = configuration
        self._disk = disk
        self._clock = clock
        self._owns_process = owns_process
        self.name = f"{configuration.identity.site}.{configuration.identity.node}"
        self.replica: Replica | None = None
        self.bus: ClusterClients | None = None
        self._bus = bus
        self._server: asyncio.Server | None = None
        self._clients: ClientManager | None = None
        self._left = asyncio.Event()
        self._looking_again: asyncio.TimerHandle | None = None
        self._is_in = False  # in a view, which may be over
        self._left_because = ""
        self._ready = asyncio.Event()
        self._roles: Roles | None = None  # of the last view
        self._folder = Folder(Path(configuration.server.data), disk)
        self._essentials = essentials_of(configuration)
        self.failed: asyncio.Future[HeliographError] = asyncio.get_running_loop().create_future()

    @property
    def address(self) -> tuple[str, int] | None:
        """Where clients connect, if they come here."""
        if self._server is None:
            return None
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    async def start(self) -> None:
        """Raises HeliographError, with a sentence that says what to do, and has then left nothing behind."""
        configuration, loop = self.configuration, asyncio.get_running_loop()
        cluster = configuration.cluster
        self._tick = Tick(loop, self._broke)
        self._events = EventLog(
            Path(configuration.server.data) / "log", node=self.name, disk=self._disk, clock=self._clock
        )
        self._administration = ClusterAdministration(self, self._events, self._clock)
        self._issuer = IdIssuer(
            site=configuration.identity.site,
            node=configuration.identity.node,
            started_ms=self._clock.microseconds() // 1000,
        )
        self._folder.claim(self.name, cluster.name)
        try:
            if cluster.role != CLIENT_MANAGER:
                await self._start_replica()
            if cluster.role != MESSAGE_MANAGER:
                await self._start_clients()
        except BaseException:
            await self._stop_nodes()
            raise
        self._events.start(self._administration.happened)
        self._enter(f"heliograph/{cluster.name}/{cluster.sub_cluster}")
        if self.bus is not None:
            self._looking_again = loop.call_later(NOBODY_LEADS_SECONDS, self._send_elsewhere)
        address = self.address
        self._events.record(
            "server-started",
            version=__version__,
            role=cluster.role,
            address=":".join(map(str, address)) if address is not None else "",
        )
        if self._owns_process:
            settle_memory()

    def _enter(self, channel: str) -> None:
        loop = asyncio.get_running_loop()
        self.member = ClusterMember(
            self._bus,
            channel,
            nodes=self._nodes,
            handler=self,
            loop=loop,
            clock=loop.time,
            number=self.replica.manager.place.lineage if self.replica is not None else 0,
            on_damage=self._damaged,
            sync_age=self.replica.sync_age if self.replica is not None else None,
        )
        for part in (self.replica, self.bus):
            if part is not None:
                part.channel = self.member
        self.member.start()

    async def _start_replica(self) -> None:
        replica = Replica(
            self.name,
            make_manager=self._make_manager,
            tick=self._tick,
            seniority=self.configuration.cluster.seniority,
            record=self._events.record,
            clock=self._clock,
            lease_seconds=self.configuration.sessions.lease_seconds,
            expected=self.configuration.cluster.message_managers,
        )
        await replica.open(self.configuration.server.host)
        self.replica = replica

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
        self._administration.register_with(manager)
        bus.join(self._events.on_command, ON_THE_BUS)
        return manager

    def _manager_failed(self, failed: asyncio.Future[HeliographError]) -> None:
        if not failed.cancelled() and not self.failed.done():
            self.failed.set_result(failed.result())

    async def _start_clients(self) -> None:
        configuration = self.configuration
        access, users = admission(configuration)
        self.bus = ClusterClients(self._tick, self._begin_anew)
        self.bus.may_speak = False  # until there is a view in which somebody leads
        clients = ClientManager(
            configuration,
            bus=self.bus,
            tick=self._tick,
            issuer=self._issuer,
            access=access,
            users=users,
            record=self._events.record,
            clock=self._clock,
        )
        clients.surveyor = self._administration.surveyor
        clients.start()
        self._clients = clients
        self._server = await listen(configuration, clients)

    async def wait_ready(self) -> None:
        """Until this process counts: there is a view, its message manager leads or has the log of the one that
        does, and if clients come here, somebody leads."""
        await self._ready.wait()

    @property
    def lacks(self) -> str:
        """What `wait_ready` waits for, in words; empty if nothing."""
        roles = self._roles
        if roles is None or roles.primary is None:
            alone = self._look_around()
            if alone:
                return alone
        if roles is None:
            return "the nodes that are here to agree on who is in the cluster"
        if roles.primary is None and roles.missing:
            names = " and ".join(roles.missing)
            return (
                f"message manager {names}: without it nobody leads, since it may have later messages than those that"
                f" are here. Start it; only if its disk is lost for good, `helio cluster remove {roles.missing[0]}`"
            )
        if roles.primary is None and roles.others:
            expected = max(state.expected for state in roles.states.values())
            return (
                f"more message managers: at the very first start all {expected} must be there, and there are"
                f" {len(roles.states)}"
            )
        if roles.primary is None:
            return "a message manager: start one with --role message-manager"
        if self.replica is not None and not self.replica.state.is_synchronised:
            return (
                f"the log of message manager {roles.states[roles.primary].name}, which it does not have yet"
            )
        return ""

    def note_waiting(self, lacks: str) -> None:
        """Whoever reads the log later sees what this node waited for."""
        self._events.record("server-waits", sentence=lacks)

    def _look_whether_ready(self) -> None:
        if not self._ready.is_set() and not self.lacks:
            self._ready.set()

    async def wait_failed(self) -> HeliographError:
        """Returns when the process had to stop, with the reason."""
        return await asyncio.shield(self.failed)

    async def stop(self) -> None:
        """No confirmed message is lost: everything is on disk when this returns."""
        if self._server is not None:
            self._server.close()
        if self._clients is not None:
            if self._roles is not None and len(self._roles.client_managers) > 1:
                await self._clients.drain(DRAIN_SECONDS)  # the others take them
            self._clients.stop()
            await asyncio.sleep(0)  # let connections send their last bytes and end
        if self.replica is not None:
            await self.replica.hand_over()
        self.member.leave()
        with contextlib.suppress(TimeoutError):  # nobody answers: the others will notice
            async with asyncio.timeout(LEAVING_SECONDS):
                await self._left.wait()
        await self._stop_nodes()
        self._events.record("server-stopped")
        await self._events.stop()

    async def _stop_nodes(self) -> None:
        self._administration.stop()
        if self._looking_again is not None:
            self._looking_again.cancel()
        if self._server is not None:
            self._server.close()
        if self.replica is not None:
            await self.replica.stop()

    @property
    def clients(self) -> ClientManager | None:
        return self._clients

    def _broke(self, bug: Exception) -> None:
        if not self.failed.done():
            self.failed.set_result(HeliographError(f"the server has a defect: {bug!r}", code="defect"))

    def _nodes(self) -> tuple[NodeState, ...]:
        states = []
        if self.replica is not None:
            states.append(self.replica.state)
        if self.bus is not None:
            states.append(NodeState(self.name, CLIENT_MANAGER))
        return tuple(msgspec.structs.replace(state, essentials=self._essentials) for state in states)

    def _check_belongs(self, roles: Roles) -> None:
        """M14, M16: raises HeliographError if this node is not one of those who are here."""
        if roles.primary is None or roles.primary == self.member.incarnation:
            return
        leader = roles.states[roles.primary]
        ours = self.replica.manager.place.identity if self.replica is not None else b""
        if ours and leader.cluster and ours != leader.cluster:
            raise HeliographError(
                f"this node's data is of another cluster that is called {self.configuration.cluster.name!r} too: give"
                " it an empty folder with --data, and it gets a copy of what is here",
                code="data-of-another-cluster",
            )
        others = dict(leader.essentials)
        differ = [
            f"{key} is {ours} here and {others[key]} there"
            for key, ours in self._essentials
            if others.get(key, ours) != ours
        ]
        if differ:
            raise HeliographError(
                f"the settings of this node and of {leader.name}, which leads, must be the same: {'; '.join(differ)}."
                " Change them here and start again",
                code="settings-differ",
            )

    # ---- the channel

    def on_apply(self, origin: Origin, commands: list[Command], _position: int) -> None:
        if self.replica is not None:
            self.replica.on_apply(origin, commands)
        if self.bus is not None:
            self.bus.on_apply(origin, commands)
        self._administration.on_apply(commands)
        if not self._ready.is_set():
            self._look_whether_ready()

    def _damaged(self, damage: Damage) -> None:
        """Bytes that were not understood: of a stranger, or of a node of another version."""
        self._events.record("bus-damage", code=damage.code, sentence=damage.sentence, node=damage.place.node)

    def on_suspend(self) -> None:
        if self.replica is not None:
            self.replica.on_suspend()

    def on_install(self, view: View) -> None:
        try:
            self._check_belongs(roles_in(view))
        except HeliographError as error:
            if not self.failed.done():
                self.failed.set_result(error)
            self.member.leave()
            return
        if self.replica is not None:
            self.replica.on_install(view)
        self._roles = roles_in(view)
        self._let_clients_speak(view, self._roles)
        self._administration.on_install(view, self._roles)
        if not self._is_in:
            self._is_in, self._left_because = True, ""
            self._events.record("node-entered-the-channel", members=len(view.members))
        self._look_whether_ready()

    def _let_clients_speak(self, view: View, roles: Roles) -> None:
        """What clients want is said where somebody leads, and to one who heard all that was said before. Otherwise
        it would be lost with nobody knowing: a primary that comes from another part of a cut asks for nothing."""
        if self.bus is None:
            return
        me, primary = self.member.incarnation, roles.primary
        assert me is not None, "a view is installed by a member"
        came_along = primary is not None and primary in (me, *straight(view).get(me, ()))
        if self.bus.has_spoken and not came_along:
            self._begin_anew()
        if primary is not None and not self.bus.may_speak:
            self._events.record("message-manager-found", leads=roles.states[primary].name)
        self.bus.may_speak = primary is not None
        self.bus.go_on()

    def _send_elsewhere(self) -> None:
        """PROTOCOL 4: where nobody leads, clients do not wait for ever. They may be better off with another."""
        assert self.bus is not None, "clients come here"
        if not self.bus.may_speak:
            self._begin_anew()
        loop = asyncio.get_running_loop()
        self._looking_again = loop.call_later(NOBODY_LEADS_SECONDS, self._send_elsewhere)

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
        if why != self._left_because:
            self._events.record("node-left-the-channel", why=why)
        self._is_in, self._left_because = False, why
        if self.bus is not None:
            self.bus.may_speak = False
        if why != _NOT_ENTERED:
            self._begin_anew()
            if self.replica is not None:
                self.replica.begin_anew()
        self.member.re_enter()

    def _begin_anew(self) -> None:
        """What clients have under way here is known to nobody. They come again, here or elsewhere, and resume."""
        if self._clients is not None:
            self._clients.drop_all(
                Unavailable("the server lost its place in the cluster", code="server-moved")
            )
        if self.bus is not None:
            self.bus.forget()
