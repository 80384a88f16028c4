"""How much a client has sent that is not confirmed yet. A client that sends on regardless is not read from
until it is less (M7)."""

from __future__ import annotations

from collections import deque

from heliograph.model.ids import LaneId, SessionId, session_of
from heliograph.model.limits import SESSION_UNCONFIRMED_BYTES


class Window:
    """Unconfirmed bytes of one connection, by lane."""

    __slots__ = ("_lanes", "_refused", "unconfirmed")

    def __init__(self) -> None:
        self._lanes: dict[bytes, deque[tuple[int, int]]] = {}
        # Refused lanes, each with the last sequence that was sent on it by then.
        self._refused: dict[bytes, int] = {}
        self.unconfirmed = 0

    @property
    def full(self) -> bool:
        return self.unconfirmed > SESSION_UNCONFIRMED_BYTES

    def sent(self, lane: bytes, last: int, size: int) -> None:
        if self._refused and not self._counts(lane, last):
            return
        under_way = self._lanes.get(lane)
        if under_way is None:
            under_way = self._lanes[lane] = deque()
        under_way.append((last, size))
        self.unconfirmed += size

    def _counts(self, lane: bytes, last: int) -> bool:
        """Whether the lane was not refused, or was opened anew and begins again where it was refused.

        What was under way when a lane was refused is dropped by its destination and never confirmed.
        """
        if last > self._refused.get(lane, last):
            return False
        self._refused.pop(lane, None)
        return True

    def confirmed(self, lane: bytes, last: int) -> None:
        under_way = self._lanes.get(lane)
        while under_way and under_way[0][0] <= last:
            self.unconfirmed -= under_way.popleft()[1]
        if self._refused and last > self._refused.get(lane, last):
            del self._refused[lane]  # it was opened anew

    def forget(self, session: SessionId) -> None:
        """A session ended: nothing of its lanes will be confirmed."""
        for lane in [lane for lane in self._lanes if session_of(LaneId(lane)) == session]:
            for _, size in self._lanes.pop(lane):
                self.unconfirmed -= size

    def refused(self, lane: bytes) -> None:
        """Nothing more of the lane will be confirmed."""
        under_way = self._lanes.pop(lane, None)
        if under_way:
            self._refused[lane] = under_way[-1][0]
            self.unconfirmed -= sum(size for _, size in under_way)
