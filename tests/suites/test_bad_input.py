"""Whatever a client sends, a real server says what was wrong and serves the others as if nothing had been.

In every story a well-behaved neighbour sends and receives on the same server all the while.
"""

from __future__ import annotations

import asyncio
import gc
import os
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvloop

from heliograph.frontends.native import frames
from heliograph.frontends.native.frames import (
    CONFIRM,
    CONFIRM_SETTLEMENT,
    CONTROL,
    DELIVER,
    DELIVERY,
    DONE,
    HEARTBEAT,
    PAIR,
    PREAMBLE,
    PUBLISH,
    RETURNED,
    Completed,
    ConsumerClosed,
    Control,
    Failed,
    FrameReader,
    FromServer,
    Goodbye,
    Hello,
    LaneOpened,
    OpenLane,
    OpenSession,
    Refused,
    SessionOpened,
    Settled,
    Subscribe,
    Unsubscribe,
    Welcome,
    control_frame,
    pack_header,
)
from heliograph.model import block
from heliograph.model.ids import LaneId, SessionId, lane_of
from heliograph.model.limits import (
    MAX_CREDIT,
    MAX_FRAME_BYTES,
    MAX_GREETING_BYTES,
    MAX_SESSIONS_PER_CONNECTION,
)
from heliograph.nodes.configuration import load
from heliograph.nodes.connection import Connection as ServerConnection
from heliograph.nodes.embedded import EmbeddedServer
from heliograph.nodes.users import UserStore
from tests.properties.block_strategies import resealed

pytestmark = pytest.mark.req("X2")

DEADLINE_SECONDS = 60.0
MIB = 1024 * 1024
M = TypeVar("M")


