"""`helio top` without a server: rates from two looks, and the table."""

import io
from typing import Any

import pytest
from rich.console import Console

from heliograph.cli.top import Sample, compare, render

pytestmark = pytest.mark.req("X4")

SERVER = {
    "connections": 1,
    "sessions": 1,
    "rss_bytes": 50 * 2**20,
    "cpu_seconds": 1.0,
    "journal_bytes": 2048,
    "uptime_seconds": 75,
    "durability": "fsync",
    "node": "1.1",
}


def destination(address: str, **facts: int | str) -> dict[str, Any]:
    names = ("depth", "in_flight", "consumers", "published", "delivered", "settled", "bytes", "held_bytes")
    counts = dict.fromkeys(names, 0)
    states = {"blocked": "", "production_paused": False, "consumption_paused": False}
    return {"address": address, "kind": address.partition(":")[0], **counts, **states, **facts}


def sample(seconds: float, *destinations: dict[str, Any], cpu: float = 1.0) -> Sample:
    return Sample(seconds=seconds, server=SERVER | {"cpu_seconds": cpu}, destinations=list(destinations))


def shown(report: dict[str, Any], *, rows: int | None = None) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(render(report, "helio://localhost:7700", rows=rows))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_rates_come_from_two_looks() -> None:
    report = compare(
        sample(10.0, destination("queue:a", published=100, delivered=50)),
        sample(
            12.0,
            destination("queue:a", published=300, delivered=51),
            destination("queue:new", published=8),
            cpu=2.0,
        ),
    )
    rates = {
        entry["address"]: (entry["in_per_second"], entry["out_per_second"])
        for entry in report["destinations"]
    }
    assert rates == {"queue:a": (100.0, 0.5), "queue:new": (4.0, 0.0)}
    assert report["server"]["cpu_percent"] == 50.0


def test_a_server_that_started_again_does_not_run_backwards() -> None:
    report = compare(
        sample(0, destination("queue:a", published=100), cpu=9), sample(1, destination("queue:a"), cpu=0.1)
    )
    assert report["destinations"][0]["in_per_second"] == 0
    assert report["server"]["cpu_percent"] == 0


def test_busy_destinations_come_first_then_full_ones() -> None:
    report = compare(
        sample(
            0,
            destination("queue:busy"),
            destination("queue:full", depth=9),
            destination("queue:b"),
            destination("queue:a"),
        ),
        sample(
            1,
            destination("queue:b"),
            destination("queue:a"),
            destination("queue:full", depth=9),
            destination("queue:busy", published=1),
        ),
    )
    assert [entry["address"] for entry in report["destinations"]] == [
        "queue:busy",
        "queue:full",
        "queue:a",
        "queue:b",
    ]


def test_the_table_shows_destinations_and_the_server() -> None:
    report = compare(
        sample(0),
        sample(1, destination("queue:orders", depth=1200, in_flight=3, consumers=2, held_bytes=4096)),
    )
    text = shown(report)
    assert text.startswith(
        "helio://localhost:7700 · up 1 min 15 s · 1 connection\ncpu 0 % · memory 50 MiB · journal"
    )
    assert [line.split() for line in text.splitlines() if "orders" in line] == [
        ["queue:orders", "1,200", "3", "2", "0", "0", "4.0", "KiB"]
    ]


@pytest.mark.req("M7")
def test_who_is_blocked_is_shown() -> None:
    report = compare(sample(0), sample(1, destination("queue:full", depth=9, blocked="messages")))
    assert "blocked 9" in shown(report)
    report["server"]["disk_full"] = True
    assert "the disk is full: what is sent is refused" in shown(report)


@pytest.mark.req("U8")
def test_what_is_paused_is_shown() -> None:
    paused = destination("queue:a", depth=9, blocked="paused", production_paused=True)
    assert "paused 9" in shown(compare(sample(0), sample(1, paused)))
    paused = destination("queue:a", depth=9, consumers=2, consumption_paused=True)
    text = shown(compare(sample(0), sample(1, paused)))
    assert "paused 2" in text
    assert "paused 9" not in text


@pytest.mark.req("M11")
def test_the_servers_own_destinations_are_shown_when_something_is_in_them() -> None:
    report = compare(sample(0), sample(1, destination("queue:_DMQ", depth=1), destination("topic:_LOG")))
    assert "queue:_DMQ" in shown(report)
    assert "topic:_LOG" not in shown(report)


def test_an_empty_server_says_what_to_do() -> None:
    assert "no destinations yet: the first `helio send queue:NAME TEXT` makes one" in shown(
        compare(sample(0), sample(1))
    )


def test_what_has_no_room_is_counted() -> None:
    report = compare(sample(0), sample(1, *(destination(f"queue:{n}") for n in range(5))))
    assert "and 3 more" in shown(report, rows=2)
    assert "more" not in shown(report)
