"""rhea, the usual AMQP client for Node: send, receive, settle, transact, subscribe durably, reconnect, alerts."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.interop.stage import Stage, on_a_single_server
from tests.missing import leave_out

pytestmark = [
    pytest.mark.req("X1"),
    pytest.mark.slow,
    pytest.mark.debian({"node": "nodejs", "npm": "npm"}),
]
_STORIES = Path(__file__).parent / "node" / "stories.js"
_RHEA = "rhea@3.0.5"


@pytest.fixture(scope="module")
def modules() -> Path:
    """Where rhea is, got from npm once and kept."""
    folder = Path(os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))) / "heliograph" / "node"
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "node_modules" / "rhea").exists():
        command = ["npm", "install", "--silent", "--no-save", "--prefix", str(folder), _RHEA]
        if subprocess.run(command, check=False, timeout=120).returncode:
            leave_out("rhea cannot be got from npm")
    return folder / "node_modules"


def told(stage: Stage, modules: Path, story: str) -> Any:
    environment = {**os.environ, "NODE_PATH": str(modules)}
    command = ["node", str(_STORIES), story, str(stage.port)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.strip() == "restart":
                    stage.restart()
                else:
                    return json.loads(line)
            raise AssertionError("the story did not end")
        finally:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def test_messages_go_both_ways_and_are_accepted(stage: Stage, modules: Path) -> None:
    assert told(stage, modules, "plain") == [[number, number] for number in range(1, 51)]


def test_released_and_failed_messages_come_again(stage: Stage, modules: Path) -> None:
    assert told(stage, modules, "outcomes") == [0, 0, 1]


def test_a_durable_subscription_waits(stage: Stage, modules: Path) -> None:
    assert told(stage, modules, "durable") == ["meanwhile"]


@on_a_single_server
def test_a_client_comes_back_after_a_restart(stage: Stage, modules: Path) -> None:
    assert told(stage, modules, "reconnect") == 100


def test_what_is_sent_and_taken_in_a_transaction_takes_effect_when_it_is_committed(
    stage: Stage, modules: Path
) -> None:
    assert told(stage, modules, "transactions") == [[2, 0], [2, 1]]
    assert told(stage, modules, "transactions") == [[2, 0], [2, 1]], "nothing was left"


@pytest.mark.req("A8")
def test_an_alert_is_published_and_received(stage: Stage, modules: Path) -> None:
    assert told(stage, modules, "alerts") == ["TAG:pump", "hot", 7]
