"""`connect`, and the connection that an application holds: its sessions, and shortcuts on one of its own."""

from __future__ import annotations

import asyncio
import math
import os
import ssl
from collections.abc import Generator
from pathlib import Path
from typing import Any, Literal, Unpack

from heliograph.client.addresses import Servers, parse_url
from heliograph.client.alerts import AlertChannel
from heliograph.client.browser import Browser
from heliograph.client.clock import CLOCK, Clock
from heliograph.client.consumer import Consumer
from heliograph.client.flow import OnBlocked
from heliograph.client.forwarding.agent import Stored, open_agent, unsupported
from heliograph.client.incoming import Mode
from heliograph.client.link import Link, OnError
from heliograph.client.message import Message
from heliograph.client.preparing import MessageOptions, ProducerOptions
from heliograph.client.producer import Producer
from heliograph.client.requesting import Replier, Requester
from heliograph.client.session import Session
from heliograph.client.subscribing import ConsumerOptions
from heliograph.client.tls import make_context
from heliograph.client.wire import AUTOMATIC, MECHANISMS
from heliograph.frontends.native.frames import (
    Answer,
    Ask,
    Completed,
    DeleteTemporary,
    Hello,
    MakeTemporary,
    OpenSession,
    SessionOpened,
)
from heliograph.model.errors import ClientFault, HeliographError
from heliograph.model.limits import (
    BLOCK_MESSAGES,
    HEARTBEAT_SECONDS,
    MAX_BLOCK_MESSAGES,
    MAX_SESSIONS_PER_CONNECTION,
    STORE_BYTES,
)
from heliograph.model.message import Body
from heliograph.model.units import unit_number

DEFAULT_URL = "helio://localhost:7700"
RECONNECT_SECONDS = 60.0

# A session that is made while there is no server; it is opened with the next connection.
_NOT_YET_OPENED = SessionOpened(request=0, session=b"", token=b"")

AcknowledgeMode = Literal["auto", "client", "individual", "dups-ok", "transacted"]


