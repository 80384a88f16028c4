"""A simulated disk forgets what a real one may forget, and nothing else."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from heliograph.journal.disk import MAKE, READ
from heliograph.journal.files import Journal, JournalSettings
from heliograph.journal.records import RecordKind
from heliograph.model.errors import CorruptJournal, HeliographError, StorageFull
from simulation.disk import SECTOR, Mount
from simulation.loop import Killed
from simulation.machines import Machine, Process
from simulation.sockets import Sockets
from simulation.world import World

FILE = Path("/data/file")
FOLDER = FILE.parent


def machine(seed: int = 1) -> Machine:
    world = World(seed)
    return Machine(world, Sockets(world), "host")


async def idle(_process: Process) -> None:
    """What it does is done by the test."""


def mount_of(host: Machine) -> Mount:
    return host.start("process", idle).mount


def written(disk: Mount, data: bytes, *, synced: bool) -> int:
    descriptor = disk.open(FILE, MAKE)
    disk.pwrite(descriptor, data, 0)
    if synced:
        disk.fdatasync(descriptor)
        disk.sync_folder(FOLDER)
    return descriptor


def after_crash(host: Machine) -> bytes:
    host.crash()
    host.boot()
    return mount_of(host).read(FILE)


def test_what_was_synced_outlives_the_machine() -> None:
    for seed in range(50):
        host = machine(seed)
        disk = mount_of(host)
        descriptor = written(disk, b"old" * 1000, synced=True)
        disk.pwrite(descriptor, b"new", 6000)
        assert after_crash(host)[:3000] == b"old" * 1000


def test_what_was_not_synced_stays_or_is_lost_or_is_torn_at_sectors() -> None:
    fates = {"stayed": 0, "lost": 0, "torn": 0}
    for seed in range(100):
        host = machine(seed)
        disk = mount_of(host)
        descriptor = written(disk, b"a" * 8 * SECTOR, synced=True)
        disk.pwrite(descriptor, b"b" * 8 * SECTOR, 0)
        found = after_crash(host)
        sectors = [found[start : start + SECTOR] for start in range(0, len(found), SECTOR)]
        assert all(sector in (b"a" * SECTOR, b"b" * SECTOR) for sector in sectors)
        kinds = {sector[:1] for sector in sectors}
        fates["torn" if len(kinds) == 2 else "stayed" if kinds == {b"b"} else "lost"] += 1
    assert min(fates.values()) > 10, fates


def test_a_sync_covers_what_was_written_before_it_and_not_what_came_later() -> None:
    lost = 0
    for seed in range(40):
        host = machine(seed)
        disk = mount_of(host)
        descriptor = written(disk, b"1", synced=True)
        disk.pwrite(descriptor, b"2", 1)
        disk.fdatasync(descriptor)
        disk.pwrite(descriptor, b"3", 2)
        found = after_crash(host)
        assert found[:2] == b"12"
        lost += found[2:] != b"3"
    assert lost


def test_the_system_keeps_what_a_process_wrote_that_died() -> None:
    host = machine()
    process = host.start("process", idle)
    written(process.mount, b"unsynced", synced=False)
    process.kill()
    with pytest.raises(Killed):
        process.mount.open(FILE, READ)
    assert mount_of(host).read(FILE) == b"unsynced"


def test_a_folder_forgets_what_was_not_synced_the_last_first() -> None:
    counts: dict[tuple[str, ...], int] = {}
    for seed in range(60):
        host = machine(seed)
        disk = mount_of(host)
        for name in ("first", "second"):
            disk.close(disk.open(FOLDER / name, MAKE))
        disk.sync_folder(FOLDER)
        disk.rename(FOLDER / "first", FOLDER / "renamed")
        disk.remove(FOLDER / "second")
        host.crash()
        names = tuple(sorted(path.rpartition("/")[2] for path in host.disk.files))
        counts[names] = counts.get(names, 0) + 1
    assert set(counts) == {("first", "second"), ("renamed", "second"), ("renamed",)}


def test_a_process_can_die_at_any_call() -> None:
    host = machine()
    process = host.start("process", idle)
    process.mount.calls_left = 2
    descriptor = process.mount.open(FILE, MAKE)
    process.mount.pwrite(descriptor, b"x", 0)
    with pytest.raises(Killed):
        process.mount.fdatasync(descriptor)
    assert not process.is_alive


class Notes:
    """A journal's listener."""

    def __init__(self) -> None:
        self.stored = 0
        self.refused = 0

    def journal_stored(self, lsn: int) -> None:
        self.stored = lsn

    def journal_refused(self, lsns: list[int], _error: StorageFull) -> None:
        self.refused += len(lsns)

    def journal_failed(self, error: HeliographError | OSError) -> None:
        raise AssertionError(error)


