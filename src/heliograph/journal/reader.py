"""Reading the payloads of records back from their positions, many at a time.

Runs on the reader's thread. Records that stand close to each other are read in one go; every payload is
checked, because the bytes were out of our hands.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

from heliograph.journal.directory import Directory
from heliograph.journal.disk import READ
from heliograph.journal.records import OFFSET_BITS, OFFSET_MASK, RECORD_HEADER, RECORD_HEADER_BYTES
from heliograph.model.block import verify_checksum
from heliograph.model.errors import CorruptJournal
from heliograph.model.limits import KIB, PAGE_BYTES

# A page of neighbours comes in one read; this much is read behind the last one in the hope that it ends
# there.
_RUN_BYTES: Final = PAGE_BYTES
_TAIL_BYTES: Final = 64 * KIB
# Descriptors kept open. Pages are read front to back, so few segments are in use at a time.
_OPEN_SEGMENTS: Final = 16


class Reader:
    """One owner at a time: the thread it runs on, or a tool."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._disk = directory.disk
        self._descriptors: dict[int, int] = {}

    def read(self, positions: Sequence[int]) -> list[bytes]:
        """The payloads at these positions, in the same order. Raises CorruptJournal."""
        payloads: list[bytes] = []
        window = b""
        start = stop = 0  # the window's extent, as positions
        for index, position in enumerate(positions):
            begin = position - RECORD_HEADER_BYTES
            if begin < start or position > stop:
                start, window = begin, self._read_run(positions, index)
                stop = start + len(window)
            if position > stop:
                raise self._damaged(position)
            length = RECORD_HEADER.unpack_from(window, begin - start)[0]
            if position + length <= stop:
                payload = window[position - start : position - start + length]
            else:
                payload = self._read_at(position, length)
            if not verify_checksum(payload):
                raise self._damaged(position)
            payloads.append(payload)
        return payloads

    def forget(self, number: int) -> None:
        """Close a deleted segment, so that the disk gets its room back."""
        descriptor = self._descriptors.pop(number, None)
        if descriptor is not None:
            self._disk.close(descriptor)

    def close(self) -> None:
        for number in list(self._descriptors):
            self.forget(number)

    def _read_run(self, positions: Sequence[int], index: int) -> bytes:
        """One read for this record and those behind it that stand within reach."""
        begin = positions[index] - RECORD_HEADER_BYTES
        limit = min(begin + _RUN_BYTES, begin | OFFSET_MASK)
        last = positions[index]
        for following in islice(positions, index + 1, None):
            if not last < following <= limit:
                break
            last = following
        return self._read_at(begin, last - begin + _TAIL_BYTES)

    def _read_at(self, position: int, size: int) -> bytes:
        number, offset = position >> OFFSET_BITS, position & OFFSET_MASK
        try:
            descriptor = self._descriptor(number)
            # A damaged header may promise anything: no more than the file has is allocated.
            size = min(size, max(0, self._disk.size(descriptor) - offset))
            return self._disk.pread(descriptor, size, offset)
        except OSError as error:
            raise self._damaged(position, f"a stored record cannot be read: {error.strerror}") from error

    def _descriptor(self, number: int) -> int:
        descriptor = self._descriptors.get(number)
        if descriptor is None:
            if len(self._descriptors) >= _OPEN_SEGMENTS:
                self.forget(next(iter(self._descriptors)))
            descriptor = self._disk.open(self._directory.segment_path(number), READ)
            self._descriptors[number] = descriptor
        return descriptor

    def _damaged(self, position: int, sentence: str = "a stored record is damaged") -> CorruptJournal:
        path = self._directory.segment_path(position >> OFFSET_BITS)
        return CorruptJournal(sentence, path=str(path), position=position & OFFSET_MASK)
