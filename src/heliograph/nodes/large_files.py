"""The files behind very large messages (M6): written and read on threads of their own, never on the loop.

One file per message in the folder `large`: `FILE.SESSION` while it is an upload, both ids in hexadecimal,
so that a restart knows whose it is, and `FILE.message` once a message refers to it. Files are forced to
disk every few MiB, and what is written is pushed out and dropped from the page cache at once: otherwise a
sync of the journal, on the same disk, would wait for gigabytes of somebody else's bytes.
"""

from __future__ import annotations

import errno
import mmap
from collections.abc import Iterator
from pathlib import Path

import msgspec
from crc32c import crc32c

from heliograph.journal.disk import CHANGE, DISK, MAKE_NEW, READ, READ_PAST_CACHE, Disk
from heliograph.model.errors import NO_ROOM, StorageFull
from heliograph.model.ids import SessionId
from heliograph.model.large import FILE_ID_BYTES, FileId
from heliograph.model.limits import LARGE_REMOVE_BYTES, LARGE_SYNC_BYTES, MAX_CHUNK_BYTES, MIB

_READ_BYTES = 1 * MIB
# What a read past the page cache has to begin and end at, and its buffer too; a buffer of whole pages does.
_ALIGNMENT = 4096
# While a removed file is given back in steps, the journal gets its turn between them.
_REMOVE_PAUSE_SECONDS = 0.01
_PUBLISHED = "message"
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class _Writing(msgspec.Struct):
    """A file that an upload writes."""

    descriptor: int
    written: int = 0
    durable: int = 0
    checksum: int = 0


