"""The bus inside one process: a delivery is a function call, a command is passed as the object it is.

A command that is multicast while another is being delivered waits its turn, so that all members see one
order and no member is entered twice.
"""

from __future__ import annotations

from collections import deque

from heliograph.bus.commands import Command
from heliograph.bus.interface import Listener, Receiver
from heliograph.bus.local_channels import LocalChannels, LocalMembership


class LocalBus:
    """Joins the nodes of one process."""

    def __init__(self) -> None:
        self._receivers: tuple[Receiver, ...] = ()
        self._waiting: deque[Command] = deque()
        self._delivering = False
        self._channels = LocalChannels()

    def enter(self, channel: str, listener: Listener) -> LocalMembership:
        """A member of a channel, as on a bus between hosts; apart from the nodes that join as they are."""
        return self._channels.enter(channel, listener)

    def join(self, receiver: Receiver) -> None:
        self._receivers += (receiver,)

    def multicast(self, command: Command) -> None:
        waiting = self._waiting
        waiting.append(command)
        if self._delivering:
            return
        self._delivering = True
        try:
            while waiting:
                command = waiting.popleft()
                for receive in self._receivers:
                    receive(command)
        finally:
            self._delivering = False
