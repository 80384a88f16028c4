"""One client's socket: bytes to its conversation and back, and nothing decided here.

Reading stops while the client has more unconfirmed than it may; what goes out is gathered and sent at the
end of the tick.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from heliograph.bus.commands import Confirmed, Decision, Refused
from heliograph.frontends.native import frames
from heliograph.frontends.native.conversation import (
    Broken,
    Commanded,
    Conversation,
    Greeted,
    Left,
    Parts,
    Requested,
    encode,
)
from heliograph.model.errors import ClientFault, HeliographError, ProtocolFault, Unavailable
from heliograph.model.ids import SessionId
from heliograph.model.limits import (
    CONNECTION_OUTGOING_BYTES,
    HANDSHAKE_SECONDS,
    HEARTBEATS_MISSED,
    MAX_NAME_BYTES,
    MAX_SESSIONS_PER_CONNECTION,
)
from heliograph.sessions.access import Identity
from heliograph.sessions.commands import AnySessionEffect, Multicast, Publish
from heliograph.sessions.connection_facts import ConnectionFacts
from heliograph.sessions.session import Session
from heliograph.sessions.window import Window

if TYPE_CHECKING:
    from heliograph.nodes.client_manager import ClientManager

_MIN_HEARTBEAT_SECONDS = 0.1
# One of its sessions was resumed elsewhere; its client is about to do so with the others.
_SESSION_MOVED = "session-moved"
_COME_AGAIN = "server-moved"


class Link:
    """A session on a connection, under the client's number for it."""

    __slots__ = ("connection", "number", "session")

    session: Session

    def __init__(self, connection: Connection, number: int) -> None:
        self.connection = connection
        self.number = number


