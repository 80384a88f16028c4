"""The documentation site is built from the pages and the code, without a warning, and needs nothing else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.req("X5"), pytest.mark.slow, pytest.mark.xdist_group("site")]

ROOT = Path(__file__).parents[2]
# What a browser would fetch by itself; links are for people, who decide.
FETCHED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(https?:)?//|<link\b[^>]*\bhref=["']?https?://"""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


@pytest.mark.timeout(240)
def test_it_is_built_without_a_warning(site: Path) -> None:
    for page in ("index.html", "tutorial/queues.html", "guides/operation.html", "decisions/index.html"):
        assert (site / page).exists()


@pytest.mark.timeout(240)
def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    fetching = [
        f"{page.relative_to(site)}: {found.group()}"
        for page in site.rglob("*.html")
        if (found := FETCHED.search(page.read_text("utf-8"))) is not None
    ]
    assert fetching == []
    styles = [
        page for page in site.rglob("*.css") if re.search(r"url\(['\"]?https?:", page.read_text("utf-8"))
    ]
    assert styles == []


@pytest.mark.timeout(240)
def test_commands_api_and_figures_are_made_from_what_they_tell_of(site: Path) -> None:
    commands = (site / "reference" / "commands.html").read_text("utf-8")
    assert "helio admin destination purge" in commands
    assert "--durability" in commands
    api = (site / "reference" / "python-api.html").read_text("utf-8")
    assert "send_confirmed" in api
    assert "RunningCluster" in api
    comparison = (site / "comparison.html").read_text("utf-8")
    measured = (ROOT / "benchmarks" / "results" / "latest.md").read_text("utf-8")
    figure = re.search(r"\| \*\*Heliograph\*\* \| yes \| ([\d,]+) \|", measured)
    assert figure is not None
    assert figure[1] in comparison
    assert len(re.findall(r"Measured on \d+ [A-Z][a-z]+ 20\d\d\.", comparison)) == 4, "each with its date"
