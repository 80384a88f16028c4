"""Between a process and the bus: somebody who writes down what passes, both ways, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from heliograph.bus.commands import Command
from heliograph.bus.corosync import CorosyncMembership
from heliograph.bus.interface import Configuration, Damage, Incarnation, Listener, Origin, Place, Stamp
from simulation.bus import SimProcess


class Listening(Protocol):
    """Whoever writes it down."""

    def entered(self, who: Incarnation, place: Place) -> None: ...

    def heard(self, origin: Origin, commands: list[Command]) -> None:
        """A frame is delivered to it now."""

    def configured(self, configuration: Configuration) -> None: ...

    def says(self, command: Command) -> None:
        """It has multicast this."""

    def restamped(self, stamp: Stamp) -> None:
        """From now on it speaks in this view."""


class Overheard:
    """The bus of a process. `listen` says who listens in a channel that it enters."""

    def __init__(self, process: SimProcess, listen: Callable[[str], Listening]) -> None:
        self._process = process
        self._listen = listen

    def enter(self, channel: str, listener: Listener) -> OverheardMembership:
        listening = self._listen(channel)
        membership = self._process.enter(channel, OverheardListener(listener, listening))
        listening.entered(membership.incarnation, membership.place)
        return OverheardMembership(membership, listening)


class OverheardListener:
    """What the bus says."""

    def __init__(self, listener: Listener, listening: Listening) -> None:
        self._listener = listener
        self._listening = listening
        self.on_flow = listener.on_flow
        self.on_ended = listener.on_ended

    def on_frame(self, origin: Origin, commands: list[Command]) -> None:
        self._listening.heard(origin, commands)
        self._listener.on_frame(origin, commands)

    def on_configuration(self, configuration: Configuration) -> None:
        self._listening.configured(configuration)
        self._listener.on_configuration(configuration)

    def on_damage(self, damage: Damage) -> None:
        raise AssertionError(damage)


class OverheardMembership:
    """What is said to the bus."""

    def __init__(self, membership: CorosyncMembership, listening: Listening) -> None:
        self.place = membership.place
        self.incarnation = membership.incarnation
        self.leave = membership.leave
        self._membership = membership
        self._listening = listening

    @property
    def may_send(self) -> bool:
        return self._membership.may_send

    @property
    def heard_bytes(self) -> int:
        return self._membership.heard_bytes

    def restamp(self, stamp: Stamp) -> None:
        self._listening.restamped(stamp)
        self._membership.restamp(stamp)

    def multicast(self, command: Command) -> None:
        self._membership.multicast(command)
        self._listening.says(command)
