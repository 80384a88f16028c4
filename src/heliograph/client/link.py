"""The link to the servers: a wire while there is one, and the making of another when it is lost (J12).

    connected ──lost, asked to move──▶ reconnecting ──▶ connected
                                           └──given up──▶ ended: every waiter gets the error, and `on_error` hears it

Hosts, those that were given and those that a server told of, are tried in turn, with growing pauses, until
`reconnect_seconds` have passed since the link last worked. The first is chosen by chance, so that clients spread.
Only then are requests taken again, after every session was resumed.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TypeVar

from heliograph.client.addresses import Servers, parse_hosts
from heliograph.client.clock import CLOCK, Clock
from heliograph.client.flow import Blocks
from heliograph.client.sender import renewed
from heliograph.client.transfers import Transfers
from heliograph.client.waiting import Signal
from heliograph.client.wire import AlertNews, Request, SessionNews, Wire, open_wire
from heliograph.frontends.native.frames import (
    MOVING,
    Answer,
    Blocked,
    BrowseEnded,
    Completed,
    ConsumerClosed,
    Hello,
    LaneOpened,
    Recalled,
    Refused,
    SessionOpened,
    TransferFailed,
    Welcome,
)
from heliograph.model.errors import ClientFault, ConnectionLost, HeliographError, Unavailable
from heliograph.model.limits import MAX_ADVERTISED
from heliograph.model.units import GENERATED_UNIT

if TYPE_CHECKING:
    from heliograph.client.forwarding.agent import Agent
    from heliograph.client.requesting import Replier
    from heliograph.client.session import Session

log = logging.getLogger("heliograph.client")

OnError = Callable[[HeliographError], None]
R = TypeVar("R", SessionOpened, LaneOpened, Completed, Answer)

# The first attempt follows a loss at once; then pauses double from the one to the other, so that a server
# that comes back is found quickly and one that is overloaded is left in peace.
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0
# Whoever waits for a wire no longer than he must looks now and then whether servers answer at all. An attempt or two
# may come to nothing though there is one; as many as these are made within two seconds where there is none.
_LOOK_AGAIN_SECONDS = 0.1
_ENOUGH_MISSES = 5
# A link that held this long, or moved messages, worked: the next loss begins a new count.
STABLE_SECONDS = 5.0
# Ways to lose a connection that need no word to the application while it is being made again.
_QUIET_CODES = frozenset({"connection-lost", "silent", "closed", "server-stopping", "server-moved", MOVING})
# A client that is asked to move has this share of the time for what is under way, and the rest for going.
_MOVE_PATIENCE = 0.5
_MOVE_POLL_SECONDS = 0.005


def pause_before(attempt: int, chance: float) -> float:
    """Seconds before an attempt to reconnect: none, then twice as long each time, give or take half."""
    if attempt == 0:
        return 0.0
    # The exponent is bounded so that the float is; the pause is bounded long before.
    pause = min(FIRST_PAUSE_SECONDS * 2 ** min(attempt - 1, 20), LONGEST_PAUSE_SECONDS)
    return float(pause * (0.5 + chance))


class Carried(Protocol):
    """What is carried over from wire to wire: a session, or the agent that stores and forwards."""

    def confirm(self, payload: bytes) -> None: ...

    def deliver(self, payload: bytes, destination: str = "") -> None: ...

    def deliver_from(self, payload: bytes) -> None: ...

    def refused(self, news: Refused) -> None: ...

    def consumer_closed(self, news: ConsumerClosed) -> None: ...

    def browse_ended(self, number: int) -> None: ...

    def blocked(self, destination: str, reason: str) -> None: ...

    def settled(self, number: int) -> None: ...

    def recalled(self, number: int, tags: list[tuple[int, int]]) -> None: ...

    def resume_writing(self) -> None: ...

    def detach(self) -> None: ...

    async def resume(self, wire: Wire) -> None: ...

    def end(self, error: HeliographError) -> None: ...


class Link:
    """Finds the session for each frame that arrives, and a server for each frame that leaves."""

    def __init__(
        self,
        servers: Servers,
        hello: Hello,
        *,
        context: ssl.SSLContext | None = None,
        reconnect_seconds: float,
        on_error: OnError | None,
        block_messages: int,
        unit_of_order: str | bool | None = None,
        clock: Clock = CLOCK,
    ) -> None:
        self.clock = clock
        self.block_messages = block_messages
        self._unit_of_order = unit_of_order
        self.sessions: dict[int, Session] = {}
        self.agent: Agent | None = None  # where messages are stored and forwarded, if anywhere
        self.blocks = Blocks()
        self.transfers = Transfers()
        self.temporaries: set[str] = set()  # temporary destinations that end with the wire
        self.replier: Replier | None = None
        self.welcome: Welcome | None = None
        self.wire: Wire | None = None
        self._given = servers.hosts
        self._hosts = servers.hosts
        self._hello = hello
        self._context = context
        self._reconnect_seconds = reconnect_seconds
        self._on_error = on_error
        self._loop = asyncio.get_running_loop()
        self._next_host = int(clock.chance() * len(servers.hosts))
        self._attempts = 0
        self._misses = 0  # attempts in a row to which no server answered
        self._worked_at = 0.0  # when a wire was last lost that had held for a while
        self._connected_at = 0.0
        self._has_progressed = False  # whether messages moved on the wire that there is
        self._reconnecting: asyncio.Task[None] | None = None
        self._moving: asyncio.Task[None] | None = None
        self._changed = Signal()
        self._ended: HeliographError | None = None

    @property
    def is_alive(self) -> bool:
        return self._ended is None

    def carried(self) -> list[Carried]:
        """Whatever goes on with the next wire."""
        return [*([] if self.agent is None else [self.agent]), *self.sessions.values()]

    def _find(self, number: int) -> Carried | None:
        """Whom a frame is for. The agent has a number that no session has."""
        return self.sessions.get(number) or (None if number else self.agent)

    # ---- used by connection and sessions

    def unit_for_session(self) -> str | None:
        """The unit of order of what a new session's producers send: one that all share, its own, or none."""
        if self._unit_of_order is True:
            return f"{GENERATED_UNIT}{self.clock.secret()}"
        return self._unit_of_order or None

    async def open(self) -> None:
        """The first connection: each host once, no second try; but what is stored can wait for a server."""
        fault: HeliographError | None = None
        for _ in self._hosts:
            try:
                wire = await self._open_wire()
                await self._resume_sessions(wire)
            except Unavailable as unavailable:
                fault = fault or unavailable
                continue
            self._use(wire)
            return
        assert fault is not None, "there is at least one host"
        if self.agent is None:
            self._ended = fault
            raise fault
        log.info("%s; messages are stored until it is there", fault.sentence)
        self._worked_at = self._loop.time()
        self._attempts = 1
        self._reconnecting = self._loop.create_task(self._reconnect(fault))

    async def ready(self) -> Wire:
        """The wire, once there is one. Raises when there will be none."""
        while self.wire is None:
            if self._ended is not None:
                raise renewed(self._ended)
            await self._changed.wait()
        return self.wire

    async def ready_within(self, seconds: float) -> Wire | None:
        """The wire; None if no server answers for so long. Where servers answer and connections break, it may take
        longer, until the link itself gives up: then it raises."""
        began = self._loop.time()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_AGAIN_SECONDS):
                    return await self.ready()
            if self._misses >= _ENOUGH_MISSES and self._loop.time() >= began + seconds:
                return None

    async def request(self, make: Callable[[], Request], reply: type[R]) -> R:
        """Send a request, and again on the next wire if this one is lost without an answer."""
        while True:
            wire = await self.ready()
            try:
                return await wire.request(make(), reply)
            except ConnectionLost:
                if self.wire is wire:  # the server itself answered so
                    raise

    async def request_noted(
        self, make: Callable[[], Request], reply: type[R], on_answer: Callable[[R], None]
    ) -> R:
        """As `request`; `on_answer` is called between the answer and the next frame."""
        while True:
            wire = await self.ready()
            try:
                return await wire.request(make(), reply, on_answer)
            except ConnectionLost:
                if self.wire is wire:  # the server itself answered so
                    raise

    def report(self, error: HeliographError) -> None:
        """Something happened that nobody waits for."""
        if self._on_error is None:
            log.warning("%s", error)
            return
        try:
            self._on_error(renewed(error))
        except Exception:
            log.exception("the on_error callback failed")

    def fail(self, error: HeliographError) -> None:
        """Something happened here that nobody can go on after."""
        self.end(error)
        self.report(error)

    async def close(self) -> None:
        """End it in good order; the caller has closed the sessions."""
        self.end(ClientFault("the connection is closed", code="closed"))
        for task in (self._moving, self._reconnecting):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        wire, self.wire = self.wire, None
        if wire is not None:
            await wire.close()

    def end(self, error: HeliographError) -> None:
        """Tell everybody who waits that nothing more will come."""
        if self._ended is None:
            self._ended = error
            for session in self.carried():
                session.end(error)
            self._changed.wake()

    # ---- making connections

    async def _open_wire(self) -> Wire:
        host, port = self._hosts[self._next_host % len(self._hosts)]
        self._next_host += 1
        self._misses += 1
        wire = await open_wire(self, host, port, self._hello, self.clock, self._context)
        self._misses = 0
        return wire

    def _use(self, wire: Wire) -> None:
        self.wire = wire
        self.welcome = wire.welcome
        if wire.welcome is not None and wire.welcome.addresses:
            self._learn(wire.welcome.addresses)
        self._connected_at = self._loop.time()
        self._has_progressed = False
        self.temporaries.clear()
        self._changed.wake()

    def _learn(self, addresses: list[str]) -> None:
        """Where the server says that we can go; what we were given stays good."""
        told = parse_hosts(addresses[:MAX_ADVERTISED])
        hosts = tuple(dict.fromkeys((*told, *self._given)))
        if set(hosts) != set(self._hosts):
            self._hosts = hosts
            self._next_host = int(self.clock.chance() * len(hosts))

    async def _reconnect(self, reason: HeliographError) -> None:
        while True:
            pause = pause_before(self._attempts, self.clock.chance())
            if self._loop.time() + pause - self._worked_at >= self._reconnect_seconds:
                break
            self._attempts += 1
            await asyncio.sleep(pause)
            try:
                wire = await self._open_wire()
                await self._resume_sessions(wire)
            except ClientFault as fault:
                reason = fault
                break
            except HeliographError as fault:
                reason = fault
                continue
            self._use(wire)
            return
        self._give_up(reason)

    async def _resume_sessions(self, wire: Wire) -> None:
        try:
            # A session may be made while others are resumed, where messages are stored meanwhile.
            resumed: list[Carried] = []
            while waiting := [session for session in self.carried() if session not in resumed]:
                resumed.append(waiting[0])
                await waiting[0].resume(wire)
            wire.check()
        except BaseException as fault:
            wire.fail(
                fault if isinstance(fault, HeliographError) else ConnectionLost("the attempt was given up")
            )
            self._detach_sessions()
            raise

    def _give_up(self, reason: HeliographError) -> None:
        if not isinstance(reason, ClientFault):
            reason = ConnectionLost(f"gave up after {self._reconnect_seconds:g} s: {reason.sentence}")
        self.end(reason)
        self.report(reason)

    def _detach_sessions(self) -> None:
        self.transfers.lost()
        self.blocks.forget_all()
        for session in self.carried():
            session.detach()

    # ---- what a wire tells

    def on_move(self, wire: Wire, seconds: float) -> None:
        """The server is about to leave."""
        if wire is self.wire and self._ended is None:
            self._moving = self._loop.create_task(self._move(wire, seconds))

    async def _move(self, wire: Wire, seconds: float) -> None:
        """Go elsewhere, if possible when nothing is under way."""
        deadline = self._loop.time() + seconds * _MOVE_PATIENCE
        while self.wire is wire and self._loop.time() < deadline:
            under_way = [session.is_under_way() for session in self.sessions.values()]
            if not any(under_way):
                break
            await asyncio.sleep(_MOVE_POLL_SECONDS)
        if self.wire is wire:
            # Before anybody sends or takes something on a connection that is about to end: it would be lost with it.
            self.on_lost(wire, ConnectionLost("the connection was closed", code=MOVING))
            await wire.close(MOVING)

    def on_lost(self, wire: Wire, reason: HeliographError) -> None:
        if wire is not self.wire:
            return  # it never came to be used, or was closed: whoever made it knows
        self.wire = None
        self._detach_sessions()
        now = self._loop.time()
        if self._has_progressed or now - self._connected_at >= STABLE_SECONDS or not self._attempts:
            self._attempts = 0
            self._worked_at = now
        if self._ended is None:
            if isinstance(reason, ClientFault):
                self._give_up(reason)
            else:
                if reason.code not in _QUIET_CODES:
                    self.report(reason)
                log.info("%s; connecting again", reason.sentence)
                self._reconnecting = self._loop.create_task(self._reconnect(reason))

    def on_confirm(self, number: int, payload: bytes) -> None:
        self._has_progressed = True
        session = self._find(number)
        if session is not None:
            session.confirm(payload)

    def on_delivery(self, number: int, payload: bytes) -> None:
        self._has_progressed = True
        session = self._find(number)
        if session is not None:
            session.deliver(payload)

    def on_delivery_from(self, number: int, payload: bytes) -> None:
        self._has_progressed = True
        session = self._find(number)
        if session is not None:
            session.deliver_from(payload)

    def on_news(self, news: SessionNews) -> None:
        session = self._find(news.number)
        if session is None:
            return
        if isinstance(news, Refused):
            session.refused(news)
        elif isinstance(news, ConsumerClosed):
            session.consumer_closed(news)
        elif isinstance(news, BrowseEnded):
            session.browse_ended(news.consumer)
        elif isinstance(news, Blocked):
            session.blocked(news.destination, news.reason)
        elif isinstance(news, Recalled):
            session.recalled(news.consumer, news.tags)
        else:
            session.settled(news.consumer)

    def on_alert_news(self, news: AlertNews) -> None:
        self._has_progressed = True
        session = self.sessions.get(news.number)
        if session is not None:
            session.alerts.news(news)

    def on_chunk(self, payload: bytes) -> None:
        self._has_progressed = True
        self.transfers.chunk(payload)

    def on_advance(self, payload: bytes) -> None:
        self._has_progressed = True
        self.transfers.advanced(payload)

    def on_transfer_failed(self, news: TransferFailed) -> None:
        self.transfers.failed(news)

    def on_resume(self) -> None:
        for session in self.carried():
            session.resume_writing()
        self.transfers.wake()
