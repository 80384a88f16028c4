"""A simulated process runs asyncio on virtual time, and lives and dies as the simulation wants."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from simulation.loop import bury
from simulation.machines import Machine, Process
from simulation.sockets import Sockets
from simulation.world import World


def machines(*names: str, seed: int = 1) -> list[Machine]:
    world = World(seed)
    sockets = Sockets(world)
    return [Machine(world, sockets, name) for name in names]


def test_time_is_virtual_and_waiting_costs_nothing() -> None:
    (host,) = machines("host")
    seen: list[tuple[str, float]] = []

    async def story(process: Process) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(3600)
        seen.append(("slept", loop.time()))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await loop.create_future()
        seen.append(("gave up", loop.time()))
        results = await asyncio.gather(*(asyncio.sleep(delay, delay) for delay in (3, 1, 2)))
        assert results == [3, 1, 2]
        assert await loop.run_in_executor(None, lambda: 7) == 7
        seen.append(("done", loop.time()))

    host.start("process", story)
    host.world.run(10_000)
    assert [what for what, _ in seen] == ["slept", "gave up", "done"]
    assert [round(at) for _, at in seen] == [3600, 3660, 3663]
    assert host.world.failures == []


def test_each_process_has_its_own_loop_and_its_own_clock() -> None:
    one, other = machines("one", "other")
    other.skew = 100.0
    seen: dict[str, tuple[object, float]] = {}

    async def story(process: Process) -> None:
        await asyncio.sleep(1)
        seen[process.name] = asyncio.get_running_loop(), process.clock.now()

    first, second = one.start("first", story), other.start("second", story)
    one.world.run(2)
    assert seen["first"][0] is first.loop
    assert seen["second"][0] is second.loop
    assert round(seen["second"][1] - seen["first"][1]) == 100
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()


def test_a_stopped_process_gets_everything_late_and_a_killed_one_nothing() -> None:
    (host,) = machines("host")
    ticks: dict[str, list[float]] = {"stopped": [], "killed": []}
    ended: list[str] = []

    async def story(process: Process) -> None:
        try:
            while True:
                await asyncio.sleep(1)
                ticks[process.name].append(host.world.now)
        finally:
            ended.append(process.name)

    stopped, killed = host.start("stopped", story), host.start("killed", story)
    host.world.run(2.5)
    stopped.loop.stop()
    killed.kill()
    host.world.run(10.0)
    stopped.loop.resume()
    host.world.run(12.0)
    assert [round(at) for at in ticks["killed"]] == [1, 2]
    assert [round(at) for at in ticks["stopped"]] == [1, 2, 10, 11]
    assert ended == [], "nobody tidies up after a kill"
    bury(host.world)


def test_what_nobody_catches_is_known() -> None:
    (host,) = machines("host")

    async def story(process: Process) -> None:
        process.loop.call_soon(lambda: 1 // 0)

    host.start("process", story)
    host.world.run(1)
    assert [type(error) for error in host.world.failures] == [ZeroDivisionError]


class Diary(asyncio.Protocol):
    """Writes down what it hears."""

    def __init__(self) -> None:
        self.heard = b""
        self.pieces = 0
        self.ends: list[Exception | None] = []
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.heard += data
        self.pieces += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self.ends.append(exc)


class Pair:
    """A server and a client that are connected."""

    def __init__(self, seed: int = 1) -> None:
        self.here, self.there = machines("here", "there", seed=seed)
        self.world = self.here.world
        self.sockets = self.here.sockets
        self.server, self.client = Diary(), Diary()
        self.failed: list[BaseException] = []
        self.serving = self.there.start("server", self._serve)
        self.world.run(0.01)
        self.calling = self.here.start("client", self._connect(self.client))
        self.world.run(1.0)

    async def _serve(self, process: Process) -> None:
        await process.loop.create_server(lambda: self.server, "127.0.0.1", 7700)

    def _connect(self, diary: Diary) -> Callable[[Process], Coroutine[Any, Any, None]]:
        async def connect(process: Process) -> None:
            try:
                async with asyncio.timeout(5):
                    await process.loop.create_connection(lambda: diary, "there", 7700)
            except (OSError, TimeoutError) as error:
                self.failed.append(error)

        return connect

    def write(self, data: bytes) -> None:
        self.calling.loop.call_soon(self.client.transport.write, data)

    def wait(self, seconds: float = 1.0) -> None:
        self.world.run(self.world.now + seconds)

    def try_again(self) -> None:
        self.here.start("another", self._connect(Diary()))
        self.wait(10.0)


def test_bytes_arrive_in_order_and_in_pieces_then_the_end() -> None:
    pair = Pair()
    sent = b"".join(b"%d " % number for number in range(200_000))
    for start in range(0, len(sent), 10_000):
        pair.write(sent[start : start + 10_000])
    pair.wait()
    assert pair.server.heard == sent
    assert pair.server.pieces > 20
    pair.calling.loop.call_soon(pair.client.transport.close)
    pair.wait()
    assert pair.server.ends == [None]
    assert pair.client.ends == [None]


def test_who_does_not_read_makes_the_other_wait() -> None:
    pair = Pair()
    pair.serving.loop.call_soon(pair.server.transport.pause_reading)
    pair.wait()
    for _ in range(100):
        pair.write(b"x" * 10_000)
    pair.wait()
    assert pair.server.heard == b""
    assert pair.client.transport.get_write_buffer_size() > 500_000
    pair.serving.loop.call_soon(pair.server.transport.resume_reading)
    pair.wait()
    assert len(pair.server.heard) == 1_000_000
    assert pair.client.transport.get_write_buffer_size() == 0


def test_the_death_of_a_process_is_heard_and_that_of_a_machine_is_not() -> None:
    killed, crashed = Pair(), Pair()
    killed.serving.kill()
    crashed.there.crash()
    for pair in (killed, crashed):
        pair.wait()
    assert len(killed.client.ends) == 1
    assert crashed.client.ends == []
    killed.try_again()
    crashed.try_again()
    assert [type(error) for error in killed.failed] == [ConnectionRefusedError]
    assert [type(error) for error in crashed.failed] == [TimeoutError]
    crashed.there.boot()
    crashed.write(b"are you there?")
    crashed.wait()
    assert [type(error) for error in crashed.client.ends] == [ConnectionResetError]


def test_connections_break_in_every_way() -> None:
    seen = set()
    for seed in range(40):
        pair = Pair(seed)
        kind = pair.sockets.break_one()
        pair.write(b"there")
        pair.serving.loop.call_soon(pair.server.transport.write, b"here")
        pair.wait()
        seen.add((kind, pair.server.heard, pair.client.heard, len(pair.client.ends)))
    assert seen == {
        ("reset", b"", b"", 1),
        ("silent", b"", b"", 0),
        ("deaf", b"there", b"", 0),
        ("mute", b"", b"here", 0),
    }
