"""Heliograph's side: its own command starts a server, runs one workload against it and prints the figures."""

from __future__ import annotations

import json
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from benchmarks.processes import BenchmarkError, Child
from benchmarks.workloads import Figures, Workload

KEY: Final = "heliograph"
TITLE: Final = "Heliograph"
LONGEST_SECONDS: Final = 90


def own_version() -> str:
    """The installed version."""
    try:
        return f"Heliograph {version('heliograph')}"
    except PackageNotFoundError:
        return "Heliograph (not installed)"


def measure(workload: Workload, folder: Path, messages: int) -> Figures:
    """Run `helio bench run` with its data under the folder, like everybody else's."""
    command = [
        *(sys.executable, "-m", "heliograph.cli.main", "bench", "run", "--json"),
        *("--workload", workload.kind, "--messages", str(messages), "--size", str(workload.size)),
    ]
    with Child(command, folder=folder, name=KEY, environment={"TMPDIR": str(folder)}, piped=True) as child:
        output, _ = child.process.communicate(timeout=LONGEST_SECONDS)
        if child.process.returncode != 0:
            raise BenchmarkError(f"helio bench run failed: {child.complaint()}")
    return _figures(workload, messages, output.decode())


def _figures(workload: Workload, messages: int, output: str) -> Figures:
    try:
        said = json.loads(output)
        rate = float(said["messages_per_second"])
    except (ValueError, KeyError, TypeError) as error:
        raise BenchmarkError(f"helio bench run did not print its figures ({error!r})") from error
    return Figures(
        messages=messages,
        seconds=messages * workload.deliveries / rate if rate else 0.0,
        messages_per_second=rate,
        p50_ms=said.get("p50_ms"),
        p99_ms=said.get("p99_ms"),
        server_cpu_us_per_message=said.get("server_cpu_us_per_message"),
        server_rss_mb=said.get("server_rss_mb"),
        durability=said.get("durability"),
    )
