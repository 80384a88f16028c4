"""The command: `python -m fuzz [TARGET …] --seconds N`. Each target runs in a process of its own.

What each has had of the processor is added up beside what is kept of it, so that many short runs count as a long one.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from pathlib import Path

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
    failed = [name for name in names if _run_apart(name, arguments)]
    print(f"findings in {', '.join(failed)}" if failed else f"no finding in {len(names)} targets")
    return 1 if failed else 0


def _run_apart(name: str, arguments: argparse.Namespace) -> int:
    command = [sys.executable, "-m", "fuzz", name, "--here", "--seconds", str(arguments.seconds)]
    before = _of_children()
    status = subprocess.run([*command, "--kept", str(arguments.kept)], check=False).returncode
    took = _of_children() - before
    so_far = _add_up(arguments.kept / TALLY, name, took)
    print(f"{name}: {took:.0f} s of processor time, {so_far / 60:.1f} min in all runs", flush=True)
    return status


def _of_children() -> float:
    """Seconds of processor time of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _add_up(tally: Path, name: str, seconds: float) -> float:
    """What this target has had, with all that it had before."""
    known: dict[str, float] = json.loads(tally.read_text()) if tally.exists() else {}
    known[name] = round(known.get(name, 0.0) + seconds, 1)
    tally.parent.mkdir(parents=True, exist_ok=True)
    tally.write_text(json.dumps(known, indent=1) + "\n")
    return known[name]


if __name__ == "__main__":
    sys.exit(main())
