"""The value of a message: 32 bits computed from chosen fields, the same on every machine and in every version
(H1).

    field   = Σ word[i] · KEY[i]  +  length · KEY_LENGTH  +  kind · KEY_KIND          (modulo 2**64)
    fields  = mix(… mix(mix(field 1) ⊕ field 2) …)         mix(x) = (x ⊕ x >> 32) · MIX
    value   = the upper 32 bits

A text is its UTF-8 bytes in little-endian words of eight, the last filled up with zeros; a whole number of 64
bits is one word. A sum of products is what both Python's own loops and numpy are quick at:
`hashing_blocks.py` computes the same for a whole block. Never `hash()`, which is another in every process.

What is written here is version 1, and stays: members of one cluster may be of different versions of this
library, and what was split by ranges (an archive, the checkpoints of a Spark query) must be found again.
Golden values hold it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from operator import mul
from struct import Struct, unpack
from typing import Any, Final

HASH_VERSION: Final = 1
VALUES: Final = 1 << 32
"""How many values there are: 0 … VALUES - 1."""

Field = str | bytes | int | float | bool | None

MASK: Final = (1 << 64) - 1
MIX: Final = 0xBF58476D1CE4E5B9
_GOLDEN: Final = 0x9E3779B97F4A7C15
_MIX_SECOND: Final = 0x94D049BB133111EB
MAX_WORDS: Final = 64
"""Longer fields are shortened by a cryptographic hash first: nobody needs them to be quick."""


def _split_mix(number: int) -> int:
    """The finalizer of SplitMix64: a simple way to fixed numbers that look like chance."""
    number = ((number ^ (number >> 30)) * MIX) & MASK
    number = ((number ^ (number >> 27)) * _MIX_SECOND) & MASK
    return number ^ (number >> 31)


# Odd, so that no product loses a bit.
KEYS: Final = tuple(_split_mix(_GOLDEN * (index + 1) & MASK) | 1 for index in range(MAX_WORDS + 2))
KEY_LENGTH: Final = KEYS[MAX_WORDS]
KEY_KIND: Final = KEYS[MAX_WORDS + 1]
KIND_TEXT, KIND_BYTES, KIND_INTEGER, KIND_FLOAT, KIND_BOOLEAN, KIND_LONG, KIND_NONE = range(1, 8)

_WORDS = tuple(Struct(f"<{count}Q").unpack for count in range(MAX_WORDS + 1))
_FOUR_WORDS = _WORDS[4]
_KEY_0, _KEY_1, _KEY_2, _KEY_3 = KEYS[:4]
# What length and kind of a short text add.
_SHORT_TEXTS = tuple(length * KEY_LENGTH + KIND_TEXT * KEY_KIND for length in range(33))


def _sum_of(raw: bytes, kind: int) -> int:
    length = len(raw)
    if length > 8 * MAX_WORDS:
        raw = blake2b(raw, digest_size=64).digest()
    raw += bytes(-len(raw) % 8)
    words: tuple[int, ...] = _WORDS[len(raw) // 8](raw)
    products: Iterable[int] = map(mul, words, KEYS)
    return sum(products, length * KEY_LENGTH + kind * KEY_KIND)


def _sum_of_short_text(raw: bytes) -> int:
    first, second, third, fourth = _FOUR_WORDS(raw.ljust(32, b"\0"))
    total: int = first * _KEY_0 + second * _KEY_1 + third * _KEY_2 + fourth * _KEY_3 + _SHORT_TEXTS[len(raw)]
    return total


def field_sum(field: Field) -> int:
    """The sum of one field, of at most some hundred bits: the mixing cuts it."""
    if field is None:
        return KIND_NONE * KEY_KIND
    if isinstance(field, str):
        raw = field.encode()
        return _sum_of_short_text(raw) if len(raw) <= 32 else _sum_of(raw, KIND_TEXT)
    if isinstance(field, bool):
        return KEYS[0] * field + KIND_BOOLEAN * KEY_KIND
    if isinstance(field, int):
        if -(1 << 63) <= field < 1 << 63:
            return KEYS[0] * (field & MASK) + KIND_INTEGER * KEY_KIND
        return _sum_of(str(field).encode(), KIND_LONG)
    if isinstance(field, float):
        return KEYS[0] * int(unpack("<Q", Struct("<d").pack(field))[0]) + KIND_FLOAT * KEY_KIND
    return _sum_of(bytes(field), KIND_BYTES)


def value_of(fields: Iterable[Field]) -> int:
    """The value of these fields, in this order."""
    number = 0
    for field in fields:
        number ^= field_sum(field) & MASK
        number = ((number ^ (number >> 32)) * MIX) & MASK
    return number >> 32


def value_of_text(text: str) -> int:
    """The same as `value_of([text])`, written out: it is what most clusters do for every message."""
    raw = text.encode()
    length = len(raw)
    if length > 32:
        return value_of((text,))
    first, second, third, fourth = _FOUR_WORDS(raw.ljust(32, b"\0"))
    number: int = (
        first * _KEY_0 + second * _KEY_1 + third * _KEY_2 + fourth * _KEY_3 + _SHORT_TEXTS[length] & MASK
    )
    return ((number ^ (number >> 32)) * MIX & MASK) >> 32


def in_range(get: Callable[[Any], Field], first: int, stop: int) -> Callable[[Any], bool]:
    """Whether the value of the field that `get` finds is in `first` … `stop` - 1. The same once more, in one piece:
    each call that is not made is a tenth of the whole."""
    lowest, end = first << 32, stop << 32

    def is_in(message: Any) -> bool:
        field = get(message)
        if type(field) is str:
            raw = field.encode()
            length = len(raw)
            if length <= 32:
                one, two, three, four = _FOUR_WORDS(raw.ljust(32, b"\0"))
                number: int = (
                    one * _KEY_0 + two * _KEY_1 + three * _KEY_2 + four * _KEY_3 + _SHORT_TEXTS[length] & MASK
                )
                return lowest <= ((number ^ number >> 32) * MIX & MASK) < end
        return first <= value_of((field,)) < stop

    return is_in