class Connection:
    """Made by `connect`; it belongs to the event loop it was made in.

    When it is lost, it is made again by itself.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._last_number = 0
        self._reserved: set[int] = set()
        self._default: asyncio.Task[Session] | None = None
        self._is_stopped = False
        self._channels: dict[str, AlertChannel] = {}
        self._requester = Requester(self, Message)
        link.replier = Replier(self.session)

    @property
    def user(self) -> str:
        """Who the server takes us for."""
        return self._link.welcome.user if self._link.welcome is not None else ""

    @property
    def server(self) -> str:
        """The name the server gave itself."""
        return self._link.welcome.server if self._link.welcome is not None else ""

    def is_alive(self) -> bool:
        """False once the connection is closed or given up; True also while it is being made again."""
        return self._link.is_alive

    def is_blocked(self, destination: str) -> bool:
        """Whether the server wants us to wait with messages to a destination that we send to."""
        return self._link.blocks.reason(destination) != ""

    @property
    def on_blocked(self) -> OnBlocked | None:
        """Called with a destination and why it is blocked, or with an empty reason when it is not any more."""
        return self._link.blocks.on_change

    @on_blocked.setter
    def on_blocked(self, callback: OnBlocked | None) -> None:
        self._link.blocks.on_change = callback

    def __repr__(self) -> str:
        return f"<Connection to {self.server or 'no server'} as {self.user or 'nobody'}>"

    async def session(self, *, acknowledge: AcknowledgeMode = "auto") -> Session:
        """Open a session. `acknowledge`: "auto", "client" (cumulative), "individual", "dups-ok" (lazy) or
        "transacted" (J4)."""
        if acknowledge not in set(Mode):
            raise ClientFault(
                f"a session acknowledges {', '.join(Mode)}, not {acknowledge!r}",
                code="acknowledge-mode",
            )
        is_stored = self._link.agent is not None
        if is_stored and acknowledge == "transacted":
            raise unsupported("a transaction is not stored and forwarded")
        number = self._reserve_number()
        try:
            if is_stored and self._link.wire is None:
                opened = _NOT_YET_OPENED
            else:
                opened = await self._link.request(
                    lambda: OpenSession(request=0, number=number), SessionOpened
                )
        finally:
            self._reserved.discard(number)
        session = Session(self._link, number, Mode(acknowledge), opened)
        self._link.sessions[number] = session
        if self._is_stopped:
            session.stop()
        if self._link.wire is not None:
            session.attach(self._link.wire)
        return session

    @property
    def sub_clusters(self) -> list[str]:
        """The sub-clusters of the server's cluster, if there are several. Each has the server's own destinations:
        `queue:_DMQ@NAME` is the dead message queue of one."""
        return [] if self._link.welcome is None else list(self._link.welcome.sub_clusters)

    def _reserve_number(self) -> int:
        taken = self._link.sessions.keys() | self._reserved
        if len(taken) >= MAX_SESSIONS_PER_CONNECTION:
            raise ClientFault(
                f"a connection has at most {MAX_SESSIONS_PER_CONNECTION} sessions", code="too-many-sessions"
            )
        number = next(number for number in range(1, MAX_SESSIONS_PER_CONNECTION + 1) if number not in taken)
        self._reserved.add(number)
        return number

    async def producer(self, destination: str, **options: Unpack[ProducerOptions]) -> Producer:
        """A producer on the connection's own session; see `Session.producer`."""
        session = await self.default_session()
        return await session.producer(destination, **options)

    async def consumer(self, destination: str, **options: Unpack[ConsumerOptions]) -> Consumer:
        """A consumer on the connection's own session, which is in mode "auto"; see `Session.consumer`."""
        session = await self.default_session()
        return await session.consumer(destination, **options)

    async def browse(self, destination: str, *, selector: str = "") -> Browser:
        """A browser on the connection's own session; see `Session.browser`."""
        session = await self.default_session()
        return await session.browser(destination, selector=selector)

    def alerts(self, channel: str) -> AlertChannel:
        """An alert channel, `alerts("ops")`: publish, subscribe, cancel, acknowledge, list and audit."""
        return self._channels.setdefault(channel, AlertChannel(self, channel))

    async def unsubscribe(self, name: str) -> None:
        """Give up a durable subscription of this client; see `Session.unsubscribe`."""
        session = await self.default_session()
        await session.unsubscribe(name)

    async def temporary_queue(self) -> str:
        """Make a queue that only this connection receives from, and that ends with it."""
        return await self._make_temporary("queue")

    async def temporary_topic(self) -> str:
        """Make a topic that only this connection receives from, and that ends with it."""
        return await self._make_temporary("topic")

    async def _make_temporary(self, kind: str) -> str:
        session = await self.default_session()
        answer = await self._link.request(
            lambda: MakeTemporary(request=0, number=session.number, kind=kind), Answer
        )
        address: str = answer.body["destination"]
        self._link.temporaries.add(address)
        return address

    async def delete_temporary(self, address: str) -> None:
        """End a temporary destination early; it must have no consumer."""
        session = await self.default_session()
        await self._link.request(
            lambda: DeleteTemporary(request=0, number=session.number, destination=address), Completed
        )
        self._link.temporaries.discard(address)

    async def request(
        self, destination: str, body: Body, *, timeout: float | None, **options: Unpack[MessageOptions]
    ) -> Message:
        """Send a question and wait for the reply, `timeout` seconds at most (None: as long as it takes).

        Whoever receives it answers with `message.reply(...)`. Raises Unavailable `no-reply` if nobody did.
        """
        reply: Message = await self._requester.request(destination, body, timeout, options)
        return reply

    # ---- what is stored here

    @property
    def stored(self) -> Stored:
        """What waits on the local disk to be forwarded; see `connect`."""
        agent = self._link.agent
        return agent.stored if agent is not None else Stored(0, 0, 0, 0, {})

    async def forwarded(self) -> None:
        """Wait until the server has everything that is stored, however long it is away."""
        if self._link.agent is not None:
            await self._link.agent.forwarded()

    async def discard(self, destination: str) -> int:
        """Drop what is stored for a destination, which the server may refuse for good. Returns how many messages.

        What is on its way at this moment may still arrive.
        """
        return await self._link.agent.discard(destination) if self._link.agent is not None else 0

    async def default_session(self) -> Session:
        """The session behind `producer` and `consumer`, opened on first use."""
        opening = self._default
        if (
            opening is not None
            and opening.done()
            and (opening.cancelled() or opening.exception() is not None)
        ):
            opening = None
        if opening is None:
            opening = self._default = asyncio.create_task(self.session())
        return await asyncio.shield(opening)

    async def ask(self, subject: str, **arguments: Any) -> dict[str, Any]:
        """Ask the server's administration. It is not repeated by itself when the connection is lost."""
        wire = await self._link.ready()
        answer = await wire.request(Ask(request=0, subject=subject, arguments=arguments), Answer)
        return answer.body

    def start(self) -> None:
        """Deliveries go on; a connection is started from the beginning."""
        self._is_stopped = False
        for session in self._link.sessions.values():
            session.start()

    def stop(self) -> None:
        """Deliveries pause: consumers hand over nothing more until `start`."""
        self._is_stopped = True
        for session in self._link.sessions.values():
            session.stop()

    async def close(self) -> None:
        """Wait until what was sent is confirmed, then close.

        Raises what was refused and nobody has heard of.
        """
        await self.leave(complete=True)

    async def leave(self, *, complete: bool) -> None:
        """Close; `complete`: in good order, rather than because something went wrong."""
        fault: HeliographError | None = None
        try:
            for session in list(self._link.sessions.values()):
                try:
                    await session.leave(complete=complete)
                except HeliographError as error:
                    fault = fault or error
            if self._link.agent is not None:  # last: until now, others may have had something to store
                await self._link.agent.leave(complete=complete)
        finally:
            await self._link.close()
        if fault is not None and complete:
            raise fault

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        await self.leave(complete=kind is None)


