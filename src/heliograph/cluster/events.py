"""What happens to a member of a channel, and what it does about it.

Every event carries the time. Effects are carried out in the order in which they stand; those of one event before
the next event is handed over.
"""

from __future__ import annotations

import enum

import msgspec

from heliograph.bus.commands import Command
from heliograph.bus.interface import Configuration, Incarnation, Origin, Stamp
from heliograph.bus.presence import NodeState
from heliograph.cluster.view import View

# ---- events


class Configured(msgspec.Struct, frozen=True):
    """The bus has another configuration."""

    at: float
    configuration: Configuration


class Heard(msgspec.Struct, frozen=True):
    """The bus delivered a frame."""

    at: float
    origin: Origin
    commands: list[Command]


class Forced(msgspec.Struct, frozen=True):
    """Everything that was delivered before `Force(mark)` is on disk."""

    at: float
    mark: int


class Ticked(msgspec.Struct, frozen=True):
    """Some time has passed. From the thread that does the work: a beat must not come from one that only beats."""

    at: float
    sync_micros: int = 0


class NodesChanged(msgspec.Struct, frozen=True):
    """A node came to this process, or went, or has something else to say of itself."""

    at: float
    nodes: tuple[NodeState, ...]


class FellBehind(msgspec.Struct, frozen=True):
    """More waits to be taken from the bus than may (PROTOCOL 1)."""

    at: float


Event = Configured | Heard | Forced | Ticked | NodesChanged | FellBehind

# ---- effects


class Multicast(msgspec.Struct, frozen=True):
    command: Command


class Restamp(msgspec.Struct, frozen=True):
    """What is sent from now on carries this stamp."""

    stamp: Stamp


class Force(msgspec.Struct, frozen=True):
    """Put on disk what was delivered so far, then answer `Forced(mark)`."""

    mark: int


class Suspend(msgspec.Struct, frozen=True):
    """The view is over, or the attempt at the next one. Until `Install` facts are applied and nothing is decided."""


class Install(msgspec.Struct, frozen=True):
    """A view holds from here. What was in flight in an older one is forgotten.

    Facts that were applied since the last `Suspend` count as accepted in this view, if it is whole. Otherwise, and if
    another `Suspend` came behind them, they count as accepted in no view, which is as in a restricted one.
    """

    view: View


class Apply(msgspec.Struct, frozen=True):
    """Commands of a frame that hold here, in their order. `origin.stamp` says what view their sender was in."""

    origin: Origin
    commands: list[Command]


class Arrive(msgspec.Struct, frozen=True):
    """A member has said something in the view: it has installed it too.

    `agrees`: it came by the same way and heard the same frames, those between configuration and view included.
    """

    incarnation: Incarnation
    agrees: bool


class Why(enum.StrEnum):
    GAP = "gap"  # something that others heard was not heard here
    EXPELLED = "expelled"
    BEHIND = "behind"


class Leave(msgspec.Struct, frozen=True):
    """This incarnation is over. Drop what it knew, and enter again as somebody new."""

    why: Why


Effect = Multicast | Restamp | Force | Suspend | Install | Apply | Arrive | Leave
