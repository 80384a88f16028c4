"""Pipelines on a standalone cluster of Spark (D6): a master and two workers from the package, on loopback. A relay,
and what a person runs: archive, audit and composite events."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

import heliograph
from heliograph.client.blocking import BlockingConnection
from heliograph.spark.pipelines.manifest import Manifest
from heliograph.spark.pipelines.patterns import Event
from heliograph.spark.pipelines.rules import parse_rules
from tests.servers import CLEAN, ROOT
from tests.spark.serving import wait_until
from tests.spark.test_exactly_once import received, send
from tests.unit.spark.plain_patterns import evaluate

pytestmark = [pytest.mark.req("D6"), pytest.mark.nightly]
_MASTER, _WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"


def spark_environment(folder: Path) -> dict[str, str]:
    """Workers need the package, and Python: as on any cluster, by what they are started with."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    own = {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}
    # What `helio pipeline` leaves to the cluster is said where every cluster says it.
    settings = folder / "conf"
    settings.mkdir(exist_ok=True)
    defaults = "spark.executor.memory 600m\nspark.sql.shuffle.partitions 4\n"
    (settings / "spark-defaults.conf").write_text(defaults)
    own["SPARK_CONF_DIR"] = str(settings)
    return {**CLEAN, **own, "SPARK_LOG_DIR": str(folder), "SPARK_WORKER_DIR": str(folder / "work")}


@contextmanager
def daemon(folder: Path, name: str, *arguments: str) -> Iterator[Path]:
    """A process of Spark, from `with` to its end. Its log."""
    import pyspark

    home = Path(pyspark.__file__).parent
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(home / "bin" / "spark-class"), *arguments],
            env={**spark_environment(folder), "SPARK_HOME": str(home)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield log
    finally:
        process.terminate()
        process.wait(30)


def found(log: Path, pattern: str) -> list[str]:
    return re.findall(pattern, log.read_text(errors="replace"))


@contextmanager
def standalone(folder: Path) -> Iterator[tuple[str, list[Path]]]:
    """A master and two workers. The address of the master, and the logs of the workers."""
    with ExitStack() as stack:
        here = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        log = stack.enter_context(daemon(folder, "master", _MASTER, *here))
        wait_until(lambda: found(log, r"master at (spark://\S+)"), "the master is there", 240)
        (master,) = found(log, r"master at (spark://\S+)")
        size = ("--cores", "1", "--memory", "900m")
        logs = [
            stack.enter_context(daemon(folder, f"worker-{n}", _WORKER, *here, *size, master))
            for n in range(2)
        ]
        for each in logs:
            wait_until(partial(found, each, "Successfully registered"), "it is registered", 240)
        yield master, logs


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", ["queue", "feed"])
def test_the_same_pipeline_runs_on_a_master_and_two_workers(tmp_path: Path, url: str, mode: str) -> None:
    count = 20_000
    send(url, count)
    with standalone(tmp_path) as (master, logs):
        arguments = [url, mode, str(tmp_path / "checkpoint"), "8000", master]
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.relay", *arguments],
            cwd=ROOT,
            env=spark_environment(tmp_path),
            capture_output=True,
            check=False,
            timeout=1500,
        )
        assert done.returncode == 0, done.stderr.decode()[-3000:]
        assert all(found(each, "Launching Python|Asked to launch executor") for each in logs), "both worked"
    assert sorted(received(url, count)) == list(range(count))


CARDS = 30
MESSAGES = 3_000
RULES = """
[[rules]]
name = "paid twice"
by = "card"
pattern = "seq(times(2, paid), refused)"
within = "10m"
late = "10ms"
[rules.events]
paid = "JMSType = 'paid'"
refused = "JMSType = 'refused'"
[rules.action]
send = "queue:found"
text = "{key} {ids}"
"""


def card_and_type(n: int) -> tuple[str, str]:
    return f"card {n % CARDS}", "refused" if n * n % 7 == 4 else "paid"


