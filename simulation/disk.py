"""SimDisk: the disk of a simulated machine, and a process's hold on it.

Files are in memory. What was written and not synced is known, change by change: when the machine crashes,
each sector of it stays, is lost, or shows something in between, as the dice fall; folders forget what was
done to them since they were synced, from some point on. When only the process dies, the system keeps
everything. Syncs take virtual time. A disk can be slow, full, or give back bits that were never written.

`Mount` is what a process gets: the same interface as `heliograph.journal.disk.Disk`, whose calls can be a
process's last.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from heliograph.journal.disk import Disk
from heliograph.journal.workers import Worker
from simulation.loop import Killed, ProcessLoop
from simulation.world import World

if TYPE_CHECKING:
    import asyncio
    import mmap

SECTOR: Final = 512
# What a call costs, what a byte costs, how long a sync takes, and how long one on a slow disk.
_CALL_SECONDS: Final = 2e-6
_BYTE_SECONDS: Final = 1e-9
_SYNC_SECONDS: Final = (60e-6, 500e-6)
_STALL_SECONDS: Final = (0.005, 0.6)

# A change of a file: offset, what was written, what stood there; or the size before, None, what was cut off but for
# the zeros behind it.
_Change = tuple[int, bytes | None, bytes]


class File:
    """Bytes as the system shows them, and how to get from there to what the disk surely has."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.changes: list[_Change] = []
        self.written = 0  # where the last byte that anybody ever wrote ends: what follows are zeros

    def write(self, offset: int, new: bytes) -> None:
        end = offset + len(new)
        self.written = max(self.written, end)
        if end > len(self.data):
            self.resize(end)
        self.changes.append((offset, new, bytes(self.data[offset:end])))
        self.data[offset:end] = new

    def resize(self, size: int) -> None:
        before = len(self.data)
        cut_off = bytes(self.data[size : self.written]) if size < self.written else b""  # and zeros
        self.changes.append((before, None, cut_off))
        self._set_size(size)

    def is_synced(self, at: int) -> bool:
        """Whether what stands there now would be there after a loss of power."""
        return not any(
            new is not None and offset <= at < offset + len(new) for offset, new, _ in self.changes
        )

    def synced(self, count: int) -> None:
        del self.changes[:count]

    def crash(self, world: World) -> None:
        """Back to what was synced, and from there again as far as the dice let each change come."""
        changes, self.changes = self.changes, []
        sizes = []
        for offset, new, old in reversed(changes):
            if new is None:  # `offset` is the size before
                sizes.append(len(self.data))
                if offset > len(self.data):
                    self.data += old
                self._set_size(offset)
            else:
                self.data[offset : offset + len(old)] = old
        for offset, new, _old in changes:
            if new is None:
                self._set_size(sizes.pop())
            else:
                self._write_some(world, offset, new)

    def _set_size(self, size: int) -> None:
        if size < len(self.data):
            del self.data[size:]
        elif self.data:
            self.data += bytes(size - len(self.data))
        else:
            self.data = bytearray(size)

    def _write_some(self, world: World, offset: int, new: bytes) -> None:
        """All of it, nothing of it, or some sectors."""
        fate = world.dice.random()
        if fate < 0.3:
            return
        start = offset
        while start < offset + len(new):
            stop = min(start - start % SECTOR + SECTOR, offset + len(new))
            if fate < 0.6 or world.chance(0.5):
                self.data[start:stop] = new[start - offset : stop - offset]
            start = stop


class SimDisk:
    """One disk. Files are found by their paths; what folders forget in a crash is kept as a list of undoings."""

    def __init__(self, world: World, capacity: int = 1 << 30) -> None:
        self.world = world
        self.capacity = capacity
        self.is_slow = False
        self.rot = 0.0  # the chance that a read gives back a flipped bit
        self.files: dict[str, File] = {}
        self.folders: dict[str, None] = {}
        self.undoings: list[tuple[str, Callable[[], None]]] = []  # folder and what undoes a change of it
        self.locks: dict[int, Mount] = {}  # by the file's identity
        self.flips = 0

    @property
    def used(self) -> int:
        return sum(len(file.data) for file in self.files.values())

    def crash(self) -> None:
        """The machine lost its power."""
        kept = self.world.dice.randint(0, len(self.undoings))
        while len(self.undoings) > kept:
            self.undoings.pop()[1]()
        self.undoings.clear()
        for path in sorted(self.files):
            self.files[path].crash(self.world)

    # ---- names

    def find(self, path: str) -> File:
        file = self.files.get(path)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return file

    def put(self, path: str, file: File) -> None:
        former = self.files.get(path)
        self.files[path] = file
        self._undoable(path, lambda: self._restore(path, former))

    def take(self, path: str) -> File:
        file = self.find(path)
        del self.files[path]
        self._undoable(path, lambda: self._restore(path, file))
        return file

    def rename(self, path: str, to: str) -> None:
        file, former = self.find(path), self.files.get(to)
        del self.files[path]
        self.files[to] = file

        def undo() -> None:
            self._restore(to, former)
            self._restore(path, file)

        self._undoable(to, undo)

    def _restore(self, path: str, file: File | None) -> None:
        if file is None:
            self.files.pop(path, None)
        else:
            self.files[path] = file

    def _undoable(self, path: str, undo: Callable[[], None]) -> None:
        self.undoings.append((path.rpartition("/")[0], undo))

    def sync_folder(self, folder: str) -> None:
        self.undoings = [(of, undo) for of, undo in self.undoings if of != folder]

    def rotten(self, data: bytes) -> bytes:
        if not self.rot or not data or not self.world.chance(self.rot):
            return data
        self.flips += 1
        flipped = bytearray(data)
        flipped[self.world.dice.randrange(len(data))] ^= 1 << self.world.dice.randrange(8)
        return bytes(flipped)


