"""What journals expect of a disk, of the system's and of the simulation's alike."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from heliograph.journal.disk import CHANGE, DISK, MAKE, MAKE_NEW, READ, Disk
from simulation.machines import Machine
from simulation.sockets import Sockets
from simulation.world import World


def another_process(_seed: int = 0) -> Callable[[], Disk]:
    """Processes on a simulated machine."""
    world = World(1)
    machine = Machine(world, Sockets(world), "host")

    async def idle(_process: object) -> None:
        await asyncio.get_running_loop().create_future()

    return lambda: machine.start("process", idle).mount


@pytest.fixture(params=["system", "simulation"])
def open_disk(request: pytest.FixtureRequest) -> Callable[[], Disk]:
    return (lambda: DISK) if request.param == "system" else another_process()


@pytest.fixture
def folder(open_disk: Callable[[], Disk], tmp_path: Path) -> Path:
    open_disk().make_folder(tmp_path / "here")
    return tmp_path / "here"


def test_what_is_written_is_read(open_disk: Callable[[], Disk], folder: Path) -> None:
    disk = open_disk()
    descriptor = disk.open(folder / "file", MAKE_NEW)
    disk.allocate(descriptor, 10)
    assert disk.size(descriptor) == 10
    disk.allocate(descriptor, 5)
    assert disk.size(descriptor) == 10, "it never shrinks by that"
    assert disk.pwritev(descriptor, [b"ab", memoryview(b"cd")], 3) == 4
    assert disk.pwrite(descriptor, b"XY", 11) == 2
    assert disk.pread(descriptor, 100, 0) == b"\0\0\0abcd\0\0\0\0XY"
    disk.fdatasync(descriptor)
    disk.truncate(descriptor, 5)
    disk.fsync(descriptor)
    assert disk.read(folder / "file") == b"\0\0\0ab"
    with disk.mapped(folder / "file") as buffer:
        assert bytes(buffer) == b"\0\0\0ab"
    room = bytearray(2)
    assert disk.pread_into(descriptor, memoryview(room), 3) == 2
    assert room == b"ab"
    disk.shorten(folder / "file", 1)
    assert disk.size_of(folder / "file") == 1
    disk.close(descriptor)


def test_files_have_names(open_disk: Callable[[], Disk], folder: Path) -> None:
    disk = open_disk()
    for name in ("b", "a"):
        descriptor = disk.open(folder / name, MAKE)
        disk.pwrite(descriptor, name.encode() * 3, 0)
        disk.close(descriptor)
    disk.sync_folder(folder)
    assert disk.list(folder) == [("a", 3), ("b", 3)]
    with pytest.raises(FileExistsError):
        disk.open(folder / "a", MAKE_NEW)
    disk.rename(folder / "a", folder / "b")
    assert disk.list(folder) == [("b", 3)]
    assert disk.read(folder / "b") == b"aaa"
    disk.remove(folder / "b")
    assert disk.list(folder) == []
    assert disk.free_bytes(folder) > 0


def test_what_is_not_there_is_said_so(open_disk: Callable[[], Disk], folder: Path) -> None:
    disk = open_disk()
    for attempt in (
        lambda: disk.open(folder / "none", READ),
        lambda: disk.open(folder / "none", CHANGE),
        lambda: disk.read(folder / "none"),
        lambda: disk.remove(folder / "none"),
        lambda: disk.rename(folder / "none", folder / "other"),
        lambda: disk.size_of(folder / "none"),
    ):
        with pytest.raises(FileNotFoundError):
            attempt()
    with pytest.raises(OSError) as caught:  # noqa: PT011  the number is what matters
        disk.pwrite(-1, b"x", 0)
    with pytest.raises(ValueError, match="negative"):
        disk.fdatasync(-1)
    assert caught.value.errno == errno.EBADF


def test_a_lock_is_held_once_and_ends_with_its_descriptor(
    open_disk: Callable[[], Disk], folder: Path
) -> None:
    first, second = open_disk(), open_disk()
    mine = first.open(folder / "lock", MAKE)
    first.lock(mine)
    theirs = second.open(folder / "lock", MAKE)
    with pytest.raises(BlockingIOError):
        second.lock(theirs)
    first.close(mine)
    second.lock(theirs)
    second.close(theirs)
