"""One client's socket: bytes to its conversation and back, and nothing decided here.

Reading stops while the client has more unconfirmed than it may; what goes out is gathered and sent at the
end of the tick.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Awaitable, Iterable, Sequence
from typing import TYPE_CHECKING, cast

from heliograph.bus.commands import Confirmed, Decision, Refused
from heliograph.frontends.conversation import (
    Answered,
    AnyHappening,
    Broken,
    Claimed,
    Commanded,
    Conversation,
    Encrypted,
    Greeted,
    Keepsake,
    Left,
    Named,
    Parts,
    Recognised,
    Requested,
    Responded,
    Wondered,
)
from heliograph.frontends.detect import Detecting, Tls
from heliograph.frontends.native import frames
from heliograph.model.errors import ClientFault, HeliographError, NotAllowed, ProtocolFault, Unavailable
from heliograph.model.ids import SessionId, text_of
from heliograph.model.limits import (
    CONNECTION_OUTGOING_BYTES,
    FOREIGN_OUTGOING_BYTES,
    HANDSHAKE_SECONDS,
    MAX_NAME_BYTES,
    MAX_REFUSALS_NOTED,
    MAX_SESSIONS_PER_CONNECTION,
    UNFINISHED_SECONDS,
)
from heliograph.nodes.login import Admitted, Login, OpenDoor
from heliograph.nodes.tls_transport import TlsTransport
from heliograph.security.hosts import is_loopback
from heliograph.security.sasl import Challenge, Channel
from heliograph.security.strangers import Allowance
from heliograph.sessions.access import Identity
from heliograph.sessions.commands import AnySessionEffect, Fail, Multicast, Publish
from heliograph.sessions.connection_facts import ConnectionFacts
from heliograph.sessions.session import Session
from heliograph.sessions.window import Window

if TYPE_CHECKING:
    from heliograph.nodes.client_manager import ClientManager

_MIN_HEARTBEAT_SECONDS = 0.1
# One of its sessions was resumed elsewhere; its client is about to do so with the others.
_SESSION_MOVED = "session-moved"
_COME_AGAIN = "server-moved"
_STOPPING = "server-stopping"


class Link:
    """A session on a connection, under the client's number for it."""

    __slots__ = ("connection", "number", "session")

    session: Session

    def __init__(self, connection: Connection, number: int) -> None:
        self.connection = connection
        self.number = number


