"""What was given to the bus and did not fit into it yet: a queue with two marks and an end.

Past the high mark the members are asked to wait, below the low mark they may go on, and at the end nothing more is
taken. Between the high mark and the end is room for those who must finish what they began.
"""

from __future__ import annotations

from collections import deque

from heliograph.bus.frames import Piece
from heliograph.model.errors import Unavailable
from heliograph.model.limits import BUS_HIGH_WATER_BYTES, BUS_LOW_WATER_BYTES, BUS_QUEUE_BYTES


class Outgoing:
    """Pieces in the order in which they must be sent."""

    def __init__(
        self,
        *,
        high: int = BUS_HIGH_WATER_BYTES,
        low: int = BUS_LOW_WATER_BYTES,
        end: int = BUS_QUEUE_BYTES,
    ) -> None:
        self._pieces: deque[Piece] = deque()
        self._high, self._low, self._end = high, low, end
        self.size = 0
        self.may_send = True

    def __len__(self) -> int:
        return len(self._pieces)

    def check_room(self) -> None:
        """Raises Unavailable `bus-full` when nothing more is taken."""
        if self.size >= self._end:
            raise Unavailable(f"{self.size} bytes wait for the bus already", code="bus-full")

    def add(self, pieces: list[Piece]) -> None:
        for piece in pieces:
            self._pieces.append(piece)
            self.size += len(piece)
        if self.size > self._high:
            self.may_send = False

    def first(self) -> Piece:
        return self._pieces[0]

    def sent(self) -> None:
        """The first one is on its way."""
        self.size -= len(self._pieces.popleft())
        if self.size <= self._low:
            self.may_send = True
