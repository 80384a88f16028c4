"""The in-memory bus passes what every bus must; so do several of them, each channel on one (M3)."""

from collections.abc import Callable

import pytest

from heliograph.bus.commands import Command, Published
from heliograph.bus.interface import ChannelBus, Origin, Reason
from heliograph.bus.local import LocalBus
from heliograph.bus.local_channels import LocalChannels, LocalMembership
from heliograph.bus.routed import RoutedBus
from heliograph.model.block import parse
from heliograph.model.destination import Address
from heliograph.model.limits import LOCAL_BUS_COMMANDS, LOCAL_BUS_HIGH_WATER
from tests.golden.specimens import BLOCKS
from tests.suites.bus_behaviour import BusBehaviour, Party
from tests.suites.bus_parties import DiaryParty, nothing_to_wait_for

CHANNEL = "stories"


class LocalParty(DiaryParty):
    """A member in this process."""

    def __init__(self, bus: ChannelBus, who: int) -> None:
        super().__init__(
            who,
            lambda diary: bus.enter(CHANNEL, diary),
            much=(3 * LOCAL_BUS_HIGH_WATER, 1),
            flood=(LOCAL_BUS_COMMANDS + 10, 1),
        )

    def kill(self) -> None:
        assert isinstance(self._membership, LocalMembership)
        self._membership.leave(Reason.DIED)


class LocalWorld:
    """`bus_for`: the bus as the n-th member sees it."""

    carries_bytes = False

    def __init__(self, bus_for: Callable[[int], ChannelBus]) -> None:
        self._bus_for = bus_for
        self._parties = 0

    def party(self) -> Party:
        self._parties += 1
        return LocalParty(self._bus_for(self._parties), self._parties)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        nothing_to_wait_for(condition, what)


class TestLocalBus(BusBehaviour):
    """All of it."""

    @pytest.fixture
    def world(self) -> LocalWorld:
        bus = LocalBus()
        return LocalWorld(lambda _who: bus)


def test_who_stores_a_block_notes_where_in_its_own() -> None:
    """Members of one process are as apart as those of several: where a block is in one journal says nothing about
    another."""
    channels, heard = LocalChannels(), [_Ears(), _Ears()]
    first, _ = [channels.enter(CHANNEL, ears) for ears in heard]
    first.multicast(Published(Address("queue:orders"), parse(BLOCKS["plain"])))
    blocks = [command.block for ears in heard for command in ears.heard if isinstance(command, Published)]
    assert len(blocks) == 2
    blocks[0].position = 4711
    assert blocks[1].position != 4711
    assert blocks[0].buffer is blocks[1].buffer


class _Ears:
    """A member that only listens."""

    def __init__(self) -> None:
        self.heard: list[Command] = []

    def on_frame(self, _origin: Origin, commands: list[Command]) -> None:
        self.heard += commands

    def on_configuration(self, configuration: object) -> None: ...

    def on_flow(self, may_send: bool) -> None: ...

    def on_damage(self, damage: object) -> None: ...

    def on_ended(self, error: object) -> None: ...


@pytest.mark.req("M3")
class TestRoutedBus(BusBehaviour):
    """Two buses. Every other member is on both, as client managers are, the rest on that of their channel alone, as
    message managers are; on the other bus a channel of the same name is none of theirs."""

    @pytest.fixture
    def world(self) -> LocalWorld:
        near, far = LocalChannels(1), LocalChannels(2)
        far.enter(CHANNEL, _Silence())
        on_all = RoutedBus({"near": near, "far": far}, {CHANNEL: "near"}.__getitem__)
        on_one = RoutedBus({"near": near}, {CHANNEL: "near"}.__getitem__)
        return LocalWorld(lambda who: on_all if who % 2 else on_one)


class _Silence:
    """A member of the other bus's channel: whoever speaks there took the wrong one."""

    def on_frame(self, *_heard: object) -> None:
        raise AssertionError("a frame went to the other bus")

    def on_configuration(self, configuration: object) -> None:
        assert len(configuration.members) == 1, configuration  # type: ignore[attr-defined]

    def on_flow(self, may_send: bool) -> None: ...

    def on_damage(self, damage: object) -> None: ...

    def on_ended(self, error: object) -> None: ...
