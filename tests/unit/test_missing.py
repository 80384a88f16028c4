"""Where nothing may be left out, a test that lacks something fails."""

from __future__ import annotations

import pytest

from tests.debian import skip_without
from tests.missing import VARIABLE, as_failed, leave_out

LACKS = {"no-such-program-anywhere": "no-such-package"}


def collected() -> pytest.CollectReport:
    """A file whose package is missing."""
    return pytest.CollectReport("test_it.py", "skipped", ("test_it.py", 1, "no such module"), [])


def test_what_is_missing_is_left_out_and_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(pytest.skip.Exception, match="apt-get install no-such-package"):
        skip_without(LACKS)
    with pytest.raises(pytest.skip.Exception, match="no broker"):
        leave_out("no broker")
    report = collected()
    as_failed(report)
    assert report.outcome == "skipped"


def test_where_nothing_may_be_left_out_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    with pytest.raises(pytest.fail.Exception, match="apt-get install no-such-package"):
        skip_without(LACKS)
    with pytest.raises(pytest.fail.Exception, match="no broker"):
        leave_out("no broker")
    report = collected()
    as_failed(report)
    assert report.outcome == "failed"
    assert "no such module" in str(report.longrepr)
    skip_without({"sh": "dash"})
