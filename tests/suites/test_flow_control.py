"""Flow control on a real server: who is told to wait, who is not, and that order is kept (M7)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

import heliograph
from heliograph import HeliographError
from heliograph.frontends.native import frames
from heliograph.model.block import pack
from heliograph.model.ids import LaneId, SessionId, lane_of
from heliograph.model.limits import PRODUCER_WINDOW_MESSAGES
from tests.servers import ServerProcess, embedded, play, until, url_of
from tests.suites.exchange import receive_all, send_all
from tests.suites.test_command_line import serving

pytestmark = pytest.mark.req("M7")

SMALL = {"policies": [{"destinations": "*:small", "high_water_messages": 100}]}


def test_a_full_queue_tells_its_producers_and_they_go_on_in_order(tmp_path: Path) -> None:
    async def story() -> None:
        told: list[tuple[str, str]] = []
        async with embedded(tmp_path, SMALL) as server, heliograph.connect(url_of(server)) as connection:
            connection.on_blocked = lambda destination, reason: told.append((destination, reason))
            producer = await connection.producer("queue:small")
            await send_all(producer, [b"%d" % n for n in range(100)])
            await until(lambda: producer.is_blocked, "the producer is told")
            assert connection.is_blocked("queue:small")
            assert not connection.is_blocked("queue:other")
            assert told == [("queue:small", "messages")]
            assert not await producer.try_send(b"refused")
            with pytest.raises(HeliographError) as late:
                await producer.send(b"late", timeout=0.05)
            assert late.value.code == "send-timeout"
            waiting = asyncio.create_task(send_all(producer, [b"%d" % n for n in range(100, 500)]))
            await asyncio.sleep(0.1)
            assert not waiting.done()
            async with await connection.consumer("queue:small") as consumer:
                messages = await receive_all(consumer, 500)
            assert [message.body for message in messages] == [b"%d" % n for n in range(500)]
            await waiting
            await until(lambda: not producer.is_blocked, "the producer is told that it may go on")
            assert told[1] == ("queue:small", "")
            assert await producer.try_send(b"taken")

    play(story())


def test_it_is_not_told_to_go_on_before_there_is_room_for_a_while(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path, SMALL) as server, heliograph.connect(url_of(server)) as connection:
            producer = await connection.producer("queue:small")
            await send_all(producer, [b"x"] * 100)
            await until(lambda: producer.is_blocked, "blocked")
            session = await connection.session(acknowledge="client")
            consumer = await session.consumer("queue:small", credit=1000)
            await receive_all(consumer, 19)
            await session.acknowledge(confirm=True)
            assert producer.is_blocked  # 81 are left
            await receive_all(consumer, 1)
            await session.acknowledge(confirm=True)
            await until(lambda: not producer.is_blocked, "80 are left")

    play(story())


def test_only_those_who_send_there_are_told(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path, SMALL) as server:
            url = url_of(server)
            async with (
                heliograph.connect(url) as one,
                heliograph.connect(url) as two,
                heliograph.connect(url) as three,
            ):
                first, second = await one.producer("queue:small"), await two.producer("queue:small")
                elsewhere = await three.producer("queue:other")
                await send_all(first, [b"x"] * 150)
                await until(lambda: first.is_blocked and second.is_blocked, "both are told")
                late = await three.producer("queue:small")
                assert late.is_blocked  # told when it came
                assert not elsewhere.is_blocked
                await send_all(elsewhere, [b"y"] * 5000)
                await send_all(await one.producer("queue:third"), [b"z"] * 5000)
                await one.ask("destination.purge", destination="queue:small")
                await until(
                    lambda: not (first.is_blocked or second.is_blocked or late.is_blocked), "all go on"
                )

    play(story())


def test_a_mark_in_bytes_and_a_mark_that_is_changed(tmp_path: Path) -> None:
    async def story() -> None:
        rules = {"policies": [{"destinations": "queue:b", "high_water_bytes": 50_000}]}
        async with embedded(tmp_path, rules) as server, heliograph.connect(url_of(server)) as connection:
            producer = await connection.producer("queue:b")
            await send_all(producer, [b"x" * 10_000] * 4)
            assert not producer.is_blocked
            await send_all(producer, [b"x" * 10_000])
            await until(lambda: producer.is_blocked, "50,000 bytes are there")
            show = await connection.ask("destination.show", destination="queue:b")
            assert show["blocked"] == "bytes"
            assert 50_000 <= show["held_bytes"] < 52_000
            await connection.ask(
                "destination.set", destination="queue:b", policy={"high_water_bytes": 100_000}
            )
            await until(lambda: not producer.is_blocked, "the mark is higher")
            await connection.ask("destination.set", destination="queue:b", policy={"high_water_messages": 5})
            await until(lambda: producer.is_blocked, "another mark is lower")

    play(story())


def test_a_slow_subscriber_holds_up_its_topic_only_beyond_the_mark(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path, SMALL) as server, heliograph.connect(url_of(server)) as connection:
            slow_session = await connection.session(acknowledge="client")
            slow = await slow_session.consumer("topic:small", credit=1)
            quick = await connection.consumer("topic:small")
            producer = await connection.producer("topic:small")
            await send_all(producer, [b"%d" % n for n in range(90)])
            assert len(await receive_all(quick, 90)) == 90
            assert not producer.is_blocked
            await send_all(producer, [b"more"] * 10)
            await until(lambda: producer.is_blocked, "the slow one is a hundred behind")
            await receive_all(quick, 10)
            assert await quick.receive(timeout=0.1) is None  # which settles what it was given
            assert producer.is_blocked
            await slow.close()
            await until(lambda: not producer.is_blocked, "nobody is behind")

    play(story())


def test_transactions_count_too(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path, SMALL) as server, heliograph.connect(url_of(server)) as connection:
            session = await connection.session(acknowledge="transacted")
            producer = await session.producer("queue:small")
            for _ in range(150):
                await producer.send(b"x")
            await session.commit()
            other = await connection.producer("queue:small")
            await other.send(b"y")
            await until(lambda: producer.is_blocked and other.is_blocked, "both are told")

    play(story())


@pytest.mark.crash
@pytest.mark.req("J10")
def test_after_a_restart_whoever_comes_back_is_told_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with ServerProcess(tmp_path) as server, heliograph.connect(server.url) as connection:
            await connection.ask(
                "destination.create", destination="queue:a", policy={"high_water_messages": 10}
            )
            told: list[str] = []
            connection.on_blocked = lambda _, reason: told.append(reason)
            producer = await connection.producer("queue:a")
            await send_all(producer, [b"%d" % n for n in range(10)])
            await until(lambda: producer.is_blocked, "blocked")
            await server.restart()
            # Asked of the callback: on the next connection it may be told before anybody looks.
            await until(lambda: told == ["messages", "", "messages"], "told on the next connection")
            assert producer.is_blocked
            waiting = asyncio.create_task(producer.send(b"10"))
            messages = await receive_all(await connection.consumer("queue:a"), 11)
            await waiting
            assert [message.body for message in messages] == [b"%d" % n for n in range(11)]

    play(story())


def test_a_used_up_quota_is_told_to_senders_and_to_whoever_watches(tmp_path: Path) -> None:
    async def story() -> None:
        quota = {"journal.segment_bytes": 262_144, "journal.quota_bytes": 2_500_000}
        async with embedded(tmp_path, quota) as server, heliograph.connect(url_of(server)) as connection:
            producer = await connection.producer("queue:a")
            sent = 0
            with suppress(heliograph.StorageFull):
                while sent < 10_000:
                    await producer.send_confirmed(b"x" * 5000)
                    sent += 1
            assert 0 < sent < 10_000, "the quota was not told"
            async with await connection.consumer("queue:a") as consumer:
                await receive_all(consumer, sent)

            async def has_room() -> bool:
                events = [event["event"] for event in (await connection.ask("log"))["events"]]
                assert "disk-full" in events
                return "disk-has-room" in events

            async with asyncio.timeout(60):
                while not await has_room():
                    await asyncio.sleep(0.02)
            await producer.send_confirmed(b"y")

    play(story())


class Ruthless:
    """A client that hears that it should wait and sends on."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._cutter = frames.FrameReader()
        self.heard: list[frames.FromServer] = []
        self.session = SessionId(b"")

    @classmethod
    async def connect(cls, host: str, port: int, destination: str) -> Ruthless:
        peer = cls(*await asyncio.open_connection(host, port))
        peer._writer.write(frames.PREAMBLE)
        peer.tell(frames.Hello())
        await peer.hear(frames.Welcome)
        peer.tell(frames.OpenSession(request=1, number=1))
        opened = await peer.hear(frames.SessionOpened)
        assert isinstance(opened, frames.SessionOpened)
        peer.session = SessionId(opened.session)
        peer.tell(frames.OpenLane(request=2, number=1, lane=1, destination=destination))
        await peer.hear(frames.LaneOpened)
        return peer

    @property
    def lane(self) -> LaneId:
        return lane_of(self.session, 1)

    def tell(self, message: frames.Control) -> None:
        self._writer.write(frames.control_frame(message))

    def publish(self, first: int, count: int) -> None:
        block = pack([b"x"] * count, lane=self.lane, first=first)
        self._writer.write(frames.publish_frame(1, block))

    async def hear(self, kind: type) -> frames.FromServer:
        async with asyncio.timeout(60):
            while True:
                for message in self.heard:
                    if isinstance(message, kind):
                        return message
                data = await self._reader.read(65536)
                assert data, "the connection ended"
                for frame, _flags, _number, payload in self._cutter.feed(data):
                    if frame == frames.CONTROL:
                        self.heard.append(frames.decode_from_server(payload))

    def close(self) -> None:
        self._writer.close()


