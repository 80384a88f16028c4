"""The fixtures. pytest imports this module at its start, so it imports nothing that takes time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from heliograph.testing.clock import TestClock
    from heliograph.testing.cluster import ClusterFactory, RunningCluster
    from heliograph.testing.server import RunningServer
    from heliograph.testing.stage import Stage


@pytest.fixture
def heliograph_settings() -> dict[str, object]:
    """Settings of the servers of a test, by their full key. Override it in a test module or a conftest.py:

    @pytest.fixture
    def heliograph_settings():
        return {"sessions.lease_seconds": 5.0}
    """
    return {}


@pytest.fixture
def heliograph_clock(monkeypatch: pytest.MonkeyPatch) -> TestClock:
    """The time of all servers of a test and of its clients: `heliograph_clock.advance(3600)`."""
    from heliograph.client.clock import CLOCK
    from heliograph.testing.clock import TestClock

    clock = TestClock()
    monkeypatch.setattr(CLOCK, "microseconds", clock.microseconds)
    return clock


@pytest.fixture
def _heliograph_stage(heliograph_clock: TestClock) -> Iterator[Stage]:
    from heliograph.testing.stage import Stage

    stage = Stage(heliograph_clock)
    yield stage
    stage.end()


@pytest.fixture
def heliograph_server(
    tmp_path_factory: pytest.TempPathFactory, _heliograph_stage: Stage, heliograph_settings: dict[str, object]
) -> RunningServer:
    """A server of its own for each test: `heliograph_server.url`."""
    from heliograph.testing.server import RunningServer

    return RunningServer(tmp_path_factory.mktemp("heliograph-server"), _heliograph_stage, heliograph_settings)


@pytest.fixture
def heliograph_cluster(
    tmp_path_factory: pytest.TempPathFactory, _heliograph_stage: Stage, heliograph_settings: dict[str, object]
) -> ClusterFactory:
    """Makes a cluster: `cluster = heliograph_cluster(3)`, then `cluster.cut([1], [2, 3])` and `cluster.heal()`."""

    def make(nodes: int = 3, settings: dict[str, object] | None = None) -> RunningCluster:
        from heliograph.testing.cluster import RunningCluster

        folder: Path = tmp_path_factory.mktemp("heliograph-cluster")
        return RunningCluster(nodes, folder, _heliograph_stage, {**heliograph_settings, **(settings or {})})

    return make
