"""The command: `python -m fuzz [TARGET …] --seconds N`. Each target runs in a process of its own.

What each has had of the processor is added up beside what is kept of it, so that many short runs count as a long one,
for as long as what it tries is the same (`sources`). A table says so at the end, `--json` for programs.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from fuzz.sources import digest
from fuzz.tally import FINDING, Tally, row, table
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
        f"-artifact_prefix={kept}/{FINDING}",
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
    parser.add_argument("--json", action="store_true", help="the table at the end as JSON, and nothing else")
    parser.add_argument("--here", action="store_true", help="in this process: one target only")
    arguments = parser.parse_args()
    names = arguments.targets or list(TARGETS)
    unknown = [name for name in names if name not in TARGETS]
    if unknown:
        parser.error(f"there is no target {unknown[0]}")
    if importlib.util.find_spec("atheris") is None:
        parser.error("atheris is not installed: pip install -e '.[fuzz]'")
    if arguments.here:
        _run_one(names[0], arguments.seconds, arguments.kept / names[0])
    return _run_all(names, arguments)


def _run_all(names: list[str], arguments: argparse.Namespace) -> int:
    tally = Tally(arguments.kept / TALLY, digest)
    chosen, failed = list(names), dict[str, None]()
    while names:
        with ThreadPoolExecutor(arguments.processes) as pool:
            statuses = list(pool.map(lambda name: _run_apart(name, arguments, tally), names))
        failed.update({name: None for name, status in zip(names, statuses, strict=True) if status})
        wanted = arguments.minutes * 60
        names = [name for name in names if name not in failed and tally.seconds(name) < wanted]
    rows = [row(name, tally, arguments.kept / name, failed=name in failed) for name in chosen]
    if arguments.json:
        print(json.dumps(msgspec.to_builtins(rows), indent=1))
    else:
        print(table(rows))
        print(f"findings in {', '.join(failed)}" if failed else f"no finding in {len(chosen)} targets")
    return 1 if failed else 0


def _run_apart(name: str, arguments: argparse.Namespace, tally: Tally) -> int:
    command = [sys.executable, "-m", "fuzz", name, "--here", "--seconds", str(arguments.seconds)]
    # What the fuzzer itself says is for people, as what follows.
    quiet = [(os.POSIX_SPAWN_DUP2, sys.stderr.fileno(), sys.stdout.fileno())] if arguments.json else []
    process = os.posix_spawn(
        sys.executable, [*command, "--kept", str(arguments.kept)], os.environ, file_actions=quiet
    )
    _, status, used = os.wait4(process, 0)
    took = used.ru_utime + used.ru_stime
    tally.add(name, took)
    so_far = tally.seconds(name) / 60
    told = sys.stderr if arguments.json else sys.stdout
    print(f"{name}: {took:.0f} s of processor time, {so_far:.1f} min for this code", file=told, flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
