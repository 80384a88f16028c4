"""Spark finds the source by itself where the package is installed; `make demo` shows what it promises (D1, D4)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import heliograph
from tests.servers import CLEAN, ROOT

PACKAGES = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
BARE = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
assert not any(name.startswith("heliograph") for name in sys.modules), "nothing of ours is imported"
options = {"url": sys.argv[1], "destination": "queue:a", "partitions": "1"}
rows = spark.read.format("heliograph").options(**options).load().select("text").collect()
print(sorted(row["text"] for row in rows))
import heliograph.spark  # which registers it with the session that is there
rows = spark.read.format("heliograph").options(**options).load().select("text").collect()
print(sorted(row["text"] for row in rows))
"""


@pytest.mark.req("D1")
def test_a_bare_session_knows_the_format(url: str) -> None:
    with heliograph.connect_blocking(url) as connection, connection.producer("queue:a") as producer:
        for text in ("one", "two"):
            producer.send(text)
        producer.flush()
    done = subprocess.run(
        [sys.executable, "-c", BARE, url],
        env={
            **CLEAN,
            "PYTHONPATH": PACKAGES,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == ["['one', 'two']"] * 2


@pytest.mark.req("D4", "D5")
@pytest.mark.nightly
def test_the_demo_shows_what_it_promises(tmp_path: Path) -> None:
    report = tmp_path / "audit.html"
    done = subprocess.run(
        [sys.executable, "-m", "heliograph.cli.main", "demo", "pipeline", "--json", "--report", str(report)],
        cwd=ROOT,
        env={**CLEAN, "PYTHONPATH": PACKAGES},
        capture_output=True,
        text=True,
        check=False,
        timeout=800,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    shown = json.loads(done.stdout)
    assert shown["alerts"] > 0
    assert shown["archived"] > 0
    assert shown["redriven"] == 25, "all orders that nobody could process"
    assert shown["violations"] == 0
    assert shown["report"] == str(report.resolve())
    assert "Nothing was lost, doubled or out of order" in report.read_text(encoding="utf-8")
