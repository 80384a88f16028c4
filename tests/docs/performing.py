"""A page is performed as a reader would: its files are written, its commands run in order in one shell, against a
server of the page's own in a folder of its own."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import os
import re
import socket
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

import psutil

import heliograph
from heliograph.clustered.verifier import MessageVerifier
from tests.docs.exceptions import BLOCKS, LINES, SHELLS
from tests.docs.pages import ROOT, Block, DocumentPage
from tests.servers import CLEAN, ServerProcess

PAGE_SECONDS: Final = 240.0
# Of a page of the night: Spark begins anew for each of its commands.
LONG_PAGE_SECONDS: Final = 1200.0
# How long a program of a page may take, and one that goes on for ever is watched.
_FRAGMENT_SECONDS: Final = 30.0
_ENDLESS_FRAGMENT_SECONDS: Final = 2.0
# These run until they are ended: the shell goes on when they have said something, and ends them with the page.
_ENDLESS: Final = re.compile(
    r"^helio (cluster dev|log .*--follow|alerts watch|top(?!.*--once)|pipeline \w+ (?!.*--once).*--follow)"
)
_SERVE: Final = re.compile(r"^helio serve(\s+#.*)?$")
_PROLOGUE: Final = """\
set -mEeuo pipefail
trap 'echo "FAILED: $BASH_COMMAND" >&2' ERR
endless() {  # runs in the background until the page ends
    "$@" > said.$1.$2 2>&1 & begun=$!
    for _ in $(seq ${PATIENCE:-30}); do sleep 0.1; kill -0 $begun; grep -q Ctrl-C said.$1.$2 && return; done
    [ -z "${PATIENCE:-}" ] || { cat said.$1.$2 >&2; false; }
}
"""


class Performance:
    """One page."""

    def __init__(self, page: DocumentPage, folder: Path, seconds: float = PAGE_SECONDS) -> None:
        self._page = page
        self._seconds = seconds
        self._folder = folder
        self._server = ServerProcess(folder)
        self._skipped = LINES.get(page.name, {})
        self._blocks_skipped = BLOCKS.get(page.name, {})

    def perform(self) -> None:
        asyncio.run(self._perform())

    async def _perform(self) -> None:
        async with self._server:
            self._prepare()
            if "tutorial" not in self._page.name:  # which begins with nothing
                await _take_for_granted(self._server.url)
            await asyncio.to_thread(self._run_shell)
            await self._run_fragments()

    # ---- the folder

    def _prepare(self) -> None:
        tools = self._folder / "bin"
        tools.mkdir()
        for name, words in (
            ("helio", f"{sys.executable} -m heliograph.cli.main"),
            ("python", sys.executable),
        ):
            tool = tools / name
            tool.write_text(f'#!/bin/sh\nexec {words} "$@"\n', "utf-8")
            tool.chmod(0o755)
        (self._folder / "examples").symlink_to(ROOT / "examples")
        (self._folder / "film.mkv").write_bytes(b"moving pictures" * 200_000)
        for block in self._page.blocks:
            if block.title:
                (self._folder / block.title).write_text(self._here(block.text), "utf-8")

    def _here(self, text: str) -> str:
        """On the port of this page's server, and on free ones for a cluster."""
        text = text.replace("7700", str(self._server.port))
        for wanted, free in zip(("7800", "7801"), self._two_free, strict=True):
            text = text.replace(wanted, str(free))
        return text

    @property
    def _two_free(self) -> tuple[int, int]:
        if not hasattr(self, "_free"):
            while True:
                with socket.socket() as one, socket.socket() as other:
                    one.bind(("127.0.0.1", 0))
                    first = one.getsockname()[1]
                    try:
                        other.bind(("127.0.0.1", first + 1))
                    except OSError:
                        continue
                    self._free = (first, first + 1)
                    break
        return self._free

    # ---- the shell

    def _run_shell(self) -> None:
        lines = [_PROLOGUE]
        for number, block in enumerate(self._page.blocks):
            if block.language == "sh" and self._page.name not in SHELLS:
                lines += [self._command(line) for line in block.text.splitlines()]
            elif (
                block.language != "sh"
                and block.is_program
                and not block.title
                and not self._is_skipped(block)
            ):
                program = self._folder / f"program_{number}.py"
                program.write_text(self._here(block.text), "utf-8")
                lines.append(_started(program.name, is_endless=".wait()" in block.text))
        if len(lines) > 1:
            self._run_script(self._here("\n".join(lines)))

    def _command(self, line: str) -> str:
        words = line.split("  #", maxsplit=1)[0].strip()
        if words in self._skipped or _SERVE.match(words):  # the page's own server is that one
            return ":"
        if words.startswith("helio serve --config"):
            return f"endless {words} --port 0"
        if words.startswith("helio cluster dev"):  # it says when all of it is there
            return f"PATIENCE=900 endless {line}"
        return f"endless {line}" if _ENDLESS.match(words) else line

    def _run_script(self, script: str) -> None:
        environment = {
            **CLEAN,
            "PATH": f"{self._folder / 'bin'}:{CLEAN['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
            "HELIO_URL": self._server.url,
            "TERM": "dumb",
            **_fixtures_of_this_version(),
            "HOME": str(self._folder),
        }
        output = self._folder / "said.txt"
        with (
            output.open("wb") as file,
            subprocess.Popen(
                ["bash", "-c", script],
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            ) as shell,
        ):
            try:
                code: int | None = shell.wait(timeout=self._seconds)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _end_session(shell.pid)
        said = output.read_text("utf-8", errors="replace")
        assert code is not None, f"{self._page.name} did not end:\n{said[-3000:]}"
        assert code == 0, f"{self._page.name}:\n{said[-3000:]}"
        assert "Traceback" not in said, said[-3000:]

    # ---- parts of programs

    def _is_skipped(self, block: Block) -> bool:
        return block.text.splitlines()[0] in self._blocks_skipped

    async def _run_fragments(self) -> None:
        fragments = [
            block
            for block in self._page.of("python")
            if not block.is_program and not block.title and not self._is_skipped(block)
        ]
        if not fragments:
            return
        os.chdir(self._folder)
        async with heliograph.connect(self._server.url, on_error=lambda _error: None) as connection:
            granted = await _surroundings(connection, self._server.url)
            answering = asyncio.create_task(_answer(connection))
            names: dict[str, Any] = {}
            for block in fragments:  # each may use what those before it have made
                names |= granted
                await self._run_fragment(block, names)
            answering.cancel()
            await asyncio.wait([answering])

    async def _run_fragment(self, block: Block, names: dict[str, Any]) -> None:
        place = f"{self._page.name}, line {block.line}"
        code = compile(self._here(block.text), place, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        is_endless = re.search(r"^\s*(async )?(for|while) ", block.text, re.MULTILINE) is not None
        try:
            async with asyncio.timeout(_ENDLESS_FRAGMENT_SECONDS if is_endless else _FRAGMENT_SECONDS):
                result = eval(code, names)
                if result is not None:
                    await result
        except TimeoutError:
            # One that goes on for ever has done so for a while; another one hangs.
            assert is_endless, f"{place} does not end"
        except Exception as failure:
            raise AssertionError(f"{place}: {failure!r}") from failure


async def _take_for_granted(url: str) -> None:
    """What is there already where a guide is read."""
    async with heliograph.connect(url) as connection:
        for name in ("queue:orders", "queue:orders.ann", "queue:payments"):
            producer = await connection.producer(name)
            for number in range(3):
                await producer.send(f"order {number}", properties={"customer": "ann", "test": number == 2})
            await producer.flush()


async def _answer(connection: heliograph.Connection) -> None:
    """The other side of a question."""
    async for question in await connection.consumer("queue:prices"):
        await question.reply({"price": 12})


async def _surroundings(connection: heliograph.Connection, url: str) -> dict[str, Any]:
    """What parts of programs take for granted."""
    session = await connection.session()
    producer = await session.producer("queue:orders")
    for number in range(8):
        await producer.send(b"an order", properties={"city": "Zürich", "price": 11 + number})
    await producer.flush()
    ops = connection.alerts("ops")
    return {
        "asyncio": asyncio,
        "heliograph": heliograph,
        "connect": heliograph.connect,
        "url": url,
        "connection": connection,
        "session": session,
        "producer": producer,
        "body": b"a body",
        "number": 7,
        "work": lambda message: message.body,
        "ops": ops,
        "file": Path("out.bin").open("wb"),
        "MessageVerifier": MessageVerifier,
    }


def _fixtures_of_this_version() -> dict[str, str]:
    """pytest finds them by itself where this version is installed."""
    plugin = "heliograph.testing.plugin"
    is_found = any(entry.value == plugin for entry in entry_points(group="pytest11"))
    return {} if is_found else {"PYTEST_PLUGINS": plugin}


def _started(program: str, *, is_endless: bool) -> str:
    """A program that goes on for ever is ended after a while, and must not have ended by itself."""
    if is_endless:
        return f"timeout --signal=KILL 8 python {program} || [ $? -eq 137 ]"
    return f"timeout --signal=INT 60 python {program}"


def _end_session(session: int) -> None:
    """Whatever the shell has left running. When it is gone its connections are too: what is done next is not handed
    to clients that are about to die."""
    killed = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if os.getsid(process.pid) == session:
                process.kill()
                killed.append(process)
    psutil.wait_procs(killed, timeout=10)
