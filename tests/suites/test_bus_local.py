"""The in-memory bus passes what every bus must."""

from collections.abc import Callable

import pytest

from heliograph.bus.interface import Reason
from heliograph.bus.local import LocalBus
from heliograph.bus.local_channels import LocalMembership
from heliograph.model.limits import LOCAL_BUS_COMMANDS, LOCAL_BUS_HIGH_WATER
from tests.suites.bus_behaviour import BusBehaviour, Party
from tests.suites.bus_diary import Diary, Event


class LocalParty:
    """A member in this process."""

    def __init__(self, bus: LocalBus, who: int) -> None:
        self.who = who
        self._diary = Diary(who)
        self._membership: LocalMembership = bus.enter("stories", self._diary)
        self._diary.membership = self._membership

    @property
    def place(self) -> tuple[int, int]:
        return self._membership.place.node, self._membership.place.process

    def say(self, count: int, size: int) -> None:
        self._diary.say(count, size)

    def say_and_leave(self, count: int, size: int) -> None:
        self._diary.say_and_leave(count, size)

    def say_much(self) -> int:
        self._diary.say_when_heard(3 * LOCAL_BUS_HIGH_WATER, 1)
        return 3 * LOCAL_BUS_HIGH_WATER

    def flood(self) -> None:
        self._diary.flood(LOCAL_BUS_COMMANDS + 10, 1)

    def said_and_refused(self) -> tuple[int, int]:
        return self._diary.said, self._diary.refused

    def utter(self, raw: bytes) -> None:
        raise NotImplementedError

    def diary(self) -> list[Event]:
        return [_frozen(event) for event in self._diary.events]

    def leave(self) -> None:
        self._membership.leave()

    def kill(self) -> None:
        self._membership.leave(Reason.DIED)


def _frozen(event: Event) -> Event:
    """Lists as tuples, as they come through a pipe."""
    return tuple(tuple(part) if isinstance(part, list) else part for part in event)


class LocalWorld:
    carries_bytes = False

    def __init__(self) -> None:
        self._bus = LocalBus()
        self._parties = 0

    def party(self) -> Party:
        self._parties += 1
        return LocalParty(self._bus, self._parties)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Nothing has to be waited for: a delivery is a function call."""
        assert condition(), what


@pytest.fixture
def world() -> LocalWorld:
    return LocalWorld()


class TestLocalBus(BusBehaviour):
    """All of it."""
