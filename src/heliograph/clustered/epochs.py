"""Epochs: whole numbers that rise with every view, and in which two leaders never meet.

    epoch = count · 2**21 + the leader's sign      count: milliseconds since 1970 at the founding, then one more

An epoch is the fencing token too, so it is one number of at most 63 bits, as every database can keep. While the
middleware is in parts, two leaders count on without hearing each other. The sign, 21 bits of a hash of a leader's
name and incarnation, keeps their epochs apart.
"""

from __future__ import annotations

from typing import Final

from heliograph.clustered.hashing import value_of
from heliograph.clustered.words import MemberKey

_SIGN_BITS: Final = 21


def _signed(count: int, leader: MemberKey) -> int:
    return count << _SIGN_BITS | value_of(leader) >> 32 - _SIGN_BITS


def epoch_after(highest: int, leader: MemberKey) -> int:
    """The next that this leader may use when it has heard of `highest`."""
    return _signed((highest >> _SIGN_BITS) + 1, leader)


def first_epoch(wall_ms: int, highest: int, leader: MemberKey) -> int:
    """Of a cluster that is founded: later than its earlier lives', by the wall clock and by what was heard."""
    return max(_signed(wall_ms, leader), epoch_after(highest, leader))
