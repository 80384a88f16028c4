"""Where clients sit: each desk is beside a host, is cut off with it, and runs the clients of the simulation on a real
loop. What they did and saw is one history, for the same checkers."""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from heliograph.cli.dev_hosts import Host
from heliograph.client.clock import CLOCK
from simulation.machines import Machine, Main, Process
from simulation.sockets import Sockets
from simulation.world import World

_CLONE_NEWNET = 0x40000000
_ESTABLISHED = 1  # of TCP, as the kernel numbers it
_END_SECONDS = 5.0
_LIBC = ctypes.CDLL(None, use_errno=True)


class RealWorld(World):
    """The dice of a seed; the time is everybody's."""

    def __init__(self, seed: int) -> None:
        self._began = time.monotonic()
        super().__init__(seed)

    @property
    def now(self) -> float:
        return time.monotonic() - self._began

    @now.setter
    def now(self, _moment: float) -> None:
        """It passes by itself."""

    def note(self, *_words: object) -> None:
        """No two runs are the same."""


class Desk(Machine):
    """A thread in the network of a host, or in ours, with a loop for all clients there."""

    def __init__(
        self, world: World, name: str, host: Host | None, is_doubtful: Callable[[str], bool]
    ) -> None:
        """`is_doubtful`: whether a connection to that address may be over at its other end."""
        super().__init__(world, Sockets(world), name)
        self._host = host
        self._is_doubtful = is_doubtful
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(self._failed)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        if self._host is not None:
            enter_network(self._host.pid)
        self.loop.run_forever()
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self.loop.run_until_complete(asyncio.wait(tasks, timeout=_END_SECONDS))
        self.loop.close()

    def _failed(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None:
            self.world.failures.append(error)

    def start(self, name: str, main: Main) -> Process:
        return Life(self, name, main)

    def is_broken(self, transport: asyncio.Transport) -> bool:
        """Whether the kernel knows of an end, or nobody can."""
        connection: socket.socket | None = transport.get_extra_info("socket")
        if transport.is_closing() or connection is None or connection.fileno() < 0:
            return True
        state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        return state != _ESTABLISHED or self._is_doubtful(transport.get_extra_info("peername")[0])

    def close(self) -> None:
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(2 * _END_SECONDS)


class Life(Process):
    """A client's process as far as clients know: a task on the loop of its desk."""

    def __init__(self, desk: Desk, name: str, main: Main) -> None:
        self.machine = desk
        self.world = desk.world
        self.name = name
        self.client_clock = CLOCK  # type: ignore[assignment]
        self._future = asyncio.run_coroutine_threadsafe(self._live(main), desk.loop)

    async def _live(self, main: Main) -> None:
        try:
            await main(self)
        except Exception as error:
            self.world.failures.append(error)

    @property
    def is_alive(self) -> bool:
        return not self._future.done()

    def kill(self) -> None:
        self._future.cancel()


def enter_network(pid: int) -> None:
    """This thread, from now on: whatever sockets it opens are of that process's network."""
    namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    try:
        if _LIBC.setns(namespace, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(namespace)