class Connection(asyncio.Protocol):
    """A client, whatever it speaks."""

    def __init__(self, manager: ClientManager, tls: Tls = Tls.NONE) -> None:
        self._manager = manager
        self._loop = asyncio.get_running_loop()
        self._conversation: Conversation = Detecting(manager.origins, manager.desk, tls)
        self._happenings: deque[AnyHappening] = deque()
        self._unsaid = 0  # how many of them are to be said to the client
        self._is_carrying_out = False
        self._transport: asyncio.Transport | None = None
        self._tls: TlsTransport | None = None
        self._outgoing: Parts = []
        self._window = Window()
        self._reading = True
        self._heard_lone = (
            0  # the size of the frame, if the last that was heard is one message and nothing else
        )
        self._clogged = False
        most = manager.configuration.limits.max_bytes_per_second
        self._allowance = Allowance(most, self._loop.time()) if most else None
        self._is_throttled = False
        self._refusals = 0
        self._close_by = 0.0
        self._lingering: asyncio.TimerHandle | None = None
        self._has_departed = False
        self._successors: list[tuple[Connection, str]] = []
        self.name = ""  # that only one connection has at a time, if it has one
        self.has_moved = False  # its client has come to another client manager meanwhile
        self.host = ""  # where the client is
        self._address = ""  # the same, and its port
        self._parting = ""  # why it ends, if anybody said so
        self._heartbeat_seconds = manager.configuration.limits.heartbeat_seconds
        self._handshake_by = self._loop.time() + manager.configuration.limits.handshake_seconds
        self._heard_at = self._loop.time()
        self._sent_at = self._loop.time()
        self._proving: asyncio.Task[None] | None = None
        self._login: Login | OpenDoor | None = None
        self._hello: frames.Hello | None = None
        self.links: dict[int, Link] = {}
        self.user: Identity | None = None
        most = manager.configuration.limits.max_consumers_per_session
        self.facts = ConnectionFacts(manager.new_connection_id(), "", max_consumers=most)

    # ---- the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(CONNECTION_OUTGOING_BYTES)
        name = self._transport.get_extra_info("peername")
        self.host = str(name[0]) if isinstance(name, tuple) else ""
        try:
            self._manager.opened(self, self.host)
        except Unavailable as full:
            self._manager.record("connection-refused", address=self.peer, code=full.code)
            self.end(full)

    @property
    def peer(self) -> str:
        """Where the client is."""
        name = self._transport.get_extra_info("peername") if self._transport is not None else None
        return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else ""

    def connection_lost(self, _error: Exception | None) -> None:
        if self.user is not None and not self._conversation.is_visit:
            event = "connection-closed" if self._parting == "closed" else "connection-lost"
            self._manager.record(
                event, address=self._address, user=self.user.name, code=self._parting or "connection-lost"
            )
        self._transport = None
        if self._proving is not None:
            self._proving.cancel()
        linger = self._conversation.linger_seconds
        if self._conversation.is_busy:
            linger = max(linger, UNFINISHED_SECONDS)
        if linger:
            self._lingering = self._loop.call_later(linger, self.depart)
        else:
            self.depart()

    @property
    def is_busy(self) -> bool:
        return self._conversation.is_busy

    def succeeded_by(self, successor: Connection, name: str) -> None:
        """Another has its name, and waits until it is known what becomes of what this one sent."""
        self._successors.append((successor, name))

    def depart(self, *, is_back: bool = False) -> None:
        """Nobody comes back to this connection; or its client `is_back` on another."""
        if self._lingering is not None:
            self._lingering.cancel()
        if self._has_departed:
            return
        self._has_departed = True
        if not ((is_back or self._successors) and self._conversation.linger_seconds):
            self._happen(self._conversation.lost())
        self._manager.closed(self)
        for successor, name in self._successors:
            successor.claim(name)

    def claim(self, name: str) -> None:
        """Have a name that only one connection has. Who has it now may have to finish something first."""
        if self._has_departed:
            return
        try:
            is_free = self._manager.claim(self, name)
        except ClientFault as fault:
            self.end(fault)
            return
        if is_free:
            self._happen(self._conversation.claimed(name, self._manager.keepsake_for(self, name)))
            self._manager.tick.ask()

    def _named(self, happening: Named) -> None:
        self.facts.client_id = happening.name[:MAX_NAME_BYTES]
        if happening.sole and not self._manager.claim_alone(self, happening.name):
            raise ClientFault("another connection has this client id", code="client-id-in-use")

    @property
    def keepsake(self) -> Keepsake | None:
        return self._conversation.keepsake

    def data_received(self, data: bytes) -> None:
        self._heard_at = now = self._loop.time()
        if self._allowance is not None:
            self._throttle(self._allowance.spend(len(data), now))
        self._happen(self._conversation.receive(data, self._manager.microseconds()))
        if self._window.full or self._conversation.is_waiting:
            self._mind_window()
        if self._heard_lone == len(data):
            self._manager.vigil.heard_lone()
        else:
            self._manager.vigil.heard_more()
        self._heard_lone = 0
        self._manager.tick.ask()

    def _throttle(self, seconds: float) -> None:
        """It has sent more than it may in a second: nothing is read until it has waited."""
        if seconds > 0.0 and not self._is_throttled:
            self._is_throttled = True
            self._loop.call_later(seconds, self._go_on_reading)
            self._mind_window()

    def _go_on_reading(self) -> None:
        self._is_throttled = False
        self._mind_window()

    def _happen(self, happenings: Iterable[AnyHappening]) -> None:
        """Carry out what happened, after all that happened before: one may cause others, which come behind."""
        self._add(happenings)
        if self._is_carrying_out:
            return
        self._is_carrying_out = True
        try:
            while self._happenings:
                happening = self._happenings.popleft()
                if type(happening) is Commanded:
                    self._command(happening)
                else:
                    self._rarer(happening)
        except ClientFault as fault:
            self._happenings.clear()
            self._unsaid = 0
            self.end(fault)
        finally:
            self._is_carrying_out = False

    def _add(self, happenings: Iterable[AnyHappening]) -> None:
        for happening in happenings:
            self._happenings.append(happening)
            if type(happening) is Answered:
                self._unsaid += 1

    def _command(self, happening: Commanded) -> None:
        link = self.links.get(happening.number)
        if link is None:
            raise ProtocolFault(f"session {happening.number} is not open", code="session-unknown")
        command = happening.command
        if type(command) is Publish:
            block = command.block
            self._heard_lone = block.size + frames.FRAME_HEADER_BYTES if block.count == 1 else 0
            self._window.sent(block.lane, block.first + block.count - 1, block.size)
        self.carry_out(link, link.session.handle(command))

    def _rarer(self, happening: AnyHappening) -> None:
        if isinstance(happening, Answered):
            self._unsaid -= 1
            self._outgoing.append(happening.data)
            self._manager.wants_flush(self)
            self._manager.tick.ask()
        elif isinstance(happening, Recognised):
            self._recognised(happening)
        elif isinstance(happening, Encrypted):
            self._encrypt(happening.heard)
        elif isinstance(happening, Claimed):
            name = happening.name or text_of(self.facts.identity)
            self.facts.client_id = name[:MAX_NAME_BYTES]
            self.claim(name)
        elif isinstance(happening, Named):
            self._named(happening)
        elif isinstance(happening, Greeted):
            self._hello = happening.hello
            try:
                self._manager.strangers.check_log_in(self.host, self._loop.time())
            except Unavailable as wait:
                self._manager.record(
                    "login-failed", address=self.peer, user=happening.hello.user, code=wait.code
                )
                self.end(wait)
                return
            self._login = self._manager.login(self.channel)
            self._proving = self._loop.create_task(self._prove(self._login.begin(happening.hello)))
        elif isinstance(happening, Wondered):
            self._outgoing.append(self._conversation.offer(self._manager.mechanisms(self.channel)))
            self.flush()
        elif isinstance(happening, Responded):
            assert self._login is not None, "it was challenged"
            self._proving = self._loop.create_task(self._prove(self._login.respond(happening.data)))
        elif isinstance(happening, Requested):
            self._requested(happening.message)
        elif isinstance(happening, Left):
            self._parting = frames.MOVING if happening.code == frames.MOVING else "closed"
            self._close(b"")
        elif isinstance(happening, Broken):
            self._parting = happening.error.code
            happening.error.__traceback__ = None  # which refers to this connection
            if self.user is None:
                self._manager.record("connection-refused", address=self.peer, code=happening.error.code)
            self._close(happening.farewell)

    def _recognised(self, happening: Recognised) -> None:
        self._conversation = happening.conversation
        self._add(self._conversation.receive(happening.rest, self._manager.microseconds()))
        if self._transport is not None and not self._conversation.resumes:
            # What is sent without being acknowledged counts as received below this mark.
            self._transport.set_write_buffer_limits(FOREIGN_OUTGOING_BYTES)
            # Nobody may ever hear from its client again, and what its consumers have must not wait for ever.
            system: socket.socket | None = self._transport.get_extra_info("socket")
            if system is not None and system.type == socket.SOCK_STREAM:
                system.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def _encrypt(self, heard: bytes) -> None:
        """From here on TLS stands between the socket and this."""
        if self._transport is None or self._manager.certificates is None:
            return
        self._conversation = Detecting(self._manager.origins, self._manager.desk, Tls.WITHIN)
        context = self._manager.certificates.context
        self._tls = self._transport = TlsTransport(self._transport, context, self, self._not_encrypted)
        self._tls.begin(heard)

    def _not_encrypted(self, sentence: str) -> None:
        self._parting = "tls-failed"
        self._manager.record("tls-refused", address=self.peer, sentence=sentence)

    # ---- out

    def carry_out(self, link: Link, effects: list[AnySessionEffect]) -> None:
        for effect in effects:
            if type(effect) is Multicast:
                self._manager.multicast(link, effect.command)
            else:
                if type(effect) is Fail and effect.code == NotAllowed.default_code:
                    self.note_refusal(effect.sentence)
                if self._unsaid:
                    caused = self._tell_behind(link, effect)
                else:
                    caused = self._conversation.tell(link.number, effect, self._outgoing)
                self._manager.wants_flush(self)
                if caused:
                    self._happen(caused)
                    self._manager.tick.ask()
        if self._lingering is not None and not self._conversation.is_busy and self._successors:
            self.depart()
        if not self._reading:
            self._mind_window()  # it may have waited for just this

    def _tell_behind(self, link: Link, effect: AnySessionEffect) -> Sequence[AnyHappening]:
        """While something is still to be said that came before, as when a command beside it brings this at once."""
        said: Parts = []
        caused = self._conversation.tell(link.number, effect, said)
        return [Answered(b"".join(said)), *caused] if said else caused

    def note_refusal(self, sentence: str) -> None:
        """Who tries what it may not is written down, but it does not fill the log."""
        self._refusals += 1
        if self.user is not None and self._refusals <= MAX_REFUSALS_NOTED:
            self._manager.record("refused", address=self._address, user=self.user.name, sentence=sentence)

    def forget_session(self, session: SessionId) -> None:
        """Nothing of a closed session will be confirmed any more."""
        self._window.forget(session)
        self._mind_window()

    def on_decision(self, link: Link, decision: Decision) -> None:
        """Something on the bus concerns a session of this connection."""
        if type(decision) is Confirmed:
            self._window.confirmed(decision.lane, decision.last)
            if not self._reading:
                self._mind_window()
        elif type(decision) is Refused:
            self._window.refused(decision.lane)
            self._mind_window()
        self.carry_out(link, link.session.handle(decision))

    def send_control(self, message: frames.Control) -> None:
        self._happen(self._conversation.say(message, self._outgoing))
        self._mind_window()
        self._manager.wants_flush(self)
        self._manager.tick.ask()

    def flush(self) -> None:
        """Send what was gathered."""
        outgoing = self._outgoing
        if outgoing and self._transport is not None:
            self._outgoing = []
            self._sent_at = self._loop.time()
            self._transport.writelines(outgoing)
            if not self._clogged:
                self._is_with_network()

    def _is_with_network(self) -> None:
        caused = self._conversation.written()
        if caused:
            self._happen(caused)
            self._manager.tick.ask()
        if not self._reading:
            self._mind_window()  # it may have waited for just this

    def pause_writing(self) -> None:
        """The client does not read what it is sent: it is not read from until it does."""
        self._clogged = True
        self._mind_window()

    def resume_writing(self) -> None:
        self._clogged = False
        self._mind_window()
        self._is_with_network()

    def _mind_window(self) -> None:
        """Stop reading from a client that is too far ahead of its confirmations; go on when it is not."""
        stop = self._window.full or self._clogged or self._is_throttled or self._conversation.is_waiting
        if stop == self._reading and self._transport is not None and not self._transport.is_closing():
            self._reading = not stop
            if self._reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    # ---- beginning, requests, end

    @property
    def channel(self) -> Channel:
        """What is known about the way on which the client comes."""
        if self._tls is not None:
            return Channel(True, self._tls.certificate_user)
        return Channel(is_loopback(self.host))

    async def _prove(self, proving: Awaitable[Admitted | Challenge]) -> None:
        hello, login = self._hello, self._login
        assert hello is not None
        assert login is not None
        try:
            outcome = await proving
        except HeliographError as error:
            if self._login is not login:
                return
            self._login = None
            user = login.claimed or hello.user
            self._manager.record("login-failed", address=self.peer, user=user, code=error.code)
            if isinstance(error, ClientFault):
                self._manager.strangers.failed(self.host, self._loop.time())
            self.end(error)
            return
        if self._login is not login:
            return  # it was broken off meanwhile
        if isinstance(outcome, Challenge):
            self._outgoing.append(self._conversation.challenge(outcome.data))
            self.flush()
            self._mind_window()
        else:
            self._admit(hello, outcome)
        self._proving = None  # a task that is done still takes room

    def _admit(self, hello: frames.Hello, admitted: Admitted) -> None:
        self.user = admitted.user
        self._manager.proved(self)
        self.facts.client_id = hello.client_id[:MAX_NAME_BYTES]
        self._hello = self._login = None
        self._address = self.peer
        if not self._conversation.is_visit:
            self._manager.record(
                "connection-opened",
                address=self._address,
                user=self.user.name,
                client=hello.client,
                mechanism=hello.mechanism.lower(),
                tls=self._tls is not None,
            )
        wished = max(hello.heartbeat_seconds, _MIN_HEARTBEAT_SECONDS)
        self._heartbeat_seconds = min(self._heartbeat_seconds, wished)
        welcome = self._manager.welcome(self.user, self._heartbeat_seconds, admitted.proof)
        self._outgoing.append(self._conversation.admit(welcome))
        self._happen(self._conversation.begin())
        self.flush()
        self._mind_window()

    def _requested(self, message: frames.OpenSession | frames.CloseSession | frames.Ask) -> None:
        if isinstance(message, frames.OpenSession):
            if message.number in self.links or not 0 <= message.number < MAX_SESSIONS_PER_CONNECTION:
                sentence = f"sessions are numbered 0 to {MAX_SESSIONS_PER_CONNECTION - 1}, each once"
                self.send_control(frames.Failed(message.request, "session-number-invalid", sentence))
                return
            most = self._manager.configuration.limits.max_sessions_per_connection
            if len(self.links) >= most:
                sentence = f"a connection has at most {most} sessions here"
                self.send_control(frames.Failed(message.request, "too-many-sessions", sentence))
                return
            self._manager.open_session(self, message)
        elif isinstance(message, frames.CloseSession):
            self._manager.close_session(self, message)
        else:
            self._manager.ask(self, message)

    @property
    def can_resume(self) -> bool:
        """Whether its client may come back to its sessions."""
        return self._conversation.resumes

    @property
    def lease_seconds(self) -> float:
        """How long what its consumers have is kept for a client that is gone: not at all if it left on purpose, or
        was shown the door. One that was asked to come again comes; later, if it has to find another server."""
        sessions = self._manager.configuration.sessions
        if self._parting in (frames.MOVING, _STOPPING):
            return sessions.lease_seconds
        return sessions.reconnect_seconds if self._parting in ("", _SESSION_MOVED, _COME_AGAIN) else 0.0

    def ask_to_move(self, seconds: float) -> None:
        """The server is about to leave: the client is to go elsewhere."""
        if self._transport is None:
            self.depart()  # its client was still waited for
        elif self._conversation.is_open and self._conversation.resumes:
            self.send_control(frames.Move(seconds))
        else:
            self.end(Unavailable("the server is about to leave: try another", code="server-stopping"))

    @property
    def is_proving(self) -> bool:
        """It is being found out who it is; by HTTP, perhaps once more."""
        return self._login is not None

    def break_off_proof(self, error: HeliographError) -> None:
        """Whatever it proves from here on, it proves to nobody."""
        self._login = self._hello = None
        self.end(error)

    def give_way(self) -> None:
        """Others come who may mean it, and this one has not said who it is."""
        self._manager.proved(self)
        if self._transport is not None:
            self._parting = "too-many-connections"
            self._transport.abort()

    def end(self, error: HeliographError) -> None:
        """Say why, and close."""
        self._parting = error.code
        self._close(self._conversation.break_off(error).farewell)

    def _close(self, farewell: bytes) -> None:
        if self._transport is not None:
            if farewell:
                self._outgoing.append(farewell)
            self.flush()
            self._transport.close()
            self._close_by = self._loop.time() + HANDSHAKE_SECONDS

    def show_life(self) -> None:
        """For tests that set the clock forward: the client was not silent all that time."""
        self._heard_at = self._loop.time()

    def check_life(self, moment: float) -> None:
        """Called about every second: end what is dead, show that we are not."""
        if self._transport is None:
            return
        caused = self._conversation.time_passed(self._manager.microseconds())
        if caused:
            self._happen(caused)
            self._manager.tick.ask()
            if self._transport is None:
                return
        if not self._conversation.is_open:
            if moment > (self._close_by or self._handshake_by):
                self._transport.abort()
            return
        patience, pulse = self._conversation.patience_seconds, self._conversation.pulse_seconds
        if patience and moment - self._heard_at > patience and self._reading:
            self._transport.abort()
        elif pulse and moment - self._sent_at > pulse:
            self._sent_at = moment
            self._transport.write(self._conversation.pulse)
