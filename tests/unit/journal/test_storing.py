"""A node stores records, is told when they are safe, stops, and finds them again."""

from __future__ import annotations

import errno
import os
import pathlib
import threading
import time
from collections.abc import Callable

import pytest

from heliograph.journal.files import JournalSettings
from heliograph.journal.records import RecordKind
from heliograph.model.errors import CorruptJournal, HeliographError, Unavailable
from tests.unit.journal.stories import DONE, KIB, PUBLISHED, Opened, block, contents, restore, run, until


@pytest.mark.req("J3")
def test_what_was_stored_is_there_after_a_restart(tmp_path: pathlib.Path) -> None:
    async def story() -> None:
        node = Opened(tmp_path)
        assert node.journal.next_lsn == 1
        blocks = [block(n, size=n * 3) for n in range(1, 101)]
        for payload in blocks:
            node.put(payload)
            node.journal.end_of_tick()
        await until(lambda: node.notes.stored == 100)
        node.put(b"three and five", kind=DONE, bulky=False)
        node.journal.close()
        again = Opened(tmp_path)
        assert again.records == [
            *((PUBLISHED, 1, 2, n, payload) for n, payload in enumerate(blocks, start=1)),
            (DONE, 1, 2, 101, b"three and five"),
        ]
        assert (again.report.records, again.report.cut_bytes, again.journal.next_lsn) == (101, 0, 102)
        assert again.journal.store_id == node.journal.store_id
        again.journal.close()

    run(story())


@pytest.mark.req("J3")
def test_a_record_is_confirmed_only_after_the_disk_has_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        node = Opened(tmp_path)
        real, order = os.fdatasync, list[str]()

        def sync(descriptor: int) -> None:
            real(descriptor)
            order.append(f"synced, {node.notes.stored} confirmed")

        monkeypatch.setattr(os, "fdatasync", sync)
        node.put(block(1))
        assert node.notes.stored == 0
        node.journal.end_of_tick()
        assert order == ["synced, 0 confirmed"]
        assert node.notes.stored == 1
        node.journal.close()

    run(story())


