"""The disk fills up: large records are refused, acknowledgements still fit, and service resumes by itself."""

from __future__ import annotations

import errno
import os
import pathlib
import subprocess
from collections.abc import Iterator

import pytest

from heliograph.journal.files import JournalSettings
from heliograph.model.errors import StorageFull
from tests.unit.journal.stories import DONE, KIB, Opened, block, contents, restore, run, until

MIB = 1024 * KIB
SEGMENT = 64 * KIB
# Room for a snapshot is taken in advance and counts.
SNAPSHOT_ROOM = MIB


async def fill(node: Opened) -> list[int]:
    """Publish until the first refusal; returns the positions of what was stored."""
    positions: list[int] = []
    while not node.notes.refused:
        lsn = node.journal.next_lsn
        position = node.put(block(lsn, size=8 * KIB))
        node.journal.end_of_tick()
        if position:
            node.journal.retain(position, 1)
            positions.append(position)
        assert len(positions) < 10_000
    await until(lambda: node.notes.stored >= len(positions))
    return positions


async def drain(node: Opened, positions: list[int]) -> None:
    """Acknowledge everything, with the snapshots a node makes when they are due."""
    for position in positions:
        node.put(position.to_bytes(8, "little"), kind=DONE, bulky=False)
        node.journal.release(position, 1)
        node.journal.end_of_tick()
    await until(lambda: node.notes.stored == node.journal.next_lsn - 1)
    if node.journal.snapshot_due:
        node.journal.snapshot([b"all done"])
    await until(lambda: not node.journal.is_full)


def test_a_full_quota_refuses_messages_takes_acknowledgements_and_resumes(tmp_path: pathlib.Path) -> None:
    async def story() -> None:
        settings = JournalSettings(segment_bytes=SEGMENT, quota_bytes=SNAPSHOT_ROOM + 4 * SEGMENT)
        node = Opened(tmp_path, settings)
        node.journal.check_all_there()
        positions = await fill(node)
        assert node.journal.is_full
        assert node.journal.disk_bytes <= settings.quota_bytes
        assert node.notes.refused == [len(positions) + 1]
        assert node.journal.is_all_stored, "what was refused is not waited for"
        assert node.journal.written_lsn == len(positions)
        assert await node.load(positions) == [block(n, size=8 * KIB) for n in range(1, len(positions) + 1)]
        await drain(node, positions)
        assert node.notes.failures == []
        await node.store(block(5000, size=8 * KIB))
        node.journal.close()

    run(story())


@pytest.mark.req("J3")
def test_a_refused_record_is_gone_and_its_neighbours_are_there(tmp_path: pathlib.Path) -> None:
    async def story() -> None:
        settings = JournalSettings(segment_bytes=SEGMENT, quota_bytes=SNAPSHOT_ROOM + SEGMENT)
        node = Opened(tmp_path, settings)
        node.put(b"before", kind=DONE, bulky=False)
        assert node.put(block(2, size=60 * KIB)) == 0
        node.put(b"between", kind=DONE, bulky=False)
        assert node.put(block(4, size=60 * KIB)) == 0
        assert node.put(block(5, size=60 * KIB)) == 0
        assert node.put(block(6, size=100)) > 0  # small enough for what is left
        assert node.notes.refused == []
        node.journal.end_of_tick()
        assert node.notes.refused == [2, 4, 5]
        await until(lambda: node.notes.stored == 6)
        node.journal.close()
        again = Opened(tmp_path, settings)
        assert [(record[3], record[4]) for record in again.records] == [
            (1, b"before"),
            (3, b"between"),
            (6, block(6, size=100)),
        ]
        assert again.journal.next_lsn == 7
        again.journal.close()

    run(story())


def test_a_snapshot_between_a_refusal_and_the_next_record_leaves_no_riddle(tmp_path: pathlib.Path) -> None:
    async def story() -> None:
        settings = JournalSettings(segment_bytes=SEGMENT, quota_bytes=2 * SNAPSHOT_ROOM + SEGMENT)
        node = Opened(tmp_path, settings)
        await node.store(block(1))
        assert node.put(block(2, size=2 * MIB)) == 0
        node.journal.end_of_tick()
        node.journal.snapshot([b"one message"])
        assert node.put(block(3, size=2 * MIB)) == 0
        await node.store(block(4))
        await until(lambda: not node.journal._snapshot_running)
        image = contents(tmp_path)
        node.journal.close()
        restore(tmp_path, image)
        again = Opened(tmp_path, settings)
        assert (again.state, [record[3] for record in again.records]) == (b"one message", [4])
        again.journal.close()

    run(story())


