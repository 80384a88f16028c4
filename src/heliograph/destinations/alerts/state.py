"""What a channel knows, and every way in which that changes. Whoever leads changes it by facts, whoever recovers by
the records of the same changes: both come by here.
"""

from __future__ import annotations

from collections.abc import Iterable

from heliograph.cluster.ranges import NONE, Ranges, minus, union
from heliograph.destinations.alerts.live import Alert, LiveAlerts, alert_of
from heliograph.destinations.alerts.records import AlertRecord, SubscriberRecord, Trail
from heliograph.destinations.alerts.subscribers import Key, Subscriber, Subscribers, Wish
from heliograph.destinations.alerts.sweeping import Sweeping
from heliograph.destinations.alerts.trail import trail_of
from heliograph.model.alert import AlertId
from heliograph.model.alert_topics import Prefix, Topic
from heliograph.model.ids import LaneId, SessionId, session_of
from heliograph.model.limits import ENDED_ALERTS_REMEMBERED


class ChannelFacts:
    """One channel."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.live = LiveAlerts()
        self.leaving: dict[AlertId, Alert] = {}  # ended, and somebody may still hand it over
        self._leaving_by_index: dict[int, Alert] = {}
        self.subscribers = Subscribers()
        self.sweeping = Sweeping(self.live)
        self.lanes: dict[LaneId, Ranges] = {}  # which sequences of which lanes became alerts
        self.trails: dict[AlertId, Trail] = {}
        self.next_index = 1
        self.unsure = 0  # of arrivals up to here it may be that nobody knows whom they were handed to

    def named(self, identity: bytes) -> Alert | None:
        """Live, or on its way out."""
        return self.live.named(AlertId(identity)) or self.leaving.get(AlertId(identity))

    def at(self, index: int) -> Alert | None:
        return self.live.get(index) or self._leaving_by_index.get(index)

    # ---- alerts

    def has_sequence(self, lane: LaneId, sequence: int) -> bool:
        return any(first <= sequence <= last for first, last in self.lanes.get(lane, NONE))

    def last_sequence(self, lane: LaneId) -> int:
        """The highest that became an alert; 0: none did."""
        return max((last for _, last in self.lanes.get(lane, NONE)), default=0)

    def note_sequence(self, lane: LaneId, sequence: int) -> None:
        known = self.lanes.get(lane, NONE)
        if known and known[-1][1] + 1 == sequence:  # as it mostly is
            self.lanes[lane] = (*known[:-1], (known[-1][0], sequence))
        else:
            self.lanes[lane] = union(known, ((sequence, sequence),))

    def unnote_sequence(self, lane: LaneId, sequence: int) -> None:
        self.lanes[lane] = minus(self.lanes[lane], ((sequence, sequence),))

    def revive(self, record: AlertRecord) -> Alert:
        """An alert as its record has it."""
        self.next_index = max(self.next_index, record.index + 1)
        return alert_of(
            record.index,
            AlertId(record.id),
            LaneId(record.lane),
            record.sequence,
            header=record.header,
            user=record.user,
            arrived=record.arrived,
            body=record.body,
        )

    def goes_live(self, alert: Alert) -> None:
        self.live.add(alert)
        if alert.header.correlation:
            acknowledged = self.named(alert.header.correlation)
            if acknowledged is not None:
                acknowledged.acknowledged.append((alert.arrived, alert.user, alert.id, alert.index))

    def ended(self, alert: Alert, why: str, who: str, at: int) -> None:
        """It is not live any more; whoever was handed it may still have it."""
        self.live.remove(alert)
        alert.ended, alert.ended_by, alert.ended_at = why, who, at
        if alert.handed:
            self.leaving[alert.id] = self._leaving_by_index[alert.index] = alert
        else:
            self._bury(alert)

    def was_let_go(self, alert: Alert) -> bool:
        """Somebody has it no more. Whether it ended and nobody has."""
        if not alert.ended or alert.handed or alert.id not in self.leaving:
            return False
        del self.leaving[alert.id], self._leaving_by_index[alert.index]
        self._bury(alert)
        return True

    def restore_leaving(self, alert: Alert) -> None:
        self.leaving[alert.id] = self._leaving_by_index[alert.index] = alert

    def _bury(self, alert: Alert) -> None:
        self.trails[alert.id] = trail_of(alert, self.subscribers.label_of)
        while len(self.trails) > ENDED_ALERTS_REMEMBERED:
            del self.trails[next(iter(self.trails))]

    # ---- what subscribers have

    def was_handed(self, subscriber: Subscriber, alert: Alert) -> None:
        subscriber.waiting.pop(alert.index, None)
        subscriber.handed[alert.index] = None
        alert.handed[subscriber.number] = None

    def was_taken(self, subscriber: Subscriber, alert: Alert, at: int) -> bool:
        """Whether that is news."""
        self.let_go(subscriber, alert)
        subscriber.waiting.pop(alert.index, None)
        if subscriber.number in alert.taken:
            return False
        alert.taken[subscriber.number] = at
        return True

    def let_go(self, subscriber: Subscriber, alert: Alert) -> bool:
        """What a subscriber was handed is with it no more. Whether it was."""
        subscriber.maybe_seen.pop(alert.index, None)
        alert.handed.pop(subscriber.number, None)
        return subscriber.handed.pop(alert.index, 0) is None

    # ---- subscribers

    def subscriber_is(self, record: SubscriberRecord) -> Subscriber | None:
        """As a record says; None: it is over."""
        key: Key = (record.user, record.name, record.session, record.consumer)
        subscriber = self.subscribers.by_number.get(record.number)
        if record.gone:
            if subscriber is not None:
                self.forget(subscriber)
            return None
        if subscriber is None:
            subscriber = self.subscribers.make(record.number, key, record.clearance)
        subscriber.clearance = record.clearance
        wishes = wishes_of(record.wishes)
        for wish in [wish for wish in subscriber.wishes if wish not in wishes]:
            self.subscribers.unwish(subscriber, wish)
        for wish in [wish for wish in wishes if wish not in subscriber.wishes]:
            self.subscribers.wish(subscriber, wish)
        return subscriber

    def record_of(self, subscriber: Subscriber, *, gone: bool = False) -> SubscriberRecord:
        wishes = [(kind, str(topic.prefix), topic.text) for kind, topic in subscriber.wishes]
        return SubscriberRecord(
            self.number, subscriber.number, *subscriber.key, subscriber.clearance, wishes, gone
        )

    def forget(self, subscriber: Subscriber) -> list[Alert]:
        """It is over. Returns what it was handed."""
        had = [alert for alert in map(self.at, list(subscriber.handed)) if alert is not None]
        for alert in had:
            self.let_go(subscriber, alert)
            self.was_let_go(alert)
        self.subscribers.forget(subscriber)
        return had

    def session_ended(self, session: SessionId, *, but_marks: bool) -> list[Alert]:
        """Subscribers that end with it. Returns what they were handed. `but_marks`: another part of the cluster may
        have alerts of its lanes."""
        had: list[Alert] = []
        for subscriber in self.subscribers.of_session(session):
            had += self.forget(subscriber)
        if not but_marks:
            for lane in [lane for lane in self.lanes if session_of(lane) == session]:
                del self.lanes[lane]
        return had

    def wanted_still(self, subscriber: Subscriber, alert: Alert) -> bool:
        """Whether one of its topics means it, and it may see it."""
        return alert.is_visible(subscriber.clearance) and any(
            kind == alert.header.type and self.sweeping.matches(topic, alert.topic)
            for kind, topic in subscriber.wishes
        )

    def needless(self) -> list[Subscriber]:
        """Subscribers who want nothing and of whom no live alert needs to know that they had it."""
        idle = {each.number: each for each in self.subscribers if not each.wishes and each.attachment is None}
        if idle:
            for alert in (*self.live, *self.leaving.values()):
                for number in (*alert.taken, *alert.handed):
                    idle.pop(number, None)
        return list(idle.values())


def wishes_of(wishes: Iterable[tuple[int, str, str]]) -> dict[Wish, None]:
    return {(kind, Topic(Prefix(prefix), text)): None for kind, prefix, text in wishes}
