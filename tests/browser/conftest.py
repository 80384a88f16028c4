"""One Chromium for the stories of a module, and not longer: while it is there, an event loop runs in this thread,
and tests of others could not run theirs. It is installed where that is possible; otherwise the stories are skipped,
and say so."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.missing import leave_out

INSTALL_SECONDS = 600
PICTURES = Path(os.environ["HELIO_SCREENSHOTS"]) if os.environ.get("HELIO_SCREENSHOTS") else None


def chromium() -> str:
    """Where it is. The story is left out if it is nowhere."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None and os.geteuid() == 0 and shutil.which("apt-get") is not None:
        command = ["apt-get", "install", "--yes", "--no-install-recommends", "chromium"]
        subprocess.run(command, capture_output=True, timeout=INSTALL_SECONDS, check=False)
        found = shutil.which("chromium")
    if found is None:
        leave_out("Chromium is not installed; as root: apt-get install chromium")
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import expect, sync_playwright

    path = chromium()
    expect.set_options(timeout=60_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


class Window:
    """A window of the browser, and every complaint that its page made."""

    def __init__(self, browser: Any, *, width: int = 1280, height: int = 860, scheme: str = "light") -> None:
        viewport = {"width": width, "height": height}
        self._context = browser.new_context(viewport=viewport, color_scheme=scheme)
        self.page = self._context.new_page()
        self.page.set_default_timeout(60_000)
        self.complaints: list[str] = []
        self.expected: list[str] = []
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def picture(self, name: str) -> None:
        """For the docs, if somebody wants new ones: HELIO_SCREENSHOTS=docs/guides/console."""
        if PICTURES is not None:
            PICTURES.mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=PICTURES / f"{name}.png")

    def close(self) -> None:
        self._context.close()
        left = [each for each in self.complaints if not any(word in each for word in self.expected)]
        assert not left, left


@pytest.fixture
def window(browser: Any) -> Iterator[Window]:
    window = Window(browser)
    yield window
    window.close()


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The text of axe-core, which looks for what people with some disability would stumble over."""
    npm = shutil.which("npm")
    if npm is None:
        leave_out("npm is not installed, so axe-core cannot be fetched")
    folder = tmp_path_factory.mktemp("axe")
    command = [npm, "install", "--no-save", "--no-audit", "--no-fund", "--prefix", str(folder), "axe-core@4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    script = folder / "node_modules" / "axe-core" / "axe.min.js"
    if done.returncode or not script.exists():
        leave_out(f"axe-core cannot be fetched: {done.stderr[-300:]}")
    return script.read_text(encoding="utf-8")
