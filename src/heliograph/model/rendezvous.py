"""Rendezvous hashing: everybody who knows the same names chooses the same one for a key (U6).

When a name is added it takes its share of the keys and no other key moves; when one goes, only its keys move. The
function is part of what nodes and clients of different versions must agree on: it never changes, a better one gets
another version and both are known by number. Golden values are in the tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

VERSION: Final = 1
_PERSON: Final = b"helio-rendezvous"  # as long as BLAKE2b lets it be
_WEIGHT_BYTES: Final = 8


def chosen(key: bytes, names: Sequence[str]) -> str:
    """The name for a key, whatever the order in which the names are given."""
    return min(names, key=lambda name: _rank(key, name))


def ranked(key: bytes, names: Sequence[str]) -> list[str]:
    """All names, the chosen one first; behind it those that would be chosen if it were not there."""
    return sorted(names, key=lambda name: _rank(key, name))


def _rank(key: bytes, name: str) -> tuple[int, str]:
    weight = blake2b(key, digest_size=_WEIGHT_BYTES, key=blake2b(name.encode()).digest(), person=_PERSON)
    return int.from_bytes(weight.digest(), "big"), name
