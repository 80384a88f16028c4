"""The report of an audit: one file of HTML with its pictures in it, which opens anywhere and asks nobody for
anything."""

from __future__ import annotations

import base64
import html
import io
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from heliograph.spark.pipelines.audit import Findings

_SHOWN: Final = 1000
_POINTS: Final = 600
"""What a picture can show side by side."""
_PLOTS: Final = 12
"""Plots of one kind; more, nobody looks at."""
_KINDS: Final = ("lost", "doubled", "out of order")
_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1c2733; max-width: 70rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem } h2 { font-size: 1.15rem; margin-top: 2.2rem; border-bottom: 1px solid #dde3ea }
table { border-collapse: collapse; margin: .6rem 0 } td, th { padding: .25rem .9rem .25rem 0; text-align: left }
th { color: #5b6b7b; font-weight: 600 } td.n { text-align: right; font-variant-numeric: tabular-nums }
.verdict { padding: .8rem 1rem; border-radius: .4rem; font-weight: 600 }
.well { background: #e4f5ea; color: #14532d } .ill { background: #fde8e8; color: #7f1d1d }
img { max-width: 100% } code { font-size: .85em } .quiet { color: #5b6b7b }
"""


def write_report(findings: Findings, path: Path, *, title: str) -> None:
    counts = {kind: sum(each["violation"] == kind for each in findings.violations) for kind in _KINDS}
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        f'<p class="quiet">{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC</p>',
        _verdict(counts),
        "<h2>Violations</h2>",
        _violations(findings.violations),
        "<h2>Messages</h2>",
        _totals(findings.totals),
        "<h2>Rates</h2>",
        _untimed(findings.untimed),
        *(_picture(figure) for figure in _rates(findings.rates)),
        "<h2>Latency</h2>",
        *(_picture(figure) for figure in _latencies(findings.latencies)),
        "<h2>Slow consumers</h2>",
        '<p class="quiet">From hand-out to acknowledgement, milliseconds; the slowest first. The consumers of a'
        " queue share list 0, those of each subscription to a topic a list of their own.</p>",
        _table(findings.slowest),
        "<h2>Removed messages</h2>",
        '<p class="quiet">Nobody had them: a policy, their time or an administrator took them away.</p>',
        _table(findings.removed),
        "<h2>Dead messages</h2>",
        _picture(_dead(findings.dead)) + _table(findings.dead),
    ]
    page = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{page}<style>{_STYLE}</style>{''.join(parts)}</html>", encoding="utf-8")


def _verdict(counts: dict[str, int]) -> str:
    if not any(counts.values()):
        return '<p class="verdict well">Nothing was lost, doubled or out of order.</p>'
    said = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    return f'<p class="verdict ill">{html.escape(said)}</p>'


def _violations(violations: list[dict[str, Any]]) -> str:
    if not violations:
        return "<p>None.</p>"
    rows = "".join(
        f"<tr><td>{html.escape(each['violation'])}<td>{html.escape(each['destination'])}"
        f"<td><code>{html.escape(str(each['id'] or each['number']))}</code><td>{html.escape(each['detail'])}"
        for each in violations[:_SHOWN]
    )
    more = (
        f"<p>… and {len(violations) - _SHOWN} more, in the Parquet result.</p>"
        if len(violations) > _SHOWN
        else ""
    )
    return f"<table><tr><th>what<th>destination<th>message<th>why{rows}</table>{more}"


def _totals(totals: pd.DataFrame) -> str:
    if totals.empty:
        return "<p>None.</p>"
    wide = totals.pivot_table(
        index="destination", columns="kind", values="messages", fill_value=0
    ).reset_index()
    return _table(wide)


def _untimed(untimed: pd.DataFrame) -> str:
    if untimed.empty:
        return ""
    said = ", ".join(f"{row.messages:,} {row.kind}" for row in untimed.itertuples())
    return (
        f'<p class="quiet">Left out of rates and latencies: {html.escape(said)}. Nobody held the history then, so it'
        " does not say when it was.</p>"
    )


def _table(frame: pd.DataFrame) -> str:
    if frame.empty:
        return "<p>None.</p>"
    head = "".join(f"<th>{html.escape(str(name))}" for name in frame.columns)
    rows = "".join("<tr>" + "".join(_cell(value) for value in row) for row in frame.itertuples(index=False))
    return f"<table><tr>{head}{rows}</table>"


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f'<td class="n">{value:,.1f}' if value % 1 else f'<td class="n">{value:,.0f}'
    if isinstance(value, int):
        return f'<td class="n">{value:,}'
    return f"<td>{html.escape(str(value))}"


# ---- pictures


def _new_figure(height: float, *, shows_time: bool = True) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, height), layout=None if shows_time else "constrained")
    # As much room for all, so that times stand above one another.
    room = {"left": 0.1, "right": 0.97, "top": 1 - 0.3 / height, "bottom": 0.5 / height}
    axes = figure.subplots(gridspec_kw=room if shows_time else None)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    return figure, axes


def _show_time(axes: Any, seconds: pd.Series[Any]) -> None:
    """All plots show the same stretch of time, also that of a destination at which something happened once."""
    import pandas
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    margin = pandas.Timedelta(seconds=1)
    axes.set_xlim(seconds.min() - margin, seconds.max() + margin)
    locator = AutoDateLocator(minticks=3, maxticks=10)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))


def _rates(rates: pd.DataFrame) -> list[Figure | None]:
    """All together, and, where there are several, each destination."""
    if rates.empty:
        return [None]
    groups = list(rates.groupby("destination"))
    own = [_rates_of(group, rates, f"{name}") for name, group in groups] if len(groups) > 1 else []
    return [_rates_of(rates, rates, "everything", 3.2), *own[:_PLOTS]]


def _rates_of(found: pd.DataFrame, rates: pd.DataFrame, title: str, height: float = 2.4) -> Figure:
    import pandas

    figure, axes = _new_figure(height)
    axes.set_title(title, loc="left", fontsize=10)
    seconds = max(1, round((rates["second"].max() - rates["second"].min()).total_seconds() / _POINTS))
    whole = [rates["second"].min().floor(f"{seconds}s"), rates["second"].max()]
    for kind, group in found.groupby("kind"):
        # A second in which nothing happened is one, too.
        summed = group.set_index("second")["messages"].resample(f"{seconds}s", origin=whole[0]).sum()
        times = pandas.date_range(*whole, freq=f"{seconds}s")
        axes.plot(times, summed.reindex(times, fill_value=0) / seconds, label=str(kind), linewidth=1.4)
    axes.set_ylabel("messages a second")
    _show_time(axes, rates["second"])
    axes.legend(frameon=False, ncols=4)
    return figure


def _latencies(latencies: pd.DataFrame) -> list[Figure | None]:
    if latencies.empty:
        return [None]
    figures: list[Figure | None] = []
    for (destination, kind), group in list(latencies.groupby(["destination", "kind"]))[:_PLOTS]:
        figure, axes = _new_figure(2.4)
        ordered = group.sort_values("second")
        for name in ("p50", "p95", "p99"):
            axes.plot(ordered["second"], ordered[name], label=name, linewidth=1.4, marker=".", markersize=3)
        axes.set_title(f"{destination} {kind}", loc="left", fontsize=10)
        axes.set_ylabel("milliseconds")
        axes.set_ylim(bottom=0)
        _show_time(axes, latencies["second"])
        axes.legend(frameon=False, ncols=3)
        figures.append(figure)
    return figures


def _dead(dead: pd.DataFrame) -> Figure | None:
    if dead.empty:
        return None
    figure, axes = _new_figure(0.6 + 0.4 * len(dead), shows_time=False)
    axes.barh(dead["reason"], dead["messages"])
    axes.set_xlabel("messages")
    return figure


def _picture(figure: Figure | None) -> str:
    if figure is None:
        return "<p>Nothing was measured.</p>"
    raw = io.BytesIO()
    figure.savefig(raw, format="png", dpi=110)
    return f'<img alt="" src="data:image/png;base64,{base64.b64encode(raw.getvalue()).decode()}">'
