"""The figures as a picture: four questions, one panel each, Heliograph in colour and the peers in grey."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.heliograph import KEY as OURS
from benchmarks.report import Report
from benchmarks.summary import Summary

AMBER: Final = "#e08a00"
GREY: Final = "#9aa5b1"
PALE: Final = "#d5dbe1"
INK: Final = "#26323d"


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One question to the figures."""

    question: str
    workload: str
    value: Callable[[Summary], float | None]
    label: Callable[[float], str]
    more_is_better: bool


PANELS: Final = (
    Panel(
        question="Persistent queue, 256 B\nmessages per second",
        workload="queue",
        value=lambda summary: summary.messages_per_second,
        label=lambda value: f"{value:,.0f}",
        more_is_better=True,
    ),
    Panel(
        question="Fan-out to 5 subscribers, 256 B\ndeliveries per second",
        workload="fanout",
        value=lambda summary: summary.messages_per_second,
        label=lambda value: f"{value:,.0f}",
        more_is_better=True,
    ),
    Panel(
        question="Synchronous persistent send\nmedian, milliseconds",
        workload="sync",
        value=lambda summary: summary.p50_ms,
        label=lambda value: f"{value:.2f}",
        more_is_better=False,
    ),
    Panel(
        question="Server's processor time, persistent queue\nµs per message",
        workload="queue",
        value=lambda summary: summary.server_cpu_us_per_message,
        label=lambda value: f"{value:.1f}",
        more_is_better=False,
    ),
)


def draw(report: Report, path: Path) -> bool:
    """Draw the plot; False where matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(14, 9), facecolor="white")
    for panel, axis in zip(PANELS, axes.flat, strict=True):
        _draw_panel(report, panel, axis)
    figure.suptitle(
        "Heliograph and its peers, side by side", x=0.02, ha="left", fontsize=17, weight="bold", color=INK
    )
    figure.text(
        0.02,
        0.925,
        "Same machine, same run, each peer's best Python client. Logarithmic scales. "
        "* may confirm before the message is synced to disk; pale: the bare limit, no message server.",
        fontsize=10,
        color=INK,
    )
    figure.tight_layout(rect=(0, 0, 1, 0.92), w_pad=3, h_pad=2)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return True


def _draw_panel(report: Report, panel: Panel, axis: Any) -> None:
    bars = []
    for system in report.systems:
        summary = report.summaries.get((system.key, panel.workload))
        value = panel.value(summary) if summary is not None else None
        if value:
            colour = AMBER if system.key == OURS else PALE if system.is_limit else GREY
            star = "" if system.synced.get(panel.workload) == "yes" else " *"
            bars.append((value, system.title + star, colour))
    # The best is on top: barh counts from below.
    bars.sort(reverse=not panel.more_is_better)
    better = "more is better" if panel.more_is_better else "less is better"
    axis.set_title(f"{panel.question} ({better})", loc="left", fontsize=11, color=INK)
    axis.set_frame_on(False)
    axis.xaxis.set_visible(False)
    axis.tick_params(axis="y", length=0, labelsize=10, labelcolor=INK)
    if not bars:
        axis.text(0.5, 0.5, "not measured", ha="center", transform=axis.transAxes, color=GREY)
        return
    values, names, colours = zip(*bars, strict=True)
    axis.barh(names, values, color=colours, height=0.7)
    axis.set_xscale("log")
    axis.set_xlim(min(values) / 2, max(values) * 4)
    for row, value in enumerate(values):
        axis.text(value * 1.08, row, panel.label(value), va="center", fontsize=10, color=INK)
