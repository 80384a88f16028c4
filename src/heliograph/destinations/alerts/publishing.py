"""Alerts and acknowledgements as they come in: each once, numbered, stored, and then live in the order they came in.

What is persistent is live when it is stored: before, a crash could take it back from who has it already. What is not
waits for those before it, so that nothing overtakes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from heliograph.bus.commands import AlertAcknowledged, AlertPublished, Answered, Rejected
from heliograph.destinations.alerts.ending import Ending, unknown
from heliograph.destinations.alerts.handing import Handing
from heliograph.destinations.alerts.live import Alert, alert_of
from heliograph.destinations.alerts.records import WITH_ITS_ALERT, AlertRecord, encode
from heliograph.destinations.alerts.state import ChannelFacts
from heliograph.destinations.effects import Announce, AnyEffect, Multicast, StoreAlert
from heliograph.destinations.events import AlertRefused, AlertStored
from heliograph.model.alert import (
    AcknowledgePolicy,
    AlertHeader,
    AlertId,
    AlertType,
    CancelPolicy,
    Classification,
    identity_of,
)
from heliograph.model.errors import ClientFault, NotAllowed, Unavailable
from heliograph.model.ids import LaneId, SessionId, session_of
from heliograph.model.limits import MAX_LIVE_ALERT_BYTES, MAX_LIVE_ALERTS

TokenOf = Callable[[SessionId], bytes]
_SECOND = 1_000_000
# An acknowledgement ends with its alert; one that would end in a moment says so much at least.
_SHORTEST_SECONDS = 0.001


class _Pending(msgspec.Struct):
    """An alert that is not live yet, and who waits to hear of it."""

    alert: Alert
    requests: list[int]
    is_stored: bool


class Publishing:
    """Of one channel."""

    def __init__(self, facts: ChannelFacts, handing: Handing, ending: Ending, token_of: TokenOf) -> None:
        self._facts = facts
        self._handing = handing
        self._ending = ending
        self._token_of = token_of
        self._pending: dict[int, _Pending] = {}  # by arrival
        self.endless_limit = 0
        self.published = 0

    def publish(self, fact: AlertPublished, now: int, effects: list[AnyEffect]) -> None:
        """Raises ClientFault or Unavailable."""
        if fact.header.classification > fact.clearance:
            label = Classification(fact.header.classification).label
            raise NotAllowed(f"user {fact.user!r} is not cleared for what is {label}")
        if self._is_known(fact, effects):
            return
        self.check_room([(fact.header, fact.body)])
        self._take(fact, fact.header, now, effects)

    def acknowledge(self, fact: AlertAcknowledged, now: int, effects: list[AnyEffect]) -> None:
        """Raises ClientFault or Unavailable."""
        if self._is_known(fact, effects):
            return
        alert = self._facts.live.named(AlertId(fact.alert))
        if alert is None or not alert.is_visible(fact.clearance):
            raise unknown(fact.alert)
        if alert.header.acknowledge_policy != AcknowledgePolicy.CLIENT:
            effects.append(Multicast(Answered(fact.request, {"discarded": True})))  # nobody asked for it (A3)
            return
        left = max((alert.expiry - now) / _SECOND, _SHORTEST_SECONDS) if alert.expiry else 0.0
        header = msgspec.structs.replace(
            alert.header,
            duration=left,
            type=AlertType.ACKNOWLEDGEMENT,
            cancel_policy=CancelPolicy.ORIGINATOR,
            acknowledge_policy=AcknowledgePolicy.NONE,
            correlation=alert.id,
        )
        self.check_room([(header, fact.body)])
        self._take(fact, header, now, effects)

    def _is_known(self, fact: AlertPublished | AlertAcknowledged, effects: list[AnyEffect]) -> bool:
        """Whether it was published before: then who asks hears what became of it."""
        if not self._facts.has_sequence(fact.lane, fact.sequence):
            return False
        for pending in self._pending.values():
            if (pending.alert.lane, pending.alert.sequence) == (fact.lane, fact.sequence):
                pending.requests.append(fact.request)
                return True
        identity = self._identity_of(fact.lane, fact.sequence)
        effects.append(Announce(Answered(fact.request, {"id": identity})))
        return True

    def _identity_of(self, lane: LaneId, sequence: int) -> AlertId:
        return identity_of(self._token_of(session_of(lane)), lane, sequence)

    def check_room(self, wanted: Sequence[tuple[AlertHeader, bytes]]) -> None:
        """Raises Unavailable unless there is room for all of these."""
        live, waiting = self._facts.live, [pending.alert for pending in self._pending.values()]
        more = sum(not header.duration and header.type == AlertType.ALERT for header, _ in wanted)
        endless = live.endless + sum(not alert.header.duration for alert in waiting)
        if more and endless + more > self.endless_limit:
            raise Unavailable(
                f"{self.endless_limit:,} alerts without end are live already: cancel some, or give this a duration",
                code="too-many-alerts",
            )
        size = live.bytes + sum(len(body) for _, body in wanted) + sum(alert.size for alert in waiting)
        if len(live) + len(waiting) + len(wanted) > MAX_LIVE_ALERTS or size > MAX_LIVE_ALERT_BYTES:
            raise Unavailable(
                f"the channel has {len(live):,} live alerts, and no room for one more", code="too-many-alerts"
            )

    def _take(
        self,
        fact: AlertPublished | AlertAcknowledged,
        header: AlertHeader,
        now: int,
        effects: list[AnyEffect],
    ) -> None:
        facts, index = self._facts, self._facts.next_index
        facts.next_index += 1
        facts.note_sequence(fact.lane, fact.sequence)
        alert = alert_of(
            index,
            self._identity_of(fact.lane, fact.sequence),
            fact.lane,
            fact.sequence,
            header=header,
            user=fact.user,
            arrived=now,
            body=fact.body,
        )
        requests = [fact.request] if fact.request else []
        self._pending[index] = _Pending(alert, requests, not header.persistent)
        self.published += header.classification == Classification.UNCLASSIFIED
        if header.persistent:
            effects.append(StoreAlert(index, encode(record_of(facts.number, alert))))
        else:
            self._go_live(now, effects)

    def stored(self, event: AlertStored, now: int, effects: list[AnyEffect]) -> None:
        self._pending[event.index].is_stored = True
        self._go_live(now, effects)

    def refused(self, event: AlertRefused, now: int, effects: list[AnyEffect]) -> None:
        pending = self._pending.pop(event.index)
        self._facts.unnote_sequence(pending.alert.lane, pending.alert.sequence)
        effects += [Multicast(Rejected(request, event.code, event.sentence)) for request in pending.requests]
        self._go_live(now, effects)

    def _go_live(self, now: int, effects: list[AnyEffect]) -> None:
        """What comes next and is stored is live. Who published it hears that first."""
        while self._pending:
            index, pending = next(iter(self._pending.items()))
            if not pending.is_stored:
                break
            del self._pending[index]
            alert = pending.alert
            effects += [Multicast(Answered(request, {"id": alert.id})) for request in pending.requests]
            self._facts.goes_live(alert)
            correlation = alert.header.correlation
            if correlation and self._facts.live.named(AlertId(correlation)) is None:
                self._ending.end([alert], WITH_ITS_ALERT, "", now, effects)  # it ended meanwhile
            else:
                self._handing.offer(alert)
        self._handing.serve(now)

    def pending_records(self) -> list[AlertRecord]:
        """Of what is written and not live yet."""
        pending = [each.alert for each in self._pending.values()]
        return [record_of(self._facts.number, alert) for alert in pending if alert.header.persistent]


def record_of(channel: int, alert: Alert) -> AlertRecord:
    return AlertRecord(
        channel,
        alert.index,
        alert.id,
        alert.lane,
        alert.sequence,
        alert.header,
        alert.user,
        alert.arrived,
        alert.body,
    )


def refusal_of(request: int, fault: ClientFault | Unavailable) -> Multicast:
    return Multicast(Rejected(request, fault.code, fault.sentence))
