"""A message manager may have a large message before its content, and its log be cut off then: the content is had from
whoever has it, and what nobody has was never stored (M6, P6, docs/decisions/0018)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from crc32c import crc32c

from heliograph.bus.commands import ChunkSent, Published, UploadBegun, UploadEnded
from heliograph.cluster.ranges import Ranges
from heliograph.model.block import BodyKind, pack_lone, parse
from heliograph.model.errors import Unavailable
from heliograph.model.large import FileId, LargeReference, encode_reference
from heliograph.nodes import bringing, catching_up
from heliograph.nodes.message_manager import MessageManager
from tests.properties.parted_world import Parts
from tests.properties.replicated_desk import Desk, Sender
from tests.properties.replicated_managers import Node
from tests.properties.test_merging_stories import play

FILE = FileId(b"f" * 16)
CONTENT = b"content" * 1000
REFERENCE = LargeReference(FILE, len(CONTENT), crc32c(CONTENT))


@contextlib.contextmanager
def content_does_not_come_to(node: Node) -> Iterator[None]:
    """Its disk is full, say: neither what is sent on the bus nor what another has."""
    bring, folder = catching_up.bring_file, node.manager.folder

    async def fails(address: str, manager: MessageManager, reference: LargeReference) -> None:
        if manager.folder == folder:
            raise Unavailable("no room", code="test")
        await bring(address, manager, reference)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node.manager.large, "on_command", lambda _: None)
        patch.setattr(catching_up, "bring_file", fails)
        patch.setattr(bringing, "bring_file", fails)
        yield


async def send_large(world: Parts, desk: Desk, sender: Sender) -> None:
    """And something behind it, and hear that both are stored."""
    waits: list[int] = []
    begun = desk._request("upload", desk._no_rejection)
    desk.clients.multicast(UploadBegun(begun, sender.session, 1, sender.address, FILE, False))
    desk.clients.multicast(ChunkSent(sender.session, 1, 0, CONTENT))
    ended = desk._request("the end of an upload", lambda _: waits.append(1))
    desk.clients.multicast(UploadEnded(ended, sender.session, 1, len(CONTENT), REFERENCE.checksum))
    await world.until(lambda: bool(waits), "the content is stored")
    body = encode_reference(REFERENCE)
    large = pack_lone(body, lane=sender.lane, sequence=sender.next, kind=BodyKind.LARGE)
    for block in (large, pack_lone(b"it", lane=sender.lane, sequence=sender.next + 1)):
        sender.waiting[sender.next] = SimpleNamespace(confirmed=False)  # type: ignore[assignment]
        sender.next += 1
        desk.clients.multicast(Published(sender.address, parse(block)))
    await world.until(lambda: not sender.waiting, "confirmed")


async def with_branch_that_lacks_content(world: Parts) -> Sender:
    """The second and the third manager are a part. The third has the large message, and not its content. The second
    has ended; the parts have met, and the branch of the third is offered."""
    _, second, third = world.nodes
    here, other = world.desks
    await world.send(here, await world.lane(here, "queue:x"), 3)
    world.lose(other)
    await world.settled()
    await world.cut([0, 1, 1], [0])
    there = world.add_desk(1)
    await world.until(lambda: len(world.leaders()) == 2, "each part has a primary")
    theirs = await world.lane(there, "queue:x")
    await world.send(there, theirs, 3)
    with content_does_not_come_to(third):
        await world.until(lambda: third.is_synchronised, "it counts")
        await send_large(world, there, theirs)
        await second.die(0)
        world.lose(there)
        assert third.manager.large.references() == [FILE], "it has the message"
        assert third.manager.large.lacks([FILE]), "and not its content"
        await world.heal()
        await world.until(lambda: bool(world.branches(third)), "its log was cut off")
        await world.rest(1.0)
    return theirs


def known_to(node: Node, sender: Sender) -> Ranges:
    return node.manager.catalogue.known_of(sender.address, sender.lane)


@pytest.mark.req("M6", "P6")
def test_content_that_who_set_the_message_aside_never_had_is_had_from_another(tmp_path: Path) -> None:
    async def story(world: Parts) -> None:
        theirs = await with_branch_that_lacks_content(world)
        first, second, third = world.nodes
        assert world.branches(third), "who has the content may come"
        assert known_to(first, theirs) in ((), ((1, 3),))
        await second.start()
        await world.settled()
        for node in world.nodes:
            assert known_to(node, theirs) == ((1, 5),)
            assert node.manager.large.references() == [FILE]
            await world.until(lambda node=node: not node.manager.large.lacks([FILE]), "it has the content")  # type: ignore[misc]
        world.compare()

    play(story, tmp_path, nodes=3)


@pytest.mark.req("M6", "M9")
@pytest.mark.parametrize("is_alone", [False, True])
def test_content_that_who_leads_has_lost_is_had_from_another(tmp_path: Path, is_alone: bool) -> None:
    """Its log is the longest, so it leads, though its disk has lost a file. `is_alone`: until another comes."""

    async def story(world: Parts) -> None:
        first, second = world.nodes
        here = world.desks[0]
        sender = await world.lane(here, "queue:x")
        await send_large(world, here, sender)
        await world.until(lambda: not second.manager.large.lacks([FILE]), "both have the content")
        (content,) = (tmp_path / "n1").glob(f"**/{FILE.hex()}.*")
        await second.die(0)
        await world.until(lambda: first.is_leading, "it leads alone")
        await world.send(here, sender, 1)
        await first.die(0)
        content.unlink()
        for node in (first, second) if is_alone else (second, first):
            await node.start()
            await world.rest(1.0)
        await world.until(lambda: first.is_leading, "it has more than the other")
        await world.until(lambda: not first.manager.large.lacks([FILE]), "it has the content again")
        assert await first.manager.large.read(FILE, 0, len(CONTENT)) == CONTENT

    play(story, tmp_path)


@pytest.mark.req("M6", "P6")
def test_a_message_whose_content_nobody_has_is_left_out_when_all_are_here(tmp_path: Path) -> None:
    """Whoever had it lost it with the end of its log, which was not on its disk yet. So nobody was told that it is
    stored: its sender will send it again, and must not hear that it is here; nor what followed it. (Here only the
    file is taken away.)"""

    async def story(world: Parts) -> None:
        theirs = await with_branch_that_lacks_content(world)
        (content,) = (tmp_path / "n2").glob(f"**/{FILE.hex()}.*")
        content.unlink()
        await world.nodes[1].start()
        await world.settled()
        for node in world.nodes:
            assert known_to(node, theirs) == ((1, 3),)
            assert node.manager.large.references() == []
        world.compare()
        await world.take_all(world.desks[0], {"queue:x": "queue:x"})

    play(story, tmp_path, nodes=3)
