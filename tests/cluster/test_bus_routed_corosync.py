"""Each channel is on one of two real corosyncs, as where client managers are on all buses and sub-clusters on one:
whoever is on both and whoever is on one alone pass together what every bus must (M3)."""

from collections.abc import Iterator
from itertools import cycle

import pytest

from heliograph.cli.dev_hosts import Host
from tests.cluster.hosts import MemberProcess, one_host, require_corosync, until
from tests.cluster.test_bus_corosync import CorosyncWorld, ProcessParty
from tests.suites.bus_behaviour import BusBehaviour, Party, gather, heard_all

pytestmark = [pytest.mark.root, pytest.mark.req("M3")]
ON_ALL, ON_ONE = "on-all", "on-one"


class RoutedCorosyncWorld(CorosyncWorld):
    """Every other member is on both buses, as client managers are, the rest on that of their channel alone."""

    def __init__(self, home: Host, far: Host, channel: str) -> None:
        super().__init__(home, channel)
        self._far = far
        self._roles = cycle((ON_ALL, ON_ONE))

    def party(self) -> Party:
        return self.enter(self._host, self._channel, next(self._roles))

    def enter(self, host: Host, channel: str, role: str) -> ProcessParty:
        words = (role, f"/proc/{self._far.pid}/ns/net")
        process = MemberProcess(host, channel, len(self.processes) + 1, words=words)
        self.processes.append(process)
        process.enter()
        return ProcessParty(process)

    def end(self) -> None:
        for process in self.processes:
            process.kill()


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Host, Host]]:
    require_corosync()
    home, far = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("far")
    with one_host(home, own_memory=False) as first, one_host(far, own_memory=False) as second:
        yield first, second


@pytest.fixture
def world(hosts: tuple[Host, Host], request: pytest.FixtureRequest) -> Iterator[RoutedCorosyncWorld]:
    world = RoutedCorosyncWorld(*hosts, request.node.name[:100])
    yield world
    world.end()


class TestRoutedCorosyncBus(BusBehaviour):
    """All of it."""

    def test_a_channel_of_the_other_bus_is_reached_there_and_nowhere_else(
        self, hosts: tuple[Host, Host]
    ) -> None:
        home, far = hosts
        world = RoutedCorosyncWorld(home, far, "near")
        here = gather(world, 2)
        on_both = world.enter(home, "far", ON_ALL)
        on_far = world.enter(far, "far", "")  # its own corosync is the other one
        alone = world.enter(home, "far", "")  # on the wrong bus: a channel of that name is none of theirs
        until(lambda: len(_members(on_both)) == len(_members(on_far)) == 2, "they met on the other bus")
        on_both.say(100, 1000)
        here[0].say(100, 1000)
        heard_all(world, [on_both, on_far], 100)
        heard_all(world, here, 100)
        assert _members(alone) == (alone.place,)
        assert not [event for event in alone.diary() if event[0] == "said"]
        world.end()


def _members(party: ProcessParty) -> tuple[tuple[int, int], ...]:
    configurations = [event for event in party.diary() if event[0] == "configuration"]
    return configurations[-1][1] if configurations else ()
