"""An alert channel: facts, answers of the journal and time in, effects out. Nothing here reads a clock.

publish, acknowledge ──▶ publishing ──▶ live ──▶ handing ──▶ subscribers ──▶ taken
cancel, time ──────────▶ ending ──────────────▶ withdrawn ─────────────────▶ confirmed
attach, topics ────────▶ here ──▶ sweeping
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any, Final

from heliograph.bus.commands import (
    AlertAcknowledged,
    AlertAudited,
    AlertCancelled,
    AlertPublished,
    AlertsAttached,
    AlertsClosed,
    AlertsDetached,
    AlertsListed,
    AlertsTaken,
    AlertTopicsChanged,
    AlertWithdrawn,
    Answered,
)
from heliograph.destinations.alerts.ending import Ending, unknown
from heliograph.destinations.alerts.handing import Handing, write
from heliograph.destinations.alerts.live import PRIORITIES, Alert
from heliograph.destinations.alerts.publishing import Publishing, TokenOf, refusal_of
from heliograph.destinations.alerts.records import WITH_ITS_ALERT, TakenRecord
from heliograph.destinations.alerts.state import ChannelFacts, wishes_of
from heliograph.destinations.alerts.subscribers import Attachment, Key, Subscriber, Wish
from heliograph.destinations.alerts.sweeping import Budget
from heliograph.destinations.alerts.trail import shown_alert, shown_trail, trail_of
from heliograph.destinations.effects import Announce, AnyEffect, Continue, Multicast, Wake
from heliograph.destinations.events import (
    AlertRefused,
    AlertStored,
    AttendantsLost,
    Swept,
    TimeCame,
    TurnCame,
)
from heliograph.model.alert import AlertId, AlertType, Classification
from heliograph.model.destination import Address
from heliograph.model.errors import ClientFault, Unavailable
from heliograph.model.ids import SessionId
from heliograph.model.limits import (
    ALERTS_PER_PAGE,
    MAX_ALERT_CREDIT,
    MAX_ALERT_SUBSCRIBERS,
    MAX_TOPICS_PER_SUBSCRIBER,
)

AlertFact = (
    AlertPublished
    | AlertAcknowledged
    | AlertCancelled
    | AlertsAttached
    | AlertTopicsChanged
    | AlertsDetached
    | AlertsTaken
    | AlertsListed
    | AlertAudited
)
ALERT_FACTS: Final = (
    AlertPublished,
    AlertAcknowledged,
    AlertCancelled,
    AlertsAttached,
    AlertTopicsChanged,
    AlertsDetached,
    AlertsTaken,
    AlertsListed,
    AlertAudited,
)
ChannelEvent = AlertFact | AlertStored | AlertRefused | AttendantsLost | TurnCame | TimeCame | Swept


class AlertChannel:
    """One channel."""

    def __init__(self, address: Address, number: int, *, token_of: TokenOf, doubt: int) -> None:
        """`doubt`: microseconds after which a client that is cut off hands nothing over any more."""
        self.address = address
        self.facts = ChannelFacts(number)
        self._doubt = doubt
        self.handing = Handing(address, self.facts)
        self.ending = Ending(self.facts, self.handing)
        self.publishing = Publishing(self.facts, self.handing, self.ending, token_of)
        self._is_new = True
        self._due = 0
        self.last_moment = 0  # of an event
        self._handlers: dict[type, Callable[..., None]] = {
            AlertPublished: self._publish,
            AlertAcknowledged: self._acknowledge,
            AlertCancelled: self._cancel,
            AlertsAttached: self._attach,
            AlertTopicsChanged: self._change_topics,
            AlertsDetached: self._detach,
            AlertsTaken: self._taken,
            AlertsListed: self._list,
            AlertAudited: self._audit,
            AlertStored: self._stored,
            AlertRefused: self._refused,
            AttendantsLost: self._lost,
            TurnCame: self._turn_came,
            TimeCame: self._time_came,
            Swept: self._time_came,
        }

    def handle(self, event: ChannelEvent, now: int) -> list[AnyEffect]:
        effects: list[AnyEffect] = []
        self.last_moment = now
        if self._is_new:
            self._begin(now, effects)
        try:
            self._handlers[type(event)](event, now, effects)
        except (ClientFault, Unavailable) as fault:
            effects.append(refusal_of(event.request, fault))  # type: ignore[union-attr]
        self._settle(effects)
        return effects

    def hand_out(self, now: int) -> list[AnyEffect]:
        """Everybody gets what waited while nothing was handed out."""
        effects: list[AnyEffect] = []
        self.handing.everybody(now)
        self._settle(effects)
        return effects

    def recovered(self) -> None:
        """All of it was found in a journal, and somebody else may have led until now."""
        self._is_new = True

    def _begin(self, now: int, effects: list[AnyEffect]) -> None:
        """The first event since the channel was made, or found in a journal: who was attached may have what it was
        handed, and acknowledgements do not outlive their alerts."""
        self._is_new = False
        facts = self.facts
        for subscriber in facts.subscribers:
            subscriber.doubt_until = now + self._doubt
        orphans = [
            alert
            for alert in facts.live
            if alert.header.correlation and facts.live.named(AlertId(alert.header.correlation)) is None
        ]
        self.ending.end(orphans, WITH_ITS_ALERT, "", now, effects)

    def _settle(self, effects: list[AnyEffect]) -> None:
        """What every event ends with: who cancelled hears of what is gone, and what was handed out leaves."""
        self.ending.confirm(effects)
        self.handing.leave(effects)
        if self.handing.is_hungry:
            effects.append(Continue())
        due = self.next_due
        if due and (not self._due or due < self._due):
            effects.append(Wake(due))
        self._due = due

    # ---- publishing and ending

    def _publish(self, fact: AlertPublished, now: int, effects: list[AnyEffect]) -> None:
        self.publishing.publish(fact, now, effects)

    def _acknowledge(self, fact: AlertAcknowledged, now: int, effects: list[AnyEffect]) -> None:
        self.publishing.acknowledge(fact, now, effects)

    def _stored(self, event: AlertStored, now: int, effects: list[AnyEffect]) -> None:
        self.publishing.stored(event, now, effects)

    def _refused(self, event: AlertRefused, now: int, effects: list[AnyEffect]) -> None:
        self.publishing.refused(event, now, effects)

    def _cancel(self, fact: AlertCancelled, now: int, effects: list[AnyEffect]) -> None:
        self.ending.cancel(AlertId(fact.alert), fact.user, fact.clearance, fact.request, now, effects)

    # ---- time

    @property
    def next_due(self) -> int:
        """When something expires or a doubt ends; 0: never."""
        dues = [due for due in (self.facts.live.next_expiry, self.ending.next_due) if due]
        return min(dues, default=0)

    def _time_came(self, _event: TimeCame | Swept, now: int, effects: list[AnyEffect]) -> None:
        self.ending.expire(now, effects)
        effects += self.ending.end_doubts(now)

    def _turn_came(self, _event: TurnCame, now: int, _effects: list[AnyEffect]) -> None:
        self.handing.turn(now)

    # ---- subscribers

    def _attach(self, fact: AlertsAttached, now: int, effects: list[AnyEffect]) -> None:
        """Raises ClientFault or Unavailable."""
        subscriber = self._subscriber_of(fact, effects)
        held = dict.fromkeys(fact.held)
        same = subscriber.session is not None or subscriber.last_session == fact.session
        effects += self.handing.taken(subscriber, fact.taken, (), now)
        self._let_go_but(subscriber, held, now, effects, maybe_seen=not same)
        credit = min(max(fact.credit, 1), MAX_ALERT_CREDIT)
        self.facts.subscribers.attach(subscriber, Attachment(fact.session, fact.number, credit))
        self._want(subscriber, wishes_of(fact.topics), fact.clearance, effects)
        for identity in held:
            alert = self.facts.named(identity)
            if alert is not None:
                self._still_has(subscriber, alert, effects)
        gone = [identity for identity in held if self.facts.named(identity) is None]
        unwanted = [alert.id for alert in self._no_longer_wanted(subscriber)]
        for identity in (*gone, *unwanted):  # it ended, or was unsubscribed from, while its client was away
            effects.append(Multicast(AlertWithdrawn(identity, [(fact.session, fact.number)])))
        if fact.request:
            effects.append(Announce(Answered(fact.request, {})))
        self.handing.hand_out(subscriber, now, Budget())

    def _subscriber_of(self, fact: AlertsAttached, effects: list[AnyEffect]) -> Subscriber:
        """Found or made. Raises ClientFault while somebody else has it."""
        key: Key = (fact.user, fact.name, b"" if fact.name else fact.session, 0 if fact.name else fact.number)
        subscribers = self.facts.subscribers
        found = subscribers.get(key)
        if found is not None:
            where = found.attachment
            if where is not None and (where.session, where.number) != (fact.session, fact.number):
                raise ClientFault(
                    f"{fact.name!r} takes alerts of {self.address} elsewhere: end that first, or use another name",
                    code="subscription-in-use",
                )
            return found
        if subscribers.attached_as(fact.session, fact.number) is not None:
            raise ClientFault(f"there is a consumer {fact.number} already", code="consumer-exists")
        if len(subscribers) >= MAX_ALERT_SUBSCRIBERS:
            self._forget_needless(effects)
        if len(subscribers) >= MAX_ALERT_SUBSCRIBERS:
            raise Unavailable(
                f"the channel has {MAX_ALERT_SUBSCRIBERS:,} subscribers", code="too-many-consumers"
            )
        return subscribers.make(subscribers.next_number, key, fact.clearance)

    def _let_go_but(
        self,
        subscriber: Subscriber,
        held: dict[bytes, None],
        now: int,
        effects: list[AnyEffect],
        *,
        maybe_seen: bool,
    ) -> None:
        """Of what it was handed it has only this. The rest waits again; `maybe_seen`: its former life may have
        handed it over."""
        record = TakenRecord(self.facts.number, subscriber.number, now, [], [])
        for index in list(subscriber.handed):
            alert = self.facts.at(index)
            if alert is not None and alert.id not in held:
                self.handing.drop(subscriber, alert, record)
                if maybe_seen and not alert.ended:
                    subscriber.maybe_seen[index] = None
        self.handing.note(record, effects)

    def _still_has(self, subscriber: Subscriber, alert: Alert, effects: list[AnyEffect]) -> None:
        """A client came back with something in its hands."""
        if subscriber.number in alert.taken:
            return
        if alert.index not in subscriber.handed and alert.is_visible(subscriber.clearance):
            self.facts.was_handed(subscriber, alert)
        if alert.ended:
            effects += self.handing.withdraw(alert)

    def _want(
        self, subscriber: Subscriber, wishes: dict[Wish, None], clearance: int, effects: list[AnyEffect]
    ) -> None:
        """From here on a subscriber wants these. Raises ClientFault."""
        if len(wishes) > MAX_TOPICS_PER_SUBSCRIBER:
            raise ClientFault(
                f"a subscriber has at most {MAX_TOPICS_PER_SUBSCRIBER} topics", code="topic-invalid"
            )
        facts = self.facts
        added = [wish for wish in wishes if wish not in subscriber.wishes]
        removed = [wish for wish in subscriber.wishes if wish not in wishes]
        is_cleared_for_more = clearance > subscriber.clearance
        is_changed = bool(added or removed) or clearance != subscriber.clearance
        subscriber.clearance = clearance
        for wish in removed:
            facts.subscribers.unwish(subscriber, wish)
        for wish in added:
            facts.subscribers.wish(subscriber, wish)
        if is_changed:
            effects.append(write(facts.record_of(subscriber), wait=True))
        if removed:
            self._forget_unwanted(subscriber)
        self._sweep_for(subscriber, list(wishes) if is_cleared_for_more else added, removed)

    def _sweep_for(self, subscriber: Subscriber, added: list[Wish], removed: list[Wish]) -> None:
        if removed:
            for sweep in list(subscriber.sweeps):
                sweep.wishes = [wish for wish in sweep.wishes if wish in subscriber.wishes]
                if not sweep.wishes:
                    subscriber.sweeps.remove(sweep)
        self.facts.sweeping.begin(subscriber, added, self.facts.next_index - 1)

    def _forget_unwanted(self, subscriber: Subscriber) -> None:
        for index in list(subscriber.waiting):
            alert = self.facts.live.get(index)
            if alert is None or not self.facts.wanted_still(subscriber, alert):
                del subscriber.waiting[index]

    def _no_longer_wanted(self, subscriber: Subscriber) -> list[Alert]:
        """What it was handed and does not want, whenever it said so."""
        handed = [alert for alert in map(self.facts.at, subscriber.handed) if alert is not None]
        return [alert for alert in handed if not self.facts.wanted_still(subscriber, alert)]

    def _change_topics(self, fact: AlertTopicsChanged, now: int, effects: list[AnyEffect]) -> None:
        """Raises ClientFault."""
        subscriber = self._attached(fact.session, fact.number)
        removed = wishes_of(fact.removed)
        wishes = {wish: None for wish in subscriber.wishes if wish not in removed}
        wishes.update(wishes_of(fact.added))
        self._want(subscriber, wishes, subscriber.clearance, effects)
        # It has them until it says that it dropped them: whoever cancels one of them waits for that.
        unwanted = self._no_longer_wanted(subscriber) if removed else []
        # Not when it is stored: what is handed out from here on must come behind it.
        effects.append(Multicast(Answered(fact.request, {"withdrawn": [alert.id for alert in unwanted]})))
        self.handing.hand_out(subscriber, now, Budget())

    def _detach(self, fact: AlertsDetached, now: int, effects: list[AnyEffect]) -> None:
        subscriber = self.facts.subscribers.attached_as(fact.session, fact.number)
        if subscriber is not None:
            self._leave(subscriber, now, effects)
            if fact.unsubscribe:
                self._want(subscriber, {}, subscriber.clearance, effects)
        effects.append(Announce(Answered(fact.request, {})))

    def _leave(self, subscriber: Subscriber, now: int, effects: list[AnyEffect]) -> None:
        """Its client hands nothing over any more."""
        self._let_go_but(subscriber, {}, now, effects, maybe_seen=False)
        self.facts.subscribers.detach(subscriber)
        subscriber.doubt_until = 0

    def _attached(self, session: SessionId, number: int) -> Subscriber:
        subscriber = self.facts.subscribers.attached_as(session, number)
        if subscriber is None:
            raise ClientFault(f"there is no consumer {number} of {self.address}", code="consumer-unknown")
        return subscriber

    def _taken(self, fact: AlertsTaken, now: int, effects: list[AnyEffect]) -> None:
        """Raises ClientFault."""
        subscriber = self._attached(fact.session, fact.number)
        effects += self.handing.taken(subscriber, fact.taken, fact.dropped, now)
        if fact.request:
            effects.append(Announce(Answered(fact.request, {})))
        self.handing.hand_out(subscriber, now, Budget())

    # ---- sessions

    def _lost(self, event: AttendantsLost, _now: int, _effects: list[AnyEffect]) -> None:
        for subscriber in self.facts.subscribers.attached_in(event.session):
            self.facts.subscribers.detach(subscriber)
            subscriber.doubt_until = event.until

    def session_closed(self, session: SessionId, now: int) -> list[AnyEffect]:
        """Its client has left for good; what it had it hands over no more."""
        effects: list[AnyEffect] = []
        for subscriber in self.facts.subscribers.attached_in(session):
            self._leave(subscriber, now, effects)
        self._settle(effects)
        return effects

    def session_forgotten(self, session: SessionId, *, but_marks: bool) -> list[AnyEffect]:
        """Subscribers without a name end with it. Recovery comes by here, too, and drops the effects."""
        effects: list[AnyEffect] = []
        for alert in self.facts.session_ended(session, but_marks=but_marks):
            if alert.ended and not alert.handed:
                self.handing.gone(alert)
        self.ending.confirm(effects)
        return effects

    def _forget_needless(self, effects: list[AnyEffect]) -> None:
        for subscriber in self.facts.needless():
            effects.append(write(self.facts.record_of(subscriber, gone=True)))
            self.facts.forget(subscriber)

    def close(self, code: str, sentence: str) -> list[AnyEffect]:
        """The channel is deleted."""
        return [
            Multicast(AlertsClosed(where.session, where.number, code, sentence))
            for subscriber in self.facts.subscribers
            if (where := subscriber.attachment) is not None
        ]

    # ---- for those who look

    def _list(self, fact: AlertsListed, _now: int, effects: list[AnyEffect]) -> None:
        """Raises ClientFault."""
        start = self._rank_of(AlertId(fact.after), fact.clearance) if fact.after else None
        wishes = wishes_of(fact.topics)
        found = (
            alert
            for alert in self._in_order()
            if alert.is_visible(fact.clearance)
            and (start is None or alert.rank > start)
            and (not wishes or self._is_meant(alert, wishes))
        )
        page = list(islice(found, ALERTS_PER_PAGE + 1))
        body: dict[str, Any] = {
            "alerts": [shown_alert(alert) for alert in page[:ALERTS_PER_PAGE]],
            "next": page[ALERTS_PER_PAGE - 1].id if len(page) > ALERTS_PER_PAGE else b"",
            "live": self.count(fact.clearance),
        }
        effects.append(Multicast(Answered(fact.request, body)))

    def _rank_of(self, identity: AlertId, clearance: int) -> tuple[int, int]:
        alert = self.facts.named(identity)
        if alert is not None and alert.is_visible(clearance):
            return alert.rank
        trail = self.facts.trails.get(identity)
        if trail is None or trail.header.classification > clearance:
            raise unknown(identity)
        return trail.rank

    def _in_order(self) -> Any:
        levels = self.facts.live.levels
        for priority in PRIORITIES:
            of_priority = [
                alert
                for kind in AlertType
                for chunk in levels[kind][priority].chunks
                for alert in chunk.alerts
            ]
            yield from sorted(of_priority, key=_rank)

    def _is_meant(self, alert: Alert, wishes: dict[Wish, None]) -> bool:
        return any(
            kind == alert.header.type and self.facts.sweeping.matches(topic, alert.topic)
            for kind, topic in wishes
        )

    def _audit(self, fact: AlertAudited, _now: int, effects: list[AnyEffect]) -> None:
        """Raises ClientFault."""
        identity = AlertId(fact.alert)
        alert = self.facts.named(identity)
        trail = self.facts.trails.get(identity)
        if alert is not None:
            trail = trail_of(alert, self.facts.subscribers.label_of)
        if trail is None or trail.header.classification > fact.clearance:
            raise unknown(identity)
        is_live = alert is not None and not alert.ended
        effects.append(Multicast(Answered(fact.request, shown_trail(trail, is_live=is_live))))

    def count(self, clearance: int = Classification.UNCLASSIFIED) -> int:
        """How many are live that somebody may see."""
        by_classification = self.facts.live.by_classification
        return sum(count for each, count in by_classification.items() if each <= clearance)


def _rank(alert: Alert) -> tuple[int, int]:
    return alert.rank
