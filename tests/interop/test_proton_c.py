"""Clients in C on Debian's Proton, compiled here: send, receive, accept, transact, subscribe durably, reconnect,
alerts."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.stage import Stage, on_a_single_server

_NEEDS = {
    "gcc": "gcc",
    "/usr/include/stdio.h": "libc6-dev",
    "/usr/include/proton/proactor.h": "libqpid-proton11-dev",
}
pytestmark = [pytest.mark.req("X1"), pytest.mark.slow, pytest.mark.debian(_NEEDS)]
_SOURCES = Path(__file__).parent / "c"
Told = Callable[[Stage, str], list[str]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Compiles a story and runs it: what it prints, line by line. If that is `restart`, the server is restarted."""
    folder = tmp_path_factory.mktemp("c")

    def tell(stage: Stage, story: str) -> list[str]:
        program = folder / story
        if not program.exists():
            source = str(_SOURCES / f"{story}.c")
            subprocess.run(["gcc", "-Wall", "-o", str(program), source, "-lqpid-proton"], check=True)
        command = [str(program), stage.host, str(stage.port)]
        lines = []
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    lines.append(line.rstrip("\n"))
                    if lines[-1] == "restart":
                        stage.restart()
                assert process.wait(60) == 0
            finally:
                process.kill()
        return lines

    return tell


def test_a_hundred_messages_go_both_ways(stage: Stage, told: Told) -> None:
    assert told(stage, "client") == ["100 100 100"]


@pytest.mark.req("A8")
def test_an_alert_is_published_received_and_acknowledged(stage: Stage, told: Told) -> None:
    assert told(stage, "alerts") == ["hot 9 24"]


def test_what_is_sent_and_taken_in_a_transaction_takes_effect_when_it_is_committed(
    stage: Stage, told: Told
) -> None:
    assert told(stage, "transactions") == ["2 0", "2 1"]
    assert told(stage, "transactions") == ["2 0", "2 1"], "nothing was left"


def test_a_durable_subscription_waits_until_it_is_ended(stage: Stage, told: Told) -> None:
    assert told(stage, "durable") == ["meanwhile"]
    assert told(stage, "durable") == ["meanwhile"], "nothing was left"


@on_a_single_server
def test_a_client_comes_back_after_a_restart(stage: Stage, told: Told) -> None:
    assert told(stage, "reconnect") == ["restart", "100"]
