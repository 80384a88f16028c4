"""The bus inside one process: a delivery is a function call, a command is passed as the object it is.

A command that is multicast while another is being delivered waits its turn, so that all members see one
order and no member is entered twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from heliograph.bus.commands import Command
from heliograph.bus.interface import Listener, Receiver
from heliograph.bus.local_channels import LocalChannels, LocalMembership


class LocalBus:
    """Joins the nodes of one process."""

    def __init__(self) -> None:
        self._members: list[tuple[Receiver, Collection[type[Command]] | None]] = []
        self._receivers: dict[type[Command], tuple[Receiver, ...]] = {}  # found once for each kind
        self._waiting: deque[Command] = deque()
        self._delivering = False
        self._channels = LocalChannels()

    def enter(self, channel: str, listener: Listener) -> LocalMembership:
        """A member of a channel, as on a bus between hosts; apart from the nodes that join as they are."""
        return self._channels.enter(channel, listener)

    def join(self, receiver: Receiver, kinds: Collection[type[Command]] | None = None) -> None:
        self._members.append((receiver, kinds))
        self._receivers.clear()

    def _receivers_of(self, kind: type[Command]) -> tuple[Receiver, ...]:
        found = tuple(receive for receive, kinds in self._members if kinds is None or kind in kinds)
        self._receivers[kind] = found
        return found

    def multicast(self, command: Command) -> None:
        waiting = self._waiting
        if self._delivering:
            waiting.append(command)
            return
        self._delivering = True
        try:
            while True:
                kind = type(command)
                for receive in self._receivers.get(kind) or self._receivers_of(kind):
                    receive(command)
                if not waiting:
                    break
                command = waiting.popleft()
        finally:
            self._delivering = False
