"""What an administrator decides about a destination (J10, M7, M11)."""

from __future__ import annotations

import msgspec

from heliograph.model.limits import DESTINATION_HIGH_WATER_BYTES, DESTINATION_HIGH_WATER_MESSAGES


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The policy of one destination; times in seconds. Fields are appended, never reordered or reused."""

    # A message that was handed out this often and came back goes to the dead message queue. 0: never.
    redelivery_limit: int = 10
    # It waits this long before it is handed out again, longer each time, up to a maximum.
    redelivery_delay: float = 0.0
    redelivery_multiplier: float = 2.0
    redelivery_delay_limit: float = 300.0
    # Expired messages go to the dead message queue instead of nowhere.
    expired_to_dead: bool = False
    # A message that nobody took for so long goes to the dead message queue. 0: never.
    undelivered_to_dead_after: float = 0.0
    # Producers are told to wait when this much is there.
    high_water_messages: int = DESTINATION_HIGH_WATER_MESSAGES
    high_water_bytes: int = DESTINATION_HIGH_WATER_BYTES
    # A consumer gets at most so many messages ahead. 0: as many as it has credit for.
    prefetch_limit: int = 0

    def delay_before(self, delivery: int) -> float:
        """How long a message waits before its second (third, …) delivery."""
        if not self.redelivery_delay:
            return 0.0
        delay: float = self.redelivery_delay * self.redelivery_multiplier ** (delivery - 2)
        return min(delay, self.redelivery_delay_limit)


DEFAULT_POLICY = Policy()
