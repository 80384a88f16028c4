"""A node stores its state now and then: replay begins there, and segments that nobody needs are deleted."""

from __future__ import annotations

import errno
import os
import pathlib

import pytest

from heliograph.journal.files import JournalSettings
from heliograph.model.errors import CorruptJournal
from tests.unit.journal.stories import DONE, KIB, Opened, block, contents, restore, run, until

SETTINGS = JournalSettings(segment_bytes=16 * KIB, snapshot_every_records=100)


def segments(path: pathlib.Path) -> list[str]:
    return sorted(file.name for file in path.glob("*.segment"))


def snapshots(path: pathlib.Path) -> list[pathlib.Path]:
    return sorted(path.glob("*.snapshot"))


async def publish(node: Opened, count: int) -> list[int]:
    positions = []
    for _ in range(count):
        positions.append(await node.store(block(node.journal.next_lsn, size=1000)))
        node.journal.retain(positions[-1], 1)
    return positions


def finish(node: Opened, positions: list[int]) -> None:
    for position in positions:
        node.journal.release(position, 1)
    node.put(b"done", kind=DONE, bulky=False, wait=True)
    node.journal.end_of_tick()


async def snapshot(node: Opened, *state: bytes) -> None:
    before = snapshots(node.journal._directory.path)
    node.journal.snapshot(list(state))
    await until(lambda: not node.journal._snapshot_running)
    assert snapshots(node.journal._directory.path) != before


def test_replay_begins_behind_the_snapshot(tmp_path: pathlib.Path) -> None:
    async def story() -> None:
        node = Opened(tmp_path, SETTINGS)
        node.journal.check_all_there()
        assert not node.journal.snapshot_due
        await publish(node, 100)
        assert node.journal.snapshot_due
        node.put(block(101))  # part of the state, and not yet written when the snapshot is asked for
        node.journal.snapshot([b"the state ", memoryview(b"of "), b"101 records"])
        assert not node.journal.snapshot_due
        node.put(block(102))
        await until(lambda: bool(snapshots(tmp_path)))
        node.journal.end_of_tick()
        node.journal.close()
        again = Opened(tmp_path, SETTINGS)
        assert again.state == b"the state of 101 records"
        assert [record[3] for record in again.records] == [102]
        assert again.report.snapshot_lsn == 101
        again.journal.close()

    run(story())


def test_segments_are_deleted_when_their_messages_are_done_and_replay_starts_behind_them(
    tmp_path: pathlib.Path,
) -> None:
    async def story() -> None:
        node = Opened(tmp_path, SETTINGS)
        node.journal.check_all_there()
        positions = await publish(node, 60)
        full = segments(tmp_path)
        assert len(full) >= 5
        finish(node, positions[:30])
        await until(lambda: node.notes.stored == 61)
        assert segments(tmp_path) == full  # replay still starts at the first
        await snapshot(node, b"thirty are left")
        await until(lambda: len(segments(tmp_path)) < len(full))
        assert await node.load(positions[30:]) == [block(n, size=1000) for n in range(31, 61)]
        finish(node, positions[30:])  # no other snapshot is needed for these
        await until(lambda: len(segments(tmp_path)) == 1)
        assert node.journal.disk_bytes < sum(file.stat().st_size for file in tmp_path.iterdir()) + 1
        node.journal.close()

        # The old snapshot speaks of messages whose segments are gone; the log behind it says they are done.
        again = Opened(tmp_path, SETTINGS)
        assert again.state == b"thirty are left"
        for position in positions[30:]:
            again.journal.retain(position, 1)
        for position in positions[30:]:
            again.journal.release(position, 1)
        again.journal.check_all_there()
        await publish(again, 3)
        again.journal.close()

    run(story())


