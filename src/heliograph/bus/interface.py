"""The contract of every bus: totally ordered, atomic, self-delivering multicast among nodes (M2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from heliograph.bus.commands import Command

Receiver = Callable[[Command], None]


class Bus(Protocol):
    """Every member receives every command, the sender's own included, in one order that is the same for
    all."""

    def join(self, receiver: Receiver) -> None: ...

    def multicast(self, command: Command) -> None: ...
