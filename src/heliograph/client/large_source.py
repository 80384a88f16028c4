"""Where the content of a very large message comes from: a path, a file, or an iterable of bytes.

Whatever it is, it is read a chunk at a time; files and plain iterables on a thread, so that the loop goes on.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Any, BinaryIO, cast

from heliograph.model.errors import ClientFault
from heliograph.model.limits import CHUNK_BYTES

StreamSource = (
    str
    | os.PathLike[str]
    | BinaryIO
    | bytes
    | bytearray
    | memoryview
    | AsyncIterable[bytes]
    | Iterable[bytes]
    | Any  # whatever has `read(size)`, awaitable or not
)

# Files are read so many chunks at a time: going to a thread and back costs as much as reading one.
_CHUNKS_AT_ONCE = 4


class Content:
    """A source in the shape of chunks. Ends with an empty one."""

    def __init__(self, read: Callable[[int], Awaitable[bytes]], file: BinaryIO | None = None) -> None:
        """`read(size)` gives at least a byte, and not much more than `size`, or nothing at the end.

        `file` is the source, where it can be read again from any place.
        """
        self._read = read
        self._file = file
        self._start = file.tell() if file is not None else 0
        self._waiting = bytearray()
        self._at_end = False

    async def chunk(self) -> bytes:
        """The next chunk, full unless it is the last; empty at the end."""
        waiting = self._waiting
        while len(waiting) < CHUNK_BYTES and not self._at_end:
            data = await self._read(CHUNK_BYTES * _CHUNKS_AT_ONCE - len(waiting))
            if not isinstance(data, bytes | bytearray | memoryview):
                raise ClientFault(f"a stream gives bytes, not a {type(data).__name__}", code="body-invalid")
            if not waiting and len(data) == CHUNK_BYTES:
                return bytes(data)
            waiting += data
            self._at_end = not data
        with memoryview(waiting) as view:
            taken = bytes(view[:CHUNK_BYTES])
        del waiting[:CHUNK_BYTES]
        return taken

    async def seek(self, offset: int) -> bool:
        """Go back, or on, to an offset. False: this source can be read only once."""
        if self._file is None:
            return False
        await asyncio.to_thread(self._file.seek, self._start + offset)
        self._waiting.clear()
        self._at_end = False
        return True


class OpenContent:
    """`async with` a source as content; a file that is opened here is closed here."""

    def __init__(self, source: StreamSource) -> None:
        self._source = source
        self._opened: BinaryIO | None = None

    async def __aenter__(self) -> Content:
        source = self._source
        if isinstance(source, str | os.PathLike):
            self._opened = await asyncio.to_thread(open, source, "rb")
            return _of_file(self._opened)
        if isinstance(source, bytes | bytearray | memoryview):
            return Content(_reader_of(iter(_slices(source))))
        if isinstance(source, AsyncIterable) and not hasattr(source, "read"):
            return Content(_async_reader_of(source.__aiter__()))
        if hasattr(source, "read"):
            if inspect.iscoroutinefunction(source.read):
                return Content(source.read)
            return _of_file(cast(BinaryIO, source))
        if isinstance(source, Iterable):
            return Content(_reader_of(iter(cast(Iterable[bytes], source))))
        raise ClientFault(
            f"a stream is a path, a binary file or an iterable of bytes, not a {type(source).__name__}",
            code="body-invalid",
        )

    async def __aexit__(self, *_: object) -> None:
        if self._opened is not None:
            self._opened.close()


def _of_file(file: BinaryIO) -> Content:
    async def read(size: int) -> bytes:
        return await asyncio.to_thread(file.read, size)

    can_seek = getattr(file, "seekable", None)
    return Content(read, file if can_seek is not None and can_seek() else None)


def _slices(whole: bytes | bytearray | memoryview) -> Iterator[bytes]:
    view = memoryview(whole).cast("B")
    for start in range(0, len(view), CHUNK_BYTES):
        yield bytes(view[start : start + CHUNK_BYTES])


def _reader_of(pieces: Iterator[bytes]) -> Callable[[int], Awaitable[bytes]]:
    def following() -> bytes:
        for piece in pieces:
            if len(piece):
                return piece
        return b""

    async def read(_size: int) -> bytes:
        return await asyncio.to_thread(following)

    return read


def _async_reader_of(pieces: AsyncIterator[bytes]) -> Callable[[int], Awaitable[bytes]]:
    async def read(_size: int) -> bytes:
        async for piece in pieces:
            if len(piece):
                return piece
        return b""

    return read
