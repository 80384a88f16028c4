"""The command: `python -m fuzz [TARGET …] --seconds N`. Each target runs in a process of its own.

What each has had of the processor is added up beside what is kept of it, so that many short runs count as a long one.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

from fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"
TALLY = "processor-seconds.json"


def _run_one(name: str, seconds: int, kept: Path) -> None:
    """In this process: atheris does not return."""
    import atheris

    with atheris.instrument_imports(include=["heliograph"]):
        import importlib

        for module in [name for name in sys.modules if name.startswith(("heliograph", "fuzz"))]:
            del sys.modules[module]
        targets = importlib.import_module("fuzz.targets").TARGETS
    seeds = CORPUS / name
    seeds.mkdir(parents=True, exist_ok=True)
    kept.mkdir(parents=True, exist_ok=True)
    options = [
        f"-max_total_time={seconds}",
        "-max_len=4096",
        "-timeout=10",
        f"-artifact_prefix={kept}/finding-",
    ]
    atheris.Setup([sys.argv[0], *options, str(kept), str(seeds)], targets[name])
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description="Bytes that nobody would think of.")
    parser.add_argument(
        "targets", nargs="*", metavar="TARGET", help=f"which of {', '.join(TARGETS)} (default: all)"
    )
    parser.add_argument("--seconds", type=int, default=60, help="for each target (default 60)")
    parser.add_argument(
        "--minutes",
        type=float,
        default=0.0,
        help="again and again, until each target has had so many of processor time, in earlier runs and this one",
    )
    parser.add_argument("--processes", type=int, default=1, help="so many targets at a time (default 1)")
    parser.add_argument(
        "--kept", type=Path, default=Path(".fuzz"), help="where new inputs and findings are kept"
    )
    parser.add_argument("--here", action="store_true", help="in this process: one target only")
    arguments = parser.parse_args()
    names = arguments.targets or list(TARGETS)
    unknown = [name for name in names if name not in TARGETS]
    if unknown:
        parser.error(f"there is no target {unknown[0]}")
    if arguments.here:
        _run_one(names[0], arguments.seconds, arguments.kept / names[0])
    return _run_all(names, arguments)


def _run_all(names: list[str], arguments: argparse.Namespace) -> int:
    tally = Tally(arguments.kept / TALLY)
    failed: list[str] = []
    while names:
        with ThreadPoolExecutor(arguments.processes) as pool:
            statuses = list(pool.map(lambda name: _run_apart(name, arguments, tally), names))
        failed += [name for name, status in zip(names, statuses, strict=True) if status]
        wanted = arguments.minutes * 60
        names = [name for name in names if name not in failed and tally.seconds(name) < wanted]
    tried = len(arguments.targets or TARGETS)
    print(f"findings in {', '.join(failed)}" if failed else f"no finding in {tried} targets")
    return 1 if failed else 0


def _run_apart(name: str, arguments: argparse.Namespace, tally: Tally) -> int:
    command = [sys.executable, "-m", "fuzz", name, "--here", "--seconds", str(arguments.seconds)]
    process = os.posix_spawn(sys.executable, [*command, "--kept", str(arguments.kept)], os.environ)
    _, status, used = os.wait4(process, 0)
    took = used.ru_utime + used.ru_stime
    tally.add(name, took)
    so_far = tally.seconds(name) / 60
    print(f"{name}: {took:.0f} s of processor time, {so_far:.1f} min in all runs", flush=True)
    return status


class Tally:
    """Seconds of processor time that each target has had, in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._turn = Lock()

    def _known(self) -> dict[str, float]:
        known: dict[str, float] = json.loads(self._path.read_text()) if self._path.exists() else {}
        return known

    def seconds(self, name: str) -> float:
        return self._known().get(name, 0.0)

    def add(self, name: str, seconds: float) -> None:
        with self._turn:
            known = self._known()
            known[name] = round(known.get(name, 0.0) + seconds, 1)
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
