"""Spark for tests: one session for all of them, on one core, and a real server for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from heliograph.model.errors import ClientFault
from heliograph.spark.pipelines.running import check_java, start_spark
from tests.spark.serving import ServerInProcess


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where there is no Java there is no Spark. A JVM takes its time to start, and more on a busy machine."""
    try:
        check_java()
        missing = ""
    except ClientFault as fault:
        missing = fault.sentence
    for item in items:
        if Path(str(item.fspath)).parent != Path(__file__).parent:
            continue
        item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(900))
        if missing:
            item.add_marker(pytest.mark.skip(reason=missing))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    session = start_spark(
        "tests",
        "local[2]",
        {"spark.sql.shuffle.partitions": "2", "spark.default.parallelism": "2", "spark.driver.memory": "1g"},
    )
    yield session
    session.stop()


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A server of its own process: the test's own is busy with Spark."""
    with ServerInProcess(tmp_path / "server") as address:
        yield address
