"""One server for all stories of a module, alone and as a cluster: each story uses names of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.stage import Stage


@pytest.fixture(scope="module", params=["single", pytest.param("cluster", marks=pytest.mark.slow)])
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with Stage(tmp_path_factory.mktemp("server"), request.param) as stage:
        yield stage


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What paho does is tried at a cluster in the night only: aiomqtt and mosquitto go there in every run."""
    for item in items:
        if "test_paho.py" in item.nodeid and "[cluster" in item.nodeid:
            item.add_marker(pytest.mark.nightly)
