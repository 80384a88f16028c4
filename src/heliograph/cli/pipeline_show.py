"""`helio demo pipeline`: a server, traffic, and every pipeline once, ending with a report to look at (D4, D5)."""

from __future__ import annotations

import math
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from heliograph.model.errors import Unavailable

RULES = """
[[rules]]
name = "three refusals in a row"
by = "card"
pattern = "seq(refused, not(paid), refused, not(paid), refused, paid)"
within = "10m"
late = "100ms"
[rules.events]
refused = "JMSType = 'payment' AND result = 'refused'"
paid = "JMSType = 'payment' AND result = 'paid'"
[rules.action]
alert = "fraud"
tag = "{key}"
text = "{key}: paid after three refusals"
"""
_START_SECONDS = 60.0
_CARDS = 40
_PAYMENTS = 4000
_POISONED = 25
_TICKS = 120
_TICK_SECONDS = 0.1
_PACE = 36  # payments that are taken in a tick; on average fewer come
_LATER_SECONDS = 0.5


def show(folder: Path, report: Path, *, as_json: bool) -> dict[str, Any]:
    """Raises HeliographError. Returns what there was to see."""
    from heliograph.spark.pipelines import archive, audit, dead_letters, events
    from heliograph.spark.pipelines.report import write_report
    from heliograph.spark.pipelines.rules import parse_rules
    from heliograph.spark.pipelines.running import start_spark

    say = _quiet if as_json else _say
    with _server(folder) as url:
        say(f"a server at {url}")
        payments = traffic(url)
        say(f"{payments} payments sent and taken, {_POISONED} orders that nobody could process")
        spark = start_spark("demo", "local[*]", {"spark.sql.shuffle.partitions": "4"})
        options = {"url": url, "partitions": 2}
        rules = parse_rules(RULES, "the demo's rules")
        say(rules[0].explain())
        reads = {**options, "destination": "queue:payments"}
        events.run(spark, reads, rules, folder / "events", _quiet, once=True)
        found = alerts(url)
        say(f"{found} alerts in alerts:fraud")
        archived = archive.run(
            spark, {**options, "destination": "*"}, folder / "archive", folder / "archived", _quiet, once=True
        )
        say(f"{archived} messages archived in Parquet")
        redriven = dead_letters.redrive(spark, options, _quiet, reason="redelivery-limit").messages
        say(f"{redriven} dead letters sent back to queue:orders")
        findings = audit.run(spark, options, None, _quiet)
        write_report(findings, report, title="Heliograph audit: the demo")
        say(f"the audit found {len(findings.violations)} violations")
        spark.stop()
    return {
        "alerts": found,
        "archived": archived,
        "redriven": redriven,
        "violations": len(findings.violations),
        "report": str(report.resolve()),
    }


def traffic(url: str) -> int:
    """Payments, some of them suspicious, which are taken; orders that nobody can process, and that die of it. Returns
    how many payments there were."""
    import heliograph

    chance, sent = random.Random(1), 0
    with heliograph.connect_blocking(url) as connection:
        connection.ask("pipeline.hold", name="demo", destination="*", after=0)
        connection.ask("destination.create", destination="queue:orders", policy={"redelivery_limit": 1})
        producer = connection.producer("queue:payments")
        with connection.consumer("queue:payments") as consumer:
            taken = 0
            for tick in range(_TICKS):
                # They come in waves; whoever takes them has one pace, and falls behind at the crests.
                for _ in range(round(_PAYMENTS / _TICKS * (1 + 0.8 * math.sin(tick / _TICKS * 4 * math.pi)))):
                    result = "refused" if chance.random() < 0.3 else "paid"
                    card = f"card {chance.randrange(_CARDS)}"
                    properties = {"card": card, "result": result}
                    producer.send("a payment", type="payment", unit_of_order=card, properties=properties)
                    sent += 1
                producer.flush()
                due = time.monotonic() + _TICK_SECONDS
                while taken < min(sent, (tick + 1) * _PACE) and consumer.receive(timeout=30) is not None:
                    taken += 1
                time.sleep(max(0.0, due - time.monotonic()))
            time.sleep(_LATER_SECONDS)  # events are decided when it is later than they may come late
            producer.send("the last", type="payment", properties={"card": "none", "result": "paid"})
            producer.flush()
            for _ in range(sent + 1 - taken):
                consumer.receive(timeout=30)
        orders = connection.producer("queue:orders")
        for n in range(_POISONED):
            orders.send(f"order {n}", type="order")
        orders.flush()
        session = connection.session(acknowledge="client")
        with session.consumer("queue:orders") as clerk:
            for _ in range(_POISONED):
                clerk.receive(timeout=30)
            session.recover()
    return sent


def alerts(url: str) -> int:
    """How many the rules raised, and are live."""
    import heliograph

    with heliograph.connect_blocking(url) as connection:
        return len(connection.alerts("fraud").list())


@contextmanager
def _server(folder: Path) -> Iterator[str]:
    ready = folder / "ready"
    command = [sys.executable, "-m", "heliograph.cli.main", "serve", "--host", "127.0.0.1", "--port", "0"]
    command += ["--data", str(folder / "data"), "--ready-file", str(ready)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise Unavailable("the demo's server did not start", code="node-failed")
            time.sleep(0.05)
        yield f"helio://127.0.0.1:{ready.read_text(encoding='utf-8').strip().rpartition(':')[2]}"
    finally:
        process.terminate()
        process.wait()


def _say(line: str) -> None:
    typer.echo(f"• {line}")


def _quiet(_line: str) -> None:
    """Nobody reads along."""
