"""Rows that are alerts: what they say, and in what groups they are raised (D5, A9)."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

pytest.importorskip("pyspark")
import pyarrow as pa

from heliograph.model.alert import AlertHeader
from heliograph.model.errors import ClientFault
from heliograph.model.limits import (
    MAX_ALERT_BODY_BYTES,
    MAX_ALERT_SECONDS,
    MAX_CONTROL_BYTES,
    MAX_RAISED_ALERTS,
)
from heliograph.spark.alerting import Raised, alerts_of, groups_of
from heliograph.spark.pipelines.events import alert_texts

pytestmark = pytest.mark.req("D5", "A9")
PROPERTIES = pa.map_(pa.string(), pa.string())
NOW = 1_700_000_000_000_000


def rows(properties: dict[str, str], **more: Any) -> pa.RecordBatch:
    columns: dict[str, Any] = {"properties": pa.array([list(properties.items())], PROPERTIES)}
    columns |= {name: pa.array([value]) for name, value in more.items()}
    return pa.RecordBatch.from_pydict(columns)


def alert_in(batch: pa.RecordBatch) -> tuple[AlertHeader, bytes]:
    ((channel, header, body),) = alerts_of("alerts:a", batch, NOW)
    assert channel == "alerts:a"
    return msgspec.msgpack.decode(header, type=AlertHeader), body


def test_a_row_says_what_an_alert_is_as_a_message_does() -> None:
    said = {"alert_destination": "TAG:x", "alert_duration": "60.5", "alert_cancel": "any", "mine": "1"}
    header, body = alert_in(rows({**said, "alert_acknowledge": "client"}, text="hello", priority=9))
    assert (header.destination, header.priority, header.duration, body) == ("TAG:x", 10, 60.5, b"hello")
    assert (header.cancel_policy, header.acknowledge_policy) == (1, 1)
    header, body = alert_in(rows({"alert_destination": "USER:ann"}, body=b"raw"))
    assert (header.priority, header.duration, body) == (5, 0.0, b"raw")
    ends = datetime.fromtimestamp(NOW / 1e6 + 30, UTC)
    header, _ = alert_in(rows({"alert_destination": "TAG:x"}, expiration=ends))
    assert header.duration == pytest.approx(30)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({}, "whom it is for"),
        ({"alert_destination": "nobody"}, "TAG:TEXT"),
        ({"alert_destination": "TAG:x", "alert_duration": "long"}, "number of seconds"),
        ({"alert_destination": "TAG:x", "alert_duration": "-1"}, "a duration is"),
        ({"alert_destination": "TAG:x", "alert_cancel": "never"}, "originator, any"),
        ({"alert_destination": "TAG:x", "alert_classification": "secret"}, "unclassified"),
    ],
)
def test_a_row_that_is_no_alert_is_refused(said: dict[str, str], reason: str) -> None:
    with pytest.raises(ClientFault, match=reason):
        alert_in(rows(said, text="a"))


def test_the_same_alerts_are_in_the_same_groups_in_whatever_order_they_come() -> None:
    chance = random.Random(1)
    header = msgspec.msgpack.encode(AlertHeader("TAG:x"))
    alerts: list[Raised] = [
        (f"alerts:{n % 2}", header, b"%d" % n * chance.choice([1, 100, 4000])) for n in range(2000)
    ]
    alerts.append(("alerts:0", header, bytes(MAX_ALERT_BODY_BYTES)))
    groups = list(groups_of(alerts))
    for _ in range(3):
        chance.shuffle(alerts)
        assert list(groups_of(alerts)) == groups
    together = [(channel, *each) for channel, group in groups for each in group]
    assert sorted(together) == sorted(alerts)
    for channel, group in groups:
        assert 0 < len(group) <= MAX_RAISED_ALERTS
        told = msgspec.msgpack.encode({"destination": channel, "name": "q" * 200, "alerts": group})
        assert len(told) < MAX_CONTROL_BYTES
    assert list(groups_of([])) == []


def test_whatever_a_key_says_becomes_a_tag() -> None:
    assert alert_texts("told", "card.\n4711\t") == ("told", "TAG:card. 4711")
    assert alert_texts("", "\0") == ("", "TAG:-")
    text, tag = alert_texts("ü" * 40_000, "ö" * 5000)
    assert (len(text.encode()), len(tag.encode())) == (32 * 1024, 4096)


def test_an_alert_that_ends_when_no_date_can_say_it_is_one() -> None:
    batch = rows({"alert_destination": "TAG:x"}, expiration=datetime.fromtimestamp(NOW / 1e6, UTC))
    place = batch.schema.get_field_index("expiration")
    kind = pa.timestamp("us", tz="UTC")
    batch = batch.set_column(place, pa.field("expiration", kind), pa.array([1 << 62], pa.int64()).cast(kind))
    header, _ = alert_in(batch)
    assert header.duration == MAX_ALERT_SECONDS
