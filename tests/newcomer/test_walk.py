"""A newcomer's walk: a fresh clone and the commands of the README, to a message received, a partition watched and a
report of Spark opened.

What is typed is taken from the README itself. The whole walk sets up its own environment, as `make run` and `make
demo` do; the short one of every day uses this one, and leaves Spark out.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block, read

pytestmark = [pytest.mark.req("X5"), pytest.mark.slow]

README = read(ROOT / "README.md")


def typed(beginning: str) -> str:
    """The line of the README that begins so, as somebody would type it."""
    lines = [line for block in README.of("sh") for line in block.text.splitlines()]
    found = [line.split("  #")[0].strip() for line in lines if line.startswith(beginning)]
    assert found, f"the README does not say {beginning}"
    return found[0]


def program() -> Block:
    (found,) = [block for block in README.of("python") if block.is_program]
    return found


class Walk:
    """A folder with a clone, and a shell in it."""

    def __init__(self, folder: Path) -> None:
        self.clone = folder / "heliograph"
        run = subprocess.run(
            ["git", "clone", "--quiet", str(ROOT), str(self.clone)],
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode != 0:
            pytest.skip(f"this is no repository that can be cloned: {run.stderr.strip()}")
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("HELIO_") and name not in ("PYTHONPATH", "VIRTUAL_ENV")
        }
        self.environment |= {"TERM": "dumb", "PYTHON": sys.executable}

    def use_this_environment(self) -> None:
        """`helio` and `python` are the clone's code in the environment of this test."""
        tools = self.clone.parent / "bin"
        tools.mkdir()
        for name, words in (
            ("helio", f"{sys.executable} -m heliograph.cli.main"),
            ("python", sys.executable),
        ):
            (tools / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n', "utf-8")
            (tools / name).chmod(0o755)
        self.environment |= {"PYTHONPATH": str(self.clone / "src")}
        self.environment["PATH"] = f"{tools}:{self.environment['PATH']}"

    def type(self, line: str, seconds: float = 120.0) -> str:
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self.clone,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert done.returncode == 0, f"{line}:\n{done.stdout[-3000:]}"
        return done.stdout

    @contextmanager
    def serving(self, line: str, seconds: float = 60.0) -> Iterator[None]:
        """A server in another terminal, on a port of its own: somebody else's may be on the usual one."""
        ready = self.clone.parent / "ready"
        with (self.clone.parent / "server.txt").open("wb") as said:
            server = subprocess.Popen(
                ["bash", "-c", line.format(f"--port 0 --ready-file {ready}")],
                cwd=self.clone,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        try:
            deadline = time.monotonic() + seconds
            while not ready.exists():
                assert server.poll() is None, (self.clone.parent / "server.txt").read_text("utf-8")
                assert time.monotonic() < deadline, "the server is not ready"
                time.sleep(0.05)
            self.environment["HELIO_URL"] = f"helio://{ready.read_text('utf-8').strip()}"
            yield
        finally:
            if server.poll() is None:
                os.killpg(server.pid, signal.SIGINT)
            server.wait(30)

    def send_and_receive(self) -> None:
        self.type(typed("helio send"))
        assert "hello" in self.type(typed("helio receive"))
        text = program().text.replace("helio://localhost:7700", self.environment["HELIO_URL"])
        (self.clone / "first.py").write_text(text, "utf-8")
        assert "two lamps, one mirror" in self.type("python first.py")

    def watch_a_partition(self, options: str = "") -> None:
        shown = self.type(f"{typed('helio demo partition')} {options}", 180)
        assert re.search(r"\blost\W+0\b", shown), shown[-2000:]


@pytest.mark.timeout(300)
def test_a_short_walk(tmp_path: Path) -> None:
    walk = Walk(tmp_path)
    walk.use_this_environment()
    with walk.serving("exec helio serve --data data {}"):
        walk.send_and_receive()
    walk.watch_a_partition("--in-process")


@pytest.mark.nightly
@pytest.mark.alone
@pytest.mark.timeout(2400)
def test_the_whole_walk(tmp_path: Path) -> None:
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17, as the README says")
    walk = Walk(tmp_path)
    assert typed("make run") == "make run"
    with walk.serving('exec make run ARGS="{}"', seconds=900):
        walk.environment["PATH"] = f"{walk.clone / '.venv' / 'bin'}:{walk.environment['PATH']}"
        walk.send_and_receive()
    walk.watch_a_partition()
    said = walk.type(typed("make demo"), 1500)
    (report,) = [path for path in walk.clone.glob("*.html") if path.name in said]
    assert "audit" in _Title.of(report).lower()


class _Title(HTMLParser):
    """What a browser would show as the name of a page."""

    def __init__(self) -> None:
        super().__init__()
        self._is_inside = False
        self.title = ""

    @classmethod
    def of(cls, page: Path) -> str:
        parser = cls()
        parser.feed(page.read_text("utf-8"))
        return parser.title

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._is_inside = tag == "title"

    def handle_data(self, data: str) -> None:
        self.title += data if self._is_inside else ""

    def handle_endtag(self, tag: str) -> None:
        self._is_inside = False
