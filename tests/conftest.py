"""What every test shares: the requirement markers, and leaving out what this user may not do."""

import os

import pytest

pytest_plugins = ["tests.requirements_coverage"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need the superuser are skipped, visibly, for everybody else."""
    if os.geteuid() == 0:
        return
    for item in items:
        if item.get_closest_marker("root") is not None:
            item.add_marker(pytest.mark.skip(reason="needs the superuser"))
