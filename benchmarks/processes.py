"""Processes that are sure to end: servers and clients started here never outlive the benchmark.

Each runs in its own session, so that Ctrl-C reaches the benchmark alone, which then stops them in order; if
the benchmark itself is killed, the kernel tells its children. Nothing of theirs is worth keeping, so stopping
is a kill of the whole process tree.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil

_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None)


class BenchmarkError(Exception):
    """A server that does not start or a client that fails: the run goes on without it."""


def _end_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def free_port() -> int:
    """A loopback port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Child:
    """A process with its output piped or logged and its errors in a file, killed with its tree at the end."""

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        folder: Path,
        name: str,
        environment: Mapping[str, str] | None = None,
        piped: bool = False,
    ) -> None:
        self.name = name
        self._log = folder / f"{name}.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
                stdout=subprocess.PIPE if piped else log,
                stderr=log,
                cwd=None if piped else folder,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
                # Unsafe with threads, of which the benchmark has none.
                preexec_fn=_end_with_parent,  # noqa: PLW1509
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def tree(self) -> list[psutil.Process]:
        """This process and all that it started, as far as they live."""
        try:
            root = psutil.Process(self.process.pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def stop(self) -> None:
        """Kill the tree and wait until it is gone."""
        tree = self.tree()
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        for process in tree:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(tree, timeout=10)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()

    def complaint(self) -> str:
        """The last lines that the process wrote about itself."""
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return " | ".join(lines[-3:]) or f"no word from it (exit status {self.process.poll()})"


class Server(Child):
    """A message server under test, with the cost that it causes."""

    def wait_until(self, answers: Callable[[], bool], seconds: float = 60) -> Self:
        """Wait until the server answers; one that ends or stays silent is an error with its last words."""
        deadline = time.monotonic() + seconds
        while not answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                complaint = self.complaint()
                self.stop()
                raise BenchmarkError(f"{self.name} did not start: {complaint}")
            time.sleep(0.05)
        return self

    def cpu_seconds(self) -> float:
        """Processor time of the whole tree so far, user and system."""
        total = 0.0
        for process in self.tree():
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system
        return total

    def rss_mb(self) -> float:
        """Resident memory of the whole tree now."""
        total = 0
        for process in self.tree():
            with suppress(psutil.NoSuchProcess):
                total += process.memory_info().rss
        return total / 1e6


def port_answers(port: int) -> Callable[[], bool]:
    """A probe that is true once something accepts connections on the port."""

    def answers() -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
        return False

    return answers
