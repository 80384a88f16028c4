"""Pipelines need Java and say so (D6); nothing else does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from heliograph.cli.pipeline import check_pipelines
from heliograph.model.errors import ClientFault
from heliograph.spark.pipelines.running import check_java
from tests.servers import CLEAN, ROOT

pytestmark = pytest.mark.req("D6")


def java_of(version: str, folder: Path) -> Path:
    """A home of Java with one that says which it is, as each does."""
    java = folder / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-21' >&2\n", encoding="utf-8")
    java.chmod(0o755)
    return folder


def test_who_has_no_java_is_told_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ClientFault, match="apt install openjdk") as missing:
        check_java()
    assert missing.value.code == "java-missing"
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClientFault, match="JAVA_HOME"):
        check_java()


@pytest.mark.parametrize("version", ["1.8.0_432", "11.0.26"])
def test_an_old_java_will_not_do(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_of(version, tmp_path)))
    with pytest.raises(ClientFault, match="Spark needs 17 or newer"):
        check_java()


@pytest.mark.parametrize("version", ["17.0.15", "25"])
def test_a_new_one_will(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_of(version, tmp_path)))
    check_java()


def test_the_command_says_it_before_it_does_anything(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "heliograph.cli.main", "pipeline", "archive", str(tmp_path / "archive")],
        cwd=ROOT,
        env={**CLEAN, "JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "pipelines run on Spark, which needs Java 17 or newer" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "archive").exists()


def test_what_is_missing_is_said_before_spark_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what is needed at the end of an audit, for its report."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ClientFault, match=r"matplotlib is missing.*heliograph\[spark\]") as missing:
        check_pipelines()
    assert missing.value.code == "spark-missing"
