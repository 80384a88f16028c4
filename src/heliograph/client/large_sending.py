"""Sending a very large message (M6): its content in chunks, then a message that refers to it.

    begin ──▶ chunks, a window ahead of what the server has written ──▶ end ──stored──▶ the message itself
      ▲            │ connection lost
      └────────────┘ at the offset that the server has

If the server that is asked to take the message lacks the content, it goes on as after a lost connection; the message
stays the one that it was (`posted.py`).

A chunk is kept until the server has forced it to disk, which is a few MiB at most; so a stream that can be
read only once goes on after a lost connection, a restart of the server, or of its machine.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Unpack

from crc32c import crc32c

from heliograph.client.large_source import Content, OpenContent, StreamSource
from heliograph.client.preparing import MessageOptions, Outgoing
from heliograph.client.sender import renewed
from heliograph.client.transfers import Transfer
from heliograph.frontends.native.frames import (
    Answer,
    BeginUpload,
    Completed,
    DropUpload,
    EndUpload,
    control_frame,
)
from heliograph.model.errors import ConnectionLost, HeliographError
from heliograph.model.large import LargeReference
from heliograph.model.limits import CHUNK_BYTES, MAX_MESSAGE_BYTES, TRANSFER_WINDOW_BYTES

if TYPE_CHECKING:
    from heliograph.client.link import Link
    from heliograph.client.posted import Posted
    from heliograph.client.producer import Producer
    from heliograph.client.wire import Wire

_UNKNOWN = "upload-unknown"  # the server has forgotten the upload


class Upload(Transfer):
    """The content of one message on its way."""

    def __init__(self, link: Link, session: int, destination: str, content: Content) -> None:
        super().__init__(link, session)
        self._destination = destination
        self._content = content
        self._file = b""
        self._kept: deque[tuple[int, bytes]] = deque()  # read and not known to be on the server's disk
        self._read = 0  # how far the source was read
        self._summed = 0  # how far the checksum goes
        self._checksum = 0
        self._sent = 0
        self._written = 0

    async def fill(self, size: int) -> bytes | None:
        """Read the beginning. All of it, if that is no more than `size` bytes; else None."""
        while self._read <= size:
            if not await self._read_on():
                return b"".join(data for _, data in self._kept)
        return None

    async def run(self) -> LargeReference:
        """Send all of it. Raises what the server refuses it with."""
        while True:
            wire = await self._link.ready()
            try:
                await self._begin(wire)
                await self._send_all(wire)
                ending = EndUpload(0, self.session, self.number, self._sent, self._checksum)
                await wire.request(ending, Completed)
                return LargeReference(self._file, self._sent, self._checksum)
            except ConnectionLost:
                if not self.was_lost(wire):
                    raise

    def drop(self) -> None:
        """The server need not keep it any longer."""
        if self.wire is not None:
            self.wire.write(control_frame(DropUpload(self.session, self.number)))

    # ---- begin

    async def _begin(self, wire: Wire) -> None:
        try:
            answer = await wire.request(self._beginning(), Answer)
        except HeliographError as refusal:
            if refusal.code != _UNKNOWN or not self._file:
                raise
            await self._start_over(refusal)
            answer = await wire.request(self._beginning(), Answer)
        self.wire = wire
        self._file = answer.body["file"]
        self._sent = self._written = answer.body["offset"]

    def _beginning(self) -> BeginUpload:
        return BeginUpload(0, self.session, self.number, self._destination, self._file)

    async def _start_over(self, refusal: HeliographError) -> None:
        """From the first byte, if they can be read again. Raises the refusal if not."""
        self._file = b""
        if self._kept and self._kept[0][0] == 0:
            return
        if not await self._content.seek(0):
            raise refusal
        self._kept.clear()
        self._read = 0

    # ---- chunks

    async def _send_all(self, wire: Wire) -> None:
        while True:
            while not self._has_room(wire):
                await self.changed.wait()
            data = await self._chunk_at(self._sent)
            self.check(wire)
            if not data:
                return
            wire.chunk(self.session, self.number, self._sent, data)
            self._sent += len(data)
            await asyncio.sleep(0)  # others get their turn, however quickly the source is read

    def _has_room(self, wire: Wire) -> bool:
        """Whether a chunk may go without making other frames wait long."""
        self.check(wire)
        ahead = self._sent - self._written
        if ahead >= TRANSFER_WINDOW_BYTES or wire.is_paused:
            return False
        return not ahead or wire.buffered_bytes <= CHUNK_BYTES

    async def _chunk_at(self, offset: int) -> bytes:
        """What stands at an offset: kept, or read now."""
        while offset >= self._read:
            if not await self._read_on():
                return b""
        if not self._kept or self._kept[0][0] > offset:
            await self._go_back(offset)
            return await self._chunk_at(offset)
        for start, data in self._kept:
            if start <= offset < start + len(data):
                return data[offset - start :]
        raise AssertionError("what was read and is not durable is kept")

    async def _go_back(self, offset: int) -> None:
        """The server has less than it said."""
        if not await self._content.seek(offset):
            raise ConnectionLost(
                "the server lost a part of the stream that cannot be read again", code="upload-lost"
            )
        self._kept.clear()
        self._read = offset

    async def _read_on(self) -> bool:
        """Read and keep another chunk. False at the end."""
        data = await self._content.chunk()
        if not data:
            return False
        fresh = self._read + len(data) - self._summed
        if fresh > 0:
            part = data if fresh >= len(data) else memoryview(data)[len(data) - fresh :]
            self._checksum = crc32c(part, self._checksum)
            self._summed += fresh
        self._kept.append((self._read, data))
        self._read += len(data)
        return True

    def advanced(self, written: int, durable: int) -> None:
        self._written = max(self._written, written)
        kept = self._kept
        while kept and kept[0][0] + len(kept[0][1]) <= durable:
            kept.popleft()
        self.changed.wake()


async def send_stream(
    producer: Producer,
    link: Link,
    session: int,
    source: StreamSource,
    threshold: int,
    **options: Unpack[MessageOptions],
) -> str:
    """What `Producer.send_stream` does."""
    async with OpenContent(source) as content:
        upload = Upload(link, session, producer.destination, content)
        try:
            small = await upload.fill(min(threshold, MAX_MESSAGE_BYTES))
            if small is not None:
                return await producer.post_streamed(producer.prepare(small, **options))
            message = producer.prepare(await upload.run(), **options)
            if producer.is_transacted:
                return await producer.post_streamed(message)
            return await _post(producer, upload, message)
        except BaseException:
            upload.drop()
            raise
        finally:
            upload.forget()


async def _post(producer: Producer, upload: Upload, message: Outgoing) -> str:
    """Until the server has the message and its content. If that was lost, it is brought again: the message itself may
    be known elsewhere, and must not become another one."""
    posted = await producer.post_large(message)
    try:
        while await posted.is_lacking():
            reference = await _bring_again(upload, posted)
            await producer.go_on_behind(posted, reference)
            if posted.done():  # it was known, with other content
                upload.drop()
        return posted.result()
    finally:
        producer.leave(posted)


async def _bring_again(upload: Upload, posted: Posted) -> LargeReference | None:
    """Go on with what the server has of the content. None: the message turned out to be known.

    Raises the refusal of the message if the content would have to be read again, and cannot be.
    """
    bringing = asyncio.ensure_future(upload.run())
    try:
        await asyncio.wait((bringing, posted), return_when=asyncio.FIRST_COMPLETED)
        if posted.done():
            posted.result()  # raises what the lane was refused with
            return None
        return bringing.result()
    except HeliographError as fault:
        if fault.code != _UNKNOWN or posted.refusal is None:
            raise
        raise renewed(posted.refusal) from None
    finally:
        bringing.cancel()
        await asyncio.gather(bringing, return_exceptions=True)
