"""An upload's memory: what the server may ask for again is there, and no more. And its message, which stays the one
that it is when a server lacks the content."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from crc32c import crc32c

from heliograph.client import Producer, connect
from heliograph.client.addresses import parse_url
from heliograph.client.large_sending import Upload
from heliograph.client.large_source import Content, OpenContent
from heliograph.client.link import Link
from heliograph.frontends.native import frames
from heliograph.frontends.native.frames import Hello
from heliograph.model.errors import ConnectionLost, HeliographError
from heliograph.model.ids import lane_number
from heliograph.model.large import decode_reference
from heliograph.model.limits import BLOCK_MESSAGES, CHUNK_BYTES
from tests.unit.client.peer import Peer, listening
from tests.unit.client.peer import story as with_a_peer

pytestmark = pytest.mark.req("M6")

CHUNKS = [bytes([number]) * CHUNK_BYTES for number in range(8)] + [b"the end"]
WHOLE = b"".join(CHUNKS)


async def once() -> AsyncIterator[bytes]:
    for chunk in CHUNKS:
        yield chunk


def upload_of(content: Content) -> Upload:
    link = Link(
        parse_url("helio://localhost"),
        Hello(),
        reconnect_seconds=0,
        on_error=None,
        block_messages=BLOCK_MESSAGES,
    )
    return Upload(link, 1, "queue:a", content)


def told(story: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await story()

    asyncio.run(limited())


async def read_to(upload: Upload, chunk: int) -> None:
    for number in range(chunk):
        assert await upload._chunk_at(number * CHUNK_BYTES) == CHUNKS[number]


def test_what_is_not_forced_to_disk_can_be_sent_again_from_a_stream_that_is_read_once() -> None:
    async def story() -> None:
        async with OpenContent(once()) as content:
            upload = upload_of(content)
            await read_to(upload, 6)
            upload.advanced(5 * CHUNK_BYTES, 2 * CHUNK_BYTES)
            assert await upload._chunk_at(2 * CHUNK_BYTES) == CHUNKS[2]
            assert await upload._chunk_at(2 * CHUNK_BYTES + 5) == CHUNKS[2][5:], "half a chunk was written"
            assert len(upload._kept) == 4, "what is forced to disk is forgotten"
            with pytest.raises(ConnectionLost) as lost:
                await upload._chunk_at(CHUNK_BYTES)
            assert lost.value.code == "upload-lost"

    told(story)


def test_a_file_is_read_again_from_wherever_the_server_is_and_its_checksum_stays_right() -> None:
    async def story() -> None:
        async with OpenContent(io.BytesIO(b"skipped" + WHOLE)) as skipped:
            assert await skipped.seek(0)
        source = io.BytesIO(b"skipped" + WHOLE)
        source.seek(len(b"skipped"))
        async with OpenContent(source) as content:
            upload = upload_of(content)
            await read_to(upload, 6)
            upload.advanced(6 * CHUNK_BYTES, 6 * CHUNK_BYTES)
            assert await upload._chunk_at(CHUNK_BYTES + 1) == CHUNKS[1][1:] + CHUNKS[2][:1]
            position = CHUNK_BYTES
            while data := await upload._chunk_at(position):
                position += len(data)
            assert position == len(WHOLE)
            assert upload._checksum == crc32c(WHOLE)
            await upload._start_over(HeliographError("all of it again"))
            assert await upload._chunk_at(0) == CHUNKS[0]

    told(story)


def test_only_what_is_small_is_read_whole() -> None:
    async def story() -> None:
        async with OpenContent(once()) as content:
            assert await upload_of(content).fill(len(WHOLE)) == WHOLE
        async with OpenContent(once()) as content:
            upload = upload_of(content)
            assert await upload.fill(10) is None
            assert len(upload._kept) == 1
            with pytest.raises(HeliographError, match="all of it again"):
                await upload_of(content)._start_over(HeliographError("all of it again"))

    told(story)


# ---- the message of an upload, with a scripted server at the other end

FILES = [bytes([number]) * 16 for number in range(1, 4)]
CONTENT = b"content" * 10


class Uploads:
    """A server's answers about uploads: those that it `has` go on, others are unknown."""

    def __init__(self, peer: Peer) -> None:
        self.has: dict[bytes, int] = {}
        self._fresh = iter(FILES)
        peer.replies[frames.BeginUpload] = self._begin
        peer.replies[frames.DropUpload] = lambda _: None
        peer.confirms = False

    def _begin(self, asked: frames.BeginUpload) -> frames.Control:
        file = asked.resume or next(self._fresh)
        if asked.resume and file not in self.has:
            return frames.Failed(request=asked.request, code="upload-unknown", sentence="begin again")
        return frames.Answer(request=asked.request, body={"file": file, "offset": self.has.get(file, 0)})


