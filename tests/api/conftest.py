"""One server for all stories of a module, alone and as a cluster: each story uses names of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.api.visitor import Visitor
from tests.interop.stage import Stage


@pytest.fixture(scope="module", params=["single", "cluster"])
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with Stage(tmp_path_factory.mktemp("server"), request.param) as stage:
        yield stage


@pytest.fixture
def visitor(stage: Stage) -> Iterator[Visitor]:
    visitor = Visitor(stage.port)
    yield visitor
    visitor.close()
