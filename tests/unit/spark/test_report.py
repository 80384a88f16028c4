"""The report of an audit: what a person sees of it (D4)."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.req("D4")
pandas = pytest.importorskip("pandas")
report = pytest.importorskip("heliograph.spark.pipelines.report")
pytest.importorskip("matplotlib")


def latencies() -> Any:
    """One destination for a minute, and another at which something happened once."""
    began = pandas.Timestamp("2026-01-01 12:00:00")
    rows = [("queue:a", began + pandas.Timedelta(seconds=n), "to hand-out", 1.0, 2.0, 3.0) for n in range(60)]
    rows.append(("queue:b", began + pandas.Timedelta(seconds=30), "to hand-out", 1.0, 2.0, 3.0))
    return pandas.DataFrame(rows, columns=["destination", "second", "kind", "p50", "p95", "p99"])


def test_all_plots_show_the_same_stretch_of_time() -> None:
    limits = [figure.axes[0].get_xlim() for figure in report._latencies(latencies())]
    assert len(limits) == 2
    assert limits[0] == limits[1]
    days = limits[0][1] - limits[0][0]
    assert days * 24 * 3600 == pytest.approx(61, abs=0.1)
