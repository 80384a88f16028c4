"""Several simulated buses are one: members on different rings pass what every bus must (M3)."""

from collections.abc import Callable
from itertools import cycle

import pytest

from heliograph.bus.bridged import BridgedBus, BridgedMembership
from heliograph.bus.corosync import CorosyncMembership
from heliograph.model.limits import BUS_HIGH_WATER_BYTES, BUS_QUEUE_BYTES
from simulation.bus import SimBus, SimProcess
from simulation.world import World
from tests.suites.bus_behaviour import BusBehaviour, Party
from tests.suites.bus_diary import Diary, Event
from tests.suites.test_bus_simulated import FLOOD_BYTES, PATIENCE

CENTRAL, HOME, NEAR, FAR = "central", "home", "near", "far"


class BridgedParty:
    """A member in a simulated process, on all rings or on one."""

    def __init__(self, world: World, buses: dict[str, SimBus], role: str, who: int) -> None:
        self.who = who
        self._world = world
        self._diary = Diary(who)
        names = tuple(buses) if role == CENTRAL else (role,)
        self._processes: dict[str, SimProcess] = {name: buses[name].process(1, who) for name in names}
        bus = BridgedBus(self._processes, home_of=lambda _channel: HOME, is_central=role == CENTRAL)
        self._membership: BridgedMembership = bus.enter("stories", self._diary)
        self._diary.membership = self._membership

    @property
    def place(self) -> tuple[int, int]:
        return self._membership.place.node, self._membership.place.process

    def say(self, count: int, size: int) -> None:
        self._diary.say(count, size)
        self._world.run(self._world.now + 0.005)  # elsewhere too, time passes while somebody speaks

    def say_and_leave(self, count: int, size: int) -> None:
        self._diary.say_and_leave(count, size)

    def say_much(self) -> int:
        count = 3 * BUS_HIGH_WATER_BYTES // FLOOD_BYTES
        self._diary.say_when_heard(count, FLOOD_BYTES)
        return count

    def flood(self) -> None:
        self._diary.flood(BUS_QUEUE_BYTES // FLOOD_BYTES + 100, FLOOD_BYTES)

    def said_and_refused(self) -> tuple[int, int]:
        return self._diary.said, self._diary.refused

    def utter(self, raw: bytes) -> None:
        last = self._membership._legs[-1].membership
        assert isinstance(last, CorosyncMembership)
        assert last._handle.multicast(bytearray(raw))

    def diary(self) -> list[Event]:
        return [_frozen(event) for event in self._diary.events]

    def leave(self) -> None:
        self._membership.leave()

    def kill(self) -> None:
        for process in self._processes.values():
            process.kill()


def _frozen(event: Event) -> Event:
    """Lists as tuples, as they come through a pipe."""
    return tuple(tuple(part) if isinstance(part, list) else part for part in event)


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
        end = self._world.now + PATIENCE
        while not condition():
            assert self._world.now < end, what
            self._world.run(self._world.now + 0.01)


@pytest.fixture(
    params=[(CENTRAL, NEAR), (CENTRAL, NEAR, FAR), (CENTRAL, CENTRAL, NEAR), (CENTRAL, HOME, NEAR)],
    ids="-".join,
)
def world(request: pytest.FixtureRequest) -> BridgedSimWorld:
    return BridgedSimWorld(request.param)


class TestBridgedSimBus(BusBehaviour):
    """All of it."""
