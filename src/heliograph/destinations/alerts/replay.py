"""Records and snapshots back to a channel.

Nobody is matched while this goes on: what a subscriber has to get is found by a sweep when somebody first takes its
alerts, from its marks on (A7).
"""

from __future__ import annotations

from heliograph.destinations.alerts.channel import AlertChannel
from heliograph.destinations.alerts.live import Alert
from heliograph.destinations.alerts.publishing import record_of
from heliograph.destinations.alerts.records import (
    AlertRecord,
    AlertState,
    ChannelState,
    EndedRecord,
    HandedRecord,
    SubscriberRecord,
    SubscriberState,
    TakenRecord,
    decode,
    decode_channel,
    encode,
)
from heliograph.destinations.alerts.state import ChannelFacts
from heliograph.destinations.alerts.subscribers import Subscriber
from heliograph.destinations.alerts.sweeping import NO_MARKS
from heliograph.model.alert import AcknowledgePolicy, AlertId
from heliograph.model.ids import LaneId


def replay(channel: AlertChannel, kind: int, payload: bytes | memoryview) -> None:
    """One record. It may have been applied before: a snapshot is older than what it was taken beside."""
    facts = channel.facts
    match decode(kind, payload):
        case AlertRecord() as record:
            _published(facts, record)
        case HandedRecord(groups=groups):
            for index, numbers in groups:
                _handed(facts, index, numbers)
        case TakenRecord() as record:
            _taken(facts, record)
        case EndedRecord(indexes=indexes, why=why, who=who, at=at):
            for index in indexes:
                alert = facts.live.get(index)
                if alert is not None:
                    facts.ended(alert, why, who, at)
        case SubscriberRecord() as record:
            _subscriber(facts, record)


def _published(facts: ChannelFacts, record: AlertRecord) -> None:
    lane = LaneId(record.lane)
    if not facts.has_sequence(lane, record.sequence):
        facts.note_sequence(lane, record.sequence)
        facts.goes_live(facts.revive(record))


def _handed(facts: ChannelFacts, index: int, numbers: list[int]) -> None:
    alert = facts.live.get(index)
    for number in numbers if alert is not None else ():
        subscriber = facts.subscribers.by_number.get(number)
        if subscriber is not None and alert is not None and number not in alert.taken:
            facts.was_handed(subscriber, alert)


def _taken(facts: ChannelFacts, record: TakenRecord) -> None:
    subscriber = facts.subscribers.by_number.get(record.subscriber)
    if subscriber is None:
        return
    for index in record.taken:
        alert = facts.at(index)
        if alert is not None:
            is_news = facts.was_taken(subscriber, alert, record.at)
            if is_news and alert.header.acknowledge_policy == AcknowledgePolicy.RECEIPT:
                alert.receipts.append((record.at, record.subscriber))
            facts.was_let_go(alert)
    for index in record.dropped:
        alert = facts.at(index)
        if alert is not None and facts.let_go(subscriber, alert):
            facts.was_let_go(alert)
            if not alert.ended:
                _look_again(subscriber, alert)


def _look_again(subscriber: Subscriber, alert: Alert) -> None:
    """It has to be found by the sweep that is to come."""
    for sweep in subscriber.sweeps:
        after = sweep.after
        after[alert.header.priority] = min(after[alert.header.priority], alert.index - 1)


def _subscriber(facts: ChannelFacts, record: SubscriberRecord) -> None:
    known = facts.subscribers.by_number.get(record.number)
    before = dict(known.wishes) if known is not None else {}
    cleared = known.clearance if known is not None else record.clearance
    subscriber = facts.subscriber_is(record)
    if subscriber is None:
        return
    if cleared < record.clearance or any(wish not in before for wish in subscriber.wishes):
        _sweep_later(facts, subscriber, list(NO_MARKS))  # of what it wants since then, all is to be found
    elif not subscriber.wishes:
        subscriber.sweeps.clear()
    for sweep in subscriber.sweeps:
        sweep.wishes = [wish for wish in subscriber.wishes if wish[0] == sweep.wishes[0][0]]
    subscriber.sweeps = [sweep for sweep in subscriber.sweeps if sweep.wishes]


def _sweep_later(facts: ChannelFacts, subscriber: Subscriber, marks: list[int]) -> None:
    """When it is attached, it looks through all that is live then."""
    subscriber.sweeps.clear()
    facts.sweeping.begin_later(subscriber, marks)


def machine_was_lost(channel: AlertChannel) -> None:
    """With its last records, that is: whoever has not taken an alert may have been handed it all the same."""
    channel.facts.unsure = channel.facts.next_index
    for subscriber in channel.facts.subscribers:
        subscriber.unsure = channel.facts.next_index


# ---- snapshots


def state_of(channel: AlertChannel) -> bytes:
    """All that is persistent."""
    facts = channel.facts
    alerts = [_alert_state(facts, alert) for alert in (*facts.live, *facts.leaving.values())]
    pending = [AlertState(record, [], [], [], []) for record in channel.publishing.pending_records()]
    subscribers = [
        SubscriberState(facts.record_of(each), facts.sweeping.marks_of(each), each.unsure)
        for each in facts.subscribers
    ]
    named = {number: None for alert in facts.live for number in alert.taken}
    facts.subscribers.labels = {
        number: label for number, label in facts.subscribers.labels.items() if number in named
    }
    state = ChannelState(
        facts.next_index,
        facts.subscribers.next_number,
        [*(each for each in alerts if each is not None), *pending],
        subscribers,
        [(lane, list(ranges)) for lane, ranges in facts.lanes.items()],
        list(facts.trails.values()),
        list(facts.subscribers.labels.items()),
    )
    return encode(state)


def _alert_state(facts: ChannelFacts, alert: Alert) -> AlertState | None:
    if not alert.header.persistent:
        return None
    return AlertState(
        record_of(facts.number, alert),
        list(alert.taken.items()),
        list(alert.handed),
        alert.acknowledged,
        alert.receipts,
        alert.ended,
        alert.ended_by,
        alert.ended_at,
    )


def restore(channel: AlertChannel, payload: bytes) -> None:
    facts, state = channel.facts, decode_channel(payload)
    for each in state.subscribers:
        subscriber = facts.subscriber_is(each.record)
        assert subscriber is not None, "who is gone is in no snapshot"
        _sweep_later(facts, subscriber, each.marks)
        subscriber.unsure = each.unsure
        facts.unsure = max(facts.unsure, each.unsure)
    for kept in sorted(state.alerts, key=_index):
        _restore_alert(facts, kept)
    facts.next_index = max(facts.next_index, state.next_index)
    facts.subscribers.next_number = max(facts.subscribers.next_number, state.next_subscriber)
    facts.subscribers.labels = dict(state.labels)
    facts.lanes = {LaneId(lane): tuple(ranges) for lane, ranges in state.lanes}
    facts.trails = {AlertId(trail.id): trail for trail in state.trails}


def _restore_alert(facts: ChannelFacts, kept: AlertState) -> None:
    alert = facts.revive(kept.record)
    alert.taken, alert.acknowledged, alert.receipts = dict(kept.taken), kept.acknowledged, kept.receipts
    alert.ended, alert.ended_by, alert.ended_at = kept.ended, kept.ended_by, kept.ended_at
    for number in kept.handed:
        subscriber = facts.subscribers.by_number.get(number)
        if subscriber is not None:
            facts.was_handed(subscriber, alert)
    if alert.ended:
        facts.restore_leaving(alert)
    else:
        facts.live.add(alert)


def _index(kept: AlertState) -> int:
    return kept.record.index
