"""Which messages are events, of which rules, whatever is in them (D5)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

pytest.importorskip("pyspark")
import msgspec
import pyarrow as pa

from heliograph.model.message import Head, encode_head
from heliograph.spark.pipelines import events
from heliograph.spark.pipelines.rules import parse_rules
from heliograph.spark.schema import ARROW

pytestmark = pytest.mark.req("D5", "A9")
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
RULES = parse_rules(
    """
[[rules]]
name = "r"
by = "key"
pattern = "a"
within = "12s"
[rules.events]
a = "kind = 'a'"
[rules.action]
send = "queue:found"
""",
    "rules.toml",
)


def sifted(*rows: dict[str, Any], schema: pa.Schema = ARROW) -> list[dict[str, Any]]:
    """What becomes of messages of which this is told."""
    plain = {"id": "i", "lsn": 1, "timestamp": BEGAN}
    batch = pa.RecordBatch.from_pylist([{**plain, **row} for row in rows], schema=schema)
    (found,) = events.sift_batches(RULES, [batch])
    return list(found.to_pylist())


def an_event(key: str = "k", **more: Any) -> dict[str, Any]:
    return {"properties": [("kind", "a"), ("key", key)], **more}


def keys_of(*rows: dict[str, Any]) -> list[str]:
    return [row["key"] for row in sifted(*rows) if row["rule"] != events.CLOCK]


@pytest.mark.parametrize(
    "text",
    ['{"a":' * 100_000, '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", '{"a": ' + "9" * 5000 + "}", "{"],
    ids=["deep and cut off", "deep", "a long number", "cut off"],
)
def test_a_body_that_cannot_be_read_has_no_fields_and_its_message_is_what_its_properties_say(
    text: str,
) -> None:
    assert keys_of(an_event("x", text=text), an_event("y")) == ["x", "y"]


def test_half_a_letter_in_a_key_is_a_question_mark() -> None:
    row = {"properties": [("kind", "a")], "text": '{"key": "x\\ud800"}'}
    assert keys_of(row, an_event("y")) == ["x?", "y"]


def test_times_that_no_date_can_say_stop_nothing() -> None:
    batch = pa.RecordBatch.from_pylist(
        [{"id": "i", "lsn": 1, "timestamp": BEGAN, **an_event(key)} for key in "abc"], schema=ARROW
    )
    for name, moments in (("timestamp", [1 << 62, -(1 << 62), 1]), ("expiration", [1 << 62, 1, None])):
        place = ARROW.get_field_index(name)
        batch = batch.set_column(
            place, ARROW.field(place), pa.array(moments, pa.int64()).cast(ARROW.field(place).type)
        )
    (found,) = events.sift_batches(RULES, [batch])
    told = {row["key"]: row["time"] for row in found.to_pylist() if row["rule"] == 0}
    assert list(told) == ["a", "b", "c"]
    assert told["a"].year == 2255
    assert told["b"] == datetime(1970, 1, 1, tzinfo=UTC)
    found.to_pandas()


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("JMSXGroupID = 'g'", ["grouped", "both"]),
        ("JMSXGroupID = 'u'", []),
        ("JMSXGroupID IS NULL", ["of a unit", "claims", "unreadable"]),
        ("JMSXGroupSeq = 2", ["both"]),
        ("JMSXGroupSeq IS NULL", ["grouped", "of a unit", "claims", "unreadable"]),
    ],
)
def test_a_group_is_what_the_sender_set_and_not_a_unit_of_order(selector: str, found: list[str]) -> None:
    """As for a consumer of the server."""
    rules = [msgspec.structs.replace(RULES[0], events={"a": selector})]
    grouped = Head(group_id="g", properties={"n": 1})
    rows = [
        {**an_event("grouped"), "head": encode_head(grouped)},
        {**an_event("both"), "head": encode_head(Head(group_id="g", group_sequence=2)), "unit_of_order": "u"},
        {**an_event("of a unit"), "unit_of_order": "u"},
        {"properties": [("key", "claims"), ("JMSXGroupID", "g"), ("JMSXGroupSeq", "2")]},
        {**an_event("unreadable"), "head": b"\x91"},
    ]
    plain = {"id": "i", "lsn": 1, "timestamp": BEGAN}
    batch = pa.RecordBatch.from_pylist([{**plain, **row} for row in rows], schema=ARROW)
    (sifted,) = events.sift_batches(rules, [batch])
    assert [row["key"] for row in sifted.to_pylist() if row["rule"] == 0] == found
    by_group = [msgspec.structs.replace(RULES[0], by="JMSXGroupID", events={"a": "TRUE"})]
    (sifted,) = events.sift_batches(by_group, [batch])
    assert [row["key"] for row in sifted.to_pylist() if row["rule"] == 0] == ["g", "g"]


def test_a_message_that_does_not_say_when_it_was_sent_is_no_event_and_stops_nothing() -> None:
    assert keys_of(an_event("x", timestamp=None), an_event("y")) == ["y"]
    assert keys_of(an_event("x", timestamp=None)) == []


def test_a_key_is_what_was_told_and_not_the_number_that_it_reads_like() -> None:
    keys = ["0012", "12", "1e400", "1e500", "true", "TRUE", "1_2", "١٢"]
    assert keys_of(*map(an_event, keys)) == keys
    (spoken,) = keys_of({"properties": [("kind", "a")], "text": '{"key": 12}'})
    assert spoken == "12"
    assert keys_of({"properties": [("kind", "a")], "text": '{"key": true}'}) == ["true"]
    assert keys_of({"properties": [("kind", "a"), ("key", None)], "text": '{"key": 1}'}) == []


def test_a_clock_that_is_ahead_makes_nobody_elses_events_come_too_late() -> None:
    began = datetime.now(UTC)
    ahead, plain = sifted(an_event("x", timestamp=began + timedelta(days=1)), an_event("y"))
    assert ahead["time"] == began + timedelta(days=1)
    assert began <= ahead["clock"] <= datetime.now(UTC)
    assert plain["time"] == plain["clock"] == BEGAN


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        (f"JMSTimestamp = {int(BEGAN.timestamp() * 1000)}", ["x", "y"]),
        ("JMSDeliveryMode = 'PERSISTENT'", ["x", "y"]),
        ("JMS_helio_large", ["y"]),
        ("NOT JMS_helio_large", ["x"]),
    ],
)
def test_headers_that_are_no_columns_are_what_the_server_takes_them_for(
    selector: str, found: list[str]
) -> None:
    rules = [msgspec.structs.replace(RULES[0], events={"a": selector})]
    claimed = [("JMS_helio_large", "true"), ("key", "x")]
    rows = [{"properties": claimed}, an_event("y", body_kind="large")]
    plain = {"id": "i", "lsn": 1, "timestamp": BEGAN + timedelta(microseconds=999)}
    batch = pa.RecordBatch.from_pylist([{**plain, **row} for row in rows], schema=ARROW)
    (sifted,) = events.sift_batches(rules, [batch])
    assert [row["key"] for row in sifted.to_pylist() if row["rule"] == 0] == found
