"""An audit finds what was planted in a journal, by its ids, and nothing else (D4)."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import aiomqtt
import pytest
from pyarrow import parquet

import heliograph
from heliograph.cli.pipeline import VIOLATIONS
from heliograph.client import Connection
from heliograph.destinations.queue import Queue
from heliograph.journal.records import RecordKind
from heliograph.model.destination import Address
from tests.servers import CLEAN, ROOT, embedded, play, url_of
from tests.spark.serving import ServerInProcess
from tests.suites.exchange import receive_all, send_all

pytestmark = pytest.mark.req("D4")


async def depth_of(connection: Connection, destination: str) -> int:
    return int((await connection.ask("destination.show", destination=destination))["depth"])


async def settles_at(connection: Connection, destination: str, depth: int) -> None:
    async with asyncio.timeout(30):
        while await depth_of(connection, destination) != depth:
            await asyncio.sleep(0.05)


async def take_away_on_purpose(connection: Connection, port: int) -> None:
    """What a policy does not keep, what a later retained message replaced, what was too late, and what an
    administrator did away with: nobody ever had any of it."""
    policy = {"retention_messages": 3}
    await connection.ask("destination.create", destination="queue:short", policy=policy)
    await send_all(await connection.producer("queue:short"), [b"%d" % n for n in range(20)])
    await settles_at(connection, "queue:short", 3)
    async with aiomqtt.Client("127.0.0.1", port, identifier="lamp") as client:
        for n in range(4):
            await client.publish("lamp", b"%d" % n, qos=1, retain=True)
    await settles_at(connection, "queue:$retained/lamp", 1)
    late = await connection.producer("queue:late")
    await late.send_confirmed(b"late", time_to_live=0.05)
    await settles_at(connection, "queue:late", 0)
    doomed = await connection.producer("queue:doomed")
    for n in range(6):
        await doomed.send_confirmed(b"%d" % n, properties={"n": n})
    await connection.ask("destination.pause", destination="queue:doomed", consumption=True)
    gone = await connection.ask("message.delete", destination="queue:doomed", filter="n = 3")
    assert gone["messages"] == 1
    assert (await connection.ask("destination.purge", destination="queue:doomed"))["messages"] == 5


async def plant(folder: Path) -> dict[str, list[str]]:
    """A day's work of an honest server, with notes in its journal that no honest server writes. Returns the ids."""
    planted: dict[str, list[str]] = {"lost": [], "doubled": [], "out of order": []}
    async with embedded(folder) as server, heliograph.connect(url_of(server)) as connection:
        early = await connection.producer("queue:early")
        for n in range(3):
            await early.send_confirmed(b"%d" % n)
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
        # What was lost before a queue is purged is not what the purge took away.
        await connection.ask("destination.purge", destination="queue:c")
        await take_away_on_purpose(connection, server.address[1])
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
    removed = json.loads(done.stdout)["removed"]
    assert removed == {"retention": 17 + 3, "expired": 1, "deleted": 1, "purged": 7 + 5}
    assert json.loads(done.stdout)["untimed"] == {"published": 3}, "nobody held the history then"
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "3 lost, 5 doubled, 7 out of order" in page
    assert "Left out of rates and latencies: 3 published." in page
    assert all(identity in page for ids in planted.values() for identity in ids)
