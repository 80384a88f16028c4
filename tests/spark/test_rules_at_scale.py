"""Ten rules over a million events of 50,000 keys: what Spark finds is what a plain evaluation finds (D5, A9)."""

from __future__ import annotations

import os
import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from heliograph.spark.pipelines import events
from heliograph.spark.pipelines.patterns import Event
from heliograph.spark.pipelines.rules import Rule, parse_rules
from tests.unit.spark.plain_patterns import evaluate

pytestmark = [pytest.mark.req("D5", "A9"), pytest.mark.nightly]
BITS = {"a": 1, "b": 2, "c": 4}
PATTERNS = {
    "seq(a, b)": 40,
    "seq(a, b, c)": 90,
    "seq(a, not(b), c)": 60,
    "seq(a, not(b))": 30,
    "and(a, b)": 25,
    "and(seq(a, b), c)": 120,
    "or(seq(a, a), seq(b, c))": 50,
    "times(3, a)": 100,
    "seq(or(a, b), c)": 35,
    "seq(times(2, a), not(c), b)": 150,
}
LATE = 20
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = "id string, lsn bigint, timestamp timestamp, properties map<string,string>"


def _events(pattern: str) -> str:
    """Those of a pattern: a rule says of no event what it is that it does not look for."""
    return "\n".join(f"{name} = \"kind = '{name}'\"" for name in _names(pattern))


def _names(pattern: str) -> list[str]:
    return [name for name in BITS if name in re.split(r"\W+", pattern)]


def rules() -> list[Rule]:
    written = [
        f"""
[[rules]]
name = "rule {number}"
by = "key"
pattern = "{pattern}"
within = "{seconds}s"
late = "{LATE}s"
[rules.events]
{_events(pattern)}
[rules.action]
send = "queue:found"
text = "{{rule}}|{{key}}|{{ids}}"
"""
        for number, (pattern, seconds) in enumerate(PATTERNS.items())
    ]
    return parse_rules("".join(written), "rules.toml")


class History:
    """Events of many keys, about 20 for each however many there are, which arrive a little out of order."""

    def __init__(self, count: int, keys: int, seed: int = 7) -> None:
        chance = np.random.default_rng(seed)
        self.keys = chance.integers(0, keys, count)
        self.kinds = chance.integers(0, 3, count)
        # A key has an event every 20 seconds or so.
        self.seconds = np.sort(chance.uniform(0, 20.0 * count / keys, count)).round(3)
        arrival = self.seconds + chance.uniform(0, LATE / 2, count)
        self.arrived = np.argsort(arrival, kind="stable")

    def write(self, folder: Path, files: int) -> None:
        """As many files as there are to be batches, and one event at the end of time, behind which all is decided."""
        for number, places in enumerate(np.array_split(self.arrived, files)):
            path = folder / f"{number:03}.parquet"
            self._write(path, places.tolist())
            os.utime(path, (number, number))  # by which Spark puts them in order
        end = self._table(["end"], [1 << 40], [BEGAN + timedelta(days=9)], [[("key", "end"), ("kind", "a")]])
        pq.write_table(end, folder / "999.parquet")

    def _write(self, path: Path, places: list[int]) -> None:
        times = [BEGAN + timedelta(seconds=float(self.seconds[n])) for n in places]
        properties = [[("key", f"k{self.keys[n]}"), ("kind", "abc"[self.kinds[n]])] for n in places]
        pq.write_table(self._table([f"id-{n}" for n in places], places, times, properties), path)

    def _table(self, ids: list[str], lsns: list[int], times: list[datetime], properties: Any) -> pa.Table:
        columns = {
            "id": pa.array(ids),
            "lsn": pa.array(lsns, pa.int64()),
            "timestamp": pa.array(times, pa.timestamp("us", tz="UTC")),
            "properties": pa.array(properties, pa.map_(pa.string(), pa.string())),
        }
        return pa.table(columns)

    def by_key(self) -> dict[str, list[Event]]:
        found: dict[str, list[Event]] = {}
        for n, (key, kind, seconds) in enumerate(
            zip(self.keys.tolist(), self.kinds.tolist(), self.seconds.tolist(), strict=True)
        ):
            at = int((BEGAN + timedelta(seconds=seconds)).timestamp() * 1_000_000)
            found.setdefault(f"k{key}", []).append(Event(at, n, 1 << kind, f"id-{n}"))
        return found


@pytest.mark.parametrize(
    ("count", "keys", "files"),
    [
        (4_000, 200, 2),
        pytest.param(1_000_000, 50_000, 4, marks=pytest.mark.timeout(7200)),
    ],
)
def test_ten_rules_find_what_a_plain_evaluation_finds(
    spark: Any, tmp_path: Path, count: int, keys: int, files: int
) -> None:
    history, written = History(count, keys), rules()
    folder = tmp_path / "in"
    folder.mkdir()
    history.write(folder, files)
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))
    matches = events.matches_of(stream, written).select("text")
    query = matches.writeStream.format("parquet").option("path", str(tmp_path / "out"))
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    assert query.start().awaitTermination(6000)
    found = Counter(pq.read_table(tmp_path / "out")["text"].to_pylist())
    expected: Counter[str] = Counter()
    for key, own in history.by_key().items():
        for rule in written:
            wanted = sum(BITS[name] for name in _names(rule.pattern_text))
            concerned = [event for event in own if event.kinds & wanted]
            for ids in evaluate(rule.pattern_text, concerned, rule.window, BITS):
                expected[f"{rule.name}|{key}|{', '.join(ids)}"] += 1
    assert sum(expected.values()) > count // 2, "enough was found"
    assert len({text.partition("|")[0] for text in expected}) == len(PATTERNS)
    assert found == expected
