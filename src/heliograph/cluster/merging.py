"""What has to travel when parts meet, so that every message manager has the union (P6).

Each manager summarises what it did since the fork, the last place that all of their logs have in common: per lane
which messages it accepted, which are done and which are with a consumer, and what was ended for good. Everybody hears
all summaries and makes the same plan of them. A message that is done anywhere is done, and its body goes nowhere:
*done outlives the message*. One that a consumer has anywhere stays with it. What is planned is the difference,
whatever the size of the stores, and a plan depends on nothing but the summaries: who was interrupted summarises
again, and the next plan has the rest. When a plan is empty, the union is complete.

Of a topic nothing is done as such: each subscription is a place of its own, with done-marks and no bodies, and the
bodies go to everybody, since every subscription of every part is to get them (P4).

Lanes have nothing to do with each other, so summaries and plans can be told in pieces of any number of lanes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from heliograph.cluster.ranges import NONE, Ranges, common, minus, union
from heliograph.model.destination import Address
from heliograph.model.ids import ConsumerId, LaneId


class Done(msgspec.Struct, frozen=True, array_like=True):
    """Done-marks as they are kept and told: everything up to a sequence, but for some."""

    upto: int = 0
    but_for: Ranges = NONE

    @property
    def ranges(self) -> Ranges:
        return minus(((1, self.upto),), self.but_for) if self.upto else NONE


def done_of(ranges: Ranges) -> Done:
    upto = ranges[-1][1] if ranges else 0
    return Done(upto, minus(((1, upto),), ranges) if upto else NONE)


class LaneSummary(msgspec.Struct, frozen=True, array_like=True):
    """Of one lane, since the fork. What is done may have been accepted before it."""

    accepted: Ranges = NONE
    done: Done = Done()
    held: tuple[tuple[ConsumerId, Ranges], ...] = ()  # handed out and not settled, in doubt or not

    @property
    def known(self) -> Ranges:
        return union(self.accepted, self.done.ranges)

    def held_by(self, consumer: ConsumerId) -> Ranges:
        return union(*(ranges for who, ranges in self.held if who == consumer))


class Tombstone(msgspec.Struct, frozen=True, array_like=True, order=True):
    """Something that ended for good: a subscription, a destination, a session, a message that moved."""

    kind: str
    name: bytes


Place = tuple[Address, str, LaneId]
"""Destination, subscription (of a topic; empty: the destination itself), lane."""

Lanes = list[tuple[bytes, LaneSummary]]
"""One place in all summaries."""


class Summary(msgspec.Struct, frozen=True):
    """What one message manager, named by its store, did since the fork. Where nothing happened is left out."""

    store: bytes
    lanes: Mapping[Place, LaneSummary]
    tombstones: tuple[Tombstone, ...] = ()


class Transfer(msgspec.Struct, frozen=True):
    """Bodies that go from one manager to another."""

    source: bytes
    target: bytes
    place: Place
    sequences: Ranges


class Marking(msgspec.Struct, frozen=True):
    """A manager notes that these are done. Nothing travels: it has heard so in the summaries."""

    target: bytes
    place: Place
    sequences: Ranges


class Keeping(msgspec.Struct, frozen=True):
    """A manager notes that a consumer has these."""

    target: bytes
    place: Place
    consumer: ConsumerId
    sequences: Ranges


class Burial(msgspec.Struct, frozen=True):
    """A manager notes what has ended."""

    target: bytes
    tombstones: tuple[Tombstone, ...]


class Plan(msgspec.Struct, frozen=True):
    """What is missing where. Markings and keepings come first: a body that comes is then not taken for a free one."""

    markings: tuple[Marking, ...] = ()
    keepings: tuple[Keeping, ...] = ()
    burials: tuple[Burial, ...] = ()
    transfers: tuple[Transfer, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.markings or self.keepings or self.burials or self.transfers)


def plan_of(summaries: Sequence[Summary]) -> Plan:
    """`summaries`: of every message manager of the view, in the order in which they are to be asked for bodies."""
    markings: list[Marking] = []
    keepings: list[Keeping] = []
    transfers: list[Transfer] = []
    for place in _places(summaries):
        lanes = [(each.store, each.lanes.get(place, LaneSummary())) for each in summaries]
        done = union(*(lane.done.ranges for _, lane in lanes))
        markings += _markings(place, lanes, done)
        keepings += _keepings(place, lanes, done)
        transfers += _transfers(place, lanes, done)
    return Plan(tuple(markings), tuple(keepings), _burials(summaries), tuple(transfers))


def _places(summaries: Sequence[Summary]) -> list[Place]:
    return sorted(dict.fromkeys(place for each in summaries for place in each.lanes))


def _markings(place: Place, lanes: Lanes, done: Ranges) -> Iterable[Marking]:
    for store, lane in lanes:
        missing = minus(done, lane.done.ranges)
        if missing:
            yield Marking(store, place, missing)


def _keepings(place: Place, lanes: Lanes, done: Ranges) -> Iterable[Keeping]:
    consumers = sorted(dict.fromkeys(consumer for _, lane in lanes for consumer, _ in lane.held))
    for consumer in consumers:
        held = minus(union(*(lane.held_by(consumer) for _, lane in lanes)), done)
        for store, lane in lanes:
            missing = minus(held, lane.held_by(consumer))
            if missing:
                yield Keeping(store, place, consumer, missing)


def _transfers(place: Place, lanes: Lanes, done: Ranges) -> Iterable[Transfer]:
    """Each missing body once, from the first who has it. Nobody needs what is done."""
    wanted = minus(union(*(lane.accepted for _, lane in lanes)), done)
    for target, lane in lanes:
        missing = minus(wanted, lane.accepted)
        for source, other in lanes:
            found = common(missing, other.accepted)
            if found:
                yield Transfer(source, target, place, found)
                missing = minus(missing, found)


def _burials(summaries: Sequence[Summary]) -> tuple[Burial, ...]:
    ended = sorted(dict.fromkeys(stone for each in summaries for stone in each.tombstones))
    found = []
    for each in summaries:
        had = dict.fromkeys(each.tombstones)
        missing = tuple(stone for stone in ended if stone not in had)
        if missing:
            found.append(Burial(each.store, missing))
    return tuple(found)


def reached(mark: int, known: Ranges) -> int:
    """P7: the last sequence of a lane up to which nothing is missing, where everything was known up to `mark` at the
    fork and `known` has come since. What lies behind waits until the gap is filled."""
    for first, last in known:
        if first > mark + 1:
            break
        mark = max(mark, last)
    return mark
