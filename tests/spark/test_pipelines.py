"""Ready pipelines on a real server with real Spark (D1, D4, D5), each on little data."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import heliograph
from heliograph.client.blocking import BlockingConnection
from heliograph.client.message import BlockingMessage
from heliograph.model.errors import ClientFault
from heliograph.spark.options import options_of
from heliograph.spark.pipelines import archive, audit, dead_letters, events, replay
from heliograph.spark.pipelines.manifest import Manifest
from heliograph.spark.pipelines.patterns import Event
from heliograph.spark.pipelines.report import write_report
from heliograph.spark.pipelines.rules import parse_rules
from heliograph.spark.pipelines.running import run_query
from heliograph.spark.schema import SCHEMA
from heliograph.spark.server import Server
from tests.unit.spark.plain_patterns import evaluate


def silent(_: str) -> None:
    """Nobody watches."""


def bodies_in(connection: BlockingConnection, destination: str, count: int) -> list[bytes]:
    consumer = connection.consumer(destination)
    found = []
    for _ in range(count):
        message = consumer.receive(timeout=30)
        assert message is not None
        assert isinstance(message.body, str | bytes)
        found.append(message.body if isinstance(message.body, bytes) else message.body.encode())
    assert consumer.receive(timeout=0.2) is None
    consumer.close()
    return found


@pytest.mark.req("D1", "D2", "D3")
@pytest.mark.nightly
def test_a_queue_and_its_history_go_through_spark_once_and_units_in_order(
    spark: Any, url: str, tmp_path: Path
) -> None:
    with heliograph.connect_blocking(url) as connection:
        producer = connection.producer("queue:a")
        for n in range(3000):
            producer.send(b"%d" % n, unit_of_order=f"u{n % 7}" if n % 2 else None)
        producer.flush()
        for mode in ("feed", "queue"):
            options = {
                "url": url,
                "destination": "queue:a",
                "mode": mode,
                "partitions": "2",
                "maxRowsPerTrigger": "1800",
            }
            rows = spark.readStream.format("heliograph").options(**options).load()
            writer = (
                rows.writeStream.format("heliograph")
                .option("url", url)
                .option("destination", f"queue:{mode}")
            )
            query = (
                writer.option("checkpointLocation", str(tmp_path / mode)).trigger(availableNow=True).start()
            )
            assert query.awaitTermination(240)
            assert query.exception() is None
            found = bodies_in(connection, f"queue:{mode}", 3000)
            assert sorted(found, key=int) == [b"%d" % n for n in range(3000)]
            for unit in range(7):
                own = [int(body) for body in found if int(body) % 2 and int(body) % 7 == unit]
                assert own == sorted(own)
        assert connection.ask("destination.show", destination="queue:a")["depth"] == 0


@pytest.mark.req("D4")
@pytest.mark.nightly
def test_what_is_archived_can_be_replayed_and_nothing_is_archived_twice(
    spark: Any, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"url": url, "destination": "queue:a", "partitions": 1}
    folder, checkpoint = tmp_path / "archive", tmp_path / "checkpoint"
    with heliograph.connect_blocking(url) as connection:
        producer = connection.producer("queue:a")
        for part in range(2):
            for n in range(50):
                producer.send(f"{part} {n}", properties={"n": n}, type="odd" if n % 2 else "even")
            producer.flush()
            archive.run(spark, options, folder, checkpoint, silent, once=True)
        kept = archive.read_archive(spark, folder)
        assert kept is not None
        assert kept.count() == 100
        assert Manifest(folder).rows() == 100
        # A batch whose entry is there is done.
        archive.add_batch(kept.drop("day"), folder, next(iter(Manifest(folder).entries())).key)
        assert archive.read_archive(spark, folder).count() == 100  # type: ignore[union-attr]
        # One that goes on for long is put together now and then.
        monkeypatch.setattr(archive, "COMPACT_EVERY", archive.SMALL_FILES)
        write = archive.writer_of(folder, silent)
        for n in range(archive.SMALL_FILES):
            write(kept.limit(1).drop("day"), n)
        assert len(Manifest(folder).files()) <= 2, "one for each day, and it may be midnight"
        assert archive.compact(folder, silent) == 0
        archive.add_batch(kept.drop("day"), folder, "batch:0")
        assert archive.read_archive(spark, folder).count() == 100 + archive.SMALL_FILES  # type: ignore[union-attr]
        sink = {"url": url, "destination": "queue:again"}
        where = "type = 'odd' AND int(properties['n']) < 10 AND text LIKE '1 %'"
        assert replay.run(spark, folder, sink, silent, where=where) == (5, 0)
        assert bodies_in(connection, "queue:again", 5) == [b"1 %d" % n for n in (1, 3, 5, 7, 9)]


@pytest.mark.req("D4")
def test_a_replay_keeps_to_its_time_and_rate_and_goes_on_at_another(
    spark: Any, url: str, tmp_path: Path
) -> None:
    folder = tmp_path / "archive"
    began = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [
        # Some share a position, as messages of a block do.
        (f"lane-{n}", n // 3, "queue:b" if n == 7 else "queue:a", began + timedelta(hours=n), 4)
        + (None,) * 7
        + (f"{n}".encode(), f"{n}", "text", None)
        for n in range(12)
    ]

    def archived(some: list[Any], key: str) -> None:
        archive.add_batch(spark.createDataFrame(some, SCHEMA), folder, key)

    def names() -> list[str]:
        marks = connection.ask("pipelines")["marks"]
        return [mark["name"] for mark in marks if mark["kind"] == "batch"]

    archived(rows[:9], "batch:0")
    sink = {"url": url, "destination": "queue:out"}
    chosen: dict[str, Any] = {
        "since": "2026-01-01 02:00:00",
        "until": "2026-01-01 11:00:00",
        "origin": "queue:a",
    }
    with heliograph.connect_blocking(url) as connection:
        # It was cut off behind the third message, in the middle of a block.
        three = {**chosen, "where": "id <= 'lane-4'"}
        name = replay.known_as("n", str(folder.resolve()), "queue:out", "", *chosen.values())
        own = replay.as_new(replay.selected(archive.read_archive(spark, folder), **three))
        assert replay.send(replay.in_order(own, -1), {**sink, "name": name}, silent, 0.0) == 3
        assert bodies_in(connection, "queue:out", 3) == [b"2", b"3", b"4"]
        archived(rows[9:], "batch:1")
        started = time.monotonic()
        assert replay.run(spark, folder, sink, silent, **chosen, rate=2.0, name="n") == (5, 0)
        assert time.monotonic() - started >= 2.0, "two at once, and the others a second and two later"
        assert bodies_in(connection, "queue:out", 5) == [b"5", b"6", b"8", b"9", b"10"]
        assert replay.run(spark, folder, sink, silent, **chosen, name="n") == (0, 0)
        assert names() == [name], "one mark, whatever the rate"
        assert replay.run(spark, folder, sink, silent, origin="queue:b", name="n") == (1, 0), "another replay"
        assert bodies_in(connection, "queue:out", 1) == [b"7"]


BODIES: tuple[Any, ...] = ("a text", b"\xffbytes", {"a": [1, 2.5, None]}, ["list"], "")
PROPERTIES: dict[str, Any] = {"whole": 7, "half": 0.5, "yes": True, "raw": b"\x00", "word": "7"}
CONTENT = bytes(2_000_000)


def send_all_kinds(connection: BlockingConnection, destination: str, **options: Any) -> None:
    """Each kind of body, properties of each type, and one message whose content travels on its own."""
    with connection.producer(destination) as producer:
        for body in BODIES:
            producer.send(body, properties=PROPERTIES, group_id="g", group_sequence=2, **options)
        producer.flush()
        producer.send_stream(CONTENT, properties=PROPERTIES, **options)


def received(connection: BlockingConnection, destination: str, count: int) -> list[BlockingMessage]:
    found = []
    with connection.consumer(destination) as consumer:
        for _ in range(count):
            message = consumer.receive(timeout=30)
            assert message is not None
            found.append(message)
        assert consumer.receive(timeout=0.2) is None
    return found


def same(value: Any, other: Any) -> bool:
    """1 and 1.0 and True are equal, and not the same."""
    return repr(value) == repr(other)


@pytest.mark.req("D4")
def test_what_is_replayed_is_what_it_was_and_large_messages_are_left_out_and_counted(
    spark: Any, url: str, tmp_path: Path
) -> None:
    options, folder = {"url": url, "destination": "queue:a", "partitions": 1}, tmp_path / "archive"
    with heliograph.connect_blocking(url) as connection:
        send_all_kinds(connection, "queue:a")
        archive.run(spark, options, folder, tmp_path / "checkpoint", silent, once=True)
        told: list[str] = []
        sink = {"url": url, "destination": "queue:again"}
        assert replay.run(spark, folder, sink, told.append) == (len(BODIES), 1)
        assert "1 large messages are left out" in told[0]
        found = received(connection, "queue:again", len(BODIES))
        assert same([message.body for message in found], list(BODIES))
        for message in found:
            kept = {name: value for name, value in message.properties.items() if name != replay.ORIGINAL_ID}
            assert same(sorted(kept.items()), sorted(PROPERTIES.items()))
            assert (message.group_id, message.group_sequence) == ("g", 2)


def let_die(connection: BlockingConnection, destination: str, count: int) -> None:
    """Nobody can process them."""
    session = connection.session(acknowledge="client")
    with session.consumer(destination) as consumer:
        for _ in range(count):
            assert consumer.receive(timeout=30) is not None
        session.recover()
        assert consumer.receive(timeout=0.2) is None
    session.close()


def depth_of(connection: BlockingConnection, destination: str) -> int:
    return int(connection.ask("destination.show", destination=destination)["depth"])


@pytest.mark.req("D4")
def test_the_dead_are_sorted_by_reason_and_sent_back_as_they_were(spark: Any, url: str) -> None:
    with heliograph.connect_blocking(url) as connection:
        for name in ("queue:a", "queue:b"):
            connection.ask("destination.create", destination=name, policy={"redelivery_limit": 1})
        send_all_kinds(connection, "queue:a", type="t")
        let_die(connection, "queue:a", len(BODIES) + 1)
        with connection.producer("queue:b") as producer:
            producer.send("another", properties={"n": 3})
            producer.flush()
        let_die(connection, "queue:b", 1)
        options = {"url": url, "partitions": 1}
        first, second = dead_letters.triage(options)
        assert (first.reason, first.origin, first.messages) == ("redelivery-limit", "queue:a", 6)
        assert (second.origin, second.messages) == ("queue:b", 1)
        assert first.first is not None
        assert first.last is not None
        assert first.first <= first.last
        where = "JMSType = 't' AND whole = 7 AND NOT JMS_helio_large"
        (group,) = dead_letters.triage(options, reason="redelivery-limit", where=where)
        assert (group.origin, group.messages) == ("queue:a", len(BODIES))
        assert dead_letters.triage(options, reason="expired") == []
        (group,) = dead_letters.triage(options, origin="queue:b")
        assert group.messages == 1
        assert dead_letters.redrive(spark, options, silent, reason="expired") == (0, 0)
        # More than one portion; the large one stays, with its content.
        told: list[str] = []
        portions = {**options, "maxRowsPerTrigger": 2}
        assert dead_letters.redrive(spark, portions, told.append, origin="queue:a") == (len(BODIES), 1)
        assert told[-1].startswith("1 messages stay dead")
        left = {(group.origin, group.messages) for group in dead_letters.triage(options)}
        assert left == {("queue:a", 1), ("queue:b", 1)}, "what was sent back is not dead any more"
        found = received(connection, "queue:a", len(BODIES))
        assert same([message.body for message in found], list(BODIES))
        for message in found:
            assert same(sorted(message.properties.items()), sorted(PROPERTIES.items()))
            assert (message.group_id, message.type) == ("g", "t")
        assert depth_of(connection, "queue:_DMQ") == 2
        with connection.consumer("queue:_DMQ", selector="JMS_helio_large") as consumer:
            large = consumer.receive(timeout=30)
            assert large is not None
            with large.open() as content:
                assert content.read() == CONTENT


@pytest.mark.req("D4", "D3")
def test_a_redrive_that_was_cut_off_goes_on_under_its_name_and_loses_nothing(spark: Any, url: str) -> None:
    with heliograph.connect_blocking(url) as connection:
        connection.ask("destination.create", destination="queue:a", policy={"redelivery_limit": 1})

        def die(*texts: str) -> None:
            with connection.producer("queue:a") as producer:
                for text in texts:
                    producer.send(text)
                producer.flush()
            let_die(connection, "queue:a", len(texts))

        def cut_off(epoch: int) -> None:
            """The driver died when a portion was published and not acknowledged."""
            with Server(options_of(leased), "test") as server:
                assert dead_letters.lend(server, leased, epoch)
            dead_letters.send_back(spark, leased, epoch)

        options = {"url": url, "partitions": 1}
        leased = {**options, "destination": dead_letters.DEAD, "mode": "queue", "lease": "mine"}
        die("0", "1")
        cut_off(1)
        assert sorted(bodies_in(connection, "queue:a", 2)) == [b"0", b"1"]
        assert dead_letters.redrive(spark, options, silent, name="mine") == (2, 0)
        assert depth_of(connection, "queue:_DMQ") == depth_of(connection, "queue:a") == 0, (
            "it was sent before"
        )
        # Nobody came in time to acknowledge the next portion. What died meanwhile is not taken for it.
        die("2")
        cut_off(2)
        bodies_in(connection, "queue:a", 1)
        connection.ask("pipeline.return", name="mine", epoch=2, destination=dead_letters.DEAD)
        die("3")
        told: list[str] = []
        assert dead_letters.redrive(spark, options, told.append, name="mine") == (2, 0)
        assert "may be sent a second time" in told[0]
        assert sorted(bodies_in(connection, "queue:a", 2)) == [b"2", b"3"]
        assert depth_of(connection, "queue:_DMQ") == 0


@pytest.mark.req("D4")
@pytest.mark.nightly
def test_an_audit_of_a_clean_run_finds_nothing_and_its_report_shows_what_was(
    spark: Any, url: str, tmp_path: Path
) -> None:
    with heliograph.connect_blocking(url) as connection:
        connection.ask("pipeline.hold", name="audit", destination="*", after=0)
        producer = connection.producer("queue:a")
        for n in range(500):
            producer.send(b"%d" % n, unit_of_order=f"u{n % 5}" if n % 3 else None)
        producer.flush()
        bodies_in(connection, "queue:a", 500)
        findings = audit.run(spark, {"url": url, "partitions": 2}, tmp_path / "result", silent)
        assert findings.violations == []
        totals = {(row.destination, row.kind): row.messages for row in findings.totals.itertuples()}
        assert totals["queue:a", "published"] == totals["queue:a", "dispatched"] == 500
        assert totals["queue:a", "done"] == 500
        assert not findings.latencies.empty
        write_report(findings, tmp_path / "report.html", title="Audit")
        page = (tmp_path / "report.html").read_text(encoding="utf-8")
        assert "Nothing was lost, doubled or out of order" in page
        assert page.count("data:image/png;base64,") >= 2
        assert "http" not in page.replace("https://", "").split("base64")[0]


RULES = """
[[rules]]
name = "sequence"
by = "key"
pattern = "seq(a, b)"
within = "20s"
late = "10s"
[rules.events]
a = "kind = 'a'"
b = "kind = 'b'"
[rules.action]
send = "queue:found"
text = "{rule} {key} {ids}"

