"""What every test shares: the requirement markers, which examples are tried, getting what tests need from Debian, and
leaving out what this user may not do."""

import os
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from tests.debian import install, needs_of, skip_without
from tests.missing import as_failed

# Whoever changes something is told what that broke, and not what was never tried before: examples are the same in
# every run. `make nightly` looks for new ones.
# How long an example takes to make says how busy the machine is.
_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", _PATIENT, derandomize=True)
settings.register_profile("new", _PATIENT, derandomize=False)
settings.load_profile(os.environ.get("HELIO_EXAMPLES", "same"))

pytest_plugins = ["tests.requirements_coverage"]


# Tests of these folders share a broker or a JVM: where tests run two at a time, they stay together.
_TOGETHER = ("api", "browser", "clustered", "interop", "spark")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need the superuser are skipped, visibly, for everybody else. They form rings of Corosync, so that
    they run alone."""
    for item in items:
        if item.get_closest_marker("root") is not None:
            item.add_marker("alone")
            if os.geteuid() != 0:
                item.add_marker(pytest.mark.skip(reason="needs the superuser"))
        elif item.path.parent.name in _TOGETHER:
            item.add_marker(pytest.mark.xdist_group(item.path.parent.name))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Nor is a whole file left out where nothing may be."""
    report = yield
    as_failed(report)
    return report


def pytest_collection_finish(session: pytest.Session) -> None:
    """All that the chosen tests need, before the first of them begins."""
    if not session.config.option.collectonly:
        install({name: package for item in session.items for name, package in needs_of(item).items()})


def pytest_runtest_setup(item: pytest.Item) -> None:
    skip_without(needs_of(item))
