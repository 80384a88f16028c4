"""A session's uploads and downloads: what a client may ask for, and how far it may be ahead."""

from __future__ import annotations

import pytest

from heliograph.bus.commands import (
    ChunkRead,
    ChunkSent,
    FetchAllowed,
    TransferFailed,
    UploadAdvanced,
    UploadBegun,
    UploadDropped,
)
from heliograph.model.destination import Address
from heliograph.model.errors import ClientFault
from heliograph.model.ids import SessionId
from heliograph.model.limits import (
    MAX_CHUNK_BYTES,
    MAX_TRANSFER_NUMBER,
    MAX_TRANSFERS_PER_SESSION,
    TRANSFER_WINDOW_BYTES,
)
from heliograph.sessions.commands import (
    AllowFetch,
    AnyCommand,
    AnySessionEffect,
    BeginFetch,
    BeginUpload,
    DropUpload,
    EndTransfer,
    HandChunk,
    Multicast,
    SendChunk,
    TellAdvance,
)
from heliograph.sessions.transfers import Transfers

pytestmark = pytest.mark.req("M6")

SESSION = SessionId(b"s" * 16)
FILE = b"f" * 16
ORDERS = Address("queue:orders")
MOST_AHEAD = 2 * TRANSFER_WINDOW_BYTES + MAX_CHUNK_BYTES


def handle(
    transfers: Transfers, event: AnyCommand | UploadAdvanced | ChunkRead | TransferFailed
) -> list[AnySessionEffect]:
    return transfers.handlers()[type(event)](event)


def begin(transfers: Transfers, number: int = 1, resume: bytes = b"") -> UploadBegun:
    return transfers.begin_upload(BeginUpload(5, number, ORDERS, resume), lambda: 9, ORDERS)


def uploading() -> Transfers:
    transfers = Transfers(SESSION)
    begin(transfers)
    transfers.upload_ready(1, {"offset": 0})
    return transfers


def fetch(transfers: Transfers, *, offset: int = 0, allowed: int = 100, number: int = 1) -> int:
    begun = transfers.begin_fetch(BeginFetch(5, number, ORDERS, FILE, offset, allowed), lambda: 9, ORDERS)
    return begun.allowed


def chunk(offset: int, size: int = 1) -> SendChunk:
    return SendChunk(1, offset, memoryview(bytes(size)))


def test_a_chunk_is_passed_on_once_the_upload_is_ready() -> None:
    transfers = Transfers(SESSION)
    assert begin(transfers) == UploadBegun(9, SESSION, 1, ORDERS, b"", False)
    assert handle(transfers, chunk(0)) == [], "nobody said where to begin"
    transfers.upload_ready(1, {"offset": 0})
    assert handle(transfers, chunk(0)) == [Multicast(ChunkSent(SESSION, 1, 0, memoryview(b"\0")))]


def test_a_client_that_runs_far_ahead_breaks_the_rules() -> None:
    transfers = uploading()
    handle(transfers, chunk(MOST_AHEAD - 1))
    with pytest.raises(ClientFault, match="too far ahead"):
        handle(transfers, chunk(MOST_AHEAD))
    assert handle(transfers, UploadAdvanced(SESSION, 1, 10, 0)) == [TellAdvance(1, 10, 0)]
    handle(transfers, chunk(MOST_AHEAD))


def test_a_resumed_upload_counts_from_where_it_is() -> None:
    transfers = Transfers(SESSION)
    assert begin(transfers, resume=FILE).resumed
    transfers.upload_ready(1, {"offset": 10**12})
    assert handle(transfers, chunk(10**12)) != []


@pytest.mark.parametrize("size", [0, MAX_CHUNK_BYTES + 1])
def test_a_chunk_has_a_reasonable_size(size: int) -> None:
    with pytest.raises(ClientFault, match="a chunk has"):
        handle(uploading(), chunk(0, size))


@pytest.mark.parametrize("number", [-1, MAX_TRANSFER_NUMBER + 1])
def test_a_number_that_does_not_fit_a_frame_is_refused(number: int) -> None:
    with pytest.raises(ClientFault, match="numbered"):
        begin(Transfers(SESSION), number)
    with pytest.raises(ClientFault, match="numbered"):
        fetch(Transfers(SESSION), number=number)


def test_ids_and_offsets_that_cannot_be_are_refused() -> None:
    transfers = Transfers(SESSION)
    with pytest.raises(ClientFault):
        begin(transfers, resume=b"short")
    with pytest.raises(ClientFault):
        fetch(transfers, offset=-1)
    with pytest.raises(ClientFault):
        fetch(transfers, offset=2**63)


def test_a_session_has_so_many_transfers_and_no_more() -> None:
    transfers = Transfers(SESSION)
    for number in range(MAX_TRANSFERS_PER_SESSION):
        fetch(transfers, number=number)
    with pytest.raises(ClientFault, match="at most"):
        begin(transfers, MAX_TRANSFERS_PER_SESSION)
    fetch(transfers, number=0)  # begun again, after a lost connection
    transfers.over(3)
    begin(transfers, MAX_TRANSFERS_PER_SESSION)


def test_whatever_a_reader_allows_it_gets_no_more_ahead_than_a_buffer_holds() -> None:
    transfers = Transfers(SESSION)
    assert fetch(transfers, allowed=2**62) == MOST_AHEAD
    assert handle(transfers, AllowFetch(1, 2**62)) == [Multicast(FetchAllowed(SESSION, 1, MOST_AHEAD))]
    assert handle(transfers, ChunkRead(SESSION, 1, 0, b"abc")) == [HandChunk(1, 0, b"abc")]
    assert handle(transfers, AllowFetch(1, 2**62)) == [Multicast(FetchAllowed(SESSION, 1, MOST_AHEAD + 3))]


def test_what_comes_after_the_end_is_nobodys() -> None:
    transfers = uploading()
    assert handle(transfers, TransferFailed(SESSION, 1, "storage-full", "full")) == [
        EndTransfer(1, "storage-full", "full")
    ]
    assert handle(transfers, chunk(0)) == []
    assert handle(transfers, UploadAdvanced(SESSION, 1, 1, 1)) == []
    assert handle(transfers, ChunkRead(SESSION, 2, 0, b"x")) == []
    assert handle(transfers, AllowFetch(2, 5)) == []
    assert handle(transfers, DropUpload(1)) == [Multicast(UploadDropped(SESSION, 1))]
