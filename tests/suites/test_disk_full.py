"""A full disk or quota: producers are told, nothing confirmed is lost, consuming goes on, service resumes.

On a real small file system where we may mount one; with a quota always.
"""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from heliograph.client import Connection, Producer, connect
from heliograph.model.errors import HeliographError, StorageFull
from heliograph.model.limits import KIB, MIB
from tests.servers import ServerProcess, Settings, play, until

pytestmark = [pytest.mark.slow, pytest.mark.req("J3")]

QUEUE = "queue:full"
BODY_BYTES = 4 * KIB
SMALL: Settings = {"journal.segment_bytes": 2 * MIB, "journal.snapshot_every_bytes": 8 * MIB}
QUOTA: Settings = {**SMALL, "journal.quota_bytes": 16 * MIB}
DISK_MIB = 24


def body(index: int) -> bytes:
    return index.to_bytes(8, "big") + bytes(BODY_BYTES - 8)


def index_of(content: object) -> int:
    assert isinstance(content, bytes)
    return int.from_bytes(content[:8], "big")


async def fill(url: str, first: int = 0) -> tuple[list[int], StorageFull]:
    """Send until the server says no. What it confirmed, and how it said no."""
    confirmed: list[int] = []
    refused: list[HeliographError] = []

    def heard(index: int, error: HeliographError | None) -> None:
        if error is None:
            confirmed.append(index)
        else:
            refused.append(error)

    async def send_until_refused(producer: Producer) -> None:
        for index in count(first):
            await producer.send(body(index), on_completion=partial(heard, index))
            if index % 100 == 0:
                await producer.flush()

    async with connect(url, on_error=lambda _: None) as connection:
        with pytest.raises(StorageFull) as caught:
            await send_until_refused(await connection.producer(QUEUE))
    assert refused, "whoever asked to be told was told"
    assert {error.code for error in refused} == {"storage-full"}
    assert all(isinstance(error, StorageFull) for error in refused)
    return confirmed, caught.value


async def take(connection: Connection, number: int) -> list[int]:
    consumer = await connection.consumer(QUEUE)
    taken: list[int] = []
    while len(taken) < number:
        message = await consumer.receive(timeout=30)
        assert message is not None, f"nothing came after {len(taken)} of {number}"
        taken.append(index_of(message.body))
    await consumer.close()
    return taken


async def waiting(connection: Connection) -> int:
    """How many messages the server has for us."""
    figures = (await connection.ask("destinations"))["destinations"]
    return sum(each["depth"] + each["in_flight"] for each in figures if each["address"] == QUEUE)


async def service_resumes(url: str, first: int, seconds: float = 30.0) -> None:
    """By itself, and soon. `first` is sent then."""
    async with connect(url) as connection, asyncio.timeout(seconds):
        while (await connection.ask("server"))["journal"]["is_full"]:
            await asyncio.sleep(0.05)
        producer = await connection.producer(QUEUE)
        await producer.send_confirmed(body(first))


async def full_story(server: ServerProcess, at_least: int) -> None:
    """Full, told so, consuming on, restarted while full, drained, and open for business again."""
    confirmed, error = await fill(server.url)
    assert error.code == "storage-full"
    assert "full" in error.sentence
    assert confirmed == list(range(len(confirmed)))
    assert len(confirmed) >= at_least, "the room there is was used"

    # It stays full for everybody who sends, and its consumers do not notice.
    again, _ = await fill(server.url, first=10**6)
    async with connect(server.url) as connection:
        assert await take(connection, 50) == list(range(50))

    # A crash on the full disk loses nothing that was confirmed.
    await server.restart()
    async with connect(server.url) as connection:
        rest = [*confirmed[50:], *again]
        assert await waiting(connection) == len(rest)
        assert await take(connection, len(rest)) == rest
        assert await waiting(connection) == 0
    await service_resumes(server.url, first=2 * 10**6)
    async with connect(server.url) as connection:
        assert await take(connection, 1) == [2 * 10**6]

    # And as much as before fits again, in the same life.
    confirmed, _ = await fill(server.url)
    assert len(confirmed) >= at_least
    async with connect(server.url) as connection:
        assert await take(connection, len(confirmed)) == confirmed
    assert await server.terminate() == 0, server.errors


