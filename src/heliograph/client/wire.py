"""One TCP connection to a server: greeting, requests and replies, heartbeats, frames for their sessions.

A wire is used once. When it is lost, for whatever reason, every request on it fails, its `peer` is told
why, and a new wire is made by `connection`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

import msgspec

from heliograph.client import tls
from heliograph.client.clock import CLOCK, Clock
from heliograph.frontends.native import frames
from heliograph.frontends.native.frames import (
    CONFIRM,
    CONTROL,
    DELIVER,
    DELIVER_FROM,
    HEARTBEAT_FRAME,
    PREAMBLE,
    PUBLISH,
    Answer,
    Blocked,
    BrowseEnded,
    Challenge,
    Completed,
    ConsumerClosed,
    Distributed,
    Failed,
    FrameReader,
    Goodbye,
    Hello,
    LaneOpened,
    Recalled,
    Refused,
    SessionOpened,
    Settled,
    Welcome,
)
from heliograph.model.distribution import Distribution, Routing
from heliograph.model.errors import (
    ClientFault,
    ConnectionLost,
    HeliographError,
    NotAuthenticated,
    ProtocolFault,
    from_code,
)
from heliograph.model.limits import HANDSHAKE_SECONDS, HEARTBEATS_MISSED, MAX_REQUESTS_UNDER_WAY, MIB
from heliograph.security import scram
from heliograph.security.hosts import is_loopback

# Bytes the transport holds for a slow server before producers wait; a few dozen blocks, so that the socket
# never runs dry.
WRITE_BUFFER_BYTES = 1 * MIB
AUTOMATIC = "automatic"
"""The mechanism for a user with a password: the password itself where nobody can listen, else SCRAM."""
SCRAM = "scram-sha-256"
MECHANISMS = ("plain", SCRAM, "external")
# What a process that was asleep reads in these beats may have been sent long before.
_DISTRUSTED_BEATS = 2

Request = (
    frames.OpenSession
    | frames.CloseSession
    | frames.OpenLane
    | frames.FindPath
    | frames.Subscribe
    | frames.Unsubscribe
    | frames.Retire
    | frames.EndSubscription
    | frames.Recover
    | frames.Commit
    | frames.Rollback
    | frames.MakeTemporary
    | frames.DeleteTemporary
    | frames.BeginUpload
    | frames.EndUpload
    | frames.BeginFetch
    | frames.PublishAlert
    | frames.AcknowledgeAlert
    | frames.CancelAlert
    | frames.AttachAlerts
    | frames.ChangeAlerts
    | frames.DetachAlerts
    | frames.TakeAlerts
    | frames.ListAlerts
    | frames.AuditAlert
    | frames.Ask
)
Reply = SessionOpened | LaneOpened | Distributed | Completed | Answer
R = TypeVar("R", SessionOpened, LaneOpened, Completed, Answer)
AlertNews = frames.Alert | frames.AlertWithdrawn | frames.AlertReceipt
SessionNews = Refused | ConsumerClosed | BrowseEnded | Blocked | Settled | Recalled


class IsDistributed(ClientFault):
    """What was named is not one destination but several (U6): raised to whoever can choose among them."""

    default_code = "destination-distributed"

    def __init__(self, found: Distributed) -> None:
        """Raises ClientFault `routing-unknown` for a routing that this library does not know."""
        super().__init__(
            f"it is distributed over {', '.join(found.members)}: name a member, DESTINATION@MEMBER"
        )
        if found.routing not in tuple(Routing) or not found.members:
            raise ClientFault(
                f"units are routed by {found.routing[:40]!r}, which this program does not know: use a newer one",
                code="routing-unknown",
            )
        self.distribution = Distribution(
            members=tuple(found.members),
            leaving=tuple(found.leaving),
            routing=Routing(found.routing),
            version=found.version,
            unit_from=found.unit_from,
        )


class Peer(Protocol):
    """Who owns a wire: it finds the session for a frame, and hears when the wire is lost."""

    def on_confirm(self, number: int, payload: bytes) -> None: ...

    def on_delivery(self, number: int, payload: bytes) -> None: ...

    def on_delivery_from(self, number: int, payload: bytes) -> None: ...

    def on_news(self, news: SessionNews) -> None: ...

    def on_alert_news(self, news: AlertNews) -> None: ...

    def on_chunk(self, payload: bytes) -> None: ...

    def on_advance(self, payload: bytes) -> None: ...

    def on_transfer_failed(self, news: frames.TransferFailed) -> None: ...

    def on_resume(self) -> None: ...

    def on_move(self, wire: Wire, seconds: float) -> None: ...

    def on_lost(self, wire: Wire, reason: HeliographError) -> None: ...


class Wire(asyncio.Protocol):
    """A connection as bytes and control messages."""

    def __init__(self, peer: Peer, name: str, clock: Clock = CLOCK) -> None:
        self.name = name
        self.is_paused = False
        self.welcome: Welcome | None = None
        self._peer = peer
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._reason: HeliographError | None = None
        self._is_lost = False
        self._distrusted = 0
        self._greeting: asyncio.Future[Welcome | Challenge] = self._loop.create_future()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._requests: dict[int, asyncio.Future[Any]] = {}
        # Called between the answer and the next frame.
        self._listeners: dict[int, Callable[[Any], None]] = {}
        self._last_request = 0
        self._has_heard = False
        self._silent_beats = 0
        self._beat_at = self._alive_at = clock.monotonic()  # of the last beat; by then it was surely alive
        self._clock = clock
        self._heart: asyncio.TimerHandle | None = None

    # ---- the greeting

    async def greet(self, hello: Hello) -> Welcome:
        """Say who we are, and prove it. Raises what the server answers instead of a welcome."""
        mechanism = hello.mechanism
        if mechanism == AUTOMATIC:
            mechanism = "plain" if self._is_private else SCRAM
        proof = _scram(hello, self._clock) if mechanism == SCRAM else None
        said = msgspec.structs.replace(hello, mechanism=mechanism)
        if proof is not None:
            said = msgspec.structs.replace(said, user="", password="", initial=proof.first)
        self.write(PREAMBLE + frames.control_frame(said))
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                self.welcome = await self._greeting_for(proof)
        except TimeoutError:
            raise ConnectionLost(
                f"{self.name} did not greet within {HANDSHAKE_SECONDS:g} s: is it a Heliograph server?",
                code="no-greeting",
            ) from None
        self._beat()
        return self.welcome

    @property
    def _is_private(self) -> bool:
        """Whether nobody can listen: it is encrypted, or never leaves this machine."""
        assert self._transport is not None
        if self._transport.get_extra_info("ssl_object") is not None:
            return True
        there = self._transport.get_extra_info("peername")
        return isinstance(there, tuple) and is_loopback(str(there[0]))

    async def _greeting_for(self, proof: scram.Client | None) -> Welcome:
        answer = await self._greeting
        if isinstance(answer, Challenge) and proof is not None:
            self._greeting = self._loop.create_future()
            salt, rounds = proof.challenged(answer.data)
            salted = await asyncio.to_thread(scram.stretched, proof.password, salt, rounds)
            self.write(frames.control_frame(frames.Response(proof.final(salted))))
            answer = await self._greeting
        if isinstance(answer, Challenge):
            raise ProtocolFault("the server wants a proof that nobody offered", code="sasl-malformed")
        if proof is not None:
            proof.check(answer.proof)
        return answer

    # ---- out

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def chunk(self, number: int, transfer: int, offset: int, data: bytes) -> None:
        if self._transport is not None:
            self._transport.writelines((frames.chunk_header(number, transfer, offset, len(data)), data))

    @property
    def buffered_bytes(self) -> int:
        """What was written and is not in the socket yet."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def publish(self, number: int, buffer: bytes, flags: int) -> None:
        if self._transport is not None:
            header = frames.pack_header(len(buffer), PUBLISH, flags, number)
            self._transport.writelines((header, buffer))

    async def request(
        self, message: Request, reply: type[R], on_answer: Callable[[R], None] | None = None
    ) -> R:
        """Send a request and wait for its answer. Raises the error that the server answers with.

        `on_answer` is called when it arrives, before any frame behind it is looked at.
        """
        if self._is_lost:
            raise self._lost()
        if len(self._requests) >= MAX_REQUESTS_UNDER_WAY:
            raise HeliographError("too many requests wait for the server", code="too-many-requests")
        self._last_request += 1
        message.request = self._last_request
        answer: asyncio.Future[Reply] = self._loop.create_future()
        self._requests[message.request] = answer
        if on_answer is not None:
            self._listeners[message.request] = on_answer
        try:
            self.write(frames.control_frame(message))
            received = await answer
        finally:
            self._requests.pop(message.request, None)
            self._listeners.pop(message.request, None)
        if isinstance(received, Distributed):
            raise IsDistributed(received)
        if not isinstance(received, reply):
            raise ProtocolFault(f"the server answered {type(received).__name__}, not {reply.__name__}")
        return received

    @property
    def is_closing(self) -> bool:
        """Whether what is written now goes nowhere, though the loss was not told yet."""
        return self._transport is None or self._transport.is_closing()

    def check(self) -> None:
        """Raises ConnectionLost if this wire is of no more use."""
        if self._is_lost:
            raise self._lost()

    async def close(self, code: str = "closed") -> None:
        """Say goodbye, and wait until what was written is out."""
        if self._transport is not None and not self._is_lost:
            self._reason = ConnectionLost("the connection was closed", code=code)
            self.write(frames.control_frame(Goodbye(code=code)))
            self._transport.close()
            try:
                async with asyncio.timeout(HANDSHAKE_SECONDS):
                    await asyncio.shield(self._closed)
            except TimeoutError:
                self._transport.abort()

    def fail(self, reason: HeliographError) -> None:
        """This wire is of no more use."""
        if self._reason is None:
            self._reason = reason
        if self._transport is not None:
            self._transport.abort()
        self._end()

    # ---- in

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not derived from it
        self._transport.set_write_buffer_limits(WRITE_BUFFER_BYTES)

    def data_received(self, data: bytes) -> None:
        self._has_heard = True
        try:
            for kind, _flags, number, payload in self._reader.feed(data):
                if kind == DELIVER:
                    self._peer.on_delivery(number, payload)
                elif kind == CONFIRM:
                    self._peer.on_confirm(number, payload)
                elif kind == frames.CHUNK:
                    self._peer.on_chunk(payload)
                elif kind == frames.ADVANCE:
                    self._peer.on_advance(payload)
                elif kind == DELIVER_FROM:
                    self._peer.on_delivery_from(number, payload)
                elif kind == frames.ANSWER:
                    self._answer(frames.decode_answer(payload))
                elif kind == CONTROL:
                    self._receive(frames.decode_from_server(payload))
        except HeliographError as fault:
            self.fail(
                ConnectionLost(f"{self.name} sent what cannot be read: {fault.sentence}", code=fault.code)
            )

    def _receive(self, message: frames.FromServer) -> None:
        match message:
            case Welcome() | Challenge():
                if not self._greeting.done():
                    self._greeting.set_result(message)
            case Failed(request=request, code=code, sentence=sentence):
                self._refuse(request, from_code(code, sentence))
            case Goodbye(code=code, sentence=sentence):
                self._say_goodbye(code, sentence)
            case Refused() | ConsumerClosed() | BrowseEnded() | Blocked() | Settled() | Recalled():
                self._peer.on_news(message)
            case frames.Alert() | frames.AlertWithdrawn() | frames.AlertReceipt():
                self._peer.on_alert_news(message)
            case frames.TransferFailed():
                self._peer.on_transfer_failed(message)
            case frames.Move(seconds=seconds):
                self._peer.on_move(self, seconds)
            case _:
                self._answer(message)

    def _answer(self, message: Reply) -> None:
        listener = self._listeners.pop(message.request, None)
        if listener is not None and not isinstance(message, Distributed):
            listener(message)
        answer = self._requests.get(message.request)
        if answer is not None and not answer.done():
            answer.set_result(message)

    def _refuse(self, request: int, error: HeliographError) -> None:
        answer = self._requests.get(request)
        if not self._greeting.done():
            self._greeting.set_exception(error)
        elif answer is not None and not answer.done():
            answer.set_exception(error)

    def _say_goodbye(self, code: str, sentence: str) -> None:
        error = ConnectionLost(f"{self.name} ended the connection: {sentence}", code=code)
        known = from_code(code, sentence)
        self.fail(error if type(known) is HeliographError else known)

    def pause_writing(self) -> None:
        # A sender looks at this once per block; what it still writes until then is less than the window.
        self.is_paused = True

    def resume_writing(self) -> None:
        self.is_paused = False
        self._peer.on_resume()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._reason is None and isinstance(exc, ssl.SSLError):
            self._reason = tls.explained(self.name, exc)
        elif self._reason is None:
            what = f": {exc}" if exc is not None else ""
            self._reason = ConnectionLost(f"the connection to {self.name} was lost{what}")
        self._end()
        if not self._closed.done():
            self._closed.set_result(None)

    def _lost(self) -> HeliographError:
        reason = self._reason
        sentence = reason.sentence if reason is not None else f"the connection to {self.name} was lost"
        return ConnectionLost(sentence)

    def _end(self) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        if self._heart is not None:
            self._heart.cancel()
        reason = self._reason or self._lost()
        if not self._greeting.done():
            self._greeting.set_exception(reason)
            self._greeting.exception()  # whoever greets hears it; if nobody does, the loop must not complain
        for answer in self._requests.values():
            if not answer.done():
                answer.set_exception(self._lost())
        self._requests.clear()
        self._peer.on_lost(self, reason)

    # ---- heartbeats

    @property
    def is_fresh(self) -> bool:
        """Whether the server was heard of so lately that it cannot have given us up. Alerts are handed over only
        then: nobody is told that a cancelled one is gone before a client that is cut off knows that it is."""
        if self._is_lost or self.welcome is None:
            return False
        beat, now = self.welcome.heartbeat_seconds, self._clock.monotonic()
        is_running = beat <= 0 or now - self._beat_at <= 2 * beat  # or this process was asleep
        return is_running and (beat <= 0 or now - self._alive_at <= (HEARTBEATS_MISSED + 1) * beat)

    def _beat(self) -> None:
        """Once in an interval: say that we live, and count how long the other end has been silent."""
        if self._is_lost or self.welcome is None or self.welcome.heartbeat_seconds <= 0:
            return
        now, before = self._clock.monotonic(), self._beat_at
        self._beat_at = now
        if now - before > 2 * self.welcome.heartbeat_seconds:
            self._distrusted = _DISTRUSTED_BEATS  # this process was asleep: what is read now may be old
        elif self._distrusted:
            self._distrusted -= 1
        elif self._has_heard:
            self._alive_at = before  # what is read in between was sent since then, or hardly before
        self._silent_beats = 0 if self._has_heard else self._silent_beats + 1
        self._has_heard = False
        if self._silent_beats >= HEARTBEATS_MISSED:
            silence = self._silent_beats * self.welcome.heartbeat_seconds
            self.fail(ConnectionLost(f"nothing was heard from {self.name} for {silence:g} s", code="silent"))
            return
        self.write(HEARTBEAT_FRAME)
        self._heart = self._loop.call_later(self.welcome.heartbeat_seconds, self._beat)


