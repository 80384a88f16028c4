"""Uploads of very large messages: chunk by chunk, and what becomes of a file whose client is gone."""

from __future__ import annotations

import pytest

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
from heliograph.destinations.large_uploads import Uploads
from heliograph.model.destination import Address
from heliograph.model.ids import SessionId
from heliograph.model.large import FileId, LargeReference
from heliograph.model.limits import MAX_UPLOADS

pytestmark = pytest.mark.req("M6")

ORDERS = Address("queue:orders")
SESSION = SessionId(b"s" * 16)
OTHER = SessionId(b"o" * 16)
FILE = FileId(b"f" * 16)


def begin(
    uploads: Uploads, *, request: int = 1, file: FileId = FILE, transfer: int = 1
) -> list[AnyLargeEffect]:
    return uploads.handle(UploadBegun(request, SESSION, transfer, ORDERS, file, False))


def resume(uploads: Uploads, *, request: int = 9, session: SessionId = SESSION) -> list[AnyLargeEffect]:
    return uploads.handle(UploadBegun(request, session, 2, ORDERS, FILE, True))


def chunk(uploads: Uploads, offset: int, data: bytes, *, transfer: int = 1) -> list[AnyLargeEffect]:
    return uploads.handle(ChunkSent(SESSION, transfer, offset, data))


def end(
    uploads: Uploads, size: int, checksum: int, *, transfer: int = 1, request: int = 3
) -> list[AnyLargeEffect]:
    return uploads.handle(UploadEnded(request, SESSION, transfer, size, checksum))


def ready(request: int, offset: int) -> Multicast:
    return Multicast(Answered(request, {"file": FILE, "offset": offset}))


def codes(effects: list[AnyLargeEffect]) -> list[str]:
    told = [effect.command for effect in effects if isinstance(effect, Multicast)]
    return [each.code for each in told if isinstance(each, Rejected | TransferFailed)]


def complete(uploads: Uploads) -> None:
    begin(uploads)
    chunk(uploads, 0, b"abc")
    end(uploads, 3, 7)
    uploads.handle(FileStored(FILE, 7))


def test_chunks_go_to_the_file_as_they_come_and_the_end_is_answered_when_all_is_on_disk() -> None:
    uploads = Uploads()
    assert begin(uploads) == [MakeFile(FILE, SESSION), ready(1, 0)]
    assert chunk(uploads, 0, b"abc") == [WriteFile(FILE, 0, b"abc")]
    assert chunk(uploads, 3, b"de") == [WriteFile(FILE, 3, b"de")]
    assert uploads.handle(FileWritten(FILE, 3, 0)) == [Multicast(UploadAdvanced(SESSION, 1, 3, 0))]
    assert end(uploads, 5, 7) == [StoreFile(FILE)]
    assert not uploads.is_complete(LargeReference(FILE, 5, 7)), "it is not on disk yet"
    assert uploads.handle(FileStored(FILE, 7)) == [Multicast(Answered(3, {}))]
    assert uploads.is_complete(LargeReference(FILE, 5, 7))


def test_a_reference_with_another_size_or_checksum_is_not_to_this_upload() -> None:
    uploads = Uploads()
    complete(uploads)
    assert uploads.is_complete(LargeReference(FILE, 3, 7))
    assert not uploads.is_complete(LargeReference(FILE, 4, 7))
    assert not uploads.is_complete(LargeReference(FILE, 3, 8))


def test_what_came_before_is_not_written_twice() -> None:
    uploads = Uploads()
    begin(uploads)
    chunk(uploads, 0, b"abc")
    assert chunk(uploads, 0, b"abc") == []
    assert chunk(uploads, 1, b"bcde") == [WriteFile(FILE, 3, memoryview(b"de"))]


def test_a_gap_ends_the_upload_and_removes_its_file() -> None:
    uploads = Uploads()
    begin(uploads)
    effects = chunk(uploads, 1, b"b")
    assert effects[0] == RemoveFile(FILE)
    assert codes(effects) == ["upload-gap"]
    assert chunk(uploads, 0, b"a") == [], "what is still under way is nobody's"


def test_a_wrong_checksum_ends_the_upload_and_removes_its_file() -> None:
    uploads = Uploads()
    begin(uploads)
    chunk(uploads, 0, b"abc")
    end(uploads, 3, 7)
    effects = uploads.handle(FileStored(FILE, 8))
    assert effects[0] == RemoveFile(FILE)
    assert codes(effects) == ["large-damaged"]
    assert len(uploads) == 0


def test_an_end_that_promises_more_than_came_is_refused() -> None:
    uploads = Uploads()
    begin(uploads)
    chunk(uploads, 0, b"abc")
    effects = end(uploads, 4, 7)
    assert effects[0] == RemoveFile(FILE)
    assert codes(effects) == ["upload-incomplete"]