class Mount(Disk):
    """The disk as one process has it."""

    def __init__(self, disk: SimDisk, loop: ProcessLoop, kill: Callable[[], None]) -> None:
        self.disk = disk
        self.world = disk.world
        self.loop = loop
        self.meter: ProcessLoop | SimWorker = loop  # who waits for what is done now
        self.calls_left = -1  # the call after that many is the last of the process; -1: none is
        self.kill = kill
        self._open: dict[int, tuple[str, File]] = {}
        self._next = 3

    def _step(self, size: int = 0) -> None:
        """Every call goes through here: a dead process does nothing more, and this may be where it dies."""
        if self.loop.is_dead:
            raise Killed
        if self.calls_left >= 0:
            self.calls_left -= 1
            if self.calls_left < 0:
                self.kill()
                raise Killed
        self.meter.spend(_CALL_SECONDS + size * _BYTE_SECONDS)

    def _file(self, descriptor: int) -> File:
        if descriptor < 0:
            raise OSError(errno.EBADF, "bad file descriptor")
        return self._open[descriptor][1]  # one that was closed is a defect, and shows as one

    # ---- files that are open

    def open(self, path: pathlib.Path, flags: int) -> int:
        self._step()
        name, disk = str(path), self.disk
        file = disk.files.get(name)
        if file is None:
            if not flags & os.O_CREAT:
                raise FileNotFoundError(errno.ENOENT, "no such file", name)
            file = File()
            disk.put(name, file)
        elif flags & os.O_EXCL:
            raise FileExistsError(errno.EEXIST, "the file exists", name)
        self._next += 1
        self._open[self._next] = name, file
        return self._next

    def close(self, descriptor: int) -> None:
        self._step()
        _, file = self._open.pop(descriptor)
        if self.disk.locks.get(id(file)) is self:
            del self.disk.locks[id(file)]

    def pwritev(self, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int) -> int:
        return self.pwrite(descriptor, b"".join(buffers), offset)

    def pwrite(self, descriptor: int, data: bytes | memoryview, offset: int) -> int:
        self._step(len(data))
        file = self._file(descriptor)
        self._need(offset + len(data) - len(file.data))
        file.write(offset, bytes(data))
        return len(data)

    def pread(self, descriptor: int, size: int, offset: int) -> bytes:
        self._step(size)
        with memoryview(self._file(descriptor).data) as view:
            data = bytes(view[offset : offset + size])
        return self.disk.rotten(data)

    def pread_into(self, descriptor: int, room: memoryview, offset: int) -> int:
        data = self.pread(descriptor, len(room), offset)
        room[: len(data)] = data
        return len(data)

    def size(self, descriptor: int) -> int:
        self._step()
        return len(self._file(descriptor).data)

    def allocate(self, descriptor: int, size: int) -> None:
        self._step()
        file = self._file(descriptor)
        if size > len(file.data):
            self._need(size - len(file.data))
            file.resize(size)

    def _need(self, more: int) -> None:
        if more > 0 and self.disk.used + more > self.disk.capacity:
            raise OSError(errno.ENOSPC, "no space left on device")

    def truncate(self, descriptor: int, size: int) -> None:
        self._step()
        self._file(descriptor).resize(size)

    def fdatasync(self, descriptor: int) -> None:
        self._step()
        if descriptor < 0:
            raise ValueError("file descriptor cannot be a negative integer")  # as Python has it
        file = self._file(descriptor)
        count = len(file.changes)
        stalls = self.disk.is_slow and self.world.chance(0.3)
        self.meter.spend(self.world.between(*(_STALL_SECONDS if stalls else _SYNC_SECONDS)))
        self._step()  # the process may die while it waits
        file.synced(count)

    def fsync(self, descriptor: int) -> None:
        self.fdatasync(descriptor)

    def push_out(self, descriptor: int, offset: int, size: int) -> None:
        self._step()

    def lock(self, descriptor: int) -> None:
        self._step()
        file = self._file(descriptor)
        holder = self.disk.locks.get(id(file))
        if holder is not None and holder is not self and not holder.loop.is_dead:
            raise BlockingIOError(errno.EWOULDBLOCK, "another process has it")
        self.disk.locks[id(file)] = self

    # ---- files by name

    def make_folder(self, path: pathlib.Path) -> None:
        self._step()
        self.disk.folders[str(path)] = None

    def sync_folder(self, path: pathlib.Path) -> None:
        self._step()
        self.meter.spend(self.world.between(*_SYNC_SECONDS))
        self._step()
        self.disk.sync_folder(str(path))

    def list(self, path: pathlib.Path) -> list[tuple[str, int]]:
        self._step()
        start = f"{path}/"
        return sorted(
            (name[len(start) :], len(file.data))
            for name, file in self.disk.files.items()
            if name.startswith(start) and "/" not in name[len(start) :]
        )

    def size_of(self, path: pathlib.Path) -> int:
        self._step()
        return len(self.disk.find(str(path)).data)

    def read(self, path: pathlib.Path) -> bytes:
        data = bytes(self.disk.find(str(path)).data)
        self._step(len(data))
        return self.disk.rotten(data)

    @contextlib.contextmanager
    def mapped(self, path: pathlib.Path) -> Iterator[bytes | mmap.mmap]:
        yield self.read(path)

    def rename(self, path: pathlib.Path, to: pathlib.Path) -> None:
        self._step()
        self.disk.rename(str(path), str(to))

    def remove(self, path: pathlib.Path) -> None:
        self._step()
        self.disk.take(str(path))

    def shorten(self, path: pathlib.Path, size: int) -> None:
        self._step()
        self.disk.find(str(path)).resize(size)

    def free_bytes(self, path: pathlib.Path) -> int:
        self._step()
        return max(self.disk.capacity - self.disk.used, 0)

    # ---- threads, time, names

    def worker(self, name: str, loop: asyncio.AbstractEventLoop) -> Worker:
        return cast("Worker", SimWorker(self))

    def seconds(self) -> float:
        return self.meter.time()

    def pause(self, seconds: float) -> None:
        self.meter.spend(seconds)

    def new_store_id(self) -> str:
        return self.world.dice.randbytes(16).hex()