def _scram(hello: Hello, clock: Clock) -> scram.Client:
    try:
        return scram.Client(hello.user, hello.password, clock.secret())
    except ValueError as fault:
        raise NotAuthenticated(f"the user's name cannot be: {fault}") from None


async def open_wire(
    peer: Peer,
    host: str,
    port: int,
    hello: Hello,
    clock: Clock = CLOCK,
    context: ssl.SSLContext | None = None,
) -> Wire:
    """Connect and greet; with `context`, in TLS.

    Raises ConnectionLost where nobody answers, and what the server answers where it refuses.
    """
    name = f"{host}:{port}"
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            # Loops that are not the system's know nothing of TLS.
            encrypted: dict[str, Any] = {} if context is None else {"ssl": context, "server_hostname": host}
            _, wire = await loop.create_connection(lambda: Wire(peer, name, clock), host, port, **encrypted)
    except TimeoutError:
        raise ConnectionLost(
            f"{name} did not answer within {HANDSHAKE_SECONDS:g} s: check address and firewalls"
        ) from None
    except ssl.SSLError as fault:
        raise tls.explained(name, fault) from None
    except OSError as fault:
        raise ConnectionLost(
            f"cannot connect to {name} ({fault.strerror or fault}): check the address; is the server running?"
        ) from None
    try:
        await wire.greet(hello)
    except BaseException as fault:
        reason = fault if isinstance(fault, HeliographError) else ConnectionLost("the greeting was given up")
        wire.fail(reason)
        raise
    return wire
