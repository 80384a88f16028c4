"""Downloads of very large messages: no more than was asked for, and no file goes while somebody reads it."""

from __future__ import annotations

import pytest

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
from heliograph.destinations.large_fetches import Fetches
from heliograph.model.ids import SessionId
from heliograph.model.large import FileId
from heliograph.model.limits import CHUNK_BYTES

pytestmark = pytest.mark.req("M6")

SESSION = SessionId(b"s" * 16)
FILE = FileId(b"f" * 16)


def begin(fetches: Fetches, *, offset: int = 0, allowed: int = 10, transfer: int = 1) -> list[AnyLargeEffect]:
    return fetches.handle(FetchBegun(1, SESSION, transfer, FILE, offset, allowed))


def fetching(**options: int) -> Fetches:
    fetches = Fetches(lambda file: file == FILE)
    begin(fetches, **options)
    return fetches


def test_a_download_stops_where_the_reader_said_and_goes_on_when_it_may() -> None:
    fetches = Fetches(lambda file: file == FILE)
    assert begin(fetches, allowed=4) == [Multicast(Answered(1, {})), ReadFile(1, FILE, 0, 4)]
    assert fetches.handle(FileRead(1, b"abcd")) == [Multicast(ChunkRead(SESSION, 1, 0, b"abcd"))]
    assert fetches.handle(FetchAllowed(SESSION, 1, 6)) == [ReadFile(1, FILE, 4, 2)]
    assert fetches.handle(FetchAllowed(SESSION, 1, 9)) == [], "one read at a time"
    assert fetches.handle(FileRead(1, b"ef")) == [
        Multicast(ChunkRead(SESSION, 1, 4, b"ef")),
        ReadFile(1, FILE, 6, 3),
    ]


def test_a_download_reads_a_chunk_at_a_time_from_where_it_was() -> None:
    fetches = Fetches(lambda _: True)
    effects = begin(fetches, offset=100, allowed=10 * CHUNK_BYTES)
    assert effects[1] == ReadFile(1, FILE, 100, CHUNK_BYTES)


def test_the_end_of_the_file_is_the_end() -> None:
    fetches = fetching()
    fetches.handle(FileRead(1, b"abc"))
    assert fetches.handle(FileRead(1, b"")) == []
    assert fetches.handle(FetchAllowed(SESSION, 1, 1000)) == []


def test_a_file_that_no_message_refers_to_is_not_handed_out() -> None:
    fetches = Fetches(lambda _: False)
    (answer,) = begin(fetches)
    assert isinstance(answer, Multicast)
    assert isinstance(answer.command, Rejected)
    assert answer.command.code == "large-gone"


def test_who_went_on_from_elsewhere_is_told_that_it_cannot() -> None:
    """Its first request was answered by whoever led before: nobody waits for another answer."""
    fetches = Fetches(lambda _: False)
    (answer,) = fetches.handle(FetchBegun(0, SESSION, 3, FILE, 100, 200))
    assert isinstance(answer, Multicast)
    assert isinstance(answer.command, TransferFailed)
    assert (answer.command.session, answer.command.transfer) == (SESSION, 3)
    assert answer.command.code == "large-gone"


def test_a_file_stays_while_somebody_reads_it_though_its_message_is_done() -> None:
    fetches = fetching()
    begin(fetches, transfer=2)
    assert fetches.remove(FILE) == []
    assert fetches.handle(FetchEnded(SESSION, 1)) == []
    assert fetches.handle(FetchEnded(SESSION, 2)) == [CloseFile(FILE), RemoveFile(FILE)]
    assert fetches.remove(FILE) == [RemoveFile(FILE)], "nobody reads it now"


def test_a_lost_connection_ends_its_downloads() -> None:
    fetches = fetching()
    assert fetches.session_gone(SESSION) == [CloseFile(FILE)]
    assert fetches.handle(FileRead(1, b"late")) == []
    assert len(fetches) == 0


def test_a_client_that_is_back_before_its_loss_was_noticed_replaces_its_download() -> None:
    fetches = fetching()
    effects = begin(fetches, offset=5)
    assert effects[0] == CloseFile(FILE)
    assert ReadFile(2, FILE, 5, 5) in effects
    assert fetches.handle(FileRead(1, b"old")) == [], "of the download before"


def test_a_file_that_cannot_be_read_is_told() -> None:
    fetches = fetching()
    effects = fetches.handle(ReadFailed(1, "disk-failed", "broken"))
    assert effects == [CloseFile(FILE), Multicast(TransferFailed(SESSION, 1, "disk-failed", "broken"))]
