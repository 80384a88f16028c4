"""Faults, as the dice fall: what happens to servers, their machines, disks, clients and connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from simulation.clients import Client
from simulation.sockets import Sockets
from simulation.supervisor import Supervisor
from simulation.world import World

# A disk that is never full.
ROOM: Final = 1 << 30
KINDS: Final = (
    "kill",
    "kill_at_call",
    "power",
    "power_at_call",
    "blackout",
    "break",
    "client",
    "stop",
    "pause",
    "slow",
    "slow_disk",
    "full_disk",
    "rot",
    "skew",
)


class Plan(msgspec.Struct, frozen=True):
    """How many faults there are at most, and of which kinds. None named: all that the workload has."""

    faults: int = 1_000_000
    kinds: tuple[str, ...] = ()


STORM: Final = Plan()


class Weather:
    """Faults, one after the other, until it is calm."""

    kinds: tuple[str, ...] = KINDS

    def __init__(
        self,
        world: World,
        supervisors: list[Supervisor],
        clients: list[Client],
        sockets: Sockets,
        plan: Plan,
    ) -> None:
        self.world = world
        self.dice = world.dice
        self.faults: dict[str, int] = {}
        self._supervisors = supervisors
        self._supervisor = supervisors[0]  # whom it strikes
        self._clients = clients
        self._sockets = sockets
        self._pace = world.between(0.1, 2.0)
        self._left = plan.faults
        # Half of the seeds have a weather of their own: few kinds, or few that they strike, meet more often.
        self._kinds = plan.kinds or self.kinds
        if world.chance(0.5):
            self._kinds = tuple(self.dice.sample(self._kinds, self.dice.randint(1, min(4, len(self._kinds)))))
        self._victims = supervisors
        if world.chance(0.5):
            self._victims = self.dice.sample(supervisors, self.dice.randint(1, len(supervisors)))

    def begin(self) -> None:
        self.world.after(self.world.between(0.0, self._pace), self._strike)

    def end(self) -> None:
        self._left = 0
        for supervisor in self._supervisors:
            disk, process = supervisor.machine.disk, supervisor.process
            disk.is_slow, disk.rot, disk.capacity = False, 0.0, ROOM
            if process is not None:
                process.loop.slowness = 1.0
                process.mount.calls_left = -1

    def _strike(self) -> None:
        if not self._left:
            return
        self._left -= 1
        self._supervisor = self.dice.choice(self._victims)
        strike: Callable[[], bool | None] = getattr(self, f"_{(kind := self.dice.choice(self._kinds))}")
        if strike() is not False:  # it could be done
            self.faults[kind] = self.faults.get(kind, 0) + 1
            self.struck(kind)
        self.world.note("fault", kind)
        self.begin()

    def struck(self, kind: str) -> None:
        """Whoever tells a story can tell of it."""

    def _kill(self) -> None:
        if self._supervisor.process is not None:
            self._supervisor.process.kill()

    def _kill_at_call(self) -> None:
        if self._supervisor.process is not None:
            self._supervisor.process.mount.calls_left = self.dice.randint(0, 60)

    def _power(self) -> None:
        self._supervisor.power_off(self.world.between(0.05, 2.0))

    def _power_at_call(self) -> None:
        process = self._supervisor.process
        if process is not None:
            process.mount.calls_left = self.dice.randint(0, 60)
            supervisor, seconds = self._supervisor, self.world.between(0.05, 2.0)
            process.mount.kill = lambda: supervisor.power_off(seconds)

    def _blackout(self) -> None:
        """All at once, and they come back one by one."""
        for supervisor in self._supervisors:
            supervisor.power_off(self.world.between(0.05, 0.5))

    def _break(self) -> None:
        self.world.note("broke", self._sockets.break_one())

    def _client(self) -> None:
        self.dice.choice(self._clients).kill()

    def _stop(self) -> None:
        self._supervisor.stop()

    def _pause(self) -> None:
        process = self._supervisor.process
        if process is not None and process.is_alive:
            process.loop.stop()
            self.world.after(self.world.between(0.01, 5.0), process.loop.resume)

    def _slow(self) -> None:
        process = self._supervisor.process
        if process is not None:
            process.loop.slowness = self.dice.choice((1.0, 5.0, 50.0))

    def _slow_disk(self) -> None:
        disk = self._supervisor.machine.disk
        disk.is_slow = not disk.is_slow

    def _full_disk(self) -> None:
        disk = self._supervisor.machine.disk
        disk.capacity = disk.used + self.dice.choice((0, 10_000, 300_000))

        def free() -> None:
            disk.capacity = ROOM

        self.world.after(self.world.between(0.1, 2.0), free)

    def _rot(self) -> None:
        disk = self._supervisor.machine.disk
        disk.rot = 0.3
        if self.world.chance(0.5):
            self._kill()  # much is read at a start

        def heal() -> None:
            disk.rot = 0.0

        self.world.after(self.world.between(0.1, 1.0), heal)

    def _skew(self) -> None:
        self._supervisor.machine.skew += self.world.between(-30.0, 30.0)
