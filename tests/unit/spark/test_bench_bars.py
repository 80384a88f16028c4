"""What measurements of Spark are held to: a run under a bar does not end well, and says so wherever it reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("psutil")
spark = pytest.importorskip("benchmarks.spark")

pytestmark = pytest.mark.req("D2")
SIZES = {"rows": 1_000_000, "partitions": 2, "rounds": 3}


def test_a_run_that_meets_its_bars_ends_well_and_leaves_its_figures(tmp_path: Path) -> None:
    assert (
        spark.report({"memory": 1000.0, "feed": 600.0, "queue": 250.0}, SIZES, tmp_path, as_json=False) == 0
    )
    found = json.loads((tmp_path / "spark.json").read_text())
    assert found["shares"] == {
        "feed": {"share": 0.6, "bar": 0.6, "met": True},
        "queue": {"share": 0.25, "bar": 0.25, "met": True},
    }
    assert found["machine"]["cores"]
    assert "| feed | 600 | 60% | 60% | PASS |" in (tmp_path / "spark.md").read_text()


@pytest.mark.parametrize("short", ["feed", "queue"])
def test_a_run_under_a_bar_ends_with_1(
    tmp_path: Path, short: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rates = {"memory": 1000.0, "feed": 700.0, "queue": 400.0, short: 240.0}
    assert spark.report(rates, SIZES, tmp_path, as_json=True) == 1
    shares = json.loads(capsys.readouterr().out)["shares"]
    assert [name for name, share in shares.items() if not share["met"]] == [short]
    assert "**FALLS SHORT**" in (tmp_path / "spark.md").read_text()
