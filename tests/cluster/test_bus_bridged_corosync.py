"""Two real corosyncs are one bus: members on either pass what every bus must (M3)."""

from collections.abc import Callable, Iterator
from itertools import cycle

import pytest

from heliograph.cli.dev_hosts import Host
from tests.cluster.hosts import MemberProcess, one_host, require_corosync, until
from tests.cluster.test_bus_corosync import ProcessParty
from tests.suites.bus_behaviour import BusBehaviour, Party, gather, heard_all, said

pytestmark = [pytest.mark.root, pytest.mark.req("M3")]
CENTRAL, HOME, NEAR = "central", "home", "near"


class BridgedCorosyncWorld:
    """The home bus on one host, the other on another. Central members are on the first, and reach the second too."""

    def __init__(self, hosts: dict[str, Host], channel: str, roles: tuple[str, ...]) -> None:
        self.carries_bytes = HOME not in roles  # those who hear the garbage are on one bus
        self._hosts = hosts
        self._channel = channel
        self._roles = cycle(roles)
        self.processes: list[MemberProcess] = []

    def party(self) -> Party:
        role = next(self._roles)
        host = self._hosts[NEAR if role == NEAR else HOME]
        namespace = f"/proc/{self._hosts[NEAR].pid}/ns/net"
        number = len(self.processes) + 1
        process = MemberProcess(host, self._channel, number, words=(role, namespace))
        self.processes.append(process)
        process.enter()
        return ProcessParty(process)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        until(condition, what)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Host]]:
    require_corosync()
    home, near = tmp_path_factory.mktemp(HOME), tmp_path_factory.mktemp(NEAR)
    with one_host(home, own_memory=False) as first, one_host(near, own_memory=False) as second:
        yield {HOME: first, NEAR: second}


@pytest.fixture(
    params=[
        pytest.param((CENTRAL, NEAR), id="two"),
        pytest.param((CENTRAL, CENTRAL, NEAR, HOME), id="four", marks=pytest.mark.nightly),
    ]
)
def world(hosts: dict[str, Host], request: pytest.FixtureRequest) -> Iterator[BridgedCorosyncWorld]:
    world = BridgedCorosyncWorld(hosts, request.node.name[:100], request.param)
    yield world
    for process in world.processes:
        process.kill()


class TestBridgedCorosyncBus(BusBehaviour):
    """All of it."""

    def test_a_relay_that_is_killed_is_replaced(self, hosts: dict[str, Host]) -> None:
        world = BridgedCorosyncWorld(hosts, "relay-killed", (CENTRAL, CENTRAL, NEAR))
        relay, other, outer = gather(world, 3)
        for party in (other, outer):
            party.say(500, 1000)
        relay.kill()
        outer.say(500, 1000)
        for party in (other, outer):
            heard_all(world, [party], 1500)
        assert said(other.diary()) == said(outer.diary())
        assert not [event for event in outer.diary() if event[0] == "ended"]
        for process in world.processes:
            process.kill()
