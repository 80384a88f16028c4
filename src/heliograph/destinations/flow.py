"""When a destination tells its producers to wait (M7), and when it turns messages away.

    open ──passes a high-water mark──▶ blocked ──falls to four fifths of both marks──▶ open
                                          └──messages come all the same, beyond the hard limit──▶ refused

A destination whose production is paused (`pausing`) is blocked for that reason, whatever it holds.

Nothing is counted per message. What a destination holds is measured when so much has arrived since the last
time that a mark could be reached, and after every event while it is blocked. Messages are counted exactly;
bytes are what arrived, less an average share for what has left since.

What a client had under way when it was told to wait must find room. The hard limit is therefore twice the
mark, or the mark and a producer's whole window where that is more.
"""

from __future__ import annotations

from heliograph.model.limits import PRODUCER_WINDOW_BYTES, PRODUCER_WINDOW_MESSAGES
from heliograph.model.policy import Policy

MESSAGES = "messages"
BYTES = "bytes"
PAUSED = "paused"


class Flow:
    """The flow control of one destination."""

    __slots__ = ("_number", "_total", "blocked", "bytes", "due_bytes", "due_number", "messages", "paused")

    def __init__(self) -> None:
        self.blocked = ""  # what there is too much of, while there is, or PAUSED
        self.paused = False
        self.messages = 0
        self.bytes = 0
        # Look again when the next message has this number, or so many bytes have come in all.
        self.due_number = 0
        self.due_bytes = 0
        self._number = 1
        self._total = 0

    def restore(self, size: int, number: int) -> None:
        """What recovery found: about so many bytes, and the number of the next message."""
        self.bytes = size
        self._number = number

    def measured(self, held: int, number: int, total: int, policy: Policy) -> bool:
        """The destination holds `held` messages, the next has this number, and `total` bytes have come.

        Returns whether its producers must be told.
        """
        self.bytes = self.bytes_of(held, number, total)
        self.messages = held
        self._number, self._total = number, total
        was = self.blocked
        self._decide(policy)
        self.due_number = number + max(policy.high_water_messages - held, 1)
        self.due_bytes = total + max(policy.high_water_bytes - self.bytes, 1)
        return was != self.blocked and (not was or not self.blocked or PAUSED in (was, self.blocked))

    def bytes_of(self, held: int, number: int, total: int) -> int:
        """About how many bytes the held messages have."""
        before = self.messages + max(number - self._number, 0)
        size = self.bytes + max(total - self._total, 0)
        return size if held >= before else size * held // before

    def _decide(self, policy: Policy) -> None:
        if self.paused:
            self.blocked = PAUSED
            return
        if self.blocked == PAUSED:
            self.blocked = ""
        if self.messages >= policy.high_water_messages:
            self.blocked = MESSAGES
        elif self.bytes >= policy.high_water_bytes and self.messages:
            self.blocked = BYTES
        elif (
            self.messages <= low_water(policy.high_water_messages)
            and self.bytes <= low_water(policy.high_water_bytes)
        ) or not self.messages:
            self.blocked = ""

    def is_beyond(self, policy: Policy) -> bool:
        """Whether there is so much that nothing more is taken."""
        return self.messages >= _hard_limit(
            policy.high_water_messages, PRODUCER_WINDOW_MESSAGES
        ) or self.bytes >= _hard_limit(policy.high_water_bytes, PRODUCER_WINDOW_BYTES)


def low_water(mark: int) -> int:
    """Far enough below the mark that producers are not told to stop and go for every message."""
    return mark * 4 // 5


def _hard_limit(mark: int, window: int) -> int:
    return mark + max(mark, window)
