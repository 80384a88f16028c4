"""A process of a cluster: a client manager, a message manager or both.

A message manager is in the channel of its own sub-cluster, a client manager in the channels of all.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from heliograph import __version__
from heliograph.bus.commands import Command, SessionOpened
from heliograph.bus.interface import Bus, ChannelBus
from heliograph.bus.presence import CLIENT_MANAGER, MESSAGE_MANAGER
from heliograph.cluster.partition_state import State
from heliograph.cluster.roles import Roles
from heliograph.cluster.view import View
from heliograph.journal.disk import DISK, Disk
from heliograph.model.errors import ClientFault, HeliographError, Unavailable
from heliograph.model.ids import IdIssuer, SessionId
from heliograph.model.limits import DRAIN_SECONDS, LEAVING_SECONDS, NOBODY_LEADS_SECONDS
from heliograph.nodes.buses import channel_of
from heliograph.nodes.client_manager import REQUEST_BYTES, ClientManager
from heliograph.nodes.clock import CLOCK, Clock
from heliograph.nodes.cluster_administration import ClusterAdministration
from heliograph.nodes.cluster_clients import ClusterClients
from heliograph.nodes.cluster_member import ClusterMember
from heliograph.nodes.configuration import Configuration, essentials_of
from heliograph.nodes.embedded import journal_settings
from heliograph.nodes.event_log import ON_THE_BUS, EventLog
from heliograph.nodes.message_manager import MessageManager
from heliograph.nodes.node_file import Folder
from heliograph.nodes.replica import ManagerBus, Replica
from heliograph.nodes.serving import admission, certificates, listen, settle_memory
from heliograph.nodes.station import Station
from heliograph.nodes.sub_clusters import SubClusters
from heliograph.nodes.tick import Tick
from heliograph.nodes.users import UserStore
from heliograph.nodes.users_copy import UsersCopy

# Settings on which only nodes of one sub-cluster agree.
_OF_A_SUB_CLUSTER = ("cluster.message_managers",)


class ClusterServer:
    """The nodes of one process. Everything is set up in `start` and given back in `stop`."""

    def __init__(
        self,
        configuration: Configuration,
        bus: ChannelBus,
        *,
        disk: Disk = DISK,
        clock: Clock = CLOCK,
        owns_process: bool = False,
        look_around: Callable[[], str] = lambda: "",
    ) -> None:
        """`owns_process`: nobody else minds how the process manages its memory. `look_around` says what is missing if
        the bus reaches nobody else though it should."""
        self.look_around = look_around
        self.tell: Callable[[str], None] = lambda _sentence: None  # to whoever looks on
        self.configuration = configuration
        self._disk = disk
        self._clock = clock
        self._owns_process = owns_process
        self.name = f"{configuration.identity.site}.{configuration.identity.node}"
        self.replica: Replica | None = None
        self.stations: dict[str, Station] = {}
        self._bus = bus
        self._server: asyncio.Server | None = None
        self._clients: ClientManager | None = None
        self._sub_clusters: SubClusters | None = None  # if there are several
        self._looking_again: asyncio.TimerHandle | None = None
        self._ready = asyncio.Event()
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
            self._set_up_stations()
            if cluster.role != MESSAGE_MANAGER:
                await self._start_clients()
        except BaseException:
            await self._stop_nodes()
            raise
        self._events.start(self._administration.happened)
        for name, station in self.stations.items():
            station.enter(self._bus, channel_of(cluster.name, name))
        if self._clients is not None:
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

    def _set_up_stations(self) -> None:
        cluster = self.configuration.cluster
        serves_clients = cluster.role != MESSAGE_MANAGER
        for name in cluster.all_sub_clusters if serves_clients else (cluster.sub_cluster,):
            clients = None
            if serves_clients:
                clients = ClusterClients(
                    self._tick, partial(self._lost_track, name), self._session_taken, self._session_opened
                )
                clients.may_speak = False  # until there is a view in which somebody leads
            self.stations[name] = Station(
                name,
                self,
                replica=self.replica if name == cluster.sub_cluster else None,
                clients=clients,
                record=self._events.record,
                essentials=self._essentials,
                dispatch_majority=cluster.dispatch_majority,
            )

    @property
    def own(self) -> Station:
        """In the sub-cluster whose messages this node keeps, or, if it keeps none, in the first."""
        name = self.configuration.cluster.sub_cluster
        return self.stations.get(name) or next(iter(self.stations.values()))

    @property
    def member(self) -> ClusterMember:
        return self.own.member

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
            heartbeat_seconds=configuration.limits.heartbeat_seconds,
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
        bus = self._bus_of_clients()
        clients = ClientManager(
            configuration,
            bus=bus,
            tick=self._tick,
            issuer=self._issuer,
            access=access,
            users=users,
            record=self._events.record,
            clock=self._clock,
            certificates=certificates(configuration, self._events.record),
        )
        clients.surveyor = self._administration.surveyor
        clients.lacks = lambda: self.lacks
        clients.key = lambda: self._key
        store = users or UserStore(configuration.users_path)
        copy = UsersCopy(
            clients,
            store,
            node=self.name,
            record=self._events.record,
            tell=self.tell,
        )
        self._administration.keep_copy(copy)
        clients.start()
        self._clients = clients
        self._server = await listen(configuration, clients)

    def _bus_of_clients(self) -> Bus:
        parts = {name: each.clients for name, each in self.stations.items() if each.clients is not None}
        if len(parts) == 1:
            return next(iter(parts.values()))
        first = int.from_bytes(self._clock.secret(REQUEST_BYTES), "little") << 32
        self._sub_clusters = SubClusters(
            parts,
            next_request=count(first).__next__,
            on_missed=self._drop_clients,
            distributions=self.configuration.distributions(),
        )
        return self._sub_clusters

    async def wait_ready(self) -> None:
        """Until this process counts: there is a view, its message manager leads or has the log of the one that
        does, and if clients come here, somebody leads."""
        await self._ready.wait()

    @property
    def lacks(self) -> str:
        """What `wait_ready` waits for, in words; empty if nothing. Of the sub-clusters of others one is enough."""
        own = self.own.lacks
        if self.replica is not None:
            return own
        lacking = [station.lacks for station in self.stations.values()]
        return "" if not all(lacking) else own

    @property
    def _key(self) -> bytes | None:
        """By which message managers know a session as the cluster's: of the first sub-cluster that hears of it. None:
        nobody leads any."""
        keys = [key for _, station in sorted(self.stations.items()) if (key := station.key) is not None]
        return next((key for key in keys if key), b"") if keys else None

    @property
    def _counts(self) -> bool:
        """Whether `lacks` would be empty."""
        if self.replica is not None:
            return self.own.counts
        return any(station.counts for station in self.stations.values())

    def note_waiting(self, lacks: str) -> None:
        """Whoever reads the log later sees what this node waited for."""
        self._events.record("server-waits", sentence=lacks)

    def among_nodes(self, station: Station, command: Command) -> None:
        self._administration.on_command(station, command)

    def installed(self, station: Station, view: View) -> None:
        if self._clients is not None:
            self._note_client_managers(station, view)
            self._clients.open_sessions()
        self._administration.on_install(station, view)

    def _note_client_managers(self, station: Station, view: View) -> None:
        assert self._clients is not None
        me, standing = station.member.incarnation, station.standing
        assert me is not None, "a view is installed"
        assert standing is not None, "a view is installed"
        here = [node.name for _, hello in view.hellos for node in hello.nodes if node.role == CLIENT_MANAGER]
        is_whole = standing.partition.state is State.A
        self._clients.keepsakes.note_managers(station.sub_cluster, me, here, is_whole=is_whole)

    def changed(self, station: Station) -> None:
        if not self._ready.is_set() and self._counts:
            self._ready.set()
        self._note_reachability(station)

    def _note_reachability(self, station: Station) -> None:
        if self._sub_clusters is None or station.clients is None:
            return
        if station.clients.may_speak:
            self._sub_clusters.leads(station.sub_cluster)
        else:
            self._sub_clusters.away(station.sub_cluster)

    async def wait_failed(self) -> HeliographError:
        """Returns when the process had to stop, with the reason."""
        return await asyncio.shield(self.failed)

    async def stop(self) -> None:
        """No confirmed message is lost: everything is on disk when this returns."""
        if self._server is not None:
            self._server.close()
        if self._clients is not None:
            if any(each.roles and len(each.roles.client_managers) > 1 for each in self.stations.values()):
                await self._clients.drain(DRAIN_SECONDS)  # the others take them
            self._clients.stop()
            await asyncio.sleep(0)  # let connections send their last bytes and end
        if self.replica is not None:
            await self.replica.hand_over()
        for station in self.stations.values():
            station.member.leave()
        with contextlib.suppress(TimeoutError):  # nobody answers: the others will notice
            async with asyncio.timeout(LEAVING_SECONDS):
                for station in self.stations.values():
                    await station.wait_left()
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

    def reload_certificates(self) -> dict[str, Any]:
        """Raises ClientFault."""
        if self._clients is None:
            raise ClientFault("no clients come to this node", code="certificate-invalid")
        return self._clients.reload_certificates()

    @property
    def clients(self) -> ClientManager | None:
        return self._clients

    def _broke(self, bug: Exception) -> None:
        if not self.failed.done():
            self.failed.set_result(HeliographError(f"the server has a defect: {bug!r}", code="defect"))

    def failed_with(self, error: HeliographError) -> None:
        if not self.failed.done():
            self.failed.set_result(error)

    def check_belongs(self, station: Station, roles: Roles) -> None:
        """M14, M16: raises HeliographError if this node is not one of those who are here."""
        if roles.primary is None or roles.primary == station.member.incarnation:
            return
        leader = roles.states[roles.primary]
        ours = station.replica.manager.place.identity if station.replica is not None else b""
        if ours and leader.cluster and ours != leader.cluster:
            raise HeliographError(
                f"this node's data is of another cluster that is called {self.configuration.cluster.name!r} too: give"
                " it an empty folder with --data, and it gets a copy of what is here",
                code="data-of-another-cluster",
            )
        others = dict(leader.essentials)
        is_own = station.sub_cluster == self.configuration.cluster.sub_cluster
        differ = [
            f"{key} is {ours} here and {others[key]} there"
            for key, ours in self._essentials
            if others.get(key, ours) != ours and (is_own or key not in _OF_A_SUB_CLUSTER)
        ]
        if differ:
            raise HeliographError(
                f"the settings of this node and of {leader.name}, which leads, must be the same: {'; '.join(differ)}."
                " Change them here and start again",
                code="settings-differ",
            )

    # ---- clients

    def begin_anew(self, station: Station) -> None:
        """What clients have under way here is known to nobody. They come again, here or elsewhere, and resume."""
        self._drop_clients()
        if station.clients is not None:
            station.clients.forget()
            if self._sub_clusters is not None:
                self._sub_clusters.forget(station.sub_cluster)
                self._note_reachability(station)

    def _lost_track(self, sub_cluster: str) -> None:
        """Who leads there knows of nothing that is under way here."""
        self.begin_anew(self.stations[sub_cluster])

    def _session_opened(self, fact: SessionOpened, is_elsewhere: bool) -> None:
        if self._clients is not None and fact.client:
            self._clients.session_opened(fact.client, fact.user, is_elsewhere=is_elsewhere)

    def _session_taken(self, session: SessionId) -> None:
        if self._sub_clusters is not None:
            self._sub_clusters.taken(session)
        if self._clients is not None:
            self._clients.session_taken(session)

    def _drop_clients(self) -> None:
        if self._clients is not None:
            self._clients.drop_all(
                Unavailable("the server lost its place in the cluster", code="server-moved")
            )

    def _send_elsewhere(self) -> None:
        """PROTOCOL 4: where nobody leads, clients do not wait for ever. They may be better off with another."""
        stations = [station for station in self.stations.values() if station.clients is not None]
        if not any(station.clients.may_speak for station in stations if station.clients is not None):
            for station in stations:
                self.begin_anew(station)
        loop = asyncio.get_running_loop()
        self._looking_again = loop.call_later(NOBODY_LEADS_SECONDS, self._send_elsewhere)
