"""The folder of a store: its lock, its segments, and what is read back from them.

Everything here blocks, and is called from one thread at a time: at first from whoever opens the store, then from the
writer's own thread.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from heliograph.client.forwarding.records import (
    FRAME_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    STORE_ID_BYTES,
    Frame,
    RecordKind,
    offset_of,
    pack_frame,
    pack_segment_header,
    position_of,
    read_frame,
    read_segment_header,
    scan_segment,
    seed_of,
    segment_of,
)
from heliograph.model.errors import CorruptJournal, StorageFull, Unavailable

_SUFFIX = ".store"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)

OnFrame = Callable[[Frame, str], None]


class Record(NamedTuple):
    """What is to be appended."""

    kind: RecordKind
    lane: int
    payload: bytes


class StoreFiles:
    """The segments of one store, the last of which grows."""

    def __init__(self, folder: Path) -> None:
        """Raises Unavailable `store-in-use` while another process, or connection, has it."""
        self.folder = folder
        self.cut_bytes = 0  # torn bytes that the last opening found
        self.bytes = 0  # what the segments take on the disk; read by any thread
        self._segments: dict[int, int] = {}  # sizes by number
        self._current = 0
        self._descriptor = -1
        self._store_id = b""
        self._seed = 0
        self._durable = 0
        self._readers: dict[int, int] = {}
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as fault:
            raise _unusable(folder, fault) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise Unavailable(
                f"the store {folder} is in use: another process or connection has it open",
                code="store-in-use",
            ) from None

    # ---- opening

    def recover(self, on_frame: OnFrame, empty_state: bytes) -> None:
        """Hand over every record, oldest first, and be ready to append. Raises CorruptJournal.

        Any segment that was finished may be gone: whether a message is missing, the books know.
        """
        try:
            self._recover(on_frame, empty_state)
        except OSError as fault:
            raise _unusable(self.folder, fault) from None

    def _recover(self, on_frame: OnFrame, empty_state: bytes) -> None:
        for leftover in self.folder.glob(f"*{_SUFFIX}.new"):
            leftover.unlink()
        numbers = sorted(int(path.stem) for path in self.folder.glob(f"*{_SUFFIX}") if path.stem.isdigit())
        for number in numbers:
            self._replay(number, numbers, on_frame)
        if numbers:
            self._current = numbers[-1]
            self._descriptor = os.open(self._path(self._current), os.O_RDWR | os.O_CLOEXEC)
            os.fsync(self._descriptor)  # what was read is there, not only in memory
            self._durable = self._end
        else:
            self._store_id = secrets.token_bytes(STORE_ID_BYTES)
            self._seed = seed_of(self._store_id)
            self.begin_segment(empty_state)
            _sync_folder(self.folder.parent)

    def _replay(self, number: int, numbers: list[int], on_frame: OnFrame) -> None:
        path = self._path(number)
        buffer = path.read_bytes()
        store_id = read_segment_header(memoryview(buffer), str(path))
        if self._store_id and store_id != self._store_id:
            raise CorruptJournal("the segment belongs to another store", path=str(path), position=16)
        self._store_id, self._seed = store_id, seed_of(store_id)
        end = scan_segment(
            buffer,
            number,
            path=str(path),
            seed=self._seed,
            is_last=number == numbers[-1],
            on_frame=lambda frame: on_frame(frame, str(path)),
        )
        if end < len(buffer):
            self.cut_bytes = len(buffer) - end
            os.truncate(path, end)
        self._segments[number] = end
        self.bytes += end

    # ---- how much there is

    @property
    def current(self) -> int:
        return self._current

    @property
    def current_bytes(self) -> int:
        return self._segments[self._current]

    def sizes(self) -> dict[int, int]:
        """Complete segments, oldest first."""
        return {number: size for number, size in self._segments.items() if number != self._current}

    @property
    def _end(self) -> int:
        return position_of(self._current, self._segments[self._current])

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:08}{_SUFFIX}"

    # ---- appending

    def begin_segment(self, state: bytes) -> None:
        """The next segment, which begins with the state. It is there whole or not at all."""
        number = self._current + 1
        place = position_of(number, SEGMENT_HEADER_BYTES)
        header = pack_frame(
            RecordKind.STATE, 0, state, position=place, durable=self._durable, seed=self._seed
        )
        content = pack_segment_header(self._store_id) + header + state
        made = self._path(number).with_suffix(f"{_SUFFIX}.new")
        descriptor = os.open(made, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _write_all(descriptor, content, 0)
            os.fsync(descriptor)
            os.rename(made, self._path(number))
            _sync_folder(self.folder)
        except OSError as fault:
            os.close(descriptor)
            made.unlink(missing_ok=True)
            raise _failure(fault) from None
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = descriptor
        self._current = number
        self._segments[number] = len(content)
        self.bytes += len(content)
        self._durable = self._end

    def append(self, records: list[Record]) -> list[int]:
        """Write records and force them to the disk. Returns where each stands.

        Raises StorageFull, having written nothing; or Unavailable `disk-failed`, after which nothing is certain.
        """
        start = offset = self._segments[self._current]
        parts: list[bytes] = []
        positions: list[int] = []
        for kind, lane, payload in records:
            place = position_of(self._current, offset)
            positions.append(place)
            parts.append(
                pack_frame(kind, lane, payload, position=place, durable=self._durable, seed=self._seed)
            )
            parts.append(payload)
            offset += FRAME_HEADER_BYTES + len(payload)
        try:
            _write_all(self._descriptor, b"".join(parts), start)
        except OSError as fault:
            self._take_back(start)
            raise _failure(fault) from None
        try:
            os.fdatasync(self._descriptor)
        except OSError as fault:
            # What the disk has now is anybody's guess; a second sync would not tell.
            raise _disk_failed(fault) from None
        self._segments[self._current] = offset
        self.bytes += offset - start
        self._durable = self._end
        return positions

    def _take_back(self, end: int) -> None:
        try:
            os.ftruncate(self._descriptor, end)
            os.fsync(self._descriptor)
        except OSError as fault:
            raise _disk_failed(fault) from None

    # ---- reading and removing

    def read(self, position: int, size: int) -> bytes:
        """A payload that was stored. Raises CorruptJournal where it is not what it was."""
        number, offset = segment_of(position), offset_of(position)
        path = str(self._path(number))
        try:
            found = os.pread(self._reader(number), FRAME_HEADER_BYTES + size, offset)
        except OSError as fault:
            raise CorruptJournal(f"it cannot be read: {fault.strerror}", path=path, position=offset) from None
        frame = read_frame(memoryview(found), 0, position, self._seed)
        if frame is None or len(frame.payload) != size:
            raise CorruptJournal("a message that was stored is damaged", path=path, position=offset)
        return bytes(frame.payload)

    def _reader(self, number: int) -> int:
        descriptor = self._readers.get(number)
        if descriptor is None:
            # Segments are read in order, lane by lane: a few are in use at a time.
            while len(self._readers) >= 8:
                os.close(self._readers.pop(next(iter(self._readers))))
            descriptor = self._readers[number] = os.open(self._path(number), os.O_RDONLY | os.O_CLOEXEC)
        return descriptor

    def remove(self, number: int) -> None:
        """A segment of which nothing is needed, and whose marks are durable elsewhere."""
        assert number != self._current
        descriptor = self._readers.pop(number, None)
        if descriptor is not None:
            os.close(descriptor)
        try:
            self._path(number).unlink(missing_ok=True)
        except OSError as fault:
            raise _disk_failed(fault) from None
        self.bytes -= self._segments.pop(number)

    def close(self) -> None:
        for descriptor in (*self._readers.values(), self._descriptor, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._readers.clear()
        self._descriptor = self._lock = -1


def _write_all(descriptor: int, content: bytes, offset: int) -> None:
    view = memoryview(content)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view = view[written:]
        offset += written


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _failure(fault: OSError) -> StorageFull | Unavailable:
    if fault.errno in _NO_ROOM:
        return StorageFull("the disk of the store is full: nothing was stored", code="store-full")
    return _disk_failed(fault)


def _disk_failed(fault: OSError) -> Unavailable:
    return Unavailable(f"the disk of the store failed: {fault.strerror or fault}", code="disk-failed")


def _unusable(folder: Path, fault: OSError) -> Unavailable:
    return Unavailable(f"the store {folder} cannot be used: {fault.strerror or fault}", code="store-unusable")