class Connection(asyncio.Protocol):
    """A native client."""

    def __init__(self, manager: ClientManager) -> None:
        self._manager = manager
        self._loop = asyncio.get_running_loop()
        self._conversation = Conversation()
        self._transport: asyncio.Transport | None = None
        self._outgoing: Parts = []
        self._window = Window()
        self._reading = True
        self._clogged = False
        self._close_by = 0.0
        self._address = ""
        self._parting = ""  # why it ends, if anybody said so
        self._heartbeat_seconds = manager.configuration.limits.heartbeat_seconds
        self._handshake_by = self._loop.time() + manager.configuration.limits.handshake_seconds
        self._heard_at = self._loop.time()
        self._sent_at = self._loop.time()
        self._proving: asyncio.Task[None] | None = None
        self.links: dict[int, Link] = {}
        self.user: Identity | None = None
        self.facts = ConnectionFacts(manager.new_connection_id(), "")

    # ---- the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(CONNECTION_OUTGOING_BYTES)
        if not self._manager.opened(self):
            full = Unavailable("the server has as many connections as it takes", code="too-many-connections")
            self._manager.record("connection-refused", address=self.peer, code=full.code)
            self.end(full)

    @property
    def peer(self) -> str:
        """Where the client is."""
        name = self._transport.get_extra_info("peername") if self._transport is not None else None
        return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else ""

    def connection_lost(self, _error: Exception | None) -> None:
        if self.user is not None:
            event = "connection-closed" if self._parting == "closed" else "connection-lost"
            self._manager.record(
                event, address=self._address, user=self.user.name, code=self._parting or "connection-lost"
            )
        self._transport = None
        if self._proving is not None:
            self._proving.cancel()
        self._manager.closed(self)

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        is_lone = False
        try:
            for happening in self._conversation.receive(data):
                if type(happening) is Commanded:
                    link = self.links.get(happening.number)
                    if link is None:
                        raise ProtocolFault(f"session {happening.number} is not open", code="session-unknown")
                    command = happening.command
                    if type(command) is Publish:
                        block = command.block
                        is_lone = block.count == 1 and block.size + frames.FRAME_HEADER_BYTES == len(data)
                        self._window.sent(block.lane, block.first + block.count - 1, block.size)
                    self.carry_out(link, link.session.handle(command))
                else:
                    self._rarer(happening)
        except ClientFault as fault:
            self.end(fault)
        if self._window.full:
            self._mind_window()
        if is_lone:
            self._manager.vigil.heard_lone()
        else:
            self._manager.vigil.heard_more()
        self._manager.tick.ask()

    def _rarer(self, happening: Greeted | Requested | Left | Broken | Commanded) -> None:
        if isinstance(happening, Greeted):
            self._proving = self._loop.create_task(self._prove(happening.hello))
        elif isinstance(happening, Requested):
            self._requested(happening.message)
        elif isinstance(happening, Left):
            self._parting = frames.MOVING if happening.code == frames.MOVING else "closed"
            self._close(b"")
        elif isinstance(happening, Broken):
            self._parting = happening.error.code
            if self.user is None:
                self._manager.record("connection-refused", address=self.peer, code=happening.error.code)
            self._close(happening.farewell)

    # ---- out

    def carry_out(self, link: Link, effects: list[AnySessionEffect]) -> None:
        for effect in effects:
            if type(effect) is Multicast:
                self._manager.multicast(link, effect.command)
            else:
                encode(link.number, effect, self._outgoing)
                self._manager.wants_flush(self)

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
        if isinstance(message, frames.Answer):
            self._outgoing.append(frames.answer_frame(message))
        else:
            self._outgoing.append(frames.control_frame(message))
        self._manager.wants_flush(self)
        self._manager.tick.ask()

    def flush(self) -> None:
        """Send what was gathered."""
        outgoing = self._outgoing
        if outgoing and self._transport is not None:
            self._outgoing = []
            self._sent_at = self._loop.time()
            self._transport.writelines(outgoing)

    def pause_writing(self) -> None:
        """The client does not read what it is sent: it is not read from until it does."""
        self._clogged = True
        self._mind_window()

    def resume_writing(self) -> None:
        self._clogged = False
        self._mind_window()

    def _mind_window(self) -> None:
        """Stop reading from a client that is too far ahead of its confirmations; go on when it is not."""
        stop = self._window.full or self._clogged
        if stop == self._reading and self._transport is not None and not self._transport.is_closing():
            self._reading = not stop
            if self._reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    # ---- beginning, requests, end

    async def _prove(self, hello: frames.Hello) -> None:
        try:
            self.user = await self._manager.authenticate(hello)
            self.facts.client_id = hello.client_id[:MAX_NAME_BYTES]
        except HeliographError as error:
            self._manager.record("login-failed", address=self.peer, user=hello.user, code=error.code)
            self.end(error)
            return
        self._address = self.peer
        self._manager.record(
            "connection-opened", address=self._address, user=self.user.name, client=hello.client
        )
        wished = max(hello.heartbeat_seconds, _MIN_HEARTBEAT_SECONDS)
        self._heartbeat_seconds = min(self._heartbeat_seconds, wished)
        welcome = self._manager.welcome(self.user, self._heartbeat_seconds)
        self._outgoing.append(self._conversation.admit(welcome))
        self.flush()
        self._proving = None  # a task that is done still takes room

    def _requested(self, message: frames.OpenSession | frames.CloseSession | frames.Ask) -> None:
        if isinstance(message, frames.OpenSession):
            if message.number in self.links or not 0 <= message.number < MAX_SESSIONS_PER_CONNECTION:
                sentence = f"sessions are numbered 0 to {MAX_SESSIONS_PER_CONNECTION - 1}, each once"
                self.send_control(frames.Failed(message.request, "session-number-invalid", sentence))
                return
            self._manager.open_session(self, message)
        elif isinstance(message, frames.CloseSession):
            self._manager.close_session(self, message)
        else:
            self._manager.ask(self, message)

    @property
    def lease_seconds(self) -> float:
        """How long what its consumers have is kept for a client that is gone: not at all if it left on purpose, or
        was shown the door. One that was asked to come again comes."""
        sessions = self._manager.configuration.sessions
        if self._parting == frames.MOVING:
            return sessions.lease_seconds
        return sessions.reconnect_seconds if self._parting in ("", _SESSION_MOVED, _COME_AGAIN) else 0.0

    def ask_to_move(self, seconds: float) -> None:
        """The server is about to leave: the client is to go elsewhere."""
        if self._conversation.is_open:
            self.send_control(frames.Move(seconds))
        else:
            self.end(Unavailable("the server is about to leave: try another", code="server-stopping"))

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

    def check_life(self, moment: float) -> None:
        """Called about every second: end what is dead, show that we are not."""
        if self._transport is None:
            return
        if not self._conversation.is_open:
            if moment > (self._close_by or self._handshake_by):
                self._transport.abort()
        elif moment - self._heard_at > self._heartbeat_seconds * HEARTBEATS_MISSED and self._reading:
            self._transport.abort()
        elif moment - self._sent_at > self._heartbeat_seconds / 2:
            self._sent_at = moment
            self._transport.write(frames.HEARTBEAT_FRAME)
