"""A client without the library's care: it sends exactly the frames that a test wants, again if need be."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self, TypeVar

from heliograph.frontends.native import frames
from heliograph.model import block
from heliograph.model.ids import LaneId, SessionId, lane_of

SECONDS = 60.0
R = TypeVar("R", bound=frames.Control)


class RawClient:
    """One connection with one session, number 1."""

    def __init__(self, url: str) -> None:
        self._host, _, port = url.removeprefix("helio://").partition(":")
        self._port = int(port)
        self._cutter = frames.FrameReader()
        self._frames: list[frames.Frame] = []
        self._requests = 0
        self.session = SessionId(b"")
        self.token = b""

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        self._writer.write(frames.PREAMBLE + frames.control_frame(frames.Hello(client="raw")))
        await self._answer(frames.Welcome)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.transport.abort()

    # ---- requests

    async def open(self, *, resume: RawClient | None = None) -> dict[int, int]:
        """Open a session, or resume another client's. What the server has of each lane."""
        request = frames.OpenSession(request=self._next(), number=1)
        if resume is not None:
            request.resume, request.token = resume.session, resume.token
        self._writer.write(frames.control_frame(request))
        opened = await self._answer(frames.SessionOpened)
        self.session, self.token = SessionId(opened.session), opened.token
        return {number: last for number, _, last in opened.lanes}

    async def open_lane(self, destination: str, lane: int = 1) -> int:
        request = frames.OpenLane(request=self._next(), number=1, lane=lane, destination=destination)
        self._writer.write(frames.control_frame(request))
        return (await self._answer(frames.LaneOpened)).last

    def lane(self, number: int = 1) -> LaneId:
        return lane_of(self.session, number)

    async def publish(self, bodies: list[bytes], first: int, *, resent: bool = False) -> None:
        buffer = block.pack(bodies, lane=self.lane(), first=first, timestamp=1)
        self._writer.write(frames.publish_frame(1, buffer, resent=resent))
        await self._writer.drain()

    # ---- what the server says

    async def confirmed(self) -> tuple[int, int]:
        """The next confirmation: lane and sequence."""
        while True:
            kind, _, _, payload = await self._frame()
            if kind == frames.CONFIRM:
                lane, last = frames.PAIR.unpack_from(payload)
                return lane, last

    async def refused(self) -> frames.Refused:
        return await self._answer(frames.Refused)

    async def _answer(self, wanted: type[R]) -> R:
        while True:
            kind, _, _, payload = await self._frame()
            if kind == frames.CONTROL:
                message = frames.decode_from_server(payload)
                assert isinstance(message, wanted), message
                return message

    async def _frame(self) -> frames.Frame:
        async with asyncio.timeout(SECONDS):
            while not self._frames:
                data = await self._reader.read(1 << 16)
                assert data, "the server ended the connection"
                self._frames += self._cutter.feed(data)
        return self._frames.pop(0)

    def _next(self) -> int:
        self._requests += 1
        return self._requests
