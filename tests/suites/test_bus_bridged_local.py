"""Several buses are one: members on different in-memory buses pass what every bus must (M3)."""

from collections.abc import Callable
from itertools import cycle

import pytest

from heliograph.bus.bridged import BridgedBus, BridgedMembership
from heliograph.bus.interface import Reason
from heliograph.bus.local_channels import LocalChannels, LocalMembership
from heliograph.model.limits import BRIDGE_COMMANDS, BRIDGE_HIGH_WATER
from tests.suites.bus_behaviour import BusBehaviour, Party
from tests.suites.bus_diary import Diary, Event

CENTRAL, HOME, NEAR, FAR = "central", "home", "near", "far"


class BridgedParty:
    """A member in this process, on all buses or on one."""

    def __init__(self, bus: BridgedBus, who: int) -> None:
        self.who = who
        self._diary = Diary(who)
        self._membership: BridgedMembership = bus.enter("stories", self._diary)
        self._diary.membership = self._membership

    @property
    def place(self) -> tuple[int, int]:
        return self._membership.place.node, self._membership.place.process

    def say(self, count: int, size: int) -> None:
        self._diary.say(count, size)

    def say_and_leave(self, count: int, size: int) -> None:
        self._diary.say_and_leave(count, size)

    def say_much(self) -> int:
        self._diary.say_when_heard(3 * BRIDGE_HIGH_WATER, 1)
        return 3 * BRIDGE_HIGH_WATER

    def flood(self) -> None:
        self._diary.flood(BRIDGE_COMMANDS + 10, 1)

    def said_and_refused(self) -> tuple[int, int]:
        return self._diary.said, self._diary.refused

    def utter(self, raw: bytes) -> None:
        raise NotImplementedError

    def diary(self) -> list[Event]:
        return [_frozen(event) for event in self._diary.events]

    def leave(self) -> None:
        self._membership.leave()

    def kill(self) -> None:
        for leg in self._membership._legs:
            assert isinstance(leg.membership, LocalMembership)
            leg.membership.leave(Reason.DIED)


def _frozen(event: Event) -> Event:
    """Lists as tuples, as they come through a pipe."""
    return tuple(tuple(part) if isinstance(part, list) else part for part in event)


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
        """Nothing has to be waited for: a delivery is a function call."""
        assert condition(), what


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
