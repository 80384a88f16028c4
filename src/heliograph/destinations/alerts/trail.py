"""The life of an alert, as somebody reads it who asks what became of it (A7)."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from heliograph.destinations.alerts.live import Alert
from heliograph.destinations.alerts.records import Trail, TrailEntry
from heliograph.model.alert import (
    AcknowledgePolicy,
    AlertHeader,
    AlertType,
    CancelPolicy,
    Classification,
    text_of_alert,
)
from heliograph.model.limits import ALERT_BEGINNING_BYTES, TRAIL_ENTRIES

LabelOf = Callable[[int], str]
_at = attrgetter("at")


def trail_of(alert: Alert, label_of: LabelOf) -> Trail:
    """What happened, in order."""
    entries = [TrailEntry(at, "delivered", label_of(number)) for number, at in alert.taken.items()]
    entries += [TrailEntry(at, "receipt", label_of(number)) for at, number in alert.receipts]
    entries += [TrailEntry(at, "acknowledged", who, identity) for at, who, identity, _ in alert.acknowledged]
    entries.sort(key=_at)
    entries.insert(0, TrailEntry(alert.arrived, "published", alert.user))
    if alert.ended:
        entries.append(TrailEntry(alert.ended_at, alert.ended, alert.ended_by))
    return Trail(alert.id, alert.header, alert.rank, entries, alert.lane, alert.sequence)


def shown_trail(trail: Trail, *, is_live: bool) -> dict[str, Any]:
    """For a client. Of a long life, the beginning and the end."""
    entries = trail.entries
    left_out = max(0, len(entries) - TRAIL_ENTRIES)
    if left_out:
        half = TRAIL_ENTRIES // 2
        entries = [*entries[:half], *entries[-half:]]
    return {
        **shown_header(trail.id, trail.header),
        "live": is_live,
        "left_out": left_out,
        "entries": [
            {
                "at": entry.at / 1e6,
                "what": entry.what,
                "who": entry.who,
                "id": text_of_alert(entry.id) if entry.id else "",
            }
            for entry in entries
        ],
    }


def shown_header(identity: bytes, header: AlertHeader) -> dict[str, Any]:
    return {
        "id": text_of_alert(identity),
        "destination": header.destination,
        "priority": header.priority,
        "duration": header.duration,
        "type": AlertType(header.type).name.lower(),
        "persistent": header.persistent,
        "scope": header.scope,
        "classification": Classification(header.classification).label,
        "cancel_policy": CancelPolicy(header.cancel_policy).name.lower(),
        "acknowledge_policy": AcknowledgePolicy(header.acknowledge_policy).name.lower(),
        "correlation": text_of_alert(header.correlation) if header.correlation else "",
    }


def shown_alert(alert: Alert) -> dict[str, Any]:
    """A line of a list."""
    return {
        **shown_header(alert.id, alert.header),
        "user": alert.user,
        "arrived": alert.arrived / 1e6,
        "expires": alert.expiry / 1e6,
        "bytes": len(alert.body),
        "beginning": alert.body[:ALERT_BEGINNING_BYTES].decode(errors="ignore"),
        "delivered": len(alert.taken),
        "acknowledged": len(alert.acknowledged),
    }
