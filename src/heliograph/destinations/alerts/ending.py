"""How alerts end: cancelled by somebody, or past their time (A5).

Whoever cancels hears that it is done when the journal has it and no application can receive the alert any more:
everybody who was handed it has said what became of it, or has been away for so long that it cannot hand it over.
"""

from __future__ import annotations

from heliograph.bus.commands import Answered
from heliograph.destinations.alerts.handing import Handing, write
from heliograph.destinations.alerts.live import Alert
from heliograph.destinations.alerts.records import (
    CANCELLED,
    EXPIRED,
    WITH_ITS_ALERT,
    EndedRecord,
    HandedRecord,
    TakenRecord,
)
from heliograph.destinations.alerts.state import ChannelFacts
from heliograph.destinations.effects import Announce, AnyEffect
from heliograph.model.alert import AlertId, CancelPolicy
from heliograph.model.errors import ClientFault, NotAllowed


class Ending:
    """Of one channel."""

    def __init__(self, facts: ChannelFacts, handing: Handing) -> None:
        self._facts = facts
        self._handing = handing
        self._confirming: dict[AlertId, list[int]] = {}  # requests that wait until nobody has an alert

    def cancel(
        self, identity: AlertId, user: str, clearance: int, request: int, now: int, effects: list[AnyEffect]
    ) -> None:
        """Raises ClientFault."""
        alert = self._facts.named(identity)
        if alert is None and self._was_cancelled(identity, clearance):
            effects.append(Announce(Answered(request, {})))  # asked again
            return
        if alert is None or not alert.is_visible(clearance):
            raise unknown(identity)
        if alert.header.cancel_policy == CancelPolicy.ORIGINATOR and alert.user != user:
            raise NotAllowed("only who published this alert may cancel it")
        if not alert.ended:
            self._suspect(alert, now, effects)
            self.end([alert], CANCELLED, user, now, effects)
        if alert.handed:
            self._confirming.setdefault(identity, []).append(request)
        else:
            effects.append(Announce(Answered(request, {})))

    def _suspect(self, alert: Alert, now: int, effects: list[AnyEffect]) -> None:
        """A machine was lost with its last records: who is not back yet may have what nobody knows that it was
        handed."""
        facts = self._facts
        if alert.index > facts.unsure:
            return
        suspects = [
            subscriber
            for subscriber in facts.subscribers
            if alert.index <= subscriber.unsure
            and subscriber.attachment is None
            and subscriber.doubt_until > now
            and subscriber.number not in alert.taken
            and alert.index not in subscriber.handed
            and facts.wanted_still(subscriber, alert)
        ]
        for subscriber in suspects:
            facts.was_handed(subscriber, alert)
        if suspects and alert.header.persistent:
            numbers = [subscriber.number for subscriber in suspects]
            effects.append(write(HandedRecord(facts.number, [(alert.index, numbers)])))

    def _was_cancelled(self, identity: AlertId, clearance: int) -> bool:
        trail = self._facts.trails.get(identity)
        return trail is not None and trail.header.classification <= clearance

    def expire(self, now: int, effects: list[AnyEffect]) -> None:
        self.end(list(self._facts.live.expired(now)), EXPIRED, "", now, effects)

    def end(self, alerts: list[Alert], why: str, who: str, now: int, effects: list[AnyEffect]) -> None:
        """They are live no more, and with each its acknowledgements."""
        if not alerts:
            return
        facts = self._facts
        with_them = [
            other
            for alert in alerts
            for *_, index in alert.acknowledged
            if (other := facts.live.get(index)) is not None and other not in alerts
        ]
        for group, reason, by in ((alerts, why, who), (with_them, WITH_ITS_ALERT, "")):
            persistent = [alert.index for alert in group if alert.header.persistent]
            if persistent:
                effects.append(write(EndedRecord(facts.number, persistent, reason, by, now), wait=True))
            for alert in group:
                facts.ended(alert, reason, by, now)
                effects += self._handing.withdraw(alert)
                self._pass_over(alert)

    def _pass_over(self, alert: Alert) -> None:
        """It is among what is ready for some; there it is passed over when it comes up."""
        if not alert.handed:
            self._handing.gone(alert)

    def end_doubts(self, now: int) -> list[AnyEffect]:
        """Of ended alerts, what subscribers had that were away for too long they cannot hand over any more."""
        effects: list[AnyEffect] = []
        for alert in list(self._facts.leaving.values()):
            for number in list(alert.handed):
                subscriber = self._facts.subscribers.by_number[number]
                if subscriber.attachment is None and subscriber.doubt_until <= now:
                    record = TakenRecord(self._facts.number, number, now, [], [])
                    self._handing.drop(subscriber, alert, record)
                    self._handing.note(record, effects)
        return effects

    @property
    def next_due(self) -> int:
        """When a doubt ends, 0 if there is none."""
        subscribers = self._facts.subscribers.by_number
        return min(
            (
                subscribers[number].doubt_until
                for alert in self._facts.leaving.values()
                for number in alert.handed
                if subscribers[number].attachment is None
            ),
            default=0,
        )

    def confirm(self, effects: list[AnyEffect]) -> None:
        """Tell those who cancelled what nobody has any more."""
        for alert in self._handing.all_gone():
            for request in self._confirming.pop(alert.id, ()):
                effects.append(Announce(Answered(request, {})))


def unknown(identity: bytes) -> ClientFault:
    """The same for what never was, what is over, and what the asker may not see."""
    return ClientFault(f"there is no live alert {identity.hex()}", code="alert-unknown")