@pytest.mark.req("J3")
def test_all_that_arrives_during_a_sync_shares_the_next_one(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        node = Opened(tmp_path, JournalSettings(inline_sync_seconds=0.0))
        real, gate, syncs = os.fdatasync, threading.Semaphore(0), list[int]()

        def sync(descriptor: int) -> None:
            gate.acquire()
            real(descriptor)
            syncs.append(descriptor)

        monkeypatch.setattr(os, "fdatasync", sync)
        node.put(block(1))
        node.journal.end_of_tick()
        for n in range(2, 52):
            node.put(block(n))
            node.journal.end_of_tick()
        assert node.notes.heard == []
        gate.release()
        await until(lambda: node.notes.heard == [1])
        gate.release()
        await until(lambda: node.notes.heard == [1, 51])
        assert len(syncs) == 2
        assert node.journal.stats()["frames_written"] == 51
        gate.release(10)
        node.journal.close()

    run(story())


def test_records_that_nobody_waits_for_ride_along_or_are_synced_soon(tmp_path: pathlib.Path) -> None:
    async def story() -> None:
        node = Opened(tmp_path)
        node.put(b"acknowledged", kind=DONE, bulky=False)
        node.journal.end_of_tick()
        assert node.notes.stored == 0
        node.put(block(2))
        node.journal.end_of_tick()
        assert node.notes.heard == [2]
        started = time.monotonic()
        node.put(b"acknowledged", kind=DONE, bulky=False)
        node.put(block(4))
        node.journal.end_of_tick(quiet=True)
        assert node.notes.stored == 2
        await until(lambda: node.notes.stored == 4)
        assert time.monotonic() - started >= 0.04
        node.put(b"somebody waits", kind=DONE, bulky=False, wait=True)
        node.journal.end_of_tick()
        assert node.notes.stored == 5
        node.journal.close()

    run(story())


def test_large_batches_and_slow_disks_go_to_the_thread(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        real = os.fdatasync
        monkeypatch.setattr(os, "fdatasync", lambda _: None)  # however slow the disk here is
        node = Opened(tmp_path, JournalSettings(inline_sync_seconds=0.02))
        await node.store(block(1))
        assert node.journal.stats()["syncs_inline"] == 1
        await node.store(block(2, size=70 * KIB))
        assert node.journal.stats()["syncs_on_thread"] == 1
        monkeypatch.setattr(os, "fdatasync", lambda _: time.sleep(0.6))
        await node.store(block(3))  # in the loop, for nothing was slow so far
        await node.store(block(4))
        assert node.journal.stats()["syncs_on_thread"] == 2
        monkeypatch.setattr(os, "fdatasync", lambda _: None)
        for n in range(5, 60):
            await node.store(block(n))  # the average comes down again
        assert node.journal.stats()["syncs_inline"] > 2
        monkeypatch.setattr(os, "fdatasync", real)
        node.journal.close()

    run(story())


def test_durability_write_confirms_without_a_sync(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        node = Opened(tmp_path, JournalSettings(durability="write"))
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", lambda _: pytest.fail("nobody asked for a sync"))
            node.put(block(1))
            node.journal.end_of_tick()
        assert node.notes.stored == 1
        node.journal.close()
        again = Opened(tmp_path)
        assert len(again.records) == 1
        again.journal.close()

    run(story())


@pytest.mark.req("J3")
def test_nothing_is_confirmed_across_a_roll_before_both_segments_and_the_directory_are_synced(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        node = Opened(tmp_path, JournalSettings(segment_bytes=16 * KIB))
        await node.store(block(1))
        synced: list[tuple[str, int]] = []
        for call in ("fdatasync", "fsync"):
            real = getattr(os, call)

            def watched(descriptor: int, real: Callable[[int], None] = real) -> None:
                real(descriptor)
                synced.append(
                    (pathlib.Path(f"/proc/self/fd/{descriptor}").readlink().name, node.notes.stored)
                )

            monkeypatch.setattr(os, call, watched)
        for n in range(2, 15):
            node.put(block(n, size=2 * KIB))
        node.journal.end_of_tick()
        await until(lambda: node.notes.stored == 14)
        names = {name for name, confirmed in synced if confirmed == 1}
        assert names == {"0000000001.segment", "0000000002.segment", "0000000003.segment", tmp_path.name}
        node.journal.close()

    run(story())


@pytest.mark.req("J3")
def test_the_log_rolls_over_many_segments_and_frames_of_any_size(tmp_path: pathlib.Path) -> None:
    async def story() -> None:
        node = Opened(tmp_path, JournalSettings(segment_bytes=16 * KIB))
        sizes = [100, 9 * KIB, 5 * KIB, 40 * KIB, 1, 11 * KIB, 12 * KIB, 13 * KIB, 300 * KIB, 7]
        positions = [node.put(block(n, size=size)) for n, size in enumerate(sizes, start=1)]
        node.journal.end_of_tick()
        for n, size in enumerate(sizes, start=11):
            positions.append(await node.store(block(n, size=size)))
        expected = [block(n, size=size) for n, size in enumerate(sizes * 2, start=1)]
        assert await node.load(positions) == expected
        assert node.journal.stats()["segments"] > 8
        node.journal.close()
        again = Opened(tmp_path, JournalSettings(segment_bytes=16 * KIB))
        assert [record[4] for record in again.records] == expected
        assert list(again.positions.values()) == positions
        assert await again.load(positions[::-1]) == expected[::-1]
        again.journal.close()

    run(story())


def test_a_frame_of_thousands_of_parts_is_written_whole(tmp_path: pathlib.Path) -> None:
    async def story() -> None:
        node = Opened(tmp_path, JournalSettings())
        parts = [bytes([n % 251]) * 5000 for n in range(1300)]
        node.journal.append(DONE, 7, 8, parts, 1300 * 5000, wait=True)
        node.journal.append(DONE, 9, 0xFFFFFFFF, [memoryview(b"view")], 4)
        node.journal.end_of_tick()
        node.journal.close()
        again = Opened(tmp_path)
        assert again.records == [(3, 7, 8, 1, b"".join(parts)), (3, 9, 0xFFFFFFFF, 2, b"view")]
        again.journal.close()

    run(story())


def test_short_writes_are_continued(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        node = Opened(tmp_path)
        real = os.pwritev
        real_one = os.pwrite
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwritev", lambda fd, buffers, at: real(fd, [b"".join(buffers)[:31]], at))
            patched.setattr(os, "pwrite", lambda fd, data, at: real_one(fd, data[:77], at))
            for n in range(1, 20):
                node.put(block(n, size=500))
                node.journal.end_of_tick()
        await until(lambda: node.notes.stored == 19)
        node.journal.close()
        again = Opened(tmp_path)
        assert [record[4] for record in again.records] == [block(n, size=500) for n in range(1, 20)]
        again.journal.close()

    run(story())


def test_spilled_blocks_can_be_read_back_but_do_not_outlive_a_restart(tmp_path: pathlib.Path) -> None:
    async def story() -> None:
        node = Opened(tmp_path)
        position = node.put(block(1), kind=RecordKind.SPILLED)
        node.put(block(2))
        assert await node.load([position]) == [block(1)]
        assert node.journal.read_now(position) == block(1)
        node.journal.close()
        again = Opened(tmp_path)
        assert [(record[0], record[3]) for record in again.records] == [(PUBLISHED, 2)]
        assert again.journal.next_lsn == 3
        again.journal.close()

    run(story())


def test_pages_are_loaded_in_the_order_they_were_asked_for(tmp_path: pathlib.Path) -> None:
    async def story() -> None:
        node = Opened(tmp_path, JournalSettings(segment_bytes=256 * KIB))
        positions = [node.put(block(n, size=n % 900)) for n in range(1, 3001)]
        node.journal.end_of_tick()
        answers: list[object] = []
        for first in range(0, 3000, 500):
            node.journal.load(positions[first : first + 500], answers.append)
        await until(lambda: len(answers) == 6)
        for page, first in zip(answers, range(0, 3000, 500), strict=True):
            assert page == [block(n, size=n % 900) for n in range(first + 1, first + 501)]
        node.journal.close()

    run(story())


def test_a_damaged_block_is_not_handed_over(tmp_path: pathlib.Path) -> None:
    async def story() -> None:
        node = Opened(tmp_path)
        first = await node.store(block(1))
        second = await node.store(block(2))
        segment = next(tmp_path.glob("*.segment"))
        with segment.open("r+b") as file:
            file.seek((second & 0xFFFFFFFF) + 90)
            file.write(b"\xee")
        found = await node.load([first, second])
        assert isinstance(found, CorruptJournal)
        assert (found.path, found.position) == (str(segment), second & 0xFFFFFFFF)
        with pytest.raises(CorruptJournal):
            node.journal.read_now(second)
        assert isinstance(await node.load([(9 << 32) + 64]), CorruptJournal)  # no such segment
        node.journal.close()

    run(story())


def test_a_broken_disk_is_reported_once_and_nothing_is_confirmed_after(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(thread: bool) -> None:
        path = tmp_path / str(thread)
        node = Opened(path, JournalSettings(inline_sync_seconds=0.0 if thread else 1.0))
        await node.store(block(1))

        def broken(descriptor: int) -> None:
            raise OSError(errno.EIO, "Input/output error")

        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", broken)
            node.put(block(2))
            node.journal.end_of_tick()
            await until(lambda: bool(node.notes.failures))
        for n in range(3, 10):
            assert node.put(block(n)) == 0
            node.journal.end_of_tick()
        node.journal.close()
        assert node.notes.stored == 1
        assert [failure.errno for failure in node.notes.failures if isinstance(failure, OSError)] == [
            errno.EIO
        ]

    run(story(thread=False))
    run(story(thread=True))


def test_what_is_appended_to_a_closed_journal_goes_nowhere(tmp_path: pathlib.Path) -> None:
    async def story() -> None:
        node = Opened(tmp_path)
        await node.store(block(1))
        node.put(
            block(2)
        )  # somebody waits for it, and the end of its tick comes after the end of the journal
        node.journal.close()
        image = contents(tmp_path)
        node.journal.end_of_tick()
        for n in range(3, 100):
            assert node.put(block(n, size=2 * KIB)) == 0
            node.journal.end_of_tick()
        assert contents(tmp_path) == image
        assert node.notes.stored == 2
        assert node.notes.failures == []

    run(story())


def test_two_servers_cannot_share_a_journal(tmp_path: pathlib.Path) -> None:
    async def story() -> None:
        node = Opened(tmp_path)
        with pytest.raises(Unavailable, match="another server") as caught:
            Opened(tmp_path)
        assert caught.value.code == "journal-locked"
        node.journal.close()
        Opened(tmp_path).journal.close()

    run(story())


def test_another_format_version_is_refused_with_a_clear_sentence(tmp_path: pathlib.Path) -> None:
    async def story() -> None:
        Opened(tmp_path).journal.close()
        text = (tmp_path / "FORMAT").read_text()
        (tmp_path / "FORMAT").write_text(text.replace("version 1", "version 2"))
        with pytest.raises(
            HeliographError, match="'version 2'; this server reads and writes version 1"
        ) as caught:
            Opened(tmp_path)
        assert caught.value.code == "journal-version"
        (tmp_path / "FORMAT").write_text(text)
        Opened(tmp_path).journal.close()
        (tmp_path / "FORMAT").unlink()
        with pytest.raises(CorruptJournal, match="no FORMAT file"):
            Opened(tmp_path)

    run(story())


def test_a_segment_of_another_store_is_refused(tmp_path: pathlib.Path) -> None:
    async def story() -> None:
        images = []
        for name in ("ours", "theirs"):
            node = Opened(tmp_path / name)
            await node.store(block(1))
            node.journal.close()
            images.append(contents(tmp_path / name))
        restore(tmp_path / "ours", images[1] | {"FORMAT": images[0]["FORMAT"]})
        with pytest.raises(CorruptJournal):
            Opened(tmp_path / "ours")

    run(story())


def test_a_restart_without_new_records_writes_nothing(tmp_path: pathlib.Path) -> None:
    async def story() -> None:
        node = Opened(tmp_path)
        await node.store(block(1))
        node.journal.close()
        image = contents(tmp_path)
        for _ in range(3):
            Opened(tmp_path).journal.close()
        assert contents(tmp_path) == image

    run(story())


def test_what_was_never_ticked_is_written_when_the_journal_closes(tmp_path: pathlib.Path) -> None:
    async def story() -> None:
        node = Opened(tmp_path)
        node.put(block(1))
        node.journal.close()
        assert node.notes.stored == 1
        node.journal.close()  # closing twice is no mistake
        again = Opened(tmp_path)
        assert len(again.records) == 1
        again.journal.close()

    run(story())
