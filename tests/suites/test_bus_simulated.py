"""The simulated bus passes what every bus must: otherwise what is proved on it would be worth nothing."""

from collections.abc import Callable

import pytest

from heliograph.bus.corosync import CorosyncMembership
from heliograph.model.limits import BUS_HIGH_WATER_BYTES, BUS_QUEUE_BYTES, KIB
from simulation.bus import SimBus
from simulation.world import World
from tests.suites.bus_behaviour import BusBehaviour, Party
from tests.suites.bus_diary import Diary, Event

FLOOD_BYTES = 64 * KIB
PATIENCE = 60.0  # seconds of virtual time


class SimParty:
    """A member in a simulated process."""

    def __init__(self, world: World, bus: SimBus, who: int) -> None:
        self.who = who
        self._world = world
        self._diary = Diary(who)
        self._process = bus.process(1, who)
        self._membership: CorosyncMembership = self._process.enter("stories", self._diary)
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
        assert self._membership._handle.multicast(bytearray(raw))

    def diary(self) -> list[Event]:
        return [_frozen(event) for event in self._diary.events]

    def leave(self) -> None:
        self._membership.leave()

    def kill(self) -> None:
        self._process.kill()


def _frozen(event: Event) -> Event:
    """Lists as tuples, as they come through a pipe."""
    return tuple(tuple(part) if isinstance(part, list) else part for part in event)


class SimWorld:
    carries_bytes = True

    def __init__(self) -> None:
        self._world = World(1)
        self._bus = SimBus(self._world, 1)
        self._parties = 0

    def party(self) -> Party:
        self._parties += 1
        return SimParty(self._world, self._bus, self._parties)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        end = self._world.now + PATIENCE
        while not condition():
            assert self._world.now < end, what
            self._world.run(self._world.now + 0.01)


@pytest.fixture
def world() -> SimWorld:
    return SimWorld()


class TestSimBus(BusBehaviour):
    """All of it."""
