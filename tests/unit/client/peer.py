"""A server's end of the native protocol, scripted by a test: it decides only what the test says."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from heliograph.frontends.native import frames
from heliograph.frontends.native.frames import (
    CONFIRM,
    CONTROL,
    DELIVER,
    DELIVERY,
    PAIR,
    PREAMBLE,
    PUBLISH,
    SETTLE,
    Control,
    FrameReader,
    pack_header,
)
from heliograph.model import block
from heliograph.model.ids import IdIssuer, SessionId, lane_number

DEADLINE_SECONDS = 30.0
T = TypeVar("T")


class Line:
    """One accepted connection."""

    def __init__(self, peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.peer = peer
        self.reader = reader
        self.writer = writer
        self.received: list[Any] = []
        self.published: list[tuple[int, bool, block.Contents]] = []
        self.staged: list[bool] = []  # of each block published
        self.settled: list[tuple[int, int, list[tuple[int, int]], int]] = []
        self.credit: list[tuple[int, int]] = []

    def send(self, message: Control) -> None:
        self.writer.write(frames.control_frame(message))

    def confirm(self, lane: int, upto: int, *, session: int = 1) -> None:
        payload = PAIR.pack(lane, upto)
        self.writer.write(pack_header(len(payload), CONFIRM, 0, session) + payload)

    def deliver(
        self,
        buffer: bytes,
        *,
        first_tag: int,
        consumer: int = 1,
        earlier: int = 0,
        user: str = "",
        session: int = 1,
    ) -> None:
        name = user.encode()
        payload = DELIVERY.pack(consumer, earlier, first_tag, len(name)) + name + buffer
        self.writer.write(pack_header(len(payload), DELIVER, 0, session) + payload)

    def cut(self) -> None:
        """End the connection as a crash would."""
        self.writer.transport.abort()

    async def serve(self) -> None:
        assert await self.reader.readexactly(len(PREAMBLE)) == PREAMBLE
        cutter = FrameReader()
        while data := await self.reader.read(1 << 20):
            for kind, flags, number, payload in cutter.feed(data):
                if kind == CONTROL:
                    message = frames.decode_from_client(payload)
                    self.received.append(message)
                    self.peer.answer(self, message)
                elif kind == PUBLISH:
                    contents = block.unpack(payload)
                    self.published.append((number, bool(flags & frames.RESENT), contents))
                    self.staged.append(bool(flags & frames.STAGED))
                    self.peer.on_publish(self, number, contents)
                elif kind == SETTLE:
                    consumer, outcome = frames.SETTLEMENT.unpack_from(payload)
                    ranges = list(PAIR.iter_unpack(payload[frames.SETTLEMENT.size :]))
                    self.settled.append((consumer, outcome, ranges, flags))
                    self.peer.on_settle(self, consumer, flags)
                elif kind == frames.CREDIT:
                    self.credit.append(frames.CREDIT_BODY.unpack(payload))
            self.peer.changed.set()


class Peer:
    """Welcomes everybody, opens whatever is asked for, confirms at once unless `confirms` is False."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.changed = asyncio.Event()
        self.confirms = True
        self.settles = True
        self.welcomes = True
        self.known: dict[bytes, list[tuple[int, str, int]]] = {}
        self.heartbeat_seconds = 10.0
        # What consumers that come back are told: whether they go on, and what they do not have any more.
        self.resumes = False
        self.gone: list[tuple[int, int]] = []
        # What to answer instead of the usual, by the type of the request.
        self.replies: dict[type[Control], Callable[[Any], Control | None]] = {}
        self.port = 0
        self._ids = IdIssuer(site=1, node=1, started_ms=1)
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"helio://127.0.0.1:{self.port}"

    @property
    def line(self) -> Line:
        return self.lines[-1]

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def go_away(self) -> None:
        """Stop listening and cut every connection."""
        assert self._server is not None
        self._server.close()
        for line in self.lines:
            line.cut()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = Line(self, reader, writer)
        self.lines.append(line)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await line.serve()
        writer.close()

    def answer(self, line: Line, message: Any) -> None:
        special = self.replies.get(type(message))
        reply = special(message) if special is not None else self._usual(message)
        if reply is not None:
            line.send(reply)

    def _usual(self, message: Any) -> Control | None:
        match message:
            case frames.Hello():
                if not self.welcomes:
                    return None
                return frames.Welcome(
                    version=1, server="peer", user=message.user, heartbeat_seconds=self.heartbeat_seconds
                )
            case frames.OpenSession(request=request, resume=resume):
                lanes = self.known.get(resume, [])
                if resume and resume not in self.known:
                    return frames.Failed(request=request, code="session-unknown", sentence="no such session")
                session = SessionId(resume) if resume else self._ids.session()
                return frames.SessionOpened(
                    request=request, session=session, token=b"token", resumed=bool(resume), lanes=lanes
                )
            case frames.OpenLane(request=request):
                return frames.LaneOpened(request=request)
            case frames.Ask(request=request):
                return frames.Answer(request=request, body={"subject": message.subject, **message.arguments})
            case frames.MakeTemporary(request=request, kind=kind):
                return frames.Answer(request=request, body={"destination": f"{kind}:_temporary.{request}"})
            case frames.Subscribe(request=request, claim=claim) if claim is not None:
                return frames.Answer(request=request, body={"resumed": self.resumes, "gone": self.gone})
            case frames.Return(number=number, consumer=consumer):
                return frames.Recalled(number, consumer, [])
            case frames.Goodbye():
                return None
            case _:
                return frames.Completed(request=message.request)

    def on_publish(self, line: Line, number: int, contents: block.Contents) -> None:
        if self.confirms:
            line.confirm(lane_number(contents.lane), contents.first + contents.count - 1, session=number)

    def on_settle(self, line: Line, consumer: int, flags: int) -> None:
        if self.settles and flags & frames.CONFIRM_SETTLEMENT:
            line.send(frames.Settled(number=1, consumer=consumer))

    def asked(self, kind: type[T], *, line: int = -1) -> list[T]:
        """The requests of one kind that came on a connection."""
        return [message for message in self.lines[line].received if isinstance(message, kind)]

    async def until(self, condition: Callable[[], T]) -> T:
        """Wait until something that arrived makes the condition true."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not (found := condition()):
                self.changed.clear()
                await self.changed.wait()
        return found


@contextlib.asynccontextmanager
async def listening() -> AsyncIterator[Peer]:
    peer = Peer()
    await peer.listen()
    try:
        yield peer
    finally:
        await peer.go_away()


def story(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Run an asyncio test, with a deadline."""

    def run() -> None:
        async def limited() -> None:
            async with asyncio.timeout(3 * DEADLINE_SECONDS):
                await test()

        asyncio.run(limited())

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    return run
