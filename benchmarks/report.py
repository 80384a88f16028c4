"""What is left of a run: a page to read, the raw figures, and a plot."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import psutil

from benchmarks.heliograph import KEY as OURS
from benchmarks.heliograph import TITLE
from benchmarks.peers import all_peers
from benchmarks.rounds import Results
from benchmarks.summary import Bar, Summaries, Summary
from benchmarks.workloads import Workload

Value = TypeVar("Value")

PREAMBLE = """\
Every system ran on this machine in the same run, in turns, one server at a time, with producer, server and
consumers in separate processes on the loopback, and its data on the same file system. One message per call of
the client's send function. Figures are medians of {rounds} rounds; all raw figures are in `latest.json`. The
ratio is Heliograph's figure against the peer's: above 1 means that Heliograph does better.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """A system as the report names it."""

    key: str
    title: str
    version: str
    client: str
    synced: Mapping[str, str]
    """By workload: whether a message is on disk when its producer hears "yes"."""
    durability: str
    skipped: str | None = None
    is_limit: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that a run has found."""

    systems: Sequence[System]
    workloads: Sequence[Workload]
    results: Results
    summaries: Summaries
    bars: Sequence[Bar]
    rounds: int
    data: Path

    def write(self, folder: Path) -> None:
        """Write the page and the raw figures."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "latest.md").write_text(self.page())
        (folder / "latest.json").write_text(json.dumps(self.raw(), indent=1, ensure_ascii=False) + "\n")

    def page(self) -> str:
        """The page, in Markdown."""
        sections = [
            "# Heliograph and its peers, side by side\n",
            PREAMBLE.format(rounds=self.rounds),
            _machine_lines(self.data),
            "![The figures as a plot](latest.png)\n",
            "## The bars\n",
            self._bars(),
            *(
                part
                for workload in self.workloads
                for part in (f"## {workload.title}\n", self._workload(workload))
            ),
            "## The systems\n",
            self._systems(),
            _notes(),
        ]
        return "\n".join(sections)

    def raw(self) -> dict[str, object]:
        """Everything, for programs."""
        return {
            "machine": machine(self.data),
            "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "systems": [asdict(system) for system in self.systems],
            "bars": [asdict(bar) for bar in self.bars],
            "medians": _nested({key: asdict(summary) for key, summary in self.summaries.items()}),
            "runs": _nested({key: [asdict(run) for run in runs] for key, runs in self.results.items()}),
        }

    def _bars(self) -> str:
        return table(
            ["bar", "figure", "verdict"],
            [[bar.promise, bar.figure, f"**{bar.verdict}**"] for bar in self.bars],
        )

    def _workload(self, workload: Workload) -> str:
        unit = "deliveries/s" if workload.deliveries > 1 else "messages/s"
        ours = self.summaries.get((OURS, workload.key))
        rows = []
        for system in self.systems:
            summary = self.summaries.get((system.key, workload.key))
            if summary is None:
                continue
            if not summary.runs:
                rows.append([system.title, f"failed: {_in_a_cell(summary.errors[0])}", *["–"] * 6])
                continue
            rows.append(_row(system, workload, summary, _advantage(workload, ours, summary)))
        return table(
            [
                "system",
                "on disk at confirm",
                unit,
                "p50 ms",
                "p99 ms",
                "server µs/msg",
                "server MB",
                "ratio",
            ],
            rows,
        )

    def _systems(self) -> str:
        return table(
            ["system", "server", "client", "what a confirmation means"],
            [
                [system.title, f"not measured: {_in_a_cell(system.skipped)}", "–", "–"]
                if system.skipped
                else [system.title, system.version, system.client, system.durability]
                for system in self.systems
            ],
        )


def _row(system: System, workload: Workload, summary: Summary, ratio: str) -> list[str]:
    return [
        f"**{system.title}**" if system.key == OURS else system.title,
        system.synced.get(workload.key, "–"),
        number(summary.messages_per_second),
        number(summary.p50_ms, 3),
        number(summary.p99_ms, 3),
        number(summary.server_cpu_us_per_message, 2),
        number(summary.server_rss_mb),
        ratio if system.key != OURS else "1",
    ]


def _advantage(workload: Workload, ours: Summary | None, theirs: Summary) -> str:
    """How many times better Heliograph is: by rate, or by median latency where the rate is given."""
    if ours is None:
        return "–"
    if workload.kind in ("sync", "latency"):
        above, below = theirs.p50_ms, ours.p50_ms
    else:
        above, below = ours.messages_per_second, theirs.messages_per_second
    return f"{above / below:.2f}" if above and below else "–"


def number(value: float | None, digits: int = 0) -> str:
    """A figure with thousands separated, or a dash."""
    return "–" if value is None else f"{value:,.{digits}f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, figures to the right."""
    words = {"system", "server", "client", "bar", "verdict", "what a confirmation means"}
    lines = [head, ["---" if name in words else "---:" for name in head], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _in_a_cell(text: str | None) -> str:
    return (text or "").replace("|", "/").replace("\n", " ")


def _nested(flat: Mapping[tuple[str, str], Value]) -> dict[str, dict[str, Value]]:
    nested: dict[str, dict[str, Value]] = {}
    for (system, workload), value in flat.items():
        nested.setdefault(system, {})[workload] = value
    return nested


def machine(data: Path) -> dict[str, str]:
    """The machine as far as it matters for the figures; nothing that names it."""
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
        "file system": file_system(data),
    }


def _machine_lines(data: Path) -> str:
    return table(["", ""], [[name, value] for name, value in machine(data).items()])


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def file_system(folder: Path) -> str:
    """The kind of file system that a folder is on."""
    path = str(folder.resolve())
    holding = [part for part in psutil.disk_partitions(all=True) if _is_under(path, part.mountpoint)]
    return str(max(holding, key=lambda part: len(part.mountpoint)).fstype) if holding else "unknown"


def _is_under(path: str, mountpoint: str) -> bool:
    return path == mountpoint or path.startswith(mountpoint.rstrip("/") + "/")


def _notes() -> str:
    """What each peer's module says about how it was used: the fine print of a fair comparison."""
    modules = {type(peer).__module__ for peer in all_peers().values()}
    said = [(sys.modules[name].__doc__ or "").strip().partition("\n") for name in sorted(modules)]
    return "## How each was used\n" + "".join(f"\n**{first}**\n{rest}\n" for first, _, rest in said)


def ours_as_system(version: str, results: Results) -> System:
    """Heliograph's own line; what its confirmation means, it says itself."""
    said = {
        workload: run.durability
        for (key, workload), runs in results.items()
        for run in runs
        if key == OURS and run.durability
    }
    return System(
        key=OURS,
        title=TITLE,
        version=version,
        client="heliograph.client",
        synced={workload: "yes" if "sync" in durability else "no" for workload, durability in said.items()},
        durability=", ".join(sorted(set(said.values()))) or "–",
    )