class Peer:
    """A client that sends exactly what the test says."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._cutter = FrameReader(limit=2 * MAX_FRAME_BYTES)
        self._waiting: list[FromServer] = []
        self.confirmed: dict[int, int] = {}
        self.deliveries: list[tuple[int, int, int, block.Contents]] = []
        self.session = SessionId(b"")

    def write(self, raw: bytes) -> None:
        self._writer.write(raw)

    async def is_pushed_back(self, seconds: float) -> bool:
        """Whether the server has stopped taking what was written."""
        try:
            async with asyncio.timeout(seconds):
                await self._writer.drain()
        except TimeoutError:
            return True
        return False

    def tell(self, *messages: Control) -> None:
        for message in messages:
            self.write(control_frame(message))

    @property
    def has_news(self) -> bool:
        return bool(self._waiting)

    async def hear(self, kind: type[M], seconds: float = DEADLINE_SECONDS) -> M:
        """The next control message, which must be of this kind."""
        async with asyncio.timeout(seconds):
            while not self._waiting:
                assert await self._read(), f"the connection ended before {kind.__name__}"
        message = self._waiting.pop(0)
        assert isinstance(message, kind), message
        return message

    async def until(self, condition: Callable[[], object]) -> None:
        """Read until a condition holds."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not condition():
                assert await self._read(), "the connection ended"

    async def delivered(self, times: int) -> None:
        await self.until(lambda: len(self.deliveries) >= times)

    async def dismissed(self) -> Goodbye:
        """The server's goodbye; nothing may come after it but the end."""
        goodbye = await self.hear(Goodbye)
        async with asyncio.timeout(DEADLINE_SECONDS):
            while await self._read():
                assert self._waiting == []
        return goodbye

    async def ended(self) -> None:
        """The end, without a word."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            with suppress(ConnectionError):
                assert await self._reader.read() == b""

    async def _read(self) -> bool:
        data = b""
        with suppress(ConnectionError):
            data = await self._reader.read(1 << 20)
        for kind, _flags, _number, payload in self._cutter.feed(data) if data else ():
            if kind == CONTROL:
                self._waiting.append(frames.decode_from_server(payload))
            elif kind == CONFIRM:
                self.confirmed.update(PAIR.iter_unpack(payload))
            elif kind == DELIVER:
                consumer, earlier, tag, user_bytes = DELIVERY.unpack_from(payload)
                contents = block.unpack(payload[DELIVERY.size + user_bytes :])
                self.deliveries.append((consumer, earlier, tag, contents))
            else:
                assert kind == HEARTBEAT, kind
        return bool(data)

    def close(self) -> None:
        self._writer.transport.abort()

    # ---- what a well-behaved client would do

    async def greet(self, hello: Hello | None = None) -> Welcome:
        self.write(PREAMBLE)
        self.tell(hello or Hello())
        return await self.hear(Welcome)

    async def open_session(self, number: int = 0) -> None:
        self.tell(OpenSession(request=1, number=number))
        self.session = SessionId((await self.hear(SessionOpened)).session)

    async def open_lane(self, destination: str = "queue:orders", lane: int = 1) -> LaneId:
        self.tell(OpenLane(request=2, number=0, lane=lane, destination=destination))
        await self.hear(LaneOpened)
        return lane_of(self.session, lane)

    async def subscribe(
        self, destination: str = "queue:orders", consumer: int = 1, credit: int = 100
    ) -> None:
        self.tell(Subscribe(request=3, number=0, consumer=consumer, destination=destination, credit=credit))
        await self.hear(Completed)

    def publish(self, lane: LaneId, first: int, *bodies: bytes) -> None:
        self.write(frames.publish_frame(0, block.pack(bodies, lane=lane, first=first)))

    async def published(self, lane: LaneId, first: int, *bodies: bytes) -> None:
        """Publish, and wait for the confirmation."""
        self.publish(lane, first, *bodies)
        last = first + len(bodies) - 1
        await self.until(lambda: self.confirmed.get(int.from_bytes(lane[14:], "big"), 0) >= last)

    def settle(self, *ranges: tuple[int, int], outcome: int = DONE, confirm: bool = False) -> None:
        flags = CONFIRM_SETTLEMENT if confirm else 0
        self.write(frames.settle_frame(0, 1, outcome, list(ranges), flags))


async def assert_dismissed(peer: Peer, raw: bytes, code: str) -> None:
    """Whoever sends this is told why, and sent away."""
    peer.write(raw)
    goodbye = await peer.dismissed()
    assert goodbye.code == code
    assert goodbye.sentence


class House:
    """A server, and a neighbour who must never notice anything."""

    def __init__(self, server: EmbeddedServer) -> None:
        self.server = server
        self.rounds = 0
        self._peers: list[Peer] = []

    async def stranger(self) -> Peer:
        """A connection on which nothing was said."""
        host, port = self.server.address
        peer = Peer(*await asyncio.open_connection(host, port))
        self._peers.append(peer)
        return peer

    async def guest(self) -> Peer:
        """One who greeted and has session 0."""
        peer = await self.stranger()
        await peer.greet()
        await peer.open_session()
        return peer

    async def live_next_door(self, hello: Hello) -> None:
        """Send a message, get it back, settle it; again and again."""
        peer = await self.stranger()
        await peer.greet(hello)
        await peer.open_session()
        lane = await peer.open_lane("queue:neighbour")
        await peer.subscribe("queue:neighbour")
        while True:
            await peer.published(lane, self.rounds + 1, b"good morning")
            await peer.delivered(1)
            _consumer, earlier, tag, contents = peer.deliveries.pop()
            assert (earlier, tag, contents.bodies) == (0, self.rounds + 1, [b"good morning"])
            peer.settle((tag, tag), confirm=True)
            assert await peer.hear(Settled) == Settled(0, 1)
            peer.write(frames.credit_frame(0, 1, 1))
            self.rounds += 1

    def leave(self) -> None:
        for peer in self._peers:
            peer.close()


@asynccontextmanager
async def house(folder: Path, hello: Hello | None = None, **settings: object) -> AsyncIterator[House]:
    """Start a server with a neighbour; at the end both must be well."""
    named = {name.replace("__", "."): value for name, value in settings.items()}
    fixed = {"server.host": "127.0.0.1", "server.port": 0, "server.data": str(folder)}
    small = {"journal.segment_bytes": MIB}
    server = EmbeddedServer(load(None, {**small, **named, **fixed}))
    await server.start()
    here = House(server)
    failure = asyncio.create_task(server.wait_failed())
    neighbour = asyncio.create_task(here.live_next_door(hello or Hello()))
    try:
        yield here
        seen = here.rounds
        async with asyncio.timeout(DEADLINE_SECONDS):
            while here.rounds < seen + 3 and not neighbour.done():
                await asyncio.sleep(0.001)
        assert not failure.done(), failure.result()
        if neighbour.done():
            neighbour.result()
    finally:
        neighbour.cancel()
        failure.cancel()
        here.leave()
        await asyncio.gather(neighbour, failure, return_exceptions=True)
        await server.stop()


def play(story: Callable[[], Awaitable[Any]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(150):
            await story()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(limited())


# ---- before the greeting


@pytest.mark.parametrize(
    ("noise", "code"),
    [
        (b"EHLO mail.example\r\nMAIL FROM:<ann@mail.example>\r\n", "not-heliograph"),
        (b"\x17\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "not-heliograph"),
        (bytes(range(256)) * 400, "not-heliograph"),
        (b"HELIO\x02\r\n", "not-heliograph"),
        (PREAMBLE + pack_header(MAX_GREETING_BYTES + 1, CONTROL, 0, 0), "frame-too-long"),
        (PREAMBLE + pack_header(0xFFFFFFFF, PUBLISH, 0, 0), "frame-too-long"),
        (PREAMBLE + pack_header(0, 200, 0, 0), "not-greeted"),
        (PREAMBLE + frames.HEARTBEAT_FRAME, "not-greeted"),
        (PREAMBLE + control_frame(OpenSession(1, 0)), "not-greeted"),
        (PREAMBLE + control_frame(Subscribe(1, 0, 1, "queue:orders", 5)), "not-greeted"),
        (
            PREAMBLE + frames.publish_frame(0, block.pack_lone(b"x", lane=LaneId(bytes(16)), sequence=1)),
            "not-greeted",
        ),
        (PREAMBLE + control_frame(Hello()) + control_frame(OpenSession(1, 0)), "not-greeted"),
        (PREAMBLE + control_frame(Hello(version=99)), "version-unknown"),
        (PREAMBLE + pack_header(4, CONTROL, 0, 0) + b"\xc1\xc1\xc1\xc1", "control-malformed"),
        (
            PREAMBLE + pack_header(19, CONTROL, 0, 0) + b"\x82\xa4type\xa5hello\xa4user\xa1\xff",
            "control-malformed",
        ),
    ],
    ids=lambda part: part if isinstance(part, str) else f"{len(part)}-bytes",
)
def test_a_stranger_that_does_not_greet_is_told_and_sent_away(
    tmp_path: Path, noise: bytes, code: str
) -> None:
    async def story() -> None:
        async with house(tmp_path) as here:
            peer = await here.stranger()
            await assert_dismissed(peer, noise, code)

    play(story)


def test_a_connection_on_which_nobody_greets_is_dropped_in_time(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path, limits__handshake_seconds=0.3) as here:
            silent, slow = await here.stranger(), await here.stranger()
            slow.write(PREAMBLE + pack_header(100, CONTROL, 0, 0) + b"x")
            began = time.monotonic()
            await asyncio.gather(silent.ended(), slow.ended())
            assert 0.2 < time.monotonic() - began < 8, "ten seconds are what it has otherwise"

    play(story)


@pytest.mark.slow
def test_a_wrong_password_and_an_unknown_user_hear_the_same(tmp_path: Path) -> None:
    async def story() -> None:
        users = UserStore.load(tmp_path / "users.toml")
        users.add("ann", "correct horse", ["admin"])
        ann = Hello(mechanism="plain", user="ann", password="correct horse")
        async with house(tmp_path, ann) as here:
            told = []
            for hello in (
                Hello(mechanism="plain", user="ann", password="wrong"),
                Hello(mechanism="plain", user="nobody", password="correct horse"),
                Hello(mechanism="plain", user="ann", password=""),
                Hello(mechanism="plain", user="", password=""),
            ):
                peer = await here.stranger()
                peer.write(PREAMBLE)
                peer.tell(hello)
                told.append(await peer.dismissed())
            assert set(map(repr, told)) == {
                repr(Goodbye("not-authenticated", "the user is not known or the password is wrong"))
            }
            for mechanism, code in (
                ("anonymous", "not-authenticated"),
                ("", "mechanism-unknown"),
                ("external", "certificate-missing"),
            ):
                peer = await here.stranger()
                peer.write(PREAMBLE)
                peer.tell(Hello(mechanism=mechanism, user="ann"))
                assert (await peer.dismissed()).code == code
            assert (await (await here.stranger()).greet(ann)).user == "ann"

    play(story)


# ---- frames


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (pack_header(MAX_FRAME_BYTES + 1, PUBLISH, 0, 0), "frame-too-long"),
        (pack_header(0xFFFFFFFF, CONTROL, 0, 0), "frame-too-long"),
        (pack_header(0, 0, 0, 0), "frame-unknown"),
        (pack_header(5, 99, 0, 0) + b"abcde", "frame-unknown"),
        (pack_header(16, CONFIRM, 0, 0) + bytes(16), "frame-unknown"),
        (pack_header(3, frames.CREDIT, 0, 0) + b"abc", "frame-malformed"),
        (pack_header(9, frames.SETTLE, 0, 0) + bytes(9), "frame-malformed"),
        (frames.settle_frame(0, 1, 7, [(1, 1)]), "frame-malformed"),
        (pack_header(10, PUBLISH, 0, 0) + bytes(10), "block-malformed"),
        (frames.publish_frame(0, bytes(200)), "block-malformed"),
        (control_frame(Hello()), "greeted-twice"),
        (pack_header(1, CONTROL, 0, 0) + b"\xc1", "control-malformed"),
        (control_frame(frames.Ask(1, "x" * 70_000)), "control-too-long"),
        (frames.credit_frame(7, 1, 1), "session-unknown"),
        (frames.settle_frame(65535, 1, DONE, [(1, 1)]), "session-unknown"),
        (control_frame(OpenLane(1, -5, 1, "queue:orders")), "session-unknown"),
        (control_frame(Unsubscribe(1, 2**40, 1)), "session-unknown"),
    ],
    ids=lambda part: part if isinstance(part, str) else f"{len(part)}-bytes",
)
def test_a_guest_that_breaks_the_protocol_is_told_and_sent_away(
    tmp_path: Path, raw: bytes, code: str
) -> None:
    async def story() -> None:
        async with house(tmp_path) as here:
            peer = await here.guest()
            await assert_dismissed(peer, raw, code)

    play(story)


def test_a_connection_that_ends_in_the_middle_of_anything_harms_nobody(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path) as here:
            lane = LaneId(bytes(16))
            whole = (
                PREAMBLE
                + control_frame(Hello())
                + frames.publish_frame(0, block.pack_lone(b"x", lane=lane, sequence=1))
            )
            for end in range(0, len(whole), 7):
                peer = await here.stranger()
                peer.write(whole[:end])
                peer.close()
            for rest in (b"", b"\x50", pack_header(5_000_000, PUBLISH, 0, 0) + bytes(100_000)):
                peer = await here.guest()
                peer.write(rest)
                await asyncio.sleep(0)
                peer.close()

    play(story)


# ---- names, lanes, consumers


@pytest.mark.req("J1")
def test_names_that_cannot_be_are_refused_by_their_reason_and_the_connection_stays(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path) as here:
            peer = await here.guest()
            refusals = {
                "": "invalid-destination",
                "orders": "invalid-destination",
                "exchange:orders": "invalid-destination",
                "queue:": "name-empty",
                "topic:" + "n" * 256: "name-too-long",
                "queue:" + "n" * 60_000: "name-too-long",
                "queue:_secret": "name-reserved",
                "queue:or\x00ders": "name-unprintable",
                "topic:\x1b[31m": "name-unprintable",
            }
            for request, (name, code) in enumerate(refusals.items()):
                peer.tell(OpenLane(request, 0, 1, name), Subscribe(request, 0, 1, name, 1))
                for _ in range(2):
                    failed = await peer.hear(Failed)
                    assert (failed.request, failed.code) == (request, code)
                    assert failed.sentence
                    assert len(failed.sentence) < 300
            await peer.open_lane("queue:orders")

    play(story)


def test_numbers_that_cannot_be_are_refused_and_the_connection_stays(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path) as here:
            peer = await here.guest()
            await peer.open_lane("queue:orders", 1)
            await peer.subscribe("queue:orders", 1)
            wrong: list[tuple[Control, str]] = [
                (OpenSession(9, -1), "session-number-invalid"),
                (OpenSession(9, MAX_SESSIONS_PER_CONNECTION), "session-number-invalid"),
                (OpenSession(9, 0), "session-number-invalid"),
                (OpenSession(9, 1, b"nonsense", b"nonsense"), "session-unknown"),
                (OpenSession(9, 1, peer.session, b"stolen?"), "session-unknown"),
                (frames.CloseSession(9, 77), "session-unknown"),
                (OpenLane(9, 0, 0, "queue:orders"), "lane-invalid"),
                (OpenLane(9, 0, 65_536, "queue:orders"), "lane-invalid"),
                (OpenLane(9, 0, 1, "queue:others"), "lane-exists"),
                (Subscribe(9, 0, 1, "queue:orders", 1), "consumer-exists"),
                (Subscribe(9, 0, -1, "queue:orders", 1), "consumer-invalid"),
                (Subscribe(9, 0, 2**32, "queue:orders", 1), "consumer-invalid"),
                (Subscribe(9, 0, 2, "queue:orders", MAX_CREDIT + 1), "credit-invalid"),
                (Subscribe(9, 0, 2, "queue:orders", -1), "credit-invalid"),
                (Unsubscribe(9, 0, 55), "consumer-unknown"),
                (frames.Ask(9, "the meaning of life"), "subject-unknown"),
            ]
            for message, code in wrong:
                peer.tell(message)
                failed = await peer.hear(Failed)
                assert (failed.request, failed.code) == (9, code), message
                assert failed.sentence
            await peer.subscribe("queue:orders", 2**32 - 1)

    play(story)


def test_credit_beyond_the_limit_ends_the_connection(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path) as here:
            peer = await here.guest()
            await peer.subscribe()
            peer.write(frames.credit_frame(0, 1, MAX_CREDIT + 1))
            assert (await peer.dismissed()).code == "credit-invalid"

    play(story)


def test_a_block_on_a_lane_that_is_not_open_ends_the_connection(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path) as here:
            peer = await here.guest()
            peer.publish(lane_of(peer.session, 1), 1, b"x")
            assert (await peer.dismissed()).code == "lane-unknown"
            victim, thief = await here.guest(), await here.guest()
            lane = await victim.open_lane()
            thief.publish(lane, 1, b"in your name")
            assert (await thief.dismissed()).code == "lane-unknown"
            await victim.published(lane, 1, b"mine")

    play(story)


@pytest.mark.req("J11")
def test_a_gap_in_a_lane_is_refused_and_the_lane_with_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path) as here:
            peer = await here.guest()
            lane = await peer.open_lane()
            await peer.published(lane, 1, b"one", b"two")
            peer.publish(lane, 5, b"five")
            await peer.until(lambda: peer.has_news or peer.confirmed[1] > 2)
            refused = await peer.hear(Refused, seconds=0.1)
            assert (refused.lane, refused.first, refused.code) == (1, 3, "sequence-gap")
            again = await peer.open_lane("queue:orders", 2)
            await peer.published(again, 1, b"three")

    play(story)


def test_a_sequence_at_the_end_of_all_numbers_stops_nobody(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path) as here:
            for first in (2**64 - 1, 2**63, 2**63 - 2):
                peer = await here.guest()
                lane = await peer.open_lane()
                honest = bytearray(block.pack([b"a", b"b"], lane=lane, first=1))
                struct.pack_into("<Q", honest, 48, first)
                peer.write(frames.publish_frame(0, resealed(honest)))
                assert (await peer.dismissed()).code == "block-malformed"

    play(story)


# ---- settling


@pytest.mark.req("J4")
@pytest.mark.parametrize("outcome", [DONE, RETURNED])
def test_settling_what_one_does_not_have_ends_the_consumer_and_loses_nothing(
    tmp_path: Path, outcome: int
) -> None:
    async def story() -> None:
        async with house(tmp_path) as here:
            peer = await here.guest()
            lane = await peer.open_lane()
            await peer.subscribe()
            await peer.published(lane, 1, b"one", b"two")
            await peer.delivered(1)
            peer.settle((7, 9), outcome=outcome, confirm=True)
            closed = await peer.hear(ConsumerClosed)
            assert (closed.consumer, closed.code) == (1, "settlement-unknown")
            await peer.subscribe("queue:orders", 2)
            await peer.delivered(2)
            consumer, earlier, _tag, contents = peer.deliveries[1]
            assert (consumer, earlier, contents.bodies) == (2, 1, [b"one", b"two"])
            peer.write(frames.settle_frame(0, 2, DONE, [(1, 2)], CONFIRM_SETTLEMENT))
            await peer.hear(Settled)

    play(story)


def test_settling_what_one_does_not_have_without_asking_changes_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path) as here:
            peer = await here.guest()
            lane = await peer.open_lane()
            await peer.subscribe()
            await peer.published(lane, 1, b"one", b"two")
            await peer.delivered(1)
            for ranges in ([(7, 9)], [(0, 0)], [(2, 1)], [(1, 2**64 - 1)], [(3, 3)] * 100, []):
                peer.settle(*ranges)
            peer.settle((1, 2), confirm=True)
            assert await peer.hear(Settled) == Settled(0, 1)

    play(story)


@pytest.mark.req("M8")
def test_a_client_that_leaves_before_its_settlement_is_stored_harms_nobody(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path) as here:
            for leave in (frames.CloseSession(5, 0), Goodbye()):
                peer = await here.guest()
                lane = await peer.open_lane()
                await peer.subscribe()
                await peer.published(lane, 1, b"one")
                await peer.delivered(1)
                settlement = frames.settle_frame(0, 1, DONE, [(1, 1)], CONFIRM_SETTLEMENT)
                peer.write(settlement + control_frame(leave))
                rounds = here.rounds
                async with asyncio.timeout(DEADLINE_SECONDS):
                    while here.rounds < rounds + 3:
                        await asyncio.sleep(0.001)

    play(story)


# ---- pushing


@pytest.mark.req("M7")
@pytest.mark.slow
def test_a_client_that_does_not_read_its_answers_is_not_read_from(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path) as here:
            peer = await here.guest()
            request = control_frame(Subscribe(1, 0, 1, "exchange:" + "n" * 30, 1))
            for _ in range(100):
                peer.write(request * 2000)
                if await peer.is_pushed_back(0.5):
                    return
            raise AssertionError("the server keeps 200,000 answers for somebody who does not want them")

    play(story)


@pytest.mark.req("M7")
@pytest.mark.slow
def test_sessions_closed_before_their_confirmations_do_not_stop_the_connection(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with house(tmp_path) as here:
            peer = await here.guest()
            body = bytes(4 * MIB)
            for number in range(1, 13):
                peer.tell(OpenSession(1, number))
                session = SessionId((await peer.hear(SessionOpened)).session)
                peer.tell(OpenLane(2, number, 1, "queue:orders"))
                await peer.hear(LaneOpened)
                buffer = block.pack_lone(body, lane=lane_of(session, 1), sequence=1)
                peer.write(frames.publish_frame(number, buffer))
                peer.tell(frames.CloseSession(3, number))
                await peer.hear(Completed)

    play(story)


# ---- in numbers


def _resident_bytes() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def least_growth(work: Callable[[], Awaitable[None]], enough: int) -> int:
    """By how many bytes the process grows at least while this is done: up to five times, until it is less than
    `enough`. What leaks does so each time; but Python takes memory by the mebibyte, for whatever needs it next in a
    process that has run thousands of tests."""
    growth = []
    for _ in range(5):
        before = _resident_bytes()
        await work()
        growth.append(_resident_bytes() - before)
        if growth[-1] < enough:
            break
    return min(growth)


def _connections() -> int:
    """How many there are in this process, of whichever server: other tests may have left some."""
    gc.collect()
    return sum(isinstance(each, ServerConnection) for each in gc.get_objects())


ABUSES = [
    b"GET / HTTP/1.1\r\n\r\n",
    PREAMBLE + pack_header(0xFFFFFFFF, PUBLISH, 0, 0),
    PREAMBLE + pack_header(4096, CONTROL, 0, 0) + bytes(4000),
    PREAMBLE + control_frame(Hello()) + frames.HEARTBEAT_FRAME,
    PREAMBLE + control_frame(Hello(version=7)),
    PREAMBLE,
    b"",
    PREAMBLE + control_frame(Hello(user="u" * 3000)),
]


@pytest.mark.slow
def test_two_thousand_abusive_connections_leave_nothing_behind(tmp_path: Path) -> None:
    async def abuse(here: House, number: int) -> None:
        host, port = here.server.address
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(ABUSES[number % len(ABUSES)])
        if number % 2:
            with suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(0.01):
                    await reader.read(1000)
        writer.transport.abort()

    async def abuses(here: House, count: int) -> None:
        for start in range(0, count, 20):
            await asyncio.gather(*[abuse(here, start + number) for number in range(20)])

    async def story() -> None:
        async with house(tmp_path) as here:
            await abuses(here, 400)
            others, rounds = _connections(), here.rounds
            grown = await least_growth(lambda: abuses(here, 2000), 1 * MIB)
            alive = _connections() - others
            print(f"{grown} bytes and {alive} connections more are still there")
            assert grown < 1 * MIB
            assert alive < 50, "each protocol violation leaves its connection behind"
            assert here.rounds > rounds, "the neighbour was not served"

    play(story)


@pytest.mark.slow
def test_thousands_of_refused_requests_on_one_connection_leave_nothing_behind(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path, destinations__create_on_first_use=True) as here:
            peer = await here.guest()

            async def ask(count: int) -> None:
                for start in range(0, count, 100):
                    names = [f"queue:{start + number:x}" + "n" * 20_000 for number in range(100)]
                    peer.tell(*[Subscribe(1, 0, 1, name, 1) for name in names])
                    for _ in names:
                        assert (await peer.hear(Failed)).code == "name-too-long"

            await ask(1000)
            assert await least_growth(lambda: ask(3000), 4 * MIB) < 4 * MIB

    play(story)
