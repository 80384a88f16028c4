"""How long a server takes until it listens: `python -m tests.suites.startup [--starts N]`, on a quiet machine."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LOOK_SECONDS = 0.002


def start_once(folder: Path) -> float:
    ready = folder / "ready"
    command = [sys.executable, "-m", "heliograph.cli.main", "serve", "--port", "0"]
    command += ["--data", str(folder / "data"), "--ready-file", str(ready)]
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        while not ready.exists():
            assert server.poll() is None, "the server ended"
            time.sleep(LOOK_SECONDS)
        took = time.perf_counter() - began
        server.terminate()
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=7)
    took = []
    for _ in range(parser.parse_args().starts):
        with tempfile.TemporaryDirectory() as folder:
            took.append(start_once(Path(folder)))
    print(
        f"median {statistics.median(took):.3f} s of {len(took)} starts, {min(took):.3f} to {max(took):.3f} s"
    )


if __name__ == "__main__":
    main()
