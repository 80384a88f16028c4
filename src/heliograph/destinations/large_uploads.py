"""Uploads of very large messages (M6): from the first chunk until a message refers to the file.

    open ──ended──▶ storing ──stored, checksum right──▶ complete ──published──▶ (the message's)
     ▲                 └────── checksum wrong, disk full ──▶ dropped
     └──reopened── reopening ◀──resumed── resting ◀── found at start

An upload belongs to its session. It outlives the connection, so that the client can go on where it was; it
is dropped when the session ends or stays away too long, and then its file goes too. Nothing here touches a
file: effects do.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

import msgspec

from heliograph.bus.commands import (
    Answered,
    ChunkSent,
    Rejected,
    TransferFailed,
    UploadAdvanced,
    UploadBegun,
    UploadDropped,
    UploadEnded,
)
from heliograph.destinations.effects import Multicast
from heliograph.destinations.large_effects import (
    AnyLargeEffect,
    FileFailed,
    FileReopened,
    FileStored,
    FileWritten,
    MakeFile,
    RemoveFile,
    ReopenFile,
    StoreFile,
    WriteFile,
)
from heliograph.model.ids import SessionId
from heliograph.model.large import FileId, LargeReference
from heliograph.model.limits import MAX_UPLOADS

UPLOAD_UNKNOWN = "upload-unknown"
_UNKNOWN = "the upload is not known here: begin again"


class State(enum.Enum):
    """See the drawing above."""

    RESTING = "resting"
    REOPENING = "reopening"
    OPEN = "open"
    STORING = "storing"
    COMPLETE = "complete"


class Upload(msgspec.Struct):
    """One upload. `transfer` is what its session calls it."""

    file: FileId
    session: SessionId
    transfer: int
    state: State = State.OPEN
    received: int = 0
    checksum: int = 0  # what the client says, once it has ended
    request: int = 0  # who waits for it to be reopened or stored
    written: int = 0
    durable: int = 0


class Uploads:
    """The uploads of one message manager."""

    def __init__(self) -> None:
        self._by_file: dict[FileId, Upload] = {}
        self._by_transfer: dict[tuple[SessionId, int], Upload] = {}
        self._handlers: dict[type, Callable[..., list[AnyLargeEffect]]] = {
            UploadBegun: self._begun,
            ChunkSent: self._chunk,
            UploadEnded: self._ended,
            UploadDropped: self._dropped,
            FileReopened: self._reopened,
            FileWritten: self._written,
            FileStored: self._stored,
            FileFailed: self._failed,
        }

    def __len__(self) -> int:
        return len(self._by_file)

    def handle(
        self,
        event: UploadBegun
        | ChunkSent
        | UploadEnded
        | UploadDropped
        | FileReopened
        | FileWritten
        | FileStored
        | FileFailed,
    ) -> list[AnyLargeEffect]:
        return self._handlers[type(event)](event)

    # ---- from the session

    def _begun(self, event: UploadBegun) -> list[AnyLargeEffect]:
        file = FileId(event.file)
        if event.resumed or file in self._by_file:  # else it was asked again
            return self._resumed(event, file)
        if len(self._by_file) >= MAX_UPLOADS:
            sentence = f"{MAX_UPLOADS} large messages are on their way already: try again later"
            return [_rejected(event.request, code="too-many-uploads", sentence=sentence)]
        upload = Upload(file, event.session, event.transfer)
        self._by_file[file] = upload
        self._by_transfer[event.session, event.transfer] = upload
        return [MakeFile(file, event.session), _ready(event.request, upload)]

    def _resumed(self, event: UploadBegun, file: FileId) -> list[AnyLargeEffect]:
        upload = self._by_file.get(file)
        if upload is None or upload.session != event.session:
            return [
                _rejected(
                    event.request, code=UPLOAD_UNKNOWN, sentence="the upload is not known here: begin again"
                )
            ]
        self._by_transfer.pop((upload.session, upload.transfer), None)
        upload.transfer = event.transfer
        self._by_transfer[upload.session, upload.transfer] = upload
        if upload.state is State.RESTING:
            upload.state, upload.request = State.REOPENING, event.request
            return [ReopenFile(file)]
        if upload.state is State.REOPENING:
            upload.request = event.request  # whoever asked before is gone
            return []
        return [_ready(event.request, upload)]

    def _chunk(self, event: ChunkSent) -> list[AnyLargeEffect]:
        upload = self._by_transfer.get((event.session, event.transfer))
        if upload is None or upload.state is not State.OPEN:
            return []  # it failed or was dropped while this was under way
        data = event.data
        if event.offset > upload.received:
            sentence = f"byte {event.offset} came after byte {upload.received}: some between are missing"
            return self._fail(upload, code="upload-gap", sentence=sentence)
        again = upload.received - event.offset
        if again >= len(data) and again:
            return []
        if again:
            data = memoryview(data)[again:]
        offset = upload.received
        upload.received += len(data)
        return [WriteFile(upload.file, offset, data)]

    def _ended(self, event: UploadEnded) -> list[AnyLargeEffect]:
        upload = self._by_transfer.get((event.session, event.transfer))
        if upload is None or upload.state in (State.RESTING, State.REOPENING):
            return [
                _rejected(
                    event.request, code=UPLOAD_UNKNOWN, sentence="the upload is not known here: begin again"
                )
            ]
        if upload.received != event.size:
            sentence = f"the upload has {upload.received} bytes, and {event.size} were said to be sent"
            return [
                *self._drop(upload),
                _rejected(event.request, code="upload-incomplete", sentence=sentence),
            ]
        if upload.state is State.COMPLETE:
            return self._compare(upload, event.request, event.checksum)
        known = upload.state is State.STORING
        upload.state, upload.request, upload.checksum = State.STORING, event.request, event.checksum
        return [] if known else [StoreFile(upload.file)]

    def _dropped(self, event: UploadDropped) -> list[AnyLargeEffect]:
        upload = self._by_transfer.get((event.session, event.transfer))
        return self._drop(upload) if upload is not None else []

    # ---- from the disk

    def _reopened(self, event: FileReopened) -> list[AnyLargeEffect]:
        upload = self._by_file.get(event.file)
        if upload is None:
            return [RemoveFile(event.file)]  # dropped meanwhile, and open all the same
        upload.state, upload.received = State.OPEN, event.size
        return [_ready(upload.request, upload)]

    def _written(self, event: FileWritten) -> list[AnyLargeEffect]:
        upload = self._by_file.get(event.file)
        if upload is None:
            return []
        upload.written, upload.durable = event.written, event.durable
        return [_advanced(upload)]

    def advances(self) -> list[AnyLargeEffect]:
        """How far each is, for those who heard nothing yet."""
        return [_advanced(upload) for upload in self._by_file.values() if upload.state is State.OPEN]

    def _stored(self, event: FileStored) -> list[AnyLargeEffect]:
        upload = self._by_file.get(event.file)
        if upload is None:
            return []
        said, upload.checksum, upload.state = upload.checksum, event.checksum, State.COMPLETE
        return self._compare(upload, upload.request, said)

    def _compare(self, upload: Upload, request: int, said: int) -> list[AnyLargeEffect]:
        """Both ends must have seen the same bytes."""
        if upload.checksum == said:
            return [Multicast(Answered(request, {}))]
        sentence = "what arrived is not what was sent: the checksums differ"
        return [*self._drop(upload), _rejected(request, code="large-damaged", sentence=sentence)]

    def _failed(self, event: FileFailed) -> list[AnyLargeEffect]:
        upload = self._by_file.get(event.file)
        return self._fail(upload, code=event.code, sentence=event.sentence) if upload is not None else []

    # ---- the end

    def _fail(self, upload: Upload, *, code: str, sentence: str) -> list[AnyLargeEffect]:
        effects = self._drop(upload)
        if upload.state in (State.STORING, State.REOPENING):
            effects.append(_rejected(upload.request, code=code, sentence=sentence))
        else:
            effects.append(Multicast(TransferFailed(upload.session, upload.transfer, code, sentence)))
        return effects

    def _drop(self, upload: Upload) -> list[AnyLargeEffect]:
        self._forget(upload)
        return [RemoveFile(upload.file)]

    def _forget(self, upload: Upload) -> None:
        del self._by_file[upload.file]
        if self._by_transfer.get((upload.session, upload.transfer)) is upload:
            del self._by_transfer[upload.session, upload.transfer]

    def session_ended(self, session: SessionId) -> list[AnyLargeEffect]:
        ended = [upload for upload in self._by_file.values() if upload.session == session]
        return [effect for upload in ended for effect in self._drop(upload)]

    def expire(self, is_awaited: Callable[[SessionId], bool]) -> list[AnyLargeEffect]:
        """Drop the uploads of sessions that will not go on."""
        gone = [upload for upload in self._by_file.values() if not is_awaited(upload.session)]
        return [effect for upload in gone for effect in self._drop(upload)]

    # ---- what messages make of it

    def is_complete(self, reference: LargeReference) -> bool:
        """Whether this is an upload that a message may refer to."""
        upload = self._by_file.get(FileId(reference.file))
        return (
            upload is not None
            and upload.state is State.COMPLETE
            and (upload.received, upload.checksum) == (reference.size, reference.checksum)
        )

    def is_coming(self, reference: LargeReference) -> bool:
        """Whether all of it was received, and is on its way to the disk."""
        upload = self._by_file.get(FileId(reference.file))
        return upload is not None and upload.state is State.STORING and upload.received == reference.size

    def published(self, file: FileId) -> bool:
        """A message refers to it now, and the file is the message's. Whether it was an upload."""
        upload = self._by_file.get(file)
        if upload is None:
            return False
        self._forget(upload)
        return True

    def found(self, file: FileId, session: SessionId) -> None:
        """A file without a message was there at the start, and its session may go on with it."""
        self._by_file[file] = Upload(file, session, -1, State.RESTING)


def _advanced(upload: Upload) -> Multicast:
    return Multicast(UploadAdvanced(upload.session, upload.transfer, upload.written, upload.durable))


def _ready(request: int, upload: Upload) -> Multicast:
    return Multicast(Answered(request, {"file": upload.file, "offset": upload.received}))


def _rejected(request: int, *, code: str, sentence: str) -> Multicast:
    return Multicast(Rejected(request, code, sentence))
