"""Bugs to plant in alerts: each breaks one promise, and a run must show it."""

from __future__ import annotations

from typing import Any

from heliograph.bus.commands import Answered
from heliograph.client import alert_consumer
from heliograph.destinations.alerts import replay
from heliograph.destinations.alerts.ending import Ending
from heliograph.destinations.alerts.handing import Handing
from heliograph.destinations.alerts.live import Alert
from heliograph.destinations.alerts.publishing import Publishing
from heliograph.destinations.alerts.sweeping import Sweeping
from heliograph.destinations.effects import Announce
from heliograph.destinations.events import AlertStored
from heliograph.nodes.alerting import Alerting
from simulation.plants import Plant

_cancel = Ending.cancel
_store = Alerting.store


def _by_arrival(self: Alert) -> tuple[int, int]:
    return 0, self.index


def _nothing(*_: object) -> None:
    """What should be done is not."""


def _confirm_at_once(
    self: Ending, identity: Any, user: str, clearance: int, request: int, *rest: Any
) -> None:
    _cancel(self, identity, user, clearance, 0, *rest)
    rest[-1].append(Announce(Answered(request, {})))


def _tell_nobody(*_: object) -> list[Any]:
    return []


def _stored_when_written(self: Alerting, destination: Any, index: int, payload: bytes) -> None:
    _store(self, destination, index, payload)
    if self._storing and self._storing[-1][2] == index:
        self._storing.pop()
        stored = destination.handle(AlertStored(index), self._manager.microseconds())
        self._manager.run(destination, stored)


def _known_to_nobody(*_: object) -> bool:
    return False


def _let_go_for_good(self: Handing, subscriber: Any, alert: Alert, record: Any) -> None:
    if self._facts.let_go(subscriber, alert):
        alert.taken.setdefault(subscriber.number, 0)
        self._may_be_gone(alert)


def _only_the_highest(self: Sweeping, subscriber: Any, sweep: Any) -> None:
    subscriber.sweeps.remove(sweep)


ALERT_PLANTS: dict[str, Plant] = {
    "hand out by arrival": ((Alert, "rank", property(_by_arrival)),),
    # Clients that remember what they had would tell the server again.
    "forget who took an alert at recovery": (
        (replay, "_taken", _nothing),
        (alert_consumer, "ALERTS_REMEMBERED", 0),
    ),
    "leave what is on the wire when it is cancelled": (
        (Ending, "cancel", _confirm_at_once),
        (Handing, "withdraw", _tell_nobody),
    ),
    "take an alert again that is known": ((Publishing, "_is_known", _known_to_nobody),),
    "what was on the wire is gone with it": ((Handing, "drop", _let_go_for_good),),
    "a sweep ends with the first level": ((Sweeping, "_descend", _only_the_highest),),
}

# Tried by name only: mostly everybody has the alert before the disk could lose it.
HIDDEN_ALERT_PLANTS: dict[str, Plant] = {
    "confirm an alert before it is stored": ((Alerting, "store", _stored_when_written),),
}
