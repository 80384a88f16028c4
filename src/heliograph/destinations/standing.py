"""In which view a log stands: the facts of views that are written into it (docs/decisions/0014).

    ENTERED ──▶ in a view ──IN_FORCE──▶ unrestricted ──WHOLE──▶ whole
       └── of no view: an attempt at one; what comes now counts for the view that it becomes, or for none

They are written by the primary and replayed by whoever recovers or follows, so all who have the log know the same of
every message in it. What may be handed out besides depends on the present (`Situation`), of which the shell tells.
"""

from __future__ import annotations

import msgspec

from heliograph.cluster.dispatch_rules import Hold
from heliograph.cluster.partition_state import State


class EnteredRecord(msgspec.Struct, array_like=True):
    """What is accepted behind it, is accepted in this view. No view: an attempt at one has begun.

    `takes_along`: what came since the attempt began counts for this view too (0009: it left out nobody listed).
    """

    view: bytes
    state: State = State.D
    takes_along: bool = False


class ViewRecord(msgspec.Struct, array_like=True):
    """Something became of the view that was entered last: it is in force, or it is whole."""

    view: bytes


class HeldRecord(msgspec.Struct, array_like=True):
    """Messages `first` to `last` of a lane, which follow in the log, wait until the cluster is whole."""

    destination: int
    lane: bytes
    first: int
    last: int
    why: Hold


class Standing(msgspec.Struct, array_like=True):
    """The view that the log is in; an empty one: in none."""

    view: bytes
    state: State
    is_in_force: bool = False
    is_whole: bool = False

    @property
    def is_unrestricted(self) -> bool:
        return bool(self.view) and self.is_in_force and self.state is not State.D


encode_record = msgspec.msgpack.Encoder().encode
