"""Those who never say who they are, in thousands, and those who say too much: others do not notice."""

from __future__ import annotations

import asyncio
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import perf_counter_ns
from typing import NamedTuple

import pytest

from heliograph import connect
from heliograph.frontends.native.frames import PREAMBLE
from heliograph.model.errors import HeliographError, NotAuthenticated
from heliograph.model.limits import MAX_UNPROVED
from heliograph.nodes.users import UserStore
from tests.servers import ServerProcess, embedded, helper, play, until, url_of

pytestmark = pytest.mark.req("X2")

_CHEAP = (16, 8, 1)
_RATE = 200.0
_ALONE_SECONDS = 5.0
_LONG_SECONDS = 20.0
# How much longer a confirmation may take, of what it takes alone; and what is too little to matter.
_TIMES = 5


class Work:
    """A producer at a steady rate, from before they come until they have stood there for a while."""

    def __init__(self) -> None:
        self.took: list[
            tuple[int, int]
        ] = []  # when each message was sent, and how long its confirmation took
        self._is_over = False

    async def run(self, url: str) -> None:
        async with connect(url, client_name="at work") as connection:
            producer = await connection.producer("queue:work")
            due = perf_counter_ns()
            while not self._is_over:
                due += int(1e9 / _RATE)
                await asyncio.sleep(max(due - perf_counter_ns(), 0) / 1e9)
                began = perf_counter_ns()
                await producer.send_confirmed(b"x")
                self.took.append((began, perf_counter_ns() - began))
            consumer = await connection.consumer("queue:work")
            for _ in self.took:
                assert await consumer.receive(timeout=30) is not None

    def end(self) -> None:
        self._is_over = True

    async def go_on(self, seconds: float) -> int:
        """So long at least, and then the moment."""
        until_then = perf_counter_ns() + int(seconds * 1e9)
        await until(
            lambda: bool(self.took) and self.took[-1][0] >= until_then, "it worked so long", seconds + 30
        )
        return perf_counter_ns()

    def between(self, when: str, began: int, ended: int) -> Figures:
        """What was sent then."""
        took = sorted(took for sent, took in self.took if began <= sent < ended)
        assert took, f"{when}: nothing was sent"
        rate = len(took) / (ended - began) * 1e9
        figures = Figures(rate, took[len(took) // 2] / 1e6, took[int(len(took) * 0.99)] / 1e6)
        print(
            f"  {when}: {len(took)} messages, {rate:.0f} a second, p50 {figures.p50_ms:.2f} ms,"
            f" p99 {figures.p99_ms:.2f} ms, max {took[-1] / 1e6:.2f} ms"
        )
        return figures


class Figures(NamedTuple):
    rate: float
    p50_ms: float
    p99_ms: float

    def is_hardly_worse_than(self, alone: Figures) -> bool:
        """Whoever stands there costs something, but nobody waits for them. A busy machine is slow alone, too. A
        standstill is one long confirmation, and few messages."""
        return (
            self.p50_ms < max(5.0, _TIMES * alone.p50_ms)
            and self.p99_ms < max(50.0, _TIMES * alone.p99_ms)
            and self.rate > alone.rate / _TIMES
        )


class Watch:
    """What the crowd at the door says of itself; and how many sockets the server has."""

    def __init__(self, server: ServerProcess, said: asyncio.StreamReader) -> None:
        self._server = server
        self._said = said
        self.open: list[int] = []
        self.opened = 0
        self.kept: list[int] = []

    async def follow(self) -> None:
        while line := (await self._said.readline()).decode():
            is_open, _, opened, _ = line.split()
            self.open.append(int(is_open))
            self.opened = int(opened)

    def count(self) -> None:
        self.kept.append(self._server.sockets())


async def _beside_the_door(folder: Path, count: int, limits: dict[str, float], seconds: float = 3.0) -> Watch:
    """Work alone, while so many come, and beside them for some seconds."""
    async with ServerProcess(folder, {f"limits.{name}": value for name, value in limits.items()}) as server:
        work = Work()
        working = asyncio.create_task(work.run(server.url))
        began = perf_counter_ns()
        they_come = await work.go_on(_ALONE_SECONDS)
        async with helper("tests.suites.disturber", "door", server.url, str(count)) as disturber:
            assert disturber.stdout is not None
            watch = Watch(server, disturber.stdout)
            watching = asyncio.create_task(watch.follow())
            they_are_there = perf_counter_ns()
            ended = await work.go_on(seconds)
            # To count sockets takes longer than a message: now nobody is timed.
            watch.count()
            memory = server.rss_bytes()
            await until(lambda: len(watch.open) >= 3, "the crowd has told how it stands")
            watch.count()
            assert disturber.returncode is None
            work.end()
            await working
        await watching
        print(f"{count} at the door")
        alone = work.between("alone", began, they_come)
        coming = work.between("while they come", they_come, they_are_there)
        beside = work.between("beside", they_are_there, ended)
        print(f"open: {watch.open}; opened: {watch.opened}; the server's sockets: {watch.kept}")
        print(f"the server has {memory / 2**20:.0f} MiB")
        assert coming.is_hardly_worse_than(alone)
        assert beside.is_hardly_worse_than(alone)
        assert memory < 400 * 2**20
        assert "Traceback" not in server.errors, server.errors
        return watch


@pytest.fixture
def room_for_ten_thousand() -> Iterator[None]:
    """Files that this process and what it starts may have open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 12_000:
        pytest.skip(f"a process may have {hard} files open here, and 12,000 are needed: see `ulimit -Hn`")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 12_000), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.alone
def test_a_thousand_who_never_greet_disturb_nobody(tmp_path: Path) -> None:
    """They have to go after three seconds, and come again."""
    watch = play(_beside_the_door(tmp_path, 1_000, {"handshake_seconds": 3.0}), 100)
    assert watch.opened > 1_000
    assert max(watch.kept) > 900


@pytest.mark.alone
@pytest.mark.nightly
@pytest.mark.timeout(290)
@pytest.mark.usefixtures("room_for_ten_thousand")
def test_ten_thousand_who_never_greet_disturb_nobody(tmp_path: Path) -> None:
    """All of them are there for as long as the producer works: the server is told to keep them. A few have to go for
    what they say, and come again."""
    limits = {
        "max_unproved": 20_000,
        "handshake_seconds": 200.0,
        "max_connections_per_address": 0,
        "max_connection_rate": 0,
    }
    watch = play(_beside_the_door(tmp_path, 10_000, limits, _LONG_SECONDS), 280)
    assert set(watch.open) == {10_000}
    assert min(watch.kept) > 9_000


@pytest.mark.alone
@pytest.mark.nightly
@pytest.mark.timeout(290)
@pytest.mark.usefixtures("room_for_ten_thousand")
def test_ten_thousand_who_come_again_and_again_disturb_nobody(tmp_path: Path) -> None:
    """As servers are set up by themselves: one keeps 4,096 of them, for whom the others have to go, and they come
    again."""
    watch = play(_beside_the_door(tmp_path, 10_000, {}, _LONG_SECONDS), 280)
    assert watch.opened > 10_000
    # Besides the strangers there are the listeners, the producer, and those who are about to go.
    assert 0.9 * MAX_UNPROVED < max(watch.kept) < 1.1 * MAX_UNPROVED


def test_when_there_are_too_many_the_oldest_gives_way(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path, {"limits.max_unproved": 20}) as server:
            silent = [await asyncio.open_connection(*server.address) for _ in range(20)]
            async with connect(url_of(server)) as connection:  # it takes the place of the first
                assert connection.user == "guest"
                async with asyncio.timeout(8):
                    assert await silent[0][0].read() == b""
                assert not silent[-1][0].at_eof()
            for _, writer in silent:
                writer.close()

    play(story())


def test_one_address_does_not_take_all_there_is(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path, {"limits.max_connections_per_address": 2}) as server:
            async with connect(url_of(server)), connect(url_of(server)):
                with pytest.raises(HeliographError) as refused:
                    await connect(url_of(server))
                assert refused.value.code == "too-many-connections"
                assert "your address" in refused.value.sentence
            async with connect(url_of(server)):
                pass

    play(story())


def test_who_guesses_has_to_wait(tmp_path: Path) -> None:
    UserStore(tmp_path / "data" / "users.toml").add("ann", "secret", ["admin"], cost=_CHEAP)

    async def story() -> None:
        async with embedded(tmp_path, {"limits.max_failed_logins": 5}) as server:
            codes = []
            for number in range(8):
                with pytest.raises(HeliographError) as refused:
                    await connect(url_of(server), user="ann", password=f"guess {number}")
                codes.append(refused.value.code)
            assert codes == ["not-authenticated"] * 5 + ["too-many-logins"] * 3
            assert server._events is not None
            log = server._events
            await until(lambda: len(log.remembered) >= 9, "everything is in the log")
            failed = [event for event in log.remembered if event["event"] == "login-failed"]
            assert [event["code"] for event in failed] == codes
            assert {event["user"] for event in failed} == {"ann"}
            assert all("guess" not in str(event) for event in log.remembered), "no password is in the log"

    play(story())


def test_a_client_that_sends_too_fast_is_slowed_down_and_loses_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path, {"limits.max_bytes_per_second": 1_000_000}) as server:
            async with connect(url_of(server)) as connection:
                producer = await connection.producer("queue:q")
                began = time.monotonic()
                for _ in range(30):
                    await producer.send(bytes(100_000))
                await producer.flush()
                took = time.monotonic() - began
                consumer = await connection.consumer("queue:q")
                for _ in range(30):
                    assert await consumer.receive(timeout=30) is not None
            assert took > 1.5, "3 MB at 1 MB/s, of which the first is free"

    play(story())


def test_limits_of_sessions_and_consumers(tmp_path: Path) -> None:
    limits = {"limits.max_sessions_per_connection": 2, "limits.max_consumers_per_session": 3}

    async def story() -> None:
        async with embedded(tmp_path, limits) as server, connect(url_of(server)) as connection:
            session = await connection.session()
            await connection.session()
            with pytest.raises(HeliographError) as refused:
                await connection.session()
            assert refused.value.code == "too-many-sessions"
            for number in range(3):
                await session.consumer(f"queue:{number}")
            with pytest.raises(HeliographError) as refused:
                await session.consumer("queue:3")
            assert refused.value.code == "too-many-consumers"

    play(story())


def test_a_frame_beyond_the_limit_is_not_even_read(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            embedded(tmp_path, {"limits.max_frame_bytes": 2**20}) as server,
            connect(url_of(server), reconnect_seconds=0) as connection,
        ):
            producer = await connection.producer("queue:q")
            await producer.send_confirmed(bytes(900_000))
            with pytest.raises(HeliographError) as refused:
                await producer.send_confirmed(bytes(1_200_000))
            assert refused.value.code == "frame-too-long"

    with suppress(HeliographError):  # the connection is gone, which its end says, too
        play(story())


def test_a_stranger_gets_four_kibibytes_and_ten_seconds(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path, {"limits.handshake_seconds": 0.5}) as server:
            line = socket.create_connection(server.address)
            line.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(line, PREAMBLE + b"\x00\x10\x00\x00\x01\x00\x00\x00" + bytes(4095))
            began = time.monotonic()
            async with asyncio.timeout(8):
                with suppress(ConnectionError):
                    while await loop.sock_recv(line, 1000):
                        pass
            assert time.monotonic() - began > 0.3
            line.close()
            with pytest.raises((NotAuthenticated, HeliographError)):
                await connect(f"helio://127.0.0.1:{server.address[1]}", mechanism="nonsense")

    play(story())
