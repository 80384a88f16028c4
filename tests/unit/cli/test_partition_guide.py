"""docs/guides/partitions.md: a promise is worth what proves it, so what it names must be there."""

from __future__ import annotations

import re

import pytest

from tests.servers import ROOT

GUIDE = ROOT / "docs" / "guides" / "partitions.md"


@pytest.mark.req("P10")
def test_every_promise_names_tests_that_are_there() -> None:
    promises = GUIDE.read_text().partition("## What is promised")[2].partition("## What is not promised")[0]
    rows = [line for line in promises.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 10
    for row in rows:
        files = re.findall(r"\]\((\.\./\.\./tests/[^)]+)\)", row)
        assert files, f"nothing proves: {row}"
        texts = [(GUIDE.parent / file).read_text() for file in files]
        for test in re.findall(r"`(test_\w+)`", row):
            assert any(f"def {test}(" in text for text in texts), test


@pytest.mark.req("P10")
def test_every_link_leads_somewhere() -> None:
    for link in re.findall(r"\]\(([^)#]+)", GUIDE.read_text()):
        assert (GUIDE.parent / link).exists(), link
