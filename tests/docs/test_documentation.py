"""Every command and every program of the documentation is executed; what is not is listed with its reason."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

import pytest

from tests.docs.exceptions import BLOCKS, LINES, SHELLS
from tests.docs.pages import DocumentPage, all_pages
from tests.docs.performing import LONG_PAGE_SECONDS, PAGE_SECONDS, Performance

pytestmark = [pytest.mark.req("X5"), pytest.mark.slow]

PAGES = all_pages()
# Rings of Corosync, Spark, measurements, and an example that has a test of its own: a minute and more.
NIGHTLY = {
    "docs/tutorial/cluster.md",
    "docs/tutorial/pipelines.md",
    "docs/guides/sizing.md",
    "docs/guides/clustered-consumers.md",
    "docs/tutorial/partitions.md",
}
# What pages need that Python does not bring: the tool, and the Debian package that has it.
TOOLS = {
    "docs/tutorial/protocols.md": {"mosquitto_pub": "mosquitto-clients"},
    "docs/reference/protocols.md": {"mosquitto_pub": "mosquitto-clients"},
    "docs/tutorial/alerts.md": {"jq": "jq"},
    "docs/reference/cli.md": {"jq": "jq"},
    "docs/reference/api.md": {"curl": "curl"},
    "docs/tutorial/cluster.md": {"jq": "jq", "corosync": "corosync"},
    "docs/tutorial/pipelines.md": {"java": "default-jre-headless"},
}
# Their own tests run the programs of these.
ELSEWHERE = {"docs/guides/testing.md": "tests/testing/test_plugin.py"}


def _is_executable(page: DocumentPage) -> bool:
    return bool(page.of("sh") or page.of("python")) and page.name not in ELSEWHERE


@pytest.mark.timeout(LONG_PAGE_SECONDS + 60)  # each page has its own
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page,
            id=page.name,
            marks=[
                pytest.mark.debian(TOOLS.get(page.name, {})),
                *([pytest.mark.nightly, pytest.mark.alone] if page.name in NIGHTLY else []),
            ],
        )
        for page in PAGES
        if _is_executable(page)
    ],
)
def test_what_a_page_says_can_be_done(page: DocumentPage, tmp_path: Path) -> None:
    before = Path.cwd()
    try:
        seconds = LONG_PAGE_SECONDS if page.name in NIGHTLY else PAGE_SECONDS
        Performance(page, tmp_path, seconds).perform()
    finally:
        os.chdir(before)


def test_exceptions_are_few_and_on_their_pages() -> None:
    by_name = {page.name: page for page in PAGES}
    for name, lines in LINES.items():
        there = {
            line.split("  #")[0].strip()
            for block in by_name[name].of("sh")
            for line in block.text.splitlines()
        }
        assert set(lines) <= there, name
    for name, firsts in BLOCKS.items():
        there = {block.text.splitlines()[0] for block in by_name[name].of("python")}
        assert set(firsts) <= there, name
    assert all(by_name[name].of("sh") for name in SHELLS)
    reasons = [why for each in (*LINES.values(), *BLOCKS.values(), SHELLS) for why in each.values()]
    assert all(len(why.split()) >= 4 for why in reasons)
    assert len(reasons) <= 25


def test_settings_and_rules_that_are_shown_can_be_read() -> None:
    for page in PAGES:
        for block in page.of("toml"):
            tomllib.loads(block.text)


def test_programs_that_are_run_elsewhere_are() -> None:
    for page, test in ELSEWHERE.items():
        assert Path(page).name in Path(test).read_text("utf-8")


def test_shell_blocks_say_that_they_are() -> None:
    """Otherwise nobody would execute them."""
    for page in PAGES:
        for block in page.blocks:
            assert block.language not in ("bash", "shell", "console", "text"), f"{page.name}:{block.line}"
            if not block.language:
                assert not re.match(r"\$? ?(helio|python|pip|make|apt) ", block.text), (
                    f"{page.name}:{block.line}"
                )
