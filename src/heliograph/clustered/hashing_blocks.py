"""The values of many messages at once, with numpy: the same numbers as `hashing.py`, a few nanoseconds each.

Texts come as they lie in a block, in a journal or in Arrow: one buffer, and where each begins and ends. Numbers come
as a column. Several fields are several columns, folded one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from heliograph.clustered.hashing import (
    KEY_KIND,
    KEY_LENGTH,
    KEYS,
    KIND_INTEGER,
    KIND_TEXT,
    MASK,
    MAX_WORDS,
    MIX,
    field_sum,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.uint64]

_KEYS = np.array(KEYS, dtype=np.uint64)
_KEY_LENGTH = np.uint64(KEY_LENGTH)
_MIX = np.uint64(MIX)
_HALF = np.uint64(32)
_LITTLE = np.dtype("<u8")  # words are little-endian on every machine
_KIND_OF_TEXT = np.uint64(KIND_TEXT * KEY_KIND & MASK)
_KIND_OF_INTEGER = np.uint64(KIND_INTEGER * KEY_KIND & MASK)
# Which bits of a word belong to a text that has so many bytes left.
_KEPT = np.array([(1 << 8 * count) - 1 for count in range(9)], dtype=np.uint64)


def sums_of_texts(buffer: bytes | memoryview, offsets: NDArray[Any]) -> Words:
    """Of the texts `buffer[offsets[i]:offsets[i + 1]]`, in UTF-8. The offsets may be of any type of whole numbers."""
    # Without a sign, what is left of a short text would be far more than nothing, and its words not its own.
    offsets = np.asarray(offsets, dtype=np.int64)
    # Eight bytes more let the last word of the last text be read whole. A word may begin at any byte.
    raw = bytes(buffer) + bytes(8)
    word_at: Words = np.ndarray(shape=(len(raw) - 7,), dtype=_LITTLE, buffer=raw, strides=(1,))
    starts, lengths = offsets[:-1], np.diff(offsets)
    sums = lengths.astype(np.uint64)
    sums *= _KEY_LENGTH
    sums += _KIND_OF_TEXT
    longest = int(lengths.max(initial=0))
    shortest = int(lengths.min(initial=longest))
    if longest > 8 * MAX_WORDS:
        return _with_long_texts(bytes(buffer), offsets)
    for index in range((longest + 7) // 8):
        at = starts if index == 0 else starts + 8 * index
        if shortest >= 8 * index + 8:
            words = word_at[at]
        else:
            left = np.clip(lengths - 8 * index, 0, 8)
            words = word_at[np.minimum(at, len(word_at) - 1)] & _KEPT[left]
        words *= _KEYS[index]
        sums += words
    return sums


def _with_long_texts(raw: bytes, offsets: NDArray[np.int64]) -> Words:
    """One at a time: fields of more than five hundred bytes are rare, and hashing them is slow in any case."""
    bounds = offsets.tolist()
    texts = (raw[start:stop].decode() for start, stop in pairwise(bounds))
    return np.array([field_sum(text) & MASK for text in texts], dtype=np.uint64)


def sums_of_integers(column: NDArray[Any]) -> Words:
    """Of whole numbers, signed or not, of at most 64 bits."""
    words: Words = column.astype(np.int64, copy=False).view(np.uint64) * _KEYS[0]
    words += _KIND_OF_INTEGER
    if column.dtype.kind == "u" and column.dtype.itemsize == 8:
        # A number that has no place among signed ones is hashed by its digits.
        for index in np.flatnonzero(column >> np.uint64(63)).tolist():
            words[index] = field_sum(int(column[index])) & MASK
    return words


def _mixed(number: Words) -> Words:
    number = number ^ (number >> _HALF)
    number *= _MIX
    return number


def values_of(columns: Sequence[Words]) -> NDArray[np.uint32]:
    """The values of rows whose fields have these sums."""
    number = _mixed(columns[0])
    for column in columns[1:]:
        number = _mixed(number ^ column)
    return (number >> _HALF).astype(np.uint32)


def values_of_texts(buffer: bytes | memoryview, offsets: NDArray[Any]) -> NDArray[np.uint32]:
    """The values of one text each."""
    return values_of([sums_of_texts(buffer, offsets)])


def chosen(values: NDArray[np.uint32], bounds: Sequence[int]) -> NDArray[np.bool_]:
    """Which values lie in the ranges with these bounds: beginnings and ends in turn."""
    if len(bounds) == 2 and bounds[1] - bounds[0] < 1 << 32:
        # One range is the common case; the difference wraps below its beginning.
        return (values - np.uint32(bounds[0])) < np.uint32(bounds[1] - bounds[0])
    # No value reaches the end of the space, which does not fit 32 bits.
    places: NDArray[np.int64] = np.searchsorted(
        np.array([bound for bound in bounds if bound < 1 << 32], dtype=np.uint32), values, side="right"
    )
    inside: NDArray[np.bool_] = places & 1 == 1
    return inside
