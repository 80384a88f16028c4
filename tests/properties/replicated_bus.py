"""A bus for tests of replication: frames have one order, and everybody is at another place in it.

What a member says waits with it until it gets its place in the order; what is in the order reaches each member in its
own time. A member that dies takes with it what had no place yet. Commands travel as the bytes they are on a real bus.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random

from heliograph.bus import wire
from heliograph.bus.commands import Command
from heliograph.bus.interface import (
    INCARNATION_BYTES,
    NO_VIEW,
    Change,
    Configuration,
    Incarnation,
    Listener,
    Origin,
    Place,
    Reason,
    Ring,
    Stamp,
)
from heliograph.model.errors import Unavailable


class SlowBus:
    """One channel, whatever its name."""

    def __init__(self, dice: Random) -> None:
        self._dice = dice
        self.members: list[SlowMember] = []
        self._entered = 0
        self.ordered = 0

    def enter(self, _channel: str, listener: Listener) -> SlowMember:
        self._entered += 1
        member = SlowMember(self, listener, self._entered)
        self.members.append(member)
        self._configure(joined=(Change(member.place, Reason.ENTERED),))
        return member

    def remove(self, member: SlowMember, reason: Reason) -> None:
        self.members.remove(member)
        self._configure(left=(Change(member.place, reason),))

    def _configure(self, *, joined: tuple[Change, ...] = (), left: tuple[Change, ...] = ()) -> None:
        places = tuple(sorted(member.place for member in self.members))
        configuration = Configuration(Ring(1, self._entered), places, joined, left)
        for member in self.members:
            member.inbox.append(lambda to=member: to.listener.on_configuration(configuration))  # type: ignore[misc]

    def order(self, member: SlowMember) -> None:
        """The oldest frame of a member gets its place."""
        origin, frame = member.outbox.popleft()
        self.ordered += 1
        for each in self.members:
            each.inbox.append(lambda to=each: to.hear(origin, frame))  # type: ignore[misc]

    def step(self) -> bool:
        """Something happens somewhere. Whether there was anything left to happen."""
        able: list[Callable[[], None]] = []
        for member in self.members:
            if member.outbox and not member.is_mute:
                able.append(lambda of=member: self.order(of))  # type: ignore[misc]
            if member.inbox and not member.is_frozen:
                able.append(member.hear_next)
        if able:
            self._dice.choice(able)()
        return bool(able)


class SlowMember:
    """A member's hold on the channel."""

    heard_bytes = 0

    def __init__(self, bus: SlowBus, listener: Listener, number: int) -> None:
        self.place = Place(1, number)
        self.incarnation = Incarnation(number.to_bytes(INCARNATION_BYTES, "big"))
        self.listener = listener
        self.outbox: deque[tuple[Origin, bytes]] = deque()
        self.inbox: deque[Callable[[], None]] = deque()
        self.is_frozen = False
        self.is_mute = False
        self._bus = bus
        self._stamp = NO_VIEW
        self._sequence = 0
        self._is_over = False

    @property
    def may_send(self) -> bool:
        return not self._is_over

    def multicast(self, command: Command) -> None:
        if self._is_over:
            raise Unavailable("this member has left the channel", code="bus-lost")
        self._sequence += 1
        parts: list[bytes | memoryview] = []
        wire.append(command, parts)  # type: ignore[arg-type]
        origin = Origin(self.place, self.incarnation, self._sequence, self._stamp)
        self.outbox.append((origin, b"".join(parts)))

    def restamp(self, stamp: Stamp) -> None:
        self._stamp = stamp

    def leave(self) -> None:
        if not self._is_over:
            self._is_over = True
            while self.outbox:
                self._bus.order(self)
            self._bus.remove(self, Reason.LEFT)
            self.listener.on_ended(None)

    def die(self, said: int) -> None:
        """`said`: so many of its frames still get their place."""
        if self._is_over:
            return
        self._is_over = True
        for _ in range(min(said, len(self.outbox))):
            self._bus.order(self)
        self.outbox.clear()
        self.inbox.clear()
        self._bus.remove(self, Reason.DIED)

    def hear_next(self) -> None:
        self.inbox.popleft()()

    def hear(self, origin: Origin, frame: bytes) -> None:
        self.listener.on_frame(origin, wire.read(frame))
