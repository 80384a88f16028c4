"""The disk as journals and large messages use it: files, folders, and threads that wait for them.

Everything that touches a file goes through a `Disk`, and this is the one of production, which asks the system. The
simulation has another, on which syncs take virtual time, machines lose what was not synced, and bits flip.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import mmap
import os
import pathlib
import secrets
import time
from collections.abc import Iterator, Sequence

from heliograph.journal.workers import Worker

_FILE_MODE = 0o640
READ = os.O_RDONLY | os.O_CLOEXEC
CHANGE = os.O_RDWR | os.O_CLOEXEC
MAKE = CHANGE | os.O_CREAT
MAKE_NEW = MAKE | os.O_EXCL
# Without the page cache, where the file system can.
READ_PAST_CACHE = READ | os.O_DIRECT


class Disk:
    """The system's own. Functions are looked up when they are called: it costs nothing beside what they do."""

    # ---- files that are open

    def open(self, path: pathlib.Path, flags: int) -> int:
        return os.open(path, flags, _FILE_MODE)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def pwritev(self, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int) -> int:
        return os.pwritev(descriptor, buffers, offset)

    def pwrite(self, descriptor: int, data: bytes | memoryview, offset: int) -> int:
        return os.pwrite(descriptor, data, offset)

    def pread(self, descriptor: int, size: int, offset: int) -> bytes:
        return os.pread(descriptor, size, offset)

    def pread_into(self, descriptor: int, room: memoryview, offset: int) -> int:
        return os.preadv(descriptor, [room], offset)

    def size(self, descriptor: int) -> int:
        return os.fstat(descriptor).st_size

    def allocate(self, descriptor: int, size: int) -> None:
        """Take the room for a file of this size; what is new of it is zeros."""
        os.posix_fallocate(descriptor, 0, size)

    def truncate(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)

    def fdatasync(self, descriptor: int) -> None:
        os.fdatasync(descriptor)

    def fsync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def push_out(self, descriptor: int, offset: int, size: int) -> None:
        """Begin to write back, without waiting, and leave the page cache to others."""
        os.posix_fadvise(descriptor, offset, size, os.POSIX_FADV_DONTNEED)

    def lock(self, descriptor: int) -> None:
        """Raises BlockingIOError if another process has it. It ends with the descriptor."""
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    # ---- files by name

    def make_folder(self, path: pathlib.Path) -> None:
        path.mkdir(parents=True, exist_ok=True)

    def sync_folder(self, path: pathlib.Path) -> None:
        """What was made, renamed and removed in it stays so."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def list(self, path: pathlib.Path) -> list[tuple[str, int]]:
        """Name and size of every file in a folder, by name."""
        found = []
        with os.scandir(path) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # removed or renamed meanwhile
                    found.append((entry.name, entry.stat().st_size))
        return sorted(found)

    def size_of(self, path: pathlib.Path) -> int:
        return os.stat(path).st_size

    def read(self, path: pathlib.Path) -> bytes:
        return path.read_bytes()

    @contextlib.contextmanager
    def mapped(self, path: pathlib.Path) -> Iterator[bytes | mmap.mmap]:
        """The bytes of a file without reading all of it at once."""
        descriptor = os.open(path, READ)
        try:
            if os.fstat(descriptor).st_size == 0:
                yield b""
                return
            buffer = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
        finally:
            os.close(descriptor)
        try:
            yield buffer
        finally:
            # A caller that kept a view of a payload keeps the mapping alive with it.
            with contextlib.suppress(BufferError):
                buffer.close()

    def rename(self, path: pathlib.Path, to: pathlib.Path) -> None:
        os.rename(path, to)

    def remove(self, path: pathlib.Path) -> None:
        os.unlink(path)

    def shorten(self, path: pathlib.Path, size: int) -> None:
        os.truncate(path, size)

    def free_bytes(self, path: pathlib.Path) -> int:
        room = os.statvfs(path)
        return room.f_bavail * room.f_frsize

    # ---- threads, time, names

    def worker(self, name: str, loop: asyncio.AbstractEventLoop) -> Worker:
        return Worker(name, loop)

    def seconds(self) -> float:
        """For measuring how long the disk takes."""
        return time.perf_counter()

    def pause(self, seconds: float) -> None:
        """On a worker: let others have the disk."""
        time.sleep(seconds)

    def new_store_id(self) -> str:
        return secrets.token_hex(16)


DISK = Disk()
