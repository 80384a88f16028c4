"""Connections between simulated processes: bytes that take their time, arrive in pieces, and stop arriving.

A connection is two pipes. Whatever is written arrives in order, a latency later, cut as the dice fall. It can
end well, be reset (what is under way may be lost), or go silent one way or both, which only a heartbeat finds
out. The kernel's part in the death of a process is played here: what it had written still arrives. A machine
that crashes says nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from simulation.world import World

if TYPE_CHECKING:
    from simulation.loop import ProcessLoop

# What is under way or waits to be read; beyond it, the sender keeps it.
_PIPE_BYTES: Final = 256 * 1024
_LATENCY: Final = (60e-6, 400e-6)
# Now and then a packet is lost and sent again.
_RETRY: Final = (0.01, 0.2)
_RETRY_CHANCE: Final = 0.003
_CUT_CHANCE: Final = 0.1
# What does not get through is sent again after so long.
_AGAIN: Final = (0.2, 0.8)


class SimServer:
    """A port that is listened on."""

    def __init__(self, sockets: Sockets, loop: ProcessLoop, factory: Callable[[], Any], port: int) -> None:
        self.loop = loop
        self.factory = factory
        self.port = port
        self.sockets = (self,)
        self._of = sockets

    def getsockname(self) -> tuple[str, int]:
        return self.loop.host, self.port

    def close(self) -> None:
        self._of.unlisten(self)

    def is_serving(self) -> bool:
        return self._of.listeners.get((self.loop.host, self.port)) is self

    async def wait_closed(self) -> None:
        return


class Sockets:
    """All ports and connections of a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.listeners: dict[tuple[str, int], SimServer] = {}
        self.connections: dict[SimTransport, None] = {}  # one end of each
        self.down: dict[str, None] = {}  # machines
        self.reaches: Callable[[str, str], bool] = (
            _always  # whether bytes get from one machine to another now
        )
        self._made = 0
        self._ports = 40_000  # those that nobody asked for

    def listen(self, loop: ProcessLoop, factory: Callable[[], Any], port: int) -> SimServer:
        if not port:
            self._ports += 1
            port = self._ports
        if (loop.host, port) in self.listeners:
            raise OSError(98, "address already in use")
        server = self.listeners[loop.host, port] = SimServer(self, loop, factory, port)
        return server

    def unlisten(self, server: SimServer) -> None:
        if self.listeners.get((server.loop.host, server.port)) is server:
            del self.listeners[server.loop.host, server.port]

    def latency(self) -> float:
        if self.world.chance(_RETRY_CHANCE):
            return self.world.between(*_RETRY)
        return self.world.between(*_LATENCY)

    async def connect(
        self, loop: ProcessLoop, factory: Callable[[], Any], host: str, port: int
    ) -> tuple[SimTransport, Any]:
        waiting = loop.create_future()
        self.world.after(loop.spent + self.latency(), lambda: self._knock(loop, waiting, host, port))
        server: SimServer | None = await waiting
        if server is None or server.loop.is_dead or not server.is_serving():
            raise ConnectionRefusedError(111, "connection refused")
        self._made += 1
        ours = SimTransport(self, loop, (host, port), self._made)
        theirs = SimTransport(self, server.loop, (loop.host, 30_000 + self._made), -self._made)
        ours.peer, theirs.peer = theirs, ours
        self.connections[ours] = None
        protocol = factory()
        ours.begin(protocol)
        server.loop.call_soon(theirs.accept, server.factory)
        return ours, protocol

    def _knock(
        self, loop: ProcessLoop, waiting: asyncio.Future[Any], host: str, port: int, again: float = 1.0
    ) -> None:
        if host in self.down:
            return  # nobody says so
        if not self.talk(loop.host, host):  # the system asks again, less and less often
            self.world.after(again, lambda: self._knock(loop, waiting, host, port, 2 * again))
            return
        server = self.listeners.get((host, port))
        loop.call_soon(_answer, waiting, server)

    def talk(self, one: str, other: str) -> bool:
        return self.reaches(one, other) and self.reaches(other, one)

    # ---- what happens to them

    def break_one(self) -> str:
        """Reset or silence a connection. Returns what was done, empty if there is none."""
        if not self.connections:
            return ""
        end = self.world.dice.choice(list(self.connections))
        kind = self.world.dice.choice(("reset", "silent", "deaf", "mute"))
        assert end.peer is not None
        if kind == "reset":
            end.reset_both()
        if kind in ("silent", "deaf"):
            end.peer.is_silent = True
        if kind in ("silent", "mute"):
            end.is_silent = True
        return kind

    def break_for(self, end: SimTransport) -> None:
        """This end learns that its connection is broken; the other may learn it as well, or much later."""
        if self.world.chance(0.5):
            end.reset_both()
        else:
            end.reset_here()

    def process_died(self, loop: ProcessLoop) -> None:
        """The system closes what it had open."""
        for server in loop.servers:
            self.unlisten(server)
        for transport in list(loop.transports):
            transport.orphaned(resets=self.world.chance(0.5))

    def machine_died(self, host: str) -> None:
        """Nobody is told. Whoever goes on sending learns it when the machine is up again."""
        self.down[host] = None
        for key in [key for key in self.listeners if key[0] == host]:
            del self.listeners[key]

    def machine_came(self, host: str) -> None:
        self.down.pop(host, None)


