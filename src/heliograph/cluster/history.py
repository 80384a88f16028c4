"""What of a journal is the history of the log, where it does not simply stand there (docs/decisions/0024).

A manager that catches up is given a state, and not the records that led to it. So its journal has places behind which
only a part of what is in front counts, and the log goes on with a higher index; and it has records of the log that
were brought later, by another manager, out of their order.
"""

from __future__ import annotations

from typing import Final

import msgspec


class Cut(msgspec.Struct, frozen=True, array_like=True):
    """Of all that stands up to this LSN what is up to index `fork` is of the log; behind it the log goes on with
    `index` + 1."""

    lsn: int
    fork: int
    index: int


class Brought(msgspec.Struct, frozen=True, array_like=True):
    """Records HISTORY from one LSN to another count."""

    first: int
    last: int


class HistoryMap(msgspec.Struct, frozen=True, array_like=True):
    """Of one journal. It changes seldom: with each time that its manager has caught up."""

    cuts: tuple[Cut, ...] = ()
    brought: tuple[Brought, ...] = ()

    def with_cut(self, cut: Cut) -> HistoryMap:
        return HistoryMap((*self.cuts, cut), self.brought)

    def with_brought(self, brought: Brought) -> HistoryMap:
        return HistoryMap(self.cuts, (*self.brought, brought))

    def behind(self, lsn: int) -> HistoryMap:
        """The same for a journal that has nothing in front of this LSN any more."""
        cuts = tuple(cut for cut in self.cuts if cut.lsn >= lsn)
        return HistoryMap(cuts, tuple(each for each in self.brought if each.last >= lsn))

    def counts(self, lsn: int) -> bool:
        """Whether a record HISTORY with this LSN does."""
        return any(each.first <= lsn <= each.last for each in self.brought)


NOTHING_MISSING: Final = HistoryMap()
_decode_brought = msgspec.msgpack.Decoder(Brought).decode
encode_brought = msgspec.msgpack.Encoder().encode


def brought_in(payload: bytes | memoryview) -> Brought:
    return _decode_brought(payload)
