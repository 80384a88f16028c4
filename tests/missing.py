"""What a test needs of others and may not be here: a client, a broker, a jar. It is skipped then, and says what to
do; where nothing may be left out, `HELIO_NO_SKIPS=1`, it fails.

A test that asks for what this machine cannot have, such as another processor or the superuser, is not meant.
"""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

VARIABLE = "HELIO_NO_SKIPS"


def nothing_may_be_missing() -> bool:
    return os.environ.get(VARIABLE, "") not in ("", "0")


def leave_out(why: str) -> NoReturn:
    """End the test, since something is missing."""
    if nothing_may_be_missing():
        pytest.fail(f"{why} ({VARIABLE} is set: nothing is left out)", pytrace=False)
    pytest.skip(why)


def as_failed(report: pytest.CollectReport) -> None:
    """A whole file is left out by `pytest.importorskip`, since a Python package is missing."""
    if report.outcome == "skipped" and nothing_may_be_missing():
        why = report.longrepr[-1] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"{why} ({VARIABLE} is set: nothing is left out)"
