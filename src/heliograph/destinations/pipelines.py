"""What a server remembers of data pipelines (D2, D3): how far each has come, and what must not be thrown away for it.

A *hold* keeps the journal from a position on for a reader that has come so far; it ends when nobody has asked for it
in time. A *mark* is the number of the last batch of a writer, the last epoch of a reader of a queue, or the last
group of alerts, that took effect: what comes under that number or a lower one took effect before
(docs/decisions/0024).

Leases and stages are transactions that are prepared (`transactions.py`), with `DECIDER` in the place of the
sub-cluster that decides: nobody but the pipeline, or time, ends them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

import msgspec

from heliograph.model.errors import ClientFault
from heliograph.model.ids import SessionId
from heliograph.model.limits import MAX_HOLDS, MAX_PIPELINE_MARKS

EVERYTHING: Final = ""
"""What a hold is for that is not for one destination."""
DECIDER: Final = "_pipeline"
"""Who decides about transactions of pipelines; no sub-cluster has such a name."""
NONE: Final = -1
"""The number before the first."""


class Kind(enum.IntEnum):
    """What is remembered under a name."""

    HOLD = 1
    BATCH = 2
    EPOCH = 3
    ALERTS = 4


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """As the journal keeps it. `number`: an LSN, a batch or an epoch. `until`: when it is forgotten, by the clock;
    `destination`: what a hold is for. `ended`: it is forgotten now."""

    kind: int
    name: str
    number: int
    until: float
    destination: str = ""
    seconds: float = 0.0
    ended: bool = False


class Pipelines:
    """Those of one message manager."""

    def __init__(self) -> None:
        self._marks: dict[tuple[int, str], Mark] = {}
        self._recorded: dict[str, None] = {}

    def restore(self, mark: Mark) -> None:
        if mark.ended:
            self._marks.pop((mark.kind, mark.name), None)
        else:
            self._marks[mark.kind, mark.name] = mark
        if mark.kind == Kind.HOLD:
            self._recorded = dict.fromkeys(held.destination for held in self.holds())

    @property
    def has_holds(self) -> bool:
        """Whether anybody reads the history: then it says when things happened."""
        return bool(self._recorded)

    def number(self, kind: Kind, name: str) -> int:
        found = self._marks.get((kind, name))
        return found.number if found is not None else NONE

    def hold(self, name: str) -> Mark | None:
        return self._marks.get((Kind.HOLD, name))

    def holds(self) -> list[Mark]:
        return [mark for mark in self._marks.values() if mark.kind == Kind.HOLD]

    def all(self) -> list[Mark]:
        return list(self._marks.values())

    def check_room(self, kind: Kind, name: str) -> None:
        """Raises ClientFault when there are too many to remember one more."""
        if (kind, name) in self._marks:
            return
        if kind is Kind.HOLD and len(self.holds()) >= MAX_HOLDS:
            raise ClientFault(
                f"{MAX_HOLDS} holds keep the journal already: end one that nobody needs",
                code="too-many-holds",
            )
        if len(self._marks) >= MAX_PIPELINE_MARKS:
            raise ClientFault(
                f"{MAX_PIPELINE_MARKS} pipelines are remembered already", code="too-many-pipelines"
            )

    def expired(self, now: float) -> Iterator[Mark]:
        """Each as it is to be written down: it has ended."""
        for mark in list(self._marks.values()):
            if mark.until <= now:
                yield msgspec.structs.replace(mark, ended=True)

    def records(self, address: str) -> bool:
        """Whether somebody reads the history of a destination: then what nobody subscribes to is kept, too."""
        return bool(self._recorded) and (address in self._recorded or EVERYTHING in self._recorded)


def session_named(name: str) -> SessionId:
    """The session in whose name a pipeline leases. No node issues such an id: it would begin in another age."""
    return SessionId(blake2b(name.encode(), digest_size=14, person=b"helio-pipeline").digest() + b"\0\0")


encode_mark = msgspec.msgpack.Encoder().encode
decode_mark = msgspec.msgpack.Decoder(Mark).decode
