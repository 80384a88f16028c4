"""schemathesis asks whatever the description allows, and more: nothing that it thinks of makes the server stumble."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.api.test_rights import users_in
from tests.api.visitor import Visitor
from tests.interop.stage import Stage

EXAMPLES = 8
MANY_EXAMPLES = 200


def run(folder: Path, examples: int, seconds: float, phases: str = "examples,fuzzing") -> None:
    settings = {"identity.users_file": str(users_in(folder))}
    with Stage(folder, "single", settings) as stage:
        base = f"http://{stage.host}:{stage.port}"
        command = [sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()", "run"]
        command += [
            f"{base}/api/v1/openapi.json",
            "--auth",
            "ann:ann's secret",
            "--max-examples",
            str(examples),
        ]
        # What a stream says has no end; whoever logs out or adds users changes what the others may.
        command += [
            "--exclude-path",
            "/api/v1/events",
            "--checks",
            "not_a_server_error,content_type_conformance",
        ]
        command += [
            "--phases",
            phases,
            "--generation-deterministic",
            "--request-timeout",
            "20",
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, check=False, cwd=folder
        )
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        ann = Visitor(stage.port, user="ann", password="ann's secret")
        events = {event["event"] for event in ann.get("log")["events"]}
        assert events & {
            "destination-created",
            "destination-paused",
            "destination-resumed",
            "policy-changed",
        }, "what it asked for was done"


@pytest.mark.req("X3")
@pytest.mark.timeout(400)
def test_whatever_it_is_asked_the_server_has_an_answer(tmp_path: Path) -> None:
    run(tmp_path, EXAMPLES, 380)


@pytest.mark.req("X3")
@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_whatever_it_is_asked_all_night(tmp_path: Path) -> None:
    run(tmp_path, MANY_EXAMPLES, 3500, "examples,coverage,fuzzing,stateful")
