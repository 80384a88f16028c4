"""What two parts of a cluster have of a channel, as one (P4, docs/decisions/0018).

Lane and sequence name an alert everywhere, user and name a subscriber. So what is known in one part and not in the
other is new there; what is known in both and live in one has ended in the other, and ends; what was taken anywhere is
taken. The records that say so are made one after the other, each when those before it were applied.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from heliograph.cluster.ranges import Ranges
from heliograph.destinations.alerts.channel import AlertChannel
from heliograph.destinations.alerts.live import Alert
from heliograph.destinations.alerts.records import (
    CANCELLED,
    AlertRecord,
    AlertState,
    ChannelState,
    EndedRecord,
    HandedRecord,
    Recorded,
    SubscriberRecord,
    TakenRecord,
    Trail,
)
from heliograph.destinations.alerts.state import ChannelFacts
from heliograph.model.ids import LaneId


def union_of(channel: AlertChannel, theirs: ChannelState) -> Iterator[Recorded]:
    """What has to be written so that a channel has what the other part had. It is not handing anything out now."""
    facts = channel.facts
    numbers: dict[int, int] = {}
    for each in theirs.subscribers:
        yield from _subscriber(facts, each.record, numbers)
    known = {LaneId(lane): tuple(ranges) for lane, ranges in theirs.lanes}
    live = {(each.record.lane, each.record.sequence): each for each in theirs.alerts if not each.ended}
    trails = {(trail.lane, trail.sequence): trail for trail in theirs.trails}
    for alert in list(facts.live):
        place = (alert.lane, alert.sequence)
        if alert.header.persistent and place not in live and _has(known, alert):
            yield _ended(facts, alert, trails.get(place))
    for kept in sorted(live.values(), key=_arrived):
        yield from _alert(facts, kept, numbers)
    for trail in theirs.trails:
        yield from _over(facts, trail)


def _subscriber(facts: ChannelFacts, record: SubscriberRecord, numbers: dict[int, int]) -> Iterator[Recorded]:
    """Of one that both have, the topics here stay."""
    key = (record.user, record.name, record.session, record.consumer)
    here = facts.subscribers.get(key)
    if here is not None:
        numbers[record.number] = here.number
        return
    numbers[record.number] = facts.subscribers.next_number
    yield msgspec.structs.replace(record, channel=facts.number, number=facts.subscribers.next_number)


def _has(known: dict[LaneId, Ranges], alert: Alert) -> bool:
    return any(first <= alert.sequence <= last for first, last in known.get(alert.lane, ()))


def _ended(facts: ChannelFacts, alert: Alert, trail: Trail | None) -> EndedRecord:
    last = trail.entries[-1] if trail is not None else None
    why, who, at = (last.what, last.who, last.at) if last is not None else (CANCELLED, "", alert.arrived)
    return EndedRecord(facts.number, [alert.index], why, who, at)


def _alert(facts: ChannelFacts, kept: AlertState, numbers: dict[int, int]) -> Iterator[Recorded]:
    record = kept.record
    if not facts.has_sequence(LaneId(record.lane), record.sequence):
        yield msgspec.structs.replace(record, channel=facts.number, index=facts.next_index)
    alert = facts.named(record.id)
    if alert is None or alert.ended:
        return
    for number, at in kept.taken:
        if number in numbers and numbers[number] not in alert.taken:
            yield TakenRecord(facts.number, numbers[number], at, [alert.index], [])
    handed = [numbers[number] for number in kept.handed if number in numbers]
    if handed:
        yield HandedRecord(facts.number, [(alert.index, handed)])


def _over(facts: ChannelFacts, trail: Trail) -> Iterator[Recorded]:
    """It came and went in the other part: whoever sends it again is told that it was there."""
    if not trail.lane or facts.has_sequence(LaneId(trail.lane), trail.sequence):
        return
    first, last = trail.entries[0], trail.entries[-1]
    index = facts.next_index
    yield AlertRecord(
        facts.number, index, trail.id, trail.lane, trail.sequence, trail.header, first.who, first.at, b""
    )
    yield EndedRecord(facts.number, [index], last.what, last.who, last.at)


def _arrived(kept: AlertState) -> int:
    return kept.record.arrived
