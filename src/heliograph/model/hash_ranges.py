"""Which hash range a message belongs to (D1, H1): the same on every machine and in every version.

    word     a whole number, as 64 bits
    value    the upper 32 bits of  mix(Σ word[i] · KEY[i] + kind · KEY_KIND)          mix(x) = (x ⊕ x >> 32) · MIX

What has a unit of order goes by the number of its unit, so that a unit stays in one range. Everything else goes by
its lane and the stretch of 4096 sequences that it is in: a block has few stretches, so a server decides about whole
blocks. This is version 1, and stays: checkpoints depend on it. It is the value that `heliograph.clustered` gives to
one whole number. Golden values are in the tests.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

HASH_VERSION: Final = 1
VALUES: Final = 1 << 32
"""How many values there are: 0 … VALUES − 1."""
STRETCH_BITS: Final = 12

MASK: Final = (1 << 64) - 1
MIX: Final = 0xBF58476D1CE4E5B9
_GOLDEN: Final = 0x9E3779B97F4A7C15
_MIX_SECOND: Final = 0x94D049BB133111EB
_MAX_WORDS: Final = 64
_KIND_INTEGER: Final = 3


def _split_mix(number: int) -> int:
    """The finalizer of SplitMix64: a simple way to fixed numbers that look like chance."""
    number = ((number ^ (number >> 30)) * MIX) & MASK
    number = ((number ^ (number >> 27)) * _MIX_SECOND) & MASK
    return number ^ (number >> 31)


def _key(index: int) -> int:
    """Odd, so that no product loses a bit."""
    return _split_mix(_GOLDEN * (index + 1) & MASK) | 1


KEY: Final = _key(0)
KIND: Final = _KIND_INTEGER * _key(_MAX_WORDS + 1) & MASK


def value_of(number: int) -> int:
    """The value of a whole number, of which the lower 64 bits count."""
    mixed = (number & MASK) * KEY + KIND & MASK
    return ((mixed ^ (mixed >> 32)) * MIX & MASK) >> 32


def stretch_number(lane: bytes, stretch: int) -> int:
    """A stretch of a lane as one number. Two that share one are only kept together."""
    high, low = int.from_bytes(lane[:8], "big"), int.from_bytes(lane[8:], "big")
    return (high * _split_mix(stretch + 1) + low * MIX + stretch) & MASK


def stretches_in(lane: bytes, first: int, last: int, low: int, high: int) -> bool:
    """Whether any message of a run of a lane, none of which has a unit, has a value from `low` up to `high`."""
    return any(
        low <= value_of(stretch_number(lane, stretch)) < high
        for stretch in range(first >> STRETCH_BITS, (last >> STRETCH_BITS) + 1)
    )


def ranges(count: int) -> list[tuple[int, int]]:
    """So many even ranges, which together are all values."""
    bounds = [VALUES * index // count for index in range(count + 1)]
    return list(pairwise(bounds))
