"""How much a client has sent that is not confirmed yet. A client that sends on regardless is not read from
until it is less (M7)."""

from __future__ import annotations

from collections import deque

from heliograph.model.limits import SESSION_UNCONFIRMED_BYTES


class Window:
    """Unconfirmed bytes of one connection, by lane."""

    __slots__ = ("_lanes", "unconfirmed")

    def __init__(self) -> None:
        self._lanes: dict[bytes, deque[tuple[int, int]]] = {}
        self.unconfirmed = 0

    @property
    def full(self) -> bool:
        return self.unconfirmed > SESSION_UNCONFIRMED_BYTES

    def sent(self, lane: bytes, last: int, size: int) -> None:
        under_way = self._lanes.get(lane)
        if under_way is None:
            under_way = self._lanes[lane] = deque()
        under_way.append((last, size))
        self.unconfirmed += size

    def confirmed(self, lane: bytes, last: int) -> None:
        under_way = self._lanes.get(lane)
        while under_way and under_way[0][0] <= last:
            self.unconfirmed -= under_way.popleft()[1]

    def refused(self, lane: bytes) -> None:
        """Nothing more of the lane will be confirmed."""
        for _, size in self._lanes.pop(lane, ()):
            self.unconfirmed -= size
