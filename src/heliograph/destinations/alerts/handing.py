"""What goes to which subscriber, and what it says became of it.

All subscribers get alerts in one order, by rank. So what leaves in one go is told alert by alert, each once for all
who get it, and everybody still sees their own order.
"""

from __future__ import annotations

from collections.abc import Iterable

from heliograph.bus.commands import AlertHanded, AlertReceipted, AlertWithdrawn
from heliograph.destinations.alerts.live import Alert
from heliograph.destinations.alerts.records import KINDS, HandedRecord, Recorded, TakenRecord, encode
from heliograph.destinations.alerts.state import ChannelFacts
from heliograph.destinations.alerts.subscribers import Subscriber
from heliograph.destinations.alerts.sweeping import Budget
from heliograph.destinations.effects import Announce, AnyEffect, Multicast, Write
from heliograph.model.alert import AcknowledgePolicy
from heliograph.model.destination import Address
from heliograph.model.ids import SessionId, session_of
from heliograph.model.limits import ALERT_RECIPIENTS

Batch = dict[tuple[int, int], tuple[Alert, list[tuple[SessionId, int, bool]], list[int]]]
"""By rank: an alert, the consumers it goes to, and the numbers of their subscribers."""


def write(record: Recorded, *, wait: bool = False) -> Write:
    """`wait`: somebody is answered when it is stored."""
    return Write(KINDS[type(record)], encode(record), wait)


