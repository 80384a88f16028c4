"""Whoever starts a server on its machine, and starts it again whenever it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from heliograph.model.errors import HeliographError
from heliograph.nodes.configuration import Configuration
from heliograph.nodes.embedded import EmbeddedServer
from simulation.machines import Machine, Process


class Server(Protocol):
    """What is started: a server of production, alone or of a cluster."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def wait_failed(self) -> HeliographError: ...


def embedded(configuration: Configuration) -> Callable[[Process], Server]:
    """A server that stands alone."""
    return lambda process: EmbeddedServer(configuration, disk=process.mount, clock=process.clock)


class Supervisor:
    """Of one server."""

    def __init__(
        self, machine: Machine, make: Callable[[Process], Server], *, host: int = 0, role: str = ""
    ) -> None:
        """`host` and `role`: of a node of a cluster, its number on the bus and what it is."""
        self.machine = machine
        self.host = host
        self.role = role
        self.world = machine.world
        self.process: Process | None = None
        self.server: Server | None = None
        self.starts = 0
        self.endings: dict[str, int] = {}
        self._make = make
        self._stop: asyncio.Future[None] | None = None

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.is_alive

    def start(self) -> None:
        if self.machine.is_up and not self.is_running:
            self.starts += 1
            self.process = self.machine.start(f"server#{self.starts}", self._main)
            self.process.on_death = self._again

    def _again(self) -> None:
        self.world.after(self.world.between(0.02, 1.0), self.start)

    def stop(self) -> None:
        """In good order."""
        if self._stop is not None and self.is_running and not self._stop.done():
            self._stop.set_result(None)

    def power_off(self, seconds: float) -> None:
        if self.machine.is_up:
            self.machine.crash()
            self.world.after(seconds, self._power_on)

    def _power_on(self) -> None:
        self.machine.boot()
        self._again()

    async def _main(self, process: Process) -> None:
        server = self.server = self._make(process)
        self._stop = process.loop.create_future()
        why = "stopped"
        try:
            await server.start()
            self.world.note("started", process.name)
            failed = process.loop.create_task(server.wait_failed())
            await asyncio.wait((failed, self._stop), return_when=asyncio.FIRST_COMPLETED)
            if self._stop.done():
                await server.stop()
            else:
                why = failed.result().code
        except (HeliographError, OSError) as error:
            why = getattr(error, "code", "") or type(error).__name__
        except Exception as error:  # nobody knows what to do then: it is a defect
            self.world.failures.append(error)
            why = "defect"
        self.endings[why] = self.endings.get(why, 0) + 1
        self.world.note("ended", why)
        process.kill()
