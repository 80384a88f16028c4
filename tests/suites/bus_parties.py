"""Members of a bus in this process, for the stories of `bus_behaviour.py`: who they are differs from bus to bus, what
they do does not."""

from collections.abc import Callable

from heliograph.bus.interface import Membership
from tests.suites.bus_diary import Diary, Event


def nothing_to_wait_for(condition: Callable[[], bool], what: str) -> None:
    """Where a delivery is a function call."""
    assert condition(), what


class DiaryParty:
    """A member that writes down what it hears. `much` and `flood`: how many frames of which size are more than the
    bus likes, and more than it takes."""

    def __init__(
        self, who: int, enter: Callable[[Diary], Membership], *, much: tuple[int, int], flood: tuple[int, int]
    ) -> None:
        self.who = who
        self._much = much
        self._flood = flood
        self._diary = Diary(who)
        self._membership = enter(self._diary)
        self._diary.membership = self._membership

    @property
    def place(self) -> tuple[int, int]:
        return self._membership.place.node, self._membership.place.process

    def say(self, count: int, size: int) -> None:
        self._diary.say(count, size)

    def say_and_leave(self, count: int, size: int) -> None:
        self._diary.say_and_leave(count, size)

    def say_much(self) -> int:
        self._diary.say_when_heard(*self._much)
        return self._much[0]

    def flood(self) -> None:
        self._diary.flood(*self._flood)

    def said_and_refused(self) -> tuple[int, int]:
        return self._diary.said, self._diary.refused

    def diary(self) -> list[Event]:
        return [_frozen(event) for event in self._diary.events]

    def leave(self) -> None:
        self._membership.leave()

    def utter(self, raw: bytes) -> None:
        raise NotImplementedError("this bus carries no bytes")

    def kill(self) -> None:
        raise NotImplementedError


def _frozen(event: Event) -> Event:
    """Lists as tuples, as they come through a pipe."""
    return tuple(tuple(part) if isinstance(part, list) else part for part in event)
