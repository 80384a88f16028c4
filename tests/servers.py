"""Real servers for tests: a process that can be killed and started again, and one in the test's own loop.

Everything started here ends here, whatever happens to the test.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from heliograph.nodes.configuration import load
from heliograph.nodes.embedded import EmbeddedServer

CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("HELIO_")}
ROOT = Path(__file__).resolve().parent.parent
# A machine that is busy takes several times as long: what a test asserts is never how long that is.
START_SECONDS = 60.0
STOP_SECONDS = 60.0
_POLL_SECONDS = 0.005

T = TypeVar("T")
Settings = Mapping[str, object]
"""Settings by their full key: `{"journal.quota_bytes": 1_000_000}`."""


class ServerProcess:
    """`helio serve` on one folder and, from its first start on, one port."""

    def __init__(
        self, folder: Path, settings: Settings | None = None, *, port: int = 0, sync_seconds: float = 0.0
    ) -> None:
        """`sync_seconds`: its disk takes that much longer for every sync."""
        self._sync_seconds = sync_seconds
        self.folder = folder
        self.data = folder / "data"
        self.port = port
        self.start_seconds = 0.0
        self._ready = folder / "ready"
        self._errors = folder / "server.err"
        self._configuration = folder / "heliograph.toml"
        self.configure(settings or {})
        self._process: subprocess.Popen[bytes] | None = None

    def configure(self, settings: Settings) -> None:
        """What holds from the next start on."""
        self._configuration.write_text(_toml_of(settings), encoding="utf-8")

    @property
    def url(self) -> str:
        return f"helio://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server was not started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def errors(self) -> str:
        """What it wrote to standard error, over all its lives."""
        return self._errors.read_text(errors="replace") if self._errors.exists() else ""

    async def start(self) -> None:
        """Start, and wait until it is ready; `start_seconds` says how long that took."""
        assert not self.is_running, "it runs already"
        self._ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "heliograph.cli.main"]
        if self._sync_seconds:
            command = [sys.executable, "-m", "tests.slow_disk", str(self._sync_seconds)]
        command += ["serve", "--config", str(self._configuration)]
        command += ["--host", "127.0.0.1", "--port", str(self.port), "--data", str(self.data)]
        command += ["--ready-file", str(self._ready)]
        began = time.monotonic()
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=CLEAN,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
        await until(lambda: self._ready.exists() or not self.is_running, "the server is ready", START_SECONDS)
        assert self._ready.exists(), f"the server ended: {self.errors}"
        self.start_seconds = time.monotonic() - began
        self.port = int(self._ready.read_text(encoding="utf-8").strip().rpartition(":")[2])

    async def kill(self) -> None:
        """`kill -9`: no farewell, no last write."""
        await self._end(signal.SIGKILL)

    async def terminate(self) -> int:
        """Ask it to stop. Its exit code."""
        return await self._end(signal.SIGTERM)

    async def restart(self) -> None:
        """As a crash and a start."""
        await self.kill()
        await self.start()

    async def wait(self) -> int:
        """Until it has ended by itself. Its exit code."""
        process = self._process
        assert process is not None, "the server was not started"
        await until(lambda: process.poll() is not None, "the server has ended", STOP_SECONDS)
        return process.returncode

    async def _end(self, how: signal.Signals) -> int:
        assert self._process is not None, "the server was not started"
        self._process.send_signal(how)
        return await self.wait()

    def rss_bytes(self) -> int:
        """Memory that it has in use now."""
        return _status(self.pid, "VmRSS")

    def peak_rss_bytes(self) -> int:
        """The most it ever had in use."""
        return _status(self.pid, "VmHWM")

    def sockets(self) -> int:
        """How many it has open now."""
        count = 0
        for file in Path(f"/proc/{self.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # it was closed meanwhile
                count += os.readlink(file).startswith("socket:")
        return count

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self._process
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()
        if kind is not None and self.errors:
            print("--- the server said:\n" + self.errors[-4000:])


def _status(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise AssertionError(f"the process has no {field}: it ended")


def _toml_of(settings: Settings) -> str:
    """JSON's numbers, booleans and texts are TOML's too."""
    lines = []
    for key, value in settings.items():
        lines.append(f"{key} = {json.dumps(value)}")
    return "\n".join(lines) + "\n"


@asynccontextmanager
async def embedded(folder: Path, settings: Settings | None = None) -> AsyncIterator[EmbeddedServer]:
    """A server in this loop. It stops cleanly at the end."""
    fixed = {"server.port": 0, "server.data": str(folder / "data")}
    server = EmbeddedServer(load(None, {"server.host": "127.0.0.1", **(settings or {}), **fixed}))
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def url_of(server: EmbeddedServer) -> str:
    host, port = server.address
    return f"helio://{host}:{port}"


async def until(condition: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    """A condition with a deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain until {what}"
        await asyncio.sleep(_POLL_SECONDS)


def play(story: Coroutine[Any, Any, T], seconds: float = 150.0) -> T:
    """Run an asyncio story to its end, which comes in time or not at all."""

    async def limited() -> T:
        async with asyncio.timeout(seconds):
            return await story

    return asyncio.run(limited())


@asynccontextmanager
async def helper(module: str, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Another Python process of ours, `python -m module …`, that prints `ready` when it is."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        *arguments,
        cwd=ROOT,
        env=CLEAN,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(START_SECONDS):
            line = await process.stdout.readline()
        assert line == b"ready\n", f"{module} said {line!r}"
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
