"""Copies that are too large for one control word, cut in pieces and put together again. An engine: no clock, no I/O.

The control topic keeps the order of one sender, and the pieces of a copy follow each other. So whoever puts them
together needs one unfinished copy for each sender, and a piece that is not the next one ends it: it is asked about
again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from heliograph.clustered.words import Copy, Piece, decoded, encoded
from heliograph.model import limits


def cut(copy: Copy) -> Iterator[Copy | Piece]:
    """The copy as it is if any middleware takes it, or its pieces in order; nothing of one that is larger than what a
    member may hold. Raises what the encoder raises for properties that cannot travel."""
    raw = encoded(copy)
    size = limits.CLUSTERED_PIECE_BYTES
    if len(raw) <= size:
        yield copy
    elif len(raw) <= limits.CLUSTERED_HELD_BYTES:
        count = -(-len(raw) // size)
        for number in range(count):
            part = raw[number * size : (number + 1) * size]
            yield Piece(copy.name, copy.to, copy.id, number, count, part)


@dataclass(slots=True)
class _Unfinished:
    id: str
    count: int
    size: int = 0
    parts: list[bytes] = field(default_factory=list)


class Pieces:
    """Unfinished copies, at most one of each sender, and together no more bytes than a member may hold."""

    def __init__(self, most_bytes: int = limits.CLUSTERED_HELD_BYTES) -> None:
        self._most = most_bytes
        self._unfinished: dict[str, _Unfinished] = {}

    @property
    def bytes(self) -> int:
        return sum(each.size for each in self._unfinished.values())

    def take(self, piece: Piece) -> Copy | None:
        """The copy of which this is the last piece."""
        under_way = self._unfinished.pop(piece.name, None)
        if piece.number == 0:
            under_way = _Unfinished(piece.id, piece.count)
        elif (
            under_way is None
            or (piece.id, piece.count) != (under_way.id, under_way.count)
            or piece.number != len(under_way.parts)
        ):
            return None
        under_way.parts.append(piece.raw)
        under_way.size += len(piece.raw)
        if len(under_way.parts) == piece.count:
            word = decoded(b"".join(under_way.parts))
            return word if isinstance(word, Copy) else None
        self._unfinished[piece.name] = under_way
        while self.bytes > self._most:
            del self._unfinished[next(iter(self._unfinished))]  # of whoever has been silent longest
        return None

    def keep_of(self, names: Iterable[str]) -> None:
        """The others are gone: nobody finishes theirs."""
        staying = frozenset(names)
        self._unfinished = {name: each for name, each in self._unfinished.items() if name in staying}