def test_a_full_disk_is_told_to_the_client_and_the_file_goes() -> None:
    uploads = Uploads()
    begin(uploads)
    chunk(uploads, 0, b"abc")
    effects = uploads.handle(FileFailed(FILE, "storage-full", "full"))
    assert effects == [RemoveFile(FILE), Multicast(TransferFailed(SESSION, 1, "storage-full", "full"))]
    assert uploads.handle(FileFailed(FILE, "storage-full", "full")) == [], "the next write fails too"


def test_a_disk_that_fails_at_the_end_is_the_answer_to_the_end() -> None:
    uploads = Uploads()
    begin(uploads)
    end(uploads, 0, 0)
    effects = uploads.handle(FileFailed(FILE, "disk-failed", "broken"))
    assert effects == [RemoveFile(FILE), Multicast(Rejected(3, "disk-failed", "broken"))]


def test_another_connection_goes_on_after_what_was_received() -> None:
    uploads = Uploads()
    begin(uploads)
    chunk(uploads, 0, b"abc")
    assert resume(uploads) == [ready(9, 3)]
    assert chunk(uploads, 3, b"d", transfer=2) == [WriteFile(FILE, 3, b"d")]
    assert chunk(uploads, 4, b"e", transfer=1) == [], "the old number is nobody's"


def test_an_end_that_is_asked_again_on_another_connection_is_answered_once_and_there() -> None:
    uploads = Uploads()
    begin(uploads)
    chunk(uploads, 0, b"abc")
    end(uploads, 3, 7)
    assert resume(uploads) == [ready(9, 3)]
    assert end(uploads, 3, 7, transfer=2, request=10) == [], "it is being stored already"
    assert uploads.handle(FileStored(FILE, 7)) == [Multicast(Answered(10, {}))]
    assert end(uploads, 3, 7, transfer=2, request=11) == [Multicast(Answered(11, {}))]


def test_nobody_goes_on_with_the_upload_of_another_session() -> None:
    uploads = Uploads()
    begin(uploads)
    assert codes(resume(uploads, session=OTHER)) == ["upload-unknown"]
    assert codes(uploads.handle(UploadBegun(9, SESSION, 2, ORDERS, FileId(b"x" * 16), True))) == [
        "upload-unknown"
    ]


def test_after_a_restart_an_upload_goes_on_where_its_file_ends() -> None:
    uploads = Uploads()
    uploads.found(FILE, SESSION)
    assert resume(uploads) == [ReopenFile(FILE)]
    assert chunk(uploads, 0, b"a", transfer=2) == [], "nobody was told where to begin"
    assert resume(uploads, request=12) == [], "a second connection waits for the same answer"
    assert uploads.handle(FileReopened(FILE, 5)) == [ready(12, 5)]
    assert chunk(uploads, 5, b"f", transfer=2) == [WriteFile(FILE, 5, b"f")]


def test_an_upload_that_is_dropped_leaves_no_file() -> None:
    uploads = Uploads()
    begin(uploads)
    assert uploads.handle(UploadDropped(SESSION, 1)) == [RemoveFile(FILE)]
    assert uploads.handle(UploadDropped(SESSION, 1)) == []


def test_the_end_of_a_session_removes_its_uploads_finished_or_not_and_no_others() -> None:
    uploads = Uploads()
    complete(uploads)
    second = FileId(b"2" * 16)
    begin(uploads, file=second, transfer=2)
    uploads.found(FileId(b"3" * 16), OTHER)
    assert uploads.session_ended(SESSION) == [RemoveFile(FILE), RemoveFile(second)]
    assert len(uploads) == 1


def test_uploads_of_sessions_that_stay_away_expire() -> None:
    uploads = Uploads()
    begin(uploads)
    uploads.found(FileId(b"3" * 16), OTHER)
    assert uploads.expire(lambda session: session == SESSION) == [RemoveFile(FileId(b"3" * 16))]
    assert uploads.expire(lambda session: session == SESSION) == []


def test_a_published_upload_is_the_messages_and_outlives_its_session() -> None:
    uploads = Uploads()
    complete(uploads)
    assert uploads.published(FILE)
    assert uploads.session_ended(SESSION) == []
    assert not uploads.published(FILE)


def test_there_are_no_more_uploads_than_memory_is_set_aside_for() -> None:
    uploads = Uploads()
    for number in range(MAX_UPLOADS):
        begin(uploads, file=FileId(number.to_bytes(16, "big")), transfer=number)
    assert codes(begin(uploads, transfer=MAX_UPLOADS)) == ["too-many-uploads"]
