"""Where the messages of a destination were accepted, as their place in the log tells (P1, docs/decisions/0014).

Nothing is written into blocks. The log says when a view was entered, came into force and was whole; here that becomes
ranges of message numbers. Three facts are enough: where the present view begins, which ranges before it were
accepted in no view that was in force, and which lanes were sent again from somewhere on. All other messages were
accepted in an unrestricted view. A cluster that was always whole has no range at all, and a block costs nothing.

Ranges that touch are one, and beyond `MAX_STAMP_RANGES` the two that are nearest become one with what lies between:
more waits then until the cluster is whole, and never less.
"""

from __future__ import annotations

import msgspec

from heliograph.cluster.dispatch_rules import Hold, Where
from heliograph.destinations.standing import Standing
from heliograph.model.ids import LaneId
from heliograph.model.limits import MAX_STAMP_RANGES

FAR = 2**63
"""Behind every number."""


class HeldLane(msgspec.Struct, array_like=True):
    """What of a lane waits until the cluster is whole. None of it has a lower number than `number`.

    `behind_gap`: from where on it follows something that is missing, 0 if nothing is.
    """

    first: int
    last: int
    why: Hold
    number: int
    behind_gap: int = 0


class StampsState(msgspec.Struct, array_like=True):
    """As a snapshot keeps it."""

    current: int = 1
    restricted: list[tuple[int, int]] = []
    held: list[tuple[bytes, HeldLane]] = []


class Stamps:
    """Of one destination."""

    __slots__ = ("current", "held", "restricted")

    def __init__(self) -> None:
        self.current = 1  # the number of the first message of the present view
        self.restricted: list[tuple[int, int]] = []
        self.held: dict[LaneId, HeldLane] = {}

    def enter(self, next_number: int, before: Standing | None) -> None:
        """A view begins, or an attempt at one. What was before any view is as good as unrestricted."""
        if next_number > self.current and before is not None and not before.is_unrestricted:
            self._restrict(self.current, next_number - 1)
        self.current = next_number

    def _restrict(self, first: int, last: int) -> None:
        ranges = self.restricted
        if ranges and ranges[-1][1] + 1 == first:
            ranges[-1] = (ranges[-1][0], last)
            return
        ranges.append((first, last))
        if len(ranges) > MAX_STAMP_RANGES:
            gaps = [ranges[index + 1][0] - ranges[index][1] for index in range(len(ranges) - 1)]
            nearest = gaps.index(min(gaps))
            ranges[nearest : nearest + 2] = [(ranges[nearest][0], ranges[nearest + 1][1])]

    def hold(self, lane: LaneId, first: int, last: int, why: Hold, next_number: int) -> None:
        """All behind it on the lane waits too, so one range a lane says as much as many."""
        known = self.held.get(lane)
        if known is None:
            known = self.held[lane] = HeldLane(first, last, why, next_number)
        else:
            known.first, known.last = min(known.first, first), max(known.last, last)
        if why is Hold.GAP:
            known.behind_gap = min(known.behind_gap or first, first)

    def whole(self) -> None:
        """Nothing that came so far is held back any more."""
        self.restricted.clear()
        self.held.clear()

    def taken_back(self, next_number: int) -> None:
        """The last block found no room: its number is given again."""
        self.current = min(self.current, next_number)

    def places(self, standing: Standing) -> list[tuple[int, Where]]:
        """Where messages were accepted: from each number on, up to the next."""
        found = [(1, Where.UNRESTRICTED)]
        for first, last in self.restricted:
            found += [(first, Where.RESTRICTED), (last + 1, Where.UNRESTRICTED)]
        found.append((self.current, Where.CURRENT if standing.view else Where.RESTRICTED))
        return [
            (first, where)
            for index, (first, where) in enumerate(found)
            if index + 1 == len(found) or first < found[index + 1][0]
        ]

    # ---- snapshots

    @property
    def state(self) -> StampsState | None:
        if self.current == 1 and not self.restricted and not self.held:
            return None
        return StampsState(
            self.current, list(self.restricted), [(bytes(lane), held) for lane, held in self.held.items()]
        )

    def restore(self, state: StampsState | None) -> None:
        if state is not None:
            self.current = state.current
            self.restricted = list(state.restricted)
            self.held = {LaneId(lane): held for lane, held in state.held}
