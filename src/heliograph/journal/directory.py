"""The directory a journal lives in: its lock, its FORMAT file, and the names and making of its files.

Every change of the directory itself is followed by a sync of it before anybody relies on it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import pathlib
import secrets
from collections.abc import Sequence
from typing import Final

from crc32c import crc32c

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

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self._lock: int | None = None

    def open(self) -> str:
        """Create the journal if there is none, lock it, and return its store id."""
        self.path.mkdir(parents=True, exist_ok=True)
        self._take_lock()
        return self._read_format()

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def sync(self) -> None:
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    # ------------------------------------------------------------------------------------- segments

    def segment_path(self, number: int) -> pathlib.Path:
        return self.path / f"{number:010d}{_SEGMENT_SUFFIX}"

    def segment_sizes(self) -> dict[int, int]:
        """Number and size of every segment, in order."""
        found = {int(path.stem): path.stat().st_size for path in self.path.glob(f"*{_SEGMENT_SUFFIX}")}
        return dict(sorted(found.items()))

    def create_segment(self, number: int, size: int) -> int:
        """A descriptor of a new segment, filled with zeros and its room taken. Raises StorageFull."""
        path = self.segment_path(number)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
        try:
            take_room(descriptor, size)
        except BaseException:
            os.close(descriptor)
            path.unlink()
            raise
        return descriptor

    def open_segment(self, number: int) -> int:
        return os.open(self.segment_path(number), os.O_RDWR | os.O_CLOEXEC)

    def sync_segment(self, number: int) -> None:
        descriptor = self.open_segment(number)
        try:
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)

    # -------------------------------------------------------------------------------- lock and format

    def _take_lock(self) -> None:
        self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise Unavailable(
                f"another server is using the journal in {self.path}", code="journal-locked"
            ) from None

    def _read_format(self) -> str:
        path = self.path / _FORMAT
        try:
            raw = path.read_bytes()
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
                f"{FORMAT_VERSION} only",
                code="journal-version",
            )
        if len(lines) == 4 and raw == _format_text(store_id := lines[2].removeprefix("store ")):
            return store_id
        raise CorruptJournal("the FORMAT file is damaged", path=str(path), position=0)

    def _write_format(self, path: pathlib.Path) -> str:
        store_id = secrets.token_hex(16)
        temporary = path.with_suffix(".new")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
        try:
            write_all(descriptor, [_format_text(store_id)], 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.rename(path)
        self.sync()
        return store_id


def _format_text(store_id: str) -> bytes:
    """A person may read it; the last line is the checksum of those before."""
    text = f"{_TITLE}\nversion {FORMAT_VERSION}\nstore {store_id}\n".encode()
    return text + f"checksum {crc32c(text):08x}\n".encode()


def take_room(descriptor: int, size: int) -> None:
    """Reserve the file's room up to `size`, so that no later write can find the disk full.

    Raises StorageFull.
    """
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise StorageFull("there is no room on the disk for the journal") from None
        raise


def write_all(descriptor: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
    """Write all buffers one behind the other; a short write is continued."""
    for first in range(0, len(buffers), _MAX_BUFFERS):
        batch = buffers[first : first + _MAX_BUFFERS] if len(buffers) > _MAX_BUFFERS else buffers
        size = sum(map(len, batch))
        written = os.pwritev(descriptor, batch, offset)
        if written < size:
            _write_rest(descriptor, b"".join(batch), offset, written)
        offset += size


def _write_rest(descriptor: int, whole: bytes, offset: int, written: int) -> None:
    view = memoryview(whole)
    while written < len(view):
        written += os.pwrite(descriptor, view[written:], offset + written)
