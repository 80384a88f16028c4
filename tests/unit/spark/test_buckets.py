"""Keys that share a bucket: each finds what it would find alone, however the stream is cut into batches (D5)."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

pytest.importorskip("pyspark")
import pandas
import pyarrow as pa

from heliograph.spark.pipelines import events
from heliograph.spark.pipelines.events import in_order, match_bucket
from heliograph.spark.pipelines.patterns import Event
from heliograph.spark.pipelines.rules import parse_rules
from tests.unit.spark.plain_patterns import evaluate

pytestmark = pytest.mark.req("D5", "A9")
SECOND = 1_000_000
RULE = """
[[rules]]
name = "r"
by = "key"
pattern = "{pattern}"
within = "12s"
[rules.events]
{events}
[rules.action]
send = "queue:found"
text = "{{key}}|{{ids}}"
"""


class State:
    """What Spark gives to a group, so far as it is asked for, and what it holds it to."""

    def __init__(self) -> None:
        self.exists = False
        self.get: tuple[bytes] = (b"",)
        self.timeout = 0
        self.watermark = 0

    def getCurrentWatermarkMs(self) -> int:
        return self.watermark

    def update(self, value: tuple[bytes]) -> None:
        self.exists, self.get = True, value

    def remove(self) -> None:
        self.exists, self.timeout = False, 0

    def setTimeoutTimestamp(self, moment: int) -> None:
        assert moment > self.watermark, "Spark refuses it"
        self.timeout = moment


match: Any = match_bucket
"""It asks no more of a state than this one has."""


def frame_of(batch: list[tuple[str, Event]]) -> Any:
    rows = [(key, pandas.Timestamp(e.time, unit="us"), e.order, e.kinds, e.id) for key, e in batch]
    return pandas.DataFrame(rows, columns=["key", "time", "lsn", "kinds", "id"])


def run(rule: Any, batches: list[list[tuple[str, Event]]], watermarks: list[int]) -> list[str]:
    """As Spark does it: with a batch's events, and with the watermark behind it if a timer is due by then."""
    state, found = State(), list[str]()
    for batch, watermark in zip(batches, watermarks, strict=True):
        if batch:
            frames = [frame_of(batch)]
            found += [text for out in match(rule, frames, state) for text in out["text"]]
        state.watermark = watermark
        if state.exists and state.timeout < watermark:
            found += [text for out in match(rule, [], state) for text in out["text"]]
    assert not state.exists, "everything is decided in the end"
    return found


@pytest.mark.parametrize(
    "pattern", ["seq(a, b)", "seq(a, not(b))", "and(a, b)", "times(3, a)", "seq(a, not(b), a)", "or(a, b)"]
)
@pytest.mark.parametrize("seed", range(5))
def test_each_key_of_a_bucket_finds_what_it_finds_alone(pattern: str, seed: int) -> None:
    chance = random.Random(seed)
    names = [name for name in "ab" if name in pattern.replace("and", "").replace("not", "")]
    kinds = "\n".join(f"{name} = \"kind = '{name}'\"" for name in names)
    (rule,) = parse_rules(RULE.format(pattern=pattern, events=kinds), "rules.toml")
    bits = {name: 1 << place for place, name in enumerate(names)}
    whole: list[tuple[str, Event]] = []
    for number in range(300):
        time = (number // 3) * SECOND + chance.randrange(SECOND)
        event = Event(time, number, bits[chance.choice(names)], f"id-{number}")
        whole.append((f"k{chance.randrange(7)}", event))
    arrived = sorted(whole, key=lambda each: each[1].time + chance.randrange(3 * SECOND))
    batches, watermarks, latest = [], [], 0
    while arrived:
        size = chance.randrange(1, 40)
        batches.append(arrived[:size])
        arrived = arrived[size:]
        latest = max([latest, *(event.time for _, event in batches[-1])])
        watermarks.append(max((latest - 3 * SECOND) // 1000, 0))
    found = run(rule, [*batches, []], [*watermarks, 10**9])
    expected = []
    for key in {key for key, _ in whole}:
        own = sorted((event for name, event in whole if name == key), key=in_order)
        expected += [f"{key}|{', '.join(ids)}" for ids in evaluate(pattern, own, rule.window, bits)]
    assert sorted(found) == sorted(expected)
    assert len(found) > 10


def test_a_match_is_told_when_its_last_event_is_certain_though_nothing_more_comes() -> None:
    kinds = "a = \"kind = 'a'\"\nb = \"kind = 'b'\""
    (rule,) = parse_rules(RULE.format(pattern="seq(a, b)", events=kinds), "rules.toml")
    batch = [("k", Event(1 * SECOND, 1, 1, "x")), ("k", Event(3 * SECOND, 2, 2, "y"))]
    state = State()
    (nothing,) = match(rule, [frame_of(batch)], state)
    assert nothing.empty
    state.watermark = 2000
    assert state.timeout < state.watermark
    (nothing,) = match(rule, [], state)
    assert nothing.empty
    state.watermark = 3002
    assert state.timeout < state.watermark, "not only when the window closes"
    (found,) = match(rule, [], state)
    assert found["text"].tolist() == ["k|x, y"]
    assert not state.exists


def test_time_goes_on_with_messages_that_no_rule_looks_for_and_not_beyond_our_clock() -> None:
    (rule,) = parse_rules(RULE.format(pattern="a", events="a = \"kind = 'a'\""), "rules.toml")
    began = datetime(2026, 1, 1, tzinfo=UTC)
    schema = pa.schema(
        [
            ("id", pa.string()),
            ("lsn", pa.int64()),
            ("timestamp", pa.timestamp("us", tz="UTC")),
            ("properties", pa.map_(pa.string(), pa.string())),
        ]
    )

    def sifted(*rows: tuple[str, datetime]) -> list[tuple[int, datetime]]:
        written = [
            {"id": "i", "lsn": 1, "timestamp": at, "properties": [("kind", kind), ("key", "k")]}
            for kind, at in rows
        ]
        (batch,) = events.sift_batches([rule], [pa.RecordBatch.from_pylist(written, schema=schema)])
        return [(row["rule"], row["time"]) for row in batch.to_pylist()]

    second = timedelta(seconds=1)
    assert sifted(("a", began), ("b", began)) == [(0, began)]
    assert sifted(("a", began), ("b", began + second)) == [(0, began), (events.CLOCK, began + second)]
    assert sifted() == []
    ((clock, shown),) = sifted(("b", datetime.now(UTC) + timedelta(days=1)))
    assert clock == events.CLOCK
    assert shown <= datetime.now(UTC)
