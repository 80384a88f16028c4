"""Channels inside one process, with the contract of a real bus: members, configurations, flow control.

A delivery is a function call and a command is passed as the object it is, but for blocks that are published: whoever
stores one notes in it where, so each member has its own. What happens while something is being delivered waits its
turn, members that come and go included, so that all see one order and nobody is entered twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from msgspec.structs import replace

from heliograph.bus.commands import Command, Published
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
from heliograph.model.limits import LOCAL_BUS_COMMANDS, LOCAL_BUS_HIGH_WATER, LOCAL_BUS_LOW_WATER

_RING = Ring(1, 1)  # one process never falls apart


class LocalChannels:
    """All channels of one process. `node`: of the places of members, if there are several such buses."""

    def __init__(self, node: int = 1) -> None:
        self._node = node
        self._channels: dict[str, LocalChannel] = {}
        self._entered = 0

    def enter(self, channel: str, listener: Listener) -> LocalMembership:
        self._entered += 1
        joined = self._channels.setdefault(channel, LocalChannel())
        membership = LocalMembership(joined, listener, self._entered, self._node)
        joined.enter(membership)
        return membership


class LocalChannel:
    """One order of events."""

    def __init__(self, ring: Ring = _RING) -> None:
        self.ring = ring
        self._members: list[LocalMembership] = []
        self._waiting: deque[Callable[[], None]] = deque()
        self._delivering = False
        self.may_send = True
        self._flow_told = True

    @property
    def has_room(self) -> bool:
        return len(self._waiting) < LOCAL_BUS_COMMANDS

    def put(self, event: Callable[[], None]) -> None:
        waiting = self._waiting
        waiting.append(event)
        if self._delivering:
            if len(waiting) > LOCAL_BUS_HIGH_WATER:
                self.may_send = False
            return
        self._delivering = True
        try:
            while waiting:
                waiting.popleft()()
                self._tell_flow()
        finally:
            self._delivering = False

    def _tell_flow(self) -> None:
        """Told between deliveries, so that nobody is called from inside their own call."""
        if not self.may_send and len(self._waiting) <= LOCAL_BUS_LOW_WATER:
            self.may_send = True
        if self.may_send is not self._flow_told:
            self._flow_told = self.may_send
            for member in tuple(self._members):
                member.listener.on_flow(self._flow_told)

    def admit(self, member: LocalMembership) -> None:
        """It comes from another channel, and hears of it in its own time."""
        self._members.append(member)

    def enter(self, member: LocalMembership) -> None:
        def entered() -> None:
            self._members.append(member)
            self._tell(joined=(Change(member.place, Reason.ENTERED),))

        self.put(entered)

    def leave(self, member: LocalMembership, reason: Reason) -> None:
        def left() -> None:
            self._members.remove(member)
            self._tell(left=(Change(member.place, reason),))
            member.ended()

        self.put(left)

    def multicast(self, origin: Origin, command: Command) -> None:
        def sent() -> None:
            for member in tuple(self._members):
                member.listener.on_frame(origin, [_own(command)])

        self.put(sent)

    def _tell(self, *, joined: tuple[Change, ...] = (), left: tuple[Change, ...] = ()) -> None:
        places = tuple(sorted(member.place for member in self._members))
        configuration = Configuration(self.ring, places, joined, left)
        for member in tuple(self._members):
            member.listener.on_configuration(configuration)


class LocalMembership:
    """A member's hold on a channel. Each has a process number of its own, as if it were one."""

    heard_bytes = 0

    def __init__(self, channel: LocalChannel, listener: Listener, number: int, node: int = 1) -> None:
        self.place = Place(node, number)
        self.incarnation = Incarnation((node << 64 | number).to_bytes(INCARNATION_BYTES, "big"))
        self.listener = listener
        self._channel = channel
        self._stamp = NO_VIEW
        self._sequence = 0
        self._is_over = False

    @property
    def may_send(self) -> bool:
        return not self._is_over and self._channel.may_send

    def multicast(self, command: Command) -> None:
        if self._is_over:
            raise Unavailable("this member has left the channel", code="bus-lost")
        if not self._channel.has_room:
            raise Unavailable(f"{LOCAL_BUS_COMMANDS} commands wait for the bus already", code="bus-full")
        self._sequence += 1
        self._channel.multicast(Origin(self.place, self.incarnation, self._sequence, self._stamp), command)

    def restamp(self, stamp: Stamp) -> None:
        self._stamp = stamp

    def leave(self, reason: Reason = Reason.LEFT) -> None:
        """Also for a node of this process that ended without a goodbye, with the reason for it."""
        if not self._is_over:
            self._is_over = True
            self._channel.leave(self, reason)

    @property
    def is_over(self) -> bool:
        return self._is_over

    def moves_to(self, channel: LocalChannel) -> None:
        self._channel = channel
        channel.admit(self)

    def ended(self) -> None:
        self.listener.on_ended(None)


def _own(command: Command) -> Command:
    """A member's own, as if it had come as bytes."""
    return replace(command, block=replace(command.block)) if isinstance(command, Published) else command
