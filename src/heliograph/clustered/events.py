"""What the engine of a membership is told, and what it wants done."""

from __future__ import annotations

from dataclasses import dataclass

from heliograph.clustered.ranges import Ranges
from heliograph.clustered.words import Beat, Lineage, MemberKey, View
from heliograph.model import limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What all members must agree on: how long, and how far clocks and the middleware may be off."""

    lease_seconds: float = limits.CLUSTERED_LEASE_SECONDS
    drift: float = limits.CLUSTERED_DRIFT
    """How much quicker or slower than true time a member's clock may run."""
    skew_seconds: float = limits.CLUSTERED_SKEW_SECONDS
    """How much later than another member the middleware may hand a control word to one that reads it at once."""
    fences: bool = False
    """The middleware itself shuts out a member that is taken for dead, and says when it has."""

    @property
    def beat_seconds(self) -> float:
        return self.lease_seconds / 6

    @property
    def silence_seconds(self) -> float:
        """Nobody who was silent for so long, by anybody's clock, has a lease."""
        return (self.lease_seconds / (1 - self.drift) + self.skew_seconds) * (1 + self.drift)

    @property
    def founding_seconds(self) -> float:
        """So long a founder waits for another one's word."""
        return 2 * self.skew_seconds * (1 + self.drift)


@dataclass(frozen=True, slots=True)
class Ticked:
    now: float
    wall_ms: int


@dataclass(frozen=True, slots=True)
class Heard:
    word: Beat | View
    now: float


@dataclass(frozen=True, slots=True)
class CopiesSubscribed:
    """The member gets every message from now on."""


@dataclass(frozen=True, slots=True)
class Drained:
    """Nothing is under way outside the ranges that `ActOn` named with this epoch."""

    epoch: int


@dataclass(frozen=True, slots=True)
class HasEverything:
    """Everything that this member had when `FindComplete` asked is done."""

    key: MemberKey
    lineage: Lineage


@dataclass(frozen=True, slots=True)
class FencedOff:
    """The middleware refuses whatever that member still tries."""

    key: MemberKey


@dataclass(frozen=True, slots=True)
class AllFencedOff:
    """The same of everybody who was a member once, whoever that is."""


@dataclass(frozen=True, slots=True)
class LeaveAsked:
    pass


Event = Ticked | Heard | CopiesSubscribed | Drained | HasEverything | FencedOff | AllFencedOff | LeaveAsked


@dataclass(frozen=True, slots=True)
class Say:
    word: Beat | View


@dataclass(frozen=True, slots=True)
class SubscribeCopies:
    """`is_fresh`: throw away what waits from an earlier life."""

    is_fresh: bool


@dataclass(frozen=True, slots=True)
class ActOn:
    """Begin with nothing outside these ranges, and say when nothing outside is under way."""

    ranges: Ranges
    epoch: int


@dataclass(frozen=True, slots=True)
class Doubt:
    """What is in these ranges may have been begun by a member that is gone: mark it."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class FindComplete:
    """That member's copies have begun, or are one's own: say when everything that is here by now is done."""

    key: MemberKey
    lineage: Lineage


@dataclass(frozen=True, slots=True)
class FenceOff:
    key: MemberKey


@dataclass(frozen=True, slots=True)
class FenceOffAll:
    """Everybody but those who wait with me to be members: `Membership.waits`."""


@dataclass(frozen=True, slots=True)
class Stop:
    """It is over for this incarnation. `has_left`: it drained; `keeps_copies`: nobody else has what it has; `apart`:
    the epoch in which it acted apart from the others, for its next life."""

    reason: str
    has_left: bool = False
    keeps_copies: bool = True
    apart: int = 0
    is_refused: bool = False
    """It was told otherwise than the members, and must not come back so."""


Effect = Say | SubscribeCopies | ActOn | Doubt | FindComplete | FenceOff | FenceOffAll | Stop