def published(peer: Peer, line: int = -1) -> list[tuple[int, int, bool, bytes]]:
    """Lane, sequence, whether it is sent again, and the body or the file, of each message that came."""
    return [
        (
            lane_number(block.lane),
            block.first + index,
            resent,
            decode_reference(body).file if block.kind == 3 else body,
        )
        for _, resent, block in peer.lines[line].published
        for index, body in enumerate(block.bodies)
    ]


def lacks(peer: Peer, first: int) -> None:
    peer.line.send(frames.Refused(number=1, lane=1, first=first, code="large-unknown", sentence="not here"))


async def send_all(
    peer: Peer, producer: Producer, source: object
) -> tuple[asyncio.Task[str], asyncio.Task[str]]:
    """A small message, a large one, and a small one behind it; the first is confirmed."""
    await producer.send(b"before")
    large = asyncio.create_task(producer.send_stream(source, threshold=10))
    await peer.until(lambda: len(published(peer)) == 2)
    peer.line.confirm(1, 1)
    behind = asyncio.create_task(producer.send_confirmed(b"behind"))
    await peer.until(lambda: len(published(peer)) == 3)
    return large, behind


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_message_whose_content_a_server_lacks_is_sent_again_as_the_same(is_kept: bool) -> None:
    @with_a_peer
    async def story() -> None:
        async with listening() as peer, connect(peer.url) as connection:
            uploads = Uploads(peer)
            large, behind = await send_all(peer, await connection.producer("queue:a"), CONTENT)
            peer.replies[frames.OpenLane] = lambda asked: frames.LaneOpened(request=asked.request, last=1)
            uploads.has = {FILES[0]: len(CONTENT)} if is_kept else {}
            lacks(peer, 2)
            await peer.until(lambda: len(published(peer)) == 5)
            assert [asked.lane for asked in peer.asked(frames.OpenLane)] == [1, 1]
            assert published(peer)[3:] == [
                (1, 2, True, FILES[0] if is_kept else FILES[1]),
                (1, 3, True, b"behind"),
            ]
            peer.line.confirm(1, 3)
            assert (await large).endswith("/1-2")
            assert (await behind).endswith("/1-3")

    story()


@with_a_peer
async def test_a_message_that_turns_out_to_be_known_is_not_sent_again() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        Uploads(peer)
        large, behind = await send_all(peer, await connection.producer("queue:a"), CONTENT)
        peer.replies[frames.OpenLane] = lambda asked: frames.LaneOpened(request=asked.request, last=2)
        lacks(peer, 2)
        assert (await large).endswith("/1-2")
        await peer.until(lambda: len(published(peer)) == 4)
        assert published(peer)[3:] == [(1, 3, True, b"behind")]
        await peer.until(lambda: peer.asked(frames.DropUpload))
        peer.line.confirm(1, 3)
        await behind


