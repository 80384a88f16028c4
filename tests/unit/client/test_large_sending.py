"""An upload's memory: what the server may ask for again is there, and no more."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from crc32c import crc32c

from heliograph.client.addresses import parse_url
from heliograph.client.large_sending import Upload
from heliograph.client.large_source import Content, OpenContent
from heliograph.client.link import Link
from heliograph.frontends.native.frames import Hello
from heliograph.model.errors import ConnectionLost
from heliograph.model.limits import BLOCK_MESSAGES, CHUNK_BYTES

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
        async with asyncio.timeout(20):
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
            assert await upload.restart()
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
            assert not await upload_of(content).restart()

    told(story)
