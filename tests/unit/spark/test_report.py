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


def test_rates_are_shown_together_and_for_each_destination() -> None:
    began = pandas.Timestamp("2026-01-02 12:00:00")
    rows = [
        (f"queue:{name}", began + pandas.Timedelta(seconds=n), "published", count)
        for name, count in (("a", 10), ("b", 5))
        for n in range(3 + count)
    ]
    rates = pandas.DataFrame(rows, columns=["destination", "second", "kind", "messages"])
    together, first, second = report._rates(rates)
    assert [figure.axes[0].get_title(loc="left") for figure in (together, first, second)] == [
        "everything",
        "queue:a",
        "queue:b",
    ]
    lines = [list(figure.axes[0].lines[0].get_ydata()) for figure in (together, first, second)]
    assert lines == [[15] * 8 + [10] * 5, [10] * 13, [5] * 8 + [0] * 5]
    assert len(report._rates(rates[rates["destination"] == "queue:a"])) == 1, "one destination is everything"
    long = rates.assign(second=began + (rates["second"] - began) * 350)  # 70 minutes: steps of seven seconds
    summed = [7 * sum(figure.axes[0].lines[0].get_ydata()) for figure in report._rates(long)]
    assert summed == pytest.approx([170, 130, 40]), (
        "nothing is left out where a day is no whole number of steps"
    )