class SimTransport(asyncio.Transport):
    """One end."""

    peer: SimTransport | None = None

    def __init__(self, sockets: Sockets, loop: ProcessLoop, peername: tuple[str, int], number: int) -> None:
        super().__init__({"peername": peername})
        self.number = number
        self.is_silent = False  # what it sends does not arrive
        self.is_over = False  # the protocol was told, or will never be
        self._sockets = sockets
        self._world = sockets.world
        self._loop = loop
        self._protocol: Any = None
        self._is_closing = False
        self._is_reading = True
        self._high, self._low = 64 * 1024, 16 * 1024
        self._is_paused = False
        self._buffer: list[bytes] = []  # written, and not in the pipe yet
        self._buffered = 0
        self._under_way = 0  # in the pipe, or unread at the other end
        self._last_arrival = 0.0
        self._stuck: list[
            bytes | Exception | None
        ] = []  # sent, and sent again until the network lets it through
        self._incoming = bytearray()
        self._will_read = False
        self._has_ended = False  # at the other end
        self._end: Exception | None = None  # how, if not well
        loop.transports[self] = None

    @property
    def is_broken(self) -> bool:
        """Whether something is the matter with it, at either end, noticed or not."""
        peer = self.peer
        if peer is None or not self._sockets.talk(self._loop.host, peer._loop.host):
            return True
        return any(
            end.is_over or end.is_silent or end._has_ended or end._stuck or end._loop.is_dead
            for end in (self, peer)
        )

    def accept(self, factory: Callable[[], Any]) -> None:
        if not self.is_over:
            self.begin(factory())

    def begin(self, protocol: Any) -> None:
        self._protocol = protocol
        protocol.connection_made(self)
        self._read_soon()

    # ---- writing

    def write(self, data: Any) -> None:
        if self._is_closing or self.is_over or self._loop.is_dead:
            return
        self._buffer.append(bytes(data))
        self._buffered += len(data)
        self._fill()
        if self._buffered > self._high and not self._is_paused:
            self._is_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def _fill(self) -> None:
        """As much as the pipe takes."""
        while self._buffer and self._under_way < _PIPE_BYTES:
            data = self._buffer.pop(0)
            self._buffered -= len(data)
            self._under_way += len(data)
            self._carry(data)

    def _carry(self, what: bytes | Exception | None) -> None:
        """Bytes, or that it ends: with an error, or well."""
        now = self._world.now
        moment = max(now + self._loop.spent + self._sockets.latency(), self._last_arrival)
        self._last_arrival = moment
        self._world.after(moment - now, lambda: self._arrive(what))

    def _arrive(self, what: bytes | Exception | None) -> None:
        peer = self.peer
        assert peer is not None
        if self.is_silent or peer._loop.host in self._sockets.down:
            return
        if self._stuck or not self._sockets.reaches(self._loop.host, peer._loop.host):
            self._stick(what)
        elif not isinstance(what, bytes):
            peer._ended(what)
        elif peer._loop.is_dead or peer.is_over:  # its system answers for it
            peer._carry(_reset())
        else:
            peer._arrived(what)

    def _stick(self, what: bytes | Exception | None) -> None:
        """The network is cut. What was sent waits, and arrives in its order if the cut ends first."""
        self._stuck.append(what)
        if len(self._stuck) == 1:
            self._world.after(self._world.between(*_AGAIN), self._try_again)

    def _try_again(self) -> None:
        assert self.peer is not None
        if self._sockets.reaches(self._loop.host, self.peer._loop.host):
            stuck, self._stuck = self._stuck, []
            for what in stuck:
                self._arrive(what)
        elif not (self.is_over and self.peer.is_over):
            self._world.after(self._world.between(*_AGAIN), self._try_again)

    def _taken(self, size: int) -> None:
        """The other end has read this much."""
        self._under_way -= size
        if self._buffer and not self.is_over:
            self._fill()
        if self._is_paused and self._buffered <= self._low and not self.is_over:
            self._is_paused = False
            self._protocol.resume_writing()
        if self._is_closing and not self._buffer:
            self._finish()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 64 * 1024 if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return self._buffered

    # ---- reading

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self._read_soon()

    def is_reading(self) -> bool:
        return self._is_reading and not self._is_closing

    def _arrived(self, data: bytes) -> None:
        self._incoming += data
        self._read_soon()

    def _read_soon(self) -> None:
        if not self._will_read and self._protocol is not None and (self._incoming or self._has_ended):
            self._will_read = True
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        self._will_read = False
        if self.is_over or not self._is_reading:
            return
        if self._incoming:
            size = len(self._incoming)
            if size > 1 and self._world.chance(_CUT_CHANCE):
                size = self._world.dice.randint(1, size - 1)
            data = bytes(self._incoming[:size])
            del self._incoming[:size]
            assert self.peer is not None
            if not self.peer._loop.is_dead:
                self.peer._loop.call_soon(self.peer._taken, size)
            self._world.note("read", self.number, size)
            if not self._is_closing:
                self._protocol.data_received(data)
            self._read_soon()
        elif self._has_ended:
            if self._end is None and not self._is_closing and self._protocol.eof_received():
                return  # it wants to say something yet
            self._lose(self._end)

    # ---- ending

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing and not self.is_over:
            self._is_closing = True
            if not self._buffer:
                self._finish()

    def _finish(self) -> None:
        """All that was written is in the pipe: say that it was all, and end."""
        if not self.is_over:
            self._carry(None)
            self._lose(None)

    def abort(self) -> None:
        if not self.is_over:
            self._is_closing = True
            self._carry(_reset())
            self._lose(None)

    def reset_both(self) -> None:
        """Somebody on the way ends it; what is under way is lost from some point on."""
        for end in (self, self.peer):
            assert end is not None
            end.is_silent = True
            if not end._loop.is_dead:
                end._ended(_reset())

    def reset_here(self) -> None:
        """Somebody on the way tells this end alone, and lets nothing through any more."""
        assert self.peer is not None
        self.is_silent = self.peer.is_silent = True
        if not self._loop.is_dead:
            self._ended(_reset())

    def orphaned(self, *, resets: bool) -> None:
        """The process died: what it had written and the system had taken arrives, and then the end."""
        if not self.is_over:
            self._forget()
            self._carry(_reset() if resets else None)

    def _ended(self, how: Exception | None) -> None:
        if not self._has_ended and not self.is_over:
            self._has_ended, self._end = True, how
            if how is not None and (self._world.chance(0.5) or not self._is_reading):
                self._incoming.clear()  # a reset takes with it what was not read
                self._is_reading = True
            self._read_soon()

    def _lose(self, error: Exception | None) -> None:
        if not self.is_over:
            self._forget()
            self._loop.call_soon(self._protocol.connection_lost, error)

    def _forget(self) -> None:
        self.is_over = True
        self._buffer.clear()
        self._loop.transports.pop(self, None)
        self._sockets.connections.pop(self, None)
        if self.peer is not None and self.peer.is_over:
            self._sockets.connections.pop(self.peer, None)


def _always(_one: str, _other: str) -> bool:
    return True


def _answer(waiting: asyncio.Future[Any], server: SimServer | None) -> None:
    if not waiting.done():
        waiting.set_result(server)


def _reset() -> ConnectionResetError:
    return ConnectionResetError(104, "connection reset by peer")
