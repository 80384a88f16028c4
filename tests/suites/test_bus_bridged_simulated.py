"""Several simulated buses are one: members on different rings pass what every bus must (M3)."""

from collections.abc import Callable
from itertools import cycle

import pytest

from heliograph.bus.bridged import BridgedBus, BridgedMembership
from heliograph.bus.corosync import CorosyncMembership
from simulation.bus import SimBus, SimProcess
from simulation.world import World
from tests.suites.bus_behaviour import BusBehaviour, Party
from tests.suites.bus_parties import DiaryParty
from tests.suites.test_bus_simulated import FLOOD, MUCH, pass_time_until

CENTRAL, HOME, NEAR, FAR = "central", "home", "near", "far"


class BridgedParty(DiaryParty):
    """A member in a simulated process, on all rings or on one."""

    def __init__(self, world: World, buses: dict[str, SimBus], role: str, who: int) -> None:
        self._world = world
        names = tuple(buses) if role == CENTRAL else (role,)
        self._processes: dict[str, SimProcess] = {name: buses[name].process(1, who) for name in names}
        bus = BridgedBus(self._processes, home_of=lambda _channel: HOME, is_central=role == CENTRAL)
        super().__init__(who, lambda diary: bus.enter("stories", diary), much=MUCH, flood=FLOOD)

    def say(self, count: int, size: int) -> None:
        super().say(count, size)
        self._world.run(self._world.now + 0.005)  # elsewhere too, time passes while somebody speaks

    def utter(self, raw: bytes) -> None:
        assert isinstance(self._membership, BridgedMembership)
        last = self._membership._legs[-1].membership
        assert isinstance(last, CorosyncMembership)
        assert last._handle.multicast(bytearray(raw))

    def kill(self) -> None:
        for process in self._processes.values():
            process.kill()


class BridgedSimWorld:
    def __init__(self, roles: tuple[str, ...]) -> None:
        self.carries_bytes = len(set(roles)) == 2  # those who hear the garbage are on one bus
        self._world = World(1)
        self._buses = {name: SimBus(self._world, 1) for name in (HOME, NEAR, FAR)}
        self._roles = cycle(roles)
        self._parties = 0

    def party(self) -> Party:
        self._parties += 1
        return BridgedParty(self._world, self._buses, next(self._roles), self._parties)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        pass_time_until(self._world, condition, what)


@pytest.fixture(
    params=[(CENTRAL, NEAR), (CENTRAL, NEAR, FAR), (CENTRAL, CENTRAL, NEAR), (CENTRAL, HOME, NEAR)],
    ids="-".join,
)
def world(request: pytest.FixtureRequest) -> BridgedSimWorld:
    return BridgedSimWorld(request.param)


class TestBridgedSimBus(BusBehaviour):
    """All of it."""