def test_who_sends_on_regardless_is_refused_in_the_end_and_slows_nobody(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path, SMALL) as server, heliograph.connect(url_of(server)) as connection:
            ruthless = await Ruthless.connect(*server.address, "queue:small")
            accepted = 100 + PRODUCER_WINDOW_MESSAGES
            for first in range(1, accepted + 1000, 100):
                ruthless.publish(first, 100)
            blocked = await ruthless.hear(frames.Blocked)
            assert blocked == frames.Blocked(1, "queue:small", "messages")
            refused = await ruthless.hear(frames.Refused)
            assert isinstance(refused, frames.Refused)
            assert (refused.code, refused.first) == ("destination-full", accepted + 1)
            await send_all(await connection.producer("queue:other"), [b"y"] * 1000)
            figures = await connection.ask("destination.show", destination="queue:small")
            assert figures["depth"] == accepted
            ruthless.close()

    play(story())


def test_the_blocking_face_waits_asks_and_tries(tmp_path: Path) -> None:
    def work(url: str) -> None:
        told: list[tuple[str, str]] = []
        with heliograph.connect_blocking(url) as connection:
            connection.on_blocked = lambda destination, reason: told.append((destination, reason))
            producer = connection.producer("queue:small")
            for n in range(100):
                producer.send(b"%d" % n)
            producer.flush()
            while not told:
                producer.flush()
            assert producer.is_blocked
            assert connection.is_blocked("queue:small")
            assert not producer.try_send(b"no")
            with pytest.raises(HeliographError) as late:
                producer.send(b"late", timeout=0.05)
            assert late.value.code == "send-timeout"
            consumer = connection.consumer("queue:small")
            for n in range(100):
                message = consumer.receive(timeout=30)
                assert message is not None
                assert message.body == b"%d" % n
            while len(told) < 2:
                consumer.receive(timeout=0.01)
            assert producer.try_send(b"yes")

    async def story() -> None:
        async with embedded(tmp_path, SMALL) as server:
            await asyncio.to_thread(work, url_of(server))

    play(story())


@pytest.mark.slow
@pytest.mark.req("X4")
def test_top_shows_who_is_blocked(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.run("admin", "destination", "create", "queue:full", "high_water_messages=3")
        server.run("send", "queue:full", "x", "--count", "3")
        assert server.destination("queue:full")["blocked"] == "messages"
        assert b"blocked" in server.run("top", "--once", "--interval", "0.1").stdout