async def quota_story(folder: Path) -> None:
    async with ServerProcess(folder, QUOTA) as server:
        await full_story(server, at_least=2000)
        assert disk_use(server.data) <= 20 * MIB, "the quota, and a reserve for what cannot be refused"


def disk_use(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def test_a_used_up_quota_loses_nothing_and_ends_by_itself(tmp_path: Path) -> None:
    play(quota_story(tmp_path))


async def larger_quota_story(folder: Path) -> None:
    async with ServerProcess(folder, QUOTA) as server:
        confirmed, _ = await fill(server.url)
        assert await server.terminate() == 0, server.errors
        server.configure({**QUOTA, "journal.quota_bytes": 32 * MIB})
        await server.start()
        more, _ = await fill(server.url, first=10**6)
        assert len(more) >= 2000
        async with connect(server.url) as connection:
            assert await take(connection, len(confirmed) + len(more)) == [*confirmed, *more]


def test_a_larger_quota_is_used_after_a_restart(tmp_path: Path) -> None:
    play(larger_quota_story(tmp_path))


async def not_persistent_story(folder: Path) -> None:
    async with ServerProcess(folder, QUOTA) as server:
        await fill(server.url)
        async with connect(server.url) as connection:
            consumer = await connection.consumer("queue:quick")
            producer = await connection.producer("queue:quick", persistent=False)
            for index in range(100):
                await producer.send_confirmed(body(index))
            for index in range(100):
                message = await consumer.receive(timeout=30)
                assert message is not None
                assert index_of(message.body) == index


@pytest.mark.req("J3")
def test_messages_that_are_not_persistent_pass_while_the_disk_is_full(tmp_path: Path) -> None:
    play(not_persistent_story(tmp_path))


# ---- a real file system


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with room for little."""
    place = tmp_path / "disk"
    place.mkdir()
    options = f"size={DISK_MIB}m"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small file system: {mounted.stderr.decode().strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@asynccontextmanager
async def server_on(place: Path, folder: Path) -> AsyncIterator[ServerProcess]:
    server = ServerProcess(folder, SMALL)
    server.data = place / "data"
    async with server:
        yield server


async def disk_story(place: Path, folder: Path) -> None:
    async with server_on(place, folder) as server:
        await full_story(server, at_least=2000)


@pytest.mark.root
def test_a_full_disk_loses_nothing_and_ends_by_itself(small_disk: Path, tmp_path: Path) -> None:
    play(disk_story(small_disk, tmp_path))


async def enlarging_story(place: Path, folder: Path) -> None:
    async with server_on(place, folder) as server:
        confirmed, _ = await fill(server.url)
        subprocess.run(["mount", "-o", f"remount,size={2 * DISK_MIB}m", str(place)], check=True)
        await service_resumes(server.url, first=10**6)
        more, _ = await fill(server.url, first=2 * 10**6)
        assert len(more) >= 2000
        await server.restart()
        async with connect(server.url) as connection:
            everything = [*confirmed, 10**6, *more]
            assert await take(connection, len(everything)) == everything


@pytest.mark.root
def test_service_resumes_when_the_disk_is_enlarged(small_disk: Path, tmp_path: Path) -> None:
    play(enlarging_story(small_disk, tmp_path))


def fill_with_junk(path: Path) -> None:
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(64 * KIB))


async def foreign_story(place: Path, folder: Path) -> None:
    async with server_on(place, folder) as server:
        async with connect(server.url) as connection:
            producer = await connection.producer(QUEUE)
            await producer.send_confirmed(body(0))
        stranger = place / "somebody-elses"
        fill_with_junk(stranger)
        confirmed, _ = await fill(server.url, first=1)
        async with connect(server.url) as connection:
            assert await take(connection, 1 + len(confirmed)) == [0, *confirmed]
        stranger.unlink()
        await service_resumes(server.url, first=10**6)
        await until(lambda: server.is_running, "it runs on", 1)
        assert await server.terminate() == 0, server.errors


@pytest.mark.root
def test_a_disk_that_somebody_else_fills_is_survived(small_disk: Path, tmp_path: Path) -> None:
    play(foreign_story(small_disk, tmp_path))