class Connecting:
    """What `connect` gives: await it, or use it in `async with`, which closes the connection at the end."""

    def __init__(
        self,
        url: str,
        hello: Hello,
        reconnect_seconds: float,
        on_error: OnError | None,
        block_messages: int,
        unit_of_order: str | bool | None = None,
        store: tuple[Path, int] | None = None,
        clock: Clock = CLOCK,
        tls: bool | ssl.SSLContext | None = None,
        mechanism: str | None = None,
    ) -> None:
        self._clock = clock
        servers = parse_url(url)
        self._context = _context(servers, tls)
        if not hello.user and servers.user is not None:
            hello.user = servers.user
            hello.password = hello.password or servers.password or ""
        if mechanism is not None and mechanism not in MECHANISMS:
            raise ClientFault(
                f"one logs in by {', '.join(MECHANISMS)}, not {mechanism!r}", code="mechanism-unknown"
            )
        hello.mechanism = mechanism or (AUTOMATIC if hello.user else "anonymous")
        if not 1 <= block_messages <= MAX_BLOCK_MESSAGES:
            raise ClientFault(
                f"a block has 1 to {MAX_BLOCK_MESSAGES} messages, not {block_messages}",
                code="block-messages-invalid",
            )
        self._servers = servers
        self._hello = hello
        self._reconnect_seconds = reconnect_seconds
        self._on_error = on_error
        self._block_messages = block_messages
        self._unit_of_order = unit_of_order
        self._store = store
        self._connection: Connection | None = None

    async def _open(self) -> Connection:
        link = Link(
            self._servers,
            self._hello,
            reconnect_seconds=self._reconnect_seconds,
            on_error=self._on_error,
            block_messages=self._block_messages,
            unit_of_order=self._unit_of_order,
            clock=self._clock,
            context=self._context,
        )
        if self._store is not None:
            link.agent = await open_agent(link, *self._store)
        try:
            await link.open()
        except BaseException:
            if link.agent is not None:
                await link.agent.leave(complete=False)
            raise
        self._connection = Connection(link)
        return self._connection

    def __await__(self) -> Generator[Any, None, Connection]:
        return self._open().__await__()

    async def __aenter__(self) -> Connection:
        return await self._open()

    async def __aexit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        assert self._connection is not None, "it was entered"
        await self._connection.__aexit__(kind, *rest)


