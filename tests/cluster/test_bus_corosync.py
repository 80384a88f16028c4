"""The Corosync bus passes what every bus must, on a real corosync: a ring of one host, several processes."""

from collections.abc import Callable, Iterator

import pytest

from heliograph.cli.dev_hosts import Host
from heliograph.model.limits import BUS_HIGH_WATER_BYTES, BUS_QUEUE_BYTES, KIB
from tests.cluster.hosts import MemberProcess, one_host, require_corosync, until
from tests.suites.bus_behaviour import BusBehaviour, Party
from tests.suites.bus_diary import Event

pytestmark = pytest.mark.root
FLOOD_BYTES = 64 * KIB


class ProcessParty:
    """A member in a process of its own."""

    def __init__(self, process: MemberProcess) -> None:
        self.process = process
        self.who = process.who

    @property
    def place(self) -> tuple[int, int]:
        return self.process.place

    def say(self, count: int, size: int) -> None:
        self.process.ask("say", count=count, size=size)

    def say_and_leave(self, count: int, size: int) -> None:
        self.process.ask("say_and_leave", count=count, size=size)

    def say_much(self) -> int:
        count = 3 * BUS_HIGH_WATER_BYTES // FLOOD_BYTES
        self.process.ask("say_when_heard", count=count, size=FLOOD_BYTES)
        return count

    def flood(self) -> None:
        self.process.ask("flood", count=BUS_QUEUE_BYTES // FLOOD_BYTES + 100, size=FLOOD_BYTES)

    def said_and_refused(self) -> tuple[int, int]:
        self.process.hear()
        return self.process.said, self.process.refused

    def utter(self, raw: bytes) -> None:
        until(lambda: bool(self.process.ask("utter", raw=raw.hex())["sent"]), "the bus takes the garbage")

    def diary(self) -> list[Event]:
        return self.process.hear()

    def leave(self) -> None:
        self.process.ask("leave")

    def kill(self) -> None:
        self.process.kill()


class CorosyncWorld:
    carries_bytes = True

    def __init__(self, host: Host, channel: str) -> None:
        self._host = host
        self._channel = channel
        self.processes: list[MemberProcess] = []

    def party(self) -> Party:
        process = MemberProcess(self._host, self._channel, len(self.processes) + 1)
        self.processes.append(process)
        process.enter()
        return ProcessParty(process)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        until(condition, what)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    require_corosync()
    with one_host(tmp_path_factory.mktemp("ring")) as host:
        yield host


@pytest.fixture
def world(host: Host, request: pytest.FixtureRequest) -> Iterator[CorosyncWorld]:
    world = CorosyncWorld(host, request.node.name[:100])
    yield world
    for process in world.processes:
        process.kill()


class TestCorosyncBus(BusBehaviour):
    """All of it."""
