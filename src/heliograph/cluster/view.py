"""A view: who is in it, what each of them said, and who of them came the same way.

Views are compared by id, never by number: both parts of a cut reach the same number (PROTOCOL 2).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

import msgspec

from heliograph.bus.interface import NO_VIEW, STAMP_BYTES, Incarnation, Stamp
from heliograph.bus.presence import DIGEST_BYTES, Company, Hello
from heliograph.bus.wire import FIRST_LEVEL

_NUMBER_BYTES: Final = 8
# The fields of a hello and of a node that make the id of a view. Those that were appended later do not: nodes of an
# earlier version do not see them, and must come to the same id.
_HASHED_OF_HELLO: Final = 9
_HASHED_OF_NODE: Final = 28
_encode = msgspec.msgpack.Encoder().encode

Said = tuple[Incarnation, Hello]


class View(msgspec.Struct, frozen=True):
    """Installed when every member had answered; the same for all of them. Hellos are sorted by who said them."""

    id: Stamp
    company: Company
    hellos: tuple[Said, ...]

    @property
    def number(self) -> int:
        return number_of(self.id)

    @property
    def members(self) -> tuple[Incarnation, ...]:
        return self.company.members

    @property
    def log_level(self) -> int:
        """Who knows less than this cannot read the log, and has to go."""
        return max((node.log_level for _, hello in self.hellos for node in hello.nodes), default=FIRST_LEVEL)

    @property
    def level(self) -> int:
        """What all members know, but for those who have to go. It never falls below that of the log."""
        least = self.log_level
        return min((hello.level for _, hello in self.hellos if hello.level >= least), default=least)

    @property
    def is_whole(self) -> bool:
        """Nobody who is listed was left out. Those left out may be in a view of their own, of the same configuration:
        what was heard before both then counts as accepted in neither (docs/decisions/0009)."""
        return len(self.company.members) == len(self.company.listed)


def number_of(stamp: Stamp) -> int:
    return int.from_bytes(stamp[:_NUMBER_BYTES], "little")


def formed(company: Company, hellos: Iterable[Said]) -> View:
    """PROTOCOL 2: the id is the highest number that any member knows plus one, and a hash of the sorted hellos."""
    said = tuple(sorted(hellos, key=lambda each: each[0]))
    number = max(hello.number for _, hello in said) + 1
    told = _encode([(who, _hashed(hello)) for who, hello in said])
    digest = hashlib.blake2b(told, digest_size=STAMP_BYTES - _NUMBER_BYTES).digest()
    return View(Stamp(number.to_bytes(_NUMBER_BYTES, "little") + digest), company, said)


def _hashed(hello: Hello) -> tuple[object, ...]:
    *told, nodes = msgspec.structs.astuple(hello)[:_HASHED_OF_HELLO]
    return (*told, [msgspec.structs.astuple(node)[:_HASHED_OF_NODE] for node in nodes])


def straight(view: View) -> dict[Incarnation, tuple[Incarnation, ...]]:
    """PROTOCOL 2 ▲, "straight from W": for each member, those who came with it from the view that it was in last.

    Two came the same way if their last view is the same, each is in the other's `together`, the frames they heard
    since agree, and so do those they heard before it was installed, if they had come to it together. That
    alone need not be transitive: one may have seen a third away when the other did not. Those count as having come
    together who came the same way as exactly the same others, which is an equivalence and errs on the safe side.
    """
    ways = {who: _companions(view, who, hello) for who, hello in view.hellos}
    return {
        who: tuple(other for other in ways if ways[other] == way) if way else () for who, way in ways.items()
    }


def _companions(view: View, who: Incarnation, hello: Hello) -> tuple[Incarnation, ...]:
    if hello.last == NO_VIEW:
        return ()
    return tuple(other for other, said in view.hellos if _came_the_same_way(who, hello, other, said))


def _came_the_same_way(who: Incarnation, hello: Hello, other: Incarnation, said: Hello) -> bool:
    return (
        hello.last == said.last
        and other in hello.together
        and who in said.together
        and hello.frames == said.frames
        and (hello.way != said.way or hello.passage == said.passage)
    )


def way_of(view: View, who: Incarnation) -> bytes:
    """A name for those who came to this view straight with this member."""
    came = straight(view)[who] or (who,)
    return hashlib.blake2b(b"".join(came), digest_size=DIGEST_BYTES).digest()
