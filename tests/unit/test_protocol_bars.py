"""What `python -m benchmarks.protocols` says of other servers, and whether it ends well."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from benchmarks.peers import protocol_peers
from benchmarks.processes import Server
from benchmarks.protocols import Comparison, Runner, page
from benchmarks.workloads import Figures


def compared(protocol: str, **rates: float | None) -> Comparison:
    """As if each server but those that are not named had done so many messages a second; None: its turn failed."""
    peers = protocol_peers()[protocol]
    runners = []
    for peer in peers:
        name = peer.key.replace("-", "_")
        if name in rates:
            runner = Runner(peer, cast(Server, None), 0, Path(), is_quick=False)
            rate = rates[name]
            runner.runs.append(Figures(messages=0, error="it fell") if rate is None else figures(rate))
            runners.append(runner)
    assert len(runners) == len(rates), [peer.key for peer in peers]
    there = [each.peer for each in runners]
    return Comparison(
        protocol, peers, runners, {each.title: "not here" for each in peers if each not in there}
    )


def figures(rate: float) -> Figures:
    return Figures(messages=1000, messages_per_second=rate)


def verdicts(comparison: Comparison) -> list[str]:
    return [bar.verdict for bar in comparison.bars()]


def ends_well(comparison: Comparison, *, is_quick: bool = False) -> bool:
    return all(bar.holds(is_quick=is_quick) for bar in comparison.bars())


def test_who_is_at_least_as_fast_as_all_passes() -> None:
    stomp = compared("STOMP", heliograph_stomp=1000.0, activemq=1000.0, artemis_stomp=500.0)
    assert verdicts(stomp) == ["PASS", "PASS"]
    assert ends_well(stomp)


def test_who_is_slower_than_one_falls_short() -> None:
    stomp = compared("STOMP", heliograph_stomp=999.0, activemq=1000.0, artemis_stomp=500.0)
    assert verdicts(stomp) == ["FALLS SHORT", "PASS"]
    assert not ends_well(stomp)
    assert ends_well(stomp, is_quick=True), "figures of a quick run mean nothing"


@pytest.mark.parametrize(
    "rates",
    [
        {"heliograph_stomp": 1000.0, "activemq": 500.0},
        {"heliograph_stomp": 1000.0, "activemq": 500.0, "artemis_stomp": None},
    ],
)
def test_a_server_that_is_missing_or_fails_was_not_beaten(rates: dict[str, float | None]) -> None:
    stomp = compared("STOMP", **rates)
    assert verdicts(stomp) == ["PASS", "NOT MEASURED"]
    assert not ends_well(stomp)
    assert not ends_well(stomp, is_quick=True)


@pytest.mark.parametrize("protocol", sorted(protocol_peers()))
def test_where_nothing_ran_every_bar_is_unknown(protocol: str) -> None:
    nothing = compared(protocol)
    assert set(verdicts(nothing)) <= {"NOT MEASURED", "NOT MEASURED, and ours syncs"}
    assert len(nothing.bars()) >= len(protocol_peers()[protocol]) - 2
    assert not ends_well(nothing)
    assert "NOT MEASURED" in page([nothing], 1, Path("/"))


def test_ours_that_syncs_need_not_beat_one_that_does_not() -> None:
    rates = {
        "heliograph_paho": 100.0,
        "heliograph_paho_written": 1000.0,
        "mosquitto": 900.0,
        "activemq_paho": 50.0,
        "artemis_paho": 50.0,
    }
    mqtt = compared("MQTT", **rates)
    assert sorted(verdicts(mqtt)) == ["FALLS SHORT, and ours syncs", "PASS", "PASS", "PASS"]
    assert ends_well(mqtt)
