"""The embedded server: one client manager and one message manager in one process, joined by the in-memory
bus."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

from heliograph import __version__
from heliograph.admin.administration import Outcome
from heliograph.admin.subjects import CERTIFICATE_RELOAD, LOG, NODE, Arguments
from heliograph.bus.local import LocalBus
from heliograph.bus.presence import CLIENT_MANAGER, MESSAGE_MANAGER
from heliograph.destinations.effects import AnyEffect
from heliograph.journal.disk import DISK, Disk
from heliograph.journal.files import JournalSettings
from heliograph.model.destination import EVENT_LOG
from heliograph.model.errors import HeliographError
from heliograph.model.ids import IdIssuer
from heliograph.nodes.client_manager import ClientManager
from heliograph.nodes.clock import CLOCK, Clock
from heliograph.nodes.configuration import Configuration
from heliograph.nodes.event_log import ON_THE_BUS, EventLog
from heliograph.nodes.message_manager import MessageManager
from heliograph.nodes.node_facts import client_manager_facts, process_facts, store_facts
from heliograph.nodes.serving import admission, certificates, listen, settle_memory
from heliograph.nodes.surveyor import Surveyor
from heliograph.nodes.tick import Tick
from heliograph.nodes.user_handlers import UserHandlers
from heliograph.nodes.users import UserStore


class EmbeddedServer:
    """A whole server. Everything is set up in `start` and given back in `stop`."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        disk: Disk = DISK,
        clock: Clock = CLOCK,
        owns_process: bool = False,
    ) -> None:
        """`owns_process`: nobody else minds how the process manages its memory."""
        self.configuration = configuration
        self._disk = disk
        self._clock = clock
        self._owns_process = owns_process
        self.recovered_messages = 0
        self._server: asyncio.Server | None = None
        self._messages: MessageManager | None = None
        self._clients: ClientManager | None = None
        self._events: EventLog | None = None

    @property
    def address(self) -> tuple[str, int]:
        assert self._server is not None, "the server is not started"
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    @property
    def clients(self) -> ClientManager | None:
        return self._clients

    async def start(self) -> None:
        """Raises HeliographError, with a sentence that says what to do, and has then left nothing behind."""
        configuration = self.configuration
        access, users = admission(configuration)
        node = f"{configuration.identity.site}.{configuration.identity.node}"
        events = self._events = EventLog(
            Path(configuration.server.data) / "log", node=node, disk=self._disk, clock=self._clock
        )
        tls = certificates(configuration, events.record)
        loop = asyncio.get_running_loop()
        bus, tick = LocalBus(), Tick(loop, self._broke)
        bus.join(events.on_command, ON_THE_BUS)
        issuer = IdIssuer(
            site=configuration.identity.site,
            node=configuration.identity.node,
            started_ms=self._clock.microseconds() // 1000,
        )
        self._messages = MessageManager(
            Path(configuration.server.data) / "journal",
            bus=bus,
            tick=tick,
            settings=journal_settings(configuration),
            resident_bytes=configuration.memory.resident_bytes,
            in_memory=configuration.journal.durability == "memory",
            issuer=issuer,
            rules=configuration.policy_rules(),
            node=node,
            record=events.record,
            large_quota_bytes=configuration.large.quota_bytes,
            large_reserve_bytes=configuration.large.reserve_bytes,
            kept_seconds=configuration.sessions.kept_seconds,
            heartbeat_seconds=configuration.limits.heartbeat_seconds,
            disk=self._disk,
            clock=self._clock,
        )
        self._messages.start()
        surveyor = self._surveyor(node, events)
        self._messages.administrator.surveyor = surveyor
        self._messages.administrator.administration.register(LOG, events.ask)
        events.start(partial(self._messages.own_messages.send, EVENT_LOG))
        self.recovered_messages = self._messages.recovered_messages
        self._clients = ClientManager(
            configuration,
            bus=bus,
            tick=tick,
            issuer=issuer,
            access=access,
            users=users,
            record=events.record,
            clock=self._clock,
            certificates=tls,
        )
        self._clients.surveyor = surveyor
        self._clients.start()
        try:
            self._server = await listen(configuration, self._clients)
        except HeliographError:
            await self.stop()
            raise
        events.record(
            "server-started",
            version=__version__,
            address=":".join(map(str, self.address)),
            recovered_messages=self.recovered_messages,
        )
        if self._owns_process:
            settle_memory()

    def _surveyor(self, node: str, events: EventLog) -> Surveyor:
        """The one node there is asks itself."""
        messages = self._messages
        assert messages is not None
        surveyor = Surveyor(
            node,
            loop=asyncio.get_running_loop(),
            members=lambda: [node],
            leading=lambda: messages.administrator,
            leader=lambda: node,
            clock=self._clock,
        )
        started = self._clock.now()

        def node_facts(_arguments: Arguments) -> Outcome:
            assert self._clients is not None
            return Outcome(
                {
                    "uptime_seconds": self._clock.now() - started,
                    **process_facts(),
                    CLIENT_MANAGER: client_manager_facts(self._clients, self.address),
                    MESSAGE_MANAGER: {"standing": "stands alone", **store_facts(messages)},
                }
            )

        for answers in (surveyor.administration, messages.administrator.administration):
            answers.register(NODE, node_facts)
        surveyor.administration.register(LOG, events.ask)
        surveyor.administration.register(CERTIFICATE_RELOAD, lambda _: Outcome(self.reload_certificates()))
        path = self.configuration.users_path
        UserHandlers(lambda: UserStore.load(path), self._keep_users).register_with(
            messages.administrator.administration
        )
        return surveyor

    def _keep_users(self, store: UserStore) -> list[AnyEffect]:
        assert self._clients is not None
        store.adopt(store.content)
        self._clients.use(store)
        return []

    def reload_certificates(self) -> dict[str, Any]:
        """Raises ClientFault."""
        assert self._clients is not None
        return self._clients.reload_certificates()

    async def stop(self) -> None:
        """No confirmed message is lost: everything is on disk when this returns."""
        if self._server is not None:
            self._server.close()
        if self._clients is not None:
            self._clients.stop()
            await asyncio.sleep(0)  # let connections send their last bytes and end
        if self._messages is not None:
            self._messages.stop()
        if self._events is not None:
            self._events.record("server-stopped")
            await self._events.stop()
        self._messages = self._clients = self._events = None

    async def wait_failed(self) -> HeliographError:
        """Returns when the node had to stop, with the reason."""
        assert self._messages is not None, "the server is not started"
        return await asyncio.shield(self._messages.failed)

    def _broke(self, bug: Exception) -> None:
        assert self._messages is not None
        self._messages.journal_failed(HeliographError(f"the server has a defect: {bug!r}", code="defect"))


def journal_settings(configuration: Configuration) -> JournalSettings:
    settings = configuration.journal
    return JournalSettings(
        durability="fsync" if settings.durability == "fsync" else "write",
        segment_bytes=settings.segment_bytes,
        quota_bytes=settings.quota_bytes,
        snapshot_every_bytes=settings.snapshot_every_bytes,
    )