[[rules]]
name = "silence"
by = "key"
pattern = "seq(a, not(b))"
within = "15s"
late = "10s"
[rules.events]
a = "kind = 'a'"
b = "kind = 'b'"
[rules.action]
send = "queue:found"
text = "{rule} {key} {ids}"
"""


@pytest.mark.req("D5", "A9")
def test_composite_events_are_those_of_a_plain_evaluation(spark: Any, tmp_path: Path) -> None:
    """Without a server: rows stand for messages, and matches are counted."""
    rules = parse_rules(RULES, "rules.toml")
    began = datetime(2026, 1, 1, tzinfo=UTC)
    rows, by_key = [], dict[str, list[Event]]()
    for n in range(400):
        key, kind = f"k{n * 7 % 13}", "abc"[n * n % 3]
        at = began + timedelta(seconds=n * 2)
        rows.append((f"id{n}", n, at, {"key": key, "kind": kind}))
        bit = {"a": 1, "b": 2}.get(kind, 0)
        if bit:
            by_key.setdefault(key, []).append(Event(int(at.timestamp() * 1_000_000), n, bit, f"id{n}"))
    schema = "id string, lsn bigint, timestamp timestamp, properties map<string,string>"
    folder = tmp_path / "in"
    for part in range(4):
        batch = spark.createDataFrame(rows[part * 100 : part * 100 + 100], schema)
        batch.coalesce(1).write.mode("append").parquet(str(folder))
    # A message that no rule looks for: with it, too, it is later.
    end = [("end", 10_000, began + timedelta(days=1), {"key": "end", "kind": "none"})]
    spark.createDataFrame(end, schema).coalesce(1).write.mode("append").parquet(str(folder))
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))
    found: list[str] = []
    matches = events.as_messages(events.matches_of(stream, rules))

    def collect(batch: Any, _number: int) -> None:
        found.extend(row["text"] for row in batch.collect())

    query = matches.writeStream.foreachBatch(collect).outputMode("append")
    query = (
        query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    )
    assert query.awaitTermination(240)
    expected = []
    for key, own in by_key.items():
        for rule in rules:
            for ids in evaluate(rule.pattern_text, own, rule.window):
                expected.append(f"{rule.name} {key} {', '.join(ids)}")
    assert sorted(found) == sorted(expected)


ALERTING = """
[[rules]]
name = "twice"
by = "key"
pattern = "times(2, a)"
within = "1m"
late = "10ms"
[rules.events]
a = "kind = 'a'"
[rules.action]
alert = "found"
tag = "key.{key}"
text = "{key} twice"
priority = 9
duration = "1h"
"""


@pytest.mark.req("D5", "A9")
def test_a_match_is_an_alert_and_is_raised_once_though_its_batch_is_done_again(
    spark: Any, url: str, tmp_path: Path
) -> None:
    rules = parse_rules(ALERTING, "rules.toml")
    options, checkpoint = {"url": url, "destination": "queue:a", "partitions": 1}, tmp_path / "checkpoint"
    with heliograph.connect_blocking(url) as connection:

        def send(*keys: str) -> None:
            with connection.producer("queue:a") as producer:
                for key in keys:
                    producer.send("", properties={"key": key, "kind": "a"})
                producer.flush()
            time.sleep(0.05)  # so that the next is behind these by more than what may come late

        send("x", "y", "x", "y", "z")
        send("the last")
        events.run(spark, options, rules, checkpoint, silent, once=True)
        consumer = connection.alerts("found").subscribe("TAG:^key", name="test")
        alerts = [consumer.receive(30) for _ in range(2)]
        assert {(alert.destination, alert.text) for alert in alerts if alert} == {
            ("TAG:key.x", "x twice"),
            ("TAG:key.y", "y twice"),
        }
        assert {(alert.priority, alert.duration) for alert in alerts if alert} == {(9, 3600.0)}
        # The driver died before Spark noted that the batch was done: it is done again.
        done = sorted(path for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
        for path in (*done, *(path.with_name(f".{path.name}.crc") for path in done)):
            path.unlink(missing_ok=True)
        events.run(spark, options, rules, checkpoint, silent, once=True)
        assert consumer.receive(0.5) is None
        assert len(connection.alerts("found").list()) == 2
        # What is undecided there is not taken for something of other rules.
        others = parse_rules(ALERTING.replace("times(2, a)", "times(3, a)"), "rules.toml")
        with pytest.raises(ClientFault) as refused:
            events.run(spark, options, others, checkpoint, silent, once=True)
        assert refused.value.code == "event-rules-changed"


@pytest.mark.req("D5")
def test_what_comes_too_late_is_dropped_and_counted(spark: Any, tmp_path: Path) -> None:
    rules = parse_rules(RULES, "rules.toml")
    began = datetime(2026, 1, 1, tzinfo=UTC)
    schema = "id string, lsn bigint, timestamp timestamp, properties map<string,string>"
    folder = tmp_path / "in"
    # The fourth is more than ten seconds behind what was known a batch before; what either rule would have made of it
    # is not found.
    for number, (kind, seconds) in enumerate((("a", 0), ("a", 60), ("a", 61), ("b", 5), ("a", 3600))):
        row = (f"id{number}", number, began + timedelta(seconds=seconds), {"key": "k", "kind": kind})
        spark.createDataFrame([row], schema).coalesce(1).write.mode("append").parquet(str(folder))
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))
    found, told = list[str](), list[str]()

    def collect(batch: Any, _number: int) -> None:
        found.extend(row["text"] for row in batch.collect())

    writer = events.matches_of(stream, rules).writeStream.foreachBatch(collect).outputMode("append")
    run_query(writer, tmp_path / "checkpoint", told.append, once=True)
    assert sorted(found) == ["silence k id0", "silence k id1", "silence k id2"]
    assert "2 events came too late and were dropped, 2 in all" in told


@pytest.mark.req("D5")
def test_a_clock_that_is_ahead_has_nobody_elses_events_dropped(spark: Any, tmp_path: Path) -> None:
    rules = parse_rules(RULES.replace('late = "10s"', 'late = "1h"'), "rules.toml")
    now = datetime.now(UTC)
    schema = "id string, lsn bigint, timestamp timestamp, properties map<string,string>"
    folder = tmp_path / "in"
    for number, (key, kind, seconds) in enumerate((("ahead", "a", 86_400), ("k", "a", 0), ("k", "b", 1))):
        row = (f"id{number}", number, now + timedelta(seconds=seconds), {"key": key, "kind": kind})
        spark.createDataFrame([row], schema).coalesce(1).write.mode("append").parquet(str(folder))
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))
    told: list[str] = []
    writer = events.matches_of(stream, rules).writeStream.foreachBatch(lambda batch, _number: batch.collect())
    run_query(writer.outputMode("append"), tmp_path / "checkpoint", told.append, once=True)
    assert [line for line in told if "too late" in line] == []


def test_json_bodies_have_fields() -> None:
    row = {
        "text": json.dumps({"a": 1, "b": {"c": 2}}),
        "properties": [("d", "2.5"), ("e", "true")],
        "type": "t",
    }
    fields = events.fields_of(row)
    assert (fields["a"], fields["d"], fields["e"], fields["JMSType"]) == (1, 2.5, True, "t")
    assert "b" not in fields
