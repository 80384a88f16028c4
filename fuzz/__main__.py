"""The command: `python -m fuzz [TARGET …] --seconds N`. Each target runs in a process of its own."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"


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
    return subprocess.run([*command, "--kept", str(arguments.kept)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
