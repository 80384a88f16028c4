"""Clients in C on Debian's Proton, compiled here."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.stage import Stage

pytestmark = [pytest.mark.req("X1"), pytest.mark.slow]
_SOURCES = Path(__file__).parent / "c"
_HEADER = Path("/usr/include/proton/proactor.h")
_PACKAGE = "libqpid-proton11-dev"
Told = Callable[[Stage, str], list[str]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Compiles a story and runs it: what it prints, line by line."""
    if not _HEADER.exists() and os.geteuid() == 0 and shutil.which("apt-get") is not None:
        command = ["apt-get", "install", "-qq", "-y", "--no-install-recommends", _PACKAGE]
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL, timeout=300)
    if not _HEADER.exists() or shutil.which("gcc") is None:
        pytest.skip(f"as root: apt-get install gcc {_PACKAGE}")
    folder = tmp_path_factory.mktemp("c")

    def tell(stage: Stage, story: str) -> list[str]:
        program = folder / story
        if not program.exists():
            source = str(_SOURCES / f"{story}.c")
            subprocess.run(["gcc", "-Wall", "-o", str(program), source, "-lqpid-proton"], check=True)
        command = [str(program), stage.host, str(stage.port)]
        run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert run.returncode == 0
        return run.stdout.splitlines()

    return tell


@pytest.mark.timeout(120)
def test_a_hundred_messages_go_both_ways(stage: Stage, told: Told) -> None:
    assert told(stage, "client") == ["100 100 100"]


@pytest.mark.timeout(120)
@pytest.mark.req("A8")
def test_an_alert_is_published_received_and_acknowledged(stage: Stage, told: Told) -> None:
    assert told(stage, "alerts") == ["hot 9 24"]


@pytest.mark.timeout(120)
def test_what_is_sent_and_taken_in_a_transaction_takes_effect_when_it_is_committed(
    stage: Stage, told: Told
) -> None:
    assert told(stage, "transactions") == ["2 0", "2 1"]
    assert told(stage, "transactions") == ["2 0", "2 1"], "nothing was left"
