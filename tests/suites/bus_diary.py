"""A member of a channel that writes down what it hears, in a form that can be compared between members and sent
through a pipe."""

from collections.abc import Callable
from typing import Any

from crc32c import crc32c

from heliograph.bus.commands import ChunkSent, Command
from heliograph.bus.interface import Configuration, Damage, Membership, Origin
from heliograph.model.errors import Unavailable
from heliograph.model.ids import SessionId

# ("said", who, number, size, checksum) · ("configuration", members, joined, left, ring) · ("ring", members, ring)
# ("frame", who, sequence) before what was said in it · ("hello", who, ring)
# ("flow", may send) · ("damage", code) · ("ended", code or "")
Event = tuple[Any, ...]

_SESSION = SessionId(bytes(16))
FLOOD_WHEN_HEARD = 1 << 40  # a number that a member answers with a flood
HELLO = 1 << 41  # a number that answers a configuration


def content(who: int, number: int, size: int) -> bytes:
    """Differs from any other by more than its length."""
    seed = (who * 1_000_003 + number).to_bytes(8, "little")
    return (seed * (size // 8 + 1))[:size]


class Diary:
    """The listener. `who` is the name it speaks under."""

    def __init__(self, who: int, *, greets: bool = False) -> None:
        self.who = who
        self._greets = greets  # says hello in every configuration, as nodes do
        self.events: list[Event] = []
        self.places: list[tuple[int, int]] = []
        self.membership: Membership | None = None
        self.enter_again: Callable[[], Membership] | None = None  # after a gap, as nodes do
        self.said = 0
        self.refused = 0
        self._to_say: tuple[int, int] | None = None
        self._flood = (0, 0)
        self._heeding = False
        self._inside = False

    # ---- speaking

    def say(self, count: int, size: int) -> None:
        """As fast as the bus allows, heeding it."""
        self._to_say = (self.said + count, size)
        self._go_on()

    def _go_on(self) -> None:
        assert self.membership is not None
        while self._to_say is not None and self.membership.may_send:
            until, size = self._to_say
            if self.said >= until:
                self._to_say = None
            else:
                self.multicast(size)

    def say_and_leave(self, count: int, size: int) -> None:
        """In one breath."""
        self.say(count, size)
        assert self.membership is not None
        self.membership.leave()

    def multicast(self, size: int) -> None:
        assert self.membership is not None
        data = content(self.who, self.said, size)
        self.membership.multicast(ChunkSent(_SESSION, self.who, self.said, data))
        self.said += 1

    def flood(self, count: int, size: int) -> None:
        """In answer to something heard, and heeding nothing."""
        self._ask_for_flood(count, size, heeding=False)

    def say_when_heard(self, count: int, size: int) -> None:
        """In answer to something heard, and heeding the bus."""
        self._ask_for_flood(count, size, heeding=True)

    def _ask_for_flood(self, count: int, size: int, *, heeding: bool) -> None:
        assert self.membership is not None
        self._flood, self._heeding = (count, size), heeding
        self.membership.multicast(ChunkSent(_SESSION, self.who, FLOOD_WHEN_HEARD, b""))

    # ---- hearing

    def on_frame(self, origin: Origin, commands: list[Command]) -> None:
        assert not self._inside, "entered twice"
        self._inside = True
        who = commands[0].transfer if isinstance(commands[0], ChunkSent) else 0
        self.events.append(("frame", who, origin.sequence))
        for command in commands:
            assert isinstance(command, ChunkSent)
            if command.offset == HELLO:
                self.events.append(("hello", command.transfer, bytes(command.data).decode()))
            elif command.offset == FLOOD_WHEN_HEARD:
                self._heard_flood(command)
            else:
                data = bytes(command.data)
                self.events.append(("said", command.transfer, command.offset, len(data), crc32c(data)))
        self._inside = False

    def _heard_flood(self, command: ChunkSent) -> None:
        if command.transfer != self.who:
            return
        count, size = self._flood
        if self._heeding:
            self.say(count, size)
            return
        for _ in range(count):
            try:
                self.multicast(size)
            except Unavailable as error:
                if error.code != "bus-full":
                    raise
                self.refused += 1

    def on_configuration(self, configuration: Configuration) -> None:
        members = [(place.node, place.process) for place in configuration.members]
        ring = (configuration.ring.node, configuration.ring.sequence)
        if configuration.joined or configuration.left:
            joined, left = (
                [(each.place.node, each.place.process, str(each.reason)) for each in changes]
                for changes in (configuration.joined, configuration.left)
            )
            self.events.append(("configuration", members, joined, left, ring))
        else:
            self.events.append(("ring", members, ring))
        if self._greets and self.membership is not None:
            greeting = f"{ring[0]}.{ring[1]}".encode()
            self.membership.multicast(ChunkSent(_SESSION, self.who, HELLO, greeting))

    def on_flow(self, may_send: bool) -> None:
        self.events.append(("flow", may_send))
        if may_send:
            self._go_on()

    def on_damage(self, damage: Damage) -> None:
        self.events.append(("damage", damage.code))

    def on_ended(self, error: Unavailable | None) -> None:
        self.events.append(("ended", error.code if error else ""))
        if error is not None and error.code == "bus-gap" and self.enter_again is not None:
            self.membership = self.enter_again()