def opened(process: Process, notes: Notes, records: list[bytes]) -> Journal:
    journal = Journal(
        Path("/data/journal"),
        settings=JournalSettings(segment_bytes=1 << 17),
        listener=notes,
        loop=process.loop.as_loop,
        disk=process.mount,
    )
    journal.recover(
        on_snapshot=lambda _state: None, on_record=lambda record: records.append(bytes(record.payload))
    )
    journal.check_all_there()
    return journal


def test_a_journal_finds_what_it_said_was_stored_whatever_the_machine_lost() -> None:
    lost = 0
    for seed in range(40):
        host, notes = machine(seed), Notes()
        process = host.start("process", idle)
        journal = opened(process, notes, [])
        for number in range(20):
            payload = b"%d" % number * 300
            journal.append(RecordKind.SESSION, 0, 0, (payload,), len(payload), wait=number < 10)
            journal.end_of_tick()
            host.world.run(host.world.now + 1e-3)
        stored = notes.stored
        host.crash()
        host.boot()
        found: list[bytes] = []
        opened(host.start("process", idle), Notes(), found)
        assert found == [b"%d" % number * 300 for number in range(len(found))]
        assert len(found) >= stored >= 10
        lost += len(found) < 20
    assert lost


def test_flipped_bits_are_found() -> None:
    refusals = 0
    for seed in range(40):
        host = machine(seed)
        journal = opened(host.start("process", idle), Notes(), [])
        for number in range(20):
            journal.append(RecordKind.SESSION, 0, 0, (b"%d" % number * 300,), 300 * len(b"%d" % number))
            journal.end_of_tick()
        journal.close()
        host.disk.rot = 1.0
        found: list[bytes] = []
        try:
            opened(host.start("process", idle), Notes(), found)
        except (CorruptJournal, HeliographError):
            refusals += 1
        assert found == [b"%d" % number * 300 for number in range(len(found))], "nothing false is believed"
    assert host.disk.flips
    assert refusals > 20


def test_a_full_disk_says_so() -> None:
    host = machine()
    disk = mount_of(host)
    descriptor = disk.open(FILE, MAKE)
    host.disk.capacity = 1000
    disk.allocate(descriptor, 1000)
    with pytest.raises(OSError) as caught:  # noqa: PT011  the number is what matters
        disk.pwrite(descriptor, b"x", 1000)
    assert caught.value.errno == errno.ENOSPC


@pytest.mark.parametrize("seed", range(6))
def test_a_worker_that_is_stopped_has_done_what_was_under_way(seed: int) -> None:
    """As a thread that is joined: nothing that it was given happens afterwards."""
    host = machine(seed)
    mount = mount_of(host)
    worker = mount.worker("worker", mount.loop.as_loop)
    done: list[int] = []
    for number in range(3):
        worker.post(lambda number=number: done.append(number), lambda _result: None)  # type: ignore[misc]
    host.world.run(host.world.now + 5e-5)  # the first is under way, or done
    worker.stop()
    assert done == [0, 1, 2]
    host.world.run(host.world.now + 1.0)
    assert done == [0, 1, 2]