class SimWorker:
    """A thread that does one job after the other, and reports each on the loop.

    A job is done in one go, at the beginning of the time that it takes or at its end: so a sync that was cut
    short may have happened, or not; and one that began before a write does not cover it, or does.
    """

    def __init__(self, mount: Mount) -> None:
        self._mount = mount
        self._loop = mount.loop
        self._jobs: deque[tuple[Callable[[], Any], Callable[[Any], None]]] = deque()
        self._is_busy = False
        self._spent = 0.0

    def post(self, job: Callable[[], Any], then: Callable[[Any], None]) -> None:
        self._jobs.append((job, then))
        if not self._is_busy:
            self._is_busy = True
            self._mount.world.after(self._loop.spent + 3e-5, self._next)

    def stop(self) -> None:
        """What was posted is done when this returns, what is under way too."""
        while self._jobs:
            job, then = self._jobs.popleft()
            self._loop.call_soon(then, self._do(job))

    def spend(self, seconds: float) -> None:
        self._spent += seconds

    def time(self) -> float:
        return self._loop.time() + self._spent

    def _next(self) -> None:
        if self._loop.is_dead:
            return
        if not self._jobs:
            self._is_busy = False
            return
        world = self._mount.world
        if world.chance(0.5):
            job, then = self._jobs.popleft()
            result = self._do_alone(job)
            world.after(self._spent, lambda: self._report(then, result))
        else:
            world.after(world.between(1e-4, 1e-3), self._do_now)

    def _do_now(self) -> None:
        """It happens at the end of its time, unless the worker was stopped meanwhile."""
        if self._jobs:
            job, then = self._jobs.popleft()
            self._report(then, self._do_alone(job))
        else:
            self._next()

    def _do_alone(self, job: Callable[[], Any]) -> Any:
        """The process may die of it, and nobody else."""
        try:
            return self._do(job)
        except Killed:
            return None

    def _do(self, job: Callable[[], Any]) -> Any:
        mount = self._mount
        former, mount.meter, self._spent = mount.meter, self, 0.0
        try:
            return job()
        except Exception as error:  # as the real one does
            return error
        finally:
            mount.meter = former

    def _report(self, then: Callable[[Any], None], result: Any) -> None:
        if not self._loop.is_dead:
            self._loop.call_soon(then, result)
            self._next()
