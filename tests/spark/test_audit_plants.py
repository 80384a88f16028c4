"""An audit finds what was planted in a journal, by its ids, and nothing else (D4)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyarrow import parquet

import heliograph
from heliograph.cli.pipeline import VIOLATIONS
from heliograph.destinations.queue import Queue
from heliograph.journal.records import RecordKind
from heliograph.model.destination import Address
from tests.servers import CLEAN, ROOT, embedded, play, url_of
from tests.spark.serving import ServerInProcess
from tests.suites.exchange import receive_all

pytestmark = pytest.mark.req("D4")


async def plant(folder: Path) -> dict[str, list[str]]:
    """A day's work of an honest server, with notes in its journal that no honest server writes. Returns the ids."""
    planted: dict[str, list[str]] = {"lost": [], "doubled": [], "out of order": []}
    async with embedded(folder) as server, heliograph.connect(url_of(server)) as connection:
        await connection.ask("pipeline.hold", name="audit", destination="*", after=0)
        producer = await connection.producer("queue:a")
        ids = [await producer.send_confirmed(b"%d" % n) for n in range(60)]
        await receive_all(await connection.consumer("queue:a"), 40)
        ordered = await connection.producer("queue:b", unit_of_order="u")
        units = [await ordered.send_confirmed(b"%d" % n) for n in range(21)]
        waiting = await connection.producer("queue:c")
        untouched = [await waiting.send_confirmed(b"%d" % n) for n in range(6)]
        untouched += [await waiting.send_confirmed(b"%d" % n, time_to_live=3600) for n in range(4)]
        manager = server._messages
        assert manager is not None
        a, b, c = (manager.catalogue.by_address[Address(f"queue:{name}")] for name in "abc")
        assert isinstance(a, Queue)
        assert isinstance(b, Queue)
        assert isinstance(c, Queue)
        # Numbers begin with 1. Done, though nobody had it; the last of them an hour before it would have expired.
        manager.note(RecordKind.DONE, c, c.messages.number, [(2, 3), (7, 7)])
        planted["lost"] = [untouched[n - 1] for n in (2, 3, 7)]
        # Handed out once more, though it was done.
        manager.note(RecordKind.DISPATCHED, a, a.messages.number, [(3, 5), (17, 18)])
        planted["doubled"] = [ids[n - 1] for n in (3, 4, 5, 17, 18)]
        # The second of each pair before the first.
        for first in range(1, 15, 2):
            manager.note(RecordKind.DISPATCHED, b, b.messages.number, [(first + 1, first + 1)])
            manager.note(RecordKind.DISPATCHED, b, b.messages.number, [(first, first)])
            planted["out of order"].append(units[first])
        await producer.send_confirmed(b"the last")
    return planted


def audited(url: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """As a person has it done."""
    places = ["--report", str(folder / "report.html"), "--result", str(folder / "result")]
    command = [sys.executable, "-m", "heliograph.cli.main", "pipeline", "audit", "--url", url, *places]
    return subprocess.run(
        [*command, "--partitions", "2", "--json"],
        cwd=ROOT,
        env=CLEAN,
        capture_output=True,
        text=True,
        check=False,
    )


def by_kind(violations: list[dict[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {"lost": [], "doubled": [], "out of order": []}
    for each in violations:
        found[each["violation"]].append(each["id"])
    return {kind: sorted(ids) for kind, ids in found.items()}


def test_an_audit_names_exactly_what_was_planted(tmp_path: Path) -> None:
    planted = play(plant(tmp_path / "server"))
    assert {kind: len(ids) for kind, ids in planted.items()} == {"lost": 3, "doubled": 5, "out of order": 7}
    wanted = {kind: sorted(ids) for kind, ids in planted.items()}
    with ServerInProcess(tmp_path / "server") as url:
        done = audited(url, tmp_path)
    assert done.returncode == VIOLATIONS, done.stderr
    assert by_kind(json.loads(done.stdout)["violations"]) == wanted
    assert by_kind(parquet.read_table(tmp_path / "result").to_pylist()) == wanted
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "3 lost, 5 doubled, 7 out of order" in page
    assert all(identity in page for ids in planted.values() for identity in ids)
