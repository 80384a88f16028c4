"""Machines with a disk and a clock of their own, and the processes that run, die and are started again on
them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

from heliograph.client.clock import Clock as ClientClock
from heliograph.nodes.clock import Clock as NodeClock
from simulation.disk import Mount, SimDisk
from simulation.loop import ProcessLoop
from simulation.sockets import SimTransport, Sockets
from simulation.world import World

# Some day in 2026.
EPOCH: Final = 1_780_000_000.0

Main = Callable[["Process"], Coroutine[Any, Any, Any]]


class Machine:
    """Lives as long as the world. What runs on it does not."""

    def __init__(self, world: World, sockets: Sockets, name: str, *, skew: float = 0.0) -> None:
        self.world = world
        self.sockets = sockets
        self.name = name
        self.skew = skew  # how far its clock is ahead
        self.disk = SimDisk(world)
        self.boots = 1
        self.is_up = True
        self.processes: list[Process] = []
        # What else goes and comes with the machine: the daemon of the bus.
        self.on_crash: Callable[[], None] = _nothing
        self.on_boot: Callable[[], None] = _nothing

    def start(self, name: str, main: Main) -> Process:
        assert self.is_up
        process = Process(self, name)
        self.processes.append(process)
        process.begin(main)
        return process

    def is_broken(self, transport: SimTransport) -> bool:
        """Whether a connection is, that a process here may still take for whole."""
        return transport.is_broken

    def crash(self) -> None:
        """Without power: nobody is told anything, and the disk has what it has."""
        self.is_up = False
        self.sockets.machine_died(self.name)
        for process in self.processes:
            process.loop.kill()
        self.processes.clear()
        self.on_crash()
        self.disk.crash()

    def boot(self) -> None:
        self.is_up = True
        self.boots += 1
        self.sockets.machine_came(self.name)
        self.on_boot()


class Process:
    """One process: its loop, its hold on the disk, its clock."""

    def __init__(self, machine: Machine, name: str) -> None:
        self.machine = machine
        self.world = machine.world
        self.name = name
        self.loop = ProcessLoop(machine.world, machine.sockets, machine.name, name)
        self.mount = Mount(machine.disk, self.loop, self.kill)
        self.clock = SimNodeClock(self)
        self.client_clock = SimClientClock(self)
        self.task: Any = None
        self.at_death: list[Callable[[], None]] = []  # what the system does for it, at once
        self.on_death: Callable[[], None] = _nothing

    @property
    def is_alive(self) -> bool:
        return not self.loop.is_dead

    def begin(self, main: Main) -> None:
        def start() -> None:
            self.task = self.loop.create_task(main(self))

        self.loop.call_soon(start)

    def kill(self) -> None:
        """As by `kill -9`: the system keeps what was written, and closes what was open."""
        if self.is_alive:
            self.loop.kill()
            self.machine.sockets.process_died(self.loop)
            self.machine.processes.remove(self)
            for step in self.at_death:
                step()
            self.world.after(0.0, self.on_death)


class SimNodeClock(NodeClock):
    """What a server takes for the time, and for the name of its machine's run."""

    def __init__(self, process: Process) -> None:
        self._loop = process.loop
        self._machine = process.machine

    def now(self) -> float:
        return EPOCH + self._machine.skew + self._loop.time()

    def microseconds(self) -> int:
        return int(self.now() * 1e6)

    def monotonic(self) -> float:
        return self._loop.time()

    def boot_id(self) -> bytes:
        return f"{self._machine.name} {self._machine.boots}".encode()

    def secret(self, size: int) -> bytes:
        return self._machine.world.dice.randbytes(size)


class SimClientClock(ClientClock):
    """The same for a client."""

    def __init__(self, process: Process) -> None:
        self._loop = process.loop
        self._machine = process.machine

    def microseconds(self) -> int:
        return int((EPOCH + self._machine.skew + self._loop.time()) * 1e6)

    def monotonic(self) -> float:
        return self._loop.time()

    def chance(self) -> float:
        return self._machine.world.dice.random()

    def secret(self) -> str:
        return self._machine.world.dice.randbytes(16).hex()


def _nothing() -> None:
    """Nobody minds."""
