"""A session's very large messages (M6): its client's numbers for them, and how far the client may be ahead.

The chunks themselves are passed on untouched.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heliograph.bus.commands import (
    ChunkRead,
    ChunkSent,
    FetchAllowed,
    FetchBegun,
    FetchEnded,
    TransferFailed,
    UploadAdvanced,
    UploadBegun,
    UploadDropped,
    UploadEnded,
)
from heliograph.model.destination import Address
from heliograph.model.errors import ClientFault
from heliograph.model.ids import SessionId
from heliograph.model.large import FILE_ID_BYTES
from heliograph.model.limits import (
    MAX_CHUNK_BYTES,
    MAX_LARGE_BYTES,
    MAX_TRANSFER_NUMBER,
    MAX_TRANSFERS_PER_SESSION,
    TRANSFER_WINDOW_BYTES,
)
from heliograph.sessions.commands import (
    AllowFetch,
    AnySessionEffect,
    BeginFetch,
    BeginUpload,
    DropUpload,
    EndFetch,
    EndTransfer,
    EndUpload,
    HandChunk,
    Multicast,
    SendChunk,
    TellAdvance,
)

# A client that keeps to its window is never near this.
_MOST_AHEAD = 2 * TRANSFER_WINDOW_BYTES + MAX_CHUNK_BYTES


class Transfers:
    """The uploads and downloads of one session, under its client's numbers."""

    def __init__(self, session: SessionId) -> None:
        self._session = session
        self._written: dict[int, int] = {}  # uploads: how far each is written
        self._handed: dict[int, int] = {}  # downloads: how far each was handed to the connection

    def handlers(self) -> dict[type, Callable[..., list[AnySessionEffect]]]:
        """Commands and decisions that are answered here alone."""
        return {
            SendChunk: self._chunk,
            DropUpload: self._drop,
            AllowFetch: self._allow,
            EndFetch: self._end_fetch,
            UploadAdvanced: self._advanced,
            ChunkRead: self._chunk_read,
            TransferFailed: self._failed,
        }

    # ---- from the client

    def _check_number(self, transfer: int) -> None:
        if not 0 <= transfer <= MAX_TRANSFER_NUMBER:
            raise ClientFault(f"transfers are numbered 0 to {MAX_TRANSFER_NUMBER}", code="transfer-invalid")
        known = transfer in self._written or transfer in self._handed
        if not known and len(self._written) + len(self._handed) >= MAX_TRANSFERS_PER_SESSION:
            raise ClientFault(
                f"a session has at most {MAX_TRANSFERS_PER_SESSION} uploads and downloads at a time",
                code="too-many-transfers",
            )

    def begin_upload(self, command: BeginUpload, request: Callable[[], int], address: Address) -> UploadBegun:
        """Raises ClientFault where it cannot be."""
        self._check_number(command.transfer)
        if command.resume and len(command.resume) != FILE_ID_BYTES:
            raise ClientFault(f"a file id has {FILE_ID_BYTES} bytes", code="large-malformed")
        return UploadBegun(
            request(), self._session, command.transfer, address, command.resume, bool(command.resume)
        )

    def upload_ready(self, transfer: int, body: dict[str, Any]) -> None:
        self._written[transfer] = body["offset"]

    def _chunk(self, command: SendChunk) -> list[AnySessionEffect]:
        written = self._written.get(command.transfer)
        if written is None:
            return []  # it failed while this was under way
        if not 0 < len(command.data) <= MAX_CHUNK_BYTES:
            raise ClientFault(f"a chunk has 1 to {MAX_CHUNK_BYTES} bytes", code="chunk-invalid")
        if command.offset + len(command.data) > written + _MOST_AHEAD:
            raise ClientFault("an upload is too far ahead of what is written", code="window-exceeded")
        return [Multicast(ChunkSent(self._session, command.transfer, command.offset, command.data))]

    def end_upload(self, command: EndUpload, request: Callable[[], int]) -> UploadEnded:
        return UploadEnded(request(), self._session, command.transfer, command.size, command.checksum)

    def _drop(self, command: DropUpload) -> list[AnySessionEffect]:
        self._written.pop(command.transfer, None)
        return [Multicast(UploadDropped(self._session, command.transfer))]

    def begin_fetch(self, command: BeginFetch, request: Callable[[], int], address: Address) -> FetchBegun:
        """Raises ClientFault where it cannot be."""
        self._check_number(command.transfer)
        if len(command.file) != FILE_ID_BYTES or not 0 <= command.offset <= MAX_LARGE_BYTES:
            raise ClientFault("a download names a file and an offset in it", code="large-malformed")
        self._handed[command.transfer] = command.offset
        allowed = min(command.allowed, command.offset + _MOST_AHEAD)
        return FetchBegun(
            request(), self._session, command.transfer, command.file, command.offset, allowed, address
        )

    def _allow(self, command: AllowFetch) -> list[AnySessionEffect]:
        handed = self._handed.get(command.transfer)
        if handed is None:
            return []
        # Whatever a client allows, it gets no more ahead than a buffer can hold.
        allowed = min(command.allowed, handed + _MOST_AHEAD)
        return [Multicast(FetchAllowed(self._session, command.transfer, allowed))]

    def _end_fetch(self, command: EndFetch) -> list[AnySessionEffect]:
        self._handed.pop(command.transfer, None)
        return [Multicast(FetchEnded(self._session, command.transfer))]

    def over(self, transfer: int) -> None:
        """An upload was stored, or a request about a transfer was refused."""
        self._written.pop(transfer, None)
        self._handed.pop(transfer, None)

    # ---- from the bus

    def _advanced(self, decision: UploadAdvanced) -> list[AnySessionEffect]:
        if decision.transfer not in self._written:
            return []
        self._written[decision.transfer] = decision.written
        return [TellAdvance(decision.transfer, decision.written, decision.durable)]

    def _chunk_read(self, decision: ChunkRead) -> list[AnySessionEffect]:
        if decision.transfer not in self._handed:
            return []
        self._handed[decision.transfer] = decision.offset + len(decision.data)
        return [HandChunk(decision.transfer, decision.offset, decision.data)]

    def _failed(self, decision: TransferFailed) -> list[AnySessionEffect]:
        self.over(decision.transfer)
        return [EndTransfer(decision.transfer, decision.code, decision.sentence)]
