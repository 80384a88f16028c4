"""The simulated bus passes what every bus must: otherwise what is proved on it would be worth nothing. So do several,
each channel on one (M3)."""

from collections.abc import Callable

import pytest

from heliograph.bus import wire
from heliograph.bus.corosync import CorosyncMembership
from heliograph.bus.frames import FrameWriter
from heliograph.bus.interface import Incarnation
from heliograph.bus.routed import RoutedBus
from heliograph.model.limits import BUS_HIGH_WATER_BYTES, BUS_QUEUE_BYTES, KIB
from simulation.bus import SimBus, SimProcess
from simulation.world import World
from tests.suites.bus_behaviour import BusBehaviour, Party, gather, heard_all
from tests.suites.bus_diary import Diary
from tests.suites.bus_parties import DiaryParty

CHANNEL = "stories"
FLOOD_BYTES = 64 * KIB
MUCH = (3 * BUS_HIGH_WATER_BYTES // FLOOD_BYTES, FLOOD_BYTES)
FLOOD = (BUS_QUEUE_BYTES // FLOOD_BYTES + 100, FLOOD_BYTES)
PATIENCE = 60.0  # seconds of virtual time


def pass_time_until(world: World, condition: Callable[[], bool], what: str) -> None:
    end = world.now + PATIENCE
    while not condition():
        assert world.now < end, what
        world.run(world.now + 0.01)


class SimParty(DiaryParty):
    """A member in a process that is simulated on each of these rings; its channel is on the first."""

    def __init__(self, world: World, rings: tuple[SimBus, ...], who: int) -> None:
        self._world = world
        self._processes = [ring.process(1, who) for ring in rings]
        super().__init__(who, self._enter, much=MUCH, flood=FLOOD)

    def _enter(self, diary: Diary) -> CorosyncMembership:
        return self._processes[0].enter(CHANNEL, diary)

    def say(self, count: int, size: int) -> None:
        super().say(count, size)
        self._world.run(self._world.now + 0.005)  # elsewhere too, time passes while somebody speaks

    def utter(self, raw: bytes) -> None:
        assert isinstance(self._membership, CorosyncMembership)
        assert self._membership._handle.multicast(bytearray(raw))

    def kill(self) -> None:
        for process in self._processes:
            process.kill()


class RoutedSimParty(SimParty):
    """The same, through the bus that knows which ring is its channel's."""

    def _enter(self, diary: Diary) -> CorosyncMembership:
        by_name: dict[str, SimProcess] = dict(zip(("near", "far"), self._processes, strict=False))
        membership = RoutedBus(by_name, {CHANNEL: "near"}.__getitem__).enter(CHANNEL, diary)
        assert isinstance(membership, CorosyncMembership)
        return membership


class SimWorld:
    carries_bytes = True

    def __init__(self) -> None:
        self._world = World(1)
        self._ring = SimBus(self._world, 1)
        self._parties = 0

    def party(self) -> Party:
        self._parties += 1
        return SimParty(self._world, (self._ring,), self._parties)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        pass_time_until(self._world, condition, what)


class RoutedSimWorld(SimWorld):
    """Every other member is on two rings, as client managers are, the rest on that of their channel."""

    def __init__(self) -> None:
        super().__init__()
        self._far = SimBus(self._world, 1)

    def party(self) -> Party:
        self._parties += 1
        rings = (self._ring, self._far) if self._parties % 2 else (self._ring,)
        return RoutedSimParty(self._world, rings, self._parties)


class TestSimBus(BusBehaviour):
    """All of it."""

    @pytest.fixture
    def world(self) -> SimWorld:
        return SimWorld()

    @pytest.mark.req("M9")
    def test_what_a_member_says_and_nobody_knows_ends_it_for_those_who_heard_it(
        self, world: SimWorld
    ) -> None:
        """It may have been for them, and so may the rest of its frame."""
        parties = gather(world, 3)
        parties[0].say(5, 10)
        heard_all(world, parties, 5)
        unknown = wire.ENTRY.pack(60_000, 0, 0, 0)
        writer = FrameWriter(Incarnation(b"later version..."))
        parties[2].utter(bytes(writer._piece(3, [unknown])))
        for party in parties:
            world.until(lambda party=party: party.diary()[-1][0] == "ended", "it is over")  # type: ignore[misc]
            assert party.diary()[-2:] == [("damage", wire.UNKNOWN), ("ended", wire.UNKNOWN)]


@pytest.mark.req("M3")
class TestRoutedSimBus(BusBehaviour):
    """All of it."""

    @pytest.fixture
    def world(self) -> RoutedSimWorld:
        return RoutedSimWorld()
