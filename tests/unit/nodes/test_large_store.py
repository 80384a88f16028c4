"""The order on disk: a file goes only after the log that ended its last message is stored."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from heliograph.bus.commands import Answered, ChunkSent, Command, UploadBegun, UploadEnded
from heliograph.bus.local import LocalBus
from heliograph.destinations.large_references import LargeReferences
from heliograph.model.block import Block, BodyKind, pack_lone, parse
from heliograph.model.destination import Address
from heliograph.model.errors import Unavailable
from heliograph.model.ids import LaneId, SessionId
from heliograph.model.large import FileId, LargeReference, encode_reference
from heliograph.nodes.large_files import LargeFiles
from heliograph.nodes.large_store import LargeStore
from heliograph.nodes.tick import Tick
from tests.servers import play, until

pytestmark = pytest.mark.req("M6")

SESSION = SessionId(b"s" * 16)
FILE = FileId(b"f" * 16)
CONTENT = b"abc"
CHECKSUM = 0x364B3FB7


class World:
    """A large store on a real folder, and what it says on the bus."""

    def __init__(self, folder: Path) -> None:
        loop = asyncio.get_running_loop()
        self.folder = folder / "large"
        self.heard: list[Command] = []
        bus = LocalBus()
        bus.join(self.heard.append)
        self.references = LargeReferences()
        files = LargeFiles(self.folder, forces=True, quota_bytes=0, reserve_bytes=0)
        self.store = LargeStore(files, self.references, bus=bus, tick=Tick(loop, _raise), loop=loop)

    @property
    def names(self) -> list[str]:
        return sorted(os.listdir(self.folder))

    async def upload(self) -> LargeReference:
        store = self.store
        store.on_command(UploadBegun(1, SESSION, 1, Address("queue:a"), FILE, False))
        store.on_command(ChunkSent(SESSION, 1, 0, CONTENT))
        store.on_command(UploadEnded(2, SESSION, 1, len(CONTENT), CHECKSUM))
        await until(lambda: Answered(2, {}) in self.heard, "the upload is stored")
        return LargeReference(FILE, len(CONTENT), CHECKSUM)


def _raise(bug: Exception) -> None:
    raise bug


def block_for(reference: LargeReference) -> Block:
    body = encode_reference(reference)
    block = parse(pack_lone(body, lane=LaneId(SESSION), sequence=1, kind=BodyKind.LARGE))
    block.position = 100
    return block


def told(folder: Path, story: Callable[[World], Awaitable[None]]) -> None:
    async def whole() -> None:
        world = World(folder)
        world.store.start(lambda _: False)
        try:
            await story(world)
        finally:
            world.store.stop()

    play(whole())


def test_a_file_outlives_its_message_until_the_log_that_says_so_is_stored(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        reference = await world.upload()
        assert world.store.knows(reference)
        world.store.stored(block_for(reference))
        await until(lambda: world.names == [f"{FILE.hex()}.message"], "the file is the message's")
        world.store.log_stored(7)
        world.references.release(100, 1)
        world.store.end_of_tick(11)
        assert not world.store.knows(reference), "nobody may refer to it any more"
        world.store.log_stored(9)
        await asyncio.sleep(0.05)  # nothing is to happen
        assert world.names, "the log may still be lost"
        world.store.log_stored(10)
        await until(lambda: not world.names, "the file is gone")

    told(tmp_path, story)


def test_content_that_nobody_wants_goes_when_its_message_was_taken(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        reference = await world.upload()
        world.store.accepted(reference)
        await until(lambda: not world.names, "the file is gone")

    told(tmp_path, story)


def test_a_session_that_ends_takes_its_uploads_along_but_not_its_messages(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        reference = await world.upload()
        world.store.stored(block_for(reference))
        second = UploadBegun(3, SESSION, 2, Address("queue:a"), bytes(16), False)
        world.store.on_command(second)
        await until(lambda: len(world.names) == 2, "both are there")
        world.store.session_closed(SESSION)
        await until(lambda: world.names == [f"{FILE.hex()}.message"], "only the message's is left")

    told(tmp_path, story)


def test_a_start_keeps_what_messages_refer_to_and_what_a_session_may_go_on_with(tmp_path: Path) -> None:
    folder = tmp_path / "large"
    folder.mkdir()
    kept, resumed, gone, done = (bytes([number]) * 16 for number in range(4))
    (folder / f"{kept.hex()}.{SESSION.hex()}").write_bytes(CONTENT)
    (folder / f"{resumed.hex()}.{SESSION.hex()}").write_bytes(CONTENT)
    (folder / f"{gone.hex()}.{bytes(16).hex()}").write_bytes(CONTENT)
    (folder / f"{done.hex()}.message").write_bytes(CONTENT)

    async def whole() -> None:
        world = World(tmp_path)
        world.references.persisted(100, FileId(kept))
        world.store.start(lambda session: session == SESSION)
        expected = sorted([f"{kept.hex()}.message", f"{resumed.hex()}.{SESSION.hex()}"])
        await until(lambda: world.names == expected, "the others are gone")
        world.store.on_command(UploadBegun(1, SESSION, 1, Address("queue:a"), resumed, True))
        answer = Answered(1, {"file": resumed, "offset": len(CONTENT)})
        await until(lambda: answer in world.heard, "it goes on where it was")
        world.store.expire(lambda _: False)
        await until(lambda: world.names == [f"{kept.hex()}.message"], "its time is over")
        world.store.stop()

    play(whole())


def test_a_server_that_sees_no_large_message_starts_no_thread_for_them(tmp_path: Path) -> None:
    others = set(threading.enumerate())

    def threads() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread not in others]

    async def story(world: World) -> None:
        world.store.end_of_tick(5)
        world.store.log_stored(4)
        world.store.session_closed(SESSION)
        world.store.expire(lambda _: False)
        assert threads() == []
        await world.upload()
        assert threads() == ["large-writer"]

    told(tmp_path, story)
    assert threads() == []


@pytest.mark.req("M6", "M9")
def test_content_that_another_manager_brings_is_taken_only_as_its_message_describes_it(
    tmp_path: Path,
) -> None:
    async def pieces(*brought: bytes) -> AsyncIterator[bytes]:
        for piece in brought:
            yield piece

    async def whole() -> None:
        world = World(tmp_path)
        world.store.start(lambda _: False)
        said: list[bool] = []
        reference = LargeReference(FILE, len(CONTENT), CHECKSUM)
        assert world.store.refers(reference, said.append) is False
        for damaged in ((b"abd",), (b"ab",), (b"ab", b"cc")):
            with pytest.raises(Unavailable) as refused:
                await world.store.bring(reference, pieces(*damaged))
            assert refused.value.code == "large-damaged"
            await until(lambda: world.names == [], "nothing of it stays")
            assert said == []
        await world.store.bring(reference, pieces(b"a", b"bc"))
        assert said == [True]
        await until(lambda: world.names == [f"{FILE.hex()}.message"], "it has its name")
        assert (world.folder / f"{FILE.hex()}.message").read_bytes() == CONTENT
        world.store.stop()

    play(whole())


@pytest.mark.req("M6", "P6")
@pytest.mark.parametrize("is_brought", [True, False])
def test_content_of_a_message_that_another_part_accepted_stays_when_the_session_that_sent_it_ends(
    tmp_path: Path, is_brought: bool
) -> None:
    """Some of it was sent here, or all, before the client went to the other part and sent the message there."""

    async def pieces() -> AsyncIterator[bytes]:
        yield CONTENT

    async def whole() -> None:
        (tmp_path / "large").mkdir()
        world = World(tmp_path)
        reference = LargeReference(FILE, len(CONTENT), CHECKSUM)
        if is_brought:
            (world.folder / f"{FILE.hex()}.{SESSION.hex()}").write_bytes(CONTENT[:1])
        world.store.start(lambda _: True)
        if is_brought:
            await world.store.bring(reference, pieces())
        else:
            await world.upload()
        world.references.persisted(100, FILE)
        world.store.session_closed(SESSION)
        await until(lambda: world.names == [f"{FILE.hex()}.message"], "it is the message's")
        await world.store.read(FILE, 0, 1)  # behind what was under way
        assert (world.folder / f"{FILE.hex()}.message").read_bytes() == CONTENT
        world.store.stop()
        assert world.names == [f"{FILE.hex()}.message"]

    play(whole())


@pytest.mark.req("M6", "P6")
def test_a_file_that_is_kept_is_whole_though_its_name_was_lost_with_the_power(tmp_path: Path) -> None:
    """It has the name that it had as an upload: the next one was not on disk. No message of the log refers to it."""

    async def whole() -> None:
        (tmp_path / "large").mkdir()
        (tmp_path / "large" / f"{FILE.hex()}.{SESSION.hex()}").write_bytes(CONTENT)
        world = World(tmp_path)
        world.store.keep({FILE: None})
        world.store.start(lambda _: False, lambda _: None)
        assert world.store.lacks([FILE]) == []
        await until(lambda: world.names == [f"{FILE.hex()}.message"], "it has its name")
        world.store.stop()

    play(whole())


@pytest.mark.req("M6", "M9")
@pytest.mark.parametrize("has", [b"", b"ab", b"abd"])
def test_what_an_interrupted_upload_left_is_not_the_content_of_a_message(tmp_path: Path, has: bytes) -> None:
    """A backup that was started again while a client sent to it: the message comes, and its file is half there."""

    async def pieces() -> AsyncIterator[bytes]:
        yield CONTENT

    async def whole() -> None:
        (tmp_path / "large").mkdir()
        (tmp_path / "large" / f"{FILE.hex()}.{SESSION.hex()}").write_bytes(has)
        world = World(tmp_path)
        world.store.start(lambda _: True)
        said: list[bool] = []
        reference = LargeReference(FILE, len(CONTENT), CHECKSUM)
        assert world.store.lacks([FILE]) == [FILE]
        assert world.store.refers(reference, said.append) is False
        await world.store.bring(reference, pieces())
        assert said == [True]
        await until(
            lambda: world.names == [f"{FILE.hex()}.message"], "it has its name, and nothing else is there"
        )
        assert (world.folder / f"{FILE.hex()}.message").read_bytes() == CONTENT
        world.store.stop()

    play(whole())


@pytest.mark.req("M6", "M9")
@pytest.mark.parametrize(("has", "stays"), [(b"ab", False), (b"abc", True)])
def test_content_that_was_not_all_there_when_the_machine_was_lost_is_not_taken_for_it(
    tmp_path: Path, has: bytes, stays: bool
) -> None:
    """A backup writes down the message before it has the content, and says that it is stored when it has both."""
    reference = LargeReference(FILE, len(CONTENT), CHECKSUM)

    async def whole() -> None:
        (tmp_path / "large").mkdir()
        (tmp_path / "large" / f"{FILE.hex()}.{SESSION.hex()}").write_bytes(has)
        world = World(tmp_path)
        world.references.persisted(100, FILE)
        world.store.start(lambda _: True, lambda _: reference)
        assert world.store.lacks([FILE]) == ([] if stays else [FILE])
        assert world.store.has_lost_some is not stays
        world.store.stop()
        assert world.names == ([f"{FILE.hex()}.message"] if stays else [])

    play(whole())


@pytest.mark.req("M6", "M9")
@pytest.mark.parametrize("is_brought", [False, True])
def test_content_that_is_read_damaged_at_a_start_is_not_thrown_away(tmp_path: Path, is_brought: bool) -> None:
    """Nobody gets it; the next start finds it as it should be, or another manager brings it."""
    reference = LargeReference(FILE, len(CONTENT), CHECKSUM)
    path = tmp_path / "large" / f"{FILE.hex()}.{SESSION.hex()}"

    async def pieces() -> AsyncIterator[bytes]:
        yield CONTENT

    async def begin() -> World:
        world = World(tmp_path)
        world.references.persisted(100, FILE)
        world.store.start(lambda _: True, lambda _: reference)
        return world

    async def whole() -> None:
        path.parent.mkdir()
        path.write_bytes(b"abd")
        world = await begin()
        assert world.store.lacks([FILE]) == [FILE]
        assert world.store.has_lost_some
        with pytest.raises(FileNotFoundError):
            await world.store.read(FILE, 0, 3)
        if is_brought:
            await world.store.bring(reference, pieces())
            assert await world.store.read(FILE, 0, 3) == CONTENT
        world.store.stop()
        if not is_brought:
            assert path.read_bytes() == b"abd", "it is there to be read again"
            path.write_bytes(CONTENT)  # as the disk had it all the time
        world = await begin()
        assert not world.store.lacks([FILE])
        assert not world.store.has_lost_some
        world.store.stop()
        assert world.names == [f"{FILE.hex()}.message"]

    play(whole())


@pytest.mark.req("M6", "M9")
def test_content_that_comes_to_the_disk_damaged_is_not_here(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        store, said = world.store, list[bool]()
        store.on_command(UploadBegun(1, SESSION, 1, Address("queue:a"), FILE, False))
        store.on_command(ChunkSent(SESSION, 1, 0, b"abd"))
        store.on_command(UploadEnded(2, SESSION, 1, len(CONTENT), CHECKSUM))
        assert store.refers(LargeReference(FILE, len(CONTENT), CHECKSUM), said.append) is None
        await until(lambda: said == [False], "it is asked for elsewhere")

    told(tmp_path, story)
