"""A TCP proxy between a client and a server that cuts connections, at any byte, or swallows what the server says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from heliograph.frontends.native.frames import FrameReader


class _Allowance:
    """The bytes that a connection may still carry."""

    def __init__(self, left: int | None) -> None:
        self._left = left

    @property
    def is_used_up(self) -> bool:
        return self._left == 0

    def take(self, data: bytes) -> bytes:
        if self._left is None:
            return data
        taken = data[: self._left]
        self._left -= len(taken)
        return taken


class CuttingProxy:
    """Listens on a port of its own. `target` may change, and may be nobody."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        self.is_deaf = False  # whether the server's words are swallowed
        self.loses: int | None = (
            None  # a kind of frame: the next that the server sends is lost with its connection
        )
        self.swallowed = 0
        self.cuts = 0
        # How many bytes a new connection carries, both ways together, before it ends; None: as many as it likes.
        self.carries: Callable[[], int] | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"helio://{host}:{port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            far_reader, far_writer = await asyncio.open_connection(*self.target)
        except OSError:
            writer.close()
            return
        both = {writer, far_writer}
        self._open |= both
        allowance = _Allowance(None if self.carries is None else self.carries())
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._copy(reader, far_writer, writer, allowance, is_answer=False))
                group.create_task(self._copy(far_reader, writer, far_writer, allowance, is_answer=True))
        finally:
            self._open -= both
            for end in both:
                end.close()

    async def _copy(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        other: asyncio.StreamWriter,
        allowance: _Allowance,
        *,
        is_answer: bool,
    ) -> None:
        frames = FrameReader()
        try:
            while data := await source.read(65536):
                if is_answer and self.is_deaf:
                    self.swallowed += len(data)
                    continue
                if is_answer and self.loses in [frame[0] for frame in frames.feed(data)]:
                    self.cuts += 1
                    self.loses = None
                    break
                sink.write(allowance.take(data))
                await sink.drain()
                if allowance.is_used_up:
                    self.cuts += 1
                    break
        except OSError:
            pass
        finally:
            sink.close()
            other.close()

    def cut(self) -> None:
        """Every connection ends now, wherever its bytes are."""
        self.cuts += 1
        for writer in list(self._open):
            writer.transport.abort()

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def cutting(target: tuple[str, int]) -> AsyncIterator[CuttingProxy]:
    proxy = CuttingProxy(target)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()