def test_acknowledgements_beyond_the_reserve_get_a_segment_beyond_the_quota(tmp_path: pathlib.Path) -> None:
    async def story() -> None:
        settings = JournalSettings(segment_bytes=SEGMENT, quota_bytes=SNAPSHOT_ROOM + SEGMENT)
        node = Opened(tmp_path, settings)
        await fill(node)
        for _ in range(200):
            assert node.put(bytes(400), kind=DONE, bulky=False)
            node.journal.end_of_tick()
        await until(lambda: node.notes.stored == node.journal.next_lsn - 1)
        assert node.put(block(1, size=100)) == 0  # that segment is not for messages
        assert node.notes.failures == []
        count = node.journal.stats()["frames_written"]
        node.journal.close()
        again = Opened(tmp_path, settings)
        assert again.report.frames == int(count) + 1
        again.journal.close()

    run(story())


def test_no_room_even_for_acknowledgements_stops_the_node(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        node = Opened(tmp_path, JournalSettings(segment_bytes=SEGMENT))

        def full(descriptor: int, offset: int, size: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "posix_fallocate", full)
        await fill(node)
        stored = node.notes.stored
        for _ in range(1000):
            node.put(bytes(400), kind=DONE, bulky=False)
            node.journal.end_of_tick()
        assert len(node.notes.failures) == 1
        assert isinstance(node.notes.failures[0], StorageFull)
        assert node.notes.stored >= stored
        node.journal.close()

    run(story())


def test_room_that_others_free_is_found_by_itself(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        node = Opened(tmp_path, JournalSettings(segment_bytes=SEGMENT))
        calls = []

        def full(descriptor: int, offset: int, size: int) -> None:
            calls.append(size)
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(os, "posix_fallocate", full)
            await fill(node)
            for n in range(500):
                node.put(block(n + 1, size=8 * KIB))
                node.journal.end_of_tick()
            assert len(calls) < 20  # the disk is not asked for every record
            assert node.journal.is_full
        await until(lambda: not node.journal.is_full)
        await node.store(block(1, size=8 * KIB))
        node.journal.close()

    run(story())


def test_a_restart_on_a_full_disk_serves_what_is_there(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        node = Opened(tmp_path, JournalSettings(segment_bytes=SEGMENT))
        position = await node.store(block(1, size=KIB))
        node.put(block(2, size=KIB))
        node.journal.end_of_tick(quiet=True)
        image = contents(tmp_path)
        node.journal.close()
        raw = image["0000000001.segment"]
        restore(tmp_path, image | {"0000000001.segment": raw[: len(raw.rstrip(b"\0")) - 500]})

        def full(descriptor: int, offset: int, size: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "posix_fallocate", full)
        again = Opened(tmp_path, JournalSettings(segment_bytes=SEGMENT))
        assert again.report.cut_bytes > 0
        assert await again.load([position]) == [block(1, size=KIB)]
        assert again.put(block(2, size=KIB)) == 0
        monkeypatch.undo()
        again.journal.end_of_tick()
        await until(lambda: not again.journal.is_full)
        await again.store(block(3, size=KIB))
        again.journal.close()

    run(story())


@pytest.fixture
def small_disk(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mount.returncode != 0:
        pytest.skip(f"cannot mount here: {mount.stderr.strip()}")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.root
@pytest.mark.req("J3")
def test_a_really_full_disk_loses_nothing_and_recovers(small_disk: pathlib.Path) -> None:
    async def story() -> None:
        settings = JournalSettings(segment_bytes=256 * KIB)
        node = Opened(small_disk, settings)
        node.journal.check_all_there()
        positions = await fill(node)
        assert len(positions) > 100
        for _ in range(2):
            await drain(node, positions)
            assert node.notes.failures == []
            node.notes.refused.clear()
            positions = await fill(node)
        expected = await node.load(positions)
        assert isinstance(expected, list)
        node.journal.close()
        again = Opened(small_disk, settings)
        assert await again.load(positions) == expected
        again.journal.close()

    run(story())
