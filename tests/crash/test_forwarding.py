"""`kill -9` of a client that stores and forwards, again and again, while its server comes and goes too (U7).

What `send` promised arrives once, in order per producer and per destination. The seed of a run is printed;
`HELIO_TEST_SEED` repeats its load and its moments. The machine adds its own.
"""

import asyncio
import os
import random
import secrets
from collections import Counter
from pathlib import Path

import pytest

import heliograph
from tests.crash.forwarding_client import QUEUES
from tests.servers import ServerProcess, helper, play

pytestmark = [pytest.mark.crash, pytest.mark.slow, pytest.mark.req("U7")]

KILLS = 30


@pytest.fixture
def seed() -> int:
    chosen = int(os.environ.get("HELIO_TEST_SEED", "0")) or secrets.randbelow(10**9) + 1
    print(f"HELIO_TEST_SEED={chosen}")
    return chosen


class Comings:
    """A server that is killed, stopped and started at moments of its own."""

    def __init__(self, server: ServerProcess, chance: random.Random) -> None:
        self._server = server
        self._chance = chance
        self._is_over = asyncio.Event()
        self.departures = 0

    async def run(self) -> None:
        while not self._is_over.is_set():
            await self._pass(self._chance.uniform(0.2, 1.5))
            await (self._server.kill() if self._chance.random() < 0.5 else self._server.terminate())
            self.departures += 1
            await self._pass(self._chance.uniform(0.0, 1.0))
            await self._server.start()

    async def _pass(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._is_over.wait()
        except TimeoutError:
            pass

    def end(self) -> None:
        self._is_over.set()


def promised(book: Path) -> dict[str, int]:
    """The last number of each lane that `send` returned for."""
    last: dict[str, int] = {}
    for line in book.read_text().splitlines():
        if line.startswith("error"):
            assert line.split()[1] not in {"session-lost", "store-behind", "disk-failed"}, line
            continue
        lane, _, number = line.rpartition("/")
        last[lane] = int(number)
    return last


async def all_from(connection: heliograph.Connection, destination: str) -> list[str]:
    """Everything that waits, in order, as `lane/number`."""
    durable = {"durable": "all"} if destination.startswith("topic:") else {}
    consumer = await connection.consumer(destination, **durable)  # type: ignore[arg-type]
    found: list[str] = []
    while batch := await consumer.receive_batch(10_000, timeout=5.0):
        for message in batch:
            assert "JMS_helio_possibly_doubled" not in message.properties
            lane, number = message.text.split("/")[:2]
            found.append(f"{lane}/{number}")
    return found


def check(found: list[str], promises: dict[str, int], destination: str) -> None:
    doubled = {name: count for name, count in Counter(found).items() if count > 1}
    assert not doubled, f"doubled: {list(doubled.items())[:10]}"
    numbers: dict[str, list[int]] = {}
    for name in found:
        lane, _, number = name.rpartition("/")
        numbers.setdefault(lane, []).append(int(number))
    for lane, came in numbers.items():
        assert came == list(range(1, len(came) + 1)), f"{lane} is out of order or has a gap"
    for lane, last in promises.items():
        if lane.endswith(destination):
            assert len(numbers.get(lane, [])) >= last, f"{lane}: {last} were promised"
    runs = [name.partition(".")[0] for name in found]
    assert runs == sorted(runs), "what an earlier process stored comes first"


@pytest.mark.timeout(600)
def test_a_client_that_is_killed_thirty_times_loses_and_doubles_nothing(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    book, store = tmp_path / "book", tmp_path / "store"

    async def story() -> None:
        async with ServerProcess(tmp_path) as server:
            async with heliograph.connect(server.url, client_id="test") as connection:
                await (await connection.consumer("topic:c", durable="all")).close()
            comings = Comings(server, random.Random(chance.random()))
            going = asyncio.create_task(comings.run())
            for run in range(KILLS):
                arguments = (server.url, str(store), str(book), str(run), f"{chance.random()}")
                async with helper("tests.crash.forwarding_client", *arguments) as client:
                    await asyncio.sleep(chance.uniform(0.0, 1.0))
                    assert client.returncode is None, "it ended by itself"
            comings.end()
            await going
            async with helper(
                "tests.crash.forwarding_client", server.url, str(store), str(book), "0", "0"
            ) as client:
                async with asyncio.timeout(60):
                    assert await client.wait() == 0
            promises = promised(book)
            total = 0
            async with heliograph.connect(server.url, client_id="test") as connection:
                for destination in QUEUES:
                    found = await all_from(connection, destination)
                    check(found, promises, destination)
                    total += len(found)
            said = f"{total:,} messages, {sum(promises.values()):,} promised"
            print(f"{said}, {comings.departures} departures of the server")
            assert total > KILLS

    play(story(), 580)
