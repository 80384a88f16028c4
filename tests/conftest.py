"""What every test shares: the requirement markers, which examples are tried, and leaving out what this user may not
do."""

import os

import pytest
from hypothesis import settings

# Whoever changes something is told what that broke, and not what was never tried before: examples are the same in
# every run. `make nightly` looks for new ones.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("new", derandomize=False, deadline=None)
settings.load_profile(os.environ.get("HELIO_EXAMPLES", "same"))

pytest_plugins = ["tests.requirements_coverage"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need the superuser are skipped, visibly, for everybody else."""
    if os.geteuid() == 0:
        return
    for item in items:
        if item.get_closest_marker("root") is not None:
            item.add_marker(pytest.mark.skip(reason="needs the superuser"))