def connect(
    url: str = DEFAULT_URL,
    *,
    user: str | None = None,
    password: str | None = None,
    client_name: str = "",
    client_id: str = "",
    reconnect_seconds: float | None = None,
    on_error: OnError | None = None,
    block_messages: int = BLOCK_MESSAGES,
    heartbeat_seconds: float | None = None,
    unit_of_order: str | bool | None = None,
    store_and_forward: str | os.PathLike[str] | None = None,
    store_bytes: int = STORE_BYTES,
    tls: bool | ssl.SSLContext | None = None,
    mechanism: str | None = None,
    clock: Clock = CLOCK,
) -> Connecting:
    """Connect to a server: `await connect(...)`, or `async with connect(...) as connection`.

    `url` may name several hosts, `helio://one:7700,two:7700`, which are tried in turn, and
    `user:password@`. Durable subscriptions belong to `client_id`. A lost connection is made again for up to
    `reconnect_seconds` (60 unless told otherwise; 0: never); `on_error` hears what nobody waits for, and when
    that was in vain.

    `store_and_forward` names a folder: what is sent is stored there first, up to `store_bytes`, and forwarded, in
    order and once, when the server is there, by this process or the next one (U7). A server is then looked for
    without end.

    `unit_of_order` puts what producers send that say nothing else into a unit of order, which is processed one
    message after the other: a name, which others may use too, or True for one of its own for each session.

    `helios://` or `tls=True` connects with TLS; the URL may name files, `helios://host?ca=FILE&cert=FILE&key=FILE&crl=FILE`:
    who signs servers' certificates, what this client shows of itself, and what was revoked. `tls` may be a context of
    Python's `ssl` instead. `mechanism` is how a user logs in: "plain", "scram-sha-256" or "external" (by the
    certificate alone); unless told, the password itself goes out only where nobody can listen, and SCRAM is
    used elsewhere.

    `clock` is for simulations, where time is not the system's.
    """
    if isinstance(unit_of_order, str):
        unit_number(unit_of_order)  # refuses what is no name
    hello = Hello(
        client=client_name,
        client_id=client_id,
        user=user or "",
        password=password or "",
        heartbeat_seconds=HEARTBEAT_SECONDS if heartbeat_seconds is None else heartbeat_seconds,
    )
    if reconnect_seconds is None:
        reconnect_seconds = RECONNECT_SECONDS if store_and_forward is None else math.inf
    store = None if store_and_forward is None else (Path(store_and_forward), store_bytes)
    return Connecting(
        url,
        hello,
        reconnect_seconds,
        on_error,
        block_messages,
        unit_of_order,
        store,
        clock,
        tls,
        mechanism,
    )


def _context(servers: Servers, tls: bool | ssl.SSLContext | None) -> ssl.SSLContext | None:
    """Raises ClientFault `certificate-invalid` or `invalid-url`."""
    if isinstance(tls, ssl.SSLContext):
        return tls
    if tls is False and servers.is_secure:
        raise ClientFault("the URL says helios://, and tls=False says otherwise", code="invalid-url")
    return make_context(servers.files) if tls or servers.is_secure else None
