"""The slow bus of `replicated_bus.py`, which can be cut into parts and healed.

Each part has its own order and its own configuration. What was ordered before a cut and not delivered yet reaches
those who stayed with its sender; what had no place yet gets one in the part of its sender.
"""

from __future__ import annotations

from random import Random

from heliograph.bus.interface import Change, Configuration, Listener, Reason, Ring
from tests.properties.replicated_bus import SlowBus, SlowMember


class PartedBus(SlowBus):
    """One channel, in one part or several."""

    def __init__(self, dice: Random) -> None:
        super().__init__(dice)
        self._parts: dict[SlowMember, int] = {}
        self._rings = 0

    def enter(self, channel: str, listener: Listener, part: int = 0) -> SlowMember:
        self._entered += 1
        member = SlowMember(self, listener, self._entered)
        self._parts[member] = part
        self.members.append(member)
        self._tell(part, joined=(Change(member.place, Reason.ENTERED),))
        return member

    def within(self, part: int) -> PartedChannel:
        """The bus, for whoever enters in a part."""
        return PartedChannel(self, part)

    def remove(self, member: SlowMember, reason: Reason) -> None:
        self.members.remove(member)
        self._tell(self._parts.pop(member), left=(Change(member.place, reason),))

    def part_of(self, member: SlowMember) -> int:
        return self._parts[member]

    def rearrange(self, parts: dict[SlowMember, int]) -> None:
        """From here on those hear each other who have the same number."""
        before, self._parts = self._parts, parts
        for part in sorted(set(parts.values())):
            here = [member for member in self.members if parts[member] == part]
            known = [[other for other in self.members if before[other] == before[me]] for me in here]
            configurations = [
                self._configuration(
                    part,
                    tuple(Change(each.place, Reason.HOST_FOUND) for each in here if each not in known[index]),
                    tuple(Change(each.place, Reason.HOST_LOST) for each in known[index] if each not in here),
                )
                for index in range(len(here))
            ]
            for member, configuration in zip(here, configurations, strict=True):
                self._put(member, configuration)

    def _tell(self, part: int, *, joined: tuple[Change, ...] = (), left: tuple[Change, ...] = ()) -> None:
        configuration = self._configuration(part, joined, left)
        for member in self.members:
            if self._parts[member] == part:
                self._put(member, configuration)

    def _put(self, member: SlowMember, configuration: Configuration) -> None:
        member.inbox.append(lambda: member.listener.on_configuration(configuration))

    def _configuration(
        self, part: int, joined: tuple[Change, ...], left: tuple[Change, ...]
    ) -> Configuration:
        places = tuple(sorted(each.place for each in self.members if self._parts[each] == part))
        return Configuration(Ring(1, self._rings * 16 + part), places, joined, left)

    def new_ring(self) -> None:
        self._rings += 1

    def order(self, member: SlowMember) -> None:
        origin, frame = member.outbox.popleft()
        self.ordered += 1
        for each in self.members:
            if self._parts[each] == self._parts[member]:
                each.inbox.append(lambda to=each: to.hear(origin, frame))  # type: ignore[misc]


class PartedChannel:
    """A way into one part."""

    def __init__(self, bus: PartedBus, part: int) -> None:
        self._bus = bus
        self.part = part

    def enter(self, channel: str, listener: Listener) -> SlowMember:
        return self._bus.enter(channel, listener, self.part)
