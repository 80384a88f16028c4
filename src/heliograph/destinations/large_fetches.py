"""Downloads of very large messages (M6): as much as the reader has asked for, a chunk at a time.

A download is one read under way at most, and ends where the reader said. It lives no longer than its
connection: a client that comes back begins another at the offset it has reached. While somebody reads a
file it stays, even if its message is done meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from heliograph.bus.commands import (
    Answered,
    ChunkRead,
    FetchAllowed,
    FetchBegun,
    FetchEnded,
    Rejected,
    TransferFailed,
)
from heliograph.destinations.effects import Multicast
from heliograph.destinations.large_effects import (
    AnyLargeEffect,
    CloseFile,
    FileRead,
    ReadFailed,
    ReadFile,
    RemoveFile,
)
from heliograph.model.ids import SessionId
from heliograph.model.large import FileId
from heliograph.model.limits import CHUNK_BYTES, MAX_FETCHES


class Fetch(msgspec.Struct):
    """One download."""

    number: int
    session: SessionId
    transfer: int
    file: FileId
    offset: int
    allowed: int
    is_reading: bool = False
    is_through: bool = False  # the end of the file was reached


class Fetches:
    """The downloads of one message manager."""

    def __init__(self, is_there: Callable[[FileId], bool]) -> None:
        """`is_there`: whether some message refers to a file."""
        self._is_there = is_there
        self._by_transfer: dict[tuple[SessionId, int], Fetch] = {}
        self._by_number: dict[int, Fetch] = {}
        self._last_number = 0
        self._readers: dict[FileId, int] = {}
        self._condemned: dict[FileId, None] = {}
        self._handlers: dict[type, Callable[..., list[AnyLargeEffect]]] = {
            FetchBegun: self._begun,
            FetchAllowed: self._allowed,
            FetchEnded: self._ended,
            FileRead: self._read,
            ReadFailed: self._failed,
        }

    def __len__(self) -> int:
        return len(self._by_number)

    def handle(
        self, event: FetchBegun | FetchAllowed | FetchEnded | FileRead | ReadFailed
    ) -> list[AnyLargeEffect]:
        return self._handlers[type(event)](event)

    # ---- from the session

    def _begun(self, event: FetchBegun) -> list[AnyLargeEffect]:
        file = FileId(event.file)
        effects: list[AnyLargeEffect] = []
        former = self._by_transfer.get((event.session, event.transfer))
        if former is not None:  # its connection was lost, and this came before anybody noticed
            effects += self._close(former)
        if not self._is_there(file):
            sentence = "the content of this message is gone: it was read, or expired, elsewhere"
            return [*effects, _refused(event, "large-gone", sentence)]
        if len(self._by_number) >= MAX_FETCHES:
            sentence = f"{MAX_FETCHES} large messages are being read already: try again later"
            return [*effects, _refused(event, "too-many-fetches", sentence)]
        self._last_number += 1
        fetch = Fetch(self._last_number, event.session, event.transfer, file, event.offset, event.allowed)
        self._by_transfer[event.session, event.transfer] = self._by_number[fetch.number] = fetch
        self._readers[file] = self._readers.get(file, 0) + 1
        return [*effects, Multicast(Answered(event.request, {})), *self._go_on(fetch)]

    def _allowed(self, event: FetchAllowed) -> list[AnyLargeEffect]:
        fetch = self._by_transfer.get((event.session, event.transfer))
        if fetch is None:
            return []
        fetch.allowed = max(fetch.allowed, event.allowed)
        return self._go_on(fetch)

    def _ended(self, event: FetchEnded) -> list[AnyLargeEffect]:
        fetch = self._by_transfer.get((event.session, event.transfer))
        return self._close(fetch) if fetch is not None else []

    def session_gone(self, session: SessionId) -> list[AnyLargeEffect]:
        """Its connection is lost, or it ended."""
        gone = [fetch for fetch in self._by_number.values() if fetch.session == session]
        return [effect for fetch in gone for effect in self._close(fetch)]

    # ---- from the disk

    def _go_on(self, fetch: Fetch) -> list[AnyLargeEffect]:
        left = fetch.allowed - fetch.offset
        if fetch.is_reading or fetch.is_through or left <= 0:
            return []
        fetch.is_reading = True
        return [ReadFile(fetch.number, fetch.file, fetch.offset, min(left, CHUNK_BYTES))]

    def _read(self, event: FileRead) -> list[AnyLargeEffect]:
        fetch = self._by_number.get(event.fetch)
        if fetch is None:
            return []
        fetch.is_reading = False
        if not event.data:
            fetch.is_through = True
            return []
        chunk = ChunkRead(fetch.session, fetch.transfer, fetch.offset, event.data)
        fetch.offset += len(event.data)
        return [Multicast(chunk), *self._go_on(fetch)]

    def _failed(self, event: ReadFailed) -> list[AnyLargeEffect]:
        fetch = self._by_number.get(event.fetch)
        if fetch is None:
            return []
        failed = TransferFailed(fetch.session, fetch.transfer, event.code, event.sentence)
        return [*self._close(fetch), Multicast(failed)]

    # ---- the end

    def _close(self, fetch: Fetch) -> list[AnyLargeEffect]:
        del self._by_number[fetch.number]
        del self._by_transfer[fetch.session, fetch.transfer]
        file = fetch.file
        self._readers[file] -= 1
        if self._readers[file]:
            return []
        del self._readers[file]
        effects: list[AnyLargeEffect] = [CloseFile(file)]
        if file in self._condemned:
            del self._condemned[file]
            effects.append(RemoveFile(file))
        return effects

    def remove(self, file: FileId) -> list[AnyLargeEffect]:
        """Nothing refers to a file any more: it goes when nobody reads it."""
        if file in self._readers:
            self._condemned[file] = None
            return []
        return [RemoveFile(file)]


def _refused(event: FetchBegun, code: str, sentence: str) -> Multicast:
    """One that began elsewhere goes on here, if it can: nobody waits for an answer, and who reads has to be told all
    the same."""
    if event.request:
        return Multicast(Rejected(event.request, code, sentence))
    return Multicast(TransferFailed(event.session, event.transfer, code, sentence))
