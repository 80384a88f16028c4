"""The directory a journal lives in: its lock, its FORMAT file, and the names and making of its files.

Every change of the directory itself is followed by a sync of it before anybody relies on it.
"""

from __future__ import annotations

import errno
import pathlib
from collections.abc import Sequence
from typing import Final

from crc32c import crc32c

from heliograph.journal.disk import CHANGE, DISK, MAKE, MAKE_NEW, Disk
from heliograph.journal.records import FORMAT_VERSION
from heliograph.model.errors import CorruptJournal, HeliographError, StorageFull, Unavailable

_FORMAT: Final = "FORMAT"
_TITLE: Final = "heliograph journal"
_SEGMENT_SUFFIX: Final = ".segment"
# Below the system's IOV_MAX of 1024 with room to spare.
_MAX_BUFFERS: Final = 512
_NO_ROOM: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))


class Directory:
    """Names and descriptors. It knows nothing of what is inside the files."""

    def __init__(self, path: pathlib.Path, disk: Disk = DISK) -> None:
        self.path = path
        self.disk = disk
        self._lock: int | None = None

    def open(self) -> str:
        """Create the journal if there is none, lock it, and return its store id."""
        self.disk.make_folder(self.path)
        self._take_lock()
        return self._read_format()

    def close(self) -> None:
        if self._lock is not None:
            self.disk.close(self._lock)
            self._lock = None

    def sync(self) -> None:
        self.disk.sync_folder(self.path)

    def files(self, suffix: str) -> list[tuple[pathlib.Path, int]]:
        """Path and size of every file whose name ends so, by name."""
        return [(self.path / name, size) for name, size in self.disk.list(self.path) if name.endswith(suffix)]

    # ------------------------------------------------------------------------------------- segments

    def segment_path(self, number: int) -> pathlib.Path:
        return self.path / f"{number:010d}{_SEGMENT_SUFFIX}"

    def segment_sizes(self) -> dict[int, int]:
        """Number and size of every segment, in order."""
        found = {int(path.stem): size for path, size in self.files(_SEGMENT_SUFFIX)}
        return dict(sorted(found.items()))

    def create_segment(self, number: int, size: int) -> int:
        """A descriptor of a new segment, filled with zeros and its room taken. Raises StorageFull."""
        path = self.segment_path(number)
        descriptor = self.disk.open(path, MAKE_NEW)
        try:
            take_room(self.disk, descriptor, size)
        except BaseException:
            self.disk.close(descriptor)
            self.disk.remove(path)
            raise
        return descriptor

    def open_segment(self, number: int) -> int:
        return self.disk.open(self.segment_path(number), CHANGE)

    def sync_segment(self, number: int) -> None:
        descriptor = self.open_segment(number)
        try:
            self.disk.fdatasync(descriptor)
        finally:
            self.disk.close(descriptor)

    # -------------------------------------------------------------------------------- lock and format

    def _take_lock(self) -> None:
        self._lock = self.disk.open(self.path / "lock", MAKE)
        try:
            self.disk.lock(self._lock)
        except BlockingIOError:
            self.close()
            raise Unavailable(
                f"another server is using the journal in {self.path}", code="journal-locked"
            ) from None

    def _read_format(self) -> str:
        path = self.path / _FORMAT
        try:
            raw = self.disk.read(path)
        except FileNotFoundError:
            if self.segment_sizes():
                raise CorruptJournal(
                    "there are segments but no FORMAT file", path=str(path), position=0
                ) from None
            return self._write_format(path)
        lines = raw.decode("utf-8", errors="replace").splitlines()
        if len(lines) > 1 and lines[0] == _TITLE and lines[1] != f"version {FORMAT_VERSION}":
            raise HeliographError(
                f"the journal in {self.path} has format {lines[1]!r}; this server reads and writes version "
                f"{FORMAT_VERSION} only, and has changed nothing: start the version that wrote it, and see"
                " docs/guides/installation.md about upgrading",
                code="journal-version",
            )
        if len(lines) == 4 and raw == _format_text(store_id := lines[2].removeprefix("store ")):
            return store_id
        raise CorruptJournal("the FORMAT file is damaged", path=str(path), position=0)

    def _write_format(self, path: pathlib.Path) -> str:
        store_id = self.disk.new_store_id()
        temporary = path.with_suffix(".new")
        descriptor = self.disk.open(temporary, MAKE)
        try:
            self.disk.truncate(descriptor, 0)
            write_all(self.disk, descriptor, [_format_text(store_id)], 0)
            self.disk.fsync(descriptor)
        finally:
            self.disk.close(descriptor)
        self.disk.rename(temporary, path)
        self.sync()
        return store_id


def _format_text(store_id: str) -> bytes:
    """A person may read it; the last line is the checksum of those before."""
    text = f"{_TITLE}\nversion {FORMAT_VERSION}\nstore {store_id}\n".encode()
    return text + f"checksum {crc32c(text):08x}\n".encode()


def take_room(disk: Disk, descriptor: int, size: int) -> None:
    """Reserve the file's room up to `size`, so that no later write can find the disk full.

    Raises StorageFull.
    """
    try:
        disk.allocate(descriptor, size)
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise StorageFull("there is no room on the disk for the journal") from None
        raise


def write_all(disk: Disk, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
    """Write all buffers one behind the other; a short write is continued."""
    for first in range(0, len(buffers), _MAX_BUFFERS):
        batch = buffers[first : first + _MAX_BUFFERS] if len(buffers) > _MAX_BUFFERS else buffers
        size = sum(map(len, batch))
        written = disk.pwritev(descriptor, batch, offset)
        if written < size:
            _write_rest(disk, descriptor, b"".join(batch), offset, written)
        offset += size


def _write_rest(disk: Disk, descriptor: int, whole: bytes, offset: int, written: int) -> None:
    view = memoryview(whole)
    while written < len(view):
        written += disk.pwrite(descriptor, view[written:], offset + written)