def test_a_segment_goes_only_after_the_record_that_emptied_it_is_durable(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        node = Opened(tmp_path, SETTINGS)
        node.journal.check_all_there()
        positions = await publish(node, 40)
        await snapshot(node, b"forty")
        for position in positions:
            node.journal.release(position, 1)
        node.put(b"done", kind=DONE, bulky=False)
        node.journal.end_of_tick()
        before = segments(tmp_path)
        assert node.journal.stats()["durable_lsn"] == 40
        assert len(before) == 4
        await until(lambda: node.notes.stored == 41)
        await until(lambda: len(segments(tmp_path)) == 1)
        node.journal.close()

    run(story())


def test_a_needed_segment_that_is_gone_is_noticed(tmp_path: pathlib.Path) -> None:
    async def story() -> None:
        node = Opened(tmp_path, SETTINGS)
        positions = await publish(node, 40)
        await snapshot(node, b"forty")
        node.journal.close()
        (tmp_path / segments(tmp_path)[0]).unlink()
        again = Opened(tmp_path, SETTINGS)
        for position in positions:
            again.journal.retain(position, 1)
        with pytest.raises(CorruptJournal, match=r"still needed.*0000000001\.segment"):
            again.journal.check_all_there()
        again.journal.close()
        (tmp_path / segments(tmp_path)[-1]).unlink()
        with pytest.raises(CorruptJournal, match="replay starts"):
            Opened(tmp_path, SETTINGS)

    run(story())


def test_a_segment_missing_in_the_log_is_noticed(tmp_path: pathlib.Path) -> None:
    async def story() -> None:
        node = Opened(tmp_path, SETTINGS)
        await publish(node, 60)
        node.journal.close()
        image = contents(tmp_path)
        for name in segments(tmp_path)[:-1]:
            restore(tmp_path, {other: raw for other, raw in image.items() if other != name})
            with pytest.raises(CorruptJournal, match="missing"):
                Opened(tmp_path, SETTINGS)

    run(story())


def test_a_damaged_snapshot_falls_back_to_the_older_one_while_its_log_is_there(
    tmp_path: pathlib.Path,
) -> None:
    async def story() -> None:
        node = Opened(tmp_path, SETTINGS)
        await publish(node, 5)
        await snapshot(node, b"five")
        older = snapshots(tmp_path)[0]
        kept = older.read_bytes()
        await publish(node, 5)
        await snapshot(node, b"ten")
        assert not older.exists()
        await publish(node, 1)
        node.journal.close()
        newest = snapshots(tmp_path)[0]
        damaged = bytearray(newest.read_bytes())
        damaged[-1] ^= 1
        newest.write_bytes(damaged)
        with pytest.raises(CorruptJournal, match="snapshot is damaged") as caught:
            Opened(tmp_path, SETTINGS)
        assert caught.value.path == str(newest)
        older.write_bytes(kept)
        again = Opened(tmp_path, SETTINGS)
        assert (again.state, [record[3] for record in again.records]) == (b"five", [6, 7, 8, 9, 10, 11])
        assert again.report.damaged_snapshots == 1
        again.journal.close()

    run(story())


def test_a_crash_at_any_moment_of_a_snapshot_leaves_the_older_one_or_the_new_one(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        node = Opened(tmp_path, SETTINGS)
        await publish(node, 5)
        await snapshot(node, b"five")
        await publish(node, 5)
        images = []
        with monkeypatch.context() as patched:
            for call in ("pwritev", "ftruncate", "fsync", "rename"):
                real = getattr(os, call)

                def watched(*arguments: object, real: object = real) -> object:
                    images.append(contents(tmp_path))
                    result = real(*arguments)  # type: ignore[operator]
                    images.append(contents(tmp_path))
                    return result

                patched.setattr(os, call, watched)
            await snapshot(node, b"ten")
        node.journal.close()
        assert len(images) >= 8
        seen = []
        for image in images:
            restore(tmp_path, image)
            again = Opened(tmp_path, SETTINGS)
            seen.append((again.state, [record[3] for record in again.records]))
            again.journal.close()
        assert seen == sorted(seen, key=lambda found: found[0] != b"five")
        assert [found for index, found in enumerate(seen) if found not in seen[:index]] == [
            (b"five", [6, 7, 8, 9, 10]),
            (b"ten", []),
        ]

    run(story())


def test_a_snapshot_without_room_is_tried_again_later(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        node = Opened(tmp_path, SETTINGS)
        await publish(node, 100)

        def full(descriptor: int, offset: int, size: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(os, "posix_fallocate", full)
            node.journal.snapshot([bytes(1000)])
            await until(lambda: not node.journal._snapshot_running)
        assert snapshots(tmp_path) == []
        assert node.notes.failures == []
        assert not node.journal.snapshot_due
        await until(lambda: node.journal.snapshot_due)
        await snapshot(node, b"now")
        node.journal.close()

    run(story())


def test_mostly_finished_segments_are_offered_for_compaction_after_a_restart_too(
    tmp_path: pathlib.Path,
) -> None:
    async def story() -> None:
        node = Opened(tmp_path, SETTINGS)
        node.journal.check_all_there()
        positions = await publish(node, 60)
        first = [position for position in positions if position >> 32 == 1]
        finish(node, first[:-1])
        assert node.journal.compactable() is None  # replay would still read it
        await snapshot(node, b"state")
        assert node.journal.compactable() == 1
        node.journal.close()
        left = positions[len(first) - 1 :]
        again = Opened(tmp_path, SETTINGS)
        for position in left:
            again.journal.retain(position, 1)
        again.journal.check_all_there()
        assert again.journal.compactable() == 1
        moved = again.put((await again.load([left[0]]))[0])
        again.journal.retain(moved, 1)
        again.journal.release(left[0], 1)
        again.journal.end_of_tick()
        await until(lambda: "0000000001.segment" not in segments(tmp_path))
        assert again.journal.compactable() is None
        assert again.journal.stats()["live_messages"] == len(left)
        again.journal.close()

    run(story())


def test_copies_that_are_retained_when_they_are_stored_are_safe_from_a_snapshot_meanwhile(
    tmp_path: pathlib.Path,
) -> None:
    async def story() -> None:
        node = Opened(tmp_path, SETTINGS)
        node.journal.check_all_there()
        await publish(node, 9)
        copies = [node.put(block(n, size=1000)) for n in range(1, 30)]  # fill a segment of their own and more
        retained = False
        heard = node.notes.journal_stored

        def stored(lsn: int) -> None:
            nonlocal retained
            heard(lsn)
            if not retained:
                for position in copies:
                    node.journal.retain(position, 1)
                retained = True

        node.notes.journal_stored = stored  # type: ignore[method-assign]
        await snapshot(node, b"state")
        assert retained
        assert await node.load(copies) == [block(n, size=1000) for n in range(1, 30)]
        node.journal.close()

    run(story())