class Handing:
    """Of one channel."""

    def __init__(self, address: Address, facts: ChannelFacts) -> None:
        self._address = address
        self._facts = facts
        self._is_closed = False
        self._was_opened = False
        self._hungry: dict[int, Subscriber] = {}  # those whose turn was over before they had all
        self._offered: dict[int, Subscriber] = {}
        self._batch: Batch = {}
        self._let_go: dict[int, Alert] = {}

    # ---- out

    def close(self, is_closed: bool) -> bool:
        """Nothing goes out: it is paused, or not for this part of a cluster to decide. Otherwise it goes on, with the
        next turn. Whether there is something to do then."""
        opens = self._is_closed and not is_closed
        self._is_closed = is_closed
        self._was_opened = (self._was_opened or opens) and not is_closed
        return opens and bool(len(self._facts.subscribers))

    def offer(self, alert: Alert) -> None:
        """An alert is live: whoever wants it has it among what is ready."""
        for subscriber in self._facts.subscribers.wanting(alert):
            if self._facts.sweeping.offer(subscriber, alert):
                self._offered[subscriber.number] = subscriber

    def serve(self, now: int) -> None:
        """Who was offered something gets the first of it, if it has credit. Not before all was offered that went live
        together."""
        offered, self._offered = self._offered, {}
        budget = Budget()
        for subscriber in offered.values():
            self.hand_out(subscriber, now, budget)

    def hand_out(self, subscriber: Subscriber, now: int, budget: Budget) -> None:
        where = subscriber.attachment
        if where is None or self._is_closed:
            return
        sweeping = self._facts.sweeping
        while len(subscriber.handed) < where.credit:
            alert = sweeping.next_of(subscriber, budget)
            if alert is None:
                if subscriber.sweeps:
                    self._hungry[subscriber.number] = subscriber
                return
            if 0 < alert.expiry <= now:
                subscriber.waiting.pop(alert.index, None)  # whoever looks for those removes it
                continue
            again = alert.index in subscriber.maybe_seen or alert.index <= subscriber.unsure
            self._facts.was_handed(subscriber, alert)
            _, recipients, numbers = self._batch.setdefault(alert.rank, (alert, [], []))
            recipients.append((where.session, where.number, again))
            numbers.append(subscriber.number)

    def turn(self, now: int) -> bool:
        """Let those go on whose sweeps were interrupted. Whether there is more to do."""
        if self._was_opened:
            self._was_opened = False
            self._hungry = dict(self._facts.subscribers.by_number)
        hungry, self._hungry = self._hungry, {}
        budget = Budget()
        for subscriber in hungry.values():
            if subscriber.number in self._facts.subscribers.by_number:
                self.hand_out(subscriber, now, budget)
        return bool(self._hungry)

    @property
    def is_hungry(self) -> bool:
        return bool(self._hungry)

    def everybody(self, now: int) -> None:
        """Hand out what waited while nothing went out."""
        for subscriber in self._facts.subscribers:
            self.hand_out(subscriber, now, Budget())

    def leave(self, effects: list[AnyEffect]) -> None:
        """Tell what was handed out. It is written down before it leaves the process."""
        if not self._batch:
            return
        batch = [self._batch[rank] for rank in sorted(self._batch)]
        self._batch = {}
        groups = [(alert.index, numbers) for alert, _, numbers in batch if alert.header.persistent]
        if groups:
            effects.append(write(HandedRecord(self._facts.number, groups)))
        for alert, recipients, _ in batch:
            for start in range(0, len(recipients), ALERT_RECIPIENTS):
                portion = recipients[start : start + ALERT_RECIPIENTS]
                effects.append(Multicast(AlertHanded(alert.view(), portion)))

    # ---- back

    def taken(
        self, subscriber: Subscriber, taken: Iterable[bytes], dropped: Iterable[bytes], now: int
    ) -> list[AnyEffect]:
        """What the application of a subscriber has, and what it will not get."""
        facts, effects = self._facts, list[AnyEffect]()
        record = TakenRecord(facts.number, subscriber.number, now, [], [])
        receipts: list[AnyEffect] = []
        for alert in filter(None, map(facts.named, taken)):
            if facts.was_taken(subscriber, alert, now):
                if alert.header.persistent:
                    record.taken.append(alert.index)
                receipts += self._receipt(subscriber, alert, now)
            self._may_be_gone(alert)
        for alert in filter(None, map(facts.named, dropped)):
            self.drop(subscriber, alert, record)
        self.note(record, effects, wait=bool(receipts))
        return [*effects, *receipts]

    def drop(self, subscriber: Subscriber, alert: Alert, record: TakenRecord) -> None:
        """A subscriber has an alert no more, and its application did not get it. It may get it later."""
        if not self._facts.let_go(subscriber, alert):
            return
        if alert.header.persistent:
            record.dropped.append(alert.index)
        if alert.ended:
            self._may_be_gone(alert)
        elif self._facts.wanted_still(subscriber, alert):
            self._facts.sweeping.offer(subscriber, alert)

    def note(self, record: TakenRecord, effects: list[AnyEffect], *, wait: bool = False) -> None:
        if record.taken or record.dropped:
            effects.append(write(record, wait=wait or bool(record.dropped)))

    def _receipt(self, subscriber: Subscriber, alert: Alert, now: int) -> list[AnyEffect]:
        """Straight to the producer, when it is stored that the application has it (A6)."""
        if alert.header.acknowledge_policy != AcknowledgePolicy.RECEIPT:
            return []
        alert.receipts.append((now, subscriber.number))
        told = AlertReceipted(
            session_of(alert.lane), self._address, alert.id, subscriber.user, subscriber.name, now
        )
        return [Announce(told)]

    # ---- withdrawn

    def withdraw(self, alert: Alert) -> list[AnyEffect]:
        """An alert ended. Whoever was handed it and can be told is told."""
        subscribers = self._facts.subscribers.by_number
        recipients = [
            (where.session, where.number)
            for number in alert.handed
            if (where := subscribers[number].attachment) is not None
        ]
        return [
            Multicast(AlertWithdrawn(alert.id, recipients[start : start + ALERT_RECIPIENTS]))
            for start in range(0, len(recipients), ALERT_RECIPIENTS)
        ]

    def _may_be_gone(self, alert: Alert) -> None:
        if self._facts.was_let_go(alert):
            self.gone(alert)

    def gone(self, alert: Alert) -> None:
        """An alert ended, and nobody has it any more."""
        self._let_go[alert.index] = alert

    def all_gone(self) -> list[Alert]:
        """What nobody has any more since this was last asked."""
        found, self._let_go = list(self._let_go.values()), {}
        return found
