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

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
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
_FOUR_WORDS, _EIGHT_WORDS = _WORDS[4], _WORDS[8]
_KEY_0, _KEY_1, _KEY_2, _KEY_3, _KEY_4, _KEY_5, _KEY_6, _KEY_7 = KEYS[:8]
# What length and kind of a short text add.
_SHORT_TEXTS = tuple(length * KEY_LENGTH + KIND_TEXT * KEY_KIND for length in range(65))
_KIND_OF_INTEGER = KIND_INTEGER * KEY_KIND


def _sum_of(raw: bytes, kind: int) -> int:
    length = len(raw)
    if length > 8 * MAX_WORDS:
        raw = blake2b(raw, digest_size=64).digest()
    raw += bytes(-len(raw) % 8)
    words: tuple[int, ...] = _WORDS[len(raw) // 8](raw)
    products: Iterable[int] = map(mul, words, KEYS)
    return sum(products, length * KEY_LENGTH + kind * KEY_KIND)


def _sum_of_text(raw: bytes) -> int:
    """Written out for short ones, of up to 32 bytes (ids of ours) and up to 64 (a UUID in letters has 36)."""
    length = len(raw)
    if length > 64:
        return _sum_of(raw, KIND_TEXT)
    total: int
    if length <= 32:
        a, b, c, d = _FOUR_WORDS(raw.ljust(32, b"\0"))
        total = a * _KEY_0 + b * _KEY_1 + c * _KEY_2 + d * _KEY_3 + _SHORT_TEXTS[length]
    else:
        a, b, c, d, e, f, g, h = _EIGHT_WORDS(raw.ljust(64, b"\0"))
        total = e * _KEY_4 + f * _KEY_5 + g * _KEY_6 + h * _KEY_7 + _SHORT_TEXTS[length]
        total += a * _KEY_0 + b * _KEY_1 + c * _KEY_2 + d * _KEY_3
    return total


def field_sum(field: Field) -> int:
    """The sum of one field, of at most some hundred bits: the mixing cuts it."""
    if field is None:
        return KIND_NONE * KEY_KIND
    if isinstance(field, str):
        return _sum_of_text(field.encode())
    if isinstance(field, bool):
        return KEYS[0] * field + KIND_BOOLEAN * KEY_KIND
    if isinstance(field, int):
        if -(1 << 63) <= field < 1 << 63:
            return KEYS[0] * (field & MASK) + KIND_INTEGER * KEY_KIND
        return _sum_of(str(field).encode(), KIND_LONG)
    if isinstance(field, float):
        return KEYS[0] * int(unpack("<Q", Struct("<d").pack(field))[0]) + KIND_FLOAT * KEY_KIND
    return _sum_of(bytes(field), KIND_BYTES)


def folded(fields: Iterable[Field], number: int = 0) -> int:
    """64 bits of these fields, behind those that came to `number`. The sum of a short text and of a small number is
    written out: they are what messages have."""
    for field in fields:
        kind = type(field)
        if kind is str:
            number ^= _sum_of_text(field.encode()) & MASK  # type: ignore[union-attr]
        elif kind is int and -1 < field < 1 << 63:  # type: ignore[operator]
            number ^= field * _KEY_0 + _KIND_OF_INTEGER & MASK  # type: ignore[operator]
        else:
            number ^= field_sum(field) & MASK
        number = (number ^ number >> 32) * MIX & MASK
    return number


def value_of(fields: Iterable[Field]) -> int:
    """The value of these fields, in this order."""
    return folded(fields) >> 32


def value_of_text(text: str, number: int = 0) -> int:
    """The same as `value_of([text])`, written out: it is what most clusters do for every message. `number`: what the
    fields before it came to."""
    raw = text.encode()
    length = len(raw)
    if length <= 32:
        a, b, c, d = _FOUR_WORDS(raw.ljust(32, b"\0"))
        number ^= a * _KEY_0 + b * _KEY_1 + c * _KEY_2 + d * _KEY_3 + _SHORT_TEXTS[length] & MASK
    else:
        number ^= _sum_of_text(raw) & MASK
    return ((number ^ number >> 32) * MIX & MASK) >> 32


def in_range(get: Callable[[Any], Field], first: int, stop: int) -> Callable[[Any], bool]:
    """Whether the value of the field that `get` finds is in `first` … `stop` - 1. The same once more, in one piece:
    each call that is not made is a tenth of the whole."""
    lowest, end = first << 32, stop << 32

    def is_in(message: Any) -> bool:
        field = get(message)
        if type(field) is str:
            raw = field.encode()
            length = len(raw)
            number: int
            if length <= 32:
                a, b, c, d = _FOUR_WORDS(raw.ljust(32, b"\0"))
                number = a * _KEY_0 + b * _KEY_1 + c * _KEY_2 + d * _KEY_3 + _SHORT_TEXTS[length] & MASK
                return lowest <= ((number ^ number >> 32) * MIX & MASK) < end
            if length <= 64:
                a, b, c, d, e, f, g, h = _EIGHT_WORDS(raw.ljust(64, b"\0"))
                number = e * _KEY_4 + f * _KEY_5 + g * _KEY_6 + h * _KEY_7 + _SHORT_TEXTS[length]
                number = number + a * _KEY_0 + b * _KEY_1 + c * _KEY_2 + d * _KEY_3 & MASK
                return lowest <= ((number ^ number >> 32) * MIX & MASK) < end
        return first <= value_of((field,)) < stop

    return is_in


def in_ranges(
    before: Callable[[Any], int], get: Callable[[Any], Field], bounds: Sequence[int]
) -> Callable[[Any], bool]:
    """The same for several fields or several ranges: `before` says what the fields in front of the last one come to,
    which `get` finds; `bounds` are beginnings and ends in turn."""
    places = [bound << 32 for bound in bounds]
    lowest, end = (places[0], places[1]) if len(places) == 2 else (0, 0)

    def is_in(message: Any) -> bool:
        number = before(message)
        field = get(message)
        if type(field) is str:
            raw = field.encode()
            length = len(raw)
            if length <= 32:
                a, b, c, d = _FOUR_WORDS(raw.ljust(32, b"\0"))
                number ^= a * _KEY_0 + b * _KEY_1 + c * _KEY_2 + d * _KEY_3 + _SHORT_TEXTS[length] & MASK
            else:
                number ^= _sum_of_text(raw) & MASK
            number = (number ^ number >> 32) * MIX & MASK
        else:
            number = folded((field,), number)
        return lowest <= number < end if end else bisect_right(places, number) & 1 == 1

    return is_in
