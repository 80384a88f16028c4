"""`helio demo` and the example of the tutorial, as a person runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.servers import CLEAN, ROOT, ServerProcess, play

pytestmark = [pytest.mark.req("U1", "X4"), pytest.mark.slow]

DEMO = ("-m", "heliograph.cli.main", "demo", "bookstore")


def run(*arguments: str, url: str = "") -> str:
    environment = {**CLEAN, "HELIO_URL": url} if url else CLEAN
    command = [sys.executable, *arguments]
    done = subprocess.run(command, capture_output=True, cwd=ROOT, env=environment, check=False, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def inversions(deeds: list[dict[str, Any]]) -> list[str]:
    """Customers whose cancellation was done before their order."""
    order: dict[str, list[str]] = {}
    for deed in deeds:
        order.setdefault(deed["customer"], []).append(deed["kind"])
    return [customer for customer, kinds in order.items() if kinds != ["order", "cancellation"]]


def test_the_bookstore_goes_wrong_without_a_unit_of_order_and_right_with_one() -> None:
    shown = json.loads(run(*DEMO, "--json"))
    assert len(shown["without"]["deeds"]) == len(shown["with"]["deeds"]) == 16
    assert inversions(shown["without"]["deeds"])
    assert shown["without"]["unwanted_books"] == len(inversions(shown["without"]["deeds"]))
    assert inversions(shown["with"]["deeds"]) == []
    assert shown["with"]["unwanted_books"] == 0
    assert len({deed["clerk"] for deed in shown["with"]["deeds"]}) > 1  # it is not that one does it all


def test_a_person_reads_what_happens() -> None:
    shown = run(*DEMO)
    assert "sent, though it was cancelled" in shown.partition("each customer a unit of order")[0]
    assert "No unwanted book" in shown.partition("each customer a unit of order")[2]
    assert "\x1b" not in shown  # no colours where there is no terminal


def test_the_demo_plays_on_another_server_and_leaves_nothing_there(tmp_path: Path) -> None:
    async def story() -> None:
        async with ServerProcess(tmp_path) as server:
            shown = json.loads(run(*DEMO, "--json", "--url", server.url))
            assert shown["with"]["unwanted_books"] == 0
            listed = run(
                "-m", "heliograph.cli.main", "admin", "destination", "list", "--json", url=server.url
            )
            assert "temp" not in listed

    play(story())


PARTITION = ("-m", "heliograph.cli.main", "demo", "partition", "--in-process")


@pytest.mark.req("P10")
@pytest.mark.nightly
def test_a_cluster_that_is_cut_and_healed_loses_nothing() -> None:
    shown = json.loads(run(*PARTITION, "--json"))
    assert shown["accepted"] == shown["handed_out"] > 100
    assert (shown["lost"], shown["doubled"], shown["out_of_order"]) == (0, 0, 0)
    assert {event["event"] for event in shown["events"]} == {"branch-set-aside", "branch-taken-in"}


@pytest.mark.req("P10")
def test_a_person_sees_the_parts_and_what_they_hold_back() -> None:
    shown = run(*PARTITION)
    whole, _, cut = shown.partition("The network is cut in two")
    cut, _, healed = cut.partition("The network is healed")
    assert "six nodes in this process" in whole
    assert "A, whole" in whole
    assert "B, unrestricted, the smaller part" in cut
    assert "D, restricted" in cut
    assert "holds back" in cut
    assert "1.101 took in the log of the other part" in healed
    assert "lost                                          0" in healed
    assert "\x1b" not in shown  # nothing moves where there is no terminal


def test_the_example_of_the_tutorial(tmp_path: Path) -> None:
    async def story() -> None:
        async with ServerProcess(tmp_path) as server:
            assert run("examples/bookstore.py", url=server.url).count("order, then cancellation") == 5
            assert "cancelled first" in run("examples/bookstore.py", "nameless", url=server.url)

    play(story())
