"""Destinations that an administrator has paused (U8).

    production   producers are told to wait, as with a destination that is full; what they had under way is taken
    consumption  nothing is handed out; what consumers have may still be settled or returned

Both last until they are resumed, over restarts too.
"""

from __future__ import annotations

import msgspec

from heliograph.model.block import Block
from heliograph.model.ids import LaneId
from heliograph.model.limits import PRODUCER_WINDOW_BYTES, PRODUCER_WINDOW_MESSAGES


class Paused(msgspec.Struct, frozen=True, array_like=True):
    """What is paused. On disk an array: fields are appended, never reordered."""

    production: bool = False
    consumption: bool = False


NOTHING = Paused()


class Pause:
    """The pause of one destination, and who sends all the same."""

    __slots__ = ("_since", "state")

    def __init__(self) -> None:
        self.state = NOTHING
        self._since: dict[LaneId, tuple[int, int]] = {}  # messages and bytes that came while it was paused

    def set(self, state: Paused) -> None:
        self.state = state
        self._since.clear()

    def is_beyond(self, block: Block) -> bool:
        """Whether this is more than its sender can have had under way when it was told to wait."""
        if not self.state.production:
            return False
        messages, size = self._since.get(block.lane, (0, 0))
        if messages >= PRODUCER_WINDOW_MESSAGES or size >= PRODUCER_WINDOW_BYTES:
            return True
        self._since[block.lane] = (messages + block.count, size + block.size)
        return False
