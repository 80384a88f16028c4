"""A server in a process of its own, for tests whose own process is busy with Spark."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.servers import CLEAN, ROOT, START_SECONDS


class ServerInProcess:
    """`helio serve` in a process, from `with` to its end."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        self._folder, self._port = folder, port
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> str:
        self._folder.mkdir(parents=True, exist_ok=True)
        ready = self._folder / "ready"
        ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "heliograph.cli.main", "serve", "--host", "127.0.0.1"]
        command += [
            "--port",
            str(self._port),
            "--data",
            str(self._folder / "data"),
            "--ready-file",
            str(ready),
        ]
        with (self._folder / "server.err").open("ab") as errors:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=CLEAN,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
        wait_until(ready.exists, "the server is ready", START_SECONDS)
        self._port = int(ready.read_text(encoding="utf-8").strip().rpartition(":")[2])
        return f"helio://127.0.0.1:{self._port}"

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def __exit__(self, *_: object) -> None:
        self.kill()


def wait_until(condition: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain until {what}"
        time.sleep(0.02)
