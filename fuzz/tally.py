"""How much processor time each target has had for what it tries now, and what came of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock

import msgspec

FINDING = "finding-"


class _Had(msgspec.Struct):
    sources: str
    seconds: float = 0.0


class Tally:
    """Seconds of processor time, in a file. What other code had does not count."""

    def __init__(self, path: Path, digest: Callable[[str], str]) -> None:
        """`digest`: the same as long as what a target tries is the same. It is asked once for each: what changes
        during a run is tried by the next."""
        self._path = path
        self._digest = digest
        self._sources: dict[str, str] = {}
        self._turn = Lock()

    def seconds(self, target: str) -> float:
        with self._turn:
            return self._had(self._known(), target).seconds

    def add(self, target: str, seconds: float) -> None:
        with self._turn:
            known = self._known()
            known[target] = had = self._had(known, target)
            had.seconds = round(had.seconds + seconds, 1)
            self._path.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps(msgspec.to_builtins(dict(sorted(known.items()))), indent=1)
            self._path.write_text(text + "\n")

    def _had(self, known: dict[str, _Had], target: str) -> _Had:
        sources = self._sources.get(target)
        if sources is None:
            sources = self._sources[target] = self._digest(target)
        had = known.get(target)
        return had if had is not None and had.sources == sources else _Had(sources)

    def _known(self) -> dict[str, _Had]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, _Had])
        except (FileNotFoundError, msgspec.MsgspecError):
            return {}  # of a version that did not say for which code it was


class Row(msgspec.Struct):
    """What is told of a target at the end."""

    target: str
    processor_minutes: float
    inputs_kept: int
    findings: int
    failed: bool


def row(target: str, tally: Tally, kept: Path, *, failed: bool) -> Row:
    """`kept`: where its inputs and findings are."""
    names = [path.name for path in kept.iterdir()] if kept.is_dir() else []
    findings = sum(name.startswith(FINDING) for name in names)
    return Row(target, round(tally.seconds(target) / 60, 1), len(names) - findings, findings, failed)


def table(rows: Sequence[Row]) -> str:
    """For a person. `!`: it failed in this run."""
    lines = [f"{'target':12}{'processor minutes':>18}{'inputs kept':>13}{'findings':>10}"]
    lines += [
        f"{each.target:12}{each.processor_minutes:>18.1f}{each.inputs_kept:>13}{each.findings:>10}"
        + (" !" if each.failed else "")
        for each in rows
    ]
    return "\n".join(lines)
