"""Several buses are one: members on different in-memory buses pass what every bus must (M3)."""

from collections.abc import Callable
from itertools import cycle

import pytest

from heliograph.bus.bridged import BridgedBus, BridgedMembership
from heliograph.bus.interface import Reason
from heliograph.bus.local_channels import LocalChannels, LocalMembership
from heliograph.model.limits import BRIDGE_COMMANDS, BRIDGE_HIGH_WATER
from tests.suites.bus_behaviour import BusBehaviour, Party
from tests.suites.bus_parties import DiaryParty, nothing_to_wait_for

CENTRAL, HOME, NEAR, FAR = "central", "home", "near", "far"


class BridgedParty(DiaryParty):
    """A member in this process, on all buses or on one."""

    def __init__(self, bus: BridgedBus, who: int) -> None:
        super().__init__(
            who,
            lambda diary: bus.enter("stories", diary),
            much=(3 * BRIDGE_HIGH_WATER, 1),
            flood=(BRIDGE_COMMANDS + 10, 1),
        )

    def kill(self) -> None:
        assert isinstance(self._membership, BridgedMembership)
        for leg in self._membership._legs:
            assert isinstance(leg.membership, LocalMembership)
            leg.membership.leave(Reason.DIED)


class BridgedWorld:
    """Three buses; `roles` of those who come, one after the other. The first is central: without that there is no
    channel."""

    carries_bytes = False

    def __init__(self, roles: tuple[str, ...]) -> None:
        self._buses = {name: LocalChannels(node) for node, name in enumerate((HOME, NEAR, FAR), 1)}
        self._roles = cycle(roles)
        self._parties = 0

    def _bus(self, role: str) -> BridgedBus:
        is_central = role == CENTRAL
        buses = self._buses if is_central else {role: self._buses[role]}
        return BridgedBus(buses, home_of=lambda channel: HOME, is_central=is_central)

    def party(self) -> Party:
        self._parties += 1
        return BridgedParty(self._bus(next(self._roles)), self._parties)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        nothing_to_wait_for(condition, what)


@pytest.fixture(
    params=[
        (CENTRAL, NEAR),
        (CENTRAL, NEAR, FAR),
        (CENTRAL, CENTRAL, NEAR),
        (CENTRAL, HOME, NEAR),
    ],
    ids="-".join,
)
def world(request: pytest.FixtureRequest) -> BridgedWorld:
    return BridgedWorld(request.param)


class TestBridgedBus(BusBehaviour):
    """All of it."""
