"""The event loop of a simulated process: asyncio on virtual time, with everything that shells and clients ask
of a loop.

What is ready runs in turns, as on a real loop, and each turn takes a little virtual time; whatever blocks (a
sync in the loop) prolongs it. `time` moves on within a turn, and what leaves the process leaves at that time.
Processes share a `World` and nothing else. A stopped process gets everything late, a killed one never runs
again.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, Final, cast

import msgspec

from simulation.sockets import SimServer, SimTransport, Sockets
from simulation.world import World

# What a callback costs, and what it costs to wake up.
_CALLBACK_SECONDS: Final = 4e-6
_WAKE_SECONDS: Final = 20e-6
# How long a job on a thread takes: from and to.
_JOB_SECONDS: Final = (50e-6, 2e-3)
# How often a coroutine may wait again while it is brought to its end.
_PATIENCE: Final = 100

Context = dict[str, Any]


class Killed(BaseException):
    """The process ends here, in the middle of what it does."""


class SimHandle(msgspec.Struct, eq=False):
    """Something that a process will do, unless it is cancelled."""

    callback: Callable[..., Any] | None
    arguments: tuple[Any, ...]
    due: float = 0.0

    def cancel(self) -> None:
        self.callback = None
        self.arguments = ()

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self.due


class ProcessLoop:
    """One process. Contexts (`contextvars`) are not kept apart: nothing here uses them."""

    def __init__(self, world: World, sockets: Sockets | None = None, host: str = "", name: str = "") -> None:
        self.as_loop = cast("asyncio.AbstractEventLoop", self)  # of which it has what is used
        self.world = world
        self.host = host
        self.name = name
        self.is_stopped = False
        self.is_dead = False
        self.slowness = 1.0  # how much longer everything takes than it should
        self.defects: list[str] = []  # what nobody caught
        self.transports: dict[SimTransport, None] = {}
        self.servers: list[SimServer] = []
        self._sockets = sockets
        self._ready: deque[SimHandle] = deque()
        self._spent = 0.0  # in this turn
        self._busy_until = 0.0
        self._is_awake = False  # a turn is under way, or planned
        self._readers: dict[int, Callable[[], Any]] = {}
        self._readings: dict[int, SimHandle] = {}  # to call each of them, again and again
        self._woken: dict[int, None] = {}

    # ---- time

    def time(self) -> float:
        return self.world.now + self._spent

    @property
    def spent(self) -> float:
        """How far this process is ahead of the world, in the turn that is under way."""
        return self._spent

    @property
    def busy_until(self) -> float:
        """When the turn is over that it began last, however quick the process and its disk have become since."""
        return self._busy_until

    def spend(self, seconds: float) -> None:
        """Whatever is done now blocks the process for so long."""
        self._spent += seconds * self.slowness

    # ---- callbacks

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> SimHandle:
        handle = SimHandle(callback, args)
        self._ready.append(handle)
        if not self._is_awake:
            self._wake()
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> SimHandle:
        return self.call_soon(callback, *args)

    def call_later(
        self,
        delay: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> SimHandle:
        world, spent = self.world, self._spent
        handle = SimHandle(callback, args, world.now + spent + delay)
        world.after((delay if delay > 0.0 else 0.0) + spent, partial(self._due, handle))
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> SimHandle:
        return self.call_later(when - self.time(), callback, *args)

    def _due(self, handle: SimHandle) -> None:
        if handle.callback is None or self.is_dead:
            return
        self._ready.append(handle)
        if not self._is_awake and not self.is_stopped:
            self._wake_here()

    def _wake_here(self) -> None:
        """Nobody else acts now."""
        if self._busy_until > self.world.now:
            self._wake()
        else:
            self._is_awake = True
            self._spent = _WAKE_SECONDS * self.slowness
            self._turn()

    def _wake(self) -> None:
        self._is_awake = True
        delay = self._busy_until - self.world.now
        self.world.after(delay if delay > 0 else _WAKE_SECONDS * self.slowness, self._turn)

    def _turn(self) -> None:
        """What is ready, and what that makes ready, until it sleeps or somebody else acts meanwhile."""
        if self.is_dead or self.is_stopped:
            return
        world, ready, cost = self.world, self._ready, _CALLBACK_SECONDS * self.slowness
        if world.whose_turn is not self.as_loop:
            world.turn_of(self.as_loop)
        try:
            while True:
                for _ in range(len(ready)):
                    handle = ready.popleft()
                    callback = handle.callback
                    if callback is None:
                        continue
                    self._spent += cost
                    try:
                        callback(*handle.arguments)
                    except BaseException as error:
                        self._failed(error)
                    if self.is_dead:
                        return
                if not ready or self.is_stopped or not world.passes_alone(self._spent):
                    break
                self._spent, cost = 0.0, _CALLBACK_SECONDS * self.slowness
        finally:
            self._busy_until = world.now + self._spent
            self._spent = 0.0
        self._is_awake = False
        if ready:
            self._wake()

    def _failed(self, error: BaseException) -> None:
        """What asyncio does with what a callback did not catch."""
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise error
        if isinstance(error, Killed):
            assert self.is_dead
        else:
            self.call_exception_handler({"message": "a callback failed", "exception": error})

    # ---- futures, tasks, threads

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self.as_loop)

    def create_task(
        self, coro: Generator[Any, None, Any] | Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self.as_loop, name=options.get("name"))

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """It is done at once, and known when a thread would have been through with it."""
        future = self.create_future()
        delay = self.world.between(*_JOB_SECONDS)
        try:
            result = func(*args)
        except Exception as error:
            self.call_later(delay, _tell, future, None, error)
        else:
            self.call_later(delay, _tell, future, result, None)
        return future

    def get_debug(self) -> bool:
        return False

    def is_closed(self) -> bool:
        return self.is_dead

    def is_running(self) -> bool:
        return not self.is_dead

    def call_exception_handler(self, context: Context) -> None:
        if not self.is_dead:
            error = context.get("exception")
            self.defects.append(f"{self.name}: {context.get('message')}: {error!r}")
            if error is not None:
                self.world.failures.append(error)

    # ---- sockets

    async def create_server(
        self, protocol_factory: Callable[[], Any], host: Any = None, port: Any = None, **_options: Any
    ) -> SimServer:
        assert self._sockets is not None, "this process has no network"
        server = self._sockets.listen(self, protocol_factory, int(port))
        self.servers.append(server)
        return server

    async def create_connection(
        self, protocol_factory: Callable[[], Any], host: Any = None, port: Any = None, **_options: Any
    ) -> tuple[SimTransport, Any]:
        assert self._sockets is not None, "this process has no network"
        return await self._sockets.connect(self, protocol_factory, str(host), int(port))

    # ---- descriptors: the bus

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:
        self._readers[fd] = callback
        self._readings[fd] = SimHandle(self._read, (fd,))
        self.readable(fd)

    def remove_reader(self, fd: Any) -> bool:
        return self._readers.pop(fd, None) is not None

    def readable(self, fd: int) -> None:
        """There is something to read, until the reader has been called."""
        if fd not in self._woken:
            self._woken[fd] = None
            delay = self._spent + self.world.between(1e-5, 1e-4)
            self.world.after(delay, partial(self._due, self._readings[fd]))

    def readable_now(self, fd: int) -> None:
        """The same, by somebody who has nothing else to do now: who sleeps wakes here."""
        if fd in self._woken:
            return
        self._woken[fd] = None
        if not self.is_dead:
            self._ready.append(self._readings[fd])
            if not self._is_awake and not self.is_stopped:
                self._wake_here()

    def _read(self, fd: int) -> None:
        self._woken.pop(fd, None)
        reader = self._readers.get(fd)
        if reader is not None:
            reader()

    # ---- stopped and killed

    def stop(self) -> None:
        """As by SIGSTOP."""
        self.is_stopped = True

    def resume(self) -> None:
        self.is_stopped = False
        self._is_awake = False
        if self._ready and not self.is_dead:
            self._wake()

    def kill(self) -> None:
        """Nothing of it ever runs again, and what is left of its tasks is kept until the end of the world: a
        coroutine that is thrown away would run its `finally`."""
        self.is_dead = True
        self.world.graveyard += asyncio.all_tasks(self.as_loop)
        self._ready.clear()
        self._readers.clear()


def bury(world: World) -> None:
    """The world is over. What processes left unfinished is brought to an end here, where nobody sees it: a
    coroutine that is thrown away half-way would complain."""
    for task in world.graveyard:
        for _ in range(_PATIENCE):
            try:
                task.get_coro().throw(Killed)
            except BaseException:
                break
    world.graveyard.clear()


def _tell(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if not future.done():
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