@with_a_peer
async def test_what_another_server_knows_is_not_brought_there() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        Uploads(peer)
        producer = await connection.producer("queue:a")
        large, behind = await send_all(peer, producer, CONTENT)
        peer.replies[frames.BeginUpload] = lambda _: None
        lacks(peer, 2)
        await peer.until(lambda: len(peer.asked(frames.BeginUpload)) == 2)
        session = bytes(producer._session._identity)
        peer.known[session] = [(1, "queue:a", 2)]
        peer.line.cut()
        assert (await large).endswith("/1-2")
        await peer.until(lambda: len(peer.lines) == 2 and published(peer))
        assert published(peer) == [(1, 3, True, b"behind")]
        peer.line.confirm(1, 3)
        await behind


@with_a_peer
async def test_over_a_lost_connection_it_waits_for_its_content_and_what_comes_before_it_does_not() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        uploads = Uploads(peer)
        producer = await connection.producer("queue:a")
        await producer.send(b"before")
        large = asyncio.create_task(producer.send_stream(CONTENT, threshold=10))
        await peer.until(lambda: len(published(peer)) == 2)
        begin = peer.replies.pop(frames.BeginUpload)
        peer.replies[frames.BeginUpload] = lambda _: None
        lacks(peer, 2)
        await peer.until(lambda: len(peer.asked(frames.BeginUpload)) == 2)
        peer.known[bytes(producer._session._identity)] = [(1, "queue:a", 0)]
        peer.line.cut()
        await peer.until(lambda: len(peer.lines) == 2 and peer.asked(frames.BeginUpload))
        assert published(peer) == [(1, 1, True, b"before")]
        peer.line.confirm(1, 1)
        uploads.has = {FILES[0]: 0}
        peer.replies[frames.OpenLane] = lambda asked: frames.LaneOpened(request=asked.request, last=1)
        peer.replies[frames.BeginUpload] = begin
        asked = peer.asked(frames.BeginUpload)[-1]
        peer.answer(peer.line, asked)
        await peer.until(lambda: len(published(peer)) == 2)
        assert published(peer)[1:] == [(1, 2, True, FILES[0])]
        peer.line.confirm(1, 2)
        assert (await large).endswith("/1-2")


@with_a_peer
async def test_a_message_that_is_confirmed_after_all_is_not_brought_and_its_lane_goes_on() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        Uploads(peer)
        large, behind = await send_all(peer, await connection.producer("queue:a"), CONTENT)
        peer.replies[frames.BeginUpload] = lambda _: None
        peer.replies[frames.OpenLane] = lambda asked: frames.LaneOpened(request=asked.request, last=2)
        lacks(peer, 2)
        await peer.until(lambda: len(peer.asked(frames.BeginUpload)) == 2)
        peer.line.confirm(1, 2)
        assert (await large).endswith("/1-2")
        await peer.until(lambda: len(published(peer)) == 4)
        assert [asked.lane for asked in peer.asked(frames.OpenLane)] == [1, 1]
        assert published(peer)[3:] == [(1, 3, True, b"behind")]
        peer.line.confirm(1, 3)
        await behind


async def only_once() -> AsyncIterator[bytes]:
    yield CONTENT


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_content_that_nobody_can_bring_again_ends_the_lane(is_cancelled: bool) -> None:
    @with_a_peer
    async def story() -> None:
        async with listening() as peer, connect(peer.url) as connection:
            Uploads(peer)
            producer = await connection.producer("queue:a")
            large, behind = await send_all(peer, producer, only_once())
            peer.line.writer.write(frames.advance_frame(1, 1, len(CONTENT), len(CONTENT)))
            if is_cancelled:
                peer.replies[frames.BeginUpload] = lambda _: None
            lacks(peer, 2)
            if is_cancelled:
                await peer.until(lambda: len(peer.asked(frames.BeginUpload)) == 2)
                large.cancel()
            [lost, refused] = await asyncio.gather(large, behind, return_exceptions=True)
            if is_cancelled:
                assert isinstance(lost, asyncio.CancelledError)
            else:
                assert isinstance(lost, HeliographError)
                assert lost.code == "large-unknown"
            assert isinstance(refused, HeliographError)
            assert refused.code == "large-unknown"
            peer.confirms = True
            assert (await producer.send_confirmed(b"goes on")).endswith("/2-1")

    story()