def pay(url: str) -> dict[str, bytes]:
    """Each card is a unit of order. All is received and acknowledged again. Returns bodies by id, as they came."""
    with heliograph.connect_blocking(url) as connection:
        with connection.producer("queue:payments") as producer:
            for n in range(MESSAGES):
                card, kind = card_and_type(n)
                producer.send(b"%d" % n, type=kind, properties={"card": card}, unit_of_order=card)
            producer.flush()
            sent = time.time()
            received = bodies_of(connection, "queue:payments", MESSAGES)
            wait_until(lambda: time.time() > sent + 0.1, "what comes now is behind what may be late")
            producer.send(b"the last")
            producer.flush()
        return received


def bodies_of(connection: BlockingConnection, destination: str, count: int) -> dict[str, bytes]:
    consumer = connection.consumer(destination)
    found: dict[str, bytes] = {}
    for _ in range(count):
        message = consumer.receive(timeout=30)
        assert message is not None, f"{len(found)} of {count} messages came"
        found[message.id] = message.body if isinstance(message.body, bytes) else str(message.body).encode()
    assert consumer.receive(timeout=0.2) is None
    consumer.close()
    return found


def texts_of_matches(ids: dict[int, str]) -> list[str]:
    """By the definition, from what was sent."""
    (rule,) = parse_rules(RULES, "rules.toml")
    by_card: dict[str, list[Event]] = {}
    for n in range(MESSAGES):
        card, kind = card_and_type(n)
        by_card.setdefault(card, []).append(Event(n, n, rule.bits[kind], ids[n]))
    return sorted(
        f"{card} {', '.join(match)}"
        for card, events in by_card.items()
        for match in evaluate(rule.pattern_text, events, rule.window, rule.bits)
    )


def in_a_pipeline(folder: Path, master: str, url: str, name: str, *arguments: str) -> dict[str, Any]:
    """`helio pipeline NAME` on the cluster, as a person has it done."""
    command = [sys.executable, "-m", "heliograph.cli.main", "pipeline", name, *arguments]
    done = subprocess.run(
        [*command, "--url", url, "--master", master, "--partitions", "2", "--json"],
        cwd=ROOT,
        env=spark_environment(folder),
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def archived(folder: Path) -> list[dict[str, Any]]:
    """The rows of an archive as they stand in it."""
    columns = ["id", "lsn", "body", "unit_of_order", "type", "properties"]
    tables = [
        parquet.read_table(folder / name, columns=columns, partitioning=None)
        for name in Manifest(folder).files()
    ]
    return [row for table in tables for row in table.to_pylist()]


@pytest.mark.req("D4", "D5")
@pytest.mark.timeout(2400)
def test_archive_audit_and_events_run_on_a_master_and_two_workers(tmp_path: Path, url: str) -> None:
    sent = pay(url)
    assert sorted(map(int, sent.values())) == list(range(MESSAGES))
    rules = tmp_path / "rules.toml"
    rules.write_text(RULES)
    payments = ("-d", "queue:payments", "--from", "earliest", "--once")
    with standalone(tmp_path) as (master, logs):
        run = partial(in_a_pipeline, tmp_path, master, url)
        assert run("archive", str(tmp_path / "archive"), *payments)["rows"] == MESSAGES + 1
        places = ("--report", str(tmp_path / "report.html"), "--result", str(tmp_path / "result"))
        assert run("audit", *places)["violations"] == []
        assert run("events", str(rules), *payments)["rows"] == MESSAGES + 1
        assert all(found(each, "Launching Python|Asked to launch executor") for each in logs), "both worked"
    rows = [row for row in archived(tmp_path / "archive") if row["body"] != b"the last"]
    assert {row["id"]: row["body"] for row in rows} == sent
    assert len(rows) == MESSAGES
    for row in rows:
        card, kind = card_and_type(int(row["body"]))
        assert (row["unit_of_order"], row["type"], dict(row["properties"])) == (card, kind, {"card": card})
    for card in {row["unit_of_order"] for row in rows}:
        own = [int(row["body"]) for row in rows if row["unit_of_order"] == card]
        assert own == sorted(own), "a unit is in order"
    assert "Nothing was lost, doubled or out of order" in (tmp_path / "report.html").read_text()
    expected = texts_of_matches({int(body): identity for identity, body in sent.items()})
    assert len(expected) > CARDS
    with heliograph.connect_blocking(url) as connection:
        told = bodies_of(connection, "queue:found", len(expected))
    assert sorted(text.decode() for text in told.values()) == expected
