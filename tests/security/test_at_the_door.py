"""Those who never say who they are, in thousands, and those who say too much: others do not notice."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import suppress
from pathlib import Path
from time import perf_counter_ns

import pytest

from heliograph import connect
from heliograph.frontends.native.frames import PREAMBLE
from heliograph.model.errors import HeliographError, NotAuthenticated
from heliograph.nodes.users import UserStore
from tests.servers import ServerProcess, embedded, helper, play, until, url_of

pytestmark = pytest.mark.req("X2")

_CHEAP = (16, 8, 1)
_MESSAGES = 600
_RATE = 200.0


async def _producing(url: str) -> list[int]:
    """How long each confirmation took, at a steady rate."""
    took = []
    async with connect(url, client_name="at work") as connection:
        producer = await connection.producer("queue:work")
        due = perf_counter_ns()
        for _ in range(_MESSAGES):
            due += int(1e9 / _RATE)
            await asyncio.sleep(max(due - perf_counter_ns(), 0) / 1e9)
            began = perf_counter_ns()
            await producer.send_confirmed(b"x")
            took.append(perf_counter_ns() - began)
        consumer = await connection.consumer("queue:work")
        for _ in range(_MESSAGES):
            assert await consumer.receive(timeout=10) is not None
    return sorted(took)


async def _beside_the_door(folder: Path, count: int) -> None:
    async with ServerProcess(folder, {"limits.handshake_seconds": 3.0}) as server:
        alone = await _producing(server.url)
        async with helper("tests.suites.disturber", "door", server.url, str(count)) as disturber:
            beside = await _producing(server.url)
            memory = server.rss_bytes()
            assert disturber.returncode is None
        for what, took in (("alone", alone), ("beside", beside)):
            p50, p99 = (took[int(len(took) * share)] / 1e6 for share in (0.5, 0.99))
            print(
                f"{count} at the door, {what}: p50 {p50:.2f} ms, p99 {p99:.2f} ms, max {took[-1] / 1e6:.2f} ms"
            )
        print(f"the server has {memory / 2**20:.0f} MiB")
        # Whoever stands there costs something, but nobody waits for them. A busy machine is slow alone, too.
        assert beside[len(beside) // 2] < max(5e6, 5 * alone[len(alone) // 2])
        assert beside[int(len(beside) * 0.99)] < max(50e6, 5 * alone[int(len(alone) * 0.99)])
        assert memory < 400 * 2**20
        assert "Traceback" not in server.errors, server.errors


@pytest.mark.alone
@pytest.mark.timeout(110)
def test_a_thousand_who_never_greet_disturb_nobody(tmp_path: Path) -> None:
    play(_beside_the_door(tmp_path, 1_000), 100)


@pytest.mark.alone
@pytest.mark.nightly
@pytest.mark.timeout(290)
def test_ten_thousand_who_never_greet_disturb_nobody(tmp_path: Path) -> None:
    play(_beside_the_door(tmp_path, 10_000), 280)


def test_when_there_are_too_many_the_oldest_gives_way(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path, {"limits.max_unproved": 20}) as server:
            silent = [await asyncio.open_connection(*server.address) for _ in range(20)]
            async with connect(url_of(server)) as connection:  # it takes the place of the first
                assert connection.user == "guest"
                async with asyncio.timeout(5):
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
                    assert await consumer.receive(timeout=10) is not None
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
            async with asyncio.timeout(5):
                with suppress(ConnectionError):
                    while await loop.sock_recv(line, 1000):
                        pass
            assert time.monotonic() - began > 0.3
            line.close()
            with pytest.raises((NotAuthenticated, HeliographError)):
                await connect(f"helio://127.0.0.1:{server.address[1]}", mechanism="nonsense")

    play(story())
