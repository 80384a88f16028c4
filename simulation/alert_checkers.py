"""What must hold of alerts, whatever happened: never twice, none missed, none behind the confirmation of its cancel,
the most urgent first."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from heliograph.destinations.alerts.handing import Handing
from heliograph.destinations.effects import AnyEffect
from simulation.alert_clients import AlertHistory


def violations(history: AlertHistory) -> Iterator[str]:
    yield from _twice(history)
    yield from _missed(history)
    yield from _after_cancel(history)
    yield from history.unwanted


def _twice(history: AlertHistory) -> Iterator[str]:
    """In one life never; in a later one it is marked."""
    for subscriber, keys in history.by_subscriber.items():
        for key, received in keys.items():
            for number, again in enumerate(received[1:], 1):
                if not again.is_marked or any(each.life == again.life for each in received[:number]):
                    yield f"{subscriber} received {key} again, in life {again.life} at {again.at:.3f}"


def _missed(history: AlertHistory) -> Iterator[str]:
    for subscriber, key in history.missing():
        yield f"{subscriber} never received {key}"


def _after_cancel(history: AlertHistory) -> Iterator[str]:
    for received in history.received:
        alert = history.published[received.key]
        if 0 < alert.cancelled_at < received.at:
            yield (
                f"{received.subscriber} received {received.key} at {received.at:.3f}, and its cancel was confirmed"
                f" at {alert.cancelled_at:.3f}"
            )


@contextlib.contextmanager
def order_watched() -> Iterator[list[str]]:
    """Of what is handed out, everything that should have gone after something else."""
    found: list[str] = []
    leave = Handing.leave

    def watched(self: Handing, effects: list[AnyEffect]) -> None:
        found.extend(_out_of_order(self))
        leave(self, effects)

    Handing.leave = watched  # type: ignore[method-assign]
    try:
        yield found
    finally:
        Handing.leave = leave  # type: ignore[method-assign]


def _out_of_order(handing: Handing) -> Iterator[str]:
    facts = handing._facts
    lowest: dict[int, tuple[int, int]] = {}
    for alert, _, numbers in handing._batch.values():
        for number in numbers:
            place = (-alert.header.priority, alert.index)
            lowest[number] = max(lowest.get(number, place), place)
    for number, place in lowest.items():
        subscriber = facts.subscribers.by_number[number]
        for other in facts.live:
            before = (-other.header.priority, other.index) < place
            known = number in other.taken or other.index in subscriber.handed
            if before and not known and facts.wanted_still(subscriber, other) and not _is_late(other.expiry):
                yield f"{subscriber.label} was handed {place} before priority {other.header.priority}"


def _is_late(expiry: int) -> bool:
    """What expires may be passed over in the moment before it is removed."""
    return expiry > 0
