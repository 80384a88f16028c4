"""Reading a message's content as a stream (M6): a very large one from the server, any other from its body.

The server sends a window ahead of the reader. After a lost connection the stream goes on where it was. The
last bytes are handed over only when the checksum of all is right.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from crc32c import crc32c

from heliograph.client.transfers import Transfer
from heliograph.frontends.native.frames import (
    BeginFetch,
    Completed,
    EndFetch,
    advance_frame,
    control_frame,
)
from heliograph.model.errors import ClientFault, ConnectionLost, Unavailable
from heliograph.model.large import LargeReference
from heliograph.model.limits import CHUNK_BYTES, TRANSFER_WINDOW_BYTES

if TYPE_CHECKING:
    from heliograph.client.link import Link
    from heliograph.client.wire import Wire


class MessageStream:
    """The content of a message: use it in `async with`, and read it once, from the first byte on."""

    def __init__(self, size: int) -> None:
        self.size = size

    async def chunk(self) -> bytes:
        """The next piece, of whatever size; empty at the end."""
        raise NotImplementedError

    async def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes, fewer only near the end, none there. Without a size: all that are left."""
        pieces: list[bytes] = []
        wanted = self.size if size < 0 else size
        while wanted:
            piece = await self.chunk()
            if not piece:
                break
            if len(piece) > wanted:
                self._put_back(piece[wanted:])
                piece = piece[:wanted]
            pieces.append(piece)
            wanted -= len(piece)
        return b"".join(pieces)

    def _put_back(self, piece: bytes) -> None:
        raise NotImplementedError

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while piece := await self.chunk():
            yield piece

    async def close(self) -> None:
        """Read no more."""

    async def __aenter__(self) -> MessageStream:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()


class BodyStream(MessageStream):
    """The body of an ordinary message."""

    def __init__(self, body: bytes) -> None:
        super().__init__(len(body))
        self._rest = body

    async def chunk(self) -> bytes:
        piece, self._rest = self._rest[:CHUNK_BYTES], self._rest[CHUNK_BYTES:]
        return piece

    def _put_back(self, piece: bytes) -> None:
        self._rest = piece + self._rest


class Download(Transfer):
    """The content of a large message on its way here."""

    def __init__(self, link: Link, session: int, destination: str, reference: LargeReference) -> None:
        super().__init__(link, session)
        self._destination = destination
        self._reference = reference
        self._pieces: deque[bytes] = deque()
        self._received = 0
        self._taken = 0
        self._allowed = 0
        self._checksum = 0

    async def take(self) -> bytes:
        """The next piece; empty at the end. Raises what went wrong."""
        if self._pieces:
            await asyncio.sleep(0)  # others get their turn, however quickly the application reads
        while not self._pieces:
            if self._received >= self._reference.size:
                self.check_fault()  # the last piece may have come, and not have been what was sent
                return b""
            wire = await self._link.ready()
            try:
                if self.wire is not wire:
                    await self._begin(wire)
                while not self._pieces:
                    self.check(wire)
                    await self.changed.wait()
            except ConnectionLost:
                if not self.was_lost(wire):
                    raise
        piece = self._pieces.popleft()
        self._taken += len(piece)
        self._allow_more()
        return piece

    async def _begin(self, wire: Wire) -> None:
        self._allowed = self._taken + TRANSFER_WINDOW_BYTES
        self.wire = wire  # chunks may arrive together with the answer
        beginning = BeginFetch(
            0,
            self.session,
            self.number,
            self._destination,
            self._reference.file,
            self._received,
            self._allowed,
        )
        try:
            await wire.request(beginning, Completed)
        except BaseException:
            self.wire = None
            raise

    def _allow_more(self) -> None:
        """Half a window at a time: few small frames, and the server never waits for them."""
        upto = self._taken + TRANSFER_WINDOW_BYTES
        if self.wire is not None and upto - self._allowed >= TRANSFER_WINDOW_BYTES // 2:
            self._allowed = upto
            if self._received < self._reference.size:
                self.wire.write(advance_frame(self.session, self.number, upto))

    def chunk(self, offset: int, data: memoryview) -> None:
        if offset != self._received:
            return  # of an earlier wire
        self._received += len(data)
        self._checksum = crc32c(data, self._checksum)
        size = self._reference.size
        if self._received > size or (self._received == size and self._checksum != self._reference.checksum):
            self.end(
                Unavailable("what arrived is not what was sent: the checksums differ", code="large-damaged")
            )
            return
        self._pieces.append(bytes(data))
        self.changed.wake()

    def stop(self) -> None:
        """No more is wanted."""
        self._pieces.clear()
        if self.wire is not None:
            self.wire.write(control_frame(EndFetch(self.session, self.number)))
            self.wire = None
        self.end(ClientFault("the stream is closed", code="closed"))
        self.forget()


class LargeStream(MessageStream):
    """The content of a very large message."""

    def __init__(self, link: Link, session: int, destination: str, reference: LargeReference) -> None:
        super().__init__(reference.size)
        self._of = (link, session, destination, reference)
        self._download: Download | None = None
        self._rest = b""

    async def chunk(self) -> bytes:
        if self._rest:
            piece, self._rest = self._rest, b""
            return piece
        if self._download is None:
            self._download = Download(*self._of)
        return await self._download.take()

    def _put_back(self, piece: bytes) -> None:
        self._rest = piece

    async def close(self) -> None:
        if self._download is not None:
            self._download.stop()


class BlockingStream:
    """As `MessageStream`, without await: use it in `with`."""

    def __init__(self, stream: MessageStream, run: Any) -> None:
        """`run` does something on the loop's thread and waits for its result."""
        self._stream = stream
        self._run = run

    @property
    def size(self) -> int:
        return self._stream.size

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes; see `MessageStream.read`."""
        data: bytes = self._run(self._stream.read(size))
        return data

    def __iter__(self) -> BlockingStream:
        return self

    def __next__(self) -> bytes:
        piece: bytes = self._run(self._stream.chunk())
        if not piece:
            raise StopIteration
        return piece

    def close(self) -> None:
        """Read no more."""
        self._run(self._stream.close())

    def __enter__(self) -> BlockingStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