class LargeFiles:
    """The folder. Writing, reading and removing have a thread each, and only that calls their methods."""

    def __init__(
        self, folder: Path, *, forces: bool, quota_bytes: int, reserve_bytes: int, disk: Disk = DISK
    ) -> None:
        """`forces`: written bytes are forced to disk. Quota 0: the disk limits, but for the reserve."""
        self._folder = folder
        self.disk = disk
        self._forces = forces
        self._quota = quota_bytes
        self._reserve = reserve_bytes
        self._names: dict[FileId, str] = {}
        self._whole: dict[FileId, None] = {}  # those that nothing is missing of, and a loss of power leaves
        self._doubtful: dict[FileId, None] = {}  # those that were not what they should be when they were read
        self._writing: dict[FileId, _Writing] = {}
        self._reading: dict[FileId, int] = {}
        self._hurries = False
        self._buffer: mmap.mmap | None = None  # what reads go through, from the first one on
        # Each is counted by one thread; what is used is the one without the other.
        self._written_bytes = 0
        self._removed_bytes = 0

    # ---- before the threads start

    def open(self) -> dict[FileId, SessionId]:
        """Make the folder if need be. Returns each file with its session, empty if it is no upload."""
        self.disk.make_folder(self._folder)
        found = {}
        for name, size, file, session in self._files():
            self._names[file] = name
            self._written_bytes += size
            found[file] = session
            if not session:
                self._whole[file] = None
        return found

    def _files(self) -> Iterator[tuple[str, int, FileId, SessionId]]:
        for name, size in self.disk.list(self._folder):
            file, _, session = name.partition(".")
            try:
                identity = bytes.fromhex(file)
                owner = b"" if session == _PUBLISHED else bytes.fromhex(session)
            except ValueError:
                continue  # not ours
            if len(identity) == FILE_ID_BYTES:
                yield name, size, FileId(identity), SessionId(owner)

    def has(self, file: FileId) -> bool:
        """Whether all of it is here. What an upload left is not: nobody knows how much that is."""
        return file in self._whole

    def is_whole(self, file: FileId, size: int, checksum: int) -> bool:
        """Whether what an upload left is all that a message refers to: so it is when the end came between the two."""
        if self.disk.size_of(self._path(file)) != size:
            return False
        self.reopen(file)
        found = self._writing[file].checksum
        self.close_writing(file)
        if found == checksum:
            self._whole[file] = None
        return found == checksum

    def is_not_whole(self, file: FileId, size: int) -> None:
        """What an upload left, and was read, is not what a message refers to. If as much is there, it stays until
        that is brought, and nobody gets it: a disk may once give back something else than it has, and it may be the
        only one."""
        if self.disk.size_of(self._path(file)) == size:
            self._doubtful[file] = None
        else:
            self.discard(file)

    def is_known_whole(self, file: FileId) -> None:
        """Nothing was missing of it when somebody wrote down that it is kept, whatever its name is."""
        self._whole[file] = None

    # ---- writing

    def make(self, file: FileId, session: SessionId) -> None:
        name = f"{file.hex()}.{session.hex()}"
        self._writing[file] = _Writing(self.disk.open(self._folder / name, MAKE_NEW))
        self._names[file] = name

    def reopen(self, file: FileId) -> int:
        """Go on with an unfinished file: read what is there, for its checksum. Returns its size."""
        descriptor = self.disk.open(self._path(file), CHANGE)
        writing = self._writing[file] = _Writing(descriptor)
        while data := self.disk.pread(descriptor, _READ_BYTES, writing.written):
            writing.checksum = crc32c(data, writing.checksum)
            writing.written += len(data)
        self._force(writing)
        return writing.written

    def write(self, file: FileId, offset: int, data: bytes | memoryview) -> tuple[int, int]:
        """Returns how far the file is written, and forced to disk. Raises StorageFull, OSError."""
        writing = self._writing[file]
        assert offset == writing.written, "chunks are written one after the other"
        try:
            if offset % LARGE_SYNC_BYTES < len(data):
                self._check_room()
            self._append(writing, data)
        except (StorageFull, OSError):
            self.close_writing(file)
            raise
        if writing.written - writing.durable >= LARGE_SYNC_BYTES:
            self._force(writing)
        else:
            self._push_out(writing)
        return writing.written, writing.durable

    def _append(self, writing: _Writing, data: bytes | memoryview) -> None:
        rest = memoryview(data)
        while rest:
            done = self.disk.pwrite(writing.descriptor, rest, writing.written)
            rest = rest[done:]
            writing.written += done
            self._written_bytes += done
        writing.checksum = crc32c(data, writing.checksum)

    def _push_out(self, writing: _Writing) -> None:
        """Begin to write back, without waiting, and leave the page cache to others."""
        since = writing.written - writing.durable
        self.disk.push_out(writing.descriptor, writing.durable, since)

    def _force(self, writing: _Writing) -> None:
        if self._forces:
            self._push_out(writing)
            self.disk.fdatasync(writing.descriptor)
        writing.durable = writing.written

    def _check_room(self) -> None:
        """Raises StorageFull when the quota, or what is left to others, would be touched."""
        free = self.disk.free_bytes(self._folder)
        if (self._quota and self.used_bytes + LARGE_SYNC_BYTES > self._quota) or (
            free - LARGE_SYNC_BYTES < self._reserve
        ):
            raise StorageFull(f"{NO_ROOM}: the large message was not stored")

    def store(self, file: FileId) -> int:
        """Force the whole file, and its name, to disk. Returns the CRC-32C of what was written."""
        writing = self._writing[file]
        self._force(writing)
        if self._forces:
            self.disk.fsync(writing.descriptor)
            self.disk.sync_folder(self._folder)
        self.disk.close(writing.descriptor)
        del self._writing[file]
        self._whole[file] = None
        return writing.checksum

    def publish(self, file: FileId) -> None:
        """A message refers to it. If that is not on disk when the machine is lost, recovery says it again."""
        path = self._published_path(file)
        former = self._names.get(file)
        if former is not None and former != path.name:
            self.disk.rename(self._folder / former, path)
            self._names[file] = path.name

    def close_writing(self, file: FileId) -> None:
        """The upload ended, one way or the other."""
        writing = self._writing.pop(file, None)
        if writing is not None:
            self.disk.close(writing.descriptor)

    # ---- reading

    def read(self, file: FileId, offset: int, size: int) -> bytes:
        """Up to `size` bytes, none at the end. Raises OSError."""
        descriptor = self._reading.get(file)
        if descriptor is None:
            descriptor = self._reading[file] = self._open(file)
        start = offset - offset % _ALIGNMENT
        stop = offset + min(size, MAX_CHUNK_BYTES)
        wanted = stop - start + -stop % _ALIGNMENT
        if self._buffer is None:
            self._buffer = mmap.mmap(-1, MAX_CHUNK_BYTES + 2 * _ALIGNMENT)
        with memoryview(self._buffer)[:wanted] as room:
            came = start + self.disk.pread_into(descriptor, room, start)
        return self._buffer[offset - start : max(min(came, stop) - start, 0)]

    def _open(self, file: FileId) -> int:
        path = self._path(file)
        try:
            return self._open_past_cache(path)
        except FileNotFoundError:
            # The writer gave it its other name just then, and may not have noted that yet. It has no third.
            published = self._published_path(file)
            if path == published:
                raise
            return self._open_past_cache(published)

    def _published_path(self, file: FileId) -> Path:
        return self._folder / f"{file.hex()}.{_PUBLISHED}"

    def _open_past_cache(self, path: Path) -> int:
        """Without the page cache, where the file system can: a tenth of the work, and syncs of the journal
        beside it are several times as quick."""
        try:
            return self.disk.open(path, READ_PAST_CACHE)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return self.disk.open(path, READ)

    def close_reading(self, file: FileId) -> None:
        descriptor = self._reading.pop(file, None)
        if descriptor is not None:
            self.disk.close(descriptor)

    # ---- removing

    def name_of(self, file: FileId) -> str:
        return self._names.get(file, "")

    def discard(self, file: FileId) -> None:
        """What there is of it is worth nothing: it goes at once, and the same may come again."""
        self.close_writing(file)
        self._whole.pop(file, None)
        self._doubtful.pop(file, None)
        name = self._names.pop(file, None)
        if name is not None:
            self._removed_bytes += self.disk.size_of(self._folder / name)
            self.disk.remove(self._folder / name)

    def remove(self, file: FileId, name: str) -> None:
        """Give the room back, in steps. A file that is not there, or came again under another name meanwhile, is as
        good as removed."""
        if not name or self._names.get(file) != name:
            return
        del self._names[file]
        self._whole.pop(file, None)
        self._doubtful.pop(file, None)
        path = self._folder / name
        size = self.disk.size_of(path)
        self._removed_bytes += size
        if size > LARGE_REMOVE_BYTES:
            # Out of sight first: half a file must not be taken for an upload after a crash.
            gone = path.with_suffix(".removed")
            self.disk.rename(path, gone)
            path = gone
            for left in range(size - LARGE_REMOVE_BYTES, 0, -LARGE_REMOVE_BYTES):
                if self._hurries:
                    break
                self.disk.shorten(path, left)
                self.disk.pause(_REMOVE_PAUSE_SECONDS)
        self.disk.remove(path)

    def hurry(self) -> None:
        """The server stops: finish what is under way without regard for others."""
        self._hurries = True

    def halves(self) -> list[Path]:
        """Files that a crash left while they were being removed."""
        return [self._folder / name for name, _ in self.disk.list(self._folder) if name.endswith(".removed")]

    def remove_halves(self) -> None:
        for path in self.halves():
            self.disk.remove(path)

    def _path(self, file: FileId) -> Path:
        name = self._names.get(file)
        if name is None or file in self._doubtful:
            raise FileNotFoundError(errno.ENOENT, "the file of a large message is missing", file.hex()[:8])
        return self._folder / name

    @property
    def used_bytes(self) -> int:
        return self._written_bytes - self._removed_bytes

    def names(self) -> list[FileId]:
        return list(self._names)


def storage_fault(error: Exception) -> tuple[str, str]:
    """Code and sentence for what went wrong with a file."""
    if isinstance(error, StorageFull):
        return error.code, error.sentence
    if isinstance(error, OSError) and error.errno in _FULL:
        return "storage-full", f"{NO_ROOM}: the large message was not stored"
    return "disk-failed", f"a file of the large store failed: {error}"
