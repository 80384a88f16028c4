"""The event log: never in anybody's way, never without bounds (M15)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from heliograph.model import limits
from heliograph.model.errors import ClientFault
from heliograph.nodes import event_log
from heliograph.nodes.event_log import EventLog, last_events

pytestmark = pytest.mark.req("M15")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def run(log_folder: Path, *, events: int, published: list[dict[str, Any]]) -> EventLog:
    async def story() -> EventLog:
        log = EventLog(log_folder, node="1.1")
        log.start(published.append)
        for number in range(events):
            log.record("something-happened", number=number)
            if not number % 100:
                await asyncio.sleep(0)
        async with asyncio.timeout(60):
            while len(published) < events:
                await asyncio.sleep(0.001)
        log.record("the-last")
        await log.stop()
        return log

    return asyncio.run(story())


def test_events_are_written_in_order_and_published(tmp_path: Path) -> None:
    published: list[dict[str, Any]] = []
    run(tmp_path, events=250, published=published)
    written = lines(tmp_path / "events.jsonl")
    assert [event.get("number") for event in written] == [*range(250), None]
    assert written[: len(published)] == published
    assert len(published) >= 250


def test_the_file_is_rotated_and_the_oldest_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "EVENT_FILE_BYTES", 1)
    log = EventLog(tmp_path, node="1.1")
    for number in range(8):
        assert log._write([{"number": number}])
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"events.jsonl.{n}" for n in range(1, limits.EVENT_FILES)]
    assert [lines(tmp_path / name)[0]["number"] for name in names] == [7, 6, 5, 4]


def test_too_many_at_once_are_dropped_and_counted(tmp_path: Path) -> None:
    async def story() -> None:
        log = EventLog(tmp_path, node="1.1")
        for _ in range(limits.EVENTS_WAITING + 5):
            log.record("flood")
        log.start(lambda _event: None)
        await log.stop()
        assert len(log.remembered) == limits.EVENTS_REMEMBERED

    asyncio.run(story())
    written = lines(tmp_path / "events.jsonl")
    assert len(written) == limits.EVENTS_WAITING + 1
    assert (written[-1]["event"], written[-1]["count"]) == ("events-dropped", 5)


def test_a_folder_that_cannot_be_written_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a file is in the way", encoding="utf-8")
    published: list[dict[str, Any]] = []
    run(tmp_path / "log", events=3, published=published)
    assert len(published) >= 3


def test_long_names_from_outside_are_cut(tmp_path: Path) -> None:
    log = EventLog.__new__(EventLog)
    assert event_log._bounded("x" * 10_000) == "x" * limits.EVENT_FIELD_LENGTH + "…"
    assert event_log._bounded(5) == 5
    del log


def test_who_looks_for_some_events_gets_them_however_many_others_there_were() -> None:
    happened = [{"event": "branch-taken-in", "number": 1}]
    happened += [{"event": "connection-opened", "number": number} for number in range(500)]
    assert last_events(happened, {"events": ["branch-taken-in"]}) == happened[:1]
    assert last_events(happened, {}) == happened[-limits.EVENTS_PER_ANSWER :]
    with pytest.raises(ClientFault, match="the argument events is 'all'; it is a list"):
        last_events(happened, {"events": "all"})
