"""Composite events (D5, A9): rules over a stream of messages, as stateful streaming with event time.

Each batch of messages is held against the selectors of all rules, as columns; what fits any event of a rule goes on
under (rule, bucket of the key). Messages that fit nothing say only how late it is, so that time goes on with any
traffic. There, for each key, the events that are not decided yet are kept in order of their
time, and matches are looked for as far as the watermark allows (`patterns.find`): the answer does not depend on how
the stream was cut into batches. A timer wakes a bucket when something in it may be decided. Matches are messages or
alerts, each once by what the sink does.

Keys share buckets because Spark takes a millisecond for each group, whatever is in it. Of a key that nothing came
for, and for which it is not time, a bucket only passes the bytes on.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import msgspec

from heliograph.frontends import alert_messages
from heliograph.model.alert import message_priority
from heliograph.model.limits import MAX_ALERT_BODY_BYTES, MAX_ALERT_DESTINATION_BYTES
from heliograph.model.selector import Selector
from heliograph.model.selector.columns import LARGE_NAME
from heliograph.spark.pipelines.kept_rules import check_rules
from heliograph.spark.pipelines.patterns import Event, Match, Pattern, find, parse
from heliograph.spark.pipelines.rules import MAX_RULES, Rule, longest_late
from heliograph.spark.pipelines.running import Tell, run_query, source
from heliograph.spark.rows import said
from heliograph.spark.schema import with_dates

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.state import GroupState

MAX_EVENTS_OF_A_KEY: Final = 10_000
"""A key that has so many undecided events is a fault in the rule: the oldest are given up."""
BUCKETS: Final = 256
"""Of the keys of a rule. A checkpoint is of one number of them."""
_UNASKED: Final = ("body", "expiration")
_LAST_TIME: Final = 9_000_000_000_000_000
"""In the year 2255; frames of pandas end in 2262."""
CLOCK: Final = -1
"""In the place of a rule: a row that says how late it is, and nothing else."""
_SIFTED: Final = (
    "rule int, bucket int, key string, time timestamp, lsn bigint, kinds bigint, id string, clock timestamp"
)
_STATE: Final = "events binary"
MATCHES: Final = (
    "rule string, key string, started timestamp, completed timestamp, ids array<string>, destination string,"
    " text string, priority int, tag string, duration double"
)
_HEADERS: Final = {
    "JMSType": "type",
    "JMSPriority": "priority",
    "JMSCorrelationID": "correlation_id",
    "JMSReplyTo": "reply_to",
    "JMSMessageID": "id",
    "JMSDestination": "destination",
}
_GROUP: Final = ("JMSXGroupID", "JMSXGroupSeq")
_NO_GROUP: Final = (None, None)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


class _Group(msgspec.Struct, rename={"group_id": "g", "group_sequence": "s"}):
    """Of a head, what is of the group."""

    group_id: str | None = None
    group_sequence: int = 0


_decode_group = msgspec.msgpack.Decoder(_Group).decode
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[tuple[int, int, int, str]]).decode
_decode_bucket = msgspec.msgpack.Decoder(list[tuple[str, int, bytes]]).decode
Waiting = dict[str, tuple[int, bytes]]
"""For each key, when it is due and the events that are not decided, encoded."""


# ---- which message is what event


def value_of(text: str | None) -> Any:
    """Properties travel as texts; what reads like a number or a truth is one."""
    if text is None:
        return None
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            return text


def fields_of(row: dict[str, Any]) -> dict[str, Any]:
    """What selectors may ask of a message: fields of a JSON body, properties, headers; the later win."""
    fields: dict[str, Any] = {}
    text = row.get("text")
    if text and text.startswith("{"):
        try:
            body = json.loads(text)
        except (ValueError, RecursionError):
            body = {}  # a selector finds nothing in it; the next message is another matter
        fields.update((k, v) for k, v in body.items() if isinstance(v, str | int | float | bool))
    for name, value in row.get("properties") or ():
        fields[name] = value_of(value)
    for header, column in _HEADERS.items():
        fields[header] = row.get(column)
    fields.update(zip(_GROUP, _group_of(row.get("head")), strict=True))
    sent = row.get("timestamp")
    fields["JMSTimestamp"] = None if sent is None else (sent - _EPOCH) // _MILLISECOND
    fields["JMSDeliveryMode"] = "PERSISTENT"  # nothing else has a history
    fields[LARGE_NAME] = row.get("body_kind") == "large"
    return fields


def _group_of(head: bytes | None) -> tuple[str | None, int | None]:
    """The group, and the place in it, as whoever sent it said. The unit of order is another matter."""
    if not head:
        return _NO_GROUP
    try:
        found = _decode_group(head)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _NO_GROUP  # what a head has that cannot be read is nothing, for the server, too
    return found.group_id, found.group_sequence or None


def key_of(rule: Rule, row: dict[str, Any], fields: dict[str, Any]) -> str | None:
    """As it was told: cards 0012 and 12 are two, though a selector takes either for a number."""
    if not rule.by:
        return ""
    if rule.by in _HEADERS.values():
        value = row.get(rule.by)
    elif rule.by in _HEADERS or rule.by in _GROUP:
        value = fields.get(rule.by)
    else:
        told = (value for name, value in reversed(list(row.get("properties") or ())) if name == rule.by)
        value = next(told, fields.get(rule.by))
    text = said(value)
    # JSON can write halves of letters, which no message and no state can have.
    return None if text is None else text.encode(errors="replace").decode()


class Sieve:
    """The selectors of all rules."""

    def __init__(self, rules: list[Rule]) -> None:
        self._rules = rules
        self._selectors = [
            (Selector(rule.where) if rule.where else None, [Selector(text) for text in rule.events.values()])
            for rule in rules
        ]

    def sift(self, rows: list[dict[str, Any]]) -> Iterator[tuple[int, int, str, Any, int, int, str]]:
        """Rule, bucket, key, time, LSN, kinds, id of each message that concerns a rule. One that does not say when it
        was sent comes neither before nor after any other, and concerns none."""
        fields = [fields_of(row) for row in rows]
        for number, rule in enumerate(self._rules):
            where, selectors = self._selectors[number]
            kinds = [0] * len(rows)
            for bit, selector in enumerate(selectors):
                for place in matching(selector, fields):
                    kinds[place] |= 1 << bit
            allowed = dict.fromkeys(matching(where, fields)) if where is not None else None
            for place, found in enumerate(kinds):
                row = rows[place]
                if found and (allowed is None or place in allowed) and row["timestamp"] is not None:
                    key = key_of(rule, row, fields[place])
                    if key is not None:
                        bucket = crc32(key.encode()) % BUCKETS
                        yield number, bucket, key, row["timestamp"], row["lsn"], found, row["id"]


def matching(selector: Selector, fields: list[dict[str, Any]]) -> list[int]:
    """The places of those that a selector selects."""
    columns = [[row.get(name) for row in fields] for name in selector.names]
    return selector.compiled.rows(range(len(fields)), columns)


def _sifter(rules: list[Rule]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What Spark sends to its workers: small, and everything else is found there by its name."""

    def sift(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return sift_batches(rules, batches)

    return sift


def sift_batches(rules: list[Rule], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Which messages are events, of which rules."""
    import pyarrow as pa

    sieve = Sieve(rules)
    schema = pa.schema(
        [
            ("rule", pa.int32()),
            ("bucket", pa.int32()),
            ("key", pa.string()),
            ("time", pa.timestamp("us", tz="UTC")),
            ("lsn", pa.int64()),
            ("kinds", pa.int64()),
            ("id", pa.string()),
            ("clock", pa.timestamp("us", tz="UTC")),
        ]
    )
    for batch in batches:
        rows = _rows_of(batch)
        now = datetime.now(UTC)
        found = [(*each, min(each[3], now)) for each in sieve.sift(rows)]
        found += clock_of(rows, max((each[-1] for each in found), default=None), now)
        columns = list(zip(*found, strict=True)) if found else [()] * len(schema)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Without what no rule can ask for. Whoever sends says when: what no date can say is the first or the last."""
    batch = batch.select([name for name in batch.schema.names if name not in _UNASKED])
    rows: list[dict[str, Any]] = with_dates(batch, "timestamp", _LAST_TIME).to_pylist()
    return rows


def clock_of(rows: list[dict[str, Any]], latest: datetime | None, now: datetime) -> list[tuple[Any, ...]]:
    """The time of the latest message, if no event is as late."""
    times = [row["timestamp"] for row in rows if row["timestamp"] is not None]
    if not times:
        return []
    last = min(max(times), now)
    return [(CLOCK, 0, "", last, 0, 0, "", last)] if latest is None or last > latest else []


# ---- matching


def _matcher(rules: list[Rule]) -> Any:
    """As `_sifter`."""

    def match(
        key: tuple[int, int], frames: Iterable[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        _be_quiet()
        if key[0] == CLOCK:
            return iter(())
        return match_bucket(rules[int(key[0])], frames, state)

    return match


@lru_cache(maxsize=1)
def _be_quiet() -> None:
    """Spark fills up what a group returns with empty rows, of which pandas warns in every worker."""
    warnings.filterwarnings("ignore", "The behavior of DataFrame concatenation", FutureWarning)


def match_bucket(rule: Rule, frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """New events of a rule and its keys of a bucket, or the bucket's timer."""
    import pandas as pd

    waiting: Waiting = {}
    if state.exists:
        waiting = {key: (due, events) for key, due, events in _decode_bucket(state.get[0])}
    news = _by_key(frames)
    watermark = state.getCurrentWatermarkMs() * 1000
    pattern = _pattern(rule.pattern_text, tuple(rule.events))
    is_due = [key for key, (due, _) in waiting.items() if due <= watermark]
    rows = []
    for key in dict.fromkeys([*is_due, *news]):
        events = [Event(*each) for each in _decode(waiting[key][1])] if key in waiting else []
        events += news.get(key, ())
        events.sort(key=in_order)
        matches, left = find(pattern, events, rule.window, watermark)
        rows += [_row(rule, key, match) for match in matches]
        left = left[-MAX_EVENTS_OF_A_KEY:]
        if left:
            waiting[key] = (due_of(left, rule.window, watermark), _encode(left))
        else:
            waiting.pop(key, None)
    _keep(state, waiting, watermark)
    yield pd.DataFrame(rows, columns=_names())


def _by_key(frames: Iterable[pd.DataFrame]) -> dict[str, list[Event]]:
    found: dict[str, list[Event]] = {}
    for frame in frames:
        times = frame["time"].astype("datetime64[us]").astype("int64").tolist()
        rest = (frame[name].tolist() for name in ("key", "lsn", "kinds", "id"))
        for time, key, lsn, kinds, identity in zip(times, *rest, strict=True):
            found.setdefault(key, []).append(Event(time, lsn, kinds, identity))
    return found


def due_of(left: list[Event], window: int, watermark: int) -> int:
    """When the watermark is there, something of these may be decided: one more of them is certain, or the window of
    the first closes."""
    closes = left[0].time + window
    return min(closes, next((event.time for event in left if event.time > watermark), closes))


def in_order(event: Event) -> tuple[int, int, int]:
    """Messages of a block may share time and LSN: their sequences, with which their ids end, tell them apart."""
    sequence = event.id.rpartition("-")[2]
    return event.time, event.order, int(sequence) if sequence.isdigit() else 0


@lru_cache(maxsize=MAX_RULES)
def _pattern(text: str, names: tuple[str, ...]) -> Pattern:
    return parse(text, {name: 1 << place for place, name in enumerate(names)})


def _keep(state: GroupState, waiting: Waiting, watermark: int) -> None:
    if not waiting:
        if state.exists:
            state.remove()
        return
    state.update((_encode([(key, due, events) for key, (due, events) in waiting.items()]),))
    due = min(due for due, _ in waiting.values())
    state.setTimeoutTimestamp(max(due, watermark) // 1000 + 1)


def _row(rule: Rule, key: str, match: Match) -> tuple[Any, ...]:
    import pandas as pd

    ids = [event.id for event in match.taken]
    started = pd.Timestamp(match.taken[0].time, unit="us")
    completed = pd.Timestamp(match.completed, unit="us")
    facts = {
        "rule": rule.name,
        "key": key,
        "ids": ", ".join(ids),
        "started": started.isoformat(),
        "completed": completed.isoformat(),
    }
    row = (rule.name, key, started, completed, ids, rule.destination)
    if not rule.raises:
        return *row, rule.text.format(**facts), rule.priority, None, None
    text, tag = alert_texts(rule.text.format(**facts), rule.tag.format(**facts))
    return *row, text, message_priority(rule.priority), tag, rule.duration


def alert_texts(text: str, tag: str) -> tuple[str, str]:
    """As an alert takes them: what a key says may be long, and have anything in it."""
    plain = "".join(letter if letter.isprintable() else " " for letter in tag).strip() or "-"
    return _cut(text, MAX_ALERT_BODY_BYTES), f"TAG:{_cut(plain, MAX_ALERT_DESTINATION_BYTES - 4)}"


def _cut(text: str, most: int) -> str:
    return text.encode()[:most].decode(errors="ignore")


def _names() -> list[str]:
    return [part.split()[0] for part in MATCHES.split(", ")]


def matches_of(messages: DataFrame, rules: list[Rule]) -> DataFrame:
    """The matches of all rules in a stream of messages."""
    from pyspark.sql import functions as f
    from pyspark.sql.streaming.state import GroupStateTimeout

    late = longest_late(rules)
    # An event's own time may be ahead of ours; by it everybody else's events would come too late. It waits instead.
    sifted = messages.mapInArrow(_sifter(rules), _SIFTED).withWatermark(
        "clock", f"{late * 1000:.0f} milliseconds"
    )
    return sifted.groupBy(f.col("rule"), f.col("bucket")).applyInPandasWithState(
        _matcher(rules), MATCHES, _STATE, "append", GroupStateTimeout.EventTimeTimeout
    )


def as_messages(matches: DataFrame) -> DataFrame:
    """What the sink sends, or raises, for each match: its text, and what it is about as properties."""
    from pyspark.sql import functions as f

    properties = f.create_map(
        f.lit("rule"),
        f.col("rule"),
        f.lit("key"),
        f.col("key"),
        f.lit("ids"),
        f.array_join("ids", " "),
        f.lit("started"),
        f.col("started").cast("string"),
        f.lit("completed"),
        f.col("completed").cast("string"),
        f.lit(alert_messages.DESTINATION),
        f.col("tag"),
        f.lit(alert_messages.DURATION),
        f.col("duration").cast("string"),
    )
    return matches.select(
        "destination",
        "text",
        "priority",
        f.lit("composite-event").alias("type"),
        f.map_filter(properties, lambda _, value: value.isNotNull()).alias("properties"),
    )


def run(
    spark: SparkSession,
    options: dict[str, Any],
    rules: list[Rule],
    checkpoint: Path,
    tell: Tell,
    *,
    once: bool,
    stopped: Callable[[], bool] = lambda: False,
) -> int:
    """Watch for matches until stopped, or through what there is. Returns the rows that were read. Raises ClientFault
    where the checkpoint is of other rules."""
    check_rules(checkpoint, rules, BUCKETS)
    sink = {key: str(value) for key, value in options.items() if key in ("url", "user", "password")}
    matches = as_messages(matches_of(source(spark, options), rules))
    writer = matches.writeStream.format("heliograph").options(**sink).outputMode("append")
    return run_query(writer, checkpoint, tell, once=once, stopped=stopped)
