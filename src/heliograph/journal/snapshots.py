"""Snapshot files: a state handed over by the node, with the place in the log where replay goes on.

A snapshot is written to a name that nobody reads, synced, and only then renamed: under its own name it is
whole, and a bad one is rot, never a tear. Room for the next one is taken in advance, because a snapshot is
what lets a full disk breathe.
"""

from __future__ import annotations

import pathlib
import struct
from collections.abc import Sequence
from typing import Final

import msgspec
from crc32c import crc32c

from heliograph.journal.directory import Directory, take_room, write_all
from heliograph.journal.disk import MAKE
from heliograph.model.errors import CorruptJournal, StorageFull
from heliograph.model.limits import MIB

_MAGIC: Final = b"HJSN"
_PREFIX = struct.Struct("<4sI")  # magic, checksum of everything behind
_REST = struct.Struct(
    "<QQQII"
)  # replay position, next LSN, length of the state, segments in the table, reserved
_SEGMENT = struct.Struct("<QQ")  # number, messages it ever held
_SUFFIX: Final = ".snapshot"
_UNFINISHED: Final = f"{_SUFFIX}.new"
_NEXT: Final = f"next{_UNFINISHED}"  # also what a snapshot is called while it is written
_LEAST_RESERVE: Final = MIB


class SnapshotHead(msgspec.Struct, frozen=True):
    """What the journal itself needs from a snapshot."""

    replay: int  # position where replay starts
    next_lsn: int
    totals: list[tuple[int, int]]


class Snapshot(msgspec.Struct, frozen=True):
    """A snapshot that was read and found whole."""

    head: SnapshotHead
    state: memoryview
    damaged: int  # newer ones that were found damaged and passed over


class Snapshots:
    """The snapshots of one journal. The newest counts; an older one stays until it is durable."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._disk = directory.disk
        self._seed = 0

    def bind(self, seed: int) -> None:
        """Checksums start from the store's seed: another store's snapshot is none."""
        self._seed = seed

    def bytes_on_disk(self) -> int:
        return sum(size for _, size in self._directory.files(_SUFFIX) + self._directory.files(_UNFINISHED))

    def write(self, head: SnapshotHead, state: Sequence[bytes | memoryview]) -> int:
        """Returns what snapshots take on the disk. Raises StorageFull: then the older one still counts."""
        table = b"".join(_SEGMENT.pack(number, total) for number, total in head.totals)
        length = sum(map(len, state))
        rest = _REST.pack(head.replay, head.next_lsn, length, len(head.totals), 0) + table
        checksum = crc32c(rest, self._seed)
        for part in state:
            checksum = crc32c(part, checksum)
        path = self._path(head.next_lsn)
        size = _PREFIX.size + len(rest) + length
        self._write_next([_PREFIX.pack(_MAGIC, checksum), rest, *state], size)
        self._disk.rename(self._next(), path)
        self._directory.sync()
        for older in self._paths():
            if older != path:
                self._disk.remove(older)
        self.take_room(2 * size)
        return self.bytes_on_disk()

    def take_room(self, size: int = 0) -> None:
        """Reserve room for the next snapshot. A wish, not a need: without it the next one tries its luck."""
        descriptor = self._disk.open(self._next(), MAKE)
        try:
            take_room(self._disk, descriptor, max(size, _LEAST_RESERVE))
        except StorageFull:
            pass
        finally:
            self._disk.close(descriptor)

    def newest(self) -> Snapshot | None:
        """The newest whole snapshot; None if there never was one.

        Raises CorruptJournal if none of those there is whole.
        """
        paths = self._paths()
        for damaged, path in enumerate(reversed(paths)):
            found = self._read(path, damaged)
            if found is not None:
                return found
        if paths:
            raise CorruptJournal(
                "the snapshot is damaged, and there is no older one", path=str(paths[-1]), position=0
            )
        return None

    def _read(self, path: pathlib.Path, damaged: int) -> Snapshot | None:
        raw = memoryview(self._disk.read(path))
        start = _PREFIX.size + _REST.size
        if len(raw) < start:
            return None
        magic, checksum = _PREFIX.unpack_from(raw)
        if magic != _MAGIC or crc32c(raw[_PREFIX.size :], self._seed) != checksum:
            return None
        replay, next_lsn, length, count, _reserved = _REST.unpack_from(raw, _PREFIX.size)
        stop = start + count * _SEGMENT.size
        if len(raw) != stop + length or path != self._path(next_lsn):
            return None
        totals = list(_SEGMENT.iter_unpack(raw[start:stop]))
        return Snapshot(SnapshotHead(replay, next_lsn, totals), raw[stop:], damaged)

    def _write_next(self, buffers: list[bytes | memoryview], size: int) -> None:
        descriptor = self._disk.open(self._next(), MAKE)
        try:
            take_room(self._disk, descriptor, size)
            write_all(self._disk, descriptor, buffers, 0)
            self._disk.truncate(descriptor, size)
            self._disk.fsync(descriptor)
        finally:
            self._disk.close(descriptor)

    def _next(self) -> pathlib.Path:
        return self._directory.path / _NEXT

    def _path(self, next_lsn: int) -> pathlib.Path:
        return self._directory.path / f"{next_lsn:020d}{_SUFFIX}"

    def _paths(self) -> list[pathlib.Path]:
        return [path for path, _ in self._directory.files(_SUFFIX)]
