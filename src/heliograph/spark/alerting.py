"""Rows that are alerts (D5, A9): what is written to `alerts:NAME` is raised there, once.

A row says what an alert is as a message does that publishes one (docs/reference/protocols.md): property
`alert_destination`, `alert_duration` and so on; priorities 0 to 9 become 1 to 10.

The driver raises the alerts of a batch in groups, each under a number of its own. A batch that is done again has the
same alerts, so they are put in order before they are put into groups, and a group that was raised before is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa

from heliograph.frontends import alert_messages as names
from heliograph.model.alert import (
    AcknowledgePolicy,
    AlertFault,
    AlertHeader,
    CancelPolicy,
    Classification,
    alert_priority,
    check_header,
)
from heliograph.model.limits import MAX_ALERT_SECONDS, MAX_CONTROL_BYTES, MAX_RAISED_ALERTS
from heliograph.spark.schema import with_dates
from heliograph.spark.server import Server

_GROUP_BITS: Final = 20
"""A batch has fewer groups than that: it would be hundreds of millions of alerts."""
_GROUP_BYTES: Final = MAX_CONTROL_BYTES - 4096
_ALERT_BYTES: Final = 32
"""More than what stands around an alert in a question."""
_OPEN: Final = Classification.UNCLASSIFIED.label
_SECOND: Final = 1_000_000
_TOLD: Final = ("properties", "priority", "expiration", "body", "value", "text")
Raised = tuple[str, bytes, bytes]
"""The channel, the header, packed, and the body."""
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode


def alerts_of(channel: str, rows: pa.RecordBatch, now: int) -> list[Raised]:
    """`now` in microseconds. Raises AlertFault for a row that is no alert."""
    told = rows.select([name for name in rows.schema.names if name in _TOLD])
    told = with_dates(told, "expiration").to_pylist()
    return [(channel, _pack(header), body) for header, body in _alerts(told, now)]


def _alerts(rows: list[dict[str, Any]], now: int) -> Iterator[tuple[AlertHeader, bytes]]:
    for row in rows:
        said = dict(row.get("properties") or ())
        destination = said.get(names.DESTINATION)
        if not destination:
            raise AlertFault(f"an alert says whom it is for: {names.DESTINATION}, as in TAG:disk")
        if said.get(names.CLASSIFICATION, _OPEN) != _OPEN:
            raise AlertFault(f"what pipelines raise is {_OPEN}")
        priority = row.get("priority")
        header = AlertHeader(
            destination,
            priority=alert_priority(4 if priority is None else priority),
            duration=_duration(said.get(names.DURATION), row.get("expiration"), now),
            cancel_policy=_named(CancelPolicy, said.get(names.CANCEL, "originator")),
            acknowledge_policy=_named(AcknowledgePolicy, said.get(names.ACKNOWLEDGE, "none")),
        )
        body = _body(row)
        check_header(header, body)
        yield header, body


def _body(row: dict[str, Any]) -> bytes:
    for name in ("body", "value", "text"):
        value = row.get(name)
        if value is not None:
            return value.encode() if isinstance(value, str) else bytes(value)
    return b""


def _duration(told: str | None, expiration: Any, now: int) -> float:
    """In seconds: as it is said, or until the row expires; otherwise until it is cancelled."""
    if told is None:
        if expiration is None:
            return 0.0
        left: float = expiration.timestamp() - now / _SECOND
        return min(max(left, 1 / _SECOND), float(MAX_ALERT_SECONDS))
    try:
        return float(told)
    except ValueError:
        raise AlertFault(f"{names.DURATION} is a number of seconds, not {told[:40]!r}") from None


def _named(kind: Any, text: str) -> int:
    for each in kind:
        if text == each.name.lower():
            return int(each)
    known = ", ".join(each.name.lower() for each in kind)
    raise AlertFault(f"this is one of {known}, not {text[:40]!r}")


def raise_all(server: Server, name: str, batch: int, alerts: list[Raised]) -> None:
    """Those of a batch, unless they were raised before."""
    for number, (channel, group) in enumerate(groups_of(alerts)):
        server.ask(
            "pipeline.raise",
            destination=channel,
            name=name,
            number=batch << _GROUP_BITS | number,
            alerts=[(_unpack(header), body) for header, body in group],
        )


def groups_of(alerts: list[Raised]) -> Iterator[tuple[str, list[tuple[bytes, bytes]]]]:
    """In the same groups, in whatever order tasks brought them. Each is of one channel, and fits a question."""
    channel, group, size = "", list[tuple[bytes, bytes]](), 0
    for to, header, body in sorted(alerts):
        taken = len(header) + len(body) + _ALERT_BYTES
        if group and (to != channel or len(group) == MAX_RAISED_ALERTS or size + taken > _GROUP_BYTES):
            yield channel, group
            group, size = [], 0
        channel, size = to, size + taken
        group.append((header, body))
    if group:
        yield channel, group
